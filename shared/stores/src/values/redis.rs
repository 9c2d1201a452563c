//! Redis and Valkey.
//!
//! | key | value |
//! |---|---|
//! | `NAME:index` | the manifest |
//! | `NAME:pushing` | the manifest of a push that has not ended |
//! | `NAME:VERSION:index:N` | chunk `N` of the index |
//! | `NAME:VERSION:N` | sample `N` |
//! | `NAME:VERSION:share:N` | the mark of share `N` of a push that has not ended |
//!
//! `address`: URLs and passwords. `nodes`: one server, a cluster or a master with replicas, and which node is asked.
//! `slots`: which node has a key. `failure`: which failures may pass.

mod address;
mod failure;
mod nodes;
mod slots;

use super::super::server_path::{Failure, ServerPath};
use super::layout::{Content, HEAD_BYTES, Key, Value};
use super::server::{There, ValueServer};
use address::ServerAddress;
pub use address::is_url;
use failure::judge;
use futures_util::future::try_join_all;
use nodes::{Nodes, Request};
use redis::{Cmd, FromRedisValue, cmd};
use std::fmt::Display;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::time::timeout;

/// A server or a cluster with datasets.
pub struct Redis {
    path: ServerPath,
    nodes: Nodes,
}

impl Redis {
    /// Sends commands that concern one key, and makes the request again after failures that may pass. The answer, or
    /// what the commands send, has about `bytes` bytes.
    async fn ask<T: FromRedisValue>(&self, bytes: usize, key: &str, commands: &[Cmd]) -> io::Result<T> {
        let request = Request { key, commands, bytes };
        let mut attempts = self.path.request(self.nodes.address(), bytes);
        for attempt in 0.. {
            let left = attempts.begin()?;
            let answer = timeout(left, self.nodes.attempt(attempts.number(), attempt, &request)).await;
            let outcome = answer.unwrap_or_else(|_| Err(Failure::slow(left))).and_then(|answer| self.read(answer));
            if let Some(outcome) = attempts.end(outcome).await {
                return outcome;
            }
        }
        unreachable!("attempts end")
    }

    fn read<T: FromRedisValue>(&self, answer: redis::Value) -> Result<T, Failure> {
        T::from_redis_value(answer).map_err(|error| judge(&error.into(), self.nodes.address()))
    }

    /// Fills memory with a value's content from a place on.
    async fn fill_part(&self, key: &str, start: u64, memory: &mut [u8]) -> io::Result<bool> {
        let first = HEAD_BYTES + start;
        let mut range = [cmd("GETRANGE")];
        range[0].arg(key).arg(first).arg(first + memory.len() as u64 - 1);
        let answer: redis::Value = self.ask(memory.len(), key, &range).await?;
        Ok(match answer {
            redis::Value::BulkString(bytes) if bytes.len() == memory.len() => {
                memory.copy_from_slice(&bytes);
                true
            }
            _ => false,
        })
    }
}

/// Returns a command with a key.
fn of_key(name: &str, key: &str) -> Cmd {
    let mut command = cmd(name);
    command.arg(key);
    command
}

impl ValueServer for Redis {
    const SPACE: &str = "database";
    const WHY_NOT_KEPT: &str = "another pack was pushed to this name meanwhile";
    /// Longest value that servers take, by default (`proto-max-bulk-len`).
    const CONTENT_BYTES_MAX: u64 = (512 << 20) - HEAD_BYTES;

    fn new(url: &str) -> Result<Self, String> {
        let nodes = Nodes::new(ServerAddress::parse(url)?)?;
        Ok(Self { path: ServerPath::start("ddlp-values")?, nodes })
    }

    fn path(&self) -> &ServerPath {
        &self.path
    }

    fn url(&self) -> &(dyn Display + Sync) {
        self.nodes.address()
    }

    fn name(&self) -> &str {
        &self.nodes.address().name
    }

    fn describe(&self, key: Key) -> String {
        let name = &self.nodes.address().name;
        match key {
            Key::Manifest => format!("{name}:index"),
            Key::Pushing => format!("{name}:pushing"),
            Key::Content(version, Content::Sample(number)) => format!("{name}:{version}:{number}"),
            Key::Content(version, Content::Index(number)) => format!("{name}:{version}:index:{number}"),
            Key::Content(version, Content::Share(number)) => format!("{name}:{version}:share:{number}"),
        }
    }

    fn missing(&self, key: Key) -> String {
        format!(
            "the server no longer has the value {}: it was removed, or evicted when memory was full (see \
             maxmemory-policy)",
            self.describe(key)
        )
    }

    fn replaced(&self) -> u64 {
        self.nodes.replaced()
    }

    fn first(&self, key: Key) -> Result<Option<Vec<u8>>, String> {
        let key = self.describe(key);
        let commands = [of_key("GET", &key)];
        let request = Request { key: &key, commands: &commands, bytes: 0 };
        let number = AtomicUsize::new(0);
        self.path.first(|| async {
            let answer = self.nodes.attempt(0, number.fetch_add(1, Ordering::Relaxed), &request).await;
            answer.and_then(|answer| self.read(answer))
        })
    }

    async fn get(&self, key: Key, content_bytes: usize) -> io::Result<Option<Vec<u8>>> {
        let key = self.describe(key);
        self.ask(content_bytes, &key, &[of_key("GET", &key)]).await
    }

    async fn there(&self, key: Key, _pieces: impl Fn(u64) -> Vec<u64> + Send) -> io::Result<There> {
        let key = self.describe(key);
        let exists = self.ask(0, &key, &[of_key("EXISTS", &key)]).await?;
        Ok(if exists { There::All } else { There::Nothing })
    }

    async fn fill(&self, key: Key, parts: Vec<(u64, &mut [u8])>) -> io::Result<bool> {
        let key = self.describe(key);
        let filled = parts.into_iter().map(|(start, memory)| self.fill_part(&key, start, memory));
        Ok(try_join_all(filled).await?.into_iter().all(|is_filled| is_filled))
    }

    async fn prepare(&self) -> io::Result<Option<String>> {
        // A user without the right to ask gets no warning.
        let request = Request { key: &self.describe(Key::Manifest), commands: &[of_key("INFO", "memory")], bytes: 0 };
        let memory = self.nodes.attempt(0, 0, &request).await.ok();
        Ok(memory.and_then(|memory| String::from_redis_value(memory).ok()).and_then(|memory| eviction(&memory)))
    }

    async fn has(&self, value: &Value) -> io::Result<bool> {
        let key = self.describe(value.key);
        let mut look = [of_key("GETRANGE", &key), of_key("STRLEN", &key)];
        look[0].arg(0).arg(HEAD_BYTES - 1);
        let (head, length): (Vec<u8>, usize) = self.ask(0, &key, &look).await?;
        Ok(length == value.bytes.len() && head == value.parts().0)
    }

    async fn set(&self, value: &Value) -> io::Result<()> {
        let key = self.describe(value.key);
        let mut set = [of_key("SET", &key)];
        set[0].arg(&value.bytes);
        self.ask(value.bytes.len(), &key, &set).await
    }

    async fn remove(&self, key: Key) -> io::Result<()> {
        let key = self.describe(key);
        self.ask(0, &key, &[of_key("UNLINK", &key)]).await
    }
}

/// Returns the rule by which a server evicts values, from what it says about its memory.
fn eviction(memory: &str) -> Option<String> {
    let value = |name| memory.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'));
    let has_limit = value("maxmemory").is_some_and(|bytes| bytes != "0");
    value("maxmemory_policy").filter(|policy| has_limit && *policy != "noeviction").map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::eviction;

    #[test]
    fn only_servers_with_a_limit_evict() {
        let said = |bytes, policy| format!("# Memory\r\nmaxmemory:{bytes}\r\nmaxmemory_policy:{policy}\r\n");
        assert_eq!(eviction(&said(1000, "allkeys-lru")).as_deref(), Some("allkeys-lru"));
        assert_eq!(eviction(&said(0, "allkeys-lru")), None);
        assert_eq!(eviction(&said(1000, "noeviction")), None);
        assert_eq!(eviction(""), None);
    }
}
