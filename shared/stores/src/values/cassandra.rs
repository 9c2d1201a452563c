//! Cassandra and ScyllaDB.
//!
//! `address`: URLs and passwords. `tls`: certificates. `cluster`: nodes, and which of them is asked. `ring`: which node
//! has a row. `connection`, `frame`: the protocol. `tables`: how a value lies in rows. `failure`: which failures may
//! pass. `image_table`: tables that others made.

mod address;
mod cluster;
mod connection;
mod failure;
mod frame;
mod image_table;
mod ring;
mod tables;
mod tls;

use super::super::server_path::{Failure, ServerPath};
use super::layout::{Key, Value, content_bytes};
use super::server::{There, ValueServer};
use address::ClusterAddress;
pub use address::is_url;
use cluster::{Cluster, Query};
use frame::{Answer, Consistency, Execution};
use futures_util::future::try_join_all;
pub use image_table::open as open_table;
use ring::Token;
use std::fmt::Display;
use std::io;
use std::ops::Range;
use std::time::SystemTime;
use tables::{
    ASKED_BYTES, COLUMNS, ROW_BYTES, Row, Statements, asked_together, cut, extent_of, fill, id_of, int, rows_of, there,
};

/// Rows of a value that are sent at the same time.
const ROWS_SENT: usize = 8;

/// A cluster with datasets.
pub struct Cassandra {
    cluster: Cluster,
    statements: Statements,
}

/// Returns the present time in microseconds, by which a cluster orders writes.
fn now_us() -> i64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_micros() as i64)
}

fn done(answer: Answer<'_>) -> Option<()> {
    (answer == Answer::Done).then_some(())
}

/// Returns the cells of an answer, which are texts.
fn texts(answer: Answer<'_>) -> Option<Vec<String>> {
    let Answer::Rows(rows) = answer else { return None };
    let text = |cell: &[u8]| Some(std::str::from_utf8(cell).ok()?.to_owned());
    rows.into_iter().flatten().flatten().map(text).collect()
}

/// Returns a query that is not prepared and concerns no row.
fn plain(statement: &str) -> Query<'_> {
    Query { statement, execution: None, token: None, bytes: 0 }
}

/// Fails if there is no keyspace. Asks once.
async fn check_keyspace(cluster: &Cluster) -> Result<(), Failure> {
    let keyspace = &cluster.address.keyspace;
    let keyspaces = "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name =";
    if cluster.attempt(0, 0, &plain(&format!("{keyspaces} '{keyspace}'")), texts).await?.is_empty() {
        return Err(Failure::lasting(format!(
            "the cluster has no keyspace {keyspace}: check the URL, or create it, as by CREATE KEYSPACE \
             \"{keyspace}\" WITH replication = {{'class': 'NetworkTopologyStrategy', 'replication_factor': 2}}"
        )));
    }
    Ok(())
}

impl Cassandra {
    /// Executes a statement that concerns one value.
    async fn execute<T>(
        &self,
        statement: &str,
        key: Key,
        execution: Execution<'_>,
        bytes: usize,
        take: impl FnMut(Answer<'_>) -> Option<T> + Send,
    ) -> io::Result<T> {
        let token = Some(Token::of(&id_of(key)));
        self.cluster.ask(&Query { statement, execution: Some(execution), token, bytes }, take).await
    }

    /// Changes a value's rows.
    async fn write(&self, statement: &str, key: Key, values: &[Option<&[u8]>]) -> io::Result<()> {
        let bytes = values.iter().flatten().map(|value| value.len()).sum();
        let timestamp_us = Some(now_us());
        let execution = Execution { timestamp_us, ..Execution::reading(values, Consistency::LocalQuorum) };
        self.execute(statement, key, execution, bytes, done).await
    }

    /// Reads rows that have content of a value between two places: places, heads and content. A row that one replica
    /// does not have may be at others. A manifest changes, so that one replica may have an old one.
    async fn rows(
        &self,
        key: Key,
        extent: Range<u64>,
        mut take: impl FnMut(&[Row<'_>]) -> bool + Send,
    ) -> io::Result<bool> {
        let id = id_of(key);
        let after = (extent.start as i64 - ROW_BYTES as i64).max(-1) as i32;
        let (after, before) = (after.to_be_bytes(), (extent.end as i32).to_be_bytes());
        let values = [Some(&id[..]), Some(&after), Some(&before)];
        let mut read = |answer: Answer<'_>| {
            let Answer::Rows(rows) = answer else { return None };
            Some(take(&rows.iter().map(|row| Row::of(row)).collect::<Option<Vec<_>>>()?))
        };
        let bytes = (extent.end - extent.start) as usize;
        let mut consistencies = &[Consistency::LocalOne, Consistency::LocalQuorum][..];
        if matches!(key, Key::Manifest | Key::Pushing) {
            let execution = Execution::reading(&values, Consistency::LocalQuorum);
            let token = Some(Token::of(&id));
            let query = Query { statement: &self.statements.select, execution: Some(execution), token, bytes };
            // Too few replicas may be up: then one has to do.
            for attempt in 0..2 {
                if let Ok(is_there) = self.cluster.attempt(0, attempt, &query, &mut read).await {
                    return Ok(is_there);
                }
            }
            consistencies = &consistencies[..1];
        }
        for &consistency in consistencies {
            let execution = Execution::reading(&values, consistency);
            if self.execute(&self.statements.select, key, execution, bytes, &mut read).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns where the rows of a value begin, and their heads.
    async fn heads(&self, key: Key) -> io::Result<Vec<(i32, Vec<u8>)>> {
        let values = [Some(&id_of(key)[..])];
        let execution = Execution::reading(&values, Consistency::LocalQuorum);
        let read = |answer: Answer<'_>| {
            let Answer::Rows(rows) = answer else { return None };
            rows.iter().map(|row| Some((int(*row.first()?)?, (*row.get(1)?)?.to_vec()))).collect()
        };
        self.execute(&self.statements.heads, key, execution, 0, read).await
    }

    /// Returns the columns of the dataset's table; none if there is no table. Fails if there is no keyspace. Asks once.
    async fn columns(&self) -> Result<Vec<String>, Failure> {
        check_keyspace(&self.cluster).await?;
        self.cluster.attempt(0, 0, &plain(&self.select_columns()), texts).await
    }

    /// Returns the statement that finds the columns of the dataset's table.
    fn select_columns(&self) -> String {
        let ClusterAddress { keyspace, name, .. } = &*self.cluster.address;
        let columns = "SELECT column_name FROM system_schema.columns WHERE keyspace_name =";
        format!("{columns} '{keyspace}' AND table_name = '{name}_data'")
    }
}

impl ValueServer for Cassandra {
    const SPACE: &str = "keyspace";
    /// A cluster keeps what has the later time.
    const WHY_NOT_KEPT: &str = "another pack was pushed to this name meanwhile, or the clock of this machine is behind \
                                that of a machine that has pushed here before: set the clock, and push again";
    /// A value has as much as one in Redis may have: memory is taken for all of it.
    const CONTENT_BYTES_MAX: u64 = 512 << 20;

    fn new(url: &str) -> Result<Self, String> {
        let address = ClusterAddress::parse(url)?;
        let statements = Statements::new(&address);
        Ok(Self { cluster: Cluster::new(address)?, statements })
    }

    fn path(&self) -> &ServerPath {
        &self.cluster.path
    }

    fn url(&self) -> &(dyn Display + Sync) {
        &*self.cluster.address
    }

    fn name(&self) -> &str {
        &self.cluster.address.name
    }

    fn describe(&self, key: Key) -> String {
        let ClusterAddress { keyspace, name, .. } = &*self.cluster.address;
        let id: String = id_of(key).iter().map(|byte| format!("{byte:02x}")).collect();
        let parts = [&id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]].join("-");
        format!("{parts} of {keyspace}.{name}_data")
    }

    fn missing(&self, key: Key) -> String {
        format!("the cluster no longer has the value {}: it was removed, or has expired", self.describe(key))
    }

    fn has_place(&self) -> Result<bool, String> {
        let columns = self.cluster.path.first(|| self.columns())?;
        if columns.is_empty() || COLUMNS.iter().all(|column| columns.iter().any(|found| found == column)) {
            return Ok(!columns.is_empty());
        }
        let name = &self.cluster.address.name;
        Err(format!("the table {name}_data was not made by `ddlp push`: choose another name"))
    }

    fn first(&self, key: Key) -> Result<Option<Vec<u8>>, String> {
        self.cluster.path.wait(0, self.get(key, 0)).map_err(|error| error.to_string())
    }

    fn look_beside(&self) -> Result<Option<String>, String> {
        let name = &self.cluster.address.name;
        let columns = self.cluster.path.first(|| image_table::columns_in_words(&self.cluster, name))?;
        Ok(columns.map(|columns| {
            format!(
                "the table {name} was not made by `ddlp push`, and has the columns {columns}: a run can \
                 read it if `data_column` names the column of its images, `label_column` that of its labels and, if \
                 the labels are in another table, `metadata_table` that table"
            )
        }))
    }

    async fn get(&self, key: Key, content_bytes: usize) -> io::Result<Option<Vec<u8>>> {
        let (mut head, mut content) = (None, Vec::new());
        loop {
            let begins = content.len();
            let wanted = (content_bytes - begins.min(content_bytes)).clamp(1, ASKED_BYTES as usize);
            let is_whole = self.rows(key, begins as u64..(begins + wanted) as u64, |rows| {
                content.truncate(begins);
                for row in rows {
                    if row.start == content.len() as u64 {
                        head.get_or_insert_with(|| row.head.to_vec());
                        content.extend_from_slice(row.data);
                    }
                }
                content.len() >= begins + wanted
            });
            if !is_whole.await? || content.len() >= content_bytes {
                return Ok(head.map(|head| [head, content].concat()));
            }
        }
    }

    async fn there(&self, key: Key, pieces: impl Fn(u64) -> Vec<u64> + Send) -> io::Result<There> {
        let heads = self.heads(key).await?;
        if heads.is_empty() {
            return Ok(There::Nothing);
        }
        // Without the length, the rows that are there count as all of them.
        let length = heads.iter().find_map(|(_, head)| content_bytes(head));
        Ok(length.map_or(There::All, |length| there(&cut(length as usize, &pieces(length)), &heads)))
    }

    async fn fill(&self, key: Key, parts: Vec<(u64, &mut [u8])>) -> io::Result<bool> {
        let filled = asked_together(parts).into_iter().map(|mut parts| async move {
            let extent = extent_of(&parts);
            self.rows(key, extent, |rows| parts.iter_mut().all(|(start, memory)| fill(rows, *start, memory))).await
        });
        Ok(try_join_all(filled).await?.into_iter().all(|is_filled| is_filled))
    }

    async fn prepare(&self) -> io::Result<Option<String>> {
        if self.cluster.ask(&plain(&self.select_columns()), texts).await?.is_empty() {
            // The table of the values comes last: it says that both are there.
            for statement in &self.statements.create {
                // Another node may not know yet what was created on one.
                self.cluster.agree_on_tables().await?;
                self.cluster.ask(&plain(statement), done).await?;
            }
            self.cluster.agree_on_tables().await?;
        }
        Ok(None)
    }

    async fn has(&self, value: &Value) -> io::Result<bool> {
        let wanted = rows_of(value);
        let found = self.heads(value.key).await?;
        let is_right = |(row, (start, head)): (&Range<usize>, &(i32, Vec<u8>))| {
            *start as usize == row.start && head == value.parts().0
        };
        Ok(found.len() == wanted.len() && wanted.iter().zip(&found).all(is_right))
    }

    async fn set(&self, value: &Value) -> io::Result<()> {
        let (id, (head, content)) = (id_of(value.key), value.parts());
        let label = value.sample.as_ref().map(|sample| sample.label.to_be_bytes());
        let label = label.as_ref().map(|label| &label[..]);
        if let Some(sample) = &value.sample {
            let [number, bytes] = [sample.number, content.len() as u64].map(u64::to_be_bytes);
            let [class, name] = [&sample.class, &sample.name].map(|text| Some(text.as_bytes()));
            let [form, verdict] = [sample.form, sample.verdict].map(|text| Some(text.as_bytes()));
            let values = [Some(&id[..]), Some(&number), label, class, name, form, verdict, Some(&bytes)];
            self.write(&self.statements.insert_metadata, value.key, &values).await?;
        }
        for rows in rows_of(value).chunks(ROWS_SENT) {
            let sent = rows.iter().map(|row| async {
                let start = (row.start as i32).to_be_bytes();
                let values = [Some(&id[..]), Some(&start), label, Some(head), Some(&content[row.clone()])];
                self.write(&self.statements.insert, value.key, &values).await
            });
            try_join_all(sent).await?;
        }
        Ok(())
    }

    async fn remove(&self, key: Key) -> io::Result<()> {
        let id = id_of(key);
        for statement in &self.statements.delete {
            self.write(statement, key, &[Some(&id)]).await?;
        }
        Ok(())
    }
}
