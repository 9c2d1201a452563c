//! Samples of a pack in blocks that are fetched together: one read serves several of them.

use super::{Bench, Pixels, quietly};
use crate::pack::{Blocks, Pack, PackFormat, PackOptions, StoredForm};
use crate::samples::write_folder;
use crate::{BytesRead, Dataset, Drawn, FetchDepth, FetchedSample, SampleReader, SampleToFetch, StoredAt, open};
use ddlp_pixels::ops::RandomResizedCrop;
use ddlp_pixels::{CompiledPipeline, Draw, Fidelity, Limits, Pipeline, Preparer};
use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

const GROUP: usize = 8;

/// A pack's bytes in memory as a drive has them, and the number of reads.
#[derive(Clone, Debug, Default)]
struct Drive {
    bytes: Arc<Mutex<Vec<u8>>>,
    reads: Arc<Mutex<usize>>,
}

impl Drive {
    fn of(source: &dyn Dataset, out: &Path, form: StoredForm) -> (Self, Pack) {
        let options = PackOptions { format: PackFormat::of(form), overwrite: true, ..PackOptions::default() };
        quietly(source, out, &options).unwrap();
        let drive = Self::default();
        *drive.bytes.lock().unwrap() = fs::read(out).unwrap();
        let pack = Pack::from_blocks(Box::new(drive.clone()), Path::new("memory")).unwrap();
        (drive, pack)
    }

    fn take_reads(&self) -> usize {
        std::mem::take(&mut self.reads.lock().unwrap())
    }
}

impl Blocks for Drive {
    fn len_bytes(&self) -> u64 {
        self.bytes.lock().unwrap().len() as u64
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        *self.reads.lock().unwrap() += 1;
        out.copy_from_slice(&self.bytes.lock().unwrap()[offset as usize..][..out.len()]);
        Ok(())
    }

    /// Also writes behind the place, as reads of whole blocks do.
    fn read_within(&self, offset: u64, memory: &mut [u8], place: Range<usize>) -> io::Result<()> {
        self.read(offset, &mut memory[place.clone()])?;
        memory[place.end..][..4095].fill(0xEE);
        Ok(())
    }

    fn fetch_depth(&self) -> FetchDepth {
        FetchDepth { threads: 1, samples: GROUP, join_gap: Some(4095), at_once: None }
    }

    fn session(&self) -> u64 {
        0
    }

    fn interrupt(&self) {}
}

/// Fetches and renders samples together, and compares each with the sample that is prepared alone. Returns the number
/// of reads of both ways, and what both have read.
fn fetch(drive: &Drive, pack: &Pack, indices: &[u64]) -> ([usize; 2], [BytesRead; 2]) {
    let crop = RandomResizedCrop::within(9, [0.1, 0.6], [0.7, 1.4]);
    let pipeline = CompiledPipeline::of(&Pipeline::of([crop.into()])).unwrap();
    let draw = |index| Draw { seed: 3, epoch: 1, sample_id: index };
    let (mut reader, mut preparer) = (SampleReader::default(), Preparer::new(Limits::default()));
    let to_fetch = |&index| SampleToFetch {
        index,
        draw: draw(index),
        fidelity: Fidelity::WHOLE,
        fetched: FetchedSample::default(),
    };
    let mut samples: Vec<SampleToFetch> = indices.iter().map(to_fetch).collect();
    drive.take_reads();
    reader.fetch(pack, Limits::default(), &pipeline, &mut samples).unwrap();
    let (together, read_together) = (drive.take_reads(), reader.take_read());
    let mut renderer = SampleReader::default();
    for SampleToFetch { index, draw, fetched, .. } in &mut samples {
        let drawn = Drawn { pipeline: &pipeline, draw: *draw, fidelity: Fidelity::WHOLE };
        let [mut out, mut expected] = [1, 2].map(|byte| vec![byte; pipeline.output().bytes()]);
        let sample = StoredAt { dataset: pack as &dyn Dataset, index: *index };
        renderer.prepare(sample, Some(fetched), &mut preparer, drawn, &mut out).unwrap();
        reader.prepare(sample, None, &mut preparer, drawn, &mut expected).unwrap();
        assert!(out == expected, "{index}");
    }
    assert_eq!(renderer.take_read(), BytesRead::default(), "all was fetched");
    ([together, drive.take_reads()], [read_together, reader.take_read()])
}

#[test]
fn neighbouring_samples_share_a_read_and_distant_ones_do_not() {
    let bench = Bench::new(1, 1);
    write_folder(&bench.path("many"), 1, 200);
    let (folder, pixels) = (open(&bench.path("many")).unwrap(), Pixels::new(200));
    for (source, form, is_planar) in [
        (&*folder, StoredForm::Kept, false),
        (&*folder, StoredForm::Indexed, false),
        (&*folder, StoredForm::Raw, false),
        (&pixels, StoredForm::Kept, true),
    ] {
        let (drive, pack) = Drive::of(source, &bench.path("out.ddlp"), form);
        let in_order: Vec<u64> = (40..40 + GROUP as u64).collect();
        let ([together, alone], [read_together, read_alone]) = fetch(&drive, &pack, &in_order);
        assert_eq!((together, alone), (1, if form == StoredForm::Raw { 2 * GROUP } else { GROUP }), "{form:?}");
        assert_eq!(read_together.bytes, read_alone.bytes);
        assert!(2 * read_together.block_bytes < read_alone.block_bytes, "{read_together:?} {read_alone:?}");
        if !is_planar {
            let far: Vec<u64> = [170, 10, 90, 50, 130].into();
            let ([together, alone], [read_together, read_alone]) = fetch(&drive, &pack, &far);
            assert_eq!(together, if form == StoredForm::Raw { alone / 2 } else { alone }, "{form:?}: none is joined");
            assert!(read_together.block_bytes <= read_alone.block_bytes && read_together.bytes == read_alone.bytes);
        }
        // The same sample twice, as a short dataset in a long epoch may have it.
        let ([together, _], [read_together, read_alone]) = fetch(&drive, &pack, &[70, 71, 70]);
        assert_eq!(together, 1, "{form:?}");
        assert!(read_together.bytes < read_alone.bytes);
    }
}
