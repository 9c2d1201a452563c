//! Entry points for fuzzers: everything that foreign bytes can reach, with this crate's promises as assertions.

use crate::ability::examples::IMAGES;
use crate::compiled::CompiledPipeline;
use crate::draw::Draw;
use crate::error::PixelError;
use crate::inspect::Verdict;
use crate::jpeg::baseline::{BaselineDecoder, Checkpoints};
use crate::level::Level;
use crate::limits::Limits;
use crate::ops::{
    CenterCrop, GaussianBlur, RandomAutocontrast, RandomCrop, RandomHorizontalFlip, RandomResizedCrop, Resize,
};
use crate::partial::PartialJpeg;
use crate::pieces::{self, ScanGroups};
use crate::pipeline::Pipeline;
use crate::plan::{PlanMemory, SamplePlan};
use crate::preparer::Preparer;
use crate::rendered::Rendered;
use crate::row_index::RowIndex;
use crate::source::Source;

/// Limits so small that one input costs milliseconds.
pub const LIMITS: Limits = Limits { pixels: 1 << 20, scans: 20, memory_bytes: 16 << 20 };

/// Describes, inspects and prepares `bytes` as a file, with a pipeline that the first bytes choose.
///
/// # Panics
///
/// If a promise of this crate is broken.
pub fn decode(bytes: &[u8]) {
    let mut preparer = Preparer::new(LIMITS);
    let described = preparer.info(bytes);
    let verdict_of_whole = preparer.inspect(bytes);
    if let Verdict::Repaired { bytes, .. } = &verdict_of_whole {
        assert_eq!(preparer.inspect(bytes), Verdict::Intact, "a repaired file is not intact");
    }
    let draw = Draw { seed: bytes.len() as u64, epoch: 0, sample_id: u64::from(bytes.last().copied().unwrap_or(0)) };
    let operations = match bytes.first().copied().unwrap_or(0) % 4 {
        0 => vec![RandomResizedCrop::within(24, [0.08, 1.0], [0.75, 4.0 / 3.0]).into()],
        1 => vec![Resize::to(20).into(), CenterCrop::to(32).into()],
        2 => vec![RandomCrop::padded(16, 8).into(), RandomHorizontalFlip { p: 1.0 }.into()],
        _ => {
            let blur = GaussianBlur { kernel_size: 5, sigma: [0.3, 2.0] };
            vec![CenterCrop::to(17).into(), blur.into(), RandomAutocontrast { p: 0.5 }.into()]
        }
    };
    let pipeline = Pipeline { exif_orientation: bytes.len().is_multiple_of(2), operations };
    let mut outs = [0, 255].map(|fill| vec![fill; pipeline.output().bytes()]);
    let outcomes = outs.each_mut().map(|out| preparer.prepare(Source::Encoded(bytes), &pipeline, draw, out));
    assert_eq!(outcomes[0], outcomes[1], "an outcome depends on the file before it");
    let mut by_libjpeg = vec![0; outs[0].len()];
    let verdict = Preparer::by_libjpeg(LIMITS).prepare(Source::Encoded(bytes), &pipeline, draw, &mut by_libjpeg);
    assert_eq!(outcomes[0], verdict, "the two decoders have different outcomes");
    assert!(verdict.is_err() || by_libjpeg == outs[0], "the two decoders have different pixels");
    if let Some(checkpoints) = Checkpoints::of(bytes, 3) {
        assert_eq!(Checkpoints::from_bytes(&checkpoints.to_bytes()).as_ref(), Ok(&checkpoints));
        let source = Source::Indexed { file: bytes, checkpoints: &checkpoints.to_bytes() };
        let outcome = preparer.prepare(source, &pipeline, draw, &mut by_libjpeg);
        assert_eq!(outcome, outcomes[0], "checkpoints changed the outcome");
        assert!(outcome.is_err() || by_libjpeg == outs[0], "checkpoints changed the pixels");
    }
    if verdict_of_whole == Verdict::Intact
        && let Ok(indexed) = preparer.index(bytes)
    {
        let file = indexed.transcoded.as_deref().unwrap_or(bytes);
        assert_eq!(preparer.inspect(file), Verdict::Intact, "rewriting damaged an intact file");
        let source = Source::Indexed { file, checkpoints: &indexed.checkpoints };
        let outcome = preparer.prepare(source, &pipeline, draw, &mut by_libjpeg);
        assert_eq!(outcome, outcomes[0], "the stored form changed the outcome");
        assert!(outcome.is_err() || by_libjpeg == outs[0], "the stored form changed the pixels");
    }
    if verdict_of_whole == Verdict::Intact
        && let Ok(index) = RowIndex::of(&mut BaselineDecoder::new(Level::best()), &mut Vec::new(), bytes)
    {
        assert_eq!(RowIndex::parse(&index.to_bytes()).as_ref(), Ok(&index));
        let rendered = render(&mut preparer, bytes, &index, &pipeline, draw, &mut by_libjpeg);
        assert_eq!(rendered, outcomes[0].clone().map(Rendered::Done), "reading in part changed the outcome");
        assert!(rendered.is_err() || by_libjpeg == outs[0], "reading in part changed the pixels");
    }
    if outcomes[0].is_ok() {
        assert!(outs[0] == outs[1], "a pixel was not written");
        assert!(described.is_ok(), "a file that decodes has no header");
    }
}

/// Cuts `bytes` into pieces, as a file; and joins them, as pieces.
///
/// # Panics
///
/// If a file that is cut has other pixels afterwards, or if a file of its first groups has none.
pub fn pieces(bytes: &[u8]) {
    let mut preparer = Preparer::new(LIMITS);
    let pixels = |preparer: &mut Preparer, file: &[u8]| {
        let mut pixels = Vec::new();
        preparer.decode(Source::Encoded(file), None, &mut pixels).map(|decoded| (decoded, pixels))
    };
    for joined in [pieces::join(bytes, &[]), pieces::join(bytes, bytes)] {
        let _ = pixels(&mut preparer, &joined);
    }
    let Ok(cut) = preparer.cut(bytes, &ScanGroups::each_scan()) else { return };
    assert_eq!(preparer.cut(&cut.whole(), &ScanGroups::each_scan()).map(|again| again.whole()), Ok(cut.whole()));
    let source = pixels(&mut preparer, bytes);
    assert_eq!(pixels(&mut preparer, &cut.whole()), source, "cutting changed the image");
    if source.is_err() {
        return;
    }
    for groups in 1..=cut.groups() {
        let prefix = cut.prefix(groups);
        assert!(pixels(&mut preparer, &prefix).is_ok(), "the first {groups} groups do not decode");
        let verdict = preparer.inspect(&prefix);
        assert!(
            !matches!(verdict, Verdict::Rejected { .. } | Verdict::Repaired { warnings: 1.., .. }),
            "the first {groups} groups: {verdict:?}"
        );
    }
}

/// Reads `bytes` as checkpoints of one of the built-in images and decodes the image from them.
///
/// # Panics
///
/// If checkpoints that are accepted do harm.
pub fn checkpoints(bytes: &[u8]) {
    let Some((first, bytes)) = bytes.split_first() else { return };
    let files = IMAGES;
    let file = files[usize::from(*first) % files.len()];
    if let Ok(checkpoints) = Checkpoints::from_bytes(bytes) {
        assert_eq!(Checkpoints::from_bytes(&checkpoints.to_bytes()).as_ref(), Ok(&checkpoints));
    }
    let pipeline = Pipeline::of([CenterCrop::to(17).into()]);
    let mut out = vec![0; pipeline.output().bytes()];
    let source = Source::Indexed { file, checkpoints: bytes };
    let _ = Preparer::new(LIMITS).prepare(source, &pipeline, Draw::default(), &mut out);
}

/// Returns inputs that [`checkpoints`] accepts, and their names: few and many checkpoints of each image that can have
/// some.
pub fn checkpoint_seeds() -> Vec<(String, Vec<u8>)> {
    let seed = |number: usize, every: u32| {
        let checkpoints = Checkpoints::of(IMAGES[number], every)?;
        Some((format!("{number}-every-{every}"), [&[number as u8][..], &checkpoints.to_bytes()].concat()))
    };
    (0..IMAGES.len()).flat_map(|number| [1, 4].map(|every| seed(number, every))).flatten().collect()
}

/// Renders a crop of a file from the bytes that its row index names.
fn render(
    preparer: &mut Preparer,
    file: &[u8],
    index: &RowIndex,
    pipeline: &Pipeline,
    draw: Draw,
    out: &mut [u8],
) -> Result<Rendered, PixelError> {
    let mut memory = PlanMemory::default();
    let compiled = CompiledPipeline::of(pipeline).expect("a valid pipeline");
    let mut plan = SamplePlan::crop(&compiled, draw, &mut memory);
    let reads = plan.bytes_of_jpeg(index)?;
    let bytes = |from: u64, to: u64| file.get(from as usize..to as usize).unwrap_or_default();
    let (header, rows) = (bytes(0, index.header_bytes()), bytes(reads.start, reads.end));
    let part = PartialJpeg { index, header, rows, rows_offset: reads.start };
    preparer.render(&Source::Rows(part), &mut plan, out)
}

/// Reads `bytes`, with a correct checksum, as the row index of one of the built-in images, and renders crops of the
/// image: with the checksums of the index, and with those of the bytes at the places in the index.
///
/// # Panics
///
/// If a row index that is accepted does harm.
pub fn row_index(bytes: &[u8]) {
    let [first, bytes @ ..] = bytes else { return };
    let file = IMAGES[usize::from(*first) % IMAGES.len()];
    let checksum = crc32c::crc32c(bytes).to_le_bytes();
    let Ok(mut index) = RowIndex::parse(&[&checksum[..], bytes].concat()) else { return };
    assert_eq!(RowIndex::parse(&index.to_bytes()).as_ref(), Ok(&index));
    let mut preparer = Preparer::new(LIMITS);
    let crops = [CenterCrop::to(17).into(), RandomCrop::padded(9, 2).into()];
    for operation in crops {
        let pipeline = Pipeline { exif_orientation: true, operations: vec![operation] };
        let mut out = vec![0; pipeline.output().bytes()];
        let _ = render(&mut preparer, file, &index, &pipeline, Draw::default(), &mut out);
        if index.seal(file).is_some() {
            let _ = render(&mut preparer, file, &index, &pipeline, Draw::default(), &mut out);
        }
    }
}

/// Returns inputs that [`row_index`] accepts, and their names: the row index of each image that can have one.
pub fn row_index_seeds() -> Vec<(String, Vec<u8>)> {
    let seed = |number: usize| {
        let index = RowIndex::of(&mut BaselineDecoder::new(Level::best()), &mut Vec::new(), IMAGES[number]).ok()?;
        // The target makes the first four bytes, a checksum.
        Some((number.to_string(), [&[number as u8], &index.to_bytes()[4..]].concat()))
    };
    (0..IMAGES.len()).filter_map(seed).collect()
}

/// Reads `text` as a pipeline's description.
///
/// # Panics
///
/// If a description that is accepted has no output.
pub fn describe(text: &str) {
    if let Ok(pipeline) = Pipeline::from_toml(text) {
        assert!(pipeline.output().bytes() > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn check(target: &str, seeds: &[(String, Vec<u8>)], run: fn(&[u8])) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
        for (name, seed) in seeds {
            run(seed);
            let stored = fs::read(folder.join(name)).ok();
            assert!(
                stored.as_ref() == Some(seed),
                "{target}/{name} is outdated: run the example checkpoint_seeds to write it again"
            );
        }
    }

    #[test]
    fn the_seeds_of_images_and_what_is_like_them_are_cut_or_not() {
        for image in IMAGES {
            pieces(image);
            for at in (2..image.len()).step_by(37) {
                let mut damaged = image.to_vec();
                damaged[at] ^= 1 << (at % 8);
                pieces(&damaged);
            }
        }
    }

    #[test]
    fn the_seeds_of_checkpoints_are_those_of_today() {
        let seeds = checkpoint_seeds();
        assert!(seeds.len() >= 4, "seeds are missing: gray and colours, with and without restart markers");
        check("checkpoints", &seeds, checkpoints);
    }

    #[test]
    fn the_seeds_of_row_indices_are_those_of_today() {
        let seeds = row_index_seeds();
        assert!(seeds.len() >= 2, "seeds are missing: gray and colours");
        check("row_index", &seeds, row_index);
    }
}
