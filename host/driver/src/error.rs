//! Why a command got no completion.

use ddlp_nvme::Status;
use std::time::Duration;

/// Why a command got no completion.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The connection is gone; whatever was in flight may or may not have run.
    #[error("no connection to {peer}: {reason}")]
    Lost {
        /// Address or node.
        peer: String,
        /// What happened.
        reason: String,
    },
    /// No answer within the time-out. To the caller the association is over; the user-space driver ends it, under the kernel's
    /// it goes on, so that what runs there can be cancelled.
    #[error("no answer from {peer} to {what} within {after:?}")]
    TimedOut {
        /// Address or node.
        peer: String,
        /// The command.
        what: String,
        /// The time-out.
        after: Duration,
    },
    /// Other callers kept the admin queue busy for the whole time-out; the command was never sent and nothing is broken.
    #[error("admin queue of {peer} busy for {after:?}, {what} not sent")]
    Busy {
        /// Address or node.
        peer: String,
        /// The command.
        what: String,
        /// The time-out.
        after: Duration,
    },
    /// Another process of this host uses the drive through the same controller.
    #[error("{peer} is in use by another process of this host ({node} is locked)")]
    InUse {
        /// Address or node.
        peer: String,
        /// The node that is locked.
        node: String,
    },
    /// This process may not open the drive's node.
    #[error("{peer} may not be opened: {what}")]
    Denied {
        /// The node.
        peer: String,
        /// Why, and what to do.
        what: String,
    },
    /// The peer broke the protocol.
    #[error("{peer} broke the protocol: {what}")]
    Protocol {
        /// Address or node.
        peer: String,
        /// How.
        what: String,
    },
    /// A command that had to succeed did not.
    #[error("{peer} answered {what} with {status}")]
    Status {
        /// Address or node.
        peer: String,
        /// The command.
        what: String,
        /// Status with its name, "invalid field (sct 0 sc 02h)".
        status: String,
        /// Raw status field as in [`crate::Completion::status`].
        code: u16,
    },
    /// The address or the options make no sense.
    #[error("{0}")]
    Invalid(String),
}

impl DriverError {
    /// After this error nothing more is to be expected of the association: connect anew.
    pub fn ends_association(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::TimedOut { .. } | Self::Protocol { .. })
    }

    /// The controller answered with this status.
    pub fn is_status(&self, status: Status) -> bool {
        matches!(self, Self::Status { code, .. } if Status(*code).same_code(status))
    }

    /// Connecting again later may succeed: the peer was not there, was silent, or did not say Do Not Retry; a node that has just been
    /// made gets its owner from udev a moment later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Lost { .. }
            | Self::TimedOut { .. }
            | Self::Busy { .. }
            | Self::InUse { .. }
            | Self::Denied { .. } => true,
            Self::Status { code, .. } => !Status(*code).is_do_not_retry(),
            Self::Protocol { .. } | Self::Invalid(_) => false,
        }
    }
}
