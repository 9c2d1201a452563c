//! How the values of a dataset lie in rows.
//!
//! A dataset is two tables. `NAME_data` has the values:
//!
//! | column | what |
//! |---|---|
//! | `id uuid` | the value, see [`id_of`]; the partition key |
//! | `start int` | where in the content the row's bytes begin |
//! | `label int` | the sample's label |
//! | `head blob` | the value's head |
//! | `data blob` | at most [`ROW_BYTES`] bytes of the content; a piece of a sample in pieces has rows of its own |
//!
//! `NAME_metadata` has `id uuid`, `number bigint`, `label int`, `class text`, `name text`, `form text`, `verdict text`
//! and `bytes bigint` of each sample, for queries; a run does not read it.

use super::super::layout::{Content, Key, Value};
use super::super::server::There;
use super::address::ClusterAddress;
use std::ops::Range;

/// Most content of a row: rows above a MB make a cluster slow.
pub const ROW_BYTES: u64 = 1 << 20;
/// Most content that is asked for at once.
pub const ASKED_BYTES: u64 = 8 << 20;
/// Columns that the table of the values has.
pub const COLUMNS: [&str; 5] = ["data", "head", "id", "label", "start"];

/// The statements for a dataset's tables.
pub struct Statements {
    pub create: [String; 2],
    pub select: String,
    pub heads: String,
    pub insert: String,
    pub insert_metadata: String,
    pub delete: [String; 2],
}

impl Statements {
    /// Returns the statements for the dataset at an address.
    pub fn new(address: &ClusterAddress) -> Self {
        let ClusterAddress { keyspace, name, .. } = address;
        let data = format!("\"{keyspace}\".\"{name}_data\"");
        let metadata = format!("\"{keyspace}\".\"{name}_metadata\"");
        Self {
            // Images are compressed already.
            create: [
                format!(
                    "CREATE TABLE IF NOT EXISTS {metadata} (id uuid PRIMARY KEY, number bigint, label int, class \
                     text, name text, form text, verdict text, bytes bigint)"
                ),
                format!(
                    "CREATE TABLE IF NOT EXISTS {data} (id uuid, start int, label int, head blob, data blob, PRIMARY \
                     KEY (id, start)) WITH compression = {{'enabled': 'false'}}"
                ),
            ],
            select: format!("SELECT start, head, data FROM {data} WHERE id = ? AND start > ? AND start < ?"),
            heads: format!("SELECT start, head FROM {data} WHERE id = ?"),
            insert: format!("INSERT INTO {data} (id, start, label, head, data) VALUES (?, ?, ?, ?, ?)"),
            insert_metadata: format!(
                "INSERT INTO {metadata} (id, number, label, class, name, form, verdict, bytes) VALUES (?, ?, ?, ?, ?, \
                 ?, ?, ?)"
            ),
            delete: [&data, &metadata].map(|table| format!("DELETE FROM {table} WHERE id = ?")),
        }
    }
}

/// Returns the identifier of a value: a UUID of version 8 (RFC 9562, section 5.8).
///
/// It consists of the first 60 bits of the pack's identity and, after the variant, of 62 bits: the number, with the
/// highest bit set for a chunk of the index, and the bit below it for the mark of a share. The identity of the
/// manifests is zero; the number of the manifest is 0, and that of a push that has not ended is 1.
pub fn id_of(key: Key) -> [u8; 16] {
    const INDEX: u64 = 1 << 61;
    const SHARE: u64 = 1 << 60;
    let (identity, number) = match key {
        Key::Manifest => (0, 0),
        Key::Pushing => (0, 1),
        Key::Content(version, Content::Sample(number)) => (u64::from_be_bytes(version.0), number),
        Key::Content(version, Content::Index(number)) => (u64::from_be_bytes(version.0), INDEX | number),
        Key::Content(version, Content::Share(number)) => (u64::from_be_bytes(version.0), SHARE | number),
    };
    let high = (identity >> 16 << 16) | 0x8000 | (identity >> 4 & 0x0fff);
    let low = (0b10 << 62) | number;
    let mut id = [0; 16];
    id[..8].copy_from_slice(&high.to_be_bytes());
    id[8..].copy_from_slice(&low.to_be_bytes());
    id
}

/// Returns the parts of a value's content that have rows of their own.
pub fn rows_of(value: &Value) -> Vec<Range<usize>> {
    cut(value.parts().1.len(), value.sample.as_ref().map_or(&[][..], |sample| &sample.pieces))
}

/// Returns the parts that have rows of their own, of a content of `end` bytes whose pieces begin at these places.
pub fn cut(end: usize, pieces: &[u64]) -> Vec<Range<usize>> {
    let starts = pieces.iter().map(|start| *start as usize).filter(|start| (1..end).contains(start));
    let mut rows = Vec::new();
    let mut begin = 0;
    for border in starts.chain([end]) {
        while begin < border {
            let row = begin..border.min(begin + ROW_BYTES as usize);
            begin = row.end;
            rows.push(row);
        }
    }
    if rows.is_empty() {
        rows.push(0..0);
    }
    rows
}

/// Returns what of a value is there, from where its rows should begin, and where those that are there begin.
pub fn there(wanted: &[Range<usize>], heads: &[(i32, Vec<u8>)]) -> There {
    let is_there = |row: &Range<usize>| heads.iter().any(|(start, _)| usize::try_from(*start) == Ok(row.start));
    if wanted.iter().all(is_there) { There::All } else { There::Part }
}

/// Reads a cell of type `int`.
pub fn int(bytes: Option<&[u8]>) -> Option<i32> {
    Some(i32::from_be_bytes(bytes?.try_into().ok()?))
}

/// A row of a value.
#[derive(Clone)]
pub struct Row<'r> {
    /// Where in the content the row's bytes begin.
    pub start: u64,
    pub head: &'r [u8],
    pub data: &'r [u8],
}

impl<'r> Row<'r> {
    /// Reads place, head and content.
    pub fn of(cells: &[Option<&'r [u8]>]) -> Option<Self> {
        let &[start, head, data] = cells else { return None };
        let start = u64::try_from(int(start)?).ok()?;
        Some(Self { start, head: head.unwrap_or_default(), data: data.unwrap_or_default() })
    }
}

/// Fills memory with the content of rows, from `start` of the content on. Returns whether they have all of it.
pub fn fill(rows: &[Row<'_>], start: u64, memory: &mut [u8]) -> bool {
    let mut filled = 0;
    for row in rows {
        let Some(skipped) = (start + filled as u64).checked_sub(row.start) else { return false };
        let there = row.data.get(skipped as usize..).unwrap_or_default();
        let taken = there.len().min(memory.len() - filled);
        memory[filled..filled + taken].copy_from_slice(&there[..taken]);
        filled += taken;
        if filled == memory.len() {
            return true;
        }
    }
    memory.is_empty()
}

/// Returns parts in the groups in which they are asked for, and cuts long ones.
pub fn asked_together(parts: Vec<(u64, &mut [u8])>) -> Vec<Vec<(u64, &mut [u8])>> {
    let mut groups: Vec<Vec<(u64, &mut [u8])>> = Vec::new();
    for (mut start, mut memory) in parts {
        while !memory.is_empty() {
            let (part, rest) = memory.split_at_mut(memory.len().min(ASKED_BYTES as usize));
            let next = start + part.len() as u64;
            match groups.last_mut() {
                Some(group) if next - group[0].0 <= ASKED_BYTES => group.push((start, part)),
                _ => groups.push(vec![(start, part)]),
            }
            (start, memory) = (next, rest);
        }
    }
    groups
}

/// Returns where parts begin and end, which ascend.
pub fn extent_of(parts: &[(u64, &mut [u8])]) -> Range<u64> {
    let end = parts.last().map_or(0, |(start, memory)| start + memory.len() as u64);
    parts.first().map_or(end, |(start, _)| *start)..end
}

#[cfg(test)]
mod tests {
    use super::super::super::layout::{SampleNotes, Version};
    use super::*;

    const VERSION: Version = Version([0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef]);

    #[test]
    fn identifiers_are_uuids_of_version_8_and_differ() {
        let text = |key| {
            let id: String = id_of(key).iter().map(|byte| format!("{byte:02x}")).collect();
            [&id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]].join("-")
        };
        assert_eq!(text(Key::Content(VERSION, Content::Sample(7))), "01234567-89ab-8cde-8000-000000000007");
        assert_eq!(text(Key::Content(VERSION, Content::Index(7))), "01234567-89ab-8cde-a000-000000000007");
        assert_eq!(text(Key::Content(VERSION, Content::Share(7))), "01234567-89ab-8cde-9000-000000000007");
        assert_eq!(text(Key::Manifest), "00000000-0000-8000-8000-000000000000");
        assert_eq!(text(Key::Pushing), "00000000-0000-8000-8000-000000000001");
    }

    fn value(content_bytes: usize, pieces: &[u64]) -> Value {
        let (class, name, pieces) = (String::new(), String::new(), pieces.to_vec());
        let sample = SampleNotes { number: 0, label: 0, class, name, form: "kept", verdict: "intact", pieces };
        let key = Key::Content(VERSION, Content::Sample(0));
        Value { key, bytes: vec![0; 48 + content_bytes], head_bytes: 48, sample: Some(sample) }
    }

    #[test]
    fn rows_are_cut_at_pieces_and_at_a_mebibyte() {
        const MIB: usize = ROW_BYTES as usize;
        assert_eq!(rows_of(&value(0, &[0])), std::slice::from_ref(&(0..0)));
        assert_eq!(rows_of(&value(MIB, &[0])), std::slice::from_ref(&(0..MIB)));
        assert_eq!(rows_of(&value(MIB + 1, &[0])), [0..MIB, MIB..MIB + 1]);
        assert_eq!(rows_of(&value(9, &[0, 4, 4, 9])), [0..4, 4..9]);
        assert_eq!(rows_of(&value(MIB + 5, &[0, 3])), [0..3, 3..MIB + 3, MIB + 3..MIB + 5]);
    }

    #[test]
    fn a_missing_row_is_found_wherever_it_lies() {
        let found = |starts: &[i32]| {
            let heads: Vec<_> = starts.iter().map(|start| (*start, Vec::new())).collect();
            there(&cut(9, &[0, 4, 6]), &heads)
        };
        assert_eq!(found(&[0, 4, 6]), There::All);
        for starts in [&[4, 6][..], &[0, 6], &[0, 4]] {
            assert_eq!(found(starts), There::Part, "{starts:?}");
        }
    }

    #[test]
    fn memory_is_filled_only_from_rows_without_a_gap() {
        let row = |start, data| Row { start, head: &[], data };
        let rows = [row(0, b"0123"), row(4, b"4567"), row(8, b"89")];
        let filled = |rows: &[Row<'_>], start, length| {
            let mut memory = vec![0; length];
            fill(rows, start, &mut memory).then_some(memory)
        };
        assert_eq!(filled(&rows, 0, 10).as_deref(), Some(&b"0123456789"[..]));
        assert_eq!(filled(&rows, 3, 3).as_deref(), Some(&b"345"[..]));
        assert_eq!(filled(&rows, 4, 4).as_deref(), Some(&b"4567"[..]));
        assert_eq!(filled(&rows, 9, 2), None);
        assert_eq!(filled(&rows[1..], 3, 3), None);
        assert_eq!(filled(&[rows[0].clone(), rows[2].clone()], 3, 3), None);
        assert_eq!(filled(&[], 0, 1), None);
    }

    #[test]
    fn long_reads_are_asked_for_in_parts() {
        let asked = ASKED_BYTES as usize;
        let (mut long, mut near, mut far) = (vec![0; 2 * asked + 5], [0; 7], [0; 7]);
        let start = long.len() as u64;
        let parts = vec![(0, &mut long[..]), (start, &mut near[..]), (3 * asked as u64, &mut far[..])];
        let groups: Vec<Vec<(u64, usize)>> = asked_together(parts)
            .iter()
            .map(|parts| parts.iter().map(|(start, memory)| (*start, memory.len())).collect())
            .collect();
        let of =
            |places: &[(usize, usize)]| places.iter().map(|(at, length)| (*at as u64, *length)).collect::<Vec<_>>();
        let expected = [
            of(&[(0, asked)]),
            of(&[(asked, asked)]),
            of(&[(2 * asked, 5), (2 * asked + 5, 7)]),
            of(&[(3 * asked, 7)]),
        ];
        assert_eq!(groups, expected);
    }
}
