//! A list of image files with their labels: a text file of comma-separated values.
//!
//! - The first line names the columns. The column `path` has paths of files, relative to the folder of the list; the
//!   column `label` has a class index or the name of a class. Other columns may hold anything, but none may have one of
//!   these names in another case (`Label`).
//! - Samples come in the order of the list, one for each line. A file may appear more than once.
//! - If all labels are whole numbers (`3` or `3.0`), they are indices, and the classes have no names. If none is a
//!   number, they are the names of the classes, sorted byte by byte; [`Classed`](crate::Classed) gives them other
//!   numbers. Anything else is an error, unless the classes are given and each label is the name of one (`labels`).
//! - A list of the column `path` alone has no labels: every label is 0. Any other list needs the column `label`, since
//!   another column may have the labels under another name.
//! - A path that leads to no file stays in the list: its sample is unavailable when it is read.
//!
//! So a folder of images without class folders can be used, such as ImageNet's validation set, and so can a part of a
//! folder, without a copy. The identity is a digest of paths, labels and sizes.

pub(super) mod labels;

use crate::sample::IdentityHasher;
use crate::sources::files::{Files, is_no_file};
use crate::stamp::Stamp;
use crate::table::{BROKEN, LINE_BREAKS, Line, Table};
use crate::{Dataset, Decoders, Header, Identity, Location, OpenOptions, ReadError, parallel};
use ddlp_pixels::LABEL;
use labels::{Labels, Numbered};
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Column of the files' paths.
const PATH: &str = "path";
/// Paths that are examined together.
const PATHS_TOGETHER: usize = 1024;

/// Reason why a list cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListError {
    /// The list cannot be read.
    #[error("cannot read the list {}", .path.display())]
    Unreadable {
        /// The list.
        path: PathBuf,
        /// The operating system's error, or that the text is not UTF-8.
        #[source]
        source: io::Error,
    },
    /// The folder of the list, or a file in it, cannot be examined.
    #[error("cannot examine {}: check that you may read it", .path.display())]
    Refused {
        /// The folder or file.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// A line of the list cannot be used.
    #[error("{}, line {line}: {what}", .path.display())]
    Line {
        /// The list.
        path: PathBuf,
        /// Number of the line, from 1.
        line: u64,
        /// What is wrong, and what to do.
        what: String,
    },
}

/// A list of image files.
pub struct List {
    files: Files,
    labels: Vec<u32>,
    classes: Vec<String>,
    identity: Identity,
    kind: &'static str,
}

impl List {
    /// Reads a list, and examines its files.
    ///
    /// # Errors
    ///
    /// [`ListError`] says in which line what is wrong.
    pub fn open(path: &Path) -> Result<Self, ListError> {
        Self::open_with(path, &OpenOptions::default())
    }

    /// Opens a list as [`open`](Self::open) does, with these options. Ignores the option `kind`.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_with(path: &Path, options: &OpenOptions) -> Result<Self, ListError> {
        let Listed { paths, own, named } = read(path, options)?;
        let root = path.parent().filter(|root| !root.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let files = examined(root, &paths)?;
        let identity = digest(&files, &own);
        let Numbered { labels, classes } = named.unwrap_or(own);
        Ok(Self { files, labels, classes, identity, kind: "list" })
    }

    /// Makes a list of files that a program names by their paths below `root`, each with a label. `classes` has the
    /// names of the classes, or nothing. The kind of the dataset is `"files"`.
    ///
    /// # Errors
    ///
    /// [`ListError::Refused`] if a file cannot be examined.
    ///
    /// # Panics
    ///
    /// If there are no paths, or not as many labels.
    pub fn of_files<P: AsRef<OsStr> + Sync>(
        root: &Path,
        paths: &[P],
        labels: Vec<u32>,
        classes: Vec<String>,
    ) -> Result<Self, ListError> {
        assert!(!paths.is_empty() && paths.len() == labels.len(), "each sample has a path and a label");
        let files = examined(root, paths)?;
        let own = Numbered { labels, classes };
        let identity = digest(&files, &own);
        Ok(Self { files, labels: own.labels, classes: own.classes, identity, kind: "files" })
    }
}

/// Examines the files with these paths below `root`.
fn examined<P: AsRef<OsStr> + Sync>(root: &Path, paths: &[P]) -> Result<Files, ListError> {
    let refused = |path: &Path| {
        let path = path.to_owned();
        move |source| ListError::Refused { path, source }
    };
    let mut files = Files::below(root).map_err(refused(root))?;
    let path_bytes = paths.iter().map(|path| path.as_ref().len()).sum();
    files.make_room(paths.len(), path_bytes).map_err(refused(root))?;
    let groups: Vec<&[P]> = paths.chunks(PATHS_TOGETHER).collect();
    let stamps = parallel::map(&groups, |paths| {
        let stamp_of = |path: &P| stamp(&root.join(path.as_ref())).map_err(|error| (root.join(path.as_ref()), error));
        paths.iter().map(stamp_of).collect::<Vec<_>>()
    });
    for (path, stamp) in paths.iter().zip(stamps.into_iter().flatten()) {
        files.add(path.as_ref().as_bytes(), stamp.map_err(|(path, source)| refused(&path)(source))?);
    }
    Ok(files)
}

/// What stands in a list.
struct Listed {
    paths: Vec<String>,
    /// The labels as the list alone says.
    own: Numbered,
    /// The labels as names, if the given classes say that the labels are names.
    named: Option<Numbered>,
}

/// Reads a list.
fn read(path: &Path, options: &OpenOptions) -> Result<Listed, ListError> {
    let unreadable = |source| ListError::Unreadable { path: path.to_owned(), source };
    let wrong = |line, what: String| ListError::Line { path: path.to_owned(), line, what };
    let wrong_line = |(line, what)| wrong(line, what);
    let bytes = fs::read(path).map_err(unreadable)?;
    let mut table = Table::new(&bytes).map_err(unreadable)?;
    let header = table.header().map_err(wrong_line)?;
    let is_almost = |name: &&String| [PATH, LABEL].iter().any(|own| own.eq_ignore_ascii_case(name) && own != name);
    if let Some(name) = header.iter().find(is_almost) {
        let what = format!("a column is called {name}: write {} if it is that one", name.to_ascii_lowercase());
        return Err(wrong(1, format!("{what}, and otherwise give it another name")));
    }
    let column = |name: &str| {
        let mut places = (0..header.len()).filter(|&place| header[place] == *name);
        let first = places.next();
        match places.next() {
            Some(_) => Err(wrong(1, format!("two columns are called {name}: rename one, or leave it out"))),
            None => Ok(first),
        }
    };
    let Some(path_at) = column(PATH)? else {
        return Err(wrong(
            1,
            "no column is called path: the first line must name the columns, such as path,label".into(),
        ));
    };
    let label_at = column(LABEL)?;
    if label_at.is_none() && header.len() > 1 && !options.labels_unused {
        let what = format!("no column is called label (the columns are {}): rename the column", header.join(", "));
        return Err(wrong(1, format!("{what} of labels, or leave only the column path if there are no labels")));
    }
    let (mut paths, mut labels) = (Vec::new(), Labels::new(options));
    while let Some(Line { number: line, cells }) = table.next().map_err(wrong_line)? {
        let cell = |at: usize, name: &str| match std::str::from_utf8(&cells[at]) {
            Err(_) => Err(wrong(line, format!("the {name} is not UTF-8: save the list as UTF-8"))),
            Ok("") => Err(wrong(line, format!("the {name} is empty"))),
            Ok(cell) if cell.contains(LINE_BREAKS) => Err(wrong(line, format!("the {name} {BROKEN}"))),
            Ok(cell) => Ok(cell.to_owned()),
        };
        paths.push(cell(path_at, PATH)?);
        if let Some(at) = label_at {
            labels.add(line, cell(at, LABEL)?);
        }
    }
    if paths.is_empty() {
        return Err(wrong(1, "no line names a file".into()));
    }
    let (own, named) = labels.numbered("line").map_err(|(line, what)| wrong(line, what))?;
    Ok(Listed { paths, own, named })
}

/// Returns the stamp of the regular file at a path, if there is one.
fn stamp(path: &Path) -> io::Result<Option<Stamp>> {
    match fs::metadata(path) {
        Ok(status) => Ok(status.is_file().then(|| Stamp::from(&status))),
        Err(error) if is_no_file(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn digest(files: &Files, Numbered { labels, classes }: &Numbered) -> Identity {
    let mut hasher = IdentityHasher::new("ddlp list 1");
    hasher.number(classes.len() as u64);
    classes.iter().for_each(|class| hasher.field(class.as_bytes()));
    hasher.number(files.len());
    for index in 0..files.len() {
        hasher.field(files.path(index));
        hasher.number(labels.get(index as usize).copied().unwrap_or(0).into());
        hasher.number(files.size(index).unwrap_or(0));
    }
    hasher.finish()
}

impl Dataset for List {
    fn len(&self) -> u64 {
        self.files.len()
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn label(&self, index: u64) -> u32 {
        assert!(index < self.len(), "sample {index} of {}", self.len());
        self.labels.get(index as usize).copied().unwrap_or(0)
    }

    fn name(&self, index: u64) -> String {
        self.files.name(index)
    }

    fn location(&self, index: u64) -> Location {
        self.files.location(index)
    }

    fn sample_in(&self, found: &Metadata) -> Option<u64> {
        self.files.sample_in(found)
    }

    fn header(&self, index: u64) -> Result<Header, ReadError> {
        self.files.header(index)
    }

    fn read(&self, index: u64, _: &Header, offset: u64, out: &mut [u8]) -> Result<(), ReadError> {
        self.files.read(index, offset, out)
    }

    fn identity(&self) -> Identity {
        self.identity
    }

    fn decoders(&self) -> Decoders {
        self.files.decoders()
    }

    fn kind(&self) -> &'static str {
        self.kind
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unavailable;
    use crate::samples::{image, write_folder};
    use tempfile::TempDir;

    /// A folder of two classes with two samples each, and a list in it.
    fn list(text: &str) -> (TempDir, Result<List, ListError>) {
        let root = tempfile::tempdir().unwrap();
        write_folder(root.path(), 2, 2);
        let path = root.path().join("list.csv");
        fs::write(&path, text).unwrap();
        let opened = List::open(&path);
        (root, opened)
    }

    #[test]
    fn samples_come_in_the_order_of_the_list_with_their_labels() {
        let (_root, list) =
            list("label, note, path\nzebra,x,class1/0001.jpg\nant,y, class0/0000.jpg\nzebra,,class1/0001.jpg\n");
        let list = list.unwrap();
        assert_eq!(list.classes(), ["ant", "zebra"]);
        let samples: Vec<_> = (0..list.len()).map(|index| (list.name(index), list.label(index))).collect();
        let again = ("class1/0001.jpg".to_string(), 1);
        assert_eq!(samples, [again.clone(), ("class0/0000.jpg".to_string(), 0), again]);
        let mut buf = Vec::new();
        let ddlp_pixels::Source::Encoded(bytes) = list.sample(1, &mut buf).unwrap() else { panic!("a file") };
        assert_eq!(bytes, image(0));
    }

    #[test]
    fn numbers_are_labels_and_labels_may_be_left_out() {
        let (_root, numbers) = list("path,label\nclass0/0000.jpg,7\nclass0/0001.jpg,3\n");
        let numbers = numbers.unwrap();
        assert_eq!((numbers.label(0), numbers.label(1), numbers.classes().len()), (7, 3, 0));
        let (_root, none) = list("path\nclass0/0000.jpg\n");
        assert_eq!(none.unwrap().label(0), 0);
    }

    #[test]
    fn a_drive_opens_a_list_whose_labels_have_another_name() {
        let (root, refused) = list("path,target\nclass0/0000.jpg,3\n");
        assert!(refused.is_err());
        let unused = OpenOptions { labels_unused: true, ..OpenOptions::default() };
        assert_eq!(List::open_with(&root.path().join("list.csv"), &unused).unwrap().len(), 1);
    }

    #[test]
    fn whole_numbers_written_as_floats_are_the_same_numbers() {
        let lines: String = (0..12).map(|label| format!("class0/0000.jpg,{label}.0\n")).collect();
        let list = list(&format!("path,label\n{lines}")).1.unwrap();
        assert!((0..12).all(|index| list.label(index) == index as u32) && list.classes().is_empty());
    }

    #[test]
    fn files_that_a_program_names_are_the_same_list() {
        let (root, list) = list("path,label\nclass1/0001.jpg,1\nclass0/0000.jpg,0\n");
        let named = List::of_files(root.path(), &["class1/0001.jpg", "class0/0000.jpg"], vec![1, 0], Vec::new());
        let (list, named) = (list.unwrap(), named.unwrap());
        assert_eq!(named.identity(), list.identity());
        assert_eq!((named.kind(), named.label(0), named.name(1)), ("files", 1, "class0/0000.jpg".to_string()));
        let missing = List::of_files(root.path(), &["none.jpg"], vec![0], Vec::new()).unwrap();
        assert!(matches!(missing.header(0), Err(ReadError::Unavailable(Unavailable::NoFile { .. }))));
    }

    #[test]
    fn every_line_is_a_sample_and_quoted_spaces_belong_to_its_name() {
        let (_root, list) = list("path,label\nclass0/0000.jpg,0\n#0.jpg,1\n\" a.jpg\", 2 \n");
        let list = list.unwrap();
        let samples: Vec<_> = (0..list.len()).map(|index| (list.name(index), list.label(index))).collect();
        let expected = [("class0/0000.jpg", 0), ("#0.jpg", 1), (" a.jpg", 2)];
        assert_eq!(samples, expected.map(|(name, label)| (name.to_string(), label)));
    }

    #[test]
    fn quotes_and_spaces_before_them_make_no_other_label() {
        let (_root, numbers) = list("path,label\na.jpg, \"10\"\nb.jpg,\"9\"\nc.jpg,8\n");
        let numbers = numbers.unwrap();
        assert_eq!([0, 1, 2].map(|index| numbers.label(index)), [10, 9, 8]);
        let (_root, names) = list("path,label\na.jpg, \"cat\"\nb.jpg,\"cat\" \nc.jpg, cat\n");
        assert_eq!(names.unwrap().classes(), ["cat"]);
    }

    #[test]
    fn a_line_break_in_a_column_that_nobody_reads_is_right() {
        let (_root, list) = list("path,note,label\na.jpg,\"two\nlines\",1\nb.jpg,,2\n");
        let list = list.unwrap();
        assert_eq!((list.len(), list.label(0), list.label(1)), (2, 1, 2));
    }

    #[test]
    fn order_labels_and_sizes_belong_to_the_identity() {
        let of = |text| list(text).1.unwrap().identity();
        let first = of("path,label\nclass0/0000.jpg,1\nclass0/0001.jpg,0\n");
        assert_eq!(first, of("label,path\n1,class0/0000.jpg\n0,class0/0001.jpg\n"));
        assert_ne!(first, of("path,label\nclass0/0000.jpg,0\nclass0/0001.jpg,1\n"));
        assert_ne!(first, of("path,label\nclass0/0001.jpg,0\nclass0/0000.jpg,1\n"));
        assert_ne!(first, of("path,label\nclass0/0000.jpg,1\nclass1/0001.jpg,0\n"));
    }

    #[test]
    fn a_missing_file_is_unavailable_and_a_changed_one_too() {
        let (root, list) = list("path\nclass0/0000.jpg\nclass0/9.jpg\n");
        let list = list.unwrap();
        let missing = list.header(1).unwrap_err();
        assert!(matches!(missing, ReadError::Unavailable(Unavailable::NoFile { .. })), "{missing}");
        fs::write(root.path().join("class0/0000.jpg"), "another").unwrap();
        let changed = list.sample(0, &mut Vec::new()).unwrap_err();
        assert!(matches!(changed, ReadError::Unavailable(Unavailable::Changed { .. })), "{changed}");
    }

    #[test]
    fn a_list_that_makes_no_sense_says_where_and_why() {
        for (text, part) in [
            ("file,label\nx.jpg,1\n", "line 1: no column is called path"),
            ("path,target\nx.jpg,1\n", "line 1: no column is called label (the columns are path, target): rename"),
            ("path,label\n", "no line names a file"),
            ("path,label\nx.jpg,1\n,2\n", "line 3: the path is empty"),
            ("path,label\nx.jpg,\n", "line 2: the label is empty"),
            ("path,label\nx.jpg,9999999\n", "line 2: the label 9999999 is a number, but not a class index"),
            ("path,label\nx.jpg,12345678901234567890\n", "line 2: the label 12345678901234567890 is a number"),
            ("path,label\nx.jpg,3\ny.jpg,-1\n", "line 3: the label -1 is a number, but not a class index"),
            ("path,label\nx.jpg,1.5\n", "line 2: the label 1.5 is a number, but not a class index"),
            ("path,label\r\nx.jpg,1\r\ny.jpg,N/A\r\n", "line 3: the label N/A is a name, but that of line 2 is"),
            ("path,label\nx.jpg,cat\n\ny.jpg,2\n", "line 4: the label 2 is a number, but that of line 2 is"),
            ("path,label,label\nx.jpg,1,2\n", "line 1: two columns are called label"),
            ("path,label,path\nx.jpg,1,y.jpg\n", "line 1: two columns are called path"),
            ("path,label\nx.jpg\n", "line 2: cells in the line: 1"),
            ("path,label\n1.jpg,\"dog\n2.jpg,cat\n3.jpg,dog\n", "line 2: a quote begins a cell here and is never"),
            ("path,label,size\n1.jpg,1,\"5 inch\n2.jpg,0,\"6 inch\n", "line 3: text follows the quote"),
            ("path,label\n1.jpg,\"dog\n2.jpg,cat\n3.jpg,\"\n", "line 2: the label goes on in the next line"),
            ("path,label\n\"1.jpg\",0\n\"2.jpg\n3.jpg\",1\n", "line 3: the path goes on in the next line"),
            ("path,Label\nx.jpg,1\n", "line 1: a column is called Label: write label if it is that one"),
            ("Path,label\nx.jpg,1\n", "line 1: a column is called Path: write path"),
        ] {
            let error = list(text).1.map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
