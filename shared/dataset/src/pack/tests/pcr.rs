//! JPEGs in pieces: the pixels of the source, or of its first scan groups, from a part of its bytes.

use super::forms::write_all_kinds;
use super::{Bench, quietly};
use crate::pack::{
    Blocks, IndexPart, Pack, PackError, PackFormat, PackOptions, StoredForm, Survey, verify, verify_sample,
};
use crate::{
    Corrupt, Dataset, Drawn, FetchedSample, ReadError, SampleError, SampleReader, SampleToFetch, StoredAt, open,
};
use ddlp_pixels::encode::{JpegOptions, jpeg};
use ddlp_pixels::ops::{CenterCrop, RandomResizedCrop, Resize};
use ddlp_pixels::{
    CompiledPipeline, Draw, Fidelity, Limits, Pieces, Pipeline, Preparer, ScanGroups, Source, synthetic,
};
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

/// A pack's bytes in memory.
#[derive(Clone, Debug)]
struct Memory(Arc<RwLock<Vec<u8>>>);

impl Blocks for Memory {
    fn len_bytes(&self) -> u64 {
        self.0.read().unwrap().len() as u64
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let bytes = self.0.read().unwrap();
        let from = bytes.get(offset as usize..).and_then(|bytes| bytes.get(..out.len()));
        out.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn session(&self) -> u64 {
        0
    }

    fn interrupt(&self) {}
}

fn in_memory(bytes: Vec<u8>) -> (Memory, Result<Pack, crate::pack::FormatError>) {
    let memory = Memory(Arc::new(RwLock::new(bytes)));
    let pack = Pack::from_blocks(Box::new(memory.clone()), Path::new("memory"));
    (memory, pack)
}

fn options(bundle_samples: u32, groups: &str) -> PackOptions {
    let (format, groups) = (PackFormat::of(StoredForm::Pcr), groups.parse().unwrap());
    PackOptions { format, bundle_samples, groups, verify: true, overwrite: true, ..PackOptions::default() }
}

fn packed(bench: &Bench, name: &str, options: &PackOptions) -> PathBuf {
    let out = bench.path(name);
    quietly(&*open(&bench.path("source")).unwrap(), &out, options).unwrap();
    out
}

fn is_intact(path: &Path) -> bool {
    verify(path, 2, &mut |_| ControlFlow::Continue(())).unwrap().is_intact()
}

fn pipelines() -> [Pipeline; 3] {
    let of = |exif_orientation, operations| Pipeline { exif_orientation, operations };
    [
        of(true, vec![RandomResizedCrop::within(24, [0.1, 0.5], [0.5, 2.0]).into()]),
        of(false, vec![RandomResizedCrop::within(24, [0.1, 0.5], [0.5, 2.0]).into()]),
        of(true, vec![Resize::to(32).into(), CenterCrop::to(24).into()]),
    ]
}

/// Prepares a sample, fetched before or not, and returns its pixels and the number of bytes that were read.
fn prepare(
    dataset: &dyn Dataset,
    index: u64,
    pipeline: &Pipeline,
    fidelity: u8,
    is_fetched: bool,
) -> Result<(Vec<u8>, u64), SampleError> {
    let (pipeline, fidelity) = (CompiledPipeline::of(pipeline).unwrap(), Fidelity::new(fidelity).unwrap());
    let mut out = vec![0; pipeline.output().bytes()];
    let draw = Draw { seed: 3, epoch: 1, sample_id: index };
    let (mut preparer, mut reader) = (Preparer::new(Limits::default()), SampleReader::default());
    let drawn = Drawn { pipeline: &pipeline, draw, fidelity };
    let mut samples = [SampleToFetch { index, draw, fidelity, fetched: FetchedSample::default() }];
    if is_fetched {
        reader.fetch(dataset, Limits::default(), &pipeline, &mut samples)?;
        assert!(Some(samples[0].fetched.memory_bytes()) <= FetchedSample::memory_needed(dataset, index));
    }
    let fetched = samples.first_mut().filter(|_| is_fetched).map(|sample| &mut sample.fetched);
    reader.prepare(StoredAt { dataset, index }, fetched, &mut preparer, drawn, &mut out)?;
    Ok((out, reader.take_read().bytes))
}

/// Returns the pieces of a source's sample, if it can be cut.
fn cut(source: &dyn Dataset, index: u64, groups: &ScanGroups) -> Option<Pieces> {
    match source.sample(index, &mut Vec::new()).unwrap() {
        Source::Encoded(file) => Preparer::new(Limits::default()).cut(file, groups).ok(),
        _ => None,
    }
}

#[test]
fn crops_have_the_pixels_of_their_fidelity_and_read_only_its_pieces() {
    let bench = Bench::new(1, 1);
    write_all_kinds(&bench);
    let source = open(&bench.path("source")).unwrap();
    for groups in ["1,2,5,10", "10", "1,2,3,4,5,6,7,8,9,10"] {
        let options = options(5, groups);
        let path = packed(&bench, "pcr.ddlp", &options);
        let packs = [Pack::open(&path).unwrap(), in_memory(fs::read(&path).unwrap()).1.unwrap()];
        assert_eq!(packs[0].scan_groups(), Some(&options.groups));
        let (mut in_pieces, numbers) = (0, options.groups.numbers());
        for index in 0..source.len() {
            let pieces = cut(&*source, index, &options.groups);
            in_pieces += u64::from(pieces.is_some());
            for (number, &group) in numbers.iter().enumerate() {
                for pipeline in &pipelines() {
                    let (expected, bytes) = match &pieces {
                        Some(pieces) => {
                            let bytes: usize = (0..=number).map(|group| pieces.piece(group).len()).sum();
                            (prefix_pixels(pieces, number + 1, index, pipeline), bytes as u64)
                        }
                        None => prepare(&*source, index, pipeline, 10, false).unwrap(),
                    };
                    if group == 10 {
                        assert!(expected == prepare(&*source, index, pipeline, 10, false).unwrap().0, "{index}");
                    }
                    for (pack, is_fetched) in [(&packs[0], false), (&packs[1], false), (&packs[1], true)] {
                        let (pixels, read) = prepare(pack, index, pipeline, group, is_fetched).unwrap();
                        assert!(pixels == expected, "{index} {groups} {group} {is_fetched} {pipeline:?}");
                        assert_eq!(read, bytes, "{index} {groups} {group} {is_fetched}");
                    }
                }
            }
            assert_eq!(packs[0].label(index), source.label(index));
            assert_eq!(packs[0].name(index), source.name(index));
        }
        let survey = Survey::of(&packs[0]).unwrap();
        assert_eq!(survey.forms[&StoredForm::Pcr], in_pieces);
        assert!(in_pieces > 20 && in_pieces < source.len(), "{in_pieces}");
    }
}

/// Returns the pixels of a file of the first pieces, turned as the whole file is.
fn prefix_pixels(pieces: &Pieces, groups: usize, index: u64, pipeline: &Pipeline) -> Vec<u8> {
    let mut out = vec![0; pipeline.output().bytes()];
    let draw = Draw { seed: 3, epoch: 1, sample_id: index };
    let file = pieces.prefix(groups);
    // The markers, with the orientation, in front of these pieces.
    let file = ddlp_pixels::pieces::join(&file[..file.len() - 2], pieces.markers());
    Preparer::new(Limits::default()).prepare(Source::Encoded(&file), pipeline, draw, &mut out).unwrap();
    out
}

#[test]
fn a_pack_does_not_depend_on_threads_and_repacks_to_itself_and_to_whole_files() {
    let bench = Bench::new(1, 1);
    write_all_kinds(&bench);
    fs::write(bench.path("source/class0/zzz.jpg"), b"no image").unwrap();
    let source = open(&bench.path("source")).unwrap();
    let options = options(7, "1,2,5,10");
    let first = fs::read(packed(&bench, "first.ddlp", &PackOptions { threads: 1, ..options.clone() })).unwrap();
    let path = packed(&bench, "second.ddlp", &PackOptions { threads: 3, ..options.clone() });
    assert!(fs::read(&path).unwrap() == first);
    let (pack, again) = (Pack::open(&path).unwrap(), bench.path("again.ddlp"));
    let summary = quietly(&pack, &again, &options).unwrap();
    assert_eq!((summary.identity, summary.rejected_count), (pack.identity(), 1));
    let kept = PackOptions { format: PackFormat::of(StoredForm::Kept), ..options };
    quietly(&pack, &again, &kept).unwrap();
    let files = Pack::open(&again).unwrap();
    assert!(is_intact(&again) && files.scan_groups().is_none());
    for index in 0..source.len() - 1 {
        let (mut buf, mut of_source, mut of_files) = (Vec::new(), Vec::new(), Vec::new());
        let mut preparer = Preparer::new(Limits::default());
        let expected = preparer.decode(source.sample(index, &mut buf).unwrap(), None, &mut of_source).unwrap();
        let found = preparer.decode(files.sample(index, &mut buf).unwrap(), None, &mut of_files).unwrap();
        assert!(found == expected && of_files == of_source, "{index}");
    }
}

#[test]
fn damage_beyond_the_fidelity_does_not_matter_and_within_it_is_named() {
    let bench = Bench::new(2, 3);
    let path = packed(&bench, "pcr.ddlp", &options(4, "1,2,5,10"));
    let intact = fs::read(&path).unwrap();
    let pipeline = &pipelines()[0];
    let (memory, pack) = in_memory(intact.clone());
    let pack = pack.unwrap();
    let (name, header) = (pack.name(2), pack.header(2).unwrap());
    let mut pieces = Vec::new();
    pack.pieces(2, &header, None, &mut pieces).unwrap();
    assert_eq!(pieces.len(), 5);
    let expected: Vec<_> = [1, 2, 5, 10].map(|group| prepare(&pack, 2, pipeline, group, false).unwrap()).into();
    for (damaged, piece) in pieces.iter().enumerate().filter(|(_, piece)| !piece.extent.is_empty()) {
        memory.0.write().unwrap()[piece.extent.end as usize - 1] ^= 0x10;
        for (number, group) in [1, 2, 5, 10].into_iter().enumerate() {
            for is_fetched in [false, true] {
                let prepared = prepare(&pack, 2, pipeline, group, is_fetched);
                match prepared {
                    Ok(prepared) => assert!(number < damaged && prepared == expected[number]),
                    Err(SampleError::Read(ReadError::Corrupt(Corrupt::Checksum { name: of, location, .. }))) => {
                        assert!(number >= damaged && of == name);
                        assert_eq!(location.offset..location.offset + location.length, piece.extent);
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        }
        assert!(pack.sample(2, &mut Vec::new()).is_err());
        assert_eq!(verify_sample(&pack, 2).len(), 1);
        *memory.0.write().unwrap() = intact.clone();
    }
    assert!(verify_sample(&pack, 2).is_empty());
}

#[test]
fn any_flipped_bit_and_any_truncation_is_found() {
    const FLIPS: u64 = 9000;
    let bench = Bench::new(2, 3);
    let path = packed(&bench, "pcr.ddlp", &options(4, "1,2,5,10"));
    let intact = fs::read(&path).unwrap();
    let read = |pack: &Pack, index| match pack.sample(index, &mut Vec::new()) {
        Ok(Source::Encoded(file)) => Ok(file.to_vec()),
        Ok(_) => panic!("it is no file"),
        Err(ReadError::Corrupt(_)) => Err(()),
        Err(error) => panic!("{error}"),
    };
    let (memory, pack) = in_memory(intact.clone());
    let pack = pack.unwrap();
    let expected: Vec<_> = (0..6).map(|index| read(&pack, index).unwrap()).collect();
    let extents: Vec<_> = (0..6).flat_map(|index| pack.bundles.as_ref().unwrap().pieces(index)).collect();
    let extents: Vec<_> = extents.into_iter().map(|piece| piece.extent).collect();
    let (mut refused, mut named) = (0, 0);
    for flip in 0..FLIPS {
        let at = (flip.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 16) as usize % intact.len();
        let bit = 1 << (flip % 8);
        memory.0.write().unwrap()[at] ^= bit;
        match in_memory(memory.0.read().unwrap().clone()).1 {
            Err(_) => refused += 1,
            Ok(damaged) => {
                let found = (0..6).filter(|&index| match read(&damaged, index) {
                    Ok(file) => {
                        assert!(file == expected[index as usize], "byte {at}: sample {index} has other bytes");
                        false
                    }
                    Err(()) => true,
                });
                let found = found.count();
                let is_of_sample = extents.iter().any(|extent| extent.contains(&(at as u64)));
                assert_eq!(found, usize::from(is_of_sample), "byte {at}");
                named += found as u64;
            }
        }
        if flip % 100 == 0 {
            fs::write(&path, &*memory.0.read().unwrap()).unwrap();
            assert!(!is_intact(&path), "byte {at}");
        }
        memory.0.write().unwrap()[at] ^= bit;
    }
    assert!(refused > 500 && named > 500, "{refused} refused, {named} named");
    for cut in 0..1000 {
        let length = intact.len() * cut / 1000;
        assert!(in_memory(intact[..length].to_vec()).1.is_err(), "{length} bytes open");
    }
}

#[test]
fn what_no_pack_of_pieces_can_be_is_refused() {
    let bench = Bench::new(1, 2);
    for bundle in [0, 65_537] {
        let refused = quietly(&bench.source(), &bench.path("out.ddlp"), &options(bundle, "10"));
        assert!(matches!(refused, Err(PackError::BundleSize { samples }) if samples == bundle));
    }
    // Samples of pixels lie whole in the first group.
    let raw = PackOptions { format: PackFormat::of(StoredForm::Raw), ..options(1, "10") };
    let pixels = Pack::open(&packed(&bench, "raw.ddlp", &raw)).unwrap();
    let out = bench.path("out.ddlp");
    quietly(&pixels, &out, &options(2, "1,10")).unwrap();
    let pack = Pack::open(&out).unwrap();
    for index in 0..2 {
        let of = |dataset: &Pack| prepare(dataset, index, &pipelines()[0], 1, false).unwrap().0;
        assert!(of(&pack) == of(&pixels));
        assert_eq!(pack.record(index).unwrap().form, StoredForm::Raw);
    }
}

/// Puts bytes into a section of a pack, makes the checksums of section and superblock fit, and returns why the pack
/// does not open.
fn forged(intact: &[u8], part: IndexPart, at: usize, value: &[u8]) -> String {
    let layout = in_memory(intact.to_vec()).1.unwrap().layout().clone();
    let number = layout.sections.iter().position(|section| section.part == part).unwrap();
    let (section, mut bytes) = (layout.section(part), intact.to_vec());
    let extent = section.offset as usize..(section.offset + section.length) as usize;
    bytes[extent.start + at..][..value.len()].copy_from_slice(value);
    let crc = crc32c::crc32c(&bytes[extent]).to_le_bytes();
    bytes[256 + 32 * number + 24..][..4].copy_from_slice(&crc);
    let crc = crc32c::crc32c(&bytes[..4092]).to_le_bytes();
    bytes[4092..4096].copy_from_slice(&crc);
    let (_, opened) = in_memory(bytes);
    let Err(error) = opened else { panic!("a pack with a forged {part} opens") };
    error.to_string()
}

#[test]
fn forged_sections_are_refused() {
    use IndexPart::{Bundles, Pieces, Positions, Records};
    let bench = Bench::new(2, 3);
    let intact = fs::read(packed(&bench, "pcr.ddlp", &options(4, "1,10"))).unwrap();
    // Two groups and the markers; bundles of four and of two samples.
    let tables = intact_section(&intact, Pieces);
    let mut unsorted = tables[..4 * 9].to_vec();
    unsorted[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    unsorted.extend_from_slice(&crc32c::crc32c(&unsorted).to_le_bytes());
    let mut shorter = tables[..4 * 9].to_vec();
    let end = u32::from_le_bytes(shorter[16..20].try_into().unwrap()) - 1;
    shorter[16..20].copy_from_slice(&end.to_le_bytes());
    shorter.extend_from_slice(&crc32c::crc32c(&shorter).to_le_bytes());
    let records = intact_section(&intact, Records);
    let mut elsewhere = records[..60].to_vec();
    elsewhere[12] ^= 1;
    elsewhere.extend_from_slice(&crc32c::crc32c(&elsewhere).to_le_bytes());
    for (part, at, value, expected) in [
        (Bundles, 0, &[11][..], "11 scan groups"),
        (Bundles, 0, &[1], "scan groups are rising numbers"),
        (Bundles, 5, &[1], "must be 0"),
        (Bundles, 11, &[1], "must be 0"),
        (Bundles, 12, &[0], "1 to 65536"),
        (Bundles, 12, &[6], "bundle 0 has samples"),
        (Bundles, 12, &[3], "bundle 0 has samples"),
        (Bundles, 16, &[1], "bundle 0, "),
        (Bundles, 16 + 7, &[0x80], "bundle 0, "),
        (Bundles, 48, &[0; 8], "bundle 1, "),
        (Bundles, 16 + 8, &[0; 8], "of bundle 0 have"),
        (Bundles, 48 + 24, &[5], "bundle 1 has samples"),
        (Pieces, 0, &unsorted, "table 0 of bundle 0: its pieces do not follow each other"),
        (Pieces, 0, &shorter, "the pieces of bundle 0 have"),
        (Pieces, 4, &[0xFF], "table 0 of bundle 0: its checksum"),
        (Positions, 0, &[200], "position 200"),
        (Positions, 0, &[6], "position 6, which is taken or too large"),
        (Positions, 0, &[63], "position 63"),
        (Positions, 0, &intact_section(&intact, Positions)[4..8], "is taken"),
        (Records, 0, &elsewhere, "that of its first piece"),
    ] {
        let said = forged(&intact, part, at, value);
        assert!(said.contains(expected), "{part} {at} {value:?}: {said}");
    }
    let kept = PackOptions { format: PackFormat::of(StoredForm::Kept), ..options(4, "10") };
    let kept = fs::read(packed(&bench, "kept.ddlp", &kept)).unwrap();
    let mut record = intact_section(&kept, Records)[..60].to_vec();
    (record[24], record[27]) = (6, 1);
    record.extend_from_slice(&crc32c::crc32c(&record).to_le_bytes());
    assert!(forged(&kept, Records, 0, &record).contains("the pack has no bundles"));
}

fn intact_section(bytes: &[u8], part: IndexPart) -> Vec<u8> {
    let section = in_memory(bytes.to_vec()).1.unwrap().layout().section(part);
    bytes[section.offset as usize..][..section.length as usize].to_vec()
}

#[test]
fn bundles_take_less_space_than_baseline_files() {
    let bench = Bench::new(1, 1);
    let folder = bench.path("source/class0");
    for number in 0..12 {
        let pixels = synthetic::photo(360, 270, number);
        fs::write(folder.join(format!("{number:04}.jpg")), jpeg(&pixels, 360, 270, &JpegOptions::default()).unwrap())
            .unwrap();
    }
    let out = bench.path("out.ddlp");
    let summary = quietly(&bench.source(), &out, &options(1024, "1,2,5,10")).unwrap();
    let (stored, source) = (summary.stored_bytes(), summary.source_bytes);
    assert!(stored * 100 <= source * 97, "{stored} of {source} bytes");
}
