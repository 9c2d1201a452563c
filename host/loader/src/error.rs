//! Errors that the user of a loader can meet.

use crate::delivery::DeliveryError;
use crate::field_error::FieldError;
use crate::plan::PlanError;
use crate::state::StateError;
use ddlp_dataset::Unavailable;
use ddlp_pixels::CorruptReason;
use std::error::Error;
use std::fmt;
use std::io::ErrorKind;
use std::net::SocketAddr;

/// Why a loader cannot be built, or cannot continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoaderError {
    /// An option is invalid, or options contradict each other.
    #[error("{0}")]
    Options(String),
    /// The memory that the options ask for is not there. The message names every part of it, and what to do.
    #[error("{0}")]
    NoRoom(String),
    /// The dataset cannot be opened.
    #[error("the dataset cannot be opened")]
    Dataset(#[source] ddlp_dataset::OpenError),
    /// The fields beside the dataset cannot be used.
    #[error("the fields beside the dataset cannot be used")]
    Fields(#[from] ddlp_dataset::FieldsError),
    /// The pipeline cannot run.
    #[error("the pipeline cannot run")]
    Pipeline(#[source] ddlp_pixels::PipelineError),
    /// The program for the drives cannot be made.
    #[error("the program for the drives cannot be made")]
    Program(#[source] ddlp_csd::program::ProgramError),
    /// The plan cannot be replayed.
    #[error("the plan cannot be replayed")]
    Plan(#[source] PlanError),
    /// This run cannot be resumed from the state.
    #[error("the run cannot be resumed")]
    State(#[source] StateError),
    /// A drive cannot be used. The source says what to do.
    #[error("drive {drive} cannot be used")]
    Drive {
        /// Its address.
        drive: String,
        /// Why.
        #[source]
        source: DriveError,
    },
    /// The pack at a URL cannot be opened. The reason says what to do.
    #[error("{url} cannot be opened: {reason}")]
    Store {
        /// Its URL.
        url: String,
        /// Why.
        reason: String,
    },
    /// The run's figures cannot be served.
    #[error("the run's figures cannot be served at {address}: choose another address (`metrics`)")]
    Metrics {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A sample is corrupt, and the policy is `fail`.
    #[error(
        "sample {sample} (id {sample_id}, {location}) of epoch {epoch} cannot be used: {problem}; `policy=\"skip\"` \
         leaves corrupt samples out, `policy=\"replace\"` replaces each by the next intact one"
    )]
    CorruptSample {
        /// Name in the dataset.
        sample: String,
        /// Sample id.
        sample_id: u64,
        /// File, offset and length.
        location: String,
        /// Epoch.
        epoch: u32,
        /// Why, as a code.
        reason: CorruptReason,
        /// Why, in words.
        problem: String,
    },
    /// No neighbour can replace a corrupt sample, and the policy is `replace`.
    #[error(
        "sample {sample} (id {sample_id}, {location}) of epoch {epoch} cannot be used: {problem}; none of the {tried} \
         samples after it can replace it, and `policy=\"replace\"` tries no more. If this many are damaged, pack the \
         dataset again (`ddlp pack` says what is wrong with each), or leave them out: `policy=\"skip\"` with a higher \
         `max_corrupt`"
    )]
    NoReplacement {
        /// Name in the dataset.
        sample: String,
        /// Sample id.
        sample_id: u64,
        /// File, offset and length.
        location: String,
        /// Epoch.
        epoch: u32,
        /// Why, in words.
        problem: String,
        /// Number of neighbours that were tried.
        tried: u64,
    },
    /// An operation cannot be applied to an image of this sample's size ([`Unavailable::Misfit`]). The image is intact,
    /// so no corrupt-sample policy applies.
    #[error(transparent)]
    Misfit(Unavailable),
    /// More samples of an epoch were skipped or replaced than [`MaxCorrupt`](crate::MaxCorrupt) allows.
    #[error(
        "{corrupt} of {samples} samples of this epoch were corrupt so far, and {limit} are allowed; the first are \
         {first}. Check the dataset (`ddlp verify` checks a pack), or allow more by `max_corrupt`: a number, or a \
         share such as 1%"
    )]
    TooManyCorrupt {
        /// Distinct corrupt samples.
        corrupt: u64,
        /// Samples of the batches delivered in this epoch, and of the batch that exceeded the limit.
        samples: u64,
        /// The limit.
        limit: u64,
        /// Names of the first corrupt samples.
        first: String,
    },
    /// The dataset cannot be read any more, or is no longer the one that was opened. No corrupt-sample policy applies.
    #[error("the dataset is not available")]
    Unavailable(#[source] Unavailable),
    /// The dataset panicked when the loader looked up labels or names. No corrupt-sample policy applies, since the
    /// samples themselves were prepared.
    #[error(
        "the dataset panicked while the labels and names of epoch {epoch} batch {batch} were looked up; standard error \
         has the panic's message: correct `Dataset::label`, `Dataset::name` or `Dataset::location`, which must serve \
         every sample"
    )]
    DatasetPanic {
        /// Epoch.
        epoch: u32,
        /// Batch of the epoch.
        batch: u32,
    },
    /// A function that the pipeline calls failed ([`Unavailable::Function`]). No corrupt-sample policy applies.
    #[error(transparent)]
    Function(Unavailable),
    /// The delivery target cannot serve, or could not make a batch ready.
    #[error("the delivery target failed")]
    Delivery(#[source] DeliveryError),
    /// A batch has no such field, or not in the requested form.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// The operating system refused memory or a thread.
    #[error("the operating system refused {what}")]
    System {
        /// What the loader requested.
        what: &'static str,
        /// The operating system's answer.
        #[source]
        source: std::io::Error,
    },
}

/// What kind of error ended a run, for callers that treat kinds differently. See [`LoaderError::kind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LoaderErrorKind {
    /// The options, the plan or the state do not fit each other, the dataset or this machine: change them. Among them
    /// is a pipeline that cannot take an image of the dataset.
    Configuration,
    /// The dataset cannot be opened or read, or is no longer the one that was opened.
    Unavailable,
    /// The dataset has corrupt samples, more than the policy and its limit allow.
    Corrupt,
    /// A drive cannot be used.
    Drive,
    /// There is no memory.
    Memory,
    /// A function of the program, which the pipeline calls, failed.
    Function,
    /// The delivery target failed.
    Delivery,
    /// The operating system refused something other than memory.
    System,
}

impl LoaderError {
    /// Returns the kind of the error.
    pub fn kind(&self) -> LoaderErrorKind {
        match self {
            Self::Options(_)
            | Self::Pipeline(_)
            | Self::Program(_)
            | Self::Plan(_)
            | Self::State(_)
            | Self::Metrics { .. }
            | Self::Fields(_)
            | Self::Misfit(_)
            | Self::Field(_) => LoaderErrorKind::Configuration,
            Self::NoRoom(_) | Self::Unavailable(Unavailable::NoMemory { .. }) => LoaderErrorKind::Memory,
            Self::Dataset(_) | Self::Unavailable(_) | Self::DatasetPanic { .. } | Self::Store { .. } => {
                LoaderErrorKind::Unavailable
            }
            Self::CorruptSample { .. } | Self::NoReplacement { .. } | Self::TooManyCorrupt { .. } => {
                LoaderErrorKind::Corrupt
            }
            Self::Drive { .. } => LoaderErrorKind::Drive,
            Self::Function(_) => LoaderErrorKind::Function,
            Self::Delivery(_) => LoaderErrorKind::Delivery,
            Self::System { source, .. } if source.kind() == ErrorKind::OutOfMemory => LoaderErrorKind::Memory,
            Self::System { .. } => LoaderErrorKind::System,
        }
    }

    /// Returns the error for a sample that cannot be prepared, to which no policy applies.
    pub(crate) fn of_sample(error: Unavailable) -> Self {
        match error {
            Unavailable::Misfit { .. } => Self::Misfit(error),
            Unavailable::Function { .. } => Self::Function(error),
            _ => Self::Unavailable(error),
        }
    }

    /// Returns the error for an epoch's order for which the system refuses memory.
    pub(crate) fn of_order(source: std::io::Error) -> Self {
        match source.kind() {
            std::io::ErrorKind::InvalidInput => Self::Options(source.to_string()),
            _ => Self::System { what: "memory for an epoch's order", source },
        }
    }
}

/// Why a drive cannot be used. The message contains the cause's message, and says what to do. The source is that of the
/// cause.
#[derive(Debug)]
pub struct DriveError {
    message: String,
    cause: Option<Box<dyn Error + Send + Sync>>,
}

impl DriveError {
    /// Creates an error whose `message` includes that of the cause, but not those of the cause's sources.
    pub(crate) fn new(message: String, cause: impl Error + Send + Sync + 'static) -> Self {
        Self { message, cause: Some(Box::new(cause)) }
    }

    /// Creates an error that says what the cause says.
    pub(crate) fn of(cause: impl Error + Send + Sync + 'static) -> Self {
        Self::new(cause.to_string(), cause)
    }

    /// Returns the error from which this one was made. It is no [`source`](Error::source), since the message contains
    /// it.
    pub fn cause(&self) -> Option<&(dyn Error + Send + Sync + 'static)> {
        self.cause.as_deref()
    }
}

impl From<String> for DriveError {
    fn from(message: String) -> Self {
        Self { message, cause: None }
    }
}

impl fmt::Display for DriveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for DriveError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_deref()?.source()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_memory_is_told_from_other_refusals() {
        let system = |kind: ErrorKind| LoaderError::System { what: "a thread", source: kind.into() }.kind();
        assert_eq!(system(ErrorKind::OutOfMemory), LoaderErrorKind::Memory);
        assert_eq!(system(ErrorKind::WouldBlock), LoaderErrorKind::System);
        assert_eq!(LoaderError::NoRoom("no room".into()).kind(), LoaderErrorKind::Memory);
        assert_eq!(LoaderError::Options("no dataset".into()).kind(), LoaderErrorKind::Configuration);
        let gone = Unavailable::Gone { path: "photos".into(), source: ErrorKind::NotFound.into() };
        assert_eq!(LoaderError::Unavailable(gone).kind(), LoaderErrorKind::Unavailable);
    }

    #[test]
    fn a_drives_error_says_why_and_keeps_its_cause() {
        let refused = std::io::Error::from(ErrorKind::ConnectionRefused);
        let cause = ddlp_driver::DriverError::Lost { peer: "tcp://a".into(), source: refused.into() };
        let source = DriveError::new(format!("{cause} (is the agent running there?)"), cause);
        let error = LoaderError::Drive { drive: "csd".into(), source };
        assert_eq!(
            ddlp_cause::with_causes(&error),
            "drive csd cannot be used: no connection to tcp://a (is the agent running there?): connection refused"
        );
        let io_error = error.source().and_then(Error::source).and_then(|source| source.downcast_ref());
        assert_eq!(io_error.map(std::io::Error::kind), Some(ErrorKind::ConnectionRefused));
    }
}
