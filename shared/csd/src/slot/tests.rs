use super::header::{CRC_FIELD, FIELDS_AT, FieldDescriptor, USED_BYTES, WireHeader};
use super::record::WireRecord;
use super::*;
use crate::crc32c_without;
use proptest::prelude::*;
use zerocopy::FromBytes;

fn records() -> Vec<SampleRecord> {
    let reasons = [Outcome::Prepared, Outcome::Skipped(CorruptReason::Truncated), Outcome::Prepared, Outcome::Prepared];
    (0..4)
        .map(|i| SampleRecord { sample_id: 100 + i as u64, index: i as u64, outcome: reasons[i], warned: i == 0 })
        .collect()
}

fn header() -> SlotHeader {
    SlotHeader {
        epoch: 3,
        batch: 9,
        generation: 77,
        requested: 4,
        delivered: 3,
        shape: Shape { height: 2, width: 3, channels: 3 },
        table_crc: crc32c::crc32c(&table_to_bytes(&records())),
        payload_crc: crc32c::crc32c(&[5; 54]),
        busy_us: 1234,
    }
}

const IDS: [u64; 4] = [100, 101, 102, 103];

fn wanted() -> Wanted<'static> {
    Wanted {
        epoch: 3,
        batch: 9,
        generation: 77,
        sample_ids: &IDS,
        shape: header().shape,
        dataset_samples: 100,
        policy: CorruptPolicy::Skip,
    }
}

fn head_of(header: SlotHeader, records: &[SampleRecord]) -> Vec<u8> {
    let table = table_to_bytes(records);
    [&SlotHeader { table_crc: crc32c::crc32c(&table), ..header }.to_block()[..], &table].concat()
}

#[test]
fn the_wanted_batch_is_found() {
    assert_eq!(SlotHeader::parse(&header().to_block()).unwrap(), header());
    let found = wanted().check(&head_of(header(), &records())).unwrap();
    assert_eq!((found.records.clone(), found.payload.clone()), (records(), 8192..8246));
    found.check_payload(&[5; 54]).unwrap();
    assert!(found.check_payload(&[6; 54]).is_err());
}

#[test]
fn anything_else_in_the_slot_is_refused() {
    let good = header();
    let turned = Shape { height: 3, width: 2, channels: 3 };
    for wrong in [
        SlotHeader { epoch: 2, ..good },
        SlotHeader { batch: 8, ..good },
        SlotHeader { generation: 76, ..good },
        SlotHeader { shape: turned, ..good },
        SlotHeader { shape: Shape { height: 1, width: 3, channels: 3 }, ..good },
        SlotHeader { delivered: 2, ..good },
    ] {
        assert!(wanted().check(&head_of(wrong, &records())).is_err(), "{wrong:?}");
    }
    let mut other_sample = records();
    other_sample[3].sample_id = 104;
    assert!(matches!(wanted().check(&head_of(good, &other_sample)), Err(SlotError::Sample { .. })));
    let mut damaged = head_of(good, &records());
    damaged[HEADER_BYTES + 50] ^= 1;
    assert_eq!(wanted().check(&damaged), Err(SlotError::Table));
    assert_eq!(wanted().check(&damaged[..HEADER_BYTES + 95]), Err(SlotError::Table));
}

#[test]
fn a_drives_verdict_that_the_host_must_decide_is_refused() {
    let with = |index: u64, outcome: Outcome, policy: CorruptPolicy| {
        let mut records = records();
        (records[1].index, records[1].outcome) = (index, outcome);
        let delivered = records.iter().filter(|record| record.has_row()).count() as u32;
        Wanted { policy, ..wanted() }.check(&head_of(SlotHeader { delivered, ..header() }, &records)).is_ok()
    };
    let skipped = |reason| with(1, Outcome::Skipped(reason), CorruptPolicy::Skip);
    assert!(skipped(CorruptReason::Truncated) && !skipped(CorruptReason::Io) && !skipped(CorruptReason::Checksum));
    assert!(!with(2, Outcome::Prepared, CorruptPolicy::Skip), "the pixels of another sample");
    assert!(!with(1, Outcome::Failed(CorruptReason::Truncated), CorruptPolicy::Skip));
    assert!(!with(2, Outcome::Replaced(CorruptReason::Truncated), CorruptPolicy::Skip));
    assert!(with(1, Outcome::Prepared, CorruptPolicy::Fail));
    assert!(!with(1, Outcome::Skipped(CorruptReason::Truncated), CorruptPolicy::Fail));
    let replaced = |index| {
        let record = SampleRecord { index, outcome: Outcome::Replaced(CorruptReason::Empty), ..records()[0] };
        let header = SlotHeader { requested: 1, delivered: 1, ..header() };
        Wanted { sample_ids: &IDS[..1], policy: CorruptPolicy::Replace, ..wanted() }
            .check(&head_of(header, &[record]))
            .is_ok()
    };
    assert!(replaced(99) && !replaced(100));
}

#[test]
fn an_unavailable_dataset_on_the_drive_is_no_verdict_on_a_sample() {
    let mut records = records();
    (records[3].outcome, records[3].warned) = (Outcome::Unavailable, false);
    assert!(!records[3].is_corrupt() && !records[3].has_row());
    let head = head_of(SlotHeader { delivered: 2, ..header() }, &records);
    assert_eq!(wanted().check(&head), Err(SlotError::Unavailable { sample_id: 103 }));
    // Host and agent may be of different builds of this format version: these codes stay.
    let codes = |outcome| {
        let wire = SampleRecord { outcome, ..records[0] }.to_wire();
        assert_eq!(SampleRecord::from_wire(&wire).unwrap().outcome, outcome);
        (wire.outcome, wire.reason, wire.detail.get())
    };
    let reason = CorruptReason::Io;
    let known = [Outcome::Prepared, Outcome::Skipped(reason), Outcome::Replaced(reason), Outcome::Failed(reason)];
    assert_eq!(known.map(codes), [(0, 0, 0), (1, 11, 0), (2, 11, 0), (3, 11, 0)]);
    assert_eq!(codes(Outcome::Unavailable), (4, 0, 0));
    assert_eq!(codes(Outcome::OtherDecoder(Some(AbilityNumber(0x0204)))), (5, 0, 0x0204));
    assert_eq!(codes(Outcome::OtherDecoder(None)), (5, 0, 0));
}

#[test]
fn a_sample_of_another_decoder_is_the_hosts() {
    let other = |decoder| {
        let mut records = records();
        (records[3].outcome, records[3].warned) = (Outcome::OtherDecoder(Some(AbilityNumber(decoder))), false);
        assert!(!records[3].is_corrupt() && !records[3].has_row());
        wanted().check(&head_of(SlotHeader { delivered: 2, ..header() }, &records)).unwrap_err()
    };
    assert_eq!(other(0x0204), SlotError::OtherDecoder { sample_id: 103, decoder: Some(AbilityNumber(0x0204)) });
    assert!(other(0x0204).to_string().ends_with("it needs the decoder of GIF files"), "{}", other(0x0204));
    assert!(other(0x0277).to_string().ends_with("it needs ability 0x0277 of another version"));
    assert!(other(0).to_string().ends_with("a file format that the drive does not know"));
}

#[test]
fn other_fields_than_the_image_are_refused() {
    let changed = |at: usize, value: u8| {
        let mut block = header().to_block();
        block[at] = value;
        let crc = crc32c_without(&block, CRC_FIELD);
        block[CRC_FIELD].copy_from_slice(&crc.to_le_bytes());
        SlotHeader::parse(&block)
    };
    assert_eq!(changed(FIELDS_AT, 0), Ok(header()));
    let fields_at = std::mem::offset_of!(WireHeader, fields);
    for (at, value) in [(fields_at, 2), (fields_at, 0), (FIELDS_AT, 1), (FIELDS_AT + 2, 1), (FIELDS_AT + 4, 1)] {
        assert_eq!(changed(at, value), Err(SlotError::Inconsistent("fields")), "{at}");
    }
}

#[test]
fn what_must_be_0_is_0() {
    let sizes_3 = FIELDS_AT + std::mem::offset_of!(FieldDescriptor, sizes) + 12;
    let reserved = std::mem::offset_of!(WireHeader, reserved);
    for at in [reserved, reserved + 71, sizes_3, USED_BYTES - 1] {
        let mut block = header().to_block();
        block[at] = 1;
        let crc = crc32c_without(&block, CRC_FIELD);
        block[CRC_FIELD].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(SlotHeader::parse(&block), Err(SlotError::Inconsistent("a reserved field is not 0")), "{at}");
    }
    let reason = CorruptReason::Truncated;
    let other = Outcome::OtherDecoder(Some(AbilityNumber(0x0204)));
    let bytes_of = |outcome| table_to_bytes(&[SampleRecord { outcome, warned: false, ..records()[0] }]);
    let parse = |bytes: &[u8]| SampleRecord::from_wire(WireRecord::ref_from_bytes(bytes).unwrap());
    let outcomes = [Outcome::Prepared, Outcome::Skipped(reason), Outcome::Replaced(reason), Outcome::Failed(reason)];
    for outcome in [&outcomes[..], &[Outcome::Unavailable, other]].concat() {
        let good = bytes_of(outcome);
        assert_eq!(parse(&good).unwrap().outcome, outcome);
        let changed = |at: usize, value: u8| {
            let mut bytes = good.clone();
            bytes[at] = value;
            parse(&bytes)
        };
        let (detail_low, detail_high, warned, reserved) = (16, 18, 22, 23);
        assert!(changed(warned, 1).unwrap().warned);
        assert_eq!([changed(detail_high, 1), changed(warned, 2), changed(reserved, 1)], [None; 3], "{outcome:?}");
        assert_eq!(changed(detail_low, 1).is_some(), outcome == other, "{outcome:?}");
    }
}

proptest! {
    #[test]
    fn a_flipped_bit_of_the_header_is_an_error(at in 0..HEADER_BYTES, bit in 0u8..8) {
        let mut block = header().to_block();
        block[at] ^= 1 << bit;
        prop_assert!(SlotHeader::parse(&block).is_err());
    }

    #[test]
    fn arbitrary_headers_never_panic(bytes in proptest::collection::vec(any::<u8>(), USED_BYTES - 16)) {
        let mut block = [0u8; HEADER_BYTES];
        block[..8].copy_from_slice(&MAGIC);
        block[8] = VERSION as u8;
        block[16..USED_BYTES].copy_from_slice(&bytes);
        let crc = crc32c_without(&block, CRC_FIELD);
        block[CRC_FIELD].copy_from_slice(&crc.to_le_bytes());
        let _ = SlotHeader::parse(&block);
    }

    #[test]
    fn layouts_do_not_overlap(samples in 1usize..5000, side in 1u32..300) {
        let layout = SlotLayout::new(samples, Shape { height: side, width: side, channels: 3 }).unwrap();
        prop_assert!(layout.payload_offset >= HEADER_BYTES + layout.table_bytes());
        prop_assert!(layout.payload_offset.is_multiple_of(BLOCK_BYTES));
        prop_assert!(layout.total_bytes >= layout.payload_offset + samples * layout.row_bytes);
        prop_assert!(layout.total_bytes.is_multiple_of(BLOCK_BYTES));
    }
}
