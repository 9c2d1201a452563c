//! The columns of a table, as the cluster describes them.

use super::super::cluster::Cluster;
use super::super::frame::Answer;
use super::super::plain;
use crate::server_path::Failure;

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    /// The type, as CQL writes it.
    pub kind: String,
    /// The place in the partition key or, for other columns of the primary key, in these.
    position: i32,
    part: Part,
}

/// What a column is a part of. Ordered as the columns of a primary key are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Partition,
    Clustering,
    Row,
}

impl Part {
    /// Returns the part by the word that a cluster has for it.
    fn of(word: &str) -> Self {
        match word {
            "partition_key" => Self::Partition,
            "clustering" => Self::Clustering,
            _ => Self::Row,
        }
    }
}

impl Column {
    #[cfg(test)]
    pub fn new(name: &str, kind: &str, part: &str) -> Self {
        Self { name: name.to_owned(), kind: kind.to_owned(), position: 0, part: Part::of(part) }
    }

    pub fn is_of_partition(&self) -> bool {
        self.part == Part::Partition
    }

    pub fn is_of_key(&self) -> bool {
        self.part != Part::Row
    }
}

/// Returns the columns of a table, those of its primary key first; none if there is no table. Asks once.
pub async fn columns(cluster: &Cluster, table: &str) -> Result<Vec<Column>, Failure> {
    let keyspace = &cluster.address.keyspace;
    let statement = format!(
        "SELECT column_name, type, kind, position FROM system_schema.columns WHERE keyspace_name = '{keyspace}' AND \
         table_name = '{table}'"
    );
    let mut columns = cluster.attempt(0, 0, &plain(&statement), |answer| read(&answer)).await?;
    columns.sort_by_key(|column| (column.part, column.position));
    Ok(columns)
}

fn read(answer: &Answer<'_>) -> Option<Vec<Column>> {
    let Answer::Rows(rows) = answer else { return None };
    let column = |row: &Vec<Option<&[u8]>>| {
        let text = |at: usize| Some(std::str::from_utf8((*row.get(at)?)?).ok()?.to_owned());
        let position = super::super::int(*row.get(3)?)?;
        Some(Column { name: text(0)?, kind: text(1)?, position, part: Part::of(&text(2)?) })
    };
    rows.iter().map(column).collect()
}

/// Returns the columns for a message.
pub fn in_words(columns: &[Column]) -> String {
    let word = |column: &Column| {
        let key = if column.is_of_key() { ", key" } else { "" };
        format!("{} ({}{key})", column.name, column.kind)
    };
    columns.iter().map(word).collect::<Vec<_>>().join(", ")
}

/// Returns the columns of a table for a message; `None` if there is no table. Asks once.
pub async fn columns_in_words(cluster: &Cluster, table: &str) -> Result<Option<String>, Failure> {
    let columns = columns(cluster, table).await?;
    Ok((!columns.is_empty()).then(|| in_words(&columns)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_read_and_shown() {
        let row = |name, kind, part, position: &'static [u8; 4]| [name, kind, part, &position[..]].map(Some).to_vec();
        let rows = vec![
            row(&b"id"[..], &b"uuid"[..], &b"partition_key"[..], &[0; 4]),
            row(b"data", b"blob", b"regular", &[0xff; 4]),
        ];
        let columns = read(&Answer::Rows(rows)).unwrap();
        assert!(columns[0].is_of_partition() && !columns[1].is_of_key());
        assert_eq!(in_words(&columns), "id (uuid, key), data (blob)");
        assert_eq!(read(&Answer::Rows(vec![row(b"id", b"uuid", b"regular", &[0; 4])[..3].to_vec()])), None);
    }
}
