//! Reading the names of classes from a text file: one a line, in the order of the labels.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs;
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
    /// Two classes have the same name.
    #[error("lines {first} and {line} of {} are both {name:?}: give each class a name of its own", .path.display())]
    SameName {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
        /// Number of its first line, from 1.
        first: usize,
        /// Number of its second line.
        line: usize,
    },
}

/// Reads a list of class names. Spaces around a name, a byte order mark, and blank lines at the end do not count.
///
/// # Errors
///
/// [`ClassListError`] says which line is blank or repeats a name.
pub fn read_class_list(path: &Path) -> Result<Vec<String>, ClassListError> {
    let path = || path.to_owned();
    let text = fs::read_to_string(path()).map_err(|source| ClassListError::Io { path: path(), source })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text).trim_end();
    let (mut names, mut lines) = (Vec::new(), HashMap::new());
    for (name, line) in text.lines().map(str::trim).zip(1..) {
        if name.is_empty() {
            return Err(ClassListError::Blank { path: path(), line });
        }
        match lines.entry(name) {
            Entry::Vacant(entry) => entry.insert(line),
            Entry::Occupied(entry) => {
                return Err(ClassListError::SameName {
                    path: path(),
                    name: name.to_owned(),
                    first: *entry.get(),
                    line,
                });
            }
        };
        names.push(name.to_owned());
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<String>, String> {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("classes.txt");
        fs::write(&path, text).unwrap();
        read_class_list(&path).map_err(|error| error.to_string())
    }

    #[test]
    fn what_editors_add_to_a_list_is_no_class() {
        for text in ["cat\nold dog\n", "cat\nold dog", "\u{feff}cat\r\n old dog \r\n\r\n", "cat\nold dog\n\n \n\t\n"] {
            assert_eq!(read(text).unwrap(), ["cat", "old dog"], "{text:?}");
        }
        for text in ["", "\n", "\u{feff}\r\n"] {
            assert!(read(text).unwrap().is_empty(), "{text:?}");
        }
    }

    #[test]
    fn blank_lines_and_names_that_come_twice_are_refused_by_line() {
        for (text, expected) in [
            ("cat\n\ndog\n", "line 2 of"),
            ("\ncat\n", "line 1 of"),
            ("\u{feff}\r\ncat\r\n", "line 1 of"),
            ("cat\n \n\ndog", "line 2 of"),
            ("crane\ncat\n crane\n", "lines 1 and 3 of"),
        ] {
            let said = read(text).unwrap_err();
            assert!(said.starts_with(expected), "{text:?}: {said}");
        }
    }
}
