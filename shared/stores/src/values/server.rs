//! What a key-value server has to do for a dataset.

use super::super::server_path::ServerPath;
use super::layout::{Key, Value};
use std::fmt::Display;
use std::io;

/// What of a value is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum There {
    Nothing,
    /// Not all of the rows in which it is stored.
    Part,
    All,
}

/// A server, or several that share the values. Requests that fail in a way that may pass are made again.
pub trait ValueServer: Sized + Send + Sync + 'static {
    /// What a dataset's name is unique in, for messages.
    const SPACE: &str;
    /// Why a manifest that was written is not the one that is there.
    const WHY_NOT_KEPT: &str;
    /// Most content that a value can have.
    const CONTENT_BYTES_MAX: u64;

    /// Prepares to ask the server of a URL, without connecting yet. The error says what to do.
    fn new(url: &str) -> Result<Self, String>;

    /// Returns the path of all requests.
    fn path(&self) -> &ServerPath;

    /// Returns the URL.
    fn url(&self) -> &(dyn Display + Sync);

    /// Returns the dataset's name.
    fn name(&self) -> &str;

    /// Returns how messages call a value.
    fn describe(&self, key: Key) -> String;

    /// Says that a value is missing, and why that may be.
    fn missing(&self, key: Key) -> String;

    /// Returns whether the server has a place for the dataset's values, with few attempts. The error says what to do.
    fn has_place(&self) -> Result<bool, String> {
        Ok(true)
    }

    /// Asks for a value that may be the first that is asked for, with few attempts. The error says what to do.
    fn first(&self, key: Key) -> Result<Option<Vec<u8>>, String>;

    /// Asks for the values of [`Key::Manifest`] and [`Key::Pushing`], with few attempts. The error says what to do.
    ///
    /// Asks for the second one first: a push that ends writes the first, and then removes the second.
    fn look(&self) -> Result<[Option<Vec<u8>>; 2], String> {
        if !self.has_place()? {
            return Ok([None, None]);
        }
        let pushing = self.first(Key::Pushing)?;
        Ok([self.first(Key::Manifest)?, pushing])
    }

    /// Returns how often other servers have taken the place of servers that were asked: they may lack the last values.
    fn replaced(&self) -> u64 {
        0
    }

    /// Says what else lies under the name, if no dataset does, and how to open it. The error says what to do.
    fn look_beside(&self) -> Result<Option<String>, String> {
        Ok(None)
    }

    /// Returns a value, with about `content_bytes` after its head.
    fn get(&self, key: Key, content_bytes: usize) -> impl Future<Output = io::Result<Option<Vec<u8>>>> + Send;

    /// Returns what of a value is there, in whatever length. `pieces` says where in the content of a value of some
    /// length its pieces begin.
    fn there(
        &self,
        key: Key,
        pieces: impl Fn(u64) -> Vec<u64> + Send,
    ) -> impl Future<Output = io::Result<There>> + Send;

    /// Fills memory with a value's content from places on, which ascend. Returns whether the value has all of it.
    fn fill(&self, key: Key, parts: Vec<(u64, &mut [u8])>) -> impl Future<Output = io::Result<bool>> + Send;

    /// Makes the server ready for values. Returns its rule for evicting values, if it evicts some.
    fn prepare(&self) -> impl Future<Output = io::Result<Option<String>>> + Send;

    /// Returns whether a value of this head and length is there.
    fn has(&self, value: &Value) -> impl Future<Output = io::Result<bool>> + Send;

    /// Stores a value.
    fn set(&self, value: &Value) -> impl Future<Output = io::Result<()>> + Send;

    /// Removes a value.
    fn remove(&self, key: Key) -> impl Future<Output = io::Result<()>> + Send;
}
