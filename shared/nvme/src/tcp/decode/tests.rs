extern crate std;
use super::super::encode::DataPiece;
use super::super::pdu::Alignment;
use super::*;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;
use zerocopy::IntoBytes;

const LIMITS: PduLimits = PduLimits { capsule_bytes_max: 8192, data_bytes_max: 1 << 20 };
const ALL: [Digests; 4] = [
    Digests { header: false, data: false },
    Digests { header: true, data: false },
    Digests { header: false, data: true },
    Digests { header: true, data: true },
];

fn ready(receiver: Role, digests: Digests) -> HeaderDecoder {
    let mut decoder = HeaderDecoder::new(receiver, LIMITS);
    decoder.set_phase(ConnectionPhase::Ready(digests));
    decoder
}

fn decode(decoder: &mut HeaderDecoder, mut bytes: &[u8]) -> Result<Option<Incoming>, PduError> {
    let outcome = decoder.feed(&mut bytes)?;
    assert!(bytes.is_empty() || outcome.is_some(), "nothing is left while a header is wanted");
    Ok(outcome)
}

fn piece(length: u32, last: bool) -> DataPiece {
    DataPiece { command_id: 7, offset: 512, length, last }
}

#[test]
fn every_pdu_round_trips_under_every_digest_setting() {
    let entry = SubmissionEntry { opcode: 2, command_id: 7.into(), ..SubmissionEntry::default() };
    for digests in ALL {
        let mut controller = ready(Role::Controller, digests);
        let mut host = ready(Role::Host, digests);
        for data_bytes in [0, 1, 8192] {
            let sent = CapsuleCommand::encode(&entry, data_bytes, digests);
            let got = decode(&mut controller, &sent).unwrap().unwrap();
            assert_eq!((got.pdu, got.data_bytes), (Pdu::Command(entry), data_bytes));
            assert_eq!(got.data_digest, digests.data && data_bytes > 0);
        }
        let completion = CompletionEntry::new(7, crate::Status::NO_PROGRAM, u64::MAX);
        let got = decode(&mut host, &CapsuleResponse::encode(&completion, digests)).unwrap().unwrap();
        assert_eq!(got.pdu, Pdu::Response(completion));
        let got = decode(&mut controller, &piece(4096, true).encode_to_controller(9, digests)).unwrap().unwrap();
        let Pdu::Data(header) = got.pdu else { panic!("{got:?}") };
        assert!(header.is_last() && !header.is_success());
        assert_eq!((header.tag.get(), header.offset.get(), got.data_bytes), (9, 512, 4096));
        let got = decode(&mut host, &piece(1, true).encode_to_host(true, digests, Alignment::NONE)).unwrap().unwrap();
        let Pdu::Data(header) = got.pdu else { panic!("{got:?}") };
        assert!(header.is_success());
        let got = decode(&mut host, &ReadyToTransfer::encode(7, 3, 0, 65_536, digests)).unwrap().unwrap();
        let Pdu::ReadyToTransfer(header) = got.pdu else { panic!("{got:?}") };
        assert_eq!((header.command_id.get(), header.tag.get(), header.length.get()), (7, 3, 65_536));
    }
}

#[test]
fn total_lengths_count_everything() {
    let both = ALL[3];
    let sent = piece(100, true).encode_to_host(false, both, Alignment::NONE);
    assert_eq!(sent.len(), 28);
    assert_eq!(sent[..8], [7, 0b0111, 24, 28, 24 + 4 + 100 + 4, 0, 0, 0]);
    let sent = CapsuleCommand::encode(&SubmissionEntry::default(), 0, Digests::NONE);
    assert_eq!(sent[..8], [4, 0, 72, 0, 72, 0, 0, 0], "as linux sends a command without data");
    let sent = CapsuleCommand::encode(&SubmissionEntry::default(), 1024, Digests::NONE);
    assert_eq!(sent[..8], [4, 0, 72, 72, 0x48, 4, 0, 0], "as linux sends connect");
}

#[test]
fn data_begins_at_a_multiple_of_the_alignment() {
    for (digests, dwords_z) in ALL.into_iter().flat_map(|digests| (0..=31).map(move |dwords_z| (digests, dwords_z))) {
        let alignment = Alignment::from_z(dwords_z).unwrap();
        let sent = piece(100, true).encode_to_host(false, digests, alignment);
        assert_eq!(sent.len() % alignment.bytes(), 0, "{digests:?} {dwords_z}");
        assert_eq!(usize::from(sent[3]), sent.len(), "the data offset");
        assert!(sent.len() - 24 - digests.header_bytes() < alignment.bytes(), "no more padding than it takes");
        assert!(sent[24 + digests.header_bytes()..].iter().all(|&byte| byte == 0));
        assert_eq!(usize::from(sent[4]), sent.len() + 100 + digests.data_bytes(100), "the total length");
        let got = decode(&mut ready(Role::Host, digests), &sent).unwrap().unwrap();
        assert_eq!((got.data_bytes, got.data_digest), (100, digests.data));
    }
    assert_eq!(Alignment::from_z(32), None);
}

#[test]
fn setup_comes_first_and_only_once() {
    let request = IcReq::new(Digests::NONE).encode();
    let command = CapsuleCommand::encode(&SubmissionEntry::default(), 0, Digests::NONE);
    let mut decoder = HeaderDecoder::new(Role::Controller, LIMITS);
    assert_eq!(decode(&mut decoder.clone(), &command), Err(PduError::Sequence(PduType::COMMAND)));
    assert!(matches!(decode(&mut decoder, &request), Ok(Some(Incoming { pdu: Pdu::IcReq(_), .. }))));
    decoder.set_phase(ConnectionPhase::Ready(Digests::NONE));
    assert_eq!(decode(&mut decoder, &request), Err(PduError::Sequence(PduType::IC_REQ)));
    assert_eq!(decoder.header(), &request[..8]);
    assert_eq!(decode(&mut decoder, &command), Err(PduError::Sequence(PduType::IC_REQ)), "an error stays");
}

#[test]
fn terminations_are_read_whole_in_any_phase() {
    let fatal = FatalError { status: FatalStatus::DATA_RANGE, info: 0x1234_5678 };
    for offending in [0, 24, 128, 200] {
        let sent = fatal.encode(Role::Controller, &vec![0xEE; offending]);
        assert_eq!(sent.len(), 24 + offending.min(128));
        let mut decoder = HeaderDecoder::new(Role::Host, LIMITS);
        let got = decode(&mut decoder, &sent).unwrap().unwrap();
        assert_eq!((got.pdu, got.data_bytes), (Pdu::Terminate(fatal), 0));
    }
    let mut long = fatal.encode(Role::Controller, &[]).to_vec();
    long[4..8].copy_from_slice(&153u32.to_le_bytes());
    let outcome = decode(&mut ready(Role::Host, Digests::NONE), &long);
    assert_eq!(outcome, Err(PduError::Length(PduType::CONTROLLER_TERM, 153)));
}

/// Decodes a command capsule without digests after one change.
fn tampered(change: impl Fn(&mut [u8])) -> Result<Option<Incoming>, PduError> {
    let mut bytes = CapsuleCommand::encode(&SubmissionEntry::default(), 64, Digests::NONE).to_vec();
    change(&mut bytes);
    decode(&mut ready(Role::Controller, Digests::NONE), &bytes)
}

#[test]
fn header_fields_are_checked() {
    let kind = PduType::COMMAND;
    let length = |bytes: u32| move |pdu: &mut [u8]| pdu[4..8].copy_from_slice(&bytes.to_le_bytes());
    assert!(tampered(|_| ()).unwrap().is_some());
    assert_eq!(tampered(|pdu| pdu[0] = 8), Err(PduError::Type(PduType(8))));
    assert_eq!(tampered(|pdu| pdu[0] = 7), Err(PduError::Type(PduType::CONTROLLER_DATA)), "wrong direction");
    assert_eq!(tampered(|pdu| pdu[1] = 1), Err(PduError::Flags(kind, 1)));
    assert_eq!(tampered(|pdu| pdu[1] = 2), Err(PduError::Flags(kind, 2)));
    assert_eq!(tampered(|pdu| pdu[2] = 71), Err(PduError::HeaderLength(kind, 71)));
    assert_eq!(tampered(|pdu| pdu[3] = 71), Err(PduError::DataOffset(kind, 71)));
    assert_eq!(tampered(|pdu| pdu[3] = 0), Err(PduError::DataOffset(kind, 0)));
    assert_eq!(tampered(|pdu| pdu[3] = 137), Err(PduError::DataOffset(kind, 137)), "behind the end");
    assert_eq!(tampered(|pdu| pdu[3] = 136), Err(PduError::Length(kind, 136)), "no data left");
    assert_eq!(tampered(length(71)), Err(PduError::Length(kind, 71)));
    assert_eq!(tampered(length(0)), Err(PduError::Length(kind, 0)));
    let limit = PduError::Limit { kind, bytes: 8193, limit: 8192 };
    assert_eq!(tampered(length(72 + 8193)), Err(limit));
    assert_eq!(limit.fatal().status, FatalStatus::LIMIT);
    assert_eq!(tampered(length(u32::MAX)).unwrap_err().fatal().status, FatalStatus::LIMIT);
}

#[test]
fn padding_before_the_data_is_skipped() {
    let mut bytes = CapsuleCommand::encode(&SubmissionEntry::default(), 64, Digests::NONE).to_vec();
    bytes[3] = 100;
    assert_eq!(
        decode(&mut ready(Role::Controller, Digests::NONE), &bytes),
        Ok(None),
        "28 bytes of padding are to come"
    );
    bytes.extend([0xEE; 28]);
    let got = decode(&mut ready(Role::Controller, Digests::NONE), &bytes).unwrap().unwrap();
    assert_eq!(got.data_bytes, 36);
}

#[test]
fn data_pdus_are_checked() {
    let outcome = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = piece(64, false).encode_to_host(false, Digests::NONE, Alignment::NONE).to_vec();
        change(&mut bytes);
        decode(&mut ready(Role::Host, Digests::NONE), &bytes)
    };
    let kind = PduType::CONTROLLER_DATA;
    assert_eq!(outcome(&|pdu| pdu[16] = 65), Err(PduError::DataLength { stated: 65, carried: 64 }));
    assert_eq!(outcome(&|pdu| pdu[1] = 8), Err(PduError::Flags(kind, 8)), "success without last");
    assert_eq!(outcome(&|pdu| pdu[4] = 24), Err(PduError::Length(kind, 24)), "data without data");
}

#[test]
fn a_response_carries_nothing() {
    let mut bytes = CapsuleResponse::encode(&CompletionEntry::default(), Digests::NONE).to_vec();
    bytes[4] = 25;
    let outcome = decode(&mut ready(Role::Host, Digests::NONE), &bytes);
    assert_eq!(outcome, Err(PduError::Length(PduType::RESPONSE, 25)));
}

#[test]
fn a_damaged_header_fails_its_digest() {
    let digests = ALL[1];
    let good = CapsuleResponse::encode(&CompletionEntry::default(), digests);
    for byte in COMMON_BYTES..good.len() {
        let mut bytes = good.to_vec();
        bytes[byte] ^= 0x10;
        let error = decode(&mut ready(Role::Host, digests), &bytes).unwrap_err();
        assert_eq!(error.fatal().status, FatalStatus::HEADER_DIGEST, "byte {byte}");
    }
}

#[test]
fn missing_digests_are_refused() {
    let sent = CapsuleResponse::encode(&CompletionEntry::default(), Digests::NONE);
    assert_eq!(decode(&mut ready(Role::Host, ALL[1]), &sent), Err(PduError::Flags(PduType::RESPONSE, 0)));
    let sent = piece(64, true).encode_to_host(false, Digests::NONE, Alignment::NONE);
    assert_eq!(decode(&mut ready(Role::Host, ALL[2]), &sent), Err(PduError::Flags(PduType::CONTROLLER_DATA, 4)));
}

proptest! {
    #[test]
    fn any_cut_of_a_header_gives_nothing_yet(cut: prop::sample::Index, setting in 0usize..4, data_bytes in 0u32..100) {
        let digests = ALL[setting];
        let sent = CapsuleCommand::encode(&SubmissionEntry::default(), data_bytes, digests);
        let (first, second) = sent.split_at(cut.index(sent.len()));
        let mut decoder = ready(Role::Controller, digests);
        prop_assert_eq!(decode(&mut decoder, first), Ok(None));
        prop_assert_eq!(decoder.is_idle(), first.is_empty());
        prop_assert!(decode(&mut decoder, second).unwrap().is_some());
        prop_assert!(decoder.is_idle());
    }

    #[test]
    fn any_bytes_end_in_a_header_or_an_error(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..600),
        kind in 0u8..10,
        setup: bool,
        host: bool,
        setting in 0usize..4,
    ) {
        if let Some(first) = bytes.first_mut() {
            *first = kind;
        }
        let phase = if setup { ConnectionPhase::Setup } else { ConnectionPhase::Ready(ALL[setting]) };
        let mut decoder = HeaderDecoder::new(if host { Role::Host } else { Role::Controller }, LIMITS);
        decoder.set_phase(phase);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            match decoder.feed(&mut rest) {
                Ok(Some(incoming)) => prop_assert!(incoming.data_bytes <= LIMITS.data_bytes_max),
                Ok(None) => break,
                Err(error) => {
                    prop_assert!(error.fatal().status.name().is_some());
                    prop_assert!(decoder.header().len() <= HEADER_BYTES_MAX);
                    break;
                }
            }
        }
    }

    #[test]
    fn plausible_headers_hold(
        flags: u8,
        hlen in 0u8..140,
        pdo: u8,
        plen in 0u32..10_000,
        kind in 0u8..10,
        setting in 0usize..4,
    ) {
        let receiver = PduType(kind).receiver().unwrap_or(Role::Host);
        let hlen = PduType(kind).header_bytes().filter(|_| hlen > 10).map_or(hlen, |bytes| bytes as u8);
        let head = CommonHeader {
            kind, flags: PduFlags(flags), header_bytes: hlen, data_offset: pdo, total_bytes: plen.into(),
        };
        let mut bytes = head.as_bytes().to_vec();
        bytes.resize(512, 0);
        let mut rest = &bytes[..];
        if let Ok(Some(incoming)) = ready(receiver, ALL[setting]).feed(&mut rest) {
            let consumed = (512 - rest.len()) as u64;
            let digest = if incoming.data_digest { 4 } else { 0 };
            prop_assert_eq!(consumed + u64::from(incoming.data_bytes) + digest, u64::from(plen));
        }
    }
}
