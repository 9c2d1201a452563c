//! Fields from a table in a text file: comma-separated values with a line of names.

use super::rows::Rows;
use super::{FieldsError, SampleFields};
use crate::Dataset;
use crate::table::{BROKEN, LINE_BREAKS, Line, Table};
use std::fs;
use std::path::Path;

/// Reads fields from a table.
pub(super) fn read(path: &Path, dataset: &dyn Dataset) -> Result<SampleFields, FieldsError> {
    let unreadable = |source| FieldsError::Unreadable { path: path.into(), source };
    let wrong = |(row, what)| FieldsError::Row { path: path.into(), unit: "line", row, what };
    let bytes = fs::read(path).map_err(unreadable)?;
    let mut table = Table::new(&bytes).map_err(unreadable)?;
    let header = table.header().map_err(wrong)?;
    let mut rows = Rows::new(path, "line", dataset, header.iter().map(String::as_str), 1)?;
    while let Some(Line { number, cells }) = table.next().map_err(wrong)? {
        let cells: Result<Vec<&str>, _> = cells.iter().map(|cell| std::str::from_utf8(cell)).collect();
        let cells = cells.map_err(|_| rows.wrong(number, "the line is not UTF-8: save the table as UTF-8"))?;
        if let Some(at) = cells.iter().position(|cell| cell.contains(LINE_BREAKS)) {
            return Err(rows.wrong(number, format!("column {:?} {BROKEN}", header[at])));
        }
        rows.take(number, cells[0], &cells[1..])?;
    }
    rows.finish()
}

#[cfg(test)]
mod tests {
    use super::super::FieldTable;
    use super::*;
    use crate::folder::Folder;
    use crate::samples::write_folder;
    use ddlp_pixels::DType;
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
        SampleFields::read(&table, &folder).map_err(|error| ddlp_cause::with_causes(&error))
    }

    fn floats(fields: &SampleFields, field: usize, index: u64) -> Vec<f32> {
        fields.value(field, index).chunks_exact(4).map(|bytes| f32::from_ne_bytes(bytes.try_into().unwrap())).collect()
    }

    fn whole(fields: &SampleFields, field: usize, index: u64) -> i64 {
        i64::from_ne_bytes(fields.value(field, index).try_into().unwrap())
    }

    #[test]
    fn each_column_is_a_field_in_the_order_of_the_dataset() {
        let table = "name, age, box, weight\n#1.jpg,9,9 9 9 9,9\nclass1/0000.jpg,3,0.5 1 2 3,1\n\
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
        // Names with and without the extension are not mixed, whichever comes first.
        let mixed = ["class0/0000,1\nclass0/0001.jpg,2\n", "x,0\nclass0/0001.jpg,2\nclass0/0000,1\n"];
        for lines in mixed {
            assert!(read(&format!("name,age\n{lines}")).unwrap_err().contains("no line for 3 of the 4"));
        }
    }

    #[test]
    fn names_without_the_extension_that_two_samples_share_are_not_theirs() {
        let (root, _) = folder();
        fs::copy(root.path().join("class0/0000.jpg"), root.path().join("class0/0000.png")).unwrap();
        let table = root.path().join("table.csv");
        fs::write(&table, "name,age\nclass0/0000,1\nclass0/0001,2\nclass1/0000,3\nclass1/0001,4\n").unwrap();
        let error = SampleFields::read(&table, &Folder::open(root.path()).unwrap()).unwrap_err();
        assert!(matches!(error, FieldsError::MissingSamples { count: 5, .. }), "{error}");
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
        assert_eq!(labels(["7", "7.0", "10", "0.0"]), (vec![7, 7, 10, 0], None));
        let (found, classes) = labels(["zebra", "a cat", "dog", "zebra"]);
        assert_eq!(found, [2, 0, 1, 2]);
        assert_eq!(classes.unwrap(), ["a cat", "dog", "zebra"]);
    }

    #[test]
    fn all_names_in_a_table_are_classes_and_of_a_prediction_only_the_first_word() {
        let table = "ImageId,PredictionString\nclass0/0000,n02 1 2 3 4\nclass0/0001,n01 5 6 7 8 n09 1 1 1 1\n\
                     class1/0000,n02 1 2 3 4\nother,n03 1 2 3 4\nclass1/0001,n04 1 2 3 4\n";
        let fields = read(table).unwrap();
        assert_eq!(fields.fields().map(|field| &*field.name).collect::<Vec<_>>(), ["label"]);
        assert_eq!(fields.classes().unwrap(), ["n01", "n02", "n03", "n04"]);
        assert_eq!((0..4).map(|index| whole(&fields, 0, index)).collect::<Vec<_>>(), [1, 0, 1, 3]);
    }

    #[test]
    fn labels_of_other_lines_change_no_classes_of_the_dataset_and_no_numbers() {
        let labels = |label: &str| {
            let names = ["class0/0000", "class0/0001", "class1/0000", "class1/0001"];
            let lines: String = names.iter().map(|name| format!("{name},{label}\n")).collect();
            let fields = read(&format!("name,label\nother,zebra\n{lines}")).unwrap();
            (whole(&fields, 0, 0), fields.classes().is_some())
        };
        assert_eq!((labels("class1"), labels("7")), ((1, false), (7, false)));
    }

    #[test]
    fn numbers_of_other_lines_are_not_names_of_classes() {
        let table = "name,label\nclass0/0000,b\nclass0/0001,a\nother,-1\nclass1/0000,c\nclass1/0001,b\n";
        assert_eq!(read(table).unwrap().classes().unwrap(), ["a", "b", "c"]);
    }

    #[test]
    fn labels_that_are_neither_indices_nor_names_are_errors_that_name_their_line() {
        let error = |column: &str, labels: [&str; 4]| {
            let names = ["class0/0000", "class0/0001", "class1/0000", "class1/0001"];
            let lines: String = names.iter().zip(labels).map(|(name, label)| format!("{name},{label}\n")).collect();
            read(&format!("name,{column}\n{lines}")).unwrap_err()
        };
        for column in ["label", "labels"] {
            for (labels, part) in [
                (["0", "1", "N/A", "2"], "line 4: column COLUMN: the label N/A is a name, but that of line 2 is"),
                (["cat", "1", "cat", "2"], "line 3: column COLUMN: the label 1 is a number, but that of line 2 is"),
                (["0", "-1", "1", "2"], "line 3: column COLUMN: the label -1 is a number, but not a class index"),
                (["0", "1", "1.5", "2"], "line 4: column COLUMN: the label 1.5 is a number, but not a class index"),
                (["0", "1", "2", "12345678901234567890"], "line 5: column COLUMN: the label 12345678901234567890 is"),
            ] {
                let (error, part) = (error(column, labels), part.replace("COLUMN", &format!("{column:?}")));
                assert!(error.contains(&part), "{error}");
            }
        }
    }

    #[test]
    fn an_unknown_label_among_classes_of_the_dataset_is_an_error() {
        let error = |column: &str, labels: [&str; 4]| {
            let names = ["class0/0000", "class0/0001", "class1/0000", "class1/0001"];
            let lines: String = names.iter().zip(labels).map(|(name, label)| format!("{name},{label}\n")).collect();
            read(&format!("name,{column}\n{lines}")).unwrap_err()
        };
        for (column, labels, line) in [
            ("label", ["class0", "class1", "clas1", "aclass"], 4),
            ("label", ["other", "class1", "class0", "class0"], 2),
            ("labels", ["class0", "class1 class0", "", "class1 clas0"], 5),
        ] {
            let error = error(column, labels);
            let wrong = labels[line - 2].split(' ').next_back().unwrap();
            let part =
                format!("line {line}: column \"{column}\": the label {wrong} is not among the dataset's 2 classes");
            assert!(error.contains(&part) && error.contains("name all classes (`classes`)"), "{error}");
        }
    }

    #[test]
    fn an_unknown_label_among_classes_whose_names_are_numbers_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        for class in ["2", "10"] {
            fs::create_dir(root.path().join(class)).unwrap();
            fs::write(root.path().join(class).join("1.jpg"), "x").unwrap();
        }
        let (folder, table) = (Folder::open(root.path()).unwrap(), root.path().join("table.csv"));
        let labels = |labels: [&str; 2]| {
            fs::write(&table, format!("name,label\n10/1.jpg,{}\n2/1.jpg,{}\n", labels[0], labels[1])).unwrap();
            let fields = SampleFields::read(&table, &folder).map_err(|error| error.to_string())?;
            Ok::<_, String>([0, 1].map(|index| whole(&fields, 0, index)))
        };
        assert_eq!(labels(["10", "2"]), Ok([0, 1]));
        assert_eq!(labels(["1", "0"]), Ok([1, 0]));
        let error = labels(["10", "3"]).unwrap_err();
        assert!(error.contains("line 3: column \"label\": the label 3 is not among the dataset's classes"), "{error}");
    }

    #[test]
    fn quoted_spaces_belong_to_a_name() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join(" a.jpg"), "x").unwrap();
        let (folder, table) = (Folder::open(root.path()).unwrap(), root.path().join("table.csv"));
        fs::write(&table, "name,age\n\" a.jpg\", 3 \n").unwrap();
        assert_eq!(whole(&SampleFields::read(&table, &folder).unwrap(), 0, 0), 3);
    }

    #[test]
    fn quotes_and_spaces_before_them_make_no_other_label() {
        let table = "name,age,label\nclass0/0000, \"10\", \"cat\"\nclass0/0001,\"9\",\"cat\" \n\
                     class1/0000,8, cat\nclass1/0001,7,cat\n";
        let fields = read(table).unwrap();
        assert_eq!(fields.classes().unwrap(), ["cat"]);
        assert_eq!((0..4).map(|index| whole(&fields, 0, index)).collect::<Vec<_>>(), [10, 9, 8, 7]);
    }

    #[test]
    fn whole_numbers_are_exact() {
        let fields = |numbers: [&str; 4]| {
            let names = ["class0/0000", "class0/0001", "class1/0000", "class1/0001"];
            let lines: String = names.iter().zip(numbers).map(|(name, cell)| format!("{name},{cell}\n")).collect();
            read(&format!("name,id\n{lines}"))
        };
        let (least, most) = (i64::MIN.to_string(), i64::MAX.to_string());
        let found = fields(["9007199254740993", &least, &most, "+1"]).unwrap();
        let found: Vec<_> = (0..4).map(|index| whole(&found, 0, index)).collect();
        assert_eq!(found, [9_007_199_254_740_993, i64::MIN, i64::MAX, 1]);
        let error = fields(["1", "9223372036854775808", "1", "1"]).unwrap_err();
        assert!(error.contains("line 3: column \"id\": 9223372036854775808 has more digits than int64"), "{error}");
        // A column with other numbers is float32, in which this one would be another.
        for (numbers, line) in [(["9007199254740993", "0.5"], 3), (["0.5", "9007199254740993"], 3)] {
            let error = fields([numbers[0], numbers[1], "1", "1"]).unwrap_err();
            assert!(error.contains(&format!("line {line}: column \"id\": ")), "{error}");
            assert!(error.contains("9007199254740993 beside numbers"), "{error}");
        }
        let mixed = fields(["16777216", "0.5", "-3", "nan"]).unwrap();
        assert_eq!((0..3).map(|index| floats(&mixed, 0, index)[0]).collect::<Vec<_>>(), [16_777_216.0, 0.5, -3.0]);
    }

    #[test]
    fn a_number_beyond_float32_is_an_error_and_infinity_is_none() {
        let fields = |number: &str| {
            read(&format!("name,x\nclass0/0000,0.5\nclass0/0001,{number}\nclass1/0000,1\nclass1/0001,2\n"))
        };
        for number in ["1e39", "-3.5e38"] {
            let error = fields(number).unwrap_err();
            assert!(error.contains(&format!("line 3: column \"x\": {number} is beyond float32")), "{error}");
        }
        assert_eq!(floats(&fields("-inf").unwrap(), 0, 1), [f32::NEG_INFINITY]);
        assert_eq!(floats(&fields("3.4e38").unwrap(), 0, 1), [3.4e38]);
    }

    #[test]
    fn columns_of_the_same_name_are_one_vector() {
        let table = "name,on,x,on\nclass0/0000,1,0.5,0\nclass0/0001,0,1,-1\nclass1/0000,1,2,1\nclass1/0001,0,3,7\n";
        let fields = read(table).unwrap();
        let described: Vec<_> = fields.fields().map(|field| (&*field.name, field.dtype, field.shape.clone())).collect();
        assert_eq!(described, [("on", DType::I64, vec![2]), ("x", DType::F32, vec![])]);
        assert_eq!(fields.value(0, 1), [0i64.to_ne_bytes(), (-1i64).to_ne_bytes()].as_flattened());
    }

    #[test]
    fn several_labels_are_a_float_for_each_class() {
        let labels = |labels: [&str; 5]| {
            let names = ["class0/0000", "class0/0001", "class1/0000", "class1/0001", "other"];
            let lines: String = names.iter().zip(labels).map(|(name, label)| format!("{name},{label}\n")).collect();
            let fields = read(&format!("name,labels\n{lines}")).unwrap();
            (0..4).map(|index| floats(&fields, 0, index)).collect::<Vec<_>>()
        };
        // The folder's two classes, by their names and by their numbers.
        let expected = [[1.0, 0.0], [1.0, 1.0], [0.0, 0.0], [0.0, 1.0]];
        assert_eq!(labels(["class0", "class1 class0", "", "class1", "?"]), expected);
        assert_eq!(labels(["0", "1 0 1", "", "1", "1"]), expected);
        // The table has class names of its own. One of them occurs only in a line about another sample.
        let expected = [[0.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]];
        assert_eq!(labels(["no finding", "mass | no finding", "", "mass", "x"]), expected);
        assert_eq!(labels(["3", "", "", "0", ""]), [[0.0, 0.0, 0.0, 1.0], [0.0; 4], [0.0; 4], [1.0, 0.0, 0.0, 0.0]]);
    }

    #[test]
    fn several_labels_name_the_classes_unless_the_dataset_or_the_column_label_does() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("1.jpg"), "x").unwrap();
        let (folder, table) = (Folder::open(root.path()).unwrap(), root.path().join("table.csv"));
        let classes = |text: &str| {
            fs::write(&table, text).unwrap();
            SampleFields::read(&table, &folder).unwrap().classes().map(|classes| classes.join(" "))
        };
        assert_eq!(classes("name,labels\n1.jpg,red round\n").unwrap(), "red round");
        for both in ["label,labels\n1.jpg,apple,red round\n", "labels,label\n1.jpg,red round,apple\n"] {
            assert_eq!(classes(&format!("name,{both}")).unwrap(), "apple");
        }
    }

    #[test]
    fn a_table_in_memory_gives_what_the_same_file_gives() {
        let text = "name,age,box,label\nclass1/0000,3,0.5 1,b\nclass0/0000,1,0 0,a\nclass0/0001,2,1 1,b\n\
                    other,5,1 1,c\nclass1/0001,4,2 2,a\n";
        let mut lines = text.lines().map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
        let header = lines.next().unwrap();
        let rows: Vec<_> = lines.collect();
        let cells = |at: usize| rows.iter().map(|row| row[at].clone()).collect();
        let columns = (1..4).map(|at| (header[at].clone(), cells(at))).collect();
        let mut table = FieldTable { path: "the table".into(), names: cells(0), columns };
        let (_root, folder) = folder();
        let (found, expected) = (SampleFields::from_table(&table, &folder).unwrap(), read(text).unwrap());
        assert!(found.fields().eq(expected.fields()) && found.classes() == expected.classes());
        for (field, index) in (0..3).flat_map(|field| (0..4).map(move |index| (field, index))) {
            assert_eq!(found.value(field, index), expected.value(field, index));
        }
        table.columns[0].1[2] = "old".into();
        let error = SampleFields::from_table(&table, &folder).unwrap_err().to_string();
        assert!(error.starts_with("the table, row 2: column \"age\""), "{error}");
        table.names.pop();
        table.columns.iter_mut().for_each(|(_, cells)| drop(cells.pop()));
        table.columns[0].1[2] = "2".into();
        let error = SampleFields::from_table(&table, &folder).unwrap_err().to_string();
        assert!(error.contains("the table has no row for 1 of the 4 samples"), "{error}");
        table.columns[1].1.pop();
        let error = SampleFields::from_table(&table, &folder).unwrap_err().to_string();
        assert!(error.contains("\"box\"") && error.contains("3 cells, but the table has 4 rows"), "{error}");
        let error = SampleFields::read(Path::new("x.parquet"), &folder).unwrap_err().to_string();
        assert!(error.contains("only ddlp.Loader in Python reads"), "{error}");
    }

    #[test]
    fn a_table_that_does_not_fit_says_where_and_why() {
        let all = "class0/0000,1\nclass0/0001,2\nclass1/0000,3\n";
        for (text, part) in [
            ("name\nclass0/0000\n".to_string(), "line 1: at least two columns are needed"),
            (format!("name,age\n{all}"), "no line for 1 of the 4 samples, such as class1/0001.jpg"),
            (format!("name,age\n{all}class0/0001,5\n"), "line 5: sample class0/0001.jpg has a line before"),
            (format!("name,age\n{all}class1/0001,old\n"), "line 5: column \"age\": \"old\" is not a number"),
            (format!("name,age\n{all}class1/0001,\n"), "line 5: column \"age\": the cell is empty"),
            (format!("name,age\n{all}class1/0001,4 5\n"), "line 5: column \"age\": the cell has 2 numbers"),
            (format!("name,age\n{all}class1/0001\n"), "line 5: cells in the line: 1"),
            (format!("name,age\n{all}class1/0001,\"5"), "line 5: a quote begins a cell here and is never closed"),
            (format!("name,age\n{all}class1/0001,5\" x\n"), "line 5: the cell 5\" x has a quote"),
            ("name,labels\nx,\"a\nclass0/0000,b\ny,\"\n".to_string(), "line 2: column \"labels\" goes on in the next"),
            ("name,age\n\"x\nclass0/0000\",1\n".to_string(), "line 2: column \"name\" goes on in the next"),
            (format!("name,age\n{all}class1/0001,99999999999999999999\n"), "more digits"),
            (format!("name,Label\n{all}class1/0001,4\n"), "line 1: a column is called Label: write label if it has"),
            (format!("name,image\n{all}class1/0001,1\n"), "field \"image\": the prepared image"),
            (format!("name,label,label\n{all}"), "line 1: two columns have labels for the field \"label\""),
            (format!("name,label,PredictionString\n{all}"), "line 1: two columns have labels"),
            (format!("name,labels\n{all}class1/0001,9999999 4\n"), "label 9999999 does not lie between 0 and"),
            (format!("name,labels\n{all}class1/0001,300000\n"), "too many classes for a vector: 300001"),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
