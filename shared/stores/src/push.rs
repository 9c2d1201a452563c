//! Puts a pack into a store or a key-value server.

use super::{ranges, shown, values};
use ddlp_dataset::pack::{Broken, Pack};
use ddlp_dataset::{Identity, ReadError};
use std::fmt;
use std::ops::{ControlFlow, Range};
use std::str::FromStr;
use std::sync::Arc;

/// Most shares in which a pack is pushed.
pub const SHARES_MAX: u32 = 4096;

/// One of several shares of a pack, which as many machines push at the same time. A share has neighbouring samples, and
/// shares are as large as each other, to a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Number of the share, from 0 on.
    pub number: u32,
    /// Number of all shares, 1 to 4096.
    pub of: u32,
}

impl Share {
    /// Returns the samples of the share, of a pack of this length.
    pub fn samples(self, samples: u64) -> Range<u64> {
        let begin = |number: u32| (u128::from(samples) * u128::from(number) / u128::from(self.of)) as u64;
        begin(self.number)..begin(self.number + 1)
    }

    fn is_one(self) -> bool {
        self.number < self.of && self.of <= SHARES_MAX
    }
}

/// As in `0/4`: the number of the share, and the number of all.
impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl FromStr for Share {
    type Err = PushError;

    fn from_str(text: &str) -> Result<Self, PushError> {
        let share = text.split_once('/').and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
        let share = share.map(|(number, of)| Self { number, of }).filter(|share| share.is_one());
        share.ok_or_else(|| PushError::Share { share: text.to_owned() })
    }
}

/// What of a pack a push sends to a key-value server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PushPart {
    /// Everything. The dataset can then be opened.
    #[default]
    All,
    /// The samples of a share. The dataset can be opened when all shares are there, in whatever order they come.
    Share(Share),
    /// No sample: the name is taken for this pack, so that parts of it can be pushed.
    Begin,
    /// These samples, after a push of [`PushPart::Begin`].
    Samples(Arc<[u64]>),
    /// The index, which makes the dataset one that can be opened, after all samples: the caller sees to that. Fails if
    /// another pack was pushed to the name since [`PushPart::Begin`].
    End,
}

/// How a pack is pushed.
#[derive(Clone, Debug, Default)]
pub struct PushOptions {
    /// Threads that read and send, or requests at the same time; 0 for a choice of this program.
    pub threads: usize,
    /// Replace a dataset of the same name that is another pack.
    pub force: bool,
    /// Read everything back and compare it.
    pub verify: bool,
    /// What of the pack is sent.
    pub part: PushPart,
}

/// Progress of a push.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PushProgress {
    /// Number of samples done.
    pub samples: u64,
    /// Number of all samples that are to be there.
    pub samples_total: u64,
    /// Bytes of these samples.
    pub bytes: u64,
    /// Number of samples that were sent, since they were not there yet.
    pub sent: u64,
}

/// Result of a push.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PushSummary {
    /// Number of samples of the part that was pushed.
    pub samples: u64,
    /// Number of samples that were sent. The others were there.
    pub sent: u64,
    /// Bytes that these samples take, and the index if it was pushed too.
    pub bytes: u64,
    /// Bytes that were sent.
    pub sent_bytes: u64,
    /// Identity of the pack.
    pub identity: Identity,
    /// The server's rule for evicting values, if it evicts some when its memory is full.
    pub evicts: Option<String>,
    /// The shares that are still missing. The dataset can be opened when none is.
    pub missing_shares: Vec<u32>,
}

/// Why a pack was not pushed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// There is no such share.
    #[error(
        "there is no share {share}: write it as NUMBER/SHARES, with a number from 0 on and at most {SHARES_MAX} \
         shares, such as 0/4 for the first of four"
    )]
    Share {
        /// The share.
        share: String,
    },
    /// Packs cannot be pushed to this URL.
    #[error("{url} is no place for a pack: {reason}")]
    Place {
        /// The URL.
        url: String,
        /// Why.
        reason: String,
    },
    /// Another dataset has that name.
    #[error("{url} exists: {what}")]
    Exists {
        /// The URL.
        url: String,
        /// What is there.
        what: String,
    },
    /// A sample of the pack cannot be read.
    #[error("the pack cannot be read")]
    Source(#[from] ReadError),
    /// The pack is damaged.
    #[error("the pack is damaged: {0}; `ddlp verify` lists all damage")]
    Damaged(Box<Broken>),
    /// The store or server fails. The reason says what to do.
    #[error("{url} was not pushed: {reason}")]
    Store {
        /// The URL.
        url: String,
        /// Why.
        reason: String,
    },
    /// What was sent reads back differently.
    #[error("{url} was sent, but {what} reads back differently: is the server's memory failing?")]
    Differs {
        /// The URL.
        url: String,
        /// The part concerned.
        what: String,
    },
    /// The caller cancelled the push.
    #[error("pushing was cancelled")]
    Cancelled,
}

/// Pushes a pack to a URL. At `redis://HOST:PORT/DB/NAME`, `rediss://…`, `cql://HOST/KEYSPACE/NAME` or `cqls://…` it
/// becomes one value for each sample, at `s3://`, `gs://` or `az://` one object. Calls `progress` on this thread
/// at least every 100 ms while samples are sent; a `Break` ends the work with [`PushError::Cancelled`].
///
/// A dataset can be opened there only when everything is sent. A push to a server that was stopped goes on where it
/// was; one to an object store begins anew.
///
/// # Errors
///
/// [`PushError`] says what to do.
pub fn push(
    pack: &Pack,
    url: &str,
    options: &PushOptions,
    progress: &mut dyn FnMut(PushProgress) -> ControlFlow<()>,
) -> Result<PushSummary, PushError> {
    if let PushPart::Share(share) = options.part
        && !share.is_one()
    {
        return Err(PushError::Share { share: share.to_string() });
    }
    if values::is_url(url) {
        return values::push::push(pack, url, options, progress);
    }
    if ranges::is_url(url) {
        return ranges::push::push(pack, url, options, progress);
    }
    let reason = "a pack is pushed to redis://, rediss://, cql://, cqls://, s3://, gs:// or az://".to_owned();
    Err(PushError::Place { url: shown(url), reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_disjoint_and_together_everything() {
        for samples in [1, 7, 64, 1_281_167, 1 << 30] {
            for of in [1, 2, 3, 7, 64, SHARES_MAX] {
                let ranges: Vec<_> = (0..of).map(|number| Share { number, of }.samples(samples)).collect();
                assert_eq!((ranges[0].start, ranges[of as usize - 1].end), (0, samples));
                assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
                let lengths: Vec<u64> = ranges.iter().map(|range| range.end - range.start).collect();
                assert!(lengths.iter().max().unwrap() - lengths.iter().min().unwrap() <= 1, "{samples} in {of}");
            }
        }
    }

    #[test]
    fn a_share_is_a_number_below_the_number_of_shares() {
        assert_eq!("0/4".parse::<Share>().unwrap(), Share { number: 0, of: 4 });
        assert_eq!("3/4".parse::<Share>().unwrap().to_string(), "3/4");
        for text in ["4/4", "0/0", "0/4097", "-1/4", "1", "a/b", ""] {
            let said = text.parse::<Share>().unwrap_err().to_string();
            assert!(said.contains("such as 0/4"), "{text}: {said}");
        }
    }
}
