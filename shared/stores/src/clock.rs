//! The clock of the path to a drive or store that alone holds a dataset. It alone says since when reads wait for an
//! answer, how long that has been a silence, and when the reads give up.

use std::time::{Duration, Instant};

/// Longest time without an answer before reads give up, beyond the time that their bytes may take.
const LOST_MAX: Duration = Duration::from_secs(60);
/// Wait after which the path counts as silent, beyond the time that the waiting reads may take. An answer takes
/// milliseconds.
const SILENT_AFTER: Duration = Duration::from_secs(1);
/// Wait after which the path counts as silent, whatever the waiting reads may take. It is shorter than the 30 s for
/// which a host waits for a batch: an agent has to tell the host before that its store is silent.
const SILENT_AFTER_MAX: Duration = Duration::from_secs(20);
/// Time after reads have given up in which new reads fail at once: one sample may need several reads, and each would
/// wait again. An answer ends it. A run that begins later has its full time.
const RESIGNED: Duration = Duration::from_secs(5);

/// Measures how long reads have waited for any answer.
#[derive(Debug)]
pub struct PathClock {
    /// Reads that wait.
    waiting: usize,
    /// When a read was last answered, or when the first read began that waits.
    since: Instant,
    /// Longest time that one of the waiting reads may take for its bytes.
    allowed: Duration,
    /// Wait after which the path counts as silent. Grows no more once it does.
    silent_after: Duration,
    /// Until when reads fail at once.
    resigned_until: Option<Instant>,
    /// Time of all silences that have ended.
    past: Duration,
}

impl PathClock {
    /// Creates a clock without reads.
    pub fn new(now: Instant) -> Self {
        let zero = Duration::ZERO;
        Self { waiting: 0, since: now, allowed: zero, silent_after: SILENT_AFTER, resigned_until: None, past: zero }
    }

    /// Records that a read begins, whose bytes may take the time `allowed` on a slow path.
    pub fn begin(&mut self, now: Instant, allowed: Duration) {
        if self.waiting == 0 {
            self.since = now;
        }
        self.allowed = self.allowed.max(allowed);
        if self.lasts(now).is_none() {
            self.silent_after = self.silent_after_now();
        }
        self.waiting += 1;
    }

    /// Returns the wait for the reads that wait now after which the path counts as silent.
    fn silent_after_now(&self) -> Duration {
        (SILENT_AFTER + self.allowed).min(SILENT_AFTER_MAX)
    }

    /// Records that a read was answered.
    pub fn answered(&mut self, now: Instant) {
        (self.past, self.since) = (self.total(now), now);
        self.silent_after = self.silent_after_now();
        self.resigned_until = None;
    }

    /// Records that a read failed later than after its own limit: the process was stopped meanwhile. Only the time
    /// within the limit counts as waiting for an answer.
    pub fn overran(&mut self, now: Instant, limit: Duration) {
        let total = self.total(now);
        self.since = now.checked_sub(limit).map_or(self.since, |since| since.max(self.since));
        self.past = total.saturating_sub(self.lasts(now).unwrap_or_default());
    }

    /// Records that a read gives up.
    pub fn give_up(&mut self, now: Instant) {
        if self.resigned_until.is_none_or(|until| now >= until) {
            self.resigned_until = Some(now + RESIGNED);
        }
    }

    /// Gives the reads that begin from now on their full time again.
    pub fn forget_giving_up(&mut self) {
        self.resigned_until = None;
    }

    /// Records that a read ends, answered or not.
    pub fn end(&mut self, now: Instant) {
        let total = self.total(now);
        self.waiting = self.waiting.saturating_sub(1);
        if self.waiting == 0 {
            (self.past, self.allowed, self.silent_after) = (total, Duration::ZERO, SILENT_AFTER);
        }
    }

    /// Returns the time without an answer after which the waiting reads give up.
    pub fn patience(&self) -> Duration {
        LOST_MAX + self.allowed
    }

    /// Returns the time until the waiting reads give up: zero if they give up now.
    pub fn remaining(&self, now: Instant) -> Duration {
        match self.resigned_until {
            Some(until) if now < until => Duration::ZERO,
            _ => self.patience().saturating_sub(now.saturating_duration_since(self.since)),
        }
    }

    /// Returns how long the present silence has lasted.
    pub fn lasts(&self, now: Instant) -> Option<Duration> {
        let lasts = now.saturating_duration_since(self.since);
        (self.waiting > 0 && lasts >= self.silent_after).then_some(lasts)
    }

    /// Returns the time of all silences, the present one included.
    pub fn total(&self, now: Instant) -> Duration {
        self.past + self.lasts(now).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn only_long_waits_for_any_answer_are_silences() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut clock = PathClock::new(start);
        assert_eq!((clock.lasts(at(9000)), clock.total(at(9000))), (None, Duration::ZERO), "nothing is asked");
        clock.begin(at(10_000), Duration::ZERO);
        clock.begin(at(10_500), Duration::ZERO);
        assert_eq!(clock.lasts(at(10_999)), None);
        // One read is answered; the other one waits for 4 s more.
        clock.answered(at(10_999));
        clock.end(at(10_999));
        assert_eq!((clock.lasts(at(11_500)), clock.total(at(11_500))), (None, Duration::ZERO));
        assert_eq!((clock.lasts(at(12_999)), clock.total(at(13_999))), (Some(2 * SECOND), 3 * SECOND));
        clock.answered(at(14_999));
        clock.end(at(14_999));
        assert_eq!((clock.lasts(at(90_000)), clock.total(at(90_000))), (None, 4 * SECOND));
    }

    #[test]
    fn the_time_that_bytes_may_take_on_a_slow_path_is_no_silence_and_is_waited_for() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let mut clock = PathClock::new(start);
        clock.begin(start, 15 * SECOND);
        clock.begin(at(1), 3 * SECOND);
        assert_eq!((clock.lasts(at(15)), clock.remaining(at(15))), (None, LOST_MAX));
        assert_eq!(clock.lasts(at(16)), Some(16 * SECOND));
        clock.end(at(15));
        clock.end(at(15));
        clock.begin(at(30), Duration::ZERO);
        assert_eq!(clock.lasts(at(31)), Some(SECOND), "an allowance ends with its reads");
        assert_eq!(clock.remaining(at(30)), LOST_MAX);
    }

    #[test]
    fn the_path_counts_as_silent_in_time_however_many_bytes_are_waited_for() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let mut clock = PathClock::new(start);
        clock.begin(start, 500 * SECOND);
        assert_eq!((clock.lasts(at(19)), clock.lasts(at(20))), (None, Some(20 * SECOND)));
        assert_eq!(clock.remaining(at(20)), LOST_MAX + 480 * SECOND, "the bytes have their time");
        clock.answered(at(21));
        assert_eq!((clock.lasts(at(40)), clock.lasts(at(41))), (None, Some(20 * SECOND)));
    }

    #[test]
    fn a_longer_read_that_begins_in_a_silence_does_not_end_it() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let mut clock = PathClock::new(start);
        clock.begin(start, Duration::ZERO);
        assert_eq!(clock.lasts(at(5)), Some(5 * SECOND));
        clock.begin(at(5), 15 * SECOND);
        assert_eq!((clock.lasts(at(5)), clock.total(at(6))), (Some(5 * SECOND), 6 * SECOND));
        assert_eq!(clock.remaining(at(6)), LOST_MAX + 15 * SECOND - 6 * SECOND, "its bytes have their time");
        clock.answered(at(10));
        clock.end(at(10));
        assert_eq!((clock.lasts(at(25)), clock.total(at(25))), (None, 10 * SECOND));
        assert_eq!(clock.lasts(at(26)), Some(16 * SECOND));
    }

    #[test]
    fn the_time_for_which_the_process_was_stopped_is_no_wait_for_the_drive() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let limit = 10 * SECOND;
        let mut clock = PathClock::new(start);
        clock.begin(start, Duration::ZERO);
        clock.begin(start, Duration::ZERO);
        assert_eq!(clock.remaining(at(70)), Duration::ZERO);
        // Both reads fail when the process goes on.
        for _ in 0..2 {
            let total = clock.total(at(70));
            clock.overran(at(70), limit);
            assert_eq!(clock.total(at(70)), total, "never less than was reported");
        }
        assert_eq!(clock.remaining(at(70)), LOST_MAX - limit);
    }

    /// The display shows what `lasts` and `patience` leave; reads give up when nothing is `left`.
    #[test]
    fn what_is_shown_as_left_is_left() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let mut clock = PathClock::new(start);
        clock.begin(at(5), Duration::ZERO);
        for (second, begins) in [(15, true), (20, false), (40, true), (64, false)] {
            // Reads that begin meanwhile, and attempts that end, change nothing.
            if begins {
                clock.begin(at(second), Duration::ZERO);
            } else {
                clock.end(at(second));
            }
            let lasts = clock.lasts(at(second)).expect("a silence");
            assert_eq!(clock.remaining(at(second)), clock.patience() - lasts, "{second} s");
            assert_eq!(clock.remaining(at(second)), at(65) - at(second));
        }
        assert_eq!(clock.remaining(at(65)), Duration::ZERO);
    }

    #[test]
    fn once_reads_have_given_up_others_fail_at_once_for_a_while() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let mut clock = PathClock::new(start);
        let mut begin_at = |second, change: fn(&mut PathClock, Instant)| {
            clock.begin(at(second), Duration::ZERO);
            change(&mut clock, at(second));
            let left = clock.remaining(at(second));
            clock.end(at(second));
            left.as_secs()
        };
        assert_eq!(begin_at(60, PathClock::give_up), 0);
        // A later read that gives up as well does not prolong that time.
        assert_eq!(begin_at(64, PathClock::give_up), 0);
        assert_eq!(begin_at(65, |_, _| ()), 60, "a later read, perhaps of another run, has its full time");
        assert_eq!(begin_at(180, PathClock::give_up), 0);
        assert_eq!(begin_at(181, PathClock::answered), 60);
        assert_eq!(begin_at(182, PathClock::give_up), 0);
        assert_eq!(begin_at(183, |clock, _| clock.forget_giving_up()), 60, "after an interrupt");
    }

    #[test]
    fn the_time_after_reads_have_given_up_is_no_silence() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let mut clock = PathClock::new(start);
        clock.begin(start, Duration::ZERO);
        clock.give_up(at(60));
        clock.end(at(60));
        let an_hour_later = (clock.lasts(at(3660)), clock.total(at(3660)));
        assert_eq!(an_hour_later, (None, 60 * SECOND));
        clock.begin(at(3660), Duration::ZERO);
        assert_eq!((clock.lasts(at(3662)), clock.total(at(3662))), (Some(2 * SECOND), 62 * SECOND));
    }
}
