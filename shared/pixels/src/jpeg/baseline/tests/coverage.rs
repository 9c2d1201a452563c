//! A rectangle costs only what it covers. All other MCUs of a file are overwritten with bits that are no code of any
//! table, so that a decoder that reads one of them gives the file up. This also reveals a decoder that leaves a file to
//! libjpeg without need.

use std::ops::Range;

use super::*;
use crate::jpeg::baseline::bits::Place;
use crate::jpeg::baseline::header;
use crate::ops::CenterCrop;
use crate::rendered::Prepared;

/// The MCUs that a rectangle covers.
#[derive(Debug)]
struct Covered {
    columns: Range<u32>,
    rows: Range<u32>,
    /// MCUs in a row of the image.
    across: u32,
}

impl Covered {
    /// If colours are halved, a pixel also needs the samples next to its own, which belong to pixels at most three
    /// further away.
    fn new(layout: Layout, (width, height): (u32, u32), rect: Rect) -> Self {
        let (across, down) = match layout {
            Layout::Yuv422 => (2, 1),
            Layout::Yuv420 => (2, 2),
            Layout::Yuv440 => (1, 2),
            _ => (1, 1),
        };
        let span = |start: u32, length: u32, factor: u32, limit: u32| {
            let more = if factor == 2 { 3 } else { 0 };
            let last = (start + length - 1 + more).min(limit - 1);
            start.saturating_sub(more) / (8 * factor)..last / (8 * factor) + 1
        };
        Self {
            columns: span(rect.x, rect.width, across, width),
            rows: span(rect.y, rect.height, down, height),
            across: width.div_ceil(8 * across),
        }
    }

    /// Returns the MCUs that are read from the beginning of the file.
    fn read_from_the_beginning(&self) -> Range<usize> {
        0..(self.rows.end * self.across) as usize
    }

    /// Returns the MCUs that are read if each row has a checkpoint at every `every`th MCU.
    fn read_from_checkpoints(&self, every: u32) -> Vec<Range<usize>> {
        let first = self.columns.start / every * every;
        let run = |row: u32| (row * self.across + first) as usize..(row * self.across + self.columns.end) as usize;
        self.rows.clone().map(run).collect()
    }
}

/// A file, and the place at which each of its MCUs begins.
struct Mapped<'f> {
    file: &'f [u8],
    /// Beginning and end of the scan.
    scan: Range<usize>,
    places: Vec<Place>,
}

impl<'f> Mapped<'f> {
    fn new(file: &'f [u8]) -> Self {
        let (mut decoder, mut band, mut places) = (BaselineDecoder::new(Level::best()), Vec::new(), Vec::new());
        decoder.open(file, None, &mut band).unwrap().walk(1, |place, _| places.push(place)).unwrap();
        assert!(file.ends_with(&[0xFF, 0xD9]));
        let scan = file.len() - header::parse(file).unwrap().scan.len()..file.len() - 2;
        Self { file, scan, places }
    }

    /// Returns the offset of the byte in which an MCU begins.
    fn start(&self, mcu: usize) -> usize {
        self.places.get(mcu).map_or(self.scan.end, |place| self.scan.start + place.byte)
    }

    /// Returns the offset after the last byte that the MCU before this one uses.
    fn behind(&self, mcu: usize) -> usize {
        let start = self.start(mcu);
        match self.places.get(mcu) {
            Some(place) if place.bit > 0 => start + if self.file[start] == 0xFF { 2 } else { 1 },
            _ => start,
        }
    }

    /// Clears everything but some runs of MCUs. Returns the file, and the number of bytes cleared.
    fn with_only(&self, runs: &[Range<usize>]) -> (Vec<u8>, usize) {
        let (mut file, mut cleared, mut at) = (self.file.to_vec(), 0, self.scan.start);
        let next = runs.iter().map(|run| (self.start(run.start), self.behind(run.end)));
        for (start, end) in next.chain([(self.scan.end, self.scan.end)]) {
            if at < start {
                clear(&mut file[at..start]);
                cleared += start - at;
            }
            at = end;
        }
        (file, cleared)
    }
}

/// Fills bytes with ones, with a zero byte after each 0xFF, so that none is a marker.
fn clear(bytes: &mut [u8]) {
    let (pairs, rest) = bytes.as_chunks_mut::<2>();
    pairs.fill([0xFF, 0]);
    rest.fill(0x7F);
}

#[test]
fn what_a_rectangle_does_not_cover_is_not_read() {
    // Numbers of reads, from the beginning and from checkpoints, of files that have cleared bytes.
    let (below, around) = (Cell::new(0), Cell::new(0));
    let cases = (samples(), 1u32..9, any::<[[u16; 4]; 4]>());
    check(400, 45, cases, |(sample, every, corners)| {
        let file = sample.file();
        let mapped = Mapped::new(&file);
        let (pixels, _) = by_libjpeg(&file, whole(sample.size)).unwrap();
        for level in Level::tested() {
            let mut decoder = BaselineDecoder::new(level);
            let checkpoints = Checkpoints::make(&mut decoder, &file, every).unwrap();
            for rect in corners.map(|corners| rect_of(corners, sample.size)) {
                let part = cut(&pixels, sample.size.0, rect);
                let covered = Covered::new(sample.options.layout, sample.size, rect);
                let (above, cleared) = mapped.with_only(&[covered.read_from_the_beginning()]);
                let ours = by_us(&mut decoder, &above, None, rect);
                prop_assert!(ours.as_ref() == Ok(&part), "{level:?} {rect:?} {covered:?}");
                add(&below, cleared > 0);
                let (alone, cleared) = mapped.with_only(&covered.read_from_checkpoints(every));
                let ours = by_us(&mut decoder, &alone, Some(&checkpoints), rect);
                prop_assert!(ours.as_ref() == Ok(&part), "{level:?} {rect:?} {covered:?} from checkpoints");
                add(&around, cleared > 0);
            }
        }
        Ok(())
    });
    let least = 900 * Level::tested().count() as u32;
    assert!(below.get() >= least && around.get() >= least, "{} and {} rectangles", below.get(), around.get());
}

/// Checks that the test above can fail.
#[test]
fn what_is_cleared_is_noticed_by_who_reads_it() {
    let mut decoder = BaselineDecoder::new(Level::best());
    for layout in LAYOUTS {
        let (file, rect) = (file_of(layout), MIDDLE);
        let mapped = Mapped::new(&file);
        let covered = Covered::new(layout, SIZE, rect);
        let checkpoints = Checkpoints::make(&mut decoder, &file, 1).unwrap();
        let (alone, _) = mapped.with_only(&covered.read_from_checkpoints(1));
        assert_eq!(by_us(&mut decoder, &alone, None, rect), Err(LeftToLibjpeg), "{layout:?}: from the beginning");
        let (above, _) = mapped.with_only(&[covered.read_from_the_beginning()]);
        assert_eq!(by_us(&mut decoder, &above, None, whole(SIZE)), Err(LeftToLibjpeg), "{layout:?}: to the end");
        // One MCU more on either side.
        for (x, width) in [(rect.x - 32, rect.width + 32), (rect.x, rect.width + 32)] {
            let wider = Rect { x, width, ..rect };
            assert_eq!(
                by_us(&mut decoder, &alone, Some(&checkpoints), wider),
                Err(LeftToLibjpeg),
                "{layout:?} {wider:?}"
            );
        }
    }
}

const SIZE: (u32, u32) = (240, 200);
/// Rectangle that a centre crop of 40 pixels cuts out.
const MIDDLE: Rect = Rect { x: 100, y: 80, width: 40, height: 40 };

fn file_of(layout: Layout) -> Vec<u8> {
    let options = JpegOptions { layout, ..JpegOptions::default() };
    Sample { options, size: SIZE, seed: 7, noise: 20 }.file()
}

#[test]
fn a_preparer_enters_an_indexed_file_where_its_crop_is() {
    let pipeline = Pipeline::of([CenterCrop::to(40).into()]);
    let prepare = |mut preparer: Preparer, source: Source<'_>| {
        let mut out = vec![0; pipeline.output().bytes()];
        preparer.prepare(source, &pipeline, Draw::default(), &mut out).map(|prepared| (prepared, out))
    };
    for layout in LAYOUTS {
        let file = file_of(layout);
        let expected = Ok((Prepared { warnings: 0 }, by_libjpeg(&file, MIDDLE).unwrap().0));
        let checkpoints = Checkpoints::of(&file, 4).unwrap().to_bytes();
        let covered = Covered::new(layout, SIZE, MIDDLE);
        let (alone, _) = Mapped::new(&file).with_only(&covered.read_from_checkpoints(4));
        let source = Source::Indexed { file: &alone, checkpoints: &checkpoints };
        assert!(prepare(Preparer::new(Limits::default()), source) == expected, "{layout:?}");
        // No other way to decode yields these pixels from what is left of the file.
        for preparer in [Preparer::new(Limits::default()), Preparer::by_libjpeg(Limits::default())] {
            assert!(prepare(preparer, Source::Encoded(&alone)) != expected, "{layout:?}");
        }
    }
}

#[test]
fn a_preparer_leaves_no_file_of_its_layouts_to_libjpeg() {
    // With a limit of no scans, libjpeg decodes nothing. Our decoder takes only files with one scan, and does not count
    // it.
    let limits = Limits { scans: 0, ..Limits::default() };
    let pipeline = pipeline();
    check(300, 46, (samples(), 1u32..20, any::<u64>()), |(sample, every, seed)| {
        let file = sample.file();
        let checkpoints = Checkpoints::of(&file, every).unwrap().to_bytes();
        let draw = Draw { seed, epoch: 0, sample_id: 0 };
        let mut out = vec![0; pipeline.output().bytes()];
        for source in [Source::Encoded(&file), Source::Indexed { file: &file, checkpoints: &checkpoints }] {
            let prepared = Preparer::new(limits).prepare(source, &pipeline, draw, &mut out);
            prop_assert_eq!(prepared, Ok(Prepared { warnings: 0 }));
            let refused = Preparer::by_libjpeg(limits).prepare(source, &pipeline, draw, &mut out);
            prop_assert_eq!(refused, Err(PixelError::TooManyScans { limit: 0 }));
        }
        Ok(())
    });
}
