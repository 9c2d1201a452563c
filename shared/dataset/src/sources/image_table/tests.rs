use super::*;
use crate::samples::image;
use crate::{FetchedSample, SampleReader, SampleToFetch, StoredAt};
use ddlp_pixels::ops::CenterCrop;
use ddlp_pixels::{CompiledPipeline, Draw, Fidelity, Limits, Pipeline, Preparer, Source};
use std::sync::Arc;

/// An image and its version.
type Row = (Vec<u8>, i64);

/// A database in memory.
#[derive(Default)]
struct Database {
    rows: Mutex<HashMap<Vec<u8>, Row>>,
    /// Indices that were asked for.
    asked: Mutex<Vec<u64>>,
    is_list_old: Mutex<bool>,
    /// Table and column of the images.
    images: &'static str,
}

impl Database {
    fn put(&self, key: &str, image: &[u8], version: i64) {
        self.rows.lock().unwrap().insert(key.as_bytes().to_vec(), (image.to_vec(), version));
    }

    fn asked(&self) -> Vec<u64> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

struct Rows(Arc<Database>);

impl TableRows for Rows {
    fn images(&self) -> &str {
        self.0.images
    }

    fn url(&self) -> &Path {
        Path::new("cql://host/photos/images")
    }

    fn name(&self, key: &[u8]) -> String {
        String::from_utf8_lossy(key).into_owned()
    }

    fn start_reads<'r>(&'r self, reads: Vec<RowRead<'r>>) -> Reading<'r, io::Error> {
        Box::pin(async move {
            for RowRead { index, key, version, image } in reads {
                self.0.asked.lock().unwrap().push(index);
                *image = match self.0.rows.lock().unwrap().get(key) {
                    Some((image, written)) if *written == version => RowImage::Image(image.clone()),
                    Some(_) => RowImage::Changed,
                    None => RowImage::Gone,
                };
            }
            Ok(())
        })
    }

    fn read_again(&self, _: u64) {}

    fn list_is_old(&self) {
        *self.0.is_list_old.lock().unwrap() = true;
    }

    fn requests(&self) -> Requests {
        Requests::default()
    }

    fn cache_use(&self) -> Option<CacheUse> {
        None
    }

    fn interrupt(&self) {}

    fn silences(&self) -> Silences {
        Silences::default()
    }
}

/// Opens a table of rows with these keys, labels and versions.
fn opened(
    database: &Arc<Database>,
    rows: &[(&str, Option<&str>, Option<i64>)],
    options: &OpenOptions,
) -> Result<ImageTable, ImageTableError> {
    let has_labels = rows.iter().any(|(_, label, _)| label.is_some());
    let row = |&(key, label, version): &(&str, Option<&str>, _)| TableRow {
        key: key.as_bytes().to_vec(),
        label: label.map(str::to_owned),
        version,
    };
    let listed = rows.iter().map(row).collect();
    ImageTable::new(Box::new(Rows(database.clone())), listed, has_labels, options)
}

fn table(database: &Arc<Database>, rows: &[(&str, Option<&str>, Option<i64>)]) -> ImageTable {
    opened(database, rows, &OpenOptions::default()).unwrap()
}

#[test]
fn a_sample_costs_one_request_whoever_reads_it() {
    let (database, jpeg) = (Arc::new(Database::default()), image(1));
    for key in ["a", "b"] {
        database.put(key, &jpeg, 5);
    }
    let table = table(&database, &[("a", Some("cat"), Some(5)), ("b", Some("ant"), Some(5))]);
    assert_eq!((table.classes(), table.label(0)), (&["ant".to_owned(), "cat".to_owned()][..], 1));
    let mut memory = Vec::new();
    assert!(matches!(table.sample(1, &mut memory), Ok(Source::Encoded(bytes)) if bytes == jpeg));
    assert_eq!(database.asked(), [1]);
    assert_eq!(table.location(1).length, jpeg.len() as u64);

    let pipeline = CompiledPipeline::of(&Pipeline::of([CenterCrop::to(16).into()])).unwrap();
    let (limits, mut reader) = (Limits::default(), SampleReader::default());
    let to_fetch =
        |index| SampleToFetch { index, draw: Draw::default(), fidelity: Fidelity::WHOLE, fetched: Default::default() };
    let mut samples = [to_fetch(0), to_fetch(1)];
    reader.fetch(&table, limits, &pipeline, &mut samples).unwrap();
    assert_eq!(database.asked(), [0, 1]);
    assert_eq!(table.kept().images.len(), 0);
    let mut fetched = std::mem::take(&mut samples[0].fetched);
    let mut prepare = |fetched: Option<&mut FetchedSample>| {
        let (mut out, stored) = (vec![0; 16 * 16 * 3], StoredAt { dataset: &table as &dyn Dataset, index: 0 });
        let drawn = crate::Drawn { pipeline: &pipeline, draw: Draw::default(), fidelity: Fidelity::WHOLE };
        reader.prepare(stored, fetched, &mut Preparer::new(limits), drawn, &mut out).unwrap();
        out
    };
    let ahead = prepare(Some(&mut fetched));
    assert!(database.asked().is_empty());
    assert_eq!(prepare(None), ahead);
    assert_eq!(database.asked(), [0]);
}

#[test]
fn images_that_nobody_comes_for_do_not_fill_the_memory() {
    let (database, large) = (Arc::new(Database::default()), vec![7; 3 << 20]);
    let keys: Vec<String> = (0..30).map(|key| key.to_string()).collect();
    keys.iter().for_each(|key| database.put(key, &large, 5));
    database.put("huge", &[7; 5 << 20], 5);
    let mut rows: Vec<(&str, Option<&str>, Option<i64>)> = keys.iter().map(|key| (&**key, None, Some(5))).collect();
    rows.push(("huge", None, Some(5)));
    let table = table(&database, &rows);
    for index in 0..31 {
        table.header(index).unwrap();
        let kept = table.kept();
        assert!(kept.bytes <= KEPT_BYTES_MAX && kept.bytes == kept.images.values().map(Vec::len).sum::<usize>());
    }
    assert_eq!(database.asked().len(), 31);
    // A large image is asked for again, and one that was given up, too.
    for index in [30, 0] {
        let header = table.header(index).unwrap();
        table.kept().take(index);
        let mut out = vec![0; (header.bytes.end - header.bytes.start) as usize];
        table.read(index, &header, header.bytes.start, &mut out).unwrap();
        assert_eq!((database.asked(), out[0], out[out.len() - 1]), (vec![index, index], 7, 7));
    }
}

#[test]
fn any_part_of_an_image_can_be_read() {
    let database = Arc::new(Database::default());
    database.put("a", b"0123456789", 5);
    database.put("empty", b"", 5);
    let table = table(&database, &[("a", None, Some(5)), ("empty", None, Some(5))]);
    let header = table.header(0).unwrap();
    assert_eq!(header.bytes, 4..14);
    for place in [4..14, 4..7, 10..14, 9..9] {
        let mut out = vec![0; place.len()];
        table.read(0, &header, place.start as u64, &mut out).unwrap();
        assert_eq!(out, b"0123456789"[place.start - 4..place.end - 4], "{place:?}");
    }
    let mut memory = Vec::new();
    assert!(matches!(table.sample(1, &mut memory), Ok(Source::Encoded(b""))));
}

#[test]
fn a_row_that_is_gone_or_changed_is_not_corrupt() {
    let database = Arc::new(Database::default());
    let rows = [("a", None, Some(5)), ("b", None, Some(6)), ("none", None, None)];
    database.put("b", b"image", 6);
    let table = table(&database, &rows);
    let said = |index| match table.sample(index, &mut Vec::new()).unwrap_err() {
        ReadError::Unavailable(error) => {
            assert!(!error.is_momentary());
            error.to_string()
        }
        ReadError::Corrupt(error) => panic!("{error}"),
    };
    let old = || std::mem::take(&mut *database.is_list_old.lock().unwrap());
    assert!(said(2).contains("row none of cql://host/photos/images has no image: add it") && old());
    assert!(said(0).contains("cql://host/photos/images row a has no image any more: start again") && old());
    database.put("b", b"image", 7);
    assert!(said(1).contains("row b has been written again") && old());
    database.put("b", b"image", 6);
    let header = table.header(1).unwrap();
    table.kept().take(1);
    database.put("b", b"other", 6);
    table.read(1, &header, 4, &mut [0; 5]).unwrap();
    database.put("b", b"longer", 6);
    let error = table.read(1, &header, 4, &mut [0; 5]).unwrap_err();
    assert!(error.to_string().contains("an image of another length now"), "{error}");
    assert!(matches!(table.header(3), Err(ReadError::Unavailable(Unavailable::OutOfRange { .. }))));
}

#[test]
fn the_identity_follows_from_keys_labels_and_versions() {
    let database = Arc::new(Database::default());
    let identity = |rows: &[(&str, Option<&str>, Option<i64>)]| table(&database, rows).identity();
    let rows = [("a", Some("1"), Some(5)), ("b", Some("2"), Some(-5))];
    assert_eq!(identity(&rows), identity(&rows));
    let others = [
        [("a", Some("1"), Some(5)), ("b", Some("2"), Some(-6))],
        [("a", Some("1"), Some(5)), ("b", Some("2"), None)],
        [("a", Some("1"), Some(5)), ("c", Some("2"), Some(-5))],
        [("a", Some("1"), Some(5)), ("b", Some("3"), Some(-5))],
        [("a", Some("x"), Some(5)), ("b", Some("y"), Some(-5))],
    ];
    for other in others {
        assert_ne!(identity(&rows), identity(&other), "{other:?}");
    }
    assert_ne!(identity(&others[4]), identity(&[("a", Some("x"), Some(5)), ("b", Some("z"), Some(-5))]));
}

#[test]
fn labels_that_are_missing_or_of_two_kinds_are_named_by_their_row() {
    let database = Arc::new(Database::default());
    let said = |rows: &[(&str, Option<&str>, Option<i64>)]| {
        opened(&database, rows, &OpenOptions::default()).map(drop).unwrap_err().to_string()
    };
    assert_eq!(said(&[]), "the table has no rows");
    assert!(said(&[("a", Some("1"), None), ("b", None, None)]).contains("row b: the label is null"));
    let said = said(&[("a", Some("1"), None), ("b", Some("cat"), None)]);
    assert!(said.contains("row b: the label cat is a name, but that of sample 0 is a number (1)"), "{said}");
    let unused = OpenOptions { labels_unused: true, ..OpenOptions::default() };
    assert!(opened(&database, &[("a", Some("1"), None), ("b", None, None)], &unused).is_ok());
    let classes = vec!["dog".to_owned(), "1".to_owned(), "cat".to_owned()];
    let given = OpenOptions { classes, ..OpenOptions::default() };
    let table = opened(&database, &[("a", Some("1"), None), ("b", Some("cat"), None)], &given).unwrap();
    assert_eq!(table.classes(), ["1", "cat"]);
}

/// Two columns of a table may have been written at the same time.
#[test]
fn another_column_is_another_dataset() {
    let of = |images| {
        let database = Arc::new(Database { images, ..Database::default() });
        table(&database, &[("a", Some("0"), Some(1))]).identity()
    };
    assert_eq!(of("full"), of("full"));
    assert_ne!(of("full"), of("thumb"));
}
