//! One association with a drive, from the connection to the activated program.

use super::round_trip;
use crate::schedule::BatchId;
use ddlp_csd::abilities::{AgreedDecoders, Disagreement};
use ddlp_csd::cancel::CancelBatch;
use ddlp_csd::log::{COUNTERS_LOG, Counters, DriveIdentity, IDENTITY_LOG, LOG_BYTES, LogError};
use ddlp_csd::program::{DriveProgram, program_id};
use ddlp_csd::request::BatchRequest;
use ddlp_csd::{BLOCK_BYTES, CANCEL_OPCODE, COMPUTE_NSID, PROGRAM_TYPE, RESULTS_NSID};
use ddlp_dataset::{Identity, ability_name, beginnings};
use ddlp_driver::program::ProgramSlot;
use ddlp_driver::{
    AdminData, BlockRead, Command, Completion, Controller, DriverError, Queue, Ticket, logpage, namespace, program,
};
use ddlp_nvme::{Csi, LogId, Status};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Longest wait for an admin command.
pub(crate) const ADMIN_WITHIN: Duration = Duration::from_secs(5);
/// Longest wait for an admin command at the end of a run, when the answer no longer matters.
pub(crate) const LEAVE_WITHIN: Duration = Duration::from_secs(1);

/// The host's requirements for a drive.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    pub dataset: [u8; 32],
    /// Program of each bucket, and what the drive needs for it.
    pub programs: Vec<DriveProgram>,
    /// Least size of a slot.
    pub slot_bytes: usize,
}

/// Why a drive cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    /// An error of the driver. If it is transient, the drive may work again later.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// A refusal that lasts until somebody acts on it.
    #[error("{0}")]
    Refused(String),
}

impl LinkError {
    /// Returns whether the drive is away, so that it may come later. The drive is not away if it refuses this host or
    /// does not fit, no drive has this NQN, or something other than a drive answers.
    pub fn is_unreachable(&self) -> bool {
        let Self::Driver(error) = self else { return false };
        let is_refusal = matches!(error, DriverError::Denied { .. } | DriverError::Protocol { .. })
            || error.is_status(Status::CONNECT_PARAMETERS)
            || error.is_status(Status::CONNECT_INVALID_HOST);
        error.is_transient() && !is_refusal
    }
}

/// An association that is ready to execute batches.
pub(crate) struct DriveLink {
    controller: Arc<dyn Controller>,
    queue: Box<dyn Queue>,
    pub identity: DriveIdentity,
    /// Decoders that the drive may use. It leaves other samples to the host.
    pub agreed: AgreedDecoders,
    /// Identifier of the program of each bucket.
    pub programs: Vec<u64>,
    /// Time in which the drive answers a command; zero if it is near.
    pub round_trip: Duration,
}

/// Returns the place of a bucket's program on the drive.
fn program_slot(bucket: usize) -> ProgramSlot {
    ProgramSlot { nsid: COMPUTE_NSID, index: bucket as u16 }
}

impl DriveLink {
    /// Checks that the drive meets the requirements, loads the programs, and opens a queue for `depth` batches in
    /// work.
    pub fn open(controller: Arc<dyn Controller>, expected: &Expected, depth: usize) -> Result<Self, LinkError> {
        let mut page = [0; LOG_BYTES];
        let asked = Instant::now();
        logpage::read(&*controller, LogId(IDENTITY_LOG), Csi::NVM, &mut page, ADMIN_WITHIN)?;
        let first = asked.elapsed();
        let identity = DriveIdentity::parse(&page).map_err(|error| match error {
            LogError::Checksum { .. } => {
                let how = format!("its identity log is damaged: {error}");
                DriverError::Protocol { peer: controller.peer().into(), source: how.into() }.into()
            }
            LogError::Version { found, known } if found < known => {
                LinkError::Refused(format!("{error}: update ddlp-device there"))
            }
            LogError::Version { .. } => LinkError::Refused(format!("{error}: update this program")),
            LogError::Length(_) | LogError::Magic(_) | LogError::Abilities => {
                LinkError::Refused(format!("it is not a DDLP drive: its identity log is invalid: {error}"))
            }
        })?;
        let agreed = check_identity(&identity, expected)?;
        let asked = Instant::now();
        let results = namespace::geometry(&*controller, RESULTS_NSID, ADMIN_WITHIN)?;
        let round_trip = round_trip([first, asked.elapsed()]);
        check_capacity(&identity, u128::from(results.blocks) * u128::from(results.block_bytes))?;
        let refused = |error: ddlp_csd::program::ProgramError| LinkError::Refused(error.to_string());
        // Open the queue first: its owner has the drive to itself, and may replace the drive's programs.
        let queue = controller.open_queue(depth)?;
        let mut programs = Vec::new();
        for (bucket, program) in expected.programs.iter().enumerate() {
            let bytes = program.to_bytes().map_err(refused)?;
            let id = program_id(&expected.dataset, &bytes);
            program::replace(&*controller, program_slot(bucket), PROGRAM_TYPE, id, &bytes, ADMIN_WITHIN).map_err(
                |error| match error.is_status(Status::INVALID_PROGRAM_INDEX) {
                    true => LinkError::Refused(format!(
                        "it keeps {bucket} programs, but the run has {} buckets, which need a program each: use fewer \
                         buckets, or update ddlp-device there",
                        expected.programs.len()
                    )),
                    false => error.into(),
                },
            )?;
            programs.push(id);
        }
        Ok(Self { queue, controller, identity, agreed, programs, round_trip })
    }

    /// Submits a batch request for a bucket. For `within` see [`Queue::submit`].
    pub fn execute(&mut self, bucket: usize, request: &BatchRequest, within: Duration) -> Result<Ticket, DriverError> {
        let (batch, slot) = request.parameters();
        let command = program::execute(program_slot(bucket), batch, slot);
        self.queue.submit(&command, request.to_bytes(), within)
    }

    /// Returns the next Execute command that completed; `None` if none completes before `until`.
    pub fn poll(&mut self, until: Instant) -> Result<Option<(Ticket, Completion)>, DriverError> {
        self.queue.poll(until)
    }

    /// Returns a function by which another thread ends the association.
    pub fn closing(&self) -> Box<dyn Fn() + Send> {
        closing(&self.controller)
    }

    /// Asks the drive to stop work on a batch; its Execute completes with an abort status.
    pub fn cancel(&self, id: BatchId, within: Duration) -> Result<(), DriverError> {
        self.controller.admin(&cancel_command(id), AdminData::None, within).map(|_| ())
    }

    /// Reads the beginning of a slot and the bytes behind it, both whole blocks, in one round trip.
    pub fn read_slot(
        &mut self,
        slot: u32,
        head: &mut [u8],
        rows: &mut [u8],
        within: Duration,
    ) -> Result<(), DriverError> {
        let lba = u64::from(slot) * self.identity.slot_bytes / BLOCK_BYTES as u64;
        let behind = lba + (head.len() / BLOCK_BYTES) as u64;
        let mut reads = [BlockRead { lba, buf: head }, BlockRead { lba: behind, buf: rows }];
        self.queue.read_many(RESULTS_NSID, &mut reads, within)
    }

    /// Reads the drive's counters; `None` if they cannot be read.
    pub fn counters(&self) -> Option<Counters> {
        let mut page = [0; LOG_BYTES];
        logpage::read(&*self.controller, LogId(COUNTERS_LOG), Csi::NVM, &mut page, LEAVE_WITHIN).ok()?;
        Counters::parse(&page).ok()
    }

    pub fn is_alive(&self) -> bool {
        self.controller.is_alive()
    }
}

/// Returns a function by which another thread ends the association.
pub(super) fn closing(controller: &Arc<dyn Controller>) -> Box<dyn Fn() + Send> {
    let controller: Weak<dyn Controller> = Arc::downgrade(controller);
    Box::new(move || {
        if let Some(controller) = controller.upgrade() {
            controller.close();
        }
    })
}

/// Checks that the result namespace holds all slots that the drive reports.
fn check_capacity(identity: &DriveIdentity, namespace_bytes: u128) -> Result<(), LinkError> {
    let (slots, slot_bytes) = (identity.slots, identity.slot_bytes);
    if slot_bytes.is_multiple_of(BLOCK_BYTES as u64) && u128::from(slots) * u128::from(slot_bytes) <= namespace_bytes {
        return Ok(());
    }
    Err(LinkError::Refused(format!(
        "it reports {slots} result slots of {slot_bytes} bytes, which its result namespace of {namespace_bytes} bytes \
         cannot hold"
    )))
}

/// Checks that the drive fits the run, and returns the decoders on which it agrees with the host.
fn check_identity(identity: &DriveIdentity, expected: &Expected) -> Result<AgreedDecoders, LinkError> {
    if identity.dataset != expected.dataset {
        let [found, wanted] = [identity.dataset, expected.dataset].map(Identity::from_bytes);
        let [found, wanted] = beginnings([&found, &wanted]);
        return Err(LinkError::Refused(format!(
            "it holds another dataset: the identity of its dataset begins with {found}, that of this run's dataset \
             with {wanted}; serve this run's file from the drive (`ddlp inspect` prints a file's identity; packs of \
             one source in different forms have different identities)"
        )));
    }
    // All programs have the same decoders, but each needs operations of its own.
    let mut agreed = AgreedDecoders::ALL;
    for program in &expected.programs {
        let agree = program.agree(&identity.abilities);
        agreed = agree.map_err(|differs| LinkError::Refused(explain(&differs, &identity.agent_version())))?;
    }
    if identity.slots == 0 || (identity.slot_bytes as usize) < expected.slot_bytes {
        return Err(LinkError::Refused(format!(
            "its {} result slots have {} bytes each, but a batch needs {}: start its agent with --slot-bytes {}, or \
             use smaller batches",
            identity.slots,
            identity.slot_bytes,
            expected.slot_bytes,
            expected.slot_bytes.next_multiple_of(BLOCK_BYTES)
        )));
    }
    Ok(agreed)
}

/// Explains why a drive cannot do what the run needs: which ability differs, and the versions on both sides.
fn explain(Disagreement { needed, found }: &Disagreement, agent: &str) -> String {
    let (needs, own) = (ability_name(needed.number), env!("CARGO_PKG_VERSION"));
    let remedy = "run the same version on both sides, or do without it in this run";
    match found {
        None => {
            format!("its ddlp-device {agent} lacks {needs}, which this run needs: this ddlp {own} has it; {remedy}")
        }
        Some(found) => {
            let [found, needed] =
                [found, needed].map(|ability| format!("{:032x}", u128::from_be_bytes(ability.digest)));
            let [found, needed] = beginnings([&found, &needed]);
            format!(
                "it makes other pixels: {needs} differs between its ddlp-device {agent}, whose digest begins with \
                 {found}, and this ddlp {own}, whose digest begins with {needed}; {remedy}"
            )
        }
    }
}

fn cancel_command(id: BatchId) -> Command {
    let cancel = CancelBatch { epoch: id.epoch, batch: id.batch };
    let name = Some("cancel batch");
    Command { opcode: CANCEL_OPCODE, cdw10_15: cancel.dwords(), name, ..Command::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddlp_csd::program::{CorruptPolicy, Program};
    use ddlp_dataset::{Decoder, abilities};
    use ddlp_pixels::{Ability, Format, Limits, Pipeline};

    #[test]
    fn messages_name_the_cancel_command() {
        assert_eq!(cancel_command(BatchId { epoch: 1, batch: 2 }).name, Some("cancel batch"));
    }

    fn identity(slots: u32, slot_bytes: u64) -> DriveIdentity {
        DriveIdentity {
            dataset: [0; 32],
            dataset_samples: 1,
            abilities: abilities().to_vec(),
            agent: DriveIdentity::version_field("0.0.7"),
            slot_bytes,
            slots,
            workers: 1,
        }
    }

    fn expected(dataset: [u8; 32]) -> Expected {
        let program =
            Program { pipeline: Pipeline::imagenet_train(), limits: Limits::default(), policy: CorruptPolicy::Fail };
        let decoders = [Decoder::File(Format::Jpeg)].into_iter().collect();
        Expected { dataset, programs: vec![DriveProgram::new(program, decoders)], slot_bytes: 4096 }
    }

    #[test]
    fn a_drive_is_refused_for_what_the_run_needs_and_for_nothing_else() {
        let check = |change: &dyn Fn(&mut Vec<Ability>)| {
            let mut identity = identity(4, 8192);
            change(&mut identity.abilities);
            check_identity(&identity, &expected([0; 32])).map_err(|error| error.to_string())
        };
        let lacks = |number: u16| check(&move |list| list.retain(|ability| ability.number.0 != number));
        assert!(lacks(0x0106).is_ok() && lacks(0x0206).is_ok() && lacks(0x0301).is_ok());
        let said = lacks(0x0104).unwrap_err();
        assert!(said.contains("ddlp-device 0.0.7 lacks the operation RandomHorizontalFlip"), "{said}");
        assert!(lacks(0x0200).unwrap_err().contains("lacks the decoder of JPEG files"));
        let of = |list: &[Ability], number: u16| list.iter().position(|ability| ability.number.0 == number).unwrap();
        let differs = |number: u16| {
            check(&move |list| {
                let at = of(list, number);
                list[at].digest = [0xAB; 16];
            })
        };
        let said = differs(0x0100).unwrap_err();
        let own = ddlp_dataset::beginning_of(&abilities()[of(abilities(), 0x0100)].digest);
        for part in ["the operation RandomResizedCrop differs", "with abababababab", &own, env!("CARGO_PKG_VERSION")] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(differs(0x0106).is_ok(), "nothing is blurred");
    }

    #[test]
    fn another_dataset_is_refused_with_what_to_compare_and_to_do() {
        let said = check_identity(&identity(4, 8192), &expected([0xAB; 32])).unwrap_err().to_string();
        assert!(
            said.contains("dataset begins with 000000000000, that of this run's dataset with abababababab;"),
            "{said}"
        );
        assert!(said.contains("ddlp inspect"), "{said}");
    }

    #[test]
    fn a_peer_that_breaks_the_protocol_is_no_drive_at_first_and_is_tried_again_later() {
        let error =
            DriverError::Protocol { peer: "10.0.0.7:4420".into(), source: "its first answer is no ICResp".into() };
        assert!(error.is_transient());
        assert!(!LinkError::Driver(error).is_unreachable());
    }

    #[test]
    fn slots_that_the_namespace_cannot_hold_are_refused() {
        assert!(check_capacity(&identity(4, 8192), 4 * 8192).is_ok());
        for (slots, slot_bytes) in [(5, 8192), (4, 8193), (u32::MAX, 1 << 63), (2, u64::MAX)] {
            assert!(check_capacity(&identity(slots, slot_bytes), 4 * 8192).is_err(), "{slots} of {slot_bytes}");
        }
    }
}
