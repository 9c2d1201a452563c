//! Forks of the process: the locks that a thread holds at that moment stay locked in the child, where that thread does
//! not exist. So the thread that forks holds the locks of the whole process meanwhile.

use crate::logging::{self, HeldLog};
use crate::opening::{self, Work};
use ddlp_host::Forking;
use std::cell::RefCell;
use std::sync::MutexGuard;

thread_local! {
    /// What this thread holds while it forks.
    static HELD: RefCell<Option<(HeldLog, Forking, MutexGuard<'static, Work>)>> = const { RefCell::new(None) };
}

/// Waits for the locks.
pub fn begin() {
    HELD.set(Some((logging::hold(), Forking::begin(), opening::hold())));
}

/// Gives the locks back. In the child, also drops what belongs to its parent.
pub fn end(is_child: bool) {
    let Some((log, forking, mut work)) = HELD.take() else { return };
    if is_child {
        log.clear();
        forking.in_child();
        work.clear();
    }
}
