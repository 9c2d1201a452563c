//! Drives of another version: one that lacks an ability, or has it in another way, serves every run that does not need
//! it, and is refused by name for the others. A relay makes an agent look like one of another version.

use ddlp_csd::log::DriveIdentity;
use ddlp_csd::slot::{HEADER_BYTES, Outcome, RECORD_BYTES, SlotHeader, table_to_bytes};
use ddlp_dataset::pack::StoredForm;
use ddlp_dataset::{Decoder, abilities, ability_name};
use ddlp_host::report::FaultKind;
use ddlp_host::{AbilityNumber, DriveSpec, LoaderBuilder, Pipeline, ProgressHandle, Strategy, pixels};
use ddlp_tests::agent::Agent;
use ddlp_tests::hooked::gated;
use ddlp_tests::photos::Photos;
use ddlp_tests::proxy::{C2H_DATA, Fate, Pdu, Proxy};
use ddlp_tests::runs::{Run, chain, faults, loader};
use pixels::ops::{CenterCrop, RandomHorizontalFlip, RandomInvert, Resize};
use pixels::{Ability, Format};

const SAMPLES: u32 = 60;
/// Bytes of a data PDU in front of its data.
const PDU_HEADER: usize = 24;

struct Scene {
    photos: Photos,
    agent: Agent,
}

impl Scene {
    fn new() -> Self {
        let photos = Photos::new(SAMPLES);
        let agent = Agent::start(&photos.pack(), &photos.scratch().join("state"), &[]);
        Self { photos, agent }
    }

    fn builder(&self, url: String, pipeline: &Pipeline) -> LoaderBuilder {
        loader(&self.photos.pack())
            .with(|o| (o.pipeline, o.strategy) = (pipeline.clone(), Strategy::Csd))
            .drive(DriveSpec::Remote(url))
    }

    /// Returns the address of the agent behind a relay that changes the pages of the agent's identity log.
    fn seen_by(&self, mut change: impl FnMut(&mut [u8]) + Send + 'static) -> String {
        let proxy = Proxy::start(self.agent.address(), move |pdu: &mut Pdu<'_>| {
            if pdu.kind() == C2H_DATA && pdu.bytes[PDU_HEADER..].starts_with(b"DDID") {
                change(&mut pdu.bytes[PDU_HEADER..]);
            }
            Fate::Pass
        });
        self.agent.url_by(&proxy.address())
    }

    /// Returns the address of the agent as one that has these abilities.
    fn with_abilities(&self, change: fn(&mut Vec<Ability>)) -> String {
        self.seen_by(move |page| {
            let mut identity = DriveIdentity::parse(page).expect("an identity");
            change(&mut identity.abilities);
            identity.agent = DriveIdentity::version_field("0.0.7");
            page.copy_from_slice(&identity.to_page());
        })
    }

    fn serves(&self, url: String, pipeline: &Pipeline) {
        let here = Run::of(loader(&self.photos.pack()).with(|o| o.pipeline = pipeline.clone()));
        let run = Run::of(self.builder(url, pipeline));
        run.assert_exactly_once(1, SAMPLES.into());
        assert_eq!(run.digest, here.digest);
        assert!(run.order.iter().all(|&(_, _, prong)| prong == 1) && run.troubles().is_empty());
    }

    fn refuses(&self, url: String, pipeline: &Pipeline) -> String {
        chain(&self.builder(url, pipeline).build().expect_err("refused"))
    }
}

fn plain() -> Pipeline {
    Pipeline::of([Resize::to(40).into(), CenterCrop::to(32).into()])
}

fn inverted() -> Pipeline {
    let crop = [Resize::to(40).into(), CenterCrop::to(32).into()];
    Pipeline::of([&crop[..], &[RandomInvert { p: 0.5 }.into()]].concat())
}

fn number(name: &str) -> AbilityNumber {
    let abilities = abilities().iter().map(|ability| ability.number);
    abilities.into_iter().find(|number| ability_name(*number).ends_with(name)).expect("an ability")
}

#[test]
fn a_drive_without_an_operation_serves_the_runs_that_do_without_it() {
    let scene = Scene::new();
    let url = || scene.with_abilities(|list| list.retain(|ability| ability.number != number(" RandomInvert")));
    scene.serves(url(), &plain());
    let said = scene.refuses(url(), &inverted());
    for part in ["ddlp-device 0.0.7 lacks the operation RandomInvert", env!("CARGO_PKG_VERSION")] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn a_drive_with_another_operation_serves_the_runs_that_do_without_it() {
    let scene = Scene::new();
    let url = || {
        scene.with_abilities(|list| {
            let flip = list.iter_mut().find(|ability| ability.number == number(" RandomHorizontalFlip"));
            flip.expect("it is there").digest = [0x5A; 16];
        })
    };
    scene.serves(url(), &inverted());
    let flipped = Pipeline::of([CenterCrop::to(32).into(), RandomHorizontalFlip { p: 0.5 }.into()]);
    let said = scene.refuses(url(), &flipped);
    assert!(said.contains("the operation RandomHorizontalFlip differs") && said.contains("5a5a5a5a5a5a"), "{said}");
}

#[test]
fn a_drive_is_refused_for_a_decoder_only_if_the_dataset_needs_it() {
    let scene = Scene::new();
    let needed = ddlp_dataset::open(&scene.photos.pack()).unwrap().decoders().iter().collect::<Vec<_>>();
    assert_eq!(needed, [Decoder::File(Format::Jpeg), Decoder::Form(StoredForm::Indexed)], "the pack's forms");
    let others = scene.with_abilities(|list| {
        let others = [Decoder::File(Format::Gif), Decoder::Form(StoredForm::Rows), Decoder::Form(StoredForm::Planar)]
            .map(Decoder::ability);
        list.retain(|ability| !others.contains(&ability.number));
        list.push(Ability { number: AbilityNumber(0x7777), digest: [7; 16] });
    });
    scene.serves(others, &plain());
    let url = scene
        .with_abilities(|list| list.retain(|ability| ability.number != Decoder::Form(StoredForm::Indexed).ability()));
    let said = scene.refuses(url, &plain());
    assert!(said.contains("lacks the decoder of the form indexed"), "{said}");
}

/// Makes a page like that of an agent of the first version.
fn first_version(page: &mut [u8]) {
    page[4..8].copy_from_slice(&1u32.to_le_bytes());
    page[48..80].fill(0xAB);
    page[100..].fill(0);
    page[8..12].fill(0);
    let crc = crc32c::crc32c(page);
    page[8..12].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn drives_of_older_and_newer_protocols_are_refused_with_what_to_update() {
    let scene = Scene::new();
    let said = scene.refuses(scene.seen_by(first_version), &plain());
    let older = "agent is of an older version of DDLP: its log page has version 1, not 2: update ddlp-device there";
    assert!(said.contains(older), "{said}");
    let said = scene.refuses(scene.seen_by(|page| page[4] = 3), &plain());
    assert!(said.contains("a newer version of DDLP") && said.contains("update this program"), "{said}");
}

/// Makes a drive say that it has not agreed on the decoder of the first sample of a slot.
fn leave_to_the_host(slot: &mut [u8], decoder: AbilityNumber) {
    let Ok(header) = SlotHeader::parse(slot) else { return };
    let table = &slot[HEADER_BYTES..][..header.requested as usize * RECORD_BYTES];
    let id = |record: &[u8]| u64::from_le_bytes(record[..8].try_into().expect("eight bytes"));
    let ids: Vec<u64> = table.chunks_exact(RECORD_BYTES).map(id).collect();
    let mut records = header.parse_table(table, &ids).expect("a table");
    records[0].outcome = Outcome::OtherDecoder(Some(decoder));
    let table = table_to_bytes(&records);
    slot[HEADER_BYTES..][..table.len()].copy_from_slice(&table);
    let header = SlotHeader { delivered: header.delivered - 1, table_crc: crc32c::crc32c(&table), ..header };
    slot[..HEADER_BYTES].copy_from_slice(&header.to_block());
}

/// Runs epochs on a drive whose slots a relay changes: `left` names the decoder for which the result with this number,
/// counted from 1, leaves a sample to the host. The CPU, which relieves a drive that a busy machine slows down, waits
/// `until` the drive has come far enough.
fn left_to_the_host(
    scene: &Scene,
    epochs: u32,
    mut left: impl FnMut(u16) -> Option<AbilityNumber> + Send + 'static,
    until: impl FnMut(&ProgressHandle) -> bool + Send + 'static,
) -> Run {
    let mut heads = 0;
    let proxy = Proxy::start(scene.agent.address(), move |pdu: &mut Pdu<'_>| {
        if pdu.kind() == C2H_DATA && pdu.bytes[PDU_HEADER..].starts_with(b"DDLPSLOT") {
            heads += 1;
            if let Some(decoder) = left(heads) {
                leave_to_the_host(&mut pdu.bytes[PDU_HEADER..], decoder);
            }
        }
        Fate::Pass
    });
    let here = Run::of(loader(&scene.photos.pack()).with(|o| (o.pipeline, o.epochs) = (plain(), epochs)));
    let gated = gated(&scene.photos.pack());
    let builder = scene.builder(scene.agent.url_by(&proxy.address()), &plain()).with(|o| o.epochs = epochs);
    let loader = builder.dataset(gated.clone()).build().expect("a loader");
    gated.hooks.hold_until(&loader, until);
    let run = Run::over(loader, |_, _| ());
    run.assert_exactly_once(epochs, SAMPLES.into());
    assert_eq!(run.digest, here.digest);
    run
}

#[test]
fn samples_that_only_the_host_can_decode_cost_the_drive_no_trust() {
    let scene = Scene::new();
    // Formats of a newer drive, each with another number.
    let left = |head| (head % 2 != 0).then_some(AbilityNumber(0x0280 + head));
    let run = left_to_the_host(&scene, 2, left, |progress| progress.snapshot().prongs[1].prepared > 0);
    assert!(run.troubles().is_empty(), "{:?}", run.report.faults);
    let notes: Vec<&String> = run.report.notes.iter().filter(|note| note.contains("leaves samples")).collect();
    assert!(notes.len() == 1 && notes[0].contains("need a decoder of another version"), "{:?}", run.report.notes);
    assert!(run.drive_batches() > 0, "{:?}", run.order);
}

#[test]
fn a_drive_that_leaves_to_the_host_what_it_agreed_on_is_wrong() {
    let scene = Scene::new();
    let is_named = |progress: &ProgressHandle| faults(progress, FaultKind::Damaged) > 0;
    let run = left_to_the_host(&scene, 1, |_| Some(Decoder::File(Format::Jpeg).ability()), is_named);
    assert_eq!(run.drive_batches(), 0);
    let damaged: Vec<_> = run.report.faults.iter().filter(|fault| fault.kind == FaultKind::Damaged).collect();
    for part in ["the drive leaves sample", "JPEG files"] {
        assert!(damaged[0].what.contains(part), "{part}: {}", damaged[0].what);
    }
}
