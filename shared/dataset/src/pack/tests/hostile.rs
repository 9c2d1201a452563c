//! Packs that lie. Each test forges one field, with checksums that fit, as an attacker would.

use super::{Bench, quietly};
use crate::pack::{FormatError, IndexPart, Pack, PackFormat, PackLayout, PackOptions, StoredForm};
use crate::{Dataset, ReadError, Unavailable};
use std::fs;
use std::path::PathBuf;

/// Byte offsets in the superblock, as `docs/pack.md` gives them.
const VERSION: usize = 8;
const BLOCK_SIZE: usize = 12;
const FILE_BYTES: usize = 16;
const SAMPLES: usize = 24;
const CLASSES: usize = 32;
const SECTIONS: usize = 36;
const DATA_OFFSET: usize = 40;
const DATA_BYTES: usize = 48;
const SOURCE_KIND: usize = 120;
const RESERVED: std::ops::Range<usize> = 128..256;
const TABLE: usize = 256;
const RESERVED_TAIL: std::ops::Range<usize> = 2304..4092;
/// Fields of an entry of the section table.
const KIND: usize = 0;
const FLAGS: usize = 4;
const OFFSET: usize = 8;
const LENGTH: usize = 16;
const SECTION_RESERVED: usize = 28;
/// Fields of a record.
const RECORD_LENGTH: usize = 8;
const WIDTH: usize = 16;
const HEIGHT: usize = 20;
const FORM: usize = 24;
const VERDICT: usize = 25;
const REASON: usize = 26;
const RECORD_FLAGS: usize = 27;
const NAME_LENGTH: usize = 28;
const NAME_OFFSET: usize = 32;
const DETAIL_OFFSET: usize = 40;
const DETAIL_LENGTH: usize = 48;
const DETAIL_CRC: usize = 56;

/// A pack of eight samples to be forged.
struct Forgery {
    _bench: Bench,
    path: PathBuf,
    layout: PackLayout,
    bytes: Vec<u8>,
}

impl Forgery {
    fn new() -> Self {
        Self::of(PackFormat::default())
    }

    fn of(format: PackFormat) -> Self {
        let bench = Bench::new(2, 4);
        let path = bench.path("out.ddlp");
        quietly(&bench.source(), &path, &PackOptions { format, ..PackOptions::default() }).unwrap();
        let layout = Pack::open(&path).unwrap().layout().clone();
        let bytes = fs::read(&path).unwrap();
        Self { _bench: bench, path, layout, bytes }
    }

    fn put(&mut self, at: usize, value: &[u8]) {
        self.bytes[at..at + value.len()].copy_from_slice(value);
    }

    fn entry(&self, part: IndexPart) -> usize {
        TABLE + 32 * self.layout.sections.iter().position(|section| section.part == part).unwrap()
    }

    fn record(&self, index: usize) -> usize {
        self.layout.section(IndexPart::Records).offset as usize + 64 * index
    }

    /// Makes the checksums of records, sections and superblock fit the forged fields, and opens the pack.
    fn open(&mut self) -> Result<Pack, FormatError> {
        for index in 0..8 {
            let at = self.record(index);
            let crc = crc32c::crc32c(&self.bytes[at..at + 60]);
            self.put(at + 60, &crc.to_le_bytes());
        }
        let count = u32::from_le_bytes(self.bytes[SECTIONS..SECTIONS + 4].try_into().unwrap()) as usize;
        for (position, section) in self.layout.sections.clone().iter().enumerate().take(count) {
            let crc = crc32c::crc32c(&self.bytes[section.offset as usize..][..section.length as usize]);
            self.put(TABLE + 32 * position + 24, &crc.to_le_bytes());
        }
        let crc = crc32c::crc32c(&self.bytes[..4092]);
        self.put(4092, &crc.to_le_bytes());
        fs::write(&self.path, &self.bytes).unwrap();
        Pack::open(&self.path)
    }
}

/// Forges a pack and returns the error's text.
fn malformed(part: IndexPart, forge: impl Fn(&mut Forgery)) -> String {
    malformed_of(PackFormat::default(), part, forge)
}

fn malformed_of(format: PackFormat, part: IndexPart, forge: impl Fn(&mut Forgery)) -> String {
    let mut forgery = Forgery::of(format);
    forge(&mut forgery);
    match forgery.open() {
        Err(FormatError::Malformed { part: found, problem, .. }) => {
            assert_eq!(found, part, "{problem}");
            problem
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it opens"),
    }
}

fn superblock(forge: impl Fn(&mut Forgery)) -> String {
    malformed(IndexPart::Superblock, forge)
}

fn records(forge: impl Fn(&mut Forgery)) -> String {
    malformed(IndexPart::Records, forge)
}

/// Forges a pack in which nothing lies behind a sample's bytes.
fn kept(forge: impl Fn(&mut Forgery)) -> String {
    malformed_of(KEPT, IndexPart::Records, forge)
}

#[track_caller]
fn says(problem: String, expected: &str) {
    assert!(problem.contains(expected), "{problem}");
}

#[test]
fn without_a_forgery_it_opens() {
    assert_eq!(Forgery::new().open().unwrap().len(), 8);
}

#[test]
fn another_magic() {
    let mut forgery = Forgery::new();
    forgery.put(0, b"DDLPPACX");
    assert!(matches!(forgery.open(), Err(FormatError::NotAPack { .. })));
}

#[test]
fn another_version() {
    let mut forgery = Forgery::new();
    forgery.put(VERSION, &2u32.to_le_bytes());
    assert!(matches!(forgery.open(), Err(FormatError::Version { found: 2, .. })));
}

#[test]
fn another_length() {
    let mut forgery = Forgery::new();
    forgery.put(FILE_BYTES, &u64::MAX.to_le_bytes());
    assert!(matches!(forgery.open(), Err(FormatError::Length { expected: u64::MAX, .. })));
}

#[test]
fn a_length_that_is_no_whole_number_of_blocks() {
    let mut forgery = Forgery::new();
    forgery.bytes.push(0);
    let length = forgery.bytes.len() as u64;
    forgery.put(FILE_BYTES, &length.to_le_bytes());
    assert!(matches!(forgery.open(), Err(FormatError::Malformed { .. })));
}

#[test]
fn more_samples_than_the_records_hold() {
    says(superblock(|f| f.put(SAMPLES, &9u64.to_le_bytes())), "9 samples");
    says(superblock(|f| f.put(SAMPLES, &(u64::MAX / 32).to_le_bytes())), "do not fit");
}

#[test]
fn another_block_size() {
    says(superblock(|f| f.put(BLOCK_SIZE, &0u32.to_le_bytes())), "blocks have 0 bytes");
    says(superblock(|f| f.put(BLOCK_SIZE, &512u32.to_le_bytes())), "blocks have 512 bytes");
}

#[test]
fn bytes_of_the_superblock_that_must_be_zero() {
    let unused = TABLE + 32 * 4;
    for at in
        [RESERVED.start, RESERVED.end - 1, unused, RESERVED_TAIL.start - 1, RESERVED_TAIL.start, RESERVED_TAIL.end - 1]
    {
        says(superblock(|f| f.put(at, &[1])), "must be 0");
    }
}

#[test]
fn fields_of_a_section_that_mean_nothing() {
    for flags in [2u32, 3, 1 << 31, 0xFFFF_FFFE] {
        says(superblock(|f| f.put(f.entry(IndexPart::Names) + FLAGS, &flags.to_le_bytes())), "flags");
        let Err(FormatError::Malformed { problem, .. }) = with_a_further_section(flags).open() else {
            panic!("it opens")
        };
        says(problem, "of the section 77");
    }
    says(
        superblock(|f| f.put(f.entry(IndexPart::Labels) + SECTION_RESERVED, &[9])),
        "reserved field of the labels section",
    );
}

#[test]
fn a_kind_of_source_that_is_no_text() {
    says(superblock(|f| f.put(SOURCE_KIND, &[0xFF; 8])), "is not text");
    says(superblock(|f| f.put(SOURCE_KIND, b"tar\0x\0\0\0")), "is not text");
    let mut forgery = Forgery::new();
    forgery.put(SOURCE_KIND, b"eightbit");
    assert_eq!(forgery.open().unwrap().layout().source_kind, "eightbit");
}

#[test]
fn no_samples() {
    says(
        superblock(|f| {
            f.put(SAMPLES, &0u64.to_le_bytes());
            for part in [IndexPart::Records, IndexPart::Labels] {
                f.put(f.entry(part) + LENGTH, &0u64.to_le_bytes());
            }
        }),
        "no samples",
    );
}

#[test]
fn more_classes_than_their_section_holds() {
    says(superblock(|f| f.put(CLASSES, &u32::MAX.to_le_bytes())), "4294967295 classes");
    says(superblock(|f| f.put(CLASSES, &1000u32.to_le_bytes())), "1000 classes");
}

#[test]
fn more_sections_than_the_table_holds() {
    says(superblock(|f| f.put(SECTIONS, &65u32.to_le_bytes())), "65 sections");
    says(superblock(|f| f.put(SECTIONS, &u32::MAX.to_le_bytes())), "at most 64");
}

#[test]
fn a_section_that_is_missing_or_there_twice() {
    let without_classes = superblock(|f| {
        f.put(SECTIONS, &3u32.to_le_bytes());
        f.put(TABLE + 32 * 3, &[0; 32]);
    });
    says(without_classes, "the classes section 0 times");
    says(superblock(|f| f.put(f.entry(IndexPart::Classes) + KIND, &2u32.to_le_bytes())), "the labels section 2 times");
}

#[test]
fn a_section_outside_of_the_file() {
    let end = |f: &Forgery| f.layout.file_bytes;
    says(superblock(|f| f.put(f.entry(IndexPart::Names) + OFFSET, &end(f).to_le_bytes())), "ends after the file");
    says(superblock(|f| f.put(f.entry(IndexPart::Names) + LENGTH, &u64::MAX.to_le_bytes())), "ends after the file");
    let far = (u64::MAX - 4095).to_le_bytes();
    says(superblock(|f| f.put(f.entry(IndexPart::Names) + OFFSET, &far)), "ends after the file");
}

#[test]
fn a_section_that_is_not_aligned() {
    says(superblock(|f| f.put(f.entry(IndexPart::Names) + OFFSET, &12_289u64.to_le_bytes())), "not a multiple");
}

#[test]
fn sections_that_overlap() {
    says(superblock(|f| f.put(f.entry(IndexPart::Names) + OFFSET, &4096u64.to_le_bytes())), "overlaps");
    says(superblock(|f| f.put(f.entry(IndexPart::Names) + OFFSET, &0u64.to_le_bytes())), "overlaps");
    says(superblock(|f| f.put(f.entry(IndexPart::Names) + LENGTH, &4097u64.to_le_bytes())), "overlaps");
}

#[test]
fn a_sample_region_outside_of_the_file_or_over_a_section() {
    says(superblock(|f| f.put(DATA_BYTES, &u64::MAX.to_le_bytes())), "ends after the file");
    says(superblock(|f| f.put(DATA_OFFSET, &4096u64.to_le_bytes())), "overlaps");
}

/// A further section between the others and the samples, of a kind from the future.
fn with_a_further_section(flags: u32) -> Forgery {
    let mut forgery = Forgery::new();
    let entry = TABLE + 32 * forgery.layout.sections.len();
    let offset = forgery.layout.data_offset;
    forgery.put(SECTIONS, &5u32.to_le_bytes());
    forgery.put(entry + KIND, &77u32.to_le_bytes());
    forgery.put(entry + FLAGS, &flags.to_le_bytes());
    forgery.put(entry + OFFSET, &offset.to_le_bytes());
    forgery
}

#[test]
fn an_unknown_section_is_passed_over_unless_it_must_be_known() {
    assert_eq!(with_a_further_section(0).open().unwrap().len(), 8);
    let Err(FormatError::Malformed { problem, .. }) = with_a_further_section(1).open() else { panic!("it opens") };
    says(problem, "requires section 77");
}

#[test]
fn a_label_beyond_the_classes() {
    let problem = malformed(IndexPart::Labels, |f| {
        let labels = f.layout.section(IndexPart::Labels).offset as usize;
        f.put(labels + 4 * 5, &2u32.to_le_bytes());
    });
    says(problem, "sample 5 has label 2");
}

#[test]
fn class_names_that_lie_about_their_length() {
    let classes = |forge: fn(&mut Forgery, usize)| {
        malformed(IndexPart::Classes, move |f| {
            let at = f.layout.section(IndexPart::Classes).offset as usize;
            forge(f, at);
        })
    };
    says(classes(|f, at| f.put(at, &u32::MAX.to_le_bytes())), "class 0 has 4294967295 bytes");
    says(classes(|f, at| f.put(at, &1000u32.to_le_bytes())), "class 0 of 2 is cut short");
    says(classes(|f, at| f.put(at + 10, &7u32.to_le_bytes())), "class 1 of 2 is cut short");
    says(classes(|f, at| f.put(at + 10, &5u32.to_le_bytes())), "1 bytes follow");
    says(classes(|f, at| f.put(at + 5, &[0xFF])), "not UTF-8");
}

#[test]
fn a_sample_outside_of_the_sample_region() {
    says(kept(|f| f.put(f.record(3), &u64::MAX.to_le_bytes())), "outside of the sample region");
    says(kept(|f| f.put(f.record(3), &0u64.to_le_bytes())), "sample 3");
    says(kept(|f| f.put(f.record(7) + RECORD_LENGTH, &100_000u32.to_le_bytes())), "outside of the sample region");
}

#[test]
fn samples_that_overlap() {
    let problem = kept(|f| {
        let second = f.record(1);
        let before = f.layout.data_offset + 1;
        f.put(second, &before.to_le_bytes());
    });
    says(problem, "sample 1: its bytes at");
}

#[test]
fn a_name_outside_of_the_names() {
    says(records(|f| f.put(f.record(2) + NAME_OFFSET, &u64::MAX.to_le_bytes())), "not in the names section");
    says(records(|f| f.put(f.record(2) + NAME_LENGTH, &100_000u32.to_le_bytes())), "not in the names section");
    let end = |f: &Forgery| f.layout.section(IndexPart::Names).length;
    says(records(|f| f.put(f.record(2) + NAME_OFFSET, &end(f).to_le_bytes())), "not in the names section");
}

#[test]
fn codes_that_mean_nothing() {
    says(records(|f| f.put(f.record(0) + VERDICT, &[9])), "verdict 9");
    says(records(|f| f.put(f.record(0) + REASON, &[1])), "verdict 0 with reason 1");
    says(records(|f| f.put(f.record(0) + VERDICT, &[2, 200])), "unknown reason 200");
    says(records(|f| f.put(f.record(0) + RECORD_FLAGS, &[1])), "must be 0");
}

#[test]
fn a_form_of_a_later_version_is_no_damage() {
    let mut forgery = Forgery::new();
    forgery.put(forgery.record(3) + FORM, &[9]);
    let Err(error) = forgery.open() else { panic!("it opens") };
    assert!(matches!(error, FormatError::UnknownForm { sample: 3, form: 9, .. }), "{error}");
    let message = error.to_string();
    assert!(message.contains("update it, or pack") && message.contains("`jpeg=\"kept\"`"), "{message}");
}

const KEPT: PackFormat = PackFormat::of(StoredForm::Kept);
const RAW: PackFormat = PackFormat::of(StoredForm::Raw);

#[test]
fn a_detail_where_there_is_none() {
    for at in [DETAIL_OFFSET, DETAIL_LENGTH, DETAIL_CRC, RECORD_FLAGS] {
        says(kept(|f| f.put(f.record(0) + at, &[1])), "must be 0");
    }
}

#[test]
fn a_detail_elsewhere() {
    for format in [PackFormat::default(), RAW] {
        let records = |forge: &dyn Fn(&mut Forgery)| malformed_of(format, IndexPart::Records, forge);
        for offset in [0, 1, u64::MAX] {
            let problem = records(&|f| f.put(f.record(0) + DETAIL_OFFSET, &offset.to_le_bytes()));
            says(problem, "does not follow its bytes");
        }
        let long = |length: u32| records(&|f| f.put(f.record(7) + DETAIL_LENGTH, &length.to_le_bytes()));
        says(long(u32::MAX), "outside of the sample region");
        // The detail lies over the next sample.
        let onto = records(&|f| {
            let at = f.record(2) + DETAIL_LENGTH;
            let own = u32::from_le_bytes(f.bytes[at..at + 4].try_into().unwrap());
            f.put(at, &(own + 1).to_le_bytes());
        });
        assert!(onto.contains("sample 3: its bytes at") || onto.contains("bytes of checksums"), "{onto}");
    }
}

#[test]
fn more_checkpoints_than_are_made() {
    let detail = |forge: fn(&Forgery, usize) -> (u32, u32)| {
        records(move |f| {
            let at = f.record(7);
            let (length, detail) = forge(f, at);
            // According to the superblock, there is room for the sample.
            let end = f.layout.data_offset + (1 << 20);
            f.bytes.resize(end as usize, 0);
            f.put(FILE_BYTES, &end.to_le_bytes());
            f.put(DATA_BYTES, &(1u64 << 20).to_le_bytes());
            f.put(at + RECORD_LENGTH, &length.to_le_bytes());
            let behind = u64::from_le_bytes(f.bytes[at..at + 8].try_into().unwrap()) + u64::from(length);
            f.put(at + DETAIL_OFFSET, &behind.to_le_bytes());
            f.put(at + DETAIL_LENGTH, &detail.to_le_bytes());
        })
    };
    // At most 40 rows of pixels: 5 rows of MCUs.
    says(detail(|_, _| (2000, 2000)), "2000 bytes of checkpoints for a file of 2000, at most");
    says(detail(|_, _| (64 * 1000, 1001)), "1001 bytes of checkpoints for a file of 64000, at most 1000 are made");
}

#[test]
fn rows_of_another_size() {
    let raw = |forge: &dyn Fn(&mut Forgery)| malformed_of(RAW, IndexPart::Records, forge);
    for (at, value) in [(WIDTH, 1u32), (WIDTH, u32::MAX), (HEIGHT, 0), (HEIGHT, u32::MAX), (RECORD_LENGTH, 3)] {
        let problem = raw(&|f| {
            f.put(f.record(0) + at, &value.to_le_bytes());
            if at == RECORD_LENGTH {
                let behind = f.layout.data_offset + u64::from(value);
                f.put(f.record(0) + DETAIL_OFFSET, &behind.to_le_bytes());
            }
        });
        says(problem, "are not rows of pixels");
    }
    says(raw(&|f| f.put(f.record(0) + DETAIL_LENGTH, &0u32.to_le_bytes())), "0 bytes of checksums");
    for flags in [0, 9, 0x41, 0x80, 0xFF] {
        says(raw(&|f| f.put(f.record(0) + RECORD_FLAGS, &[flags])), "is not an orientation");
    }
    says(raw(&|f| f.put(f.record(0) + VERDICT, &[2, 3])), "decoded samples");
    says(records(|f| f.put(f.record(0) + VERDICT, &[1, 0])), "intact samples");
}

#[test]
fn planes_of_another_size() {
    let planar = |width: u32| {
        records(move |f| {
            f.put(f.record(0) + FORM, &[1]);
            f.put(f.record(0) + DETAIL_OFFSET, &[0; 12]);
            f.put(f.record(0) + DETAIL_CRC, &[0; 4]);
            f.put(f.record(0) + WIDTH, &[width.to_le_bytes(), width.to_le_bytes()].concat());
        })
    };
    says(planar(4), "not three planes of 4 x 4");
    says(planar(u32::MAX), "not three planes");
    let empty = records(|f| {
        f.put(f.record(0) + FORM, &[1]);
        f.put(f.record(0) + DETAIL_OFFSET, &[0; 12]);
        f.put(f.record(0) + DETAIL_CRC, &[0; 4]);
        f.put(f.record(0) + RECORD_LENGTH, &[0; 4]);
        f.put(f.record(0) + WIDTH, &[0; 8]);
    });
    says(empty, "0 bytes are not three planes of 0 x 0");
}

#[test]
fn every_truncation_is_an_error() {
    let bench = Bench::new(2, 4);
    let path = bench.packed();
    let layout = Pack::open(&path).unwrap().layout().clone();
    let whole = fs::read(&path).unwrap();
    let mut lengths = vec![0, 1, 7, 8, 255, 4095, 4096, whole.len() - 1, whole.len() - 4096];
    for section in &layout.sections {
        lengths.extend([section.offset, section.offset + 1, section.offset + section.length].map(|at| at as usize));
    }
    lengths.extend([layout.data_offset, layout.data_offset + layout.data_bytes / 2].map(|at| at as usize));
    for length in lengths {
        fs::write(&path, &whole[..length]).unwrap();
        let error = Pack::open(&path).err().unwrap_or_else(|| panic!("{length} bytes open"));
        let named = matches!(error, FormatError::Length { .. } | FormatError::NotAPack { .. });
        assert!(named, "{length}: {error}");
        assert!(error.to_string().contains("out.ddlp"), "{error}");
    }
    fs::write(&path, [whole.clone(), vec![0; 4096]].concat()).unwrap();
    assert!(matches!(Pack::open(&path), Err(FormatError::Length { .. })));
}

#[test]
fn a_file_that_shrinks_while_it_is_open_has_changed() {
    let bench = Bench::new(2, 4);
    let path = bench.packed();
    let pack = Pack::open(&path).unwrap();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(pack.layout().data_offset).unwrap();
    let error = pack.sample(3, &mut Vec::new()).map(drop).unwrap_err();
    assert!(matches!(error, ReadError::Unavailable(Unavailable::Changed { .. })), "{error}");
    let mut block = [0; 4096];
    assert!(pack.export().unwrap().read_cached(pack.layout().data_offset, &mut block).is_err());
}
