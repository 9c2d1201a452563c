//! The error of this crate.

use ddlp_cause::Cause;
use ddlp_nvme::Status;
use nix::errno::Errno;
use std::io;
use std::time::Duration;

/// Why a command got no completion.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DriverError {
    /// The connection is gone. Commands in flight may or may not have run.
    #[error("no connection to {peer}")]
    Lost {
        /// Address or node of the controller.
        peer: String,
        /// Cause of the loss.
        source: Cause,
    },
    /// The system's resolver has no address for the peer's name.
    #[error("the name in {peer} cannot be resolved")]
    Unresolved {
        /// Address of the controller.
        peer: String,
        /// The resolver's error.
        source: Cause,
    },
    /// This process, or the whole system, may open no more files, and a connection is one.
    #[error("no connection to {peer}")]
    TooManyFiles {
        /// Address or node of the controller.
        peer: String,
        /// The system's error.
        source: Cause,
    },
    /// The peer did not answer within the time-out. For the caller, the association is over. The user-space driver ends
    /// it; the kernel keeps it, so that commands running on the drive can be cancelled.
    #[error("no answer from {peer} to {what} within {after:?}")]
    TimedOut {
        /// Address or node of the controller.
        peer: String,
        /// Name of the command.
        what: String,
        /// The time-out.
        after: Duration,
    },
    /// Other callers kept the admin queue busy for the whole time-out. The command was never sent, and the association
    /// is intact.
    #[error("the admin queue of {peer} was busy for {after:?}: {what} was not sent")]
    Busy {
        /// Address or node of the controller.
        peer: String,
        /// Name of the command.
        what: String,
        /// The time-out.
        after: Duration,
    },
    /// Another process of this host uses the drive through the same controller.
    #[error("{peer} is in use by another process of this host ({node} is locked)")]
    InUse {
        /// Address or node of the controller.
        peer: String,
        /// The locked node.
        node: String,
    },
    /// This process lacks the permission to open the drive's node.
    #[error("no permission to open {peer}: {what}")]
    Denied {
        /// Path of the node.
        peer: String,
        /// Reason and remedy.
        what: String,
    },
    /// The peer broke the protocol.
    #[error("{peer} broke the protocol")]
    Protocol {
        /// Address or node of the controller.
        peer: String,
        /// How the peer broke it.
        source: Cause,
    },
    /// A command failed that had to succeed.
    #[error("{peer} answered {what} with {status}")]
    Status {
        /// Address or node of the controller.
        peer: String,
        /// Name of the command.
        what: String,
        /// Status with its name, "invalid field (sct 0 sc 02h)".
        status: String,
        /// Raw status field, as in [`crate::Completion::status`].
        code: u16,
    },
    /// The address or the options are invalid.
    #[error("{0}")]
    Invalid(String),
}

impl DriverError {
    /// Returns the error for a socket or node that the system does not open.
    pub(crate) fn not_opened(peer: &str, error: io::Error) -> Self {
        let (peer, errno) = (peer.to_owned(), error.raw_os_error().map(Errno::from_raw));
        match errno {
            Some(Errno::EMFILE | Errno::ENFILE) => Self::TooManyFiles { peer, source: error.into() },
            _ => Self::Lost { peer, source: error.into() },
        }
    }

    /// Returns whether the association is over after this error: connect again.
    pub fn ends_association(&self) -> bool {
        matches!(
            self,
            Self::Lost { .. }
                | Self::Unresolved { .. }
                | Self::TooManyFiles { .. }
                | Self::TimedOut { .. }
                | Self::Protocol { .. }
        )
    }

    /// Returns the cause for which the association ended, without the peer's name if this error is a lost connection
    /// or a time-out; otherwise this error.
    pub fn cause(&self) -> Cause {
        match self {
            Self::Lost { source, .. } => source.clone(),
            Self::TimedOut { what, after, .. } => format!("{what} timed out after {after:?}").into(),
            error => error.clone().into(),
        }
    }

    /// Returns whether the controller answered with this status.
    pub fn is_status(&self, status: Status) -> bool {
        matches!(self, Self::Status { code, .. } if Status(*code).same_code(status))
    }

    /// Returns whether connecting again later may succeed: the peer was absent or silent, or did not set Do Not Retry,
    /// or what arrived from the peer was invalid, which the network may have caused. This includes a node that has just
    /// appeared, which udev gives its owner a moment later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Lost { .. }
            | Self::Unresolved { .. }
            | Self::TooManyFiles { .. }
            | Self::TimedOut { .. }
            | Self::Busy { .. }
            | Self::InUse { .. }
            | Self::Denied { .. }
            | Self::Protocol { .. } => true,
            Self::Status { code, .. } => !Status(*code).is_do_not_retry(),
            Self::Invalid(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_open_files_is_told_from_a_lost_connection() {
        for (errno, is_limit) in
            [(Errno::EMFILE, true), (Errno::ENFILE, true), (Errno::ECONNREFUSED, false), (Errno::EHOSTUNREACH, false)]
        {
            let error = DriverError::not_opened("peer", errno.into());
            assert_eq!(matches!(error, DriverError::TooManyFiles { .. }), is_limit, "{error}");
            assert!(error.is_transient() && error.ends_association(), "{error}");
        }
    }
}
