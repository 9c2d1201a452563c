//! Fields from a table in a text file: comma-separated values with a line of names.

use super::{FieldsError, SampleFields, VALUE_BYTES_MAX, vector};
use crate::{CLASSES_MAX, Dataset};
use csv::{ByteRecord, Position, ReaderBuilder, Trim};
use ddlp_pixels::{DType, Field, LABEL};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// Largest whole number that a table may have: all of them up to this one are different as f64.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

impl SampleFields {
    /// Reads fields from a table with comma-separated values. The first line names the columns. The first column names
    /// the sample, with or without the extension of its file; each other column is a field.
    ///
    /// Columns of whole numbers give int64, others float32. A cell may have several numbers, separated by spaces: the
    /// field is then a vector. The column `label` has class indices or names of classes. If every name is one of the
    /// dataset's classes, it stands for that class; otherwise the names in the table are the classes, sorted byte by
    /// byte. Lines about other samples are left out.
    ///
    /// # Errors
    ///
    /// [`FieldsError`] says in which line what is wrong, or which sample has no line.
    pub fn read(path: &Path, dataset: &dyn Dataset) -> Result<Self, FieldsError> {
        Table { path, dataset }.read()
    }
}

/// A table that is read for a dataset.
struct Table<'t> {
    path: &'t Path,
    dataset: &'t dyn Dataset,
}

/// A column that is read. Numbers are kept as f64, labels as positions in `texts`.
struct ColumnReading {
    name: String,
    /// Numbers in a cell; `None` before the first line.
    width: Option<usize>,
    numbers: Vec<f64>,
    is_whole: bool,
}

/// Labels as a table has them: each text once, with its position.
#[derive(Default)]
struct Texts {
    positions: HashMap<String, usize>,
}

impl Table<'_> {
    fn read(&self) -> Result<SampleFields, FieldsError> {
        let mut reader = ReaderBuilder::new()
            .trim(Trim::All)
            .comment(Some(b'#'))
            .from_path(self.path)
            .map_err(|source| self.unreadable(source))?;
        let header = reader.headers().map_err(|source| self.unreadable(source))?.clone();
        if header.len() < 2 {
            return Err(self.line(1, "the first line must name at least two columns: the sample's name, and a field"));
        }
        let samples = self.dataset.len();
        let mut columns: Vec<_> = header.iter().skip(1).map(ColumnReading::new).collect();
        let (mut texts, mut names) = (Texts::default(), Names::new(self.dataset));
        let mut has = vec![false; samples as usize];
        let mut record = ByteRecord::new();
        while reader.read_byte_record(&mut record).map_err(|source| self.unreadable(source))? {
            let line = record.position().map_or(0, Position::line);
            let Some(index) = names.find(self.text(line, &record[0])?) else { continue };
            if std::mem::replace(&mut has[index as usize], true) {
                return Err(self.line(line, format!("sample {} has a line before this one", self.dataset.name(index))));
            }
            for (column, cell) in columns.iter_mut().zip(record.iter().skip(1)) {
                let cell = self.text(line, cell)?;
                column.take(index, samples, cell, &mut texts).map_err(|what| {
                    let what = format!("column {:?}: {what}", column.name);
                    self.line(line, what)
                })?;
            }
        }
        self.check_whole(&has)?;
        let mut fields = SampleFields::default();
        for column in columns {
            if column.name == LABEL {
                fields.classes = texts.finish(self.dataset.classes(), &mut |labels, classes| {
                    let values = column.numbers.iter().flat_map(|&at| labels[at as usize].to_ne_bytes()).collect();
                    fields.add(samples, Field::label(), Arc::new(values)).map(|()| classes)
                })?;
            } else {
                let (field, values) = column.finish();
                fields.add(samples, field, Arc::new(values))?;
            }
        }
        Ok(fields)
    }

    /// Checks that every sample has a line.
    fn check_whole(&self, has: &[bool]) -> Result<(), FieldsError> {
        let Some(first) = has.iter().position(|&has| !has) else { return Ok(()) };
        let count = has.iter().filter(|&&has| !has).count() as u64;
        let (path, first, samples) = (self.path.into(), self.dataset.name(first as u64), has.len() as u64);
        Err(FieldsError::MissingSamples { path, count, samples, first })
    }

    fn text<'c>(&self, line: u64, cell: &'c [u8]) -> Result<&'c str, FieldsError> {
        std::str::from_utf8(cell).map_err(|_| self.line(line, "the line is not UTF-8: save the table as UTF-8"))
    }

    fn unreadable(&self, source: csv::Error) -> FieldsError {
        FieldsError::Unreadable { path: self.path.into(), source }
    }

    fn line(&self, line: u64, what: impl Into<String>) -> FieldsError {
        FieldsError::Line { path: self.path.into(), line, what: what.into() }
    }
}

impl ColumnReading {
    fn new(name: &str) -> Self {
        Self { name: name.into(), width: None, numbers: Vec::new(), is_whole: true }
    }

    /// Takes the cell of a sample. The error says what is wrong with it.
    fn take(&mut self, index: u64, samples: u64, cell: &str, texts: &mut Texts) -> Result<(), String> {
        let is_label = self.name == LABEL;
        let width = if is_label { 1 } else { cell.split_ascii_whitespace().count() };
        if cell.is_empty() {
            return Err("the cell is empty: write nan for a number that is missing".into());
        }
        let expected = *self.width.get_or_insert(width);
        if width != expected {
            return Err(format!("the cell has {width} numbers, the first one {expected}"));
        }
        if self.numbers.is_empty() {
            let numbers = (samples as usize).checked_mul(width).filter(|_| width * 8 <= VALUE_BYTES_MAX);
            let numbers = numbers.ok_or("the cell has too many numbers")?;
            self.numbers.try_reserve_exact(numbers).map_err(|_| "the system refuses memory for the column")?;
            self.numbers.resize(numbers, 0.0);
        }
        let place = &mut self.numbers[index as usize * width..][..width];
        if is_label {
            place[0] = texts.position(cell)? as f64;
            return Ok(());
        }
        for (number, text) in place.iter_mut().zip(cell.split_ascii_whitespace()) {
            *number = text.parse().map_err(|_| format!("{text:?} is not a number; only labels may be words"))?;
            self.is_whole &= is_whole(text);
            if number.is_finite() && number.abs() > WHOLE_MAX && is_whole(text) {
                return Err(format!("{text} has more digits than a table of numbers keeps"));
            }
        }
        Ok(())
    }

    /// Returns the field and its values.
    fn finish(self) -> (Field, Vec<u8>) {
        let width = self.width.unwrap_or(1);
        let shape = if width == 1 { Vec::new() } else { vec![width as u32] };
        if self.is_whole {
            let values = self.numbers.iter().flat_map(|&number| (number as i64).to_ne_bytes()).collect();
            (vector(&self.name, DType::I64, shape), values)
        } else {
            let values = self.numbers.iter().flat_map(|&number| (number as f32).to_ne_bytes()).collect();
            (vector(&self.name, DType::F32, shape), values)
        }
    }
}

/// Returns whether a number is written as a whole one.
fn is_whole(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

impl Texts {
    fn position(&mut self, text: &str) -> Result<usize, String> {
        if let Some(&position) = self.positions.get(text) {
            return Ok(position);
        }
        let position = self.positions.len();
        if position == CLASSES_MAX {
            return Err(format!("there are more than {CLASSES_MAX} labels"));
        }
        self.positions.insert(text.into(), position);
        Ok(position)
    }

    /// Calls `add` with the label of each position, and the names of the classes if the table has them. Returns what
    /// `add` returns.
    fn finish<E>(
        &self,
        classes: &[String],
        add: &mut impl FnMut(Vec<i64>, Option<Vec<String>>) -> Result<Option<Vec<String>>, E>,
    ) -> Result<Option<Vec<String>>, E> {
        let mut texts = vec![""; self.positions.len()];
        self.positions.iter().for_each(|(text, &position)| texts[position] = text);
        let own: HashMap<&str, i64> = classes.iter().map(String::as_str).zip(0..).collect();
        if let Some(labels) = texts.iter().map(|text| own.get(text).copied()).collect() {
            return add(labels, None);
        }
        if let Some(labels) = texts.iter().map(|text| text.parse().ok()).collect() {
            return add(labels, None);
        }
        let mut sorted = texts.clone();
        sorted.sort_unstable();
        let labels = texts.iter().map(|text| sorted.binary_search(text).expect("it is one of them") as i64).collect();
        add(labels, Some(sorted.into_iter().map(str::to_owned).collect()))
    }
}

/// Finds samples by their names.
struct Names {
    by_name: HashMap<String, u64>,
    /// Whether a name in the table may lack the extension. Decided by the first line that names a sample.
    by_stem: Option<HashMap<String, u64>>,
    has_found: bool,
}

impl Names {
    fn new(dataset: &dyn Dataset) -> Self {
        let by_name = (0..dataset.len()).map(|index| (dataset.name(index), index)).collect();
        Self { by_name, by_stem: None, has_found: false }
    }

    fn find(&mut self, name: &str) -> Option<u64> {
        if let Some(by_stem) = &self.by_stem {
            return by_stem.get(name).copied();
        }
        let found = self.by_name.get(name).copied();
        if found.is_some() || self.has_found {
            self.has_found = true;
            return found;
        }
        let stem = |name: &str| name.rsplit_once('.').map_or(name, |(stem, _)| stem).to_owned();
        let by_stem: HashMap<_, _> = self.by_name.iter().map(|(name, &index)| (stem(name), index)).collect();
        let found = by_stem.get(name).copied();
        if found.is_some() && by_stem.len() == self.by_name.len() {
            self.by_stem = Some(by_stem);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::Folder;
    use crate::samples::write_folder;
    use std::fs;
    use tempfile::TempDir;

    /// An image folder of two classes with two samples each: class0/0000.jpg to class1/0001.jpg.
    fn folder() -> (TempDir, Folder) {
        let root = tempfile::tempdir().unwrap();
        write_folder(root.path(), 2, 2);
        let folder = Folder::open(root.path()).unwrap();
        (root, folder)
    }

    fn read(text: &str) -> Result<SampleFields, String> {
        let (root, folder) = folder();
        let table = root.path().join("table.csv");
        fs::write(&table, text).unwrap();
        SampleFields::read(&table, &folder).map_err(|error| {
            let source = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
            format!("{error}{source}")
        })
    }

    fn floats(fields: &SampleFields, field: usize, index: u64) -> Vec<f32> {
        fields.value(field, index).chunks_exact(4).map(|bytes| f32::from_ne_bytes(bytes.try_into().unwrap())).collect()
    }

    fn whole(fields: &SampleFields, field: usize, index: u64) -> i64 {
        i64::from_ne_bytes(fields.value(field, index).try_into().unwrap())
    }

    #[test]
    fn each_column_is_a_field_in_the_order_of_the_dataset() {
        let table = "name, age, box, weight\n# a comment\nclass1/0000.jpg,3,0.5 1 2 3,1\n\
                     class0/0000.jpg,1,0 0 1 1,nan\nother/9.jpg,9,9,9\n\"class0/0001.jpg\",-2,0 0 2 2,2.5\n\
                     class1/0001.jpg,4,1 1 1 1,1e3\n";
        let fields = read(table).unwrap();
        let described: Vec<_> = fields.fields().map(|field| (&*field.name, field.dtype, field.shape.clone())).collect();
        assert_eq!(
            described,
            [("age", DType::I64, vec![]), ("box", DType::F32, vec![4]), ("weight", DType::F32, vec![])]
        );
        assert_eq!((0..4).map(|index| whole(&fields, 0, index)).collect::<Vec<_>>(), [1, -2, 3, 4]);
        assert_eq!(floats(&fields, 1, 2), [0.5, 1.0, 2.0, 3.0]);
        assert!(floats(&fields, 2, 0)[0].is_nan());
        assert_eq!(floats(&fields, 2, 3), [1000.0]);
        assert_eq!(fields.classes(), None);
    }

    #[test]
    fn names_may_lack_the_extension() {
        let table = "name,age\nclass0/0000,1\nclass0/0001,2\nclass1/0000,3\nclass1/0001,4\n";
        assert_eq!(whole(&read(table).unwrap(), 0, 2), 3);
    }

    #[test]
    fn labels_are_the_classes_of_the_dataset_or_numbers_or_new_classes() {
        let labels = |labels: [&str; 4]| {
            let names = ["class0/0000", "class0/0001", "class1/0000", "class1/0001"];
            let lines: String = names.iter().zip(labels).map(|(name, label)| format!("{name},{label}\n")).collect();
            let fields = read(&format!("name,label\n{lines}")).unwrap();
            let found: Vec<_> = (0..4).map(|index| whole(&fields, 0, index)).collect();
            (found, fields.classes().map(<[_]>::to_vec))
        };
        assert_eq!(labels(["class1", "class0", "class1", "class1"]), (vec![1, 0, 1, 1], None));
        assert_eq!(labels(["7", "7", "10", "-1"]), (vec![7, 7, 10, -1], None));
        let (found, classes) = labels(["zebra", "a cat", "class0", "zebra"]);
        assert_eq!(found, [2, 0, 1, 2]);
        assert_eq!(classes.unwrap(), ["a cat", "class0", "zebra"]);
    }

    #[test]
    fn a_table_that_does_not_fit_says_where_and_why() {
        let all = "class0/0000,1\nclass0/0001,2\nclass1/0000,3\n";
        for (text, part) in [
            ("name\nclass0/0000\n".to_string(), "line 1: the first line must name"),
            (format!("name,age\n{all}"), "no line for 1 of the 4 samples, such as class1/0001.jpg"),
            (format!("name,age\n{all}class0/0001,5\n"), "line 5: sample class0/0001.jpg has a line before"),
            (format!("name,age\n{all}class1/0001,old\n"), "line 5: column \"age\": \"old\" is not a number"),
            (format!("name,age\n{all}class1/0001,\n"), "line 5: column \"age\": the cell is empty"),
            (format!("name,age\n{all}class1/0001,4 5\n"), "line 5: column \"age\": the cell has 2 numbers"),
            (format!("name,age\n{all}class1/0001\n"), "found record with 1 field"),
            (format!("name,age\n{all}class1/0001,99999999999999999999\n"), "more digits"),
            (format!("name,image\n{all}class1/0001,1\n"), "field \"image\": the prepared image"),
            (format!("name,age,age\n{}class1/0001,1,1\n", all.replace('\n', ",0\n")), "another field has this name"),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
