//! Messages for faults of a drive: what happened, what the loader does about it, and what the user can do. The drive's
//! name is reported beside the message.

use super::link::LinkError;
use super::local::AgentError;
use crate::engine::GivenUp;
use crate::report::FaultKind;
use crate::schedule::BatchId;
use ddlp_cause::with_causes;
use ddlp_csd::slot::SlotError;
use ddlp_driver::DriverError;
use ddlp_nvme::Status;
use std::fmt;
use std::io;
use std::time::Duration;

/// Something that went wrong with a drive.
pub(super) enum DriveFault<'a> {
    /// The drive answered Execute Program with an error.
    Execute(BatchId, Status),
    /// Execute Program could not be sent.
    NotSent(BatchId, &'a DriverError),
    /// The result could not be read.
    NotRead(BatchId, &'a DriverError),
    /// The result is not the requested batch, or is damaged.
    Damaged(BatchId, &'a SlotError),
    /// This machine has no memory to read a result into.
    NoMemory(BatchId, &'a io::Error),
    /// A batch took `times` as long as expected; a local drive works on this machine.
    Slow { id: BatchId, took: Duration, times: f64, is_local: bool },
    /// The association is over.
    Lost(&'a DriverError),
    /// The association to the drive that alone holds the dataset is over.
    LostDataset(&'a DriverError),
    /// The association was dropped when the run went to another position, for this reason.
    NotKept(String),
    /// An optional drive could not be reached at the start.
    Away(&'a LinkError),
    /// The drive came back with fewer result slots.
    FewerSlots { now: u32, before: u32 },
    /// The drive came back, but does not fit or refuses this host.
    Refused(&'a LinkError),
    /// This many associations in a row brought only wrong or damaged results.
    Useless(u32),
    /// The loader's own agent was restarted.
    AgentRestarted,
    /// The loader's own agent does not start.
    AgentFails(&'a AgentError),
    /// The loader's own agent was started this many times without success.
    AgentGivenUp(u32),
}

const CPU_DOES: &str = "the CPU prepares it";
const AGENT_LOG: &str = "the agent's log may say why";
const WITHOUT: &str = "the run continues without the drive";

impl DriveFault<'_> {
    /// Returns what kind of fault or recovery this is.
    pub fn kind(&self) -> FaultKind {
        match self {
            Self::Execute(..) | Self::NotSent(..) | Self::NotRead(..) => FaultKind::Status,
            Self::Damaged(..) => FaultKind::Damaged,
            Self::NoMemory(..) => FaultKind::Memory,
            Self::Slow { .. } => FaultKind::Slow,
            Self::Lost(DriverError::TimedOut { .. }) | Self::LostDataset(DriverError::TimedOut { .. }) => {
                FaultKind::Timeout
            }
            Self::Lost(_) | Self::LostDataset(_) | Self::NotKept(_) | Self::Away(_) => FaultKind::Lost,
            Self::FewerSlots { .. } | Self::Refused(_) | Self::Useless(_) | Self::AgentGivenUp(_) => FaultKind::Refused,
            Self::AgentRestarted => FaultKind::Restart,
            Self::AgentFails(_) => FaultKind::Start,
        }
    }

    /// Returns this fault as the reason to give its batch to the CPU.
    pub fn given_up(&self) -> GivenUp {
        GivenUp::Failed { kind: self.kind(), what: self.to_string() }
    }
}

/// Formats a time: `937 ms`, `2.0 s`.
fn time(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds < 0.9995 => format!("{:.0} ms", seconds * 1000.0),
        seconds => format!("{seconds:.1} s"),
    }
}

impl fmt::Display for DriveFault<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |id: &BatchId| format!("epoch {} batch {}", id.epoch, id.batch);
        match self {
            Self::Execute(id, status) => {
                write!(f, "the drive could not prepare {}: {status}; {CPU_DOES}; {AGENT_LOG}", of(id))
            }
            Self::NotSent(id, error) => {
                let error = with_causes(*error);
                write!(f, "the request for {} could not be sent: {error}; {CPU_DOES}; {AGENT_LOG}", of(id))
            }
            Self::NotRead(id, error) => {
                let error = with_causes(*error);
                write!(f, "the result of {} could not be read: {error}; {CPU_DOES}; {AGENT_LOG}", of(id))
            }
            Self::Damaged(id, error) => write!(
                f,
                "the result of {} is damaged: {error}; {CPU_DOES}; if this happens again, check the drive's memory \
                 and the network",
                of(id)
            ),
            Self::NoMemory(id, error) => write!(
                f,
                "this machine has no memory for the result of {}: {error}; {CPU_DOES}; use fewer buffers or smaller \
                 batches",
                of(id)
            ),
            Self::Slow { id, took, times, is_local } => write!(
                f,
                "{} took {}, {times:.0} times as long as earlier batches; the schedule adapts to the new speed; the \
                 cause may be a very large image, or other work on {}",
                of(id),
                time(*took),
                if *is_local { "this machine" } else { "the drive or the network" }
            ),
            Self::Lost(error @ DriverError::TimedOut { .. }) => write!(
                f,
                "{error}; other prongs prepare the drive's batches, and the run tries to reconnect; if the drive is \
                 only slow, give it more time (`drive_timeout_s`)"
            ),
            Self::Lost(error) => write!(
                f,
                "{}; other prongs prepare the drive's batches, and the run tries to reconnect; check that the drive's \
                 agent runs and that the network is up",
                with_causes(*error)
            ),
            Self::LostDataset(error) => write!(
                f,
                "{}; this drive holds the dataset, so the CPU prepares nothing until the drive answers; the run tries \
                 to reconnect, and ends if the drive stays silent; check that the drive's agent runs and that the \
                 network is up",
                with_causes(*error)
            ),
            Self::NotKept(reason) => write!(
                f,
                "{reason} when the run went to another position; the run connects to the drive again; check that the \
                 drive's agent runs and that the network is up"
            ),
            Self::Away(error) => {
                let error = with_causes(*error);
                write!(f, "{error}; the run begins without the drive, which joins as soon as it can be reached")
            }
            Self::FewerSlots { now, before } => write!(
                f,
                "the drive came back with {now} result slots instead of {before}; {WITHOUT}; start its agent with \
                 --slots {before}"
            ),
            Self::Refused(error) => {
                let error = with_causes(*error);
                write!(
                    f,
                    "the drive came back, but cannot be used any more: {error}; {WITHOUT}; begin a new run to use it \
                     again"
                )
            }
            Self::Useless(times) => write!(
                f,
                "{times} connections in a row brought only wrong or damaged results; {WITHOUT}; check the drive's \
                 copy of the dataset (`ddlp verify` there), its memory and the network, and that its agent is of this \
                 version"
            ),
            Self::AgentRestarted => {
                write!(f, "the drive's agent had ended or hung, and was started again; {AGENT_LOG}")
            }
            Self::AgentFails(error) => {
                let error = with_causes(*error);
                write!(f, "the drive's agent does not start: {error}; the run tries again to start it")
            }
            Self::AgentGivenUp(times) => {
                write!(
                    f,
                    "the drive's agent was started {times} times without success; {WITHOUT}; {AGENT_LOG} \
                     (RUST_LOG=ddlp_device=info)"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_say_what_happened_what_is_done_and_what_helps() {
        let id = BatchId { epoch: 1, batch: 7 };
        let peer = || "10.0.0.7:4420".to_string();
        let lost = DriverError::Lost { peer: peer(), source: "connection refused".into() };
        let timed_out =
            DriverError::TimedOut { peer: peer(), what: "Execute Program".into(), after: Duration::from_secs(30) };
        let memory = io::Error::from(io::ErrorKind::OutOfMemory);
        let away = LinkError::Driver(DriverError::Lost { peer: peer(), source: "connection refused".into() });
        let refused = LinkError::Refused("it holds another dataset".into());
        let table = [
            (DriveFault::Execute(id, Status::INTERNAL), FaultKind::Status, "internal error", "CPU", "log"),
            (DriveFault::NotSent(id, &lost), FaultKind::Status, "could not be sent", "CPU", "log"),
            (DriveFault::NotRead(id, &lost), FaultKind::Status, "could not be read", "CPU", "log"),
            (
                DriveFault::Damaged(id, &SlotError::Table),
                FaultKind::Damaged,
                "sample table is damaged",
                "CPU",
                "memory",
            ),
            (DriveFault::NoMemory(id, &memory), FaultKind::Memory, "out of memory", "CPU", "smaller batches"),
            (
                DriveFault::Slow { id, took: Duration::from_secs(2), times: 9.0, is_local: false },
                FaultKind::Slow,
                "2.0 s, 9 times",
                "adapts",
                "the network",
            ),
            (
                DriveFault::Slow { id, took: Duration::from_micros(937_400), times: 8.0, is_local: true },
                FaultKind::Slow,
                "937 ms, 8 times",
                "a very large image",
                "work on this machine",
            ),
            (DriveFault::Lost(&lost), FaultKind::Lost, "connection refused", "tries to reconnect", "agent runs"),
            (
                DriveFault::LostDataset(&lost),
                FaultKind::Lost,
                "connection refused",
                "ends if the drive stays silent",
                "agent runs",
            ),
            (
                DriveFault::LostDataset(&timed_out),
                FaultKind::Timeout,
                "Execute Program",
                "holds the dataset",
                "network",
            ),
            (
                DriveFault::Lost(&timed_out),
                FaultKind::Timeout,
                "Execute Program within 30s",
                "tries to reconnect",
                "`drive_timeout_s`",
            ),
            (
                DriveFault::NotKept("no end".into()),
                FaultKind::Lost,
                "no end when",
                "connects to the drive again",
                "agent runs",
            ),
            (
                DriveFault::Away(&away),
                FaultKind::Lost,
                "connection refused",
                "begins without the drive",
                "can be reached",
            ),
            (
                DriveFault::FewerSlots { now: 2, before: 4 },
                FaultKind::Refused,
                "2 result slots",
                "continues without",
                "--slots 4",
            ),
            (DriveFault::Refused(&refused), FaultKind::Refused, "another dataset", "continues without", "new run"),
            (DriveFault::Useless(3), FaultKind::Refused, "3 connections", "continues without", "network"),
            (DriveFault::AgentRestarted, FaultKind::Restart, "had ended or hung", "started again", "log"),
            (DriveFault::AgentFails(&AgentError::NotFound), FaultKind::Start, "ddlp-device", "tries again", "build it"),
            (
                DriveFault::AgentGivenUp(10),
                FaultKind::Refused,
                "10 times without success",
                "continues without",
                "RUST_LOG",
            ),
        ];
        for (fault, kind, happened, done, helps) in &table {
            let text = fault.to_string();
            assert_eq!(fault.kind(), *kind, "{text}");
            for part in [happened, done, helps] {
                assert!(text.contains(part), "{part}: {text}");
            }
            use FaultKind::{Damaged, Memory, Slow, Status as Refusal};
            let batch = matches!(kind, Refusal | Damaged | Memory | Slow);
            assert_eq!(text.contains("epoch 1 batch 7"), batch, "{text}");
        }
    }
}
