//! Labels from a text file: one a line, in the order of the dataset.

use super::labels::Labels;
use super::{FieldsError, SampleFields, devkit};
use crate::{Dataset, text_file};
use ddlp_pixels::Field;
use std::path::Path;
use std::sync::Arc;

/// Name of the file with the labels of ImageNet's validation images. Its numbers stand for the classes that the
/// development kit of 2012 lists.
const GROUND_TRUTH: &str = "ILSVRC2012_validation_ground_truth.txt";

/// Returns the name of the file beside a text that is read as well, if there is one.
pub(super) fn reads_beside(path: &Path) -> Option<&'static str> {
    path.file_name().is_some_and(|name| name == GROUND_TRUTH).then_some(devkit::NAME)
}

/// Reads labels from a text file.
pub(super) fn read(path: &Path, dataset: &dyn Dataset) -> Result<SampleFields, FieldsError> {
    let unreadable = |source| FieldsError::Unreadable { path: path.into(), source };
    let wrong = |row, what: String| FieldsError::Row { path: path.into(), unit: "line", row, what };
    let text = text_file::read(path).map_err(unreadable)?;
    let lines: Vec<&str> = text.trim_end().lines().map(str::trim).collect();
    let samples = dataset.len();
    if lines.len() as u64 != samples {
        return Err(FieldsError::Count { path: path.into(), labels: lines.len() as u64, samples });
    }
    let mut labels = Labels::default();
    let synsets = reads_beside(path).map(|name| devkit::synsets(&path.with_file_name(name))).transpose()?;
    for synset in synsets.iter().flatten() {
        labels.add(synset).map_err(|what| wrong(1, what))?;
    }
    let mut positions = Vec::with_capacity(lines.len());
    for (&line, number) in lines.iter().zip(1..) {
        let label = label_of(line, synsets.as_deref());
        positions.push(label.and_then(|label| labels.add_used(label, number)).map_err(|what| wrong(number, what))?);
    }
    let numbered = labels.numbers(dataset.classes(), "line");
    let (numbers, classes) = numbered.map_err(|(number, what)| wrong(number, what))?;
    let values = positions.iter().flat_map(|&position| numbers[position].to_ne_bytes()).collect();
    let mut fields = SampleFields { classes, ..SampleFields::default() };
    fields.add(samples, Field::label(), Arc::new(values))?;
    Ok(fields)
}

/// Returns the label in a line. The error says what is wrong with the line.
fn label_of<'t>(line: &'t str, synsets: Option<&'t [String]>) -> Result<&'t str, String> {
    if line.is_empty() {
        return Err("the line is empty, but each line has a label".into());
    }
    if line.contains('"') {
        return Err(format!("{line} has a quote: in a text without commas, labels need none, so leave quotes out"));
    }
    if line.contains(char::is_whitespace) {
        return Err(format!(
            "{line:?} is several words, but each line has a label alone: if lines name the samples, make the file a \
             .csv whose first line is name,label"
        ));
    }
    let Some(synsets) = synsets else { return Ok(line) };
    let synset = line.parse().ok().and_then(|number: usize| synsets.get(number.checked_sub(1)?));
    synset.map(String::as_str).ok_or_else(|| format!("{line:?} is no class: classes are 1 to {}", synsets.len()))
}

#[cfg(test)]
mod tests {
    use super::super::devkit::tests::SYNSETS;
    use super::*;
    use crate::folder::Folder;
    use std::fs;
    use tempfile::TempDir;

    /// A folder of three images without classes.
    fn flat() -> (TempDir, Folder) {
        let root = tempfile::tempdir().unwrap();
        for name in ["val_1.JPEG", "val_2.JPEG", "val_3.JPEG"] {
            fs::write(root.path().join(name), "x").unwrap();
        }
        let folder = Folder::open(root.path()).unwrap();
        (root, folder)
    }

    /// Labels of the three images, and the names of the classes.
    fn read(name: &str, text: &str) -> Result<(Vec<i64>, Option<Vec<String>>), String> {
        let (root, folder) = flat();
        fs::write(root.path().join("meta.mat"), SYNSETS).unwrap();
        fs::write(root.path().join(name), text).unwrap();
        let fields = SampleFields::read(&root.path().join(name), &folder).map_err(|error| error.to_string())?;
        let label = |index| i64::from_ne_bytes(fields.value(0, index).try_into().unwrap());
        Ok(((0..3).map(label).collect(), fields.classes().map(<[_]>::to_vec)))
    }

    #[test]
    fn each_line_is_the_label_of_a_sample() {
        assert_eq!(read("labels.txt", "490\n361\r\n 171 \n\n").unwrap(), (vec![490, 361, 171], None));
        assert_eq!(read("labels.txt", "\u{feff}490\r\n361\r\n171\r\n").unwrap(), (vec![490, 361, 171], None));
        let (labels, classes) = read("labels.txt", "\u{feff}n02\nn01\nn02").unwrap();
        assert_eq!((labels, classes.unwrap()), (vec![1, 0, 1], vec!["n01".to_owned(), "n02".to_owned()]));
    }

    #[test]
    fn imagenets_ground_truth_has_the_numbers_that_class_folders_give() {
        let (labels, classes) = read(GROUND_TRUTH, "3\n1\n2\n").unwrap();
        assert_eq!(classes.unwrap(), ["n01440764", "n02100735", "n02119789"]);
        // Classes 1 to 3 of the development kit are n02119789, n02100735 and n01440764.
        assert_eq!(labels, [0, 2, 1]);
        for wrong in ["0", "4", "-1", "x"] {
            let error = read(GROUND_TRUTH, &format!("1\n{wrong}\n2\n")).unwrap_err();
            assert!(error.contains("line 2:") && error.contains("classes are 1 to 3"), "{error}");
        }
    }

    #[test]
    fn a_text_that_does_not_fit_says_where_and_why() {
        for (text, part) in [
            ("1\n2\n", "has 2 labels, but the dataset has 3 samples"),
            ("1\n\n2\n", "line 2: the line is empty"),
            ("1\n2\nN/A\n", "line 3: the label N/A is a name, but that of line 1 is a number (1)"),
            ("\"10\"\n\"9\"\n\"8\"\n", "line 1: \"10\" has a quote"),
            ("cat\n\"cat\"\n\"old cat\"\n", "line 2: \"cat\" has a quote"),
            ("1\n-1\n2\n", "line 2: the label -1 is a number, but not a class index"),
            ("1\nval_2.JPEG 7\n2\n", "line 2: \"val_2.JPEG 7\" is several words"),
        ] {
            let error = read("labels.txt", text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
