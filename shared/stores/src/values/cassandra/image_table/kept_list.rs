//! The list of a table's rows in a cache, so that runs need not list the rows again.
//!
//! A list is bytes of a dataset of its own: length and digest of the list, and then the list. What two processes write
//! at the same time may mix, and the digest then does not fit: the rows are listed again.

use super::super::address::ClusterAddress;
use super::layout::Layout;
use crate::cache::{Cache, CacheOptions};
use ddlp_dataset::image_table::TableRow;
use std::io;

/// Bytes of length and digest.
const HEAD_BYTES: u64 = 8 + 32;
/// Bytes of the list that are kept as one piece.
const PIECE_BYTES: usize = 1 << 20;
/// Longest list that is kept.
const LIST_BYTES_MAX: u64 = 1 << 36;

/// The digest of a list.
pub type Digest = [u8; 32];

/// The place of a list in a cache.
pub struct KeptList(Cache);

impl KeptList {
    /// Opens the place of the list of a table.
    pub fn open(options: &CacheOptions, address: &ClusterAddress, layout: &Layout) -> io::Result<Self> {
        Cache::open(options, key(address, layout)).map(Self)
    }

    /// Returns the list and its digest, if it is there.
    pub fn rows(&self) -> Option<(Vec<TableRow>, Digest)> {
        let mut head = [0; HEAD_BYTES as usize];
        self.fill(0, &mut head)?;
        let (length, digest) = head.split_first_chunk()?;
        let (length, digest) = (u64::from_le_bytes(*length), Digest::try_from(digest).ok()?);
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(usize::try_from(length).ok().filter(|_| length <= LIST_BYTES_MAX)?).ok()?;
        bytes.resize(length as usize, 0);
        for (piece, number) in bytes.chunks_mut(PIECE_BYTES).zip(0..) {
            self.fill(HEAD_BYTES + number * PIECE_BYTES as u64, piece)?;
        }
        let rows = (*blake3::hash(&bytes).as_bytes() == digest).then(|| read(&bytes)).flatten();
        if rows.is_none() {
            self.forget();
        }
        Some((rows?, digest))
    }

    fn fill(&self, offset: u64, out: &mut [u8]) -> Option<()> {
        self.0.fill(offset, out).is_empty().then_some(())
    }

    /// Forgets the list: it is out of date.
    pub fn forget(&self) {
        self.0.forget(0..HEAD_BYTES + LIST_BYTES_MAX);
    }
}

/// Returns a digest of where a list comes from: the servers, the tables, and their columns with their types.
pub fn key(address: &ClusterAddress, layout: &Layout) -> Digest {
    let mut hasher = blake3::Hasher::new();
    let types = format!("{:?} {:?}", layout.key, layout.label);
    let server = [address.hosts.join(","), address.port.to_string(), layout.select_image.clone(), types];
    let lists = layout.lists.iter().map(|list| &list.statement);
    for text in ["ddlp table list 1"].into_iter().chain(server.iter().chain(lists).map(String::as_str)) {
        hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
    }
    *hasher.finalize().as_bytes()
}

/// Keeps a list, if there is a place for it, and returns its digest.
pub fn keep(place: Option<&KeptList>, rows: &[TableRow]) -> Digest {
    let bytes = written(rows);
    let digest = *blake3::hash(&bytes).as_bytes();
    if let Some(KeptList(cache)) = place {
        for (piece, number) in bytes.chunks(PIECE_BYTES).zip(0..) {
            cache.keep(HEAD_BYTES + number * PIECE_BYTES as u64, piece);
        }
        // The head says that all of it is there.
        cache.keep(0, &[&(bytes.len() as u64).to_le_bytes()[..], &digest].concat());
    }
    digest
}

fn written(rows: &[TableRow]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for TableRow { key, label, version } in rows {
        let label_bytes = label.as_ref().map_or(u32::MAX, |label| label.len() as u32);
        bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(&label_bytes.to_le_bytes());
        bytes.extend_from_slice(label.as_deref().unwrap_or_default().as_bytes());
        bytes.push(version.is_some().into());
        bytes.extend_from_slice(&version.unwrap_or(0).to_le_bytes());
    }
    bytes
}

fn read(mut bytes: &[u8]) -> Option<Vec<TableRow>> {
    let mut rows = Vec::new();
    let mut take = |length: usize| {
        let (taken, rest) = bytes.split_at_checked(length)?;
        bytes = rest;
        Some(taken)
    };
    while let Some(key_bytes) = take(4) {
        let key = take(u32::from_le_bytes(key_bytes.try_into().ok()?) as usize)?.to_vec();
        let label = match u32::from_le_bytes(take(4)?.try_into().ok()?) {
            u32::MAX => None,
            length => Some(std::str::from_utf8(take(length as usize)?).ok()?.to_owned()),
        };
        let has_version = take(1)? == [1];
        let version = i64::from_le_bytes(take(8)?.try_into().ok()?);
        rows.push(TableRow { key, label, version: has_version.then_some(version) });
    }
    Some(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_kept_until_it_is_forgotten() {
        let home = tempfile::tempdir().unwrap();
        let open = || {
            let options = CacheOptions { folder: home.path().to_owned(), limit: None };
            KeptList(Cache::open(&options, [7; 32]).unwrap())
        };
        let row = |key: &[u8], label: Option<&str>, version| TableRow {
            key: key.to_vec(),
            label: label.map(str::to_owned),
            version,
        };
        let mut rows = vec![row(b"a", Some("cat"), Some(-5)), row(b"", None, None), row(b"b", Some(""), Some(0))];
        rows.push(row(b"long", Some(&"x".repeat(3 * PIECE_BYTES)), Some(1)));
        assert_eq!(open().rows(), None);
        let digest = keep(Some(&open()), &rows);
        assert_eq!(digest, keep(None, &rows));
        assert_eq!(open().rows(), Some((rows, digest)));
        open().forget();
        assert_eq!(open().rows(), None);
    }

    #[test]
    fn a_list_that_is_cut_is_none() {
        let rows = [TableRow { key: b"key".to_vec(), label: Some("cat".to_owned()), version: Some(7) }];
        let bytes = written(&rows);
        assert_eq!(read(&bytes).as_deref(), Some(&rows[..]));
        for length in 4..bytes.len() {
            assert_eq!(read(&bytes[..length]), None, "{length} bytes");
        }
    }
}
