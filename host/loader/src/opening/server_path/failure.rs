//! Why a request to a server failed.

use std::fmt;
use std::time::Duration;

/// Why a request failed.
#[derive(Debug)]
pub(in super::super) struct Failure {
    /// What went wrong.
    pub what: String,
    /// Whether the same request may succeed soon.
    pub may_pass: bool,
    /// Whether the server cannot keep up with the requests.
    pub pushes_back: bool,
    /// The pause that the server asks for.
    pub pause: Option<Duration>,
    /// Whether the connection is of no use any more.
    pub is_lost: bool,
}

impl Failure {
    /// Returns a failure that may pass.
    pub fn passing(what: String) -> Self {
        Self { what, may_pass: true, pushes_back: false, pause: None, is_lost: false }
    }

    /// Returns a failure that will not pass.
    pub fn lasting(what: String) -> Self {
        Self { may_pass: false, is_lost: true, ..Self::passing(what) }
    }

    /// No answer came within a time.
    pub fn slow(limit: Duration) -> Self {
        let what = format!("no answer within {} s", limit.as_secs());
        Self { pushes_back: true, is_lost: true, ..Self::passing(what) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}
