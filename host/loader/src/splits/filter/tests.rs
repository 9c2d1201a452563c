use super::*;
use proptest::prelude::*;

/// Samples with a number, a share, and the name of that number.
struct Table;

const NAMES: [&str; 4] = ["zero", "one", "it's two", "three"];

impl Columns for Table {
    fn find(&self, name: &str) -> Result<Option<(usize, bool)>, String> {
        match name {
            "wide" => Err("wide has 4 numbers".into()),
            _ => Ok(self.names().iter().position(|known| known == name).map(|column| (column, column == 2))),
        }
    }

    fn names(&self) -> Vec<String> {
        ["id", "the share", "name"].map(str::to_owned).to_vec()
    }

    fn value(&self, column: usize, sample: u64) -> Value<'_> {
        match column {
            0 => Value::Whole(sample as i64),
            1 if sample == 3 => Value::Number(f64::NAN),
            1 => Value::Number(sample as f64 / 4.0),
            _ => Value::Text(NAMES[sample as usize].into()),
        }
    }

    fn check(&self, _column: usize, text: &str) -> Result<(), String> {
        if NAMES.contains(&text) { Ok(()) } else { Err(format!("no sample has the name {text}")) }
    }
}

fn found(text: &str) -> Vec<u64> {
    let filter = Filter::parse(text, &Table).unwrap_or_else(|error| panic!("{error}"));
    (0..4).filter(|&sample| filter.matches(&Table, sample)).collect()
}

#[test]
fn questions_are_answered() {
    for (text, expected) in [
        ("id = 1", &[1][..]),
        ("id == 1.0", &[1]),
        ("id != 1", &[0, 2, 3]),
        ("id <> 1 and id<3", &[0, 2]),
        ("id >= 1 and id <= 2", &[1, 2]),
        ("id > -1", &[0, 1, 2, 3]),
        ("id in (3, 0,7)", &[0, 3]),
        ("id not in (3,0)", &[1, 2]),
        ("not id in (3,0)", &[1, 2]),
        ("not not (id = 1 or id = 2)", &[1, 2]),
        ("id = 0 or id = 1 and id = 2", &[0]),
        ("(id = 0 or id = 1) AND name = 'one'", &[1]),
        ("`the share` = 0.25", &[1]),
        ("`the share` <= 2.5e-1", &[0, 1]),
        ("`the share` != 0", &[1, 2, 3]),
        ("`the share` < 9 or `the share` >= 9", &[0, 1, 2]),
        ("name = 'it''s two'", &[2]),
        ("name in (\"it's two\", \"zero\")", &[0, 2]),
        ("name > 'three'", &[0]),
    ] {
        assert_eq!(found(text), expected, "{text}");
    }
}

#[test]
fn what_is_no_question_is_named_with_its_place() {
    for (text, place, part) in [
        ("", "at the end (character 1)", "expected a column, found the end"),
        ("id", "at the end (character 3)", "expected a comparison"),
        ("id = ", "at the end (character 6)", "expected a number, since id has numbers"),
        ("id = 'one'", "at `'one'` (character 6)", "expected a number"),
        ("name = 1", "at `1` (character 8)", "expected a text in quotes, since name has texts"),
        ("name = one", "at `one`", "expected a text in quotes"),
        ("nam = 'one'", "at `nam` (character 1)", "no column nam: the columns are id, the share, name"),
        ("wide = 1", "at `wide`", "wide has 4 numbers"),
        ("name = 'eleven'", "at `'eleven'`", "no sample has the name eleven"),
        ("id = 1 id = 2", "at `id` (character 8)", "expected `and`, `or` or the end"),
        ("id = 1 or", "at the end", "expected a column"),
        ("id in 1", "at `1`", "expected `(`, found 1"),
        ("id in (1", "at the end", "expected `)`, found the end"),
        ("id in ()", "at `)`", "expected a number"),
        ("id not = 1", "at `=`", "expected `in`"),
        ("(id = 1", "at the end", "expected `)`"),
        ("é = 1", "at `é`", "no column é"),
        ("id = 1 & id = 2", "at `&` (character 8)", "& means nothing here"),
        ("name = 'one", "at `'one`", "has no end"),
        ("`id = 1", "at ``id`", "has no end"),
        ("id = 1x", "at `1x`", "1x is no number"),
        ("1 = id", "at `1`", "expected a column, found 1"),
    ] {
        let said = Filter::parse(text, &Table).unwrap_err().to_string();
        assert!(said.contains(place) && said.contains(part), "{said}");
    }
    let deep = "(".repeat(1 << 20);
    assert!(Filter::parse(&deep, &Table).unwrap_err().to_string().contains("within each other"));
}

proptest! {
    #[test]
    fn no_text_is_a_panic(text in "[id =<>!()'`\"a-eé0-9.,+-]{0,40}") {
        let _ = Filter::parse(&text, &Table).map_err(|error| error.to_string());
    }
}
