//! Packs that lie neither in files nor in a drive: [`open`] gives the blocks of a pack in an object store or on a web
//! server (`ranges`), or in a key-value server (`values`), and [`push()`] puts a pack there. [`open_table`] opens a
//! table in a database that others made.
//!
//! - `server_path`: requests that are made again until nothing has been answered for a minute. [`PathClock`]: how long
//!   reads over a network wait.
//! - `cache`: bytes that came over a network, on a disk of this machine. [`CachedBlocks`]: blocks with a cache in front
//!   of them.
//!
//! # To add a store
//!
//! - A store that serves ranges of a file: its schemes and kind in `ranges/address.rs`.
//! - A server that holds a value for each sample: an implementation of `ValueServer` (`values/server.rs`), and its line
//!   in `values.rs` (reading) and `values/push.rs` (writing).
//!
//! Then name its schemes in the loader's option `dataset`. `ranges.rs`, `store_faults.rs`, `values.rs`,
//! `redis_cluster.rs`, `redis_sentinels.rs`, `cassandra.rs` and `caching.rs` in `tests/tests/suite` run real servers.
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

mod cache;
mod cached;
mod clock;
mod push;
mod ranges;
mod server_path;
mod values;

pub use cache::CacheOptions;
pub use cached::{CacheError, CachedBlocks};
pub use clock::PathClock;
pub use push::{PushError, PushOptions, PushPart, PushProgress, PushSummary, Share, push};

use ddlp_dataset::pack::{Blocks, FormatError};
use ddlp_dataset::{Dataset, OpenOptions};
use ranges::RangeBlocks;
use values::NotOpened;

/// Why the pack at a URL cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The object or server cannot be read. The reason says what to do.
    #[error("{url} cannot be opened: {reason}")]
    Unread {
        /// The URL, without secrets.
        url: String,
        /// Why.
        reason: String,
    },
    /// What a server has is not a pack.
    #[error("the dataset cannot be opened")]
    Pack(#[source] FormatError),
    /// The cache's folder cannot be used. The text says what to do.
    #[error("{0}")]
    Cache(String),
}

/// Returns whether a dataset's place is the URL of a pack: in a store or on a web server (`s3://`, `gs://`, `az://`,
/// `https://`, `http://`), in Redis or Valkey (`redis://`, `rediss://`, `redis+sentinel://`, `rediss+sentinel://`), or
/// in Cassandra or ScyllaDB (`cql://`, `cqls://`).
pub fn is_url(place: &str) -> bool {
    ranges::is_url(place) || values::is_url(place)
}

/// Returns whether a dataset's place is the URL of a database with tables: Cassandra or ScyllaDB.
pub fn may_have_tables(place: &str) -> bool {
    values::may_have_tables(place)
}

/// Opens the pack at a URL as blocks, with a cache in front of them if one is asked for.
///
/// # Errors
///
/// [`StoreError`] says what to do.
pub fn open(url: &str, cache: Option<&CacheOptions>) -> Result<Box<dyn Blocks>, StoreError> {
    let refused = |reason| StoreError::Unread { url: shown(url), reason };
    let no_cache = |error| match error {
        CacheError::Unread(error) => refused(error.to_string()),
        CacheError::Folder(what) => StoreError::Cache(what),
    };
    if values::is_url(url) {
        return match values::open(url, cache) {
            Ok((blocks, None)) => Ok(blocks),
            Ok((blocks, Some(cache))) => Ok(Box::new(CachedBlocks::of(blocks, cache))),
            Err(NotOpened::Server(reason)) => Err(refused(reason)),
            Err(NotOpened::Format(error)) => Err(StoreError::Pack(error)),
            Err(NotOpened::Cache(error)) => Err(no_cache(error)),
        };
    }
    let blocks = Box::new(RangeBlocks::open(url).map_err(refused)?);
    match cache {
        Some(options) => Ok(Box::new(CachedBlocks::new(blocks, options).map_err(no_cache)?)),
        None => Ok(blocks),
    }
}

/// Opens a table in a database that others made. What is read goes through a cache, if one is asked for.
///
/// # Errors
///
/// [`StoreError`] says what to do.
pub fn open_table(
    url: &str,
    options: &OpenOptions,
    cache: Option<&CacheOptions>,
) -> Result<Box<dyn Dataset>, StoreError> {
    match values::open_table(url, options, cache) {
        Ok(table) => Ok(Box::new(table)),
        Err(NotOpened::Server(reason)) => Err(StoreError::Unread { url: shown(url), reason }),
        Err(NotOpened::Format(error)) => Err(StoreError::Pack(error)),
        Err(NotOpened::Cache(error)) => Err(StoreError::Cache(error.to_string())),
    }
}

/// Returns a URL as messages show it: without a password, and without what follows a question mark.
fn shown(url: &str) -> String {
    let url = masked(url).unwrap_or_else(|| url.to_owned());
    url.split_once('?').map_or(url.clone(), |(place, _)| format!("{place}?…"))
}

/// Returns a URL without its password; `None` if it has none.
fn masked(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let before = |end: char| rest.split_once(end).map_or(rest, |(before, _)| before);
    // A password may have a question mark; what follows that of a URL for a web server may have an @.
    let with_login = match before('/') {
        _ if values::is_url(url) => rest,
        server if server.contains('@') => server,
        _ => before('?'),
    };
    let (login, place) = rest.split_at(with_login.rfind('@')?);
    let (user, _) = login.split_once(':')?;
    Some(format!("{scheme}://{user}:…{place}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_show_urls_without_secrets() {
        for (url, as_shown) in [
            ("redis://me:word@host:1/0/a", "redis://me:…@host:1/0/a"),
            ("redis://:wo@rd@host/0/a", "redis://:…@host/0/a"),
            ("redis://me@host/0/a", "redis://me@host/0/a"),
            ("rediss+sentinel://me:word@a:1,b/s/0/a", "rediss+sentinel://me:…@a:1,b/s/0/a"),
            ("cql://me:pa?ss@h/k/n", "cql://me:…@h/k/n"),
            ("cql://me:p/a?ss@h/k/n?x", "cql://me:…@h/k/n?…"),
            ("https://me:pa?ss@host/x.ddlp", "https://me:…@host/x.ddlp"),
            ("https://host:80/x.ddlp?token=a@b", "https://host:80/x.ddlp?…"),
            ("https://host/x.ddlp?X-Amz-Signature=abc", "https://host/x.ddlp?…"),
            ("s3://bucket/a:b", "s3://bucket/a:b"),
        ] {
            assert_eq!(shown(url), as_shown);
        }
    }
}
