//! The silence of the drive or store that alone holds a dataset: reads wait, and nothing answers them.

use std::fmt;
use std::time::Duration;

/// How long the drive or store that holds a dataset has been silent.
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
    /// What does not answer, in words: `the drive tcp://…`.
    pub holder: String,
    /// Time since the last answer, or since the first waiting read began if that is later.
    pub lasts: Duration,
    /// Time without an answer after which reads give up.
    pub patience: Duration,
    /// The last failure of the path to it, if there was one.
    pub failure: Option<String>,
}

impl Silence {
    /// Returns the time until the waiting reads give up.
    pub fn remaining(&self) -> Duration {
        self.patience.saturating_sub(self.lasts)
    }
}

/// Says nothing of the time left, so that a record can have this text.
impl fmt::Display for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has not answered for {} s", self.holder, self.lasts.as_secs())?;
        match &self.failure {
            Some(failure) => write!(f, " (last failure: {failure})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_names_who_does_not_answer_and_the_last_failure() {
        let (lasts, patience) = (Duration::from_millis(12_300), Duration::from_secs(60));
        let silence = |failure: Option<&str>| {
            let (holder, failure) = ("the drive tcp://x".to_owned(), failure.map(str::to_owned));
            Silence { holder, lasts, patience, failure }
        };
        let said = "the drive tcp://x has not answered for 12 s";
        assert_eq!(silence(None).to_string(), said);
        assert_eq!(silence(Some("refused")).to_string(), format!("{said} (last failure: refused)"));
        assert_eq!(silence(None).remaining(), Duration::from_millis(47_700));
    }
}
