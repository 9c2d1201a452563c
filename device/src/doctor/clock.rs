//! The clock. Nothing in a batch depends on the board's clock: seeds, epochs and generations of slots are the host's. The times in
//! the agent's log do, and whatever else the board runs.

#![allow(unsafe_code)]

use super::finding::Finding;
use serde::Serialize;
use std::time::{SystemTime, UNIX_EPOCH};

const SUBJECT: &str = "clock";

/// No board has a right clock before this: 2026-01-01. Boards without a battery begin at 1970, or at their image's date.
const EARLIEST_S: u64 = 1_767_225_600;

/// The clock.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Clock {
    /// Seconds since 1970.
    pub unix_s: u64,
    /// Whether the kernel's clock is disciplined by a time service; `None` when it does not say.
    pub synchronised: Option<bool>,
}

impl Clock {
    /// Reads the clock.
    pub fn read() -> Self {
        let unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Self { unix_s, synchronised: synchronised() }
    }

    /// What there is to say.
    pub fn findings(&self) -> Vec<Finding> {
        let advice =
            "enable a time service (systemd-timesyncd or chrony); batches do not depend on it, times in logs do";
        vec![match self.synchronised {
            _ if self.unix_s < EARLIEST_S => Finding::warning(SUBJECT, "it is years behind", advice),
            Some(true) => Finding::fine(SUBJECT, "synchronised"),
            Some(false) => Finding::warning(SUBJECT, "not synchronised", advice),
            None => Finding::fine(SUBJECT, "plausible; the kernel does not say whether it is synchronised"),
        }]
    }
}

/// The kernel's own word, which every time service sets: `adjtimex`, as in `timedatectl`'s «System clock synchronized».
fn synchronised() -> Option<bool> {
    // SAFETY: the structure holds integers only, for which zeros are valid.
    let mut request: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: `modes` is 0, so the call changes nothing and fills the structure, which is valid and exclusively borrowed.
    let state = unsafe { libc::adjtimex(&mut request) };
    (state != -1).then_some(request.status & libc::STA_UNSYNC == 0)
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn a_clock_that_is_behind_or_runs_freely_is_a_warning() {
        let level = |unix_s, synchronised| Clock { unix_s, synchronised }.findings()[0].level;
        assert_eq!(level(0, Some(true)), Level::Warning);
        assert_eq!(level(EARLIEST_S, Some(false)), Level::Warning);
        assert_eq!(level(EARLIEST_S, Some(true)), Level::Fine);
        assert_eq!(level(EARLIEST_S, None), Level::Fine);
    }
}
