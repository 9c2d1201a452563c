//! Waiting for a dataset that cannot be read at the moment: a server restarts, or file descriptors or memory are short.

use crate::Unavailable;
use std::thread;
use std::time::{Duration, Instant};

/// Pauses before the second and each further attempt, in milliseconds: 5 s in all.
const PAUSES_MS: [u64; 9] = [10, 20, 40, 80, 160, 320, 640, 1280, 2450];

/// Interval at which a pause checks whether to continue.
const LOOK: Duration = Duration::from_millis(20);

/// Once all attempts have failed, each read is tried only once for this long. So a whole batch of samples from a dead
/// server costs one wait.
const RESIGNED: Duration = Duration::from_secs(30);

/// How long one thread still waits for a dataset.
#[derive(Debug)]
pub struct Patience {
    pauses_ms: &'static [u64],
    /// Time at which all attempts last failed.
    gave_up: Option<Instant>,
}

impl Default for Patience {
    /// Returns a patience of 5 s.
    fn default() -> Self {
        Self::with(&PAUSES_MS)
    }
}

impl Patience {
    /// Returns a patience with these pauses, in milliseconds.
    pub fn with(pauses_ms: &'static [u64]) -> Self {
        Self { pauses_ms, gave_up: None }
    }

    /// Waits after failed attempt number `failed`, counted from 0. Returns whether to try again: false if the error is
    /// lasting, no pause is left, or the work `is_over`.
    #[cold]
    pub fn wait(&mut self, failed: usize, error: &Unavailable, is_over: &dyn Fn() -> bool) -> bool {
        let has_given_up = self.gave_up.is_some_and(|at| at.elapsed() < RESIGNED);
        if !error.is_momentary() || has_given_up {
            return false;
        }
        let Some(&pause_ms) = self.pauses_ms.get(failed) else {
            self.gave_up = Some(Instant::now());
            return false;
        };
        let until = Instant::now() + Duration::from_millis(pause_ms);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if is_over() || left.is_zero() {
                return !is_over();
            }
            thread::sleep(left.min(LOOK));
        }
    }

    /// Repeats `read` while it fails with momentary errors, until the patience is exhausted.
    pub fn read<T>(
        &mut self,
        is_over: &dyn Fn() -> bool,
        mut read: impl FnMut() -> Result<T, Unavailable>,
    ) -> Result<T, Unavailable> {
        let mut failed = 0;
        loop {
            match read() {
                Err(error) if self.wait(failed, &error, is_over) => failed += 1,
                done => return done,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    const THREE: [u64; 3] = [0; 3];

    fn error(errno: i32) -> Unavailable {
        Unavailable::Io { what: "x".into(), path: "x".into(), source: io::Error::from_raw_os_error(errno) }
    }

    /// Reads something that fails `failures` times. Returns whether it was read, and the number of attempts.
    fn tried(patience: &mut Patience, errno: i32, failures: u32, is_over: bool) -> (bool, u32) {
        let mut calls = 0;
        let read = patience.read(&|| is_over, || {
            calls += 1;
            if calls <= failures { Err(error(errno)) } else { Ok(()) }
        });
        (read.is_ok(), calls)
    }

    #[test]
    fn momentary_failures_are_tried_again_and_lasting_ones_are_not() {
        for errno in [libc::ETIMEDOUT, libc::ESTALE, libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EAGAIN] {
            assert_eq!(tried(&mut Patience::with(&THREE), errno, 3, false), (true, 4), "{errno}");
            assert_eq!(tried(&mut Patience::with(&THREE), errno, 4, false), (false, 4), "{errno}");
        }
        for errno in [libc::EACCES, libc::ENOENT, libc::ENODEV] {
            assert_eq!(tried(&mut Patience::with(&THREE), errno, 1, false), (false, 1), "{errno}");
        }
    }

    #[test]
    fn nobody_waits_twice_in_vain() {
        let mut patience = Patience::with(&THREE);
        assert_eq!(tried(&mut patience, libc::ETIMEDOUT, 9, false), (false, 4));
        assert_eq!(tried(&mut patience, libc::ETIMEDOUT, 9, false), (false, 1));
        assert_eq!(tried(&mut patience, libc::ETIMEDOUT, 0, false), (true, 1));
    }

    #[test]
    fn work_that_is_over_ends_the_wait_at_once() {
        let mut patience = Patience::with(&[3_600_000]);
        assert_eq!(tried(&mut patience, libc::ETIMEDOUT, 1, true), (false, 1));
    }

    #[test]
    fn the_pauses_last_five_seconds() {
        assert_eq!(PAUSES_MS.iter().sum::<u64>(), 5000);
    }
}
