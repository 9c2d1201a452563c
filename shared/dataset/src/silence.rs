//! The silence of a drive that alone holds a dataset: reads wait, and nothing answers them.

use std::fmt;
use std::time::{Duration, Instant};

/// Wait after which a drive counts as silent, beyond the time that the waiting reads may take. An answer takes
/// milliseconds.
const SILENT_AFTER: Duration = Duration::from_secs(1);

/// The silences of a drive up to now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Silences {
    /// Time of all silences, the present one included.
    pub total: Duration,
    /// The present silence.
    pub now: Option<Silence>,
}

/// A silence that lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silence {
    /// Address of the drive.
    pub drive: String,
    /// Time since the last answer, or since the first waiting read began if that is later.
    pub lasts: Duration,
    /// Time after which a read gives up.
    pub patience: Duration,
    /// The last failure of the path to the drive, if there was one.
    pub failure: Option<String>,
}

impl Silence {
    /// Returns the time until the waiting reads give up.
    pub fn left(&self) -> Duration {
        self.patience.saturating_sub(self.lasts)
    }
}

/// Says nothing of the time left, so that a record can have this text.
impl fmt::Display for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the drive {} has not answered for {} s", self.drive, self.lasts.as_secs())?;
        match &self.failure {
            Some(failure) => write!(f, " (last failure: {failure})"),
            None => Ok(()),
        }
    }
}

/// Measures silences: how long reads have waited for any answer.
#[derive(Debug)]
pub struct SilenceWatch {
    /// Reads that wait.
    waiting: usize,
    /// When a read last ended, or when the first read began that waits.
    since: Instant,
    /// Longest time that one of the waiting reads may take for its bytes.
    allowed: Duration,
    /// Whether a read has given up, and no read was answered since: the silence lasts although no read waits.
    has_given_up: bool,
    /// Time of all silences that have ended.
    past: Duration,
}

impl SilenceWatch {
    /// Creates a watch over no reads.
    pub fn new(now: Instant) -> Self {
        Self { waiting: 0, since: now, allowed: Duration::ZERO, has_given_up: false, past: Duration::ZERO }
    }

    /// Records that a read begins, whose bytes may take the time `allowed` on a slow path.
    pub fn begin(&mut self, now: Instant, allowed: Duration) {
        if self.waiting == 0 && !self.has_given_up {
            self.since = now;
        }
        self.allowed = self.allowed.max(allowed);
        self.waiting += 1;
    }

    /// Records that a read was answered.
    pub fn answered(&mut self) {
        self.has_given_up = false;
    }

    /// Records that a read gave up.
    pub fn gave_up(&mut self) {
        self.has_given_up = true;
    }

    /// Records that a read ends.
    pub fn end(&mut self, now: Instant) {
        if !self.has_given_up {
            (self.past, self.since) = (self.total(now), now);
        }
        self.waiting = self.waiting.saturating_sub(1);
        if self.waiting == 0 {
            self.allowed = Duration::ZERO;
        }
    }

    /// Returns how long the present silence has lasted.
    pub fn lasts(&self, now: Instant) -> Option<Duration> {
        let lasts = now.saturating_duration_since(self.since);
        let waits = self.waiting > 0 || self.has_given_up;
        (waits && lasts >= SILENT_AFTER + self.allowed).then_some(lasts)
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
        watch.begin(at(10_000), Duration::ZERO);
        watch.begin(at(10_500), Duration::ZERO);
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
    fn the_time_that_bytes_may_take_on_a_slow_path_is_no_silence() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let mut watch = SilenceWatch::new(start);
        watch.begin(start, Duration::from_secs(20));
        watch.begin(at(1), Duration::from_secs(3));
        assert_eq!(watch.lasts(at(20)), None);
        assert_eq!(watch.lasts(at(21)), Some(Duration::from_secs(21)));
        watch.end(at(20));
        watch.end(at(20));
        watch.begin(at(30), Duration::ZERO);
        assert_eq!(watch.lasts(at(31)), Some(Duration::from_secs(1)), "an allowance ends with its reads");
    }

    #[test]
    fn a_silence_after_which_reads_give_up_lasts_until_an_answer() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let mut watch = SilenceWatch::new(start);
        watch.begin(start, Duration::ZERO);
        watch.gave_up();
        watch.end(at(60));
        assert_eq!(watch.lasts(at(61)), Some(Duration::from_secs(61)));
        watch.begin(at(62), Duration::ZERO);
        assert_eq!(watch.lasts(at(62)), Some(Duration::from_secs(62)));
        watch.answered();
        watch.end(at(63));
        assert_eq!((watch.lasts(at(90)), watch.total(at(90))), (None, Duration::from_secs(63)));
    }

    #[test]
    fn a_silence_names_the_drive_and_the_last_failure() {
        let (lasts, patience) = (Duration::from_millis(12_300), Duration::from_secs(60));
        let silence = |failure: Option<&str>| {
            let (drive, failure) = ("tcp://x".to_owned(), failure.map(str::to_owned));
            Silence { drive, lasts, patience, failure }
        };
        let said = "the drive tcp://x has not answered for 12 s";
        assert_eq!(silence(None).to_string(), said);
        assert_eq!(silence(Some("refused")).to_string(), format!("{said} (last failure: refused)"));
        assert_eq!(silence(None).left(), Duration::from_millis(47_700));
    }
}
