//! What the host asks of a drive that alone holds the dataset, as a relay between them sees it.

use ddlp_dataset::pack::{Pack, PackFormat, StoredForm};
use ddlp_host::report::FaultKind;
use ddlp_host::{CorruptPolicy, Host, LoaderBuilder, LoaderError, Strategy, open_dataset};
use ddlp_tests::agent::Agent;
use ddlp_tests::photos::Photos;
use ddlp_tests::proxy::{C2H_DATA, CAPSULE_COMMAND, CAPSULE_RESPONSE, Fate, Pdu, Proxy, Way};
use ddlp_tests::runs::{Run, chain, loader};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const SAMPLES: u32 = 40;
/// Bytes of a block of namespace 1.
const BLOCK_BYTES: u64 = 4096;
/// Status of a read that the medium cannot serve: Media and Data Integrity Errors, Unrecovered Read Error.
const UNRECOVERED: u16 = 0x0281;
/// Flag of a data PDU that stands for a successful completion too.
const SUCCESS: u8 = 1 << 3;

fn photos() -> Photos {
    Photos::with_sizes(SAMPLES, |index| (320 + index % 9, 240 + index % 7))
}

/// Returns the first block and the number of blocks of a command that reads namespace 1.
fn blocks_read(command: &[u8; 64]) -> Option<(u64, u64)> {
    let number = |at: usize| u32::from_le_bytes([command[at], command[at + 1], command[at + 2], command[at + 3]]);
    let is_read = command[0] == 0x02 && number(4) == 1;
    is_read.then(|| (u64::from(number(40)), u64::from(number(48) as u16) + 1))
}

/// Returns a loader over the agent's dataset, through a relay.
fn through(agent: &Agent, plan: impl FnMut(&mut Pdu<'_>) -> Fate + Send + 'static) -> LoaderBuilder {
    let proxy = Proxy::start(agent.address(), plan);
    loader(Path::new(&agent.url_by(&proxy.address()))).strategy(Strategy::Cpu)
}

#[test]
fn the_blocks_of_a_report_are_those_that_the_drive_was_asked_for() {
    let photos = photos();
    for form in [StoredForm::Kept, StoredForm::Rows] {
        let pack = photos.pack_as(&format!("{}.ddlp", form.name()), PackFormat::of(form));
        let agent = Agent::start(&pack, &photos.scratch().join(form.name()), &["--slots", "8"]);
        let asked = Arc::new(AtomicU64::new(0));
        let counted = asked.clone();
        let builder = through(&agent, move |pdu| {
            let blocks =
                pdu.command().filter(|_| pdu.kind() == CAPSULE_COMMAND).and_then(|command| blocks_read(&command));
            counted.fetch_add(blocks.map_or(0, |(_, blocks)| blocks), Ordering::Relaxed);
            Fate::Pass
        });
        let opened = builder.build().unwrap();
        let by_opening = asked.load(Ordering::Relaxed);
        let run = Run::over(opened, |_, _| {});
        let blocks = asked.load(Ordering::Relaxed) - by_opening;
        assert!(by_opening > 0 && blocks > 0);
        let reported = (run.report.read_blocks_mb.unwrap() * 1e6).round() as u64;
        assert_eq!(blocks * BLOCK_BYTES, reported, "{form:?}");
    }
}

#[test]
fn samples_of_a_drive_are_fetched_ahead_by_threads_of_their_own() {
    let photos = photos();
    let agent = Agent::start(&photos.pack(), &photos.scratch().join("state"), &["--slots", "8"]);
    let dataset = open_dataset(Path::new(&agent.url()), &Host::system()).unwrap();
    assert!(dataset.fetch_depth().in_flight() > 1, "{:?}", dataset.fetch_depth());
}

#[test]
fn a_block_that_the_drive_cannot_read_is_damage_of_its_sample_alone() {
    let photos = photos();
    let damaged = Pack::open(&photos.pack()).unwrap().record(11).unwrap();
    let lost = damaged.offset.div_ceil(BLOCK_BYTES)..(damaged.offset + u64::from(damaged.length)) / BLOCK_BYTES;
    assert!(!lost.is_empty(), "the sample has a block of its own");
    let agent = Agent::start(&photos.pack(), &photos.scratch().join("state"), &["--slots", "8"]);
    let expected = Run::of(loader(&photos.pack()));
    let run = Run::of(
        through(&agent, move |pdu| {
            let asked = pdu.command().and_then(|command| blocks_read(&command));
            let is_lost = asked.is_some_and(|(first, blocks)| first < lost.end && lost.start < first + blocks);
            if pdu.way == Way::ToAgent || !is_lost {
                return Fate::Pass;
            }
            match pdu.kind() {
                CAPSULE_RESPONSE => pdu.set_status(UNRECOVERED),
                C2H_DATA if pdu.bytes[1] & SUCCESS == 0 => return Fate::Drop,
                C2H_DATA => {
                    // A completion of its own, in place of the data.
                    let id = [pdu.bytes[8], pdu.bytes[9]];
                    *pdu.bytes = vec![CAPSULE_RESPONSE, 0, 24, 0, 24, 0, 0, 0];
                    pdu.bytes.resize(20, 0);
                    pdu.bytes.extend(id);
                    pdu.bytes.extend([0, 0]);
                    pdu.set_status(UNRECOVERED);
                }
                _ => {}
            }
            Fate::Pass
        })
        .policy(CorruptPolicy::Skip),
    );
    assert_eq!(run.report.corrupt.len(), 1, "{:?}", run.report.corrupt);
    assert_eq!(run.report.corrupt[0].sample_id, 11);
    assert_eq!(run.report.images + 1, expected.report.images);
}

/// How a relay changes a byte of a sample that the host reads.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Flip {
    /// In the first read.
    Once,
    /// The same bit in every read.
    Always,
    /// In every read, in another way.
    Anew,
}

/// Returns a loader over the agent's dataset, through a relay that changes the byte at `place` of the namespace.
fn flipping(agent: &Agent, place: u64, flip: Flip) -> LoaderBuilder {
    let mut flips = 0u8;
    through(agent, move |pdu| {
        if pdu.kind() != C2H_DATA {
            return Fate::Pass;
        }
        let Some((first, _)) = pdu.command().and_then(|command| blocks_read(&command)) else { return Fate::Pass };
        let data_offset = u32::from_le_bytes(pdu.bytes[12..16].try_into().expect("four bytes"));
        let begin = first * BLOCK_BYTES + u64::from(data_offset);
        let Some(at) = place.checked_sub(begin).map(|at| 24 + at as usize) else { return Fate::Pass };
        if at < pdu.bytes.len() && (flip != Flip::Once || flips == 0) {
            flips += 1;
            pdu.bytes[at] ^= if flip == Flip::Anew { flips } else { 1 };
        }
        Fate::Pass
    })
}

#[test]
fn a_bit_that_flips_on_the_way_is_a_fault_and_not_damage_of_the_sample() {
    let photos = photos();
    for form in [StoredForm::Kept, StoredForm::Raw] {
        let pack = photos.pack_as(&format!("{}.ddlp", form.name()), PackFormat::of(form));
        let record = Pack::open(&pack).unwrap().record(11).unwrap();
        let place = record.offset + u64::from(record.length) / 2;
        let agent = Agent::start(&pack, &photos.scratch().join(form.name()), &["--slots", "8"]);
        let expected = Run::of(loader(&pack));
        let run = Run::of(flipping(&agent, place, Flip::Once).policy(CorruptPolicy::Skip));
        assert_eq!((run.digest, run.report.corrupt.len()), (expected.digest, 0), "{form:?}");
        let faults = &run.report.faults;
        assert_eq!((faults.len(), faults[0].kind), (1, FaultKind::Damaged), "{form:?}: {faults:?}");
        assert!(faults[0].what.contains("arrived damaged and was intact"), "{faults:?}");
        // The host cannot tell this from damage on the drive.
        let run = Run::of(flipping(&agent, place, Flip::Always).policy(CorruptPolicy::Skip));
        assert_eq!((run.report.corrupt.len(), run.report.faults.len()), (1, 0), "{form:?}");
        assert_eq!((run.report.corrupt[0].sample_id, &*run.report.corrupt[0].reason), (11, "wrong checksum"));
        let mut loader = flipping(&agent, place, Flip::Anew).policy(CorruptPolicy::Skip).build().unwrap();
        let error = loader.by_ref().find_map(Result::err).expect("the run ends with an error");
        let said = chain(&error);
        assert!(matches!(error, LoaderError::Unavailable(_)), "{said}");
        assert!(
            said.contains("never twice in a row with the same bytes") && loader.report().corrupt.is_empty(),
            "{said}"
        );
    }
}
