//! Bundles that are read as a whole: each byte once, in long reads; by several threads, and after damage.

use super::{Bench, quietly};
use crate::pack::read_ahead::EXTENT_BYTES;
use crate::pack::{Blocks, Pack, PackFormat, PackOptions, StoredForm};
use crate::{Ahead, Corrupt, Dataset, Drawn, ReadError, SampleError, SampleReader, StoredAt, open};
use ddlp_pixels::encode::{JpegOptions, jpeg};
use ddlp_pixels::ops::CenterCrop;
use ddlp_pixels::{CompiledPipeline, Draw, Fidelity, Limits, Pipeline, Preparer, synthetic};
use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

const SAMPLES: u64 = 24;
/// Samples of a bundle.
const BUNDLE: u64 = 10;

/// A pack's bytes in memory, and what is read of them.
#[derive(Clone, Debug, Default)]
struct Recorded(Arc<Mutex<Contents>>);

#[derive(Debug, Default)]
struct Contents {
    bytes: Vec<u8>,
    read: Vec<Range<u64>>,
    /// A byte that comes flipped once.
    flip: Option<u64>,
    /// The number of reads that succeed before the others fail.
    left: Option<u64>,
}

impl Recorded {
    fn contents(&self) -> std::sync::MutexGuard<'_, Contents> {
        self.0.lock().unwrap()
    }

    fn take(&self) -> Vec<Range<u64>> {
        std::mem::take(&mut self.contents().read)
    }
}

impl Blocks for Recorded {
    fn len_bytes(&self) -> u64 {
        self.contents().bytes.len() as u64
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut contents = self.contents();
        if let Some(left) = &mut contents.left {
            *left = left.checked_sub(1).ok_or(io::ErrorKind::ConnectionReset)?;
        }
        let range = offset..offset + out.len() as u64;
        out.copy_from_slice(&contents.bytes[range.start as usize..range.end as usize]);
        if let Some(flip) = contents.flip.take_if(|flip| range.contains(flip)) {
            out[(flip - offset) as usize] ^= 4;
        }
        contents.read.push(range);
        Ok(())
    }

    fn session(&self) -> u64 {
        0
    }

    fn interrupt(&self) {}
}

/// Returns a pack of pieces in blocks. Its images have some MB, so that bundles have several extents.
fn packed(bench: &Bench) -> (Recorded, Pack) {
    for number in 0..SAMPLES as u32 {
        let options = JpegOptions { quality: 95, ..JpegOptions::default() };
        let file = jpeg(&synthetic::photo(900, 700, number), 900, 700, &options).unwrap();
        fs::write(bench.path("source/class0").join(format!("{number:04}.jpg")), file).unwrap();
    }
    let (source, out) = (open(&bench.path("source")).unwrap(), bench.path("out.ddlp"));
    let format = PackFormat::of(StoredForm::Pcr);
    let options = PackOptions { format, bundle_samples: BUNDLE as u32, ..PackOptions::default() };
    quietly(&*source, &out, &options).unwrap();
    let recorded = Recorded::default();
    recorded.contents().bytes = fs::read(&out).unwrap();
    let pack = Pack::from_blocks(Box::new(recorded.clone()), Path::new("memory")).unwrap();
    recorded.take();
    (recorded, pack)
}

/// Prepares a sample. Returns its pixels, and how many samples had to be read again.
fn try_prepare(pack: &Pack, index: u64, fidelity: Fidelity) -> Result<(Vec<u8>, u64), SampleError> {
    let pipeline = CompiledPipeline::of(&Pipeline::of([CenterCrop::to(40).into()])).unwrap();
    let (mut out, mut preparer) = (vec![0; pipeline.output().bytes()], Preparer::new(Limits::default()));
    let mut reader = SampleReader::default();
    let drawn = Drawn { pipeline: &pipeline, draw: Draw { seed: 0, epoch: 0, sample_id: index }, fidelity };
    reader.prepare(StoredAt { dataset: pack, index }, None, &mut preparer, drawn, &mut out)?;
    Ok((out, reader.take_healed()))
}

fn prepare(pack: &Pack, index: u64, fidelity: Fidelity) -> Vec<u8> {
    try_prepare(pack, index, fidelity).unwrap().0
}

/// Announces samples in a window of a bundle, and reads them.
fn read_all(pack: &Pack, indices: &[u64], fidelity: Fidelity) -> Vec<Vec<u8>> {
    let one = |&index| {
        pack.announce(&[index], Ahead { fidelity, window: Some(1) });
        prepare(pack, index, fidelity)
    };
    indices.iter().map(one).collect()
}

/// Returns the samples, bundle by bundle.
fn in_order(pack: &Pack) -> Vec<u64> {
    let bundles = pack.bundles().unwrap().unwrap();
    assert_eq!(bundles.samples, BUNDLE);
    (0..SAMPLES).map(|position| bundles.index(position)).collect()
}

#[test]
fn a_bundle_is_read_once_in_long_reads_up_to_its_fidelity() {
    let bench = Bench::new(1, 0);
    let (recorded, pack) = packed(&bench);
    let order = in_order(&pack);
    for fidelity in [1, 5, 10].map(|number| Fidelity::new(number).unwrap()) {
        let alone: Vec<_> = order.iter().map(|&index| prepare(&pack, index, fidelity)).collect();
        let of_samples: u64 = recorded.take().iter().map(|read| read.end - read.start).sum();
        assert!(read_all(&pack, &order, fidelity) == alone);
        let mut read = recorded.take();
        let bytes: u64 = read.iter().map(|read| read.end - read.start).sum();
        assert_eq!(bytes, of_samples, "no byte twice, and none that no sample needs");
        assert!(read.len() as u64 <= SAMPLES.div_ceil(BUNDLE) + bytes.div_ceil(EXTENT_BYTES), "{read:?}");
        read.sort_by_key(|read| read.start);
        assert!(read.windows(2).all(|pair| pair[0].end <= pair[1].start), "{read:?}");
        assert!(pack.ahead.held_bytes() <= Ahead::memory(1, pack.bundles().unwrap().unwrap().bytes));
        pack.interrupt();
        assert_eq!(pack.ahead.held_bytes(), 0, "memory is freed when a run ends");
    }
    // What nobody has announced is read alone, and so is everything with bundles that need too much memory.
    for window in [None, Some(u64::MAX)] {
        pack.announce(&order, Ahead { fidelity: Fidelity::WHOLE, window });
        prepare(&pack, order[0], Fidelity::WHOLE);
        assert_eq!(recorded.take().len(), 4);
    }
}

#[test]
fn an_extent_that_came_damaged_is_read_again_from_where_it_lies() {
    let bench = Bench::new(1, 0);
    let (recorded, pack) = packed(&bench);
    let (order, fidelity) = (in_order(&pack), Fidelity::new(5).unwrap());
    let expected = read_all(&pack, &order, fidelity);
    pack.interrupt();
    let piece = pack.bundles.as_ref().unwrap().pieces(order[3]).nth(2).unwrap().extent;
    for healed in [true, false] {
        let at = piece.start + 7;
        if healed {
            recorded.contents().flip = Some(at);
        } else {
            recorded.contents().bytes[at as usize] ^= 4;
        }
        pack.announce(&order[..9], Ahead { fidelity, window: Some(1) });
        assert!(prepare(&pack, order[0], fidelity) == expected[0]);
        match try_prepare(&pack, order[3], fidelity) {
            Ok((row, again)) => assert!(healed && row == expected[3] && again == 1),
            Err(SampleError::Read(ReadError::Corrupt(Corrupt::Checksum { .. }))) => assert!(!healed),
            Err(other) => panic!("{other}"),
        }
        pack.interrupt();
    }
}

#[test]
fn threads_read_each_extent_once_and_a_failed_read_is_made_again() {
    let bench = Bench::new(1, 0);
    let (recorded, pack) = packed(&bench);
    let order = in_order(&pack);
    let expected: Vec<_> = order.iter().map(|&index| prepare(&pack, index, Fidelity::WHOLE)).collect();
    recorded.take();
    // Enough for all bundles.
    pack.announce(&order, Ahead { fidelity: Fidelity::WHOLE, window: Some(3) });
    recorded.contents().left = Some(1);
    let ahead = || {
        pack.header(order[0]).and_then(|header| {
            let mut pieces = Vec::new();
            pack.pieces(order[0], &header, Some(Fidelity::WHOLE), &mut pieces)?;
            let mut out = vec![0; (pieces[0].extent.end - pieces[0].extent.start) as usize];
            pack.read(order[0], &header, pieces[0].extent.start, &mut out)
        })
    };
    ahead().unwrap();
    ahead().unwrap();
    let other = order[BUNDLE as usize];
    let header = pack.header(other).unwrap();
    assert!(pack.read(other, &header, header.bytes.start, &mut [0; 9]).is_err(), "the second read fails");
    recorded.contents().left = None;
    std::thread::scope(|scope| {
        for first in 0..4 {
            let (pack, order, expected) = (&pack, &order, &expected);
            scope.spawn(move || {
                for at in (0..order.len()).map(|at| (at + 6 * first) % order.len()) {
                    assert!(prepare(pack, order[at], Fidelity::WHOLE) == expected[at]);
                }
            });
        }
    });
    let mut read = recorded.take();
    read.sort_by_key(|read| read.start);
    assert!(read.windows(2).all(|pair| pair[0].end <= pair[1].start), "{read:?}");
}
