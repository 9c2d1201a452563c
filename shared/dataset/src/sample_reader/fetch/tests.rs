use super::*;
use crate::forms::StoredForm;
use ddlp_pixels::ops::CenterCrop;
use ddlp_pixels::{CompiledPipeline, CorruptReason, Draw, Pipeline, PlanMemory};
use std::ops::Range;

impl SampleFetch {
    /// Wants these extents.
    pub(in super::super) fn want(&mut self, extents: &[Range<u64>]) {
        self.step = Step::Read;
        extents.iter().for_each(|extent| self.reads.add(extent.clone()));
    }
}

const FILE: &[u8] = b"a file's bytes";
const DETAIL: &[u8] = b"detail";
const START: u64 = 100;

/// Returns the header of a file whose detail lies behind it.
fn header(form: StoredForm) -> Header {
    let bytes = START..START + FILE.len() as u64;
    let detail = match form {
        StoredForm::Kept => bytes.end..bytes.end,
        _ => bytes.end..bytes.end + DETAIL.len() as u64,
    };
    let (crc32c, detail_crc32c) = (Some(crc32c::crc32c(FILE)), crc32c::crc32c(DETAIL));
    Header { form, crc32c, detail, detail_crc32c, ..Header::file(bytes) }
}

/// A machine and what its driver keeps.
struct Driven {
    fetch: SampleFetch,
    pipeline: CompiledPipeline,
    plan: PlanMemory,
    notes: FormNotes,
    memory: Vec<u8>,
}

impl Driven {
    fn new() -> Self {
        let pipeline = CompiledPipeline::of(&Pipeline::of([CenterCrop::to(8).into()])).unwrap();
        let (plan, notes) = (PlanMemory::default(), FormNotes::default());
        Self { fetch: SampleFetch::default(), pipeline, plan, notes, memory: Vec::new() }
    }

    fn begun(header: Header, limits: Option<Limits>) -> Self {
        let mut driven = Self::new();
        assert_eq!(driven.fetch.step(), Step::Begin);
        let plan = &mut SamplePlan::crop(&driven.pipeline, Draw::default(), &mut driven.plan);
        driven.fetch.begin(header, limits, plan);
        driven
    }

    /// Brings the extents that are wanted. `change` gets all bytes of the sample.
    fn come(&mut self, change: impl FnOnce(&mut [u8])) -> Step {
        let Self { fetch, pipeline, plan, notes, memory } = self;
        assert_eq!(fetch.step(), Step::Read);
        let mut stored = [FILE, DETAIL].concat();
        change(&mut stored);
        memory.truncate(fetch.filled());
        for extent in fetch.wanted().extents() {
            memory.extend_from_slice(&stored[(extent.start - START) as usize..(extent.end - START) as usize]);
        }
        // A read may write behind its place.
        memory.extend_from_slice(b"garbage");
        fetch.came(memory, &mut SamplePlan::crop(pipeline, Draw::default(), plan), notes);
        fetch.step()
    }

    fn checked(&mut self, over_network: bool) -> Step {
        assert_eq!(self.fetch.step(), Step::Check);
        let plan = &mut SamplePlan::crop(&self.pipeline, Draw::default(), &mut self.plan);
        self.fetch.checked(over_network, &self.memory, plan);
        self.fetch.step()
    }

    fn rendered(&mut self, rendered: Result<Rendered, Unusable>) -> Step {
        assert_eq!(self.fetch.step(), Step::Render);
        self.fetch.rendered(rendered);
        self.fetch.step()
    }

    /// Returns the kind of the source, and its bytes.
    fn source(&mut self) -> (&'static str, Vec<u8>) {
        let plan = &mut SamplePlan::crop(&self.pipeline, Draw::default(), &mut self.plan);
        let source = self.fetch.source(&self.memory, plan, &self.notes).unwrap();
        let (kind, bytes) = crate::samples::bytes(source);
        (kind, bytes.to_vec())
    }
}

fn flip(at: usize, bits: u8) -> impl FnOnce(&mut [u8]) {
    move |bytes| bytes[at] ^= bits
}

fn intact(_: &mut [u8]) {}

const DONE: Prepared = Prepared { warnings: 3 };
const IN_DETAIL: usize = FILE.len() + 1;

#[test]
fn an_intact_sample_is_read_and_rendered() {
    let [kept, indexed] = [StoredForm::Kept, StoredForm::Indexed].map(header);
    for (header, extent, kind) in
        [(kept.clone(), kept.bytes, "encoded"), (indexed.clone(), START..indexed.detail.end, "indexed")]
    {
        let mut driven = Driven::begun(header, Some(Limits::default()));
        assert_eq!((driven.fetch.wanted().extents(), driven.fetch.filled()), (&[extent][..], 0));
        assert_eq!(driven.come(intact), Step::Render);
        assert_eq!(driven.source(), (kind, FILE.to_vec()));
        assert_eq!(driven.rendered(Ok(Rendered::Done(DONE))), Step::Done(DONE));
        assert!(!driven.fetch.is_healed(&driven.memory));
        driven.fetch.clear();
        assert_eq!(driven.fetch.step(), Step::Begin);
    }
}

#[test]
fn a_sample_without_bytes_wants_nothing_and_is_rendered() {
    let mut driven = Driven::begun(Header::file(7..7), Some(Limits::default()));
    assert!(driven.fetch.wanted().extents().is_empty());
    assert_eq!(driven.come(intact), Step::Render);
    assert_eq!(driven.source(), ("encoded", Vec::new()));
}

#[test]
fn a_whole_file_is_read_without_its_detail() {
    let mut driven = Driven::new();
    let (header, mut plan) = (header(StoredForm::Indexed), PlanMemory::default());
    driven.fetch.begin(header.clone(), None, &mut SamplePlan::whole(&mut plan));
    assert_eq!(driven.fetch.wanted().extents(), std::slice::from_ref(&header.bytes));
    assert_eq!(driven.come(intact), Step::Render);
    assert_eq!(driven.source(), ("encoded", FILE.to_vec()));
}

#[test]
fn pixels_beyond_the_limits_are_not_wanted() {
    let header = Header::planar((4, 2), 0..24);
    for limits in [Limits { pixels: 7, ..Limits::default() }, Limits { memory_bytes: 23, ..Limits::default() }] {
        let mut driven = Driven::begun(header.clone(), Some(limits));
        assert_eq!(driven.fetch.step(), Step::Failed);
        let Unusable::Pixels(error) = driven.fetch.take_problem() else { panic!("the image has too many pixels") };
        assert!([CorruptReason::TooManyPixels, CorruptReason::TooMuchMemory].contains(&error.reason()));
    }
    assert_eq!(Driven::begun(header, None).fetch.step(), Step::Read);
}

#[test]
fn damage_in_a_file_of_this_machine_is_final() {
    for form in [StoredForm::Kept, StoredForm::Indexed] {
        let mut driven = Driven::begun(header(form), None);
        assert_eq!(driven.come(flip(3, 1)), Step::Check);
        assert_eq!(driven.checked(false), Step::Failed);
        assert!(matches!(driven.fetch.take_problem(), Unusable::Bytes { .. }));
    }
}

#[test]
fn bytes_that_arrive_damaged_are_wanted_again() {
    let header = header(StoredForm::Kept);
    let begun = || Driven::begun(header.clone(), None);
    let damaged = |driven: &mut Driven, bits: u8| {
        assert_eq!(driven.come(flip(3, bits)), Step::Check);
        driven.checked(true)
    };
    let mut healed = begun();
    for bits in [1, 2, 4] {
        assert_eq!(damaged(&mut healed, bits), Step::Read);
        assert_eq!((healed.fetch.wanted().extents(), healed.fetch.filled()), (&[header.bytes.clone()][..], 0));
    }
    assert_eq!(healed.come(intact), Step::Render);
    assert!(healed.fetch.is_healed(&healed.memory));
    let mut stored = begun();
    assert_eq!([1, 2, 2].map(|bits| damaged(&mut stored, bits)), [Step::Read, Step::Read, Step::Failed]);
    assert!(matches!(stored.fetch.take_problem(), Unusable::Bytes { .. }));
    let mut unsteady = begun();
    let steps = [1, 2, 3, 4].map(|bits| damaged(&mut unsteady, bits));
    assert_eq!(steps, [Step::Read, Step::Read, Step::Read, Step::Failed]);
    assert!(matches!(unsteady.fetch.take_problem(), Unusable::Unsteady(_)));
}

#[test]
fn a_file_is_read_whole_if_a_part_is_damaged() {
    let header = header(StoredForm::Indexed);
    for over_network in [false, true] {
        let damaged = || {
            let mut driven = Driven::begun(header.clone(), None);
            for _ in 0..1 + u32::from(over_network) {
                assert_eq!(driven.come(flip(IN_DETAIL, 1)), Step::Check);
                assert_eq!(driven.checked(over_network), Step::Read);
            }
            assert_eq!((driven.fetch.wanted().extents(), driven.fetch.filled()), (&[header.bytes.clone()][..], 0));
            driven
        };
        let mut driven = damaged();
        assert_eq!(driven.come(intact), Step::Render);
        assert_eq!(driven.source(), ("encoded", FILE.to_vec()));
        assert!(!driven.fetch.is_healed(&driven.memory), "what is stored is damaged");
        // A file cannot be read more wholly.
        assert_eq!(driven.rendered(Ok(Rendered::NeedsFile)), Step::Check);
        let mut driven = damaged();
        for _ in 0..u32::from(over_network) {
            assert_eq!(driven.come(flip(0, 1)), Step::Check);
            assert_eq!(driven.checked(true), Step::Read);
        }
        assert_eq!(driven.come(flip(0, 1)), Step::Check);
        assert_eq!(driven.checked(over_network), Step::Failed);
        assert!(matches!(driven.fetch.take_problem(), Unusable::Bytes { .. }));
    }
}

#[test]
fn rendering_reports_damage_and_other_reasons() {
    let message = String::new;
    let checksum = || Unusable::Pixels(PixelError::Checksum { message: message() });
    let cases = [
        (Ok(Rendered::NeedsFile), Step::Check),
        (Err(checksum()), Step::Check),
        (Err(PixelError::Malformed { source: message().into() }.into()), Step::Failed),
        (Err(PixelError::Misfit { message: message() }.into()), Step::Failed),
    ];
    for (rendered, expected) in cases {
        let mut driven = Driven::begun(header(StoredForm::Indexed), None);
        driven.come(intact);
        assert_eq!(driven.rendered(rendered.clone()), expected, "{rendered:?}");
    }
    let mut driven = Driven::begun(header(StoredForm::Indexed), None);
    driven.come(intact);
    driven.rendered(Err(checksum()));
    assert_eq!(driven.checked(false), Step::Failed);
    assert_eq!(driven.fetch.take_problem(), checksum());
    let mut driven = Driven::begun(header(StoredForm::Indexed), None);
    driven.come(intact);
    driven.rendered(Ok(Rendered::NeedsFile));
    assert_eq!(driven.checked(false), Step::Read);
    assert_eq!(driven.fetch.wanted().extents(), [header(StoredForm::Indexed).bytes]);
}

#[test]
fn a_sample_can_go_to_another_thread_or_task() {
    fn check<T: Send + 'static>(_: &T) {}
    check(&super::super::FetchedSample::default());
}
