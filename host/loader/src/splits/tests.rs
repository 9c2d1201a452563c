use super::*;
use ddlp_dataset::pack::PackFile;
use ddlp_dataset::{Header, Identity, Location, ReadError, Unavailable};
use ddlp_pixels::{DType, Field, FieldKind};
use proptest::prelude::*;
use std::fs;
use std::ops::Range;
use std::sync::Arc;

/// A dataset of labels alone, and the sample whose name cannot be read.
struct Labels(Vec<u32>, Vec<String>, Option<u64>);

impl Labels {
    fn new(labels: Vec<u32>) -> Self {
        Self(labels, ["ant", "bee", "cat", "dog"].map(str::to_owned).to_vec(), None)
    }
}

impl Dataset for Labels {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn classes(&self) -> &[String] {
        &self.1
    }

    fn label(&self, index: u64) -> u32 {
        self.0[index as usize]
    }

    fn name(&self, index: u64) -> String {
        format!("{}/{index}.jpg", self.1[self.label(index) as usize])
    }

    fn names(&self, samples: Range<u64>) -> Result<Vec<String>, ReadError> {
        match self.2.filter(|index| samples.contains(index)) {
            Some(index) => Err(Unavailable::OutOfRange { index, samples: 0 }.into()),
            None => Ok(samples.map(|index| self.name(index)).collect()),
        }
    }

    fn location(&self, _index: u64) -> Location {
        unreachable!("no image is looked at")
    }

    fn header(&self, _index: u64) -> Result<Header, ReadError> {
        unreachable!("no image is looked at")
    }

    fn read(&self, _: u64, _: &Header, _: u64, _: &mut [u8]) -> Result<(), ReadError> {
        unreachable!("no image is looked at")
    }

    fn identity(&self) -> Identity {
        Identity::from_bytes([self.0.len() as u8; 32])
    }

    fn kind(&self) -> &'static str {
        "labels"
    }

    fn export(&self) -> Option<&PackFile> {
        None
    }
}

fn query(filter: Option<&str>, ratios: &[f64], balance: Balance) -> SplitQuery {
    SplitQuery { filter: filter.map(str::to_owned), ratios: ratios.to_vec(), balance, seed: 7 }
}

fn divide(labels: &Labels, query: SplitQuery) -> Result<Split, SplitError> {
    let names = default_names(query.ratios.len());
    query.divide(labels, &SampleFields::default(), &names)
}

fn said(labels: &Labels, query: SplitQuery) -> String {
    divide(labels, query).unwrap_err().to_string()
}

proptest! {
    #[test]
    fn parts_are_disjoint_and_balanced_as_asked(
        labels in proptest::collection::vec(0u32..4, 40..400),
        share in 0.2f64..0.8,
        balance in 0usize..3,
        seed: u64,
    ) {
        let labels = Labels::new(labels);
        let balance = Balance::ALL[balance];
        let query = SplitQuery { seed, ..query(None, &[share, 1.0 - share], balance) };
        let Ok(split) = divide(&labels, query.clone()) else {
            let least = (0..4).map(|class| labels.0.iter().filter(|label| **label == class).count()).min().unwrap();
            prop_assert!(balance == Balance::Class && least < 6, "{:?}", divide(&labels, query));
            return Ok(());
        };
        let [train, val] = ["train", "val"].map(|name| split.part(name).unwrap());
        let mut all = [train, val].concat();
        all.sort_unstable();
        prop_assert!(all.windows(2).all(|pair| pair[0] < pair[1]) && all.iter().all(|index| *index < labels.len()));
        prop_assert!(balance == Balance::Class || all.len() == labels.0.len());
        let count = |part: &[u64], class| part.iter().filter(|&&at| labels.label(at) == class).count();
        let classes: Vec<u32> = (0..4).filter(|&class| labels.0.contains(&class)).collect();
        for &class in &classes {
            match balance {
                Balance::None => {}
                Balance::Original => {
                    let expected = train.len() as f64 * count(&all, class) as f64 / all.len() as f64;
                    prop_assert!((count(train, class) as f64 - expected).abs() <= 3.0);
                }
                Balance::Class => {
                    prop_assert_eq!(count(train, class), count(train, classes[0]));
                    prop_assert_eq!(count(val, class), count(val, classes[0]));
                }
            }
        }
        prop_assert_eq!(divide(&labels, query.clone()).unwrap().to_bytes(), split.to_bytes());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("splits.json");
        fs::write(&path, split.to_bytes()).unwrap();
        let back = Split::read(&path).unwrap();
        prop_assert_eq!((back.identity(), back.parts()), (split.identity(), split.parts()));
    }

    #[test]
    fn sizes_are_the_shares_of_all_samples(
        shares in proptest::collection::vec(1u32..50, 1..12),
        count in 1000u64..9000,
    ) {
        let total: u32 = shares.iter().sum();
        let ratios: Vec<f64> = shares.iter().map(|share| f64::from(*share) / f64::from(total)).collect();
        let sizes = sizes(&ratios, count).unwrap();
        prop_assert_eq!(sizes.iter().sum::<u64>(), count);
        for (size, ratio) in sizes.iter().zip(ratios) {
            prop_assert!((*size as f64 - ratio * count as f64).abs() <= 1.0);
        }
    }
}

/// Pins a file: other bytes would move samples from validation to training.
#[test]
fn the_file_of_a_known_split_stays() {
    let labels = Labels::new([0, 1, 1, 2, 0, 1, 2, 1, 0, 3].to_vec());
    let split = divide(&labels, query(Some("label in (0, 1)"), &[0.5, 0.5], Balance::Class)).unwrap();
    let dataset = "0a".repeat(32);
    let expected = format!(
        "{{\"format\":\"ddlp split\",\"version\":1,\"identity\":\"9c48ffcc669fd66e497222bb89933b79\",\
         \"dataset\":\"{dataset}\",\"samples\":10,\
         \"query\":{{\"where\":\"label in (0, 1)\",\"ratios\":[0.5,0.5],\"balance\":\"class\",\"seed\":7}},\
         \"parts\":[{{\"name\":\"train\",\"indices\":[0,4,5,7]}},{{\"name\":\"val\",\"indices\":[1,8]}}]}}\n"
    );
    assert_eq!(String::from_utf8(split.to_bytes()).unwrap(), expected);
}

#[test]
fn a_question_chooses_by_columns_and_fields() {
    let labels = Labels::new([0, 1, 1, 2, 0, 1, 2, 1, 0, 3].to_vec());
    let mut beside = SampleFields::default();
    let field = |name: &str, shape: &[u32]| Field {
        name: name.into(),
        kind: FieldKind::Vector,
        dtype: DType::F32,
        layout: None,
        shape: shape.to_vec(),
    };
    let values = (0..10).flat_map(|at| (at as f32 / 2.0).to_ne_bytes()).collect();
    beside.add(10, field("weight", &[]), Arc::new(values)).unwrap();
    beside.add(10, field("box", &[4]), Arc::new(vec![0; 160])).unwrap();
    let found = |text| samples_where(text, &labels, &beside).map_err(|error| error.to_string());
    assert_eq!(found("weight > 3.5"), Ok(vec![8, 9]));
    assert_eq!(found("class in ('cat', 'dog') and id < 9"), Ok(vec![3, 6]));
    assert_eq!(found("name = 'bee/5.jpg' or label = 3"), Ok(vec![5, 9]));
    for (text, part) in [
        ("box = 1", "the field box has 4 numbers"),
        ("boxes = 1", "the columns are id, label, class, name, weight, box"),
        ("class = 'dgo'", "no class dgo"),
        ("id > 100", "no sample of the dataset fits"),
    ] {
        let said = found(text).unwrap_err();
        assert!(said.starts_with("`where`: ") && said.contains(part), "{said}");
    }
}

#[test]
fn names_that_cannot_be_read_end_a_split_that_asks_for_them() {
    let count = 2 * SAMPLES_AT_ONCE + 5;
    let mut labels = Labels::new((0..count).map(|index| (index % 4) as u32).collect());
    let found = |labels: &Labels, text: &str| samples_where(text, labels, &SampleFields::default());
    let last = format!("name = '{}'", labels.name(count - 1));
    let expected: Vec<u64> = (0..count).filter(|index| index % 4 == 2 || *index == count - 1).collect();
    assert_eq!(found(&labels, &format!("class = 'cat' or {last}")).unwrap(), expected);
    labels.2 = Some(SAMPLES_AT_ONCE + 1);
    assert!(found(&labels, &format!("id < 3 and {last}")).unwrap_err().to_string().contains("does not exist"));
    assert_eq!(found(&labels, "id < 3").unwrap(), [0, 1, 2], "which asks for no name");
}

#[test]
fn arguments_that_do_not_fit_are_named() {
    let labels = Labels::new([0, 1].repeat(10));
    for (ratios, part) in [
        (&[0.8, 0.3][..], "add up to 1.1"),
        (&[1.0, -0.0], "each must be above 0"),
        (&[f64::NAN, 1.0], "each must be above 0"),
        (&[], "0 ratios are given"),
        (&[0.999, 0.001], "part 1 of 0.999, 0.001 would have none of the 20 samples"),
    ] {
        assert!(said(&labels, query(None, ratios, Balance::None)).contains(part), "{ratios:?}");
    }
    let said = said(&labels, query(Some("id < 11"), &[0.9, 0.1], Balance::Class));
    assert!(said.contains("the rarest class has 5 samples"), "{said}");
    let names = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let divided = query(None, &[0.5, 0.5], Balance::None).divide(&labels, &SampleFields::default(), &names);
        divided.unwrap_err().to_string()
    };
    assert!(names(&["a"]).contains("1 names are given for 2 ratios"));
    assert!(names(&["a", "a"]).contains("two parts have the name a"));
    assert!(names(&["a", "b:c"]).contains("\"b:c\" is no name"));
}

#[test]
fn files_that_are_no_split_of_the_dataset_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (labels, path) = (Labels::new([0, 1].repeat(10)), folder.path().join("splits.json"));
    let split = divide(&labels, query(None, &[0.1, 0.7, 0.2], Balance::Original)).unwrap();
    let read = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        Split::read(&path).map_err(|error| error.to_string())
    };
    let text = String::from_utf8(split.to_bytes()).unwrap();
    let back = read(text.as_bytes()).unwrap();
    back.check_is_of(&labels).unwrap();
    assert!(back.part("tset").unwrap_err().to_string().contains("its parts are train, val, test"));
    let said = back.check_is_of(&Labels::new([0, 1].repeat(11))).unwrap_err().to_string();
    assert!(said.contains("20 samples") && said.contains("22 samples"), "{said}");
    for (content, part) in [
        (text.replace("\"seed\":7", "\"seed\":8"), "was changed since it was written"),
        (text.replace("\"version\":1", "\"version\":2"), "has version 2"),
        (text[..text.len() / 2].to_owned(), "is no file of a split"),
        ("[1, 2]".into(), "is no file of a split"),
        ("{\"format\":\"x\",\"version\":1}".into(), "is no file of a split"),
        ("{\"format\":\"ddlp split\",\"version\":1}".into(), "is damaged"),
    ] {
        let said = read(content.as_bytes()).unwrap_err();
        assert!(said.contains("splits.json") && said.contains(part), "{said}");
    }
    let of_parts = |parts: &[(&str, &[u64])]| {
        let part = |(name, indices): &(&str, &[u64])| SplitPart { name: (*name).into(), indices: indices.to_vec() };
        Split::of_parts(&labels, None, parts.iter().map(part).collect()).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(of_parts(&[("a", &[0, 5]), ("b", &[1])]), Ok(()));
    for (parts, part) in [
        (&[("a", &[0, 5][..]), ("b", &[5])][..], "has sample 5 in two parts, a and b"),
        (&[("a", &[3, 2])], "do not ascend"),
        (&[("a", &[20])], "has sample 20 in a"),
        (&[("a", &[])], "without samples"),
    ] {
        assert!(of_parts(parts).unwrap_err().contains(part), "{part}");
    }
}
