//! Tables of comma-separated values, as lists of files and tables of fields have them.
//!
//! - The first line names the columns. Every other line is data, also one that begins with `#`: there are no comments.
//! - Spaces at the ends of a cell do not belong to it, unless the cell is quoted.

use csv::{ByteRecord, ReaderBuilder, StringRecord, Trim};
use std::io;

/// What a file in UTF-16 begins with.
const UTF_16_MARKS: [[u8; 2]; 2] = [[0xff, 0xfe], [0xfe, 0xff]];

/// A table that is read line by line.
pub(crate) struct Table<'b> {
    bytes: &'b [u8],
    reader: csv::Reader<&'b [u8]>,
    record: ByteRecord,
    /// Begin of the latest line, and its number.
    at: usize,
    line: u64,
}

/// A line of a table.
pub(crate) struct Line<'t> {
    /// Number of the line, from 1.
    pub number: u64,
    /// The cells, as many as the columns.
    pub cells: Vec<&'t [u8]>,
}

impl<'b> Table<'b> {
    /// Begins to read the table that is written in `bytes`.
    pub fn new(bytes: &'b [u8]) -> Self {
        let reader = ReaderBuilder::new().trim(Trim::Headers).from_reader(bytes);
        Self { bytes, reader, record: ByteRecord::new(), at: 0, line: 1 }
    }

    /// Returns the names of the columns.
    pub fn header(&mut self) -> Result<StringRecord, csv::Error> {
        if UTF_16_MARKS.iter().any(|mark| self.bytes.starts_with(mark)) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is UTF-16: save it as UTF-8").into());
        }
        self.reader.headers().cloned()
    }

    /// Returns the next line; `None` at the end.
    pub fn next(&mut self) -> Result<Option<Line<'_>>, csv::Error> {
        if !self.reader.read_byte_record(&mut self.record)? {
            return Ok(None);
        }
        let begin = self.record.position().map_or(0, |position| position.byte() as usize);
        let breaks = self.bytes[begin..].iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        let begin = begin + breaks;
        self.line += self.bytes[self.at..begin].iter().filter(|&&byte| byte == b'\n').count() as u64;
        self.at = begin;
        let mut rest = &self.bytes[begin..];
        let cells = self.record.iter().map(|cell| {
            let is_quoted = rest.starts_with(b"\"");
            rest = after_cell(rest);
            if is_quoted { cell } else { cell.trim_ascii() }
        });
        Ok(Some(Line { number: self.line, cells: cells.collect() }))
    }
}

/// Returns what follows the first cell of a line and its comma.
fn after_cell(line: &[u8]) -> &[u8] {
    let mut end = 0;
    if line.starts_with(b"\"") {
        end = 1;
        while let Some(quote) = line[end..].iter().position(|&byte| byte == b'"') {
            end += quote + 1;
            // Two quotes are a quote in the cell.
            if line.get(end) != Some(&b'"') {
                break;
            }
            end += 1;
        }
    }
    let comma = line[end..].iter().position(|byte| matches!(byte, b',' | b'\r' | b'\n'));
    comma.map_or(&[], |comma| &line[end + comma + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of a table, with their numbers.
    fn lines(text: &str) -> Vec<(u64, Vec<String>)> {
        let mut table = Table::new(text.as_bytes());
        let mut lines = Vec::new();
        while let Some(Line { number, cells }) = table.next().unwrap() {
            lines.push((number, cells.into_iter().map(|cell| String::from_utf8_lossy(cell).into_owned()).collect()));
        }
        lines
    }

    #[test]
    fn quoted_spaces_belong_to_a_cell_and_others_do_not() {
        let text = "a , b,c\n\" x \", y , \"z\"\n\" , \"\" \",\"\",\" \"\n";
        assert!(Table::new(text.as_bytes()).header().unwrap().iter().eq(["a", "b", "c"]));
        assert_eq!(lines(text)[0].1, [" x ", "y", "\"z\""]);
        assert_eq!(lines(text)[1].1, [" , \" ", "", " "]);
    }

    #[test]
    fn utf_16_is_named() {
        for bytes in [&b"\xff\xfep\0a\0t\0h\0\n\0"[..], b"\xfe\xff\0p\0a\0t\0h\0\n"] {
            let said = Table::new(bytes).header().unwrap_err().to_string();
            assert_eq!(said, "it is UTF-16: save it as UTF-8");
        }
    }

    #[test]
    fn a_line_that_begins_with_a_number_sign_is_data() {
        assert_eq!(lines("a,b\n#1,2\n")[0].1, ["#1", "2"]);
    }

    #[test]
    fn lines_have_their_numbers_whatever_ends_them() {
        let numbers = |text: &str| lines(text).into_iter().map(|(line, _)| line).collect::<Vec<_>>();
        assert_eq!(numbers("a,b\n1,2\n\n3,4\n"), [2, 4]);
        assert_eq!(numbers("\u{feff}a,b\r\n1,2\r\n3,4\r\n\r\n\" 5\r\n\",6\r\n7,8"), [2, 3, 5, 7]);
    }
}
