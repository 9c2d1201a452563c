//! Packs that lie in blocks instead of a file.

use super::{Bench, quietly};
use crate::pack::format::RECORD_BYTES;
use crate::pack::{BLOCK_BYTES, Blocks, IndexPart, Pack, PackOptions};
use crate::samples::write_folder;
use crate::{Corrupt, Dataset, ReadError, Unavailable, open};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Blocks in memory, which a test can change.
#[derive(Clone, Debug, Default)]
struct Memory(Arc<Mutex<Contents>>);

#[derive(Debug, Default)]
struct Contents {
    bytes: Vec<u8>,
    session: u64,
    /// The error number of all reads.
    fails: Option<i32>,
    /// A byte that comes flipped, and in how many reads.
    flip: (u64, u32),
    reads: u32,
}

impl Blocks for Memory {
    fn len_bytes(&self) -> u64 {
        self.0.lock().unwrap().bytes.len() as u64
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let contents = &mut *self.0.lock().unwrap();
        if let Some(errno) = contents.fails {
            return Err(io::Error::from_raw_os_error(errno));
        }
        contents.reads += 1;
        let from = contents.bytes.get(offset as usize..).and_then(|bytes| bytes.get(..out.len()));
        out.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        let (place, left) = &mut contents.flip;
        let flipped = place.checked_sub(offset).and_then(|at| out.get_mut(at as usize)).filter(|_| *left > 0);
        if let Some(byte) = flipped {
            *byte ^= 1;
            *left -= 1;
        }
        Ok(())
    }

    fn session(&self) -> u64 {
        self.0.lock().unwrap().session
    }

    fn interrupt(&self) {}
}

/// Puts other bytes in the place of a pack, behind a new connection.
fn replace(memory: &Memory, bytes: Vec<u8>) {
    let mut contents = memory.0.lock().unwrap();
    contents.bytes = bytes;
    contents.session += 1;
}

/// Returns the bytes of a pack of `each` samples in each of two classes.
fn packed(bench: &Bench, name: &str, each: u32) -> Vec<u8> {
    let (source, out) = (bench.path(name), bench.path(&format!("{name}.ddlp")));
    write_folder(&source, 2, each);
    quietly(&*open(&source).unwrap(), &out, &PackOptions::default()).unwrap();
    fs::read(out).unwrap()
}

fn opened(bytes: Vec<u8>) -> (Memory, Pack) {
    let memory = Memory::default();
    memory.0.lock().unwrap().bytes = bytes;
    let pack = Pack::from_blocks(Box::new(memory.clone()), Path::new("tcp://drive")).unwrap();
    (memory, pack)
}

fn read(pack: &Pack, index: u64) -> Result<(), ReadError> {
    pack.sample(index, &mut Vec::new()).map(drop)
}

#[test]
fn the_samples_are_those_of_the_file() {
    let bench = Bench::new(2, 4);
    let path = bench.packed();
    let file = Pack::open(&path).unwrap();
    let (_, blocks) = opened(fs::read(&path).unwrap());
    assert_eq!((blocks.len(), blocks.identity()), (file.len(), file.identity()));
    let (mut one, mut other) = (Vec::new(), Vec::new());
    for index in 0..file.len() {
        let sources = [file.sample(index, &mut one).unwrap(), blocks.sample(index, &mut other).unwrap()];
        assert_eq!(format!("{:?}", sources[0]), format!("{:?}", sources[1]));
        assert_eq!((file.name(index), file.label(index)), (blocks.name(index), blocks.label(index)));
    }
    assert!(blocks.location(0).file.starts_with("tcp://drive") && blocks.export().is_none());
    assert_eq!(blocks.sample_in(&fs::metadata(path).unwrap()), None);
}

#[test]
fn another_pack_that_is_found_after_a_loss_has_changed_and_the_same_one_has_not() {
    let bench = Bench::new(2, 4);
    let (first, second) = (packed(&bench, "first", 3), packed(&bench, "second", 4));
    let (memory, pack) = opened(first.clone());
    memory.0.lock().unwrap().session += 1;
    pack.check().unwrap();
    replace(&memory, second);
    let said = pack.check().unwrap_err();
    assert!(matches!(said, Unavailable::Changed { .. }), "{said}");
    assert!(pack.check_damage().is_err());
    // As long as the first one, so that only the superblock tells.
    let mut shifted = first.clone();
    shifted[16] ^= 1;
    replace(&memory, shifted);
    assert!(matches!(pack.check(), Err(Unavailable::Changed { .. })));
    // The same samples from another kind of source have the same identity.
    let mut layout = pack.layout().clone();
    layout.source_kind = "another".into();
    let mut twin = first.clone();
    twin[..BLOCK_BYTES as usize].copy_from_slice(&layout.to_bytes());
    memory.0.lock().unwrap().bytes = twin;
    let said = pack.check().unwrap_err().to_string();
    assert!(said.contains("is another pack now: its superblock differs"), "{said}");
    memory.0.lock().unwrap().bytes = first;
    pack.check().unwrap();
    read(&pack, 5).unwrap();
}

#[test]
fn after_a_loss_the_superblock_is_read_once() {
    let bench = Bench::new(2, 4);
    let (memory, pack) = opened(packed(&bench, "first", 3));
    for session in 1..4 {
        let mut contents = memory.0.lock().unwrap();
        (contents.session, contents.reads) = (session, 0);
        drop(contents);
        for check in 0..3 {
            pack.check().unwrap();
            assert_eq!(memory.0.lock().unwrap().reads, 1, "session {session}, check {check}");
        }
    }
    // A failed look counts for nothing.
    let set = |session, fails, byte| {
        let mut contents = memory.0.lock().unwrap();
        (contents.session, contents.fails, contents.bytes[0]) = (session, fails, byte);
    };
    set(4, Some(libc::ETIMEDOUT), b'D');
    pack.check().unwrap_err();
    set(4, None, 0);
    for _ in 0..2 {
        assert!(pack.check().unwrap_err().to_string().contains("is no longer a pack"));
    }
}

#[test]
fn a_pack_of_another_length_in_the_same_place_is_another_pack() {
    let bench = Bench::new(2, 4);
    let (long, short) = (packed(&bench, "long", 9), packed(&bench, "short", 3));
    let (memory, pack) = opened(long.clone());
    memory.0.lock().unwrap().session += 1;
    memory.0.lock().unwrap().bytes[..short.len()].copy_from_slice(&short);
    let said = pack.check().unwrap_err().to_string();
    let lengths = format!("another pack now: it has {} bytes, the opened pack had {}", short.len(), long.len());
    assert!(said.contains(&lengths), "{said}");
}

#[test]
fn damage_is_told_from_a_lost_path() {
    let bench = Bench::new(2, 4);
    let (memory, pack) = opened(packed(&bench, "first", 3));
    let record = pack.record(2).unwrap();
    memory.0.lock().unwrap().bytes[record.offset as usize] ^= 1;
    assert!(matches!(read(&pack, 2), Err(ReadError::Corrupt(Corrupt::Checksum { .. }))));
    read(&pack, 3).unwrap();
    // Nothing but the checksum of the sample tells: after a loss of the path as well.
    memory.0.lock().unwrap().session += 1;
    assert!(matches!(read(&pack, 2), Err(ReadError::Corrupt(Corrupt::Checksum { .. }))));
    memory.0.lock().unwrap().fails = Some(libc::ETIMEDOUT);
    assert!(matches!(read(&pack, 3), Err(ReadError::Unavailable(Unavailable::Io { .. }))));
    memory.0.lock().unwrap().session += 1;
    assert!(matches!(pack.check(), Err(Unavailable::Io { .. })));
    assert!(pack.layout().file_bytes.is_multiple_of(BLOCK_BYTES));
}

#[test]
fn a_record_or_name_that_is_damaged_on_the_way_is_read_again() {
    let bench = Bench::new(2, 4);
    let (memory, pack) = opened(packed(&bench, "first", 3));
    let (record, name) = (pack.record(2).unwrap(), pack.name(2));
    let records = pack.layout().section(IndexPart::Records).offset + 2 * RECORD_BYTES as u64;
    let names = pack.layout().section(IndexPart::Names).offset + record.name_offset;
    for place in [records, records + 20, names] {
        memory.0.lock().unwrap().flip = (place, 1);
        assert_eq!((pack.record(2).unwrap(), pack.name(2)), (record, name.clone()), "byte {place}");
        assert_eq!(memory.0.lock().unwrap().flip.1, 0, "the byte came flipped");
    }
    memory.0.lock().unwrap().flip = (records, u32::MAX);
    assert!(matches!(pack.record(2), Err(ReadError::Corrupt(Corrupt::Record { .. }))));
    memory.0.lock().unwrap().flip = (names, u32::MAX);
    assert!(pack.name(2).contains("damaged"), "{}", pack.name(2));
}

#[test]
fn names_are_read_together_and_none_is_made_up() {
    let bench = Bench::new(2, 4);
    let (memory, pack) = opened(packed(&bench, "many", 30));
    let layout = pack.layout().clone();
    let [records, names] = [IndexPart::Records, IndexPart::Names].map(|part| layout.section(part).offset as usize);
    let name = pack.record(20).unwrap().name_offset as usize;
    {
        // A damaged record, in its checksum, and a damaged name.
        let bytes = &mut memory.0.lock().unwrap().bytes;
        bytes[records + 8 * RECORD_BYTES - 1] ^= 1;
        bytes[names + name] ^= 1;
    }
    let expected: Vec<String> = (0..60).map(|index| pack.name(index)).collect();
    assert!(expected[7].contains("record is damaged") && expected[20].contains("name is damaged"), "{expected:?}");
    memory.0.lock().unwrap().reads = 0;
    assert_eq!(pack.names(0..60).unwrap(), expected);
    assert_eq!(pack.names(5..9).unwrap(), expected[5..9]);
    let reads = memory.0.lock().unwrap().reads;
    assert!(reads <= 4 + 12, "{reads} reads, with those that judge what is damaged");
    assert!(pack.names(60..60).unwrap().is_empty());
    // Bytes that come flipped once.
    for place in [records + 4, names + 1] {
        memory.0.lock().unwrap().flip = (place as u64, 1);
        assert_eq!(pack.names(0..60).unwrap(), expected);
    }
    memory.0.lock().unwrap().fails = Some(libc::ETIMEDOUT);
    let said = pack.names(0..60).unwrap_err();
    assert!(matches!(said, ReadError::Unavailable(_)), "{said}");
}
