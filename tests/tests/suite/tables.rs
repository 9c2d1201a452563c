//! Training straight from tables in Cassandra that others made. A node takes seconds to start, so a test asks one node
//! many things.

use crate::values::{command, over, photos, refused};
use ddlp_dataset::{Dataset, TableOptions};
use ddlp_host::{CacheOptions, CorruptPolicy, FetchOrder, Host, LoaderBuilder, OpenOptions, open_dataset_with};
use ddlp_tests::cassandra::CassandraNode;
use ddlp_tests::photos::Photos;
use ddlp_tests::runs::Run;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SAMPLES: u32 = crate::values::SAMPLES;
const CLASSES: [&str; 3] = ["zebra", "ant", "old dog"];
/// The columns of the tables here.
const COLUMNS: [&str; 4] = ["--data-column", "data", "--label-column", "label"];

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold("0x".to_owned(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns the number of an image whose row has this place in the table: the rows have another order than the images.
fn image_at(place: u32) -> u32 {
    place * 7 % SAMPLES
}

/// Returns the identifier of the row at a place, in the order of the table.
fn uuid(place: u32) -> String {
    let beginning = (place + 1).wrapping_mul(0x0503_0107);
    format!("{beginning:08x}-1234-4321-8abc-{:012x}", u64::from(place.wrapping_mul(2_654_435_761)))
}

fn table(builder: LoaderBuilder, metadata: Option<&str>) -> LoaderBuilder {
    builder.with(|o| {
        o.data_column = Some("data".into());
        o.label_column = Some("label".into());
        o.metadata_table = metadata.map(str::to_owned);
    })
}

fn open(url: &str, metadata: Option<&str>, cache: Option<&CacheOptions>) -> Arc<dyn Dataset> {
    let [data_column, label_column] = ["data", "label"].map(|name| Some(name.to_owned()));
    let table = TableOptions { data_column, label_column, metadata_table: metadata.map(str::to_owned) };
    let options = OpenOptions { table, ..OpenOptions::default() };
    open_dataset_with(Path::new(url), &Host::system(), &options, cache).unwrap()
}

/// Writes a list of the images in the order of the tables, with these labels.
fn list(photos: &Photos, name: &str, label: impl Fn(u32) -> String) -> PathBuf {
    let mut text = "path,label\n".to_owned();
    for image in (0..SAMPLES).map(image_at) {
        let _ = writeln!(text, "images/class_{}/{image:05}.jpg,{}", image % 3, label(image));
    }
    let path = photos.scratch().join(name);
    fs::write(&path, text).unwrap();
    path
}

fn class(image: u32) -> String {
    CLASSES[image as usize % 3].to_owned()
}

/// Makes a table of images and one of their labels.
fn two_tables(photos: &Photos, node: &CassandraNode, name: &str) {
    node.execute(&format!("CREATE TABLE photos.{name} (id uuid PRIMARY KEY, data blob)"));
    node.execute(&format!("CREATE TABLE photos.{name}_labels (id uuid PRIMARY KEY, size bigint, label text)"));
    for place in 0..SAMPLES {
        let (image, id) = (image_at(place), uuid(place));
        let (bytes, class) = (photos.read(image), class(image));
        node.execute(&format!("INSERT INTO photos.{name} (id, data) VALUES ({id}, {})", hex(&bytes)));
        let size = bytes.len();
        node.execute(&format!("INSERT INTO photos.{name}_labels (id, size, label) VALUES ({id}, {size}, '{class}')"));
    }
}

#[test]
fn a_table_that_others_made_is_trained_from_as_a_list_of_its_images() {
    let photos = photos();
    let Some(node) = CassandraNode::start(photos.scratch(), &[]) else { return };
    node.create_keyspace(1);
    two_tables(&photos, &node, "images");
    two_tables_are_one_dataset(&photos, &node);
    a_table_is_refused_without_its_columns(&node);
    keys_and_labels_have_any_type(&photos, &node);
    tables_become_packs_and_datasets(&photos, &node);
    a_damaged_image_falls_under_the_policy(&photos, &node);
    rows_that_change_end_a_run(&photos, &node);
    list_and_images_are_cached(&photos, &node);
}

fn two_tables_are_one_dataset(photos: &Photos, node: &CassandraNode) {
    let (url, list) = (node.url("images"), list(photos, "list.csv", class));
    let of_list = Run::of(over(list.to_str().unwrap()));
    let metadata = Some("images_labels");
    let run = Run::of(table(over(&url), metadata));
    assert_eq!(run.ordered_digest, of_list.ordered_digest);
    run.assert_exactly_once(2, SAMPLES.into());
    assert!(run.troubles().is_empty(), "{:?}", run.troubles());
    // One for each sample; a run looks at four samples before it begins.
    let answered = run.report.requests.unwrap().answered;
    assert!((0..=4).contains(&(answered - 2 * u64::from(SAMPLES))), "{answered} requests");
    let loose = Run::of(table(over(&url), metadata).with(|o| o.fetch = FetchOrder::OutOfOrder));
    assert_eq!(loose.digest, of_list.digest);
    loose.assert_exactly_once(2, SAMPLES.into());

    let (opened, listed) = (open(&url, metadata, None), ddlp_dataset::open(&list).unwrap());
    assert_eq!(opened.classes(), ["ant", "old dog", "zebra"]);
    for index in 0..SAMPLES {
        assert_eq!(opened.label(index.into()), listed.label(index.into()));
        assert_eq!(opened.name(index.into()), uuid(index));
    }
    assert_eq!(opened.identity(), open(&url, metadata, None).identity());

    let place = photos.scratch().join("classes.txt");
    fs::write(&place, "zebra\nbee\nold dog\nant\n").unwrap();
    let classes = ["--metadata-table", "images_labels", "--classes", place.to_str().unwrap()];
    let said = command(&[&["inspect", &url][..], &COLUMNS, &classes].concat(), &[]).unwrap();
    assert!(said.contains("table, 48 samples in 4 classes"), "{said}");
    let run = ["run", "--strategy", "cpu", "--batch", "8", "--epochs", "2", "--quiet", "--digest"];
    let of_table = [&run[..], &[&url], &COLUMNS, &classes[..2]].concat();
    assert_eq!(command(&of_table, &[]), command(&[&run[..], &[list.to_str().unwrap()]].concat(), &[]));
    let said = command(&[&["run", "--drive", "local", &url], &COLUMNS[..2]].concat(), &[]).unwrap_err();
    assert!(said.contains("a drive cannot read a table that others made"), "{said}");
    let said = command(&[&["run", list.to_str().unwrap()], &COLUMNS[..2]].concat(), &[]).unwrap_err();
    assert!(said.contains("are for tables in Cassandra and ScyllaDB"), "{said}");
}

fn a_table_is_refused_without_its_columns(node: &CassandraNode) {
    let url = node.url("images_labels");
    let said = refused(over(&url));
    assert!(said.contains("the table images_labels was not made by `ddlp push`"), "{said}");
    assert!(said.contains("has the columns id (uuid, key), label (text), size (bigint)"), "{said}");
    assert!(said.contains("`data_column`") && said.contains("`label_column`"), "{said}");
    let said = command(&["inspect", &url], &[]).unwrap_err();
    assert!(said.contains("was not made by `ddlp push`"), "{said}");
    let said = refused(table(over(&node.url("images")), None));
    assert!(
        said.contains("`label_column` is label, but the table images has the columns id (uuid, key), data"),
        "{said}"
    );
    let said = refused(table(over(&url), None));
    assert!(said.contains("`data_column` is data, but the table images_labels has the columns"), "{said}");
    let said = refused(table(over(&node.url("none")), None));
    assert!(said.contains("the keyspace photos has no table none"), "{said}");
    let said = refused(table(over(&node.url("images")), Some("none\"")));
    assert!(said.contains("names of tables have letters, digits and _ alone"), "{said}");
    node.execute("CREATE TABLE photos.empty (id int PRIMARY KEY, data blob)");
    let said = refused(over(&node.url("empty")).with(|o| o.data_column = Some("data".into())));
    assert!(said.contains("the table has no rows"), "{said}");
}

fn keys_and_labels_have_any_type(photos: &Photos, node: &CassandraNode) {
    let list = list(photos, "numbers.csv", |image| (image % 3).to_string());
    let expected = Run::of(over(list.to_str().unwrap())).ordered_digest;
    type Key = fn(u32) -> String;
    let keys: [(&str, &str, Key, Key); 5] = [
        // Numbers have their own order, and not that of their bytes.
        ("int", "int", |place| (i64::from(place) - 20).to_string(), |place| (i64::from(place) - 20).to_string()),
        ("long", "bigint", |place| (place * 3).to_string(), |place| (place * 3).to_string()),
        ("text", "text", |place| format!("'n{place:03}/ä.jpg'"), |place| format!("n{place:03}/ä.jpg")),
        ("short", "blob", |place| format!("0x{place:02x}"), |place| format!("0x{place:02x}")),
        (
            "blob",
            "blob",
            |place| format!("0x{place:04x}{}", "f0".repeat(21)),
            |place| format!("0x{place:04x}{}", "f0".repeat(21)),
        ),
    ];
    for ((name, key, id, shown), label) in keys.into_iter().zip(["int", "bigint", "smallint", "text", "int"]) {
        node.execute(&format!("CREATE TABLE photos.{name} (id {key} PRIMARY KEY, label {label}, data blob)"));
        for place in 0..SAMPLES {
            let (image, quote) = (image_at(place), if label == "text" { "'" } else { "" });
            let (bytes, label) = (hex(&photos.read(image)), image % 3);
            node.execute(&format!(
                "INSERT INTO photos.{name} (id, label, data) VALUES ({}, {quote}{label}{quote}, {bytes})",
                id(place)
            ));
        }
        let url = node.url(name);
        assert_eq!(Run::of(table(over(&url), None)).ordered_digest, expected, "{name}");
        let opened = open(&url, None, None);
        assert!((0..SAMPLES).all(|index| opened.name(index.into()) == shown(index)), "{name}");
        assert!(opened.classes().is_empty() && opened.label(3) == image_at(3) % 3, "{name}");
    }
    node.execute(
        "CREATE TABLE photos.composite (folder text, part int, number int, label int, data blob, PRIMARY KEY ((folder, \
         part), number))",
    );
    for place in 0..SAMPLES {
        let (image, part, number) = (image_at(place), place / 20, place % 20);
        let (bytes, label) = (hex(&photos.read(image)), image % 3);
        node.execute(&format!(
            "INSERT INTO photos.composite (folder, part, number, label, data) VALUES ('a', {part}, {number}, {label}, \
             {bytes})"
        ));
    }
    let url = node.url("composite");
    assert_eq!(Run::of(table(over(&url), None)).ordered_digest, expected);
    assert_eq!(open(&url, None, None).name(45), "a/2/5");
}

fn tables_become_packs_and_datasets(photos: &Photos, node: &CassandraNode) {
    let (url, out) = (node.url("images"), photos.scratch().join("from_table.ddlp"));
    let labels = [&COLUMNS[..], &["--metadata-table", "images_labels", "--quiet"]].concat();
    let out = out.to_str().unwrap();
    command(&[&["pack", &url, out][..], &labels].concat(), &[]).unwrap();
    let list = photos.scratch().join("list.csv");
    let of_list = Run::of(over(list.to_str().unwrap())).ordered_digest;
    assert_eq!(Run::of(over(out)).ordered_digest, of_list);
    command(&[&["push", &url, &node.url("pushed")][..], &labels].concat(), &[]).unwrap();
    assert_eq!(Run::of(over(&node.url("pushed"))).ordered_digest, of_list);
    let parts = photos.scratch().join("parts.json");
    let parts = parts.to_str().unwrap();
    let split = ["split", &url, "--out", parts, "--ratios", "0.5,0.5", "--balance", "original"];
    command(&[&split[..], &labels[..6]].concat(), &[]).unwrap();
    let half = table(over(&url), Some("images_labels")).with(|o| o.split = Some(format!("{parts}:train")));
    Run::of(half).assert_exactly_once(2, u64::from(SAMPLES) / 2);
}

fn a_damaged_image_falls_under_the_policy(photos: &Photos, node: &CassandraNode) {
    two_tables(photos, node, "damaged");
    let id = uuid(9);
    node.execute(&format!("UPDATE photos.damaged SET data = 0x{} WHERE id = {id}", "00".repeat(50)));
    node.execute(&format!("UPDATE photos.damaged SET data = 0x WHERE id = {}", uuid(10)));
    let over_table = || table(over(&node.url("damaged")), Some("damaged_labels"));
    let said = refused(over_table().with(|o| o.shuffle = false));
    assert!(said.contains(&id), "{said}");
    for policy in [CorruptPolicy::Skip, CorruptPolicy::Replace] {
        let run = Run::of(over_table().with(|o| o.policy = policy));
        assert_eq!(run.report.corrupt.len(), 2 * 2, "{policy:?}");
    }
}

fn rows_that_change_end_a_run(photos: &Photos, node: &CassandraNode) {
    two_tables(photos, node, "changing");
    let url = node.url("changing");
    let over_table =
        || table(over(&url), Some("changing_labels")).with(|o| (o.policy, o.epochs) = (CorruptPolicy::Skip, 1000));
    let before = open(&url, Some("changing_labels"), None).identity();
    let (image, id) = (hex(&photos.read(0)), uuid(4));
    let changes = [
        (format!("UPDATE photos.changing SET data = {image} WHERE id = {id}"), "has been written again"),
        (format!("DELETE FROM photos.changing WHERE id = {id}"), "has no image any more"),
    ];
    for (change, part) in changes {
        let mut run = over_table().build().unwrap();
        run.next().unwrap().unwrap();
        node.execute(&change);
        let said = ddlp_tests::runs::chain(&run.filter_map(Result::err).next().expect("the run ends"));
        assert!(said.contains(&format!("the table has changed since it was opened: {url} row {id} {part}")), "{said}");
    }
    let said = refused(over_table());
    assert!(said.contains(&format!("row {id} of {url} has no image: add it")), "{said}");
    node.execute(&format!("INSERT INTO photos.changing (id, data) VALUES ({id}, {image})"));
    assert_ne!(open(&url, Some("changing_labels"), None).identity(), before);
    node.execute(&format!("UPDATE photos.changing_labels SET label = null WHERE id = {id}"));
    let said = refused(over_table());
    assert!(said.contains(&format!("row {id}: the label is null")), "{said}");
}

fn list_and_images_are_cached(photos: &Photos, node: &CassandraNode) {
    two_tables(photos, node, "cached");
    let (url, folder) = (node.url("cached"), tempfile::tempdir().unwrap());
    let list = photos.scratch().join("list.csv");
    let expected = Run::of(over(list.to_str().unwrap())).ordered_digest;
    let cached = || table(over(&url), Some("cached_labels")).with(|o| o.cache = Some(folder.path().to_owned()));
    // Another run has listed the rows; then one row is written again.
    let options = CacheOptions { folder: folder.path().to_owned(), limit: None };
    drop(open(&url, Some("cached_labels"), Some(&options)));
    let id = uuid(4);
    let image = hex(&photos.read(image_at(4)));
    node.execute(&format!("UPDATE photos.cached SET data = {image} WHERE id = {id}"));
    let said = refused(cached());
    assert!(said.contains("has been written again: start again, so that the rows are listed again"), "{said}");
    let first = Run::of(cached());
    assert_eq!(first.ordered_digest, expected);
    assert!(first.report.cache.unwrap().kept_mb > 0.0);
    // Nothing is asked for any more.
    node.execute("TRUNCATE photos.cached");
    node.execute("TRUNCATE photos.cached_labels");
    let again = Run::of(cached());
    assert_eq!(again.ordered_digest, expected);
    assert_eq!(again.report.requests.map(|requests| requests.answered), Some(0));
    assert!(refused(table(over(&url), Some("cached_labels"))).contains("the table has no rows"));
}
