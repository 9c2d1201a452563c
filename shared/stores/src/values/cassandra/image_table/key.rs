//! The keys of rows: the cells of the columns of a primary key.

use std::cmp::Ordering;
use std::fmt::Write;

/// Type of a column of a primary key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyType {
    Uuid,
    Text,
    /// A whole number of as many bytes.
    Number(usize),
    Blob,
}

impl KeyType {
    /// Returns the type by the name that CQL has for it.
    pub fn of(name: &str) -> Option<Self> {
        Some(match name {
            "uuid" | "timeuuid" => Self::Uuid,
            "text" | "varchar" | "ascii" => Self::Text,
            "tinyint" => Self::Number(1),
            "smallint" => Self::Number(2),
            "int" => Self::Number(4),
            "bigint" => Self::Number(8),
            "blob" => Self::Blob,
            _ => return None,
        })
    }

    /// Returns whether a cell can be of this type.
    pub fn fits(self, cell: &[u8]) -> bool {
        match self {
            Self::Uuid => cell.len() == 16,
            Self::Number(bytes) => cell.len() == bytes,
            Self::Text | Self::Blob => cell.len() <= u16::MAX.into(),
        }
    }

    /// Returns a cell as text.
    fn text(self, cell: &[u8]) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        match self {
            Self::Uuid => [&cell[..4], &cell[4..6], &cell[6..8], &cell[8..10], &cell[10..]].map(hex).join("-"),
            Self::Text => String::from_utf8_lossy(cell).into_owned(),
            Self::Number(_) => number(cell).to_string(),
            Self::Blob => format!("0x{}", hex(cell)),
        }
    }

    fn compare(self, one: &[u8], other: &[u8]) -> Ordering {
        match self {
            Self::Number(_) => number(one).cmp(&number(other)),
            Self::Uuid | Self::Text | Self::Blob => one.cmp(other),
        }
    }
}

/// Returns the whole number in a cell of one to eight bytes.
pub fn number(cell: &[u8]) -> i64 {
    let sign = if cell.first().is_some_and(|first| first & 0x80 != 0) { -1 } else { 0 };
    cell.iter().fold(sign, |number, byte| number << 8 | i64::from(*byte))
}

/// Joins cells to a key: each has its length, of two bytes, in front of it.
pub fn joined<'c>(cells: impl Iterator<Item = &'c [u8]>) -> Vec<u8> {
    let mut key = Vec::new();
    for cell in cells {
        key.extend_from_slice(&(cell.len() as u16).to_be_bytes());
        key.extend_from_slice(cell);
    }
    key
}

/// Returns the cells of a key.
pub fn cells(mut key: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = key.split_first_chunk()?;
        let (cell, rest) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
        key = rest;
        Some(cell)
    })
}

/// Returns a key as text: its cells, with slashes between them.
pub fn text(types: &[KeyType], key: &[u8]) -> String {
    let mut text = String::new();
    for (kind, cell) in types.iter().zip(cells(key)) {
        let slash = if text.is_empty() { "" } else { "/" };
        let _ = write!(text, "{slash}{}", kind.text(cell));
    }
    text
}

/// Compares two keys cell by cell: numbers by their values, all others by their bytes.
pub fn compare(types: &[KeyType], one: &[u8], other: &[u8]) -> Ordering {
    let mut pairs = types.iter().zip(cells(one).zip(cells(other)));
    let found = pairs.find_map(|(kind, (one, other))| Some(kind.compare(one, other)).filter(|order| order.is_ne()));
    found.unwrap_or(Ordering::Equal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_shown_and_ordered_by_their_types() {
        let uuid: [u8; 16] = std::array::from_fn(|byte| byte as u8);
        let types = [KeyType::Uuid, KeyType::Text, KeyType::Number(4), KeyType::Blob];
        let key = |number: i32| joined([&uuid[..], b"a/b", &number.to_be_bytes(), b"\x0f\xff"].into_iter());
        assert_eq!(text(&types, &key(-7)), "00010203-0405-0607-0809-0a0b0c0d0e0f/a/b/-7/0x0fff");
        assert_eq!(compare(&types, &key(-7), &key(3)), Ordering::Less);
        assert_eq!(compare(&types, &key(3), &key(3)), Ordering::Equal);
        let texts = [&b"b"[..], b"ab"].map(|text| joined([text].into_iter()));
        assert_eq!(compare(&[KeyType::Text], &texts[0], &texts[1]), Ordering::Greater);
        assert_eq!(cells(&key(3)).count(), 4);
        assert_eq!(cells(&key(3)[..30]).count(), 3);
    }

    #[test]
    fn numbers_have_signs_in_every_length() {
        assert_eq!(number(&[0xff]), -1);
        assert_eq!(number(&[0x80, 0]), i64::from(i16::MIN));
        assert_eq!(number(&7_i32.to_be_bytes()), 7);
        assert_eq!(number(&i64::MIN.to_be_bytes()), i64::MIN);
    }

    #[test]
    fn cells_of_another_length_are_of_another_type() {
        assert!(KeyType::of("int").unwrap().fits(&[0; 4]) && !KeyType::Number(4).fits(&[0; 3]));
        assert!(!KeyType::Uuid.fits(&[]) && !KeyType::Blob.fits(&[0; 70_000]));
        assert_eq!(KeyType::of("list<int>"), None);
    }
}
