use super::*;
use ddlp_nvme::SglDescriptor;
use ddlp_nvme::tcp::encode::DataPiece;
use ddlp_nvme::tcp::{CapsuleCommand, IcReq, PduType};
use proptest::prelude::*;

const NONE: Digests = Digests::NONE;
const BOTH: Digests = Digests { header: true, data: true };

/// Receiver that records the session's calls, and asks for as much data as the SGL has.
#[derive(Default)]
struct Mock {
    ready: Option<Agreement>,
    sent: Vec<Vec<u8>>,
    ran: Vec<(u16, Vec<u8>)>,
    rejected: Vec<(u16, Status)>,
    begun: usize,
    limit: Option<usize>,
}

impl CommandHandler for Mock {
    fn begin(&mut self, command: &SubmissionEntry) -> Result<Result<usize, Status>, FatalError> {
        self.begun += 1;
        if self.limit.is_some_and(|limit| self.begun > limit) {
            return Err(FatalError { status: FatalStatus::SEQUENCE, info: 0 });
        }
        let bytes = command.data.length.get() as usize;
        Ok(if bytes > 2 << 20 { Err(Status::SGL_DATA_LENGTH) } else { Ok(bytes) })
    }

    fn run(&mut self, command: &SubmissionEntry, data: &[u8]) {
        self.ran.push((command.command_id.get(), data.to_vec()));
    }

    fn reject(&mut self, command: &SubmissionEntry, status: Status) {
        self.rejected.push((command.command_id.get(), status));
    }

    fn ready(&mut self, setup: Agreement) {
        self.ready = Some(setup);
    }

    fn send(&mut self, pdu: Encoded) {
        self.sent.push(pdu.to_vec());
    }
}

fn started(digests: Digests) -> (Session, Mock) {
    let (mut session, mut mock) = (Session::default(), Mock::default());
    session.feed(&IcReq::new(digests).encode(), &mut mock).unwrap();
    assert_eq!(mock.ready, Some(Agreement { digests, alignment: Alignment::NONE }));
    assert_eq!(mock.sent.len(), 1);
    assert_eq!((mock.sent[0].len(), mock.sent[0][0]), (128, PduType::IC_RESP.0));
    mock.sent.clear();
    (session, mock)
}

fn entry(id: u16, sgl: SglDescriptor) -> SubmissionEntry {
    SubmissionEntry { command_id: id.into(), data: sgl, ..SubmissionEntry::default() }
}

fn digest(digests: Digests, data: &[u8]) -> Vec<u8> {
    let mut digest = DataDigest::new();
    digest.update(data);
    if digests.data && !data.is_empty() { digest.wire().to_vec() } else { Vec::new() }
}

fn capsule(id: u16, data: &[u8], digests: Digests) -> Vec<u8> {
    let entry = entry(id, SglDescriptor::in_capsule(data.len() as u32));
    [&CapsuleCommand::encode(&entry, data.len() as u32, digests)[..], data, &digest(digests, data)].concat()
}

fn transfer(id: u16, bytes: u32, digests: Digests) -> Vec<u8> {
    CapsuleCommand::encode(&entry(id, SglDescriptor::transport(bytes)), 0, digests).to_vec()
}

fn piece(id: u16, tag: u16, offset: usize, data: &[u8], last: bool, digests: Digests) -> Vec<u8> {
    let header = DataPiece { command_id: id, offset: offset as u32, length: data.len() as u32, last };
    [&header.encode_to_controller(tag, digests)[..], data, &digest(digests, data)].concat()
}

fn r2t(pdu: &[u8]) -> ReadyToTransfer {
    assert_eq!(pdu[0], PduType::READY_TO_TRANSFER.0);
    *ddlp_nvme::view::<ReadyToTransfer>(pdu, "r2t").unwrap()
}

fn fes(result: Result<(), SessionEnd>) -> FatalStatus {
    match result {
        Err(SessionEnd::Violation(error)) => error.status,
        other => panic!("expected a violation, got {other:?}"),
    }
}

#[test]
fn in_capsule_data_is_whole_and_checked() {
    for digests in [NONE, BOTH, Digests { header: true, data: false }, Digests { header: false, data: true }] {
        let (mut session, mut mock) = started(digests);
        let data: Vec<u8> = (0..=255).collect();
        // Byte by byte, since the result must not depend on how the bytes are split.
        for byte in capsule(7, &data, digests).chunks(1) {
            session.feed(byte, &mut mock).unwrap();
        }
        assert_eq!(mock.ran, [(7, data)]);
        assert_eq!(session.partial(), None);
    }
}

#[test]
fn damaged_data_fails_its_command_only() {
    let (mut session, mut mock) = started(BOTH);
    let mut bytes = capsule(7, &[1, 2, 3], BOTH);
    *bytes.last_mut().unwrap() ^= 1;
    session.feed(&bytes, &mut mock).unwrap();
    session.feed(&capsule(8, &[4], BOTH), &mut mock).unwrap();
    assert_eq!(mock.rejected, [(7, Status::TRANSIENT_TRANSPORT)]);
    assert_eq!(mock.ran, [(8, vec![4])]);
    session.feed(&transfer(9, 8, BOTH), &mut mock).unwrap();
    let tag = r2t(&mock.sent[0]).tag.get();
    let mut damaged = piece(9, tag, 0, &[5; 4], false, BOTH);
    *damaged.last_mut().unwrap() ^= 1;
    session.feed(&damaged, &mut mock).unwrap();
    session.feed(&piece(9, tag, 4, &[5; 4], true, BOTH), &mut mock).unwrap();
    assert_eq!(mock.rejected[1], (9, Status::TRANSIENT_TRANSPORT));
}

#[test]
fn a_damaged_header_ends_the_connection() {
    let (mut session, mut mock) = started(BOTH);
    let mut bytes = transfer(7, 0, BOTH);
    bytes[20] ^= 1;
    assert_eq!(fes(session.feed(&bytes, &mut mock)), FatalStatus::HEADER_DIGEST);
    assert!(mock.ran.is_empty());
}

#[test]
fn one_r2t_covers_a_command_and_pieces_make_its_data() {
    for digests in [NONE, BOTH] {
        let (mut session, mut mock) = started(digests);
        session.feed(&transfer(5, 300_000, digests), &mut mock).unwrap();
        let request = r2t(&mock.sent[0]);
        assert_eq!((request.command_id.get(), request.offset.get(), request.length.get()), (5, 0, 300_000));
        let data: Vec<u8> = (0..300_000u32).map(|i| i as u8).collect();
        let chunk = H2C_DATA_BYTES_MAX as usize;
        for (number, part) in data.chunks(chunk).enumerate() {
            let last = (number + 1) * chunk >= data.len();
            session.feed(&piece(5, request.tag.get(), number * chunk, part, last, digests), &mut mock).unwrap();
        }
        assert_eq!(mock.ran, [(5, data)]);
        assert_eq!(mock.sent.len(), 1, "a second R2T is a protocol error for Linux 6.12");
    }
}

#[test]
fn r2ts_wait_for_their_turn() {
    let (mut session, mut mock) = started(NONE);
    let half = (TRANSFER_BYTES_MAX / 2) as u32;
    for id in 0..4 {
        session.feed(&transfer(id, half, NONE), &mut mock).unwrap();
    }
    assert_eq!(mock.sent.len(), 2, "as many as fit the bound");
    let tag = r2t(&mock.sent[1]).tag.get();
    let mut offset = 0;
    while offset < half as usize {
        let chunk = vec![1; (half as usize - offset).min(H2C_DATA_BYTES_MAX as usize)];
        let last = offset + chunk.len() == half as usize;
        session.feed(&piece(1, tag, offset, &chunk, last, NONE), &mut mock).unwrap();
        offset += chunk.len();
    }
    assert_eq!(mock.ran.len(), 1);
    assert_eq!(mock.sent.len(), 3);
    assert_eq!(r2t(&mock.sent[2]).command_id.get(), 2);
    // Data larger than the limit is asked for when nothing else is outstanding.
    let (mut session, mut mock) = started(NONE);
    session.feed(&transfer(0, TRANSFER_BYTES_MAX as u32 + 1, NONE), &mut mock).unwrap();
    assert_eq!(mock.sent.len(), 1);
}

#[test]
fn each_violation_has_its_fatal_status() {
    let after_r2t = |bytes: Vec<u8>| {
        let (mut session, mut mock) = started(NONE);
        session.feed(&transfer(5, 100, NONE), &mut mock).unwrap();
        assert_eq!(r2t(&mock.sent[0]).tag.get(), 1);
        fes(session.feed(&bytes, &mut mock))
    };
    assert_eq!(after_r2t(piece(5, 2, 0, &[0; 100], true, NONE)), FatalStatus::HEADER, "unknown tag");
    assert_eq!(after_r2t(piece(6, 1, 0, &[0; 100], true, NONE)), FatalStatus::HEADER, "another command");
    assert_eq!(after_r2t(piece(5, 1, 4, &[0; 96], true, NONE)), FatalStatus::DATA_RANGE, "a gap");
    assert_eq!(after_r2t(piece(5, 1, 0, &[0; 101], true, NONE)), FatalStatus::DATA_RANGE, "too much");
    assert_eq!(after_r2t(piece(5, 1, 0, &[0; 99], true, NONE)), FatalStatus::SEQUENCE, "last too early");
    assert_eq!(after_r2t(piece(5, 1, 0, &[0; 100], false, NONE)), FatalStatus::SEQUENCE, "last missing");
    let too_long = vec![0; H2C_DATA_BYTES_MAX as usize + 4];
    assert_eq!(after_r2t(piece(5, 1, 0, &too_long, true, NONE)), FatalStatus::LIMIT, "beyond maxh2cdata");
    assert_eq!(after_r2t(IcReq::new(NONE).encode().to_vec()), FatalStatus::SEQUENCE, "set up twice");
    let (mut session, mut mock) = (Session::default(), Mock::default());
    assert_eq!(fes(session.feed(&transfer(1, 0, NONE), &mut mock)), FatalStatus::SEQUENCE, "before setup");
    let (mut session, mut mock) = (Session::default(), Mock::default());
    let aligned = IcReq { data_alignment_z: 32, ..IcReq::new(NONE) };
    assert_eq!(fes(session.feed(&aligned.encode(), &mut mock)), FatalStatus::PARAMETER);
}

#[test]
fn a_pdu_keeps_its_number_until_it_is_complete() {
    let (mut session, mut mock) = started(BOTH);
    let mut numbers = Vec::new();
    for pdu in [capsule(1, b"12345678", BOTH), transfer(2, 100, BOTH), capsule(3, b"", BOTH)] {
        let (last, others) = pdu.split_last().unwrap();
        for byte in others {
            session.feed(&[*byte], &mut mock).unwrap();
            numbers.push(session.partial().expect("it came in part"));
        }
        session.feed(&[*last], &mut mock).unwrap();
        assert_eq!(session.partial(), None);
    }
    numbers.dedup();
    assert_eq!(numbers.len(), 3, "one for each PDU: {numbers:?}");
}

#[test]
fn a_host_may_end_the_connection_itself() {
    let (mut session, mut mock) = started(NONE);
    let reason = FatalError { status: FatalStatus::DATA_RANGE, info: 3 };
    let bytes = reason.encode(Role::Host, &[0; 24]);
    assert_eq!(session.feed(&bytes, &mut mock), Err(SessionEnd::Host(reason)));
}

#[test]
fn data_that_disagrees_with_the_sgl_is_refused() {
    let (mut session, mut mock) = started(NONE);
    // The SGL says 8 bytes in the capsule; the capsule has 4, or none.
    let command = entry(1, SglDescriptor::in_capsule(8));
    let short = [&CapsuleCommand::encode(&command, 4, NONE)[..], &[0; 4]].concat();
    session.feed(&short, &mut mock).unwrap();
    session.feed(&CapsuleCommand::encode(&command, 0, NONE), &mut mock).unwrap();
    assert!(mock.rejected.iter().all(|(_, status)| status.same_code(Status::SGL_DATA_LENGTH)));
    assert_eq!((mock.rejected.len(), mock.ran.len()), (2, 0));
}

proptest! {
    #[test]
    fn arbitrary_bytes_end_or_wait(bytes in proptest::collection::vec(any::<u8>(), 0..2000), set_up: bool) {
        let (mut session, mut mock) = if set_up { started(NONE) } else { Default::default() };
        let _ = session.feed(&bytes, &mut mock);
        prop_assert!(session.asked_bytes <= 2 << 20);
    }

    #[test]
    fn any_sequence_of_valid_and_damaged_pdus_stays_bounded(
        steps in proptest::collection::vec(
            (0u8..6, any::<u16>(), 0u32..3_000_000, any::<prop::sample::Index>()),
            1..60,
        ),
        chunk in 1usize..500,
        digests: (bool, bool),
    ) {
        let digests = Digests { header: digests.0, data: digests.1 };
        let (mut session, mut mock) = started(digests);
        for (kind, id, bytes, at) in steps {
            let mut pdu = match kind {
                0 => capsule(id, &vec![3; bytes as usize % 9000], digests),
                1 => transfer(id, bytes, digests),
                2 => {
                    let data = vec![1; bytes as usize % 5000 + 1];
                    piece(id % 4, id % 8, bytes as usize % 50, &data, bytes % 2 == 0, digests)
                }
                3 => IcReq::new(digests).encode().to_vec(),
                4 => mock.sent.last().cloned().unwrap_or_default(),
                _ => {
                    let mut damaged = transfer(id, bytes, digests);
                    let at = at.index(damaged.len());
                    damaged[at] ^= 1 << (bytes % 8);
                    damaged
                }
            };
            if kind == 1 && bytes % 3 == 0 {
                pdu.truncate(at.index(pdu.len()));
            }
            let ended = pdu.chunks(chunk).any(|part| session.feed(part, &mut mock).is_err());
            // The session never holds more than it has asked for.
            let held: usize = session.transfers.values().map(|transfer| transfer.data.len()).sum();
            prop_assert!(held <= session.asked_bytes);
            prop_assert!(session.asked_bytes <= TRANSFER_BYTES_MAX || session.transfers.len() == 1);
            if ended {
                break;
            }
        }
    }
}
