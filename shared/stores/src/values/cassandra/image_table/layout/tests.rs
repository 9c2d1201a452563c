use super::*;

fn described(name: &str, columns: &[(&str, &str, &str)]) -> Described {
    let columns = columns.iter().map(|(name, kind, part)| Column::new(name, kind, part)).collect();
    Described { name: name.to_owned(), columns }
}

fn options(data: Option<&str>, label: Option<&str>) -> OpenOptions {
    let [data_column, label_column] = [data, label].map(|name| name.map(str::to_owned));
    OpenOptions { table: TableOptions { data_column, label_column, metadata_table: None }, ..OpenOptions::default() }
}

#[test]
fn one_table_is_asked_for_everything() {
    let columns =
        [("a", "int", "partition_key"), ("b", "text", "clustering"), ("la\"bel", "text", ""), ("data", "blob", "")];
    let layout = Layout::of("ks", &described("t", &columns), None, &options(Some("data"), Some("la\"bel"))).unwrap();
    assert_eq!(
        layout.select_image,
        "SELECT \"data\", WRITETIME(\"data\") FROM \"ks\".\"t\" WHERE \"a\" = ? AND \"b\" = ?"
    );
    assert_eq!(layout.lists.len(), 1);
    assert_eq!(
        layout.lists[0].statement,
        "SELECT \"a\", \"b\", \"la\"\"bel\", WRITETIME(\"data\") FROM \"ks\".\"t\" WHERE token(\"a\") > ? AND \
         token(\"a\") <= ?"
    );
    assert_eq!(layout.label, Some(LabelType::Text));
    assert_eq!(layout.partition_key(&[&[0, 0, 0, 7][..], b"x"]), [0, 0, 0, 7]);
}

#[test]
fn labels_of_another_table_are_listed_by_its_own_tokens() {
    let images = described("i", &[("a", "int", "partition_key"), ("b", "text", "partition_key"), ("data", "blob", "")]);
    let columns =
        [("set", "text", "partition_key"), ("a", "int", "clustering"), ("b", "text", ""), ("label", "int", "")];
    let metadata = described("m", &columns);
    let layout = Layout::of("ks", &images, Some(&metadata), &options(Some("data"), Some("label"))).unwrap();
    let statements: Vec<&str> = layout.lists.iter().map(|list| &*list.statement).collect();
    assert_eq!(
        statements,
        [
            "SELECT \"a\", \"b\", \"label\" FROM \"ks\".\"m\" WHERE token(\"set\") > ? AND token(\"set\") <= ?",
            "SELECT \"a\", \"b\", WRITETIME(\"data\") FROM \"ks\".\"i\" WHERE token(\"a\", \"b\") > ? AND \
             token(\"a\", \"b\") <= ?",
        ]
    );
    assert_eq!(layout.partition_key(&[&[0, 0, 0, 7][..], b"x"]), b"\0\x04\0\0\0\x07\0\0\x01x\0");
}

#[test]
fn a_table_without_further_columns_needs_no_labels() {
    let columns = [("id", "uuid", "partition_key"), ("data", "blob", "")];
    let layout = Layout::of("ks", &described("t", &columns), None, &options(Some("data"), None)).unwrap();
    assert_eq!(layout.label, None);
}

#[test]
fn columns_that_cannot_be_meant_are_named() {
    let columns = [("id", "uuid", "partition_key"), ("label", "map<int, int>", ""), ("data", "blob", "")];
    let table = described("t", &columns);
    let said = |metadata: Option<&Described>, data, label| {
        Layout::of("ks", &table, metadata, &options(data, label)).unwrap_err()
    };
    for (data, label, part) in [
        (None, None, "`data_column` has to name the column of the images; t has the columns id (uuid, key), label"),
        (Some("image"), None, "`data_column` is image, but the table t has the columns id (uuid, key), label"),
        (Some("label"), None, "the column label of t has the type map<int, int>, but images are blobs"),
        (Some("data"), None, "name the column of the labels by `label_column`: t has id (uuid, key), label"),
        (Some("data"), Some("class"), "`label_column` is class, but the table t has"),
        (Some("data"), Some("label"), "but labels are whole numbers or texts"),
    ] {
        let said = said(None, data, label);
        assert!(said.contains(part), "{said}");
    }
    let metadata = described("m", &[("key", "uuid", "partition_key"), ("label", "int", "")]);
    let said = said(Some(&metadata), Some("data"), Some("label"));
    assert!(said.contains("the table m needs the column id (uuid), as the key of t has it"), "{said}");
    let odd = described("t", &[("id", "decimal", "partition_key"), ("data", "blob", "")]);
    let said = Layout::of("ks", &odd, None, &options(Some("data"), None)).unwrap_err();
    assert!(said.contains("the column id of the type decimal"), "{said}");
}
