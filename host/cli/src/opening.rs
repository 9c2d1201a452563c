//! Opens the dataset of a command, with the kind and the classes that its options name.

use crate::run::plain;
use anyhow::Context;
use clap::Args;
use ddlp_dataset::{Classed, Dataset, Kind, OpenOptions, TableOptions};
use ddlp_host::{Host, open_dataset_with};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Options of commands that open a dataset themselves.
#[derive(Args, Clone, Debug, Default)]
pub struct OpeningArgs {
    /// Kind of the dataset, for a folder that could be datasets of two kinds, such as one of tar shards and images:
    /// folder, list, tar, cifar, pack or mix [default: as the path and its contents say]
    #[arg(long, value_name = "KIND")]
    kind: Option<Kind>,
    /// File with the names of all classes, one a line, that number the classes of the dataset: so a class has the same
    /// label in every dataset, also in one that lacks some of the classes. A class that is not in FILE is an error
    /// [default: the dataset numbers its own]
    #[arg(long, value_name = "FILE")]
    pub classes: Option<PathBuf>,
    /// Column of the images in a table of Cassandra or ScyllaDB that others made (cql://HOST/KEYSPACE/TABLE) [default:
    /// none, the dataset is no such table]
    #[arg(long, value_name = "COLUMN")]
    data_column: Option<String>,
    /// Column of the labels of such a table: whole numbers, or names of classes [default: none, if the table has no
    /// further columns]
    #[arg(long, value_name = "COLUMN")]
    label_column: Option<String>,
    /// Table of the labels, in the same keyspace and with the same key [default: the table of the images]
    #[arg(long, value_name = "TABLE")]
    metadata_table: Option<String>,
}

impl OpeningArgs {
    /// Opens the dataset at a path or URL.
    pub fn open(&self, place: &Path) -> anyhow::Result<Arc<dyn Dataset>> {
        self.open_by(|options| open_dataset_with(place, &Host::system(), options, None).map_err(plain))
    }

    /// Opens a dataset by a function that gets the options for it.
    pub fn open_by(
        &self,
        open: impl FnOnce(&OpenOptions) -> anyhow::Result<Arc<dyn Dataset>>,
    ) -> anyhow::Result<Arc<dyn Dataset>> {
        let classes = self.classes.as_deref().map(ddlp_dataset::read_class_list).transpose()?;
        let table = TableOptions {
            data_column: self.data_column.clone(),
            label_column: self.label_column.clone(),
            metadata_table: self.metadata_table.clone(),
        };
        let classes = classes.unwrap_or_default();
        let options = OpenOptions { kind: self.kind, classes, table, ..OpenOptions::default() };
        let dataset = open(&options)?;
        let Some(file) = &self.classes else { return Ok(dataset) };
        let classed = Classed::new(dataset, &options.classes);
        Ok(Arc::new(classed.with_context(|| format!("the dataset does not fit --classes {}", file.display()))?))
    }
}
