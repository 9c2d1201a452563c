//! Why a request to a server failed.

use super::PAUSES;
use ddlp_dataset::Backoff;
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
    /// Whether the server says that it will be able to answer soon: it runs, and its address is right.
    pub is_not_ready: bool,
    /// The pause that the server asks for.
    pub pause: Option<Duration>,
    /// Whether the connection is of no use any more.
    pub is_lost: bool,
}

impl Failure {
    /// Returns a failure that may pass.
    pub fn passing(what: String) -> Self {
        Self { what, may_pass: true, pushes_back: false, is_not_ready: false, pause: None, is_lost: false }
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

    /// Says which node failed.
    pub fn of(self, node: &dyn fmt::Display) -> Self {
        Self { what: format!("{node}: {self}"), ..self }
    }

    /// Returns the pause before the next attempt.
    pub fn pause_after(&self, pauses: &mut Backoff) -> Duration {
        pauses.next_delay().unwrap_or(PAUSES.cap).max(self.pause.unwrap_or_default())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}
