//! How a path is opened as a dataset.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Kind of a source of files, by the word that [`Dataset::kind`](crate::Dataset::kind) has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// An image folder.
    Folder,
    /// A list of files.
    List,
    /// Tar shards.
    Tar,
    /// CIFAR's binary files.
    Cifar,
    /// A pack.
    Pack,
    /// A file that describes a mix.
    Mix,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 6] = [Self::Folder, Self::List, Self::Tar, Self::Cifar, Self::Pack, Self::Mix];

    /// Returns the word for the kind.
    pub fn name(self) -> &'static str {
        match self {
            Self::Folder => "folder",
            Self::List => "list",
            Self::Tar => "tar",
            Self::Cifar => "cifar",
            Self::Pack => "pack",
            Self::Mix => "mix",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|kind| kind.name() == word);
        known.ok_or_else(|| format!("{word} is not a kind of dataset: {}", Self::ALL.map(Self::name).join(", ")))
    }
}

/// Options of [`open_with`](crate::open_with).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OpenOptions {
    /// Kind of the dataset. Default: as the path and its contents say.
    pub kind: Option<Kind>,
    /// Names of all classes, for a source whose labels are texts: if each text is one of these names, the texts are
    /// names, even those that are numbers. [`Classed`](crate::Classed) then numbers the classes. Default: none.
    pub classes: Vec<String>,
    /// Whether nobody uses the labels, as in a drive. A source then opens even if its labels make no sense.
    pub labels_unused: bool,
    /// Where a table in a database has images and labels. Default: the place is not such a table.
    pub table: TableOptions,
}

/// Where a table in a database, which others made, has images and labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableOptions {
    /// Column of the images.
    pub data_column: Option<String>,
    /// Column of the labels.
    pub label_column: Option<String>,
    /// Table of the labels, in the same keyspace. Default: the table of the images.
    pub metadata_table: Option<String>,
}

impl TableOptions {
    /// Returns whether any of the options is given.
    pub fn is_given(&self) -> bool {
        *self != Self::default()
    }
}
