//! Reading the names of classes from a text file: one a line, in the order of the labels.

use crate::text_file;
use std::io;
use std::path::{Path, PathBuf};

/// Reason why a list of class names cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClassListError {
    /// The file cannot be read.
    #[error("cannot read the class names in {}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operating system's error, or that the text is not UTF-8.
        #[source]
        source: io::Error,
    },
    /// A line between names is blank.
    #[error(
        "line {line} of {} is blank, but a class has the number of its line: give the class a name, or remove the line",
        .path.display()
    )]
    Blank {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
    },
}

/// Reads a list of class names. Spaces around a name belong to it, as to the name of a folder. A byte order mark, ends
/// of lines as Windows writes them, and blank lines at the end do not count.
///
/// # Errors
///
/// [`ClassListError`] says which line is blank.
pub fn read_class_list(path: &Path) -> Result<Vec<String>, ClassListError> {
    let text = text_file::read(path).map_err(|source| ClassListError::Io { path: path.into(), source })?;
    let lines: Vec<&str> = text.lines().collect();
    let is_blank = |line: &&str| line.trim().is_empty();
    let names = lines.iter().rposition(|line| !is_blank(line)).map_or(0, |last| last + 1);
    match lines[..names].iter().position(is_blank) {
        Some(blank) => Err(ClassListError::Blank { path: path.into(), line: blank + 1 }),
        None => Ok(lines[..names].iter().map(ToString::to_string).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn read(text: &str) -> Result<Vec<String>, String> {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("classes.txt");
        fs::write(&path, text).unwrap();
        read_class_list(&path).map_err(|error| error.to_string())
    }

    #[test]
    fn what_editors_add_to_a_list_is_no_class() {
        for text in ["cat\nold dog\n", "cat\nold dog", "\u{feff}cat\r\nold dog\r\n\r\n", "cat\nold dog\n\n \n\t\n"] {
            assert_eq!(read(text).unwrap(), ["cat", "old dog"], "{text:?}");
        }
        for text in ["", "\n", "\u{feff}\r\n"] {
            assert!(read(text).unwrap().is_empty(), "{text:?}");
        }
    }

    #[test]
    fn spaces_around_a_name_belong_to_it() {
        assert_eq!(read("cat \r\n old dog\n").unwrap(), ["cat ", " old dog"]);
    }

    #[test]
    fn blank_lines_are_refused_by_line() {
        for (text, expected) in [
            ("cat\n\ndog\n", "line 2 of"),
            ("\ncat\n", "line 1 of"),
            ("\u{feff}\r\ncat\r\n", "line 1 of"),
            ("cat\n \n\ndog", "line 2 of"),
        ] {
            let said = read(text).unwrap_err();
            assert!(said.starts_with(expected), "{text:?}: {said}");
        }
    }
}
