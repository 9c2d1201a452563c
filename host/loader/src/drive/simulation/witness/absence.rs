//! Losses of the association, attempts to make another one, and the end of the drive's use.

use super::{DELAY_MAX, FIRST_DELAY, Witness};
use crate::drive::local::RESTARTS_MAX;
use crate::drive::machine::SLOTLESS_MAX;
use crate::drive::trust::{ASSOCIATIONS_MAX, WRONG_MAX};
use crate::report::FaultKind;
use ddlp_cause::with_causes;
use ddlp_driver::DriverError;
use std::time::Instant;

impl Witness {
    pub(super) fn sees_return(&mut self, said: Option<&str>) {
        assert!(self.is_linked, "the drive is back");
        assert_eq!(
            std::mem::take(&mut self.is_missed),
            said.is_some(),
            "a return is told if the absence was: {said:?}"
        );
        if said.is_some() {
            self.count("returns");
        }
    }

    pub(super) fn sees_loss(&mut self, error: &DriverError, now: Instant) {
        self.count("losses");
        let said = with_causes(error);
        let is_wrong = said.contains("results in a row");
        assert!(!is_wrong || self.wrong >= WRONG_MAX, "{} wrong results in a row: {said}", self.wrong);
        if is_wrong {
            self.wrong = 0;
            self.bad_associations += 1;
        }
        for what in ["about to end", "its program is gone"] {
            if said.contains(what) {
                self.count(what);
            }
        }
        let refuses = said.contains("refused every result slot");
        let without = self.all_refused_since.map(|since| now - since);
        assert!(!refuses || without.is_some_and(|time| time > SLOTLESS_MAX), "refused for {without:?}: {said}");
        if let DriverError::TimedOut { after, .. } = error {
            self.count("late");
            assert!(self.flights.values().any(|flight| now > flight.until), "nothing is late: {after:?}");
        }
        let from = if self.all_refused_since.take().is_some() {
            self.count("rests");
            now + SLOTLESS_MAX
        } else {
            now
        };
        self.flights.clear();
        self.refused.clear();
        (self.is_linked, self.is_missed, self.is_losing) = (false, true, false);
        (self.paused_at, self.must_pause, self.must_leave) = (None, false, false);
        self.unreachable_since = from;
        self.expect_attempt(from);
    }

    /// Expects the next attempt after a delay that grows with the attempts since the last success.
    pub(super) fn expect_attempt(&mut self, from: Instant) {
        let full = (FIRST_DELAY.1 * 2_u32.pow(self.attempts.min(10))).min(DELAY_MAX);
        self.attempts += 1;
        self.attempt = (from + full / 2, from + full);
    }

    pub(super) fn sees_report(&mut self, kind: FaultKind, what: &str) {
        match kind {
            FaultKind::Slow => self.count("slow"),
            FaultKind::Lost => {
                self.count("away at first");
                assert!(!self.was_reached && !std::mem::replace(&mut self.is_missed, true), "{what}");
            }
            FaultKind::Refused => {
                if what.contains("wrong or damaged results") {
                    assert_eq!(self.bad_associations, ASSOCIATIONS_MAX, "{what}");
                    self.count("given up for wrong results");
                } else if what.contains("without success") {
                    assert_eq!(self.restarts, RESTARTS_MAX, "{what}");
                    self.count("given up for its agent");
                } else {
                    assert!(!self.is_linked, "{what}");
                    self.count("given up on return");
                }
                self.is_given_up = true;
            }
            kind => panic!("{kind:?}: {what}"),
        }
    }
}
