//! Which columns have images, keys and labels, and the statements that ask for them.

use super::super::cluster::Cluster;
use super::key::{self, KeyType};
use super::schema::{Column, columns, in_words};
use crate::server_path::Failure;
use crate::values::cassandra::check_keyspace;
use ddlp_dataset::{OpenOptions, TableOptions};

/// What of a table is asked for.
#[derive(Debug)]
pub struct Layout {
    /// Types of the columns of the primary key.
    pub key: Vec<KeyType>,
    /// Number of the first columns of the key that make up the partition key.
    partition: usize,
    /// Finds an image and its time of writing by a key.
    pub select_image: String,
    /// Finds all rows, in one table or in two.
    pub lists: Vec<ListStatement>,
    /// Type of the labels, if there are any.
    pub label: Option<LabelType>,
}

/// A statement that finds the rows of a range of tokens. Its rows begin with the cells of the key. The label follows,
/// and then the time of writing.
#[derive(Debug)]
pub struct ListStatement {
    pub statement: String,
    pub has_label: bool,
    pub has_version: bool,
}

/// Type of labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelType {
    Number,
    Text,
}

impl LabelType {
    fn of(name: &str) -> Option<Self> {
        match KeyType::of(name)? {
            KeyType::Number(_) => Some(Self::Number),
            KeyType::Text => Some(Self::Text),
            KeyType::Uuid | KeyType::Blob => None,
        }
    }

    /// Returns a label as text.
    pub fn text(self, cell: &[u8]) -> Option<String> {
        match self {
            Self::Number => (1..=8).contains(&cell.len()).then(|| key::number(cell).to_string()),
            Self::Text => Some(std::str::from_utf8(cell).ok()?.to_owned()),
        }
    }
}

/// Returns a name as CQL has names that may have any letter.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn list(names: impl Iterator<Item = String>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// A table with its columns.
struct Described {
    name: String,
    columns: Vec<Column>,
}

impl Described {
    async fn find(cluster: &Cluster, name: &str) -> Result<Self, Failure> {
        let columns = columns(cluster, name).await?;
        if columns.is_empty() {
            let keyspace = &cluster.address.keyspace;
            return Err(Failure::lasting(format!("the keyspace {keyspace} has no table {name}: check its name")));
        }
        Ok(Self { name: name.to_owned(), columns })
    }

    /// Returns the column that an option names.
    fn column(&self, option: &str, name: &str) -> Result<&Column, String> {
        let found = self.columns.iter().find(|column| column.name == name);
        found.ok_or_else(|| {
            let Self { name: table, columns } = self;
            format!("`{option}` is {name}, but the table {table} has the columns {}", in_words(columns))
        })
    }

    /// Returns the statement that finds all rows of a range of tokens, with these expressions of each.
    fn list(&self, keyspace: &str, selected: &str) -> String {
        let partition = self.columns.iter().filter(|column| column.is_of_partition());
        let token = format!("token({})", list(partition.map(|column| quoted(&column.name))));
        let table = quoted(&self.name);
        format!("SELECT {selected} FROM {}.{table} WHERE {token} > ? AND {token} <= ?", quoted(keyspace))
    }
}

impl Layout {
    /// Finds the columns in the cluster. Asks once.
    pub async fn find(cluster: &Cluster, options: &OpenOptions) -> Result<Self, Failure> {
        check_keyspace(cluster).await?;
        let images = Described::find(cluster, &cluster.address.name).await?;
        let metadata = match &options.table.metadata_table {
            Some(name) if !crate::values::cassandra::address::is_plain(name) => {
                let what = format!("`metadata_table` is {name}, but names of tables have letters, digits and _ alone");
                return Err(Failure::lasting(what));
            }
            Some(name) => Some(Described::find(cluster, name).await?),
            None => None,
        };
        Self::of(&cluster.address.keyspace, &images, metadata.as_ref(), options).map_err(Failure::lasting)
    }

    fn of(
        keyspace: &str,
        images: &Described,
        metadata: Option<&Described>,
        options: &OpenOptions,
    ) -> Result<Self, String> {
        let TableOptions { data_column, label_column, .. } = &options.table;
        let Some(data) = data_column else {
            let (name, columns) = (&images.name, in_words(&images.columns));
            return Err(format!(
                "`data_column` has to name the column of the images; {name} has the columns {columns}"
            ));
        };
        let data = images.column("data_column", data)?;
        if data.kind != "blob" || data.is_of_key() {
            let (table, Column { name, kind, .. }) = (&images.name, data);
            return Err(format!(
                "the column {name} of {table} has the type {kind}, but images are blobs without a key"
            ));
        }
        let of_key: Vec<&Column> = images.columns.iter().filter(|column| column.is_of_key()).collect();
        let mut key = Vec::new();
        for column in &of_key {
            let Column { name, kind, .. } = column;
            key.push(KeyType::of(kind).ok_or_else(|| {
                let table = &images.name;
                format!(
                    "the key of {table} has the column {name} of the type {kind}, but uuid, text, whole numbers and \
                         blobs alone can be used"
                )
            })?);
            let Some(metadata) = metadata else { continue };
            if !metadata.columns.iter().any(|other| other.name == *name && other.kind == *kind) {
                let (table, columns) = (&images.name, in_words(&metadata.columns));
                return Err(format!(
                    "the table {} needs the column {name} ({kind}), as the key of {table} has it, but has {columns}",
                    metadata.name
                ));
            }
        }
        let labelled = metadata.unwrap_or(images);
        let label = match label_column {
            Some(name) => Some(labelled.column("label_column", name)?),
            None => None,
        };
        let others: Vec<&Column> =
            labelled.columns.iter().filter(|column| !column.is_of_key() && *column != data).collect();
        if label.is_none() && !others.is_empty() && !options.labels_unused {
            let columns = in_words(&labelled.columns);
            return Err(format!("name the column of the labels by `label_column`: {} has {columns}", labelled.name));
        }
        let label_type = |Column { name, kind, .. }: &Column| {
            LabelType::of(kind).ok_or_else(|| {
                let table = &labelled.name;
                format!("the column {name} of {table} has the type {kind}, but labels are whole numbers or texts")
            })
        };
        let keys = list(of_key.iter().map(|column| quoted(&column.name)));
        let version = format!("WRITETIME({})", quoted(&data.name));
        let with_label = label.map_or(keys.clone(), |column| format!("{keys}, {}", quoted(&column.name)));
        let (has_label, all) = (label.is_some(), format!("{with_label}, {version}"));
        let lists = match metadata {
            None => vec![ListStatement { statement: images.list(keyspace, &all), has_label, has_version: true }],
            Some(metadata) => {
                let versions = images.list(keyspace, &format!("{keys}, {version}"));
                vec![
                    ListStatement { statement: metadata.list(keyspace, &with_label), has_label, has_version: false },
                    ListStatement { statement: versions, has_label: false, has_version: true },
                ]
            }
        };
        let wanted: Vec<String> = of_key.iter().map(|column| format!("{} = ?", quoted(&column.name))).collect();
        let table = format!("{}.{}", quoted(keyspace), quoted(&images.name));
        let (image, wanted) = (quoted(&data.name), wanted.join(" AND "));
        Ok(Self {
            key,
            partition: of_key.iter().filter(|column| column.is_of_partition()).count(),
            select_image: format!("SELECT {image}, {version} FROM {table} WHERE {wanted}"),
            lists,
            label: label.map(label_type).transpose()?,
        })
    }

    /// Returns a key as text.
    pub fn name(&self, key: &[u8]) -> String {
        key::text(&self.key, key)
    }

    /// Returns the partition key of a row, as the partitioner takes it.
    pub fn partition_key(&self, cells: &[&[u8]]) -> Vec<u8> {
        match &cells[..self.partition] {
            [cell] => cell.to_vec(),
            cells => {
                cells.iter().flat_map(|cell| [&(cell.len() as u16).to_be_bytes()[..], *cell, &[0]].concat()).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests;
