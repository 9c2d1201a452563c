//! What the host asks of a drive that alone holds the dataset, as a relay between them sees it.

use ddlp_dataset::Dataset;
use ddlp_dataset::pack::{IndexPart, Pack, PackFormat, PackOptions, StoredForm, pack};
use ddlp_host::report::FaultKind;
use ddlp_host::{CorruptPolicy, Fidelity, Host, LoaderBuilder, LoaderError, Strategy, open_dataset};
use ddlp_pixels::Pipeline;
use ddlp_tests::agent::Agent;
use ddlp_tests::photos::Photos;
use ddlp_tests::proxy::{C2H_DATA, CAPSULE_COMMAND, CAPSULE_RESPONSE, Fate, Pdu, Proxy, Way};
use ddlp_tests::runs::{Run, chain, loader};
use std::fs;
use std::ops::ControlFlow;
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
    loader(Path::new(&agent.url_by(&proxy.address()))).with(|o| o.strategy = Strategy::Cpu)
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
        .with(|o| o.policy = CorruptPolicy::Skip),
    );
    assert_eq!(run.report.corrupt.len(), 1, "{:?}", run.report.corrupt);
    assert_eq!(run.report.corrupt[0].sample_id, 11);
    assert_eq!(run.report.images + 1, expected.report.images);
}

/// How a relay changes a byte that the host reads.
#[derive(Clone, Copy, Debug)]
enum Flip {
    /// In the first reads, in another way each time.
    First(u8),
    /// In every read, in the same way.
    Always,
}

/// A change in another way in every read.
const ANEW: Flip = Flip::First(u8::MAX);

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
        if at >= pdu.bytes.len() {
            return Fate::Pass;
        }
        match flip {
            Flip::First(reads) if flips < reads => {
                flips += 1;
                pdu.bytes[at] ^= flips;
            }
            Flip::First(_) => {}
            Flip::Always => pdu.bytes[at] ^= 1,
        }
        Fate::Pass
    })
    .with(|o| o.policy = CorruptPolicy::Skip)
}

/// Asserts that a run delivered everything, and reports one damaged sample that came intact later.
fn assert_healed(run: &Run, expected: &Run, what: &str) {
    assert_eq!((&run.digest, run.report.corrupt.len()), (&expected.digest, 0), "{what}");
    let [fault] = run.troubles()[..] else { panic!("{what}: {:?}", run.report.faults) };
    assert_eq!(fault.kind, FaultKind::Damaged, "{what}: {fault:?}");
    assert!(fault.what.contains("arrived damaged and was intact"), "{what}: {fault:?}");
}

#[test]
fn a_bit_that_flips_on_the_way_is_a_fault_and_not_damage_of_the_sample() {
    use StoredForm::{Kept, Pcr, Raw, Rows};
    let photos = photos();
    // The pieces of a bundle come one by one, or as a whole.
    for (form, window) in [(Kept, None), (Raw, None), (Rows, None), (Pcr, None), (Pcr, Some(3))] {
        let pack = photos.pack_as(&format!("{}.ddlp", form.name()), PackFormat::of(form));
        let opened = Pack::open(&pack).unwrap();
        let (record, mut pieces) = (opened.record(11).unwrap(), Vec::new());
        opened.pieces(11, &opened.header(11).unwrap(), Some(Fidelity::WHOLE), &mut pieces).unwrap();
        let extent = pieces.pop().map_or(record.offset..record.offset + u64::from(record.length), |last| last.extent);
        assert!(extent.end - extent.start >= 2 * BLOCK_BYTES, "{form:?}: a block of it belongs to no other sample");
        let place = extent.start.midpoint(extent.end);
        let agent = Agent::start(&pack, &photos.scratch().join(form.name()), &["--slots", "8"]);
        let flipping = |flip| flipping(&agent, place, flip).with(|o| o.shuffle_window = window);
        let expected = Run::of(loader(&pack));
        let run = Run::of(flipping(Flip::First(1)));
        assert_healed(&run, &expected, form.name());
        // The host cannot tell this from damage on the drive.
        let run = Run::of(flipping(Flip::Always));
        assert_eq!((run.report.corrupt.len(), run.troubles().len()), (1, 0), "{form:?}");
        assert_eq!((run.report.corrupt[0].sample_id, &*run.report.corrupt[0].reason), (11, "wrong checksum"));
        let mut loader = flipping(ANEW).build().unwrap();
        let error = loader.by_ref().find_map(Result::err).expect("the run ends with an error");
        let said = chain(&error);
        assert!(matches!(error, LoaderError::Unavailable(_)), "{said}");
        assert!(
            said.contains("no two reads in a row brought the same bytes") && loader.report().corrupt.is_empty(),
            "{said}"
        );
    }
}

/// The whole file replaces a damaged row index, and only a second read tells whether the drive's copy is damaged.
#[test]
fn a_row_index_that_is_damaged_on_the_way_is_a_fault_and_one_on_the_drive_is_none() {
    let photos = photos();
    let pack = photos.pack_as("rows.ddlp", PackFormat::of(StoredForm::Rows));
    let place = Pack::open(&pack).unwrap().record(11).unwrap().offset - 1;
    let agent = Agent::start(&pack, &photos.scratch().join("state"), &["--slots", "8"]);
    let expected = Run::of(loader(&pack));
    assert_healed(&Run::of(flipping(&agent, place, Flip::First(1))), &expected, "once");
    let run = Run::of(flipping(&agent, place, Flip::Always));
    assert_eq!((run.report.corrupt.len(), run.troubles().len()), (0, 0));
    assert_eq!(run.digest, expected.digest);
}

/// Samples that stay in memory are read in groups, and a damaged one by itself.
#[test]
fn a_small_sample_that_is_damaged_on_the_way_is_not_lost() {
    let folder = tempfile::tempdir().unwrap();
    let sample = |number: usize| (0..3073).map(move |at| if at == 0 { 3 } else { (number * 31 + at * 7) as u8 });
    fs::write(folder.path().join("data_batch_1.bin"), (0..50).flat_map(sample).collect::<Vec<_>>()).unwrap();
    let (source, path) = (ddlp_dataset::open(folder.path()).unwrap(), folder.path().join("cifar.ddlp"));
    pack(&*source, &path, &PackOptions::default(), &mut |_| ControlFlow::Continue(())).unwrap();
    let place = Pack::open(&path).unwrap().record(11).unwrap().offset + 100;
    let agent = Agent::start(&path, &folder.path().join("state"), &["--slots", "8"]);
    let small =
        |builder: LoaderBuilder| Run::of(builder.with(|o| (o.pipeline, o.epochs) = (Pipeline::cifar_train(), 2)));
    let run = small(flipping(&agent, place, Flip::First(2)));
    assert_healed(&run, &small(loader(&path)), "a sample in memory");
}

#[test]
fn a_bit_that_flips_while_the_pack_is_opened_is_no_damage() {
    let photos = photos();
    let agent = Agent::start(&photos.pack(), &photos.scratch().join("state"), &["--slots", "8"]);
    let expected = Run::of(loader(&photos.pack()));
    let layout = Pack::open(&photos.pack()).unwrap().layout().clone();
    let sections = [IndexPart::Records, IndexPart::Labels, IndexPart::Classes].map(|part| layout.section(part).offset);
    for place in [0, 8, 100].into_iter().chain(sections) {
        let run = Run::of(flipping(&agent, place, Flip::First(1)));
        assert_eq!((run.digest, run.report.corrupt.len()), (expected.digest.clone(), 0), "byte {place}");
        let error = flipping(&agent, place, ANEW).build().expect_err("the pack does not open");
        assert!(
            chain(&error).contains("no two reads in a row brought the same bytes"),
            "byte {place}: {}",
            chain(&error)
        );
        let error = flipping(&agent, place, Flip::Always).build().expect_err("the pack does not open");
        assert!(!chain(&error).contains("two reads in a row"), "byte {place}: {}", chain(&error));
    }
}
