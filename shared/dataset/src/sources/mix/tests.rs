use super::*;
use crate::open;
use crate::samples::{contents, write_folder};
use std::error::Error;
use std::fs;
use std::path::Path;

/// Makes the folders `a` (2 classes of 3 samples) and `b` (3 classes of 1 sample), and a mix of them.
fn mix() -> (tempfile::TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    write_folder(&home.path().join("a"), 2, 3);
    write_folder(&home.path().join("b"), 3, 1);
    let path = home.path().join("mix.toml");
    let text = "[[dataset]]\npath = \"a\"\nweight = 0.75\n[[dataset]]\npath = \"b\"\nweight = 0.25\n";
    fs::write(&path, text).unwrap();
    (home, path)
}

/// Returns what is wrong with a mix of this text, with all causes.
fn said(home: &Path, text: &str) -> String {
    fs::write(home.join("wrong.toml"), text).unwrap();
    let error = open(&home.join("wrong.toml")).err().unwrap_or_else(|| panic!("{text} opens"));
    let causes = std::iter::successors(error.source(), |&error| error.source());
    std::iter::once(error.to_string()).chain(causes.map(ToString::to_string)).collect::<Vec<_>>().join(": ")
}

#[test]
fn a_mix_has_the_samples_of_its_datasets_one_after_the_other() {
    let (home, path) = mix();
    let mix = open(&path).unwrap();
    assert_eq!((mix.kind(), mix.len()), ("mix", 9));
    let mut expected = Vec::new();
    for name in ["a", "b"] {
        let samples = contents(&*open(&home.path().join(name)).unwrap());
        expected.extend(
            samples.into_iter().map(|(sample, label, form, bytes)| (format!("{name}:{sample}"), label, form, bytes)),
        );
    }
    assert_eq!(contents(&*mix), expected);
    assert_eq!(mix.location(6).file, home.path().join("b/class0/0000.jpg"));
    assert_eq!(mix.sample_in(&fs::metadata(home.path().join("b/class2/0000.jpg")).unwrap()), Some(8));
    let part = |name: &str, samples, weight| MixPart { name: name.into(), samples, weight };
    assert_eq!(mix.parts(), [part("a", 6, 0.75), part("b", 3, 0.25)]);
}

#[test]
fn reads_go_to_the_dataset_of_their_sample() {
    let (_home, path) = mix();
    let mix = open(&path).unwrap();
    let headers: Vec<Header> = (0..9).map(|index| mix.header(index).unwrap()).collect();
    let mut memory: Vec<Vec<u8>> =
        headers.iter().map(|header| vec![0; (header.bytes.end - header.bytes.start) as usize]).collect();
    let mut reads: Vec<ExtentRead<'_>> = memory
        .iter_mut()
        .zip(&headers)
        .zip(0..)
        .map(|((memory, header), index)| {
            let place = 0..memory.len();
            ExtentRead { index, header, offset: header.bytes.start, memory, place }
        })
        .collect();
    reads.reverse();
    mix.read_many(&mut reads).unwrap();
    let whole: Vec<Vec<u8>> = contents(&*mix).into_iter().map(|(.., bytes)| bytes).collect();
    assert_eq!(memory, whole);
}

#[test]
fn classes_of_the_same_name_are_one_class() {
    let home = tempfile::tempdir().unwrap();
    for (list, lines) in [("a.csv", "x.jpg,cat\ny.jpg,dog\n"), ("b.csv", "x.jpg,ant\ny.jpg,dog\nz.jpg,cat\n")] {
        fs::write(home.path().join(list), format!("path,label\n{lines}")).unwrap();
    }
    fs::write(home.path().join("mix.toml"), "[[dataset]]\npath = \"a.csv\"\n[[dataset]]\npath = \"b.csv\"\n").unwrap();
    let mix = open(&home.path().join("mix.toml")).unwrap();
    assert_eq!(mix.classes(), ["cat", "dog", "ant"]);
    assert_eq!((0..5).map(|index| mix.label(index)).collect::<Vec<_>>(), [0, 1, 2, 1, 0]);
    assert_eq!(mix.parts().iter().map(|part| part.weight).collect::<Vec<_>>(), [2.0, 3.0]);
    // Numbers are indices, and no names.
    fs::write(home.path().join("c.csv"), "path,label\nx.jpg,1\n").unwrap();
    let refused = said(home.path(), "[[dataset]]\npath = \"c.csv\"\n[[dataset]]\npath = \"a.csv\"\n");
    assert!(refused.contains("a.csv has names of classes and c.csv has none"), "{refused}");
}

/// A dataset of classes alone.
struct Classes(Vec<String>);

impl Dataset for Classes {
    fn len(&self) -> u64 {
        1
    }

    fn classes(&self) -> &[String] {
        &self.0
    }

    fn label(&self, _: u64) -> u32 {
        0
    }

    fn name(&self, _: u64) -> String {
        String::new()
    }

    fn location(&self, _: u64) -> Location {
        Location { file: PathBuf::new(), offset: 0, length: 0 }
    }

    fn header(&self, _: u64) -> Result<Header, ReadError> {
        Ok(Header::file(0..0))
    }

    fn read(&self, _: u64, _: &Header, _: u64, _: &mut [u8]) -> Result<(), ReadError> {
        Ok(())
    }

    fn identity(&self) -> Identity {
        Identity::from_bytes([0; 32])
    }

    fn kind(&self) -> &'static str {
        "classes"
    }
}

#[test]
fn classes_of_one_dataset_are_not_one_class() {
    let mixed = |all: [(&str, &[&str]); 2]| {
        let dataset = |(name, classes): (&str, &[&str])| -> (String, Arc<dyn Dataset>) {
            (name.to_owned(), Arc::new(Classes(classes.iter().map(|&class| class.to_owned()).collect())))
        };
        Mix::new(all.map(dataset).into(), None)
    };
    let wrong = mixed([("a", &["dog"]), ("birds", &["crane", "dog", "crane"])]).err().map(|error| error.to_string());
    assert!(wrong.as_ref().is_some_and(|wrong| wrong.contains("birds has two classes named \"crane\"")), "{wrong:?}");
    // Labels of equal datasets stay as they are, whatever the names.
    assert_eq!(mixed([("a", &["crane", "crane"]), ("b", &["crane", "crane"])]).unwrap().classes().len(), 2);
}

#[test]
fn the_same_dataset_twice_is_two_parts_and_its_order_counts() {
    let (home, path) = mix();
    let twice = |first: &str, second: &str| {
        let dataset = |name: &str| (name.to_owned(), Arc::from(open(&home.path().join(name)).unwrap()));
        Mix::new(vec![dataset(first), dataset(second)], Some(&[1.0, 3.0])).unwrap()
    };
    assert_eq!((twice("a", "a").len(), twice("a", "a").parts().len()), (12, 2));
    assert_eq!(twice("a", "b").identity(), open(&path).unwrap().identity());
    assert_ne!(twice("a", "b").identity(), twice("b", "a").identity());
    assert_ne!(twice("a", "a").identity(), twice("a", "b").identity());
}

#[test]
fn what_is_wrong_in_a_mix_is_said() {
    let (home, _) = mix();
    fs::create_dir(home.path().join("empty")).unwrap();
    let of = |weight: &str| format!("[[dataset]]\npath = \"a\"\nweight = {weight}\n");
    for (text, part) in [
        (of("0"), "the weight of a is 0, but must be a finite number above 0"),
        (of("-1.5"), "the weight of a is -1.5"),
        (of("nan"), "the weight of a is NaN"),
        (of("inf"), "the weight of a is inf"),
        (of("\"much\""), "line 3: invalid type: string"),
        (format!("{}[[dataset]]\npath = \"b\"\n", of("1")), "1 weights are given for 2 datasets"),
        ("[[dataset]]\npath = \"missing\"\n".into(), "wrong.toml: cannot open dataset"),
        ("[[dataset]]\npath = \"empty\"\n".into(), "empty"),
        ("[[dataset]]\npath = \"wrong.toml\"\n".into(), "wrong.toml is a mix itself"),
        ("[[dataset]]\npath = \"a\"\nkind = \"mix\"\n".into(), "a is a mix itself"),
        ("[[dataset]]\npath = \"a\"\nkind = \"tar\"\n".into(), "holds no samples"),
        ("[[dataset]]\npath = \"a\"\nwieght = 2\n".into(), "unknown field `wieght`"),
        ("dataset = []".into(), "a mix has 1 to 1024 datasets, not 0"),
        ("operations = []".into(), "wrong.toml is not a mix of datasets: line 1"),
        ("dataset".into(), "is not a mix of datasets"),
    ] {
        let said = said(home.path(), &text);
        assert!(said.contains(part), "{text}: {said}");
    }
    let inner: Arc<dyn Dataset> = Arc::from(open(&home.path().join("mix.toml")).unwrap());
    let nested = Mix::new(vec![("m".into(), inner)], None);
    assert!(matches!(nested, Err(MixError::Nested(name)) if name == "m"));
}
