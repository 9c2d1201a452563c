//! Simulates a pack on a network whose bytes fail at one place, and gets a sample from it in each way: by one thread,
//! fetched with others first, and whole. A model says what each way gives.
//!
//! The faults: a byte that arrives changed a few times, in every read in another way, or always in the same way; reads
//! that fail a few times or always; and a pack that was replaced. A failure prints its seed.

mod store;

use super::*;
use crate::pack::{Pack, PackFormat, PackOptions, StoredForm, pack};
use crate::{Corrupt, Header, Unavailable, open};
use ddlp_pixels::encode::{JpegOptions, jpeg};
use ddlp_pixels::ops::CenterCrop;
use ddlp_pixels::{Fidelity, Limits, Pipeline, RowIndex, synthetic};
use std::fs;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use store::{Fault, Faulty};

const SAMPLES: u64 = 3;
/// Sample with the fault.
const SAMPLE: u64 = 1;
const FORMS: [StoredForm; 5] =
    [StoredForm::Kept, StoredForm::Indexed, StoredForm::Rows, StoredForm::Raw, StoredForm::L3];
/// Damaged reads in a row, each with other bytes, after which a sample is unavailable.
const READS_MAX: u32 = 4;

/// What a way to get a sample gives.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Got {
    /// The sample's pixels; whether the reader says that they were damaged on their way.
    Intact { is_healed: bool },
    /// A wrong checksum of the sample or of its detail.
    Checksum,
    /// A wrong checksum of rows or patches, which is found by decoding.
    PixelChecksum,
    /// The storage device cannot read the sample.
    Medium,
    /// The sample is unavailable; whether trying again may help.
    Unavailable { is_momentary: bool },
    /// The pack was replaced.
    Changed,
}

impl Got {
    fn of<T: PartialEq>(got: Result<T, SampleError>, expected: &T, is_healed: bool) -> Self {
        match got {
            Ok(pixels) => {
                assert!(pixels == *expected, "other pixels than without a fault");
                Self::Intact { is_healed }
            }
            Err(SampleError::Pixels(PixelError::Checksum { .. })) => Self::PixelChecksum,
            Err(SampleError::Read(ReadError::Corrupt(Corrupt::Checksum { .. }))) => Self::Checksum,
            Err(SampleError::Read(ReadError::Corrupt(Corrupt::Io { .. }))) => Self::Medium,
            Err(SampleError::Read(ReadError::Unavailable(Unavailable::Changed { .. }))) => Self::Changed,
            Err(SampleError::Read(ReadError::Unavailable(error))) => {
                Self::Unavailable { is_momentary: error.is_momentary() }
            }
            Err(other) => panic!("{other}"),
        }
    }
}

/// A pack of a form, and what its faulty sample gives without a fault.
struct Intact {
    form: StoredForm,
    store: Faulty,
    pack: Pack,
    header: Header,
    pipeline: CompiledPipeline,
    pixels: Vec<u8>,
    whole: Vec<u8>,
    /// The extents that a crop reads.
    reads: Vec<Range<u64>>,
    /// The bytes that a crop reads with its first extent and does not use there.
    unused: Range<u64>,
}

impl Intact {
    fn new(form: StoredForm) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("source/class")).unwrap();
        for number in 0..SAMPLES as u32 {
            let (width, height) = (301 + 8 * number, 203);
            let pixels = synthetic::photo(width, height, number);
            let (name, file) = match form {
                StoredForm::L3 => ("ppm", [format!("P6 {width} {height} 255\n").as_bytes(), &pixels].concat()),
                _ => ("jpg", jpeg(&pixels, width, height, &JpegOptions::default()).unwrap()),
            };
            fs::write(folder.path().join(format!("source/class/{number}.{name}")), file).unwrap();
        }
        let (source, out) = (open(&folder.path().join("source")).unwrap(), folder.path().join("out.ddlp"));
        let options = PackOptions { format: PackFormat::of(form), ..PackOptions::default() };
        pack(&*source, &out, &options, &mut |_| ControlFlow::Continue(())).unwrap();
        let store = Faulty::new(fs::read(&out).unwrap(), SAMPLES as usize);
        let pack = Pack::from_blocks(Box::new(store.clone()), Path::new("memory")).unwrap();
        let header = pack.header(SAMPLE).unwrap();
        assert_eq!(header.form, form);
        let pipeline = CompiledPipeline::of(&Pipeline::of([CenterCrop::to(24).into()])).unwrap();
        let (pixels, whole, reads, unused) = (Vec::new(), Vec::new(), Vec::new(), 0..0);
        let mut intact = Self { form, store, pack, header, pipeline, pixels, whole, reads, unused };
        intact.store.begin(None);
        intact.pixels = intact.alone(&mut Ways::default()).unwrap();
        intact.reads = intact.extents();
        if form == StoredForm::Rows {
            let index = RowIndex::parse(&intact.store.bytes(&intact.header.detail)).unwrap();
            intact.unused = intact.header.bytes.start + index.header_bytes()..intact.reads[0].end;
        }
        intact.whole = intact.whole().unwrap();
        intact
    }

    /// Returns the extents of samples that were read, without what was read of the index.
    fn extents(&self) -> Vec<Range<u64>> {
        let layout = self.pack.layout();
        self.store.extents(&(layout.data_offset..layout.data_offset + layout.data_bytes))
    }

    fn drawn(&self) -> Drawn<'_> {
        Drawn { pipeline: &self.pipeline, draw: Draw::default(), fidelity: Fidelity::WHOLE }
    }

    /// Prepares the sample by one thread.
    fn alone(&self, ways: &mut Ways) -> Result<Vec<u8>, SampleError> {
        let mut out = vec![0; self.pipeline.output().bytes()];
        let sample = StoredAt { dataset: &self.pack as &dyn Dataset, index: SAMPLE };
        ways.reader.prepare(sample, None, &mut ways.preparer, self.drawn(), &mut out)?;
        Ok(out)
    }

    /// Fetches the sample together with the others, and prepares it afterwards.
    fn fetched(&self, ways: &mut Ways) -> Result<Vec<u8>, SampleError> {
        let mut out = vec![0; self.pipeline.output().bytes()];
        // An error concerns any of the samples: preparing them finds out which.
        let _ = ways.fetcher.fetch(&self.pack, Limits::default(), &self.pipeline, &mut ways.samples);
        let sample = StoredAt { dataset: &self.pack as &dyn Dataset, index: SAMPLE };
        let fetched = Some(&mut ways.samples[SAMPLE as usize].fetched);
        ways.reader.prepare(sample, fetched, &mut ways.preparer, self.drawn(), &mut out)?;
        Ok(out)
    }

    /// Reads the whole sample.
    fn whole(&self) -> Result<Vec<u8>, SampleError> {
        let mut memory = Vec::new();
        let bytes = match self.pack.sample(SAMPLE, &mut memory)? {
            Source::Encoded(file) => file,
            Source::Image(image) => image.bytes,
            other => panic!("{other:?}"),
        };
        Ok(bytes.to_vec())
    }

    /// Says what a way gives that reads these extents. `is_decoded` tells whether it decodes them.
    fn expected(&self, place: u64, fault: Fault, extents: &[Range<u64>], is_decoded: bool) -> Got {
        let intact = Got::Intact { is_healed: false };
        let is_detail = self.header.detail.contains(&place);
        let is_checked = self.form.is_file() || is_detail || is_decoded;
        if !extents.iter().any(|extent| extent.contains(&place)) {
            return intact;
        }
        match fault {
            Fault::Fails { reads: 0, .. } | Fault::Flips { reads: 0 } => intact,
            Fault::Fails { errno: libc::EIO, .. } => Got::Medium,
            Fault::Fails { errno, .. } => Got::Unavailable { is_momentary: errno == libc::ETIMEDOUT },
            _ if !is_checked => intact,
            Fault::Flips { reads } if reads < READS_MAX => Got::Intact { is_healed: is_decoded },
            Fault::Flips { .. } => Got::Unavailable { is_momentary: true },
            Fault::Replaced => Got::Changed,
            // The whole file gives the same pixels.
            Fault::Stored if self.form.is_file() && is_detail => intact,
            Fault::Stored if self.form.is_file() || is_detail => Got::Checksum,
            Fault::Stored => Got::PixelChecksum,
        }
    }

    fn check(&self, ways: &mut Ways, seed: u64, place: u64, fault: Fault) {
        let context = format!("seed {seed}: {} {fault:?} at {place}", self.form.name());
        let expected = self.expected(place, fault, &self.reads, true);
        self.store.begin(Some((place, fault)));
        let got = self.alone(ways);
        let is_healed = ways.reader.take_healed() == 1;
        let (read, count) = (self.extents(), ways.reader.take_read());
        assert_eq!(Got::of(got, &self.pixels, is_healed), expected, "{context}: alone");
        if !matches!(fault, Fault::Fails { .. }) {
            assert_eq!(count.bytes, read.iter().map(|extent| extent.end - extent.start).sum::<u64>(), "{context}");
        }
        assert_eq!(count.sample_bytes, self.header.bytes.end - self.header.bytes.start, "{context}");

        // The thread that fetches makes one of the failed reads. Preparing tries again.
        let left = match fault {
            Fault::Fails { reads, errno } => Fault::Fails { reads: reads.saturating_sub(1), errno },
            fault => fault,
        };
        self.store.begin(Some((place, fault)));
        let got = self.fetched(ways);
        let is_healed = ways.reader.take_healed() == 1;
        let expected = self.expected(place, left, &self.reads, true);
        assert_eq!(Got::of(got, &self.pixels, is_healed), expected, "{context}: fetched");
        assert_eq!(ways.reader.take_read().sample_bytes, 0, "{context}: the thread that fetches counts the samples");
        ways.fetcher.take_read();

        let Header { bytes, detail, .. } = &self.header;
        let extents = if self.form.is_file() { vec![bytes.clone()] } else { vec![detail.clone(), bytes.clone()] };
        self.store.begin(Some((place, fault)));
        let expected = self.expected(place, fault, &extents, false);
        if matches!(expected, Got::Intact { .. }) && !self.form.is_file() && !detail.contains(&place) {
            // The caller decodes the bytes, and finds the damage.
            assert!(self.whole().is_ok(), "{context}: whole");
        } else {
            assert_eq!(Got::of(self.whole(), &self.whole, false), expected, "{context}: whole");
        }
    }
}

/// The memory of threads that get samples.
struct Ways {
    reader: SampleReader,
    preparer: Preparer,
    fetcher: SampleReader,
    samples: Vec<SampleToFetch>,
}

impl Default for Ways {
    fn default() -> Self {
        let sample = |index| SampleToFetch {
            index,
            draw: Draw::default(),
            fidelity: Fidelity::WHOLE,
            fetched: FetchedSample::default(),
        };
        Self {
            reader: SampleReader::default(),
            preparer: Preparer::new(Limits::default()),
            fetcher: SampleReader::default(),
            samples: (0..SAMPLES).map(sample).collect(),
        }
    }
}

/// Numbers that follow from a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed ^ (mixed >> 27)) % end
    }

    fn of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize].clone()
    }

    fn fault(&mut self) -> Fault {
        match self.below(4) {
            0 => Fault::Flips { reads: self.of(&[1, 2, 3, 4, u32::MAX]) },
            1 => Fault::Stored,
            2 => Fault::Replaced,
            _ => Fault::Fails {
                reads: self.of(&[1, 2, u32::MAX]),
                errno: self.of(&[libc::EIO, libc::ETIMEDOUT, libc::EACCES]),
            },
        }
    }

    /// Returns a place in the sample, mostly one that a crop reads. Avoids places that a crop reads and does not use.
    fn place(&mut self, intact: &Intact) -> u64 {
        let Header { bytes, detail, .. } = &intact.header;
        loop {
            let extent = match self.below(4) {
                0 => self.of(&[bytes.clone(), detail.clone()]),
                _ => self.of(&intact.reads),
            };
            if !extent.is_empty() {
                let place = extent.start + self.below(extent.end - extent.start);
                if !intact.unused.contains(&place) {
                    return place;
                }
            }
        }
    }
}

#[test]
fn every_way_to_get_a_sample_gives_what_the_model_says() {
    let mut ways = Ways::default();
    for form in FORMS {
        let intact = Intact::new(form);
        let mut seen: Vec<Got> = Vec::new();
        for seed in 0..150 {
            let mut numbers = Numbers(seed);
            intact.store.join(numbers.of(&[None, Some(4095)]));
            let (place, fault) = (numbers.place(&intact), numbers.fault());
            intact.check(&mut ways, seed, place, fault);
            let got = intact.expected(place, fault, &intact.reads, true);
            if !seen.contains(&got) {
                seen.push(got);
            }
        }
        assert!(seen.len() >= 6, "{form:?}: the faults give only {seen:?}");
    }
}
