//! Tables of comma-separated values, as lists of files and tables of fields have them.
//!
//! - The first line names the columns. Every other line is data, also one that begins with `#`: there are no comments.
//! - Spaces at the ends of a cell do not belong to it, unless the cell is quoted.
//! - A quoted cell may contain commas, line breaks, and quotes written twice. A quote anywhere else is an error. So is
//!   a quote that is not closed: the lines up to the next quote would be one cell, and their samples would be missing.

use crate::text_file;
use std::borrow::Cow;
use std::io;

/// What no path and no name may contain, and why, in words that follow what it is.
pub(crate) const LINE_BREAKS: [char; 2] = ['\r', '\n'];
pub(crate) const BROKEN: &str = "goes on in the next line: a quote is missing, or one too many";

/// A table that is read line by line.
pub(crate) struct Table<'b> {
    /// What is not read yet.
    rest: &'b [u8],
    /// Number of the line with which the rest begins.
    line: u64,
    /// Number of columns; 0 before the first line.
    columns: usize,
}

/// A line of a table.
#[derive(Debug)]
pub(crate) struct Line<'b> {
    /// Number of the line, from 1.
    pub number: u64,
    /// The cells, as many as the columns.
    pub cells: Vec<Cow<'b, [u8]>>,
}

/// Why a line is invalid: its number, what is wrong, and what to do.
pub(crate) type WrongLine = (u64, String);

impl<'b> Table<'b> {
    /// Begins to read the table that is written in `bytes`.
    ///
    /// # Errors
    ///
    /// If the bytes are no text in UTF-8.
    pub fn new(bytes: &'b [u8]) -> io::Result<Self> {
        Ok(Self { rest: text_file::without_mark(bytes)?, line: 1, columns: 0 })
    }

    /// Returns the names of the columns. Called first.
    pub fn header(&mut self) -> Result<Vec<String>, WrongLine> {
        let Some(Line { number, cells }) = self.next()? else { return Ok(Vec::new()) };
        let names =
            cells.into_iter().map(|cell| String::from_utf8(cell.into_owned()).map(|name| name.trim().to_owned()));
        names.collect::<Result<_, _>>().map_err(|_| (number, "the line is not UTF-8: save the table as UTF-8".into()))
    }

    /// Returns the next line; `None` at the end. Skips empty lines.
    pub fn next(&mut self) -> Result<Option<Line<'b>>, WrongLine> {
        while matches!(self.rest.first(), Some(b'\r' | b'\n')) {
            self.end_line();
        }
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (number, mut cells) = (self.line, Vec::with_capacity(self.columns));
        loop {
            cells.push(self.cell()?);
            match self.rest.split_first() {
                Some((b',', rest)) => self.rest = rest,
                _ => break,
            }
        }
        self.end_line();
        if self.columns == 0 {
            self.columns = cells.len();
        }
        if cells.len() != self.columns {
            let what = format!(
                "cells in the line: {}, columns in the first line: {}; a cell that contains a comma needs quotes",
                cells.len(),
                self.columns
            );
            return Err((number, what));
        }
        Ok(Some(Line { number, cells }))
    }

    /// Reads a cell, up to the comma or line break behind it.
    fn cell(&mut self) -> Result<Cow<'b, [u8]>, WrongLine> {
        self.skip_spaces();
        if self.rest.first() != Some(&b'"') {
            let end = self.rest.iter().position(|byte| matches!(byte, b',' | b'\r' | b'\n'));
            let cell = self.take(end.unwrap_or(self.rest.len())).trim_ascii();
            if cell.contains(&b'"') {
                let what = format!(
                    "the cell {} has a quote, but does not begin with one: put it in quotes, and write the quote twice",
                    String::from_utf8_lossy(cell)
                );
                return Err((self.line, what));
            }
            return Ok(Cow::Borrowed(cell));
        }
        let (begin, mut cell) = (self.line, Cow::Borrowed(&[][..]));
        loop {
            self.rest = &self.rest[1..];
            let Some(end) = self.rest.iter().position(|&byte| byte == b'"') else {
                let what = "a quote begins a cell here and is never closed: close it, or remove it".into();
                return Err((begin, what));
            };
            let part = self.take(end);
            self.line += breaks(part);
            append(&mut cell, part);
            self.rest = &self.rest[1..];
            if self.rest.first() != Some(&b'"') {
                break;
            }
            append(&mut cell, b"\"");
        }
        self.skip_spaces();
        match self.rest.first() {
            None | Some(b',' | b'\r' | b'\n') => Ok(cell),
            Some(_) => {
                let what = "text follows the quote that ends a cell: put all of the cell in quotes, and write a quote \
                            in it twice";
                let where_from =
                    if begin == self.line { String::new() } else { format!(" (it begins in line {begin})") };
                Err((self.line, format!("{what}{where_from}")))
            }
        }
    }

    fn skip_spaces(&mut self) {
        let spaces = self.rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        self.take(spaces);
    }

    /// Passes over a line break, if the rest begins with one.
    fn end_line(&mut self) {
        let bytes = match self.rest {
            [b'\r', b'\n', ..] => 2,
            [b'\r' | b'\n', ..] => 1,
            _ => return,
        };
        self.take(bytes);
        self.line += 1;
    }

    fn take(&mut self, bytes: usize) -> &'b [u8] {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        taken
    }
}

/// Returns the number of line breaks in a text, however they are written.
fn breaks(text: &[u8]) -> u64 {
    let all = text.iter().filter(|byte| matches!(byte, b'\r' | b'\n')).count();
    let pairs = text.windows(2).filter(|pair| pair == b"\r\n").count();
    (all - pairs) as u64
}

/// Adds a part to a cell, without a copy if it is the first one.
fn append<'b>(cell: &mut Cow<'b, [u8]>, part: &'b [u8]) {
    if cell.is_empty() {
        *cell = Cow::Borrowed(part);
    } else if !part.is_empty() {
        cell.to_mut().extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of a table, with their numbers.
    fn lines(text: &str) -> Vec<(u64, Vec<String>)> {
        all(text).unwrap_or_else(|(line, what)| panic!("line {line}: {what}"))
    }

    fn all(text: &str) -> Result<Vec<(u64, Vec<String>)>, WrongLine> {
        let mut table = Table::new(text.as_bytes()).unwrap();
        table.header()?;
        let mut lines = Vec::new();
        while let Some(Line { number, cells }) = table.next()? {
            lines.push((number, cells.into_iter().map(|cell| String::from_utf8_lossy(&cell).into_owned()).collect()));
        }
        Ok(lines)
    }

    #[test]
    fn quoted_spaces_belong_to_a_cell_and_others_do_not() {
        let text = "a , \"b\",c\n\" x \", y , \"z\" \n\" , \"\" \",\"\",\" \"\n\"\"\"\",\"a\"\"\"\"b\",\t\n";
        assert_eq!(Table::new(text.as_bytes()).unwrap().header().unwrap(), ["a", "b", "c"]);
        assert_eq!(lines(text)[0].1, [" x ", "y", "z"]);
        assert_eq!(lines(text)[1].1, [" , \" ", "", " "]);
        assert_eq!(lines(text)[2].1, ["\"", "a\"\"b", ""]);
    }

    #[test]
    fn a_quote_in_the_wrong_place_is_an_error_that_names_its_line() {
        for (text, line, part) in [
            ("a,b\n1,\"dog\n2,cat\n", 2, "never closed"),
            ("a,b\n1,2\n\n3,\"dog", 4, "never closed"),
            ("a,b\n1,\"\"\"\n", 2, "never closed"),
            ("a,b\n1,\"dog\n2,\"cat\"\n", 3, "(it begins in line 2)"),
            ("a,b\n1,\"5 inch\n2,6\" x\n", 3, "text follows the quote"),
            ("a,b\n1,\"x\" y\n", 2, "text follows the quote"),
            ("a,b\n1,5\" inch\n", 2, "the cell 5\" inch has a quote"),
            ("a,\"b\n1,2\n", 1, "never closed"),
            ("a,b\n1\n", 2, "cells in the line: 1, columns in the first line: 2;"),
            ("a,b\n1,2,\n", 2, "cells in the line: 3"),
            ("a,b\n1,2\n \n", 3, "cells in the line: 1"),
        ] {
            let (found, what) = all(text).unwrap_err();
            assert!(found == line && what.contains(part), "{text:?}: line {found}: {what}");
        }
    }

    #[test]
    fn utf_16_is_named() {
        for bytes in [&b"\xff\xfep\0a\0t\0h\0\n\0"[..], b"\xfe\xff\0p\0a\0t\0h\0\n"] {
            let said = Table::new(bytes).map(drop).unwrap_err().to_string();
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
        assert_eq!(numbers("a,b\r1,2\r\"x\ry\",4\r5,6"), [2, 3, 5]);
    }
}
