//! The silence of a drive that alone holds a dataset: reads wait, and nothing answers them.

use std::fmt;
use std::time::{Duration, Instant};

/// Wait for an answer from which on a drive counts as silent. An answer takes milliseconds.
const SILENT_AFTER: Duration = Duration::from_secs(1);

/// The silences of a drive up to now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Silence {
    /// Time of all silences, the present one included.
    pub total: Duration,
    /// The present silence.
    pub now: Option<Silent>,
}

/// A silence that lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silent {
    /// Address of the drive.
    pub drive: String,
    /// Time since the drive answered, or since the first read began that waits for it.
    pub lasts: Duration,
    /// Time after which a read gives up.
    pub patience: Duration,
    /// Why the last attempt to reach the drive failed, if one has.
    pub reason: Option<String>,
}

impl fmt::Display for Silent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { drive, lasts, patience, reason } = self;
        write!(f, "the drive {drive} has not answered for {} s", lasts.as_secs())?;
        if let Some(reason) = reason {
            write!(f, " ({reason})")?;
        }
        let left = patience.saturating_sub(*lasts).as_secs();
        write!(f, "; without an answer, the run ends in {left} s")
    }
}

/// Measures silences: how long reads have waited for any answer.
#[derive(Debug)]
pub struct SilenceWatch {
    /// Reads that wait.
    waiting: usize,
    /// When a read last ended, or when the first read began that waits.
    since: Instant,
    /// Whether a read has given up, and no read was answered since: the silence lasts although no read waits.
    has_given_up: bool,
    /// Time of all silences that have ended.
    past: Duration,
}

impl SilenceWatch {
    /// Creates a watch over no reads.
    pub fn new(now: Instant) -> Self {
        Self { waiting: 0, since: now, has_given_up: false, past: Duration::ZERO }
    }

    /// Records that a read begins.
    pub fn begin(&mut self, now: Instant) {
        if self.waiting == 0 && !self.has_given_up {
            self.since = now;
        }
        self.waiting += 1;
    }

    /// Records that a read was answered.
    pub fn answered(&mut self) {
        self.has_given_up = false;
    }

    /// Records that a read has waited for long enough.
    pub fn gave_up(&mut self) {
        self.has_given_up = true;
    }

    /// Records that a read ends.
    pub fn end(&mut self, now: Instant) {
        if !self.has_given_up {
            (self.past, self.since) = (self.total(now), now);
        }
        self.waiting = self.waiting.saturating_sub(1);
    }

    /// Returns how long the present silence has lasted.
    pub fn lasts(&self, now: Instant) -> Option<Duration> {
        let lasts = now.saturating_duration_since(self.since);
        let waits = self.waiting > 0 || self.has_given_up;
        (waits && lasts >= SILENT_AFTER).then_some(lasts)
    }

    /// Returns the time of all silences, the present one included.
    pub fn total(&self, now: Instant) -> Duration {
        self.past + self.lasts(now).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_waits_for_any_answer_are_silences() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let seconds = Duration::from_secs;
        let mut watch = SilenceWatch::new(start);
        assert_eq!((watch.lasts(at(9000)), watch.total(at(9000))), (None, seconds(0)), "nothing is asked");
        watch.begin(at(10_000));
        watch.begin(at(10_500));
        assert_eq!(watch.lasts(at(10_999)), None);
        // One read is answered; the other one waits for 1.5 s more.
        watch.end(at(10_999));
        assert_eq!((watch.lasts(at(11_500)), watch.total(at(11_500))), (None, seconds(0)));
        assert_eq!(watch.lasts(at(12_999)), Some(seconds(2)));
        assert_eq!(watch.total(at(13_999)), seconds(3));
        watch.end(at(14_999));
        assert_eq!((watch.lasts(at(90_000)), watch.total(at(90_000))), (None, seconds(4)));
    }

    #[test]
    fn a_silence_after_which_reads_give_up_lasts_until_an_answer() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let mut watch = SilenceWatch::new(start);
        watch.begin(start);
        watch.gave_up();
        watch.end(at(60));
        assert_eq!(watch.lasts(at(61)), Some(Duration::from_secs(61)));
        watch.begin(at(62));
        assert_eq!(watch.lasts(at(62)), Some(Duration::from_secs(62)));
        watch.answered();
        watch.end(at(63));
        assert_eq!((watch.lasts(at(90)), watch.total(at(90))), (None, Duration::from_secs(63)));
    }

    #[test]
    fn a_silence_names_the_drive_the_reason_and_the_patience() {
        let (lasts, patience) = (Duration::from_millis(12_300), Duration::from_secs(60));
        let silent = |reason: Option<&str>| {
            let (drive, reason) = ("tcp://x".to_owned(), reason.map(str::to_owned));
            Silent { drive, lasts, patience, reason }.to_string()
        };
        let said = "the drive tcp://x has not answered for 12 s (refused); without an answer, the run ends in 47 s";
        assert_eq!(silent(Some("refused")), said);
        assert_eq!(silent(None), said.replace(" (refused)", ""));
    }
}
