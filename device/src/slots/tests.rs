use super::*;
use ddlp_csd::slot::{HEADER_BYTES, MAGIC, MAGIC_FREE, SlotLayout};
use ddlp_pixels::Shape;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const GEOMETRY: Geometry = Geometry { slots: 3, slot_bytes: 16384 };

fn layout() -> SlotLayout {
    SlotLayout::new(5, Shape { height: 3, width: 4, channels: 3 }).unwrap()
}

fn host() -> Arc<ConnectedHost> {
    crate::test_support::host(1)
}

fn slots() -> Slots {
    Slots::open(&Backing::Memory, GEOMETRY).unwrap()
}

fn bytes(slots: &Slots, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    slots.memory.file.read_exact_at(&mut bytes, offset).unwrap();
    bytes
}

/// Returns what `reader` sees of a slot, read and sent.
fn seen(slots: &Slots, slot: u64, reader: &ConnectedHost) -> Vec<u8> {
    use std::io::Read;
    use std::os::fd::AsFd;
    let (start, mut read) = (slot * GEOMETRY.slot_bytes, vec![1; GEOMETRY.slot_bytes as usize]);
    slots.read(reader, start, &mut read).unwrap();
    let (mut here, there) = std::os::unix::net::UnixStream::pair().unwrap();
    let (mut at, end) = (start, start + GEOMETRY.slot_bytes);
    while at < end {
        at += slots.send(reader, there.as_fd(), at, (end - at) as usize, false).unwrap() as u64;
    }
    let mut sent = vec![1; read.len()];
    here.read_exact(&mut sent).unwrap();
    assert!(sent == read, "read and sent bytes differ");
    read
}

/// Fills every byte of a slot but its mark.
fn fill(slots: &Slots, slot: u64) {
    let content = vec![9; GEOMETRY.slot_bytes as usize - 8];
    slots.memory.file.write_all_at(&content, slot * GEOMETRY.slot_bytes + 8).unwrap();
}

#[test]
fn a_slot_shows_its_bytes_to_the_host_that_it_was_leased_for_and_zeros_to_others() {
    let directory = tempfile::tempdir().unwrap();
    let (a, b) = (crate::test_support::host(1), crate::test_support::host(2));
    for backing in [Backing::Memory, Backing::File(directory.path().join("slots"))] {
        let slots = Slots::open(&backing, GEOMETRY).unwrap();
        fill(&slots, 1);
        assert!(seen(&slots, 1, &a).iter().all(|&byte| byte == 0), "bytes of an earlier agent");
        drop(slots.lease(1, layout(), &a).unwrap());
        fill(&slots, 1);
        assert!(seen(&slots, 1, &a)[8..].iter().all(|&byte| byte == 9));
        assert!(seen(&slots, 1, &b).iter().all(|&byte| byte == 0));
        drop(slots.lease(1, layout(), &a).unwrap());
        assert!(seen(&slots, 1, &a)[8..].iter().all(|&byte| byte == 9), "its own bytes stay");
        let lease = slots.lease(1, layout(), &b).unwrap();
        assert!(seen(&slots, 1, &a).iter().all(|&byte| byte == 0));
        let (mark, rest) = (seen(&slots, 1, &b)[..8].to_vec(), seen(&slots, 1, &b)[8..].to_vec());
        assert_eq!(
            (&mark[..], rest.iter().all(|&byte| byte == 0)),
            (&MAGIC_FREE[..], true),
            "cleared for the next host"
        );
        drop(lease);
    }
}

#[test]
fn one_read_of_several_slots_shows_those_of_its_host() {
    let slots = slots();
    let (a, b) = (crate::test_support::host(1), crate::test_support::host(2));
    for (slot, host) in [(0, &a), (1, &b), (2, &a)] {
        drop(slots.lease(slot, layout(), host).unwrap());
        fill(&slots, slot.into());
    }
    let mut bytes = vec![1; 2 * 16384];
    slots.read(&a, 8192, &mut bytes).unwrap();
    let shown: Vec<bool> = bytes.chunks(8192).map(|part| part[8..].iter().all(|&byte| byte == 9)).collect();
    assert_eq!(shown, [true, false, false, true]);
    assert!(bytes[8192..8192 + 16384].iter().all(|&byte| byte == 0));
    assert!(slots.read(&a, 2 * 16384 + 1, &mut vec![0; 16384]).is_err(), "beyond the last slot");
}

#[test]
fn a_slot_has_one_lease_at_a_time() {
    let slots = slots();
    let lease = slots.lease(1, layout(), &host()).unwrap();
    assert!(slots.lease(1, layout(), &host()).is_err());
    assert!(slots.lease(2, layout(), &host()).is_ok());
    assert!(slots.lease(3, layout(), &host()).is_err(), "there is no slot 3");
    drop(lease);
    assert!(slots.lease(1, layout(), &host()).is_ok());
}

/// Returns the bytes of memory that are allocated for the slots.
fn allocated(slots: &Slots) -> u64 {
    use std::os::unix::fs::MetadataExt;
    slots.memory.file.metadata().unwrap().blocks() * 512
}

#[test]
fn slots_take_memory_from_their_lease_on_and_not_before() {
    const SLOT: u64 = 1 << 20;
    let geometry = Geometry { slots: 4096, slot_bytes: SLOT };
    let file = memfd(geometry.total_bytes());
    for backing in [Backing::Memory, inheritable(file.try_clone().unwrap())] {
        let slots = Slots::open(&backing, geometry).unwrap();
        let mut least = 0;
        for slot in [0, 9, 4095] {
            let lease = slots.lease(slot, layout(), &host()).unwrap();
            least += SLOT;
            // Slots that the thread allocated ahead may add to these.
            let bytes = allocated(&slots);
            assert!((least..=least * 5 + 4 * SLOT).contains(&bytes), "{backing:?} slot {slot}: {bytes}");
            drop(lease);
        }
        assert_eq!(bytes(&slots, 100 * SLOT, 8), [0; 8], "a slot without memory reads as zeros");
    }
    assert!(file.metadata().unwrap().len() == geometry.total_bytes());
}

#[test]
fn the_next_slots_get_their_memory_before_their_lease() {
    let slots = Slots::open(&Backing::Memory, Geometry { slots: 64, slot_bytes: 16384 }).unwrap();
    let wait_for = |slot: usize| {
        let until = Instant::now() + Duration::from_secs(20);
        while !slots.memory.is_present(slot) {
            assert!(Instant::now() < until, "slot {slot} has no memory; all together have {} bytes", allocated(&slots));
            std::thread::yield_now();
        }
    };
    wait_for(3);
    drop(slots.lease(9, layout(), &host()).unwrap());
    wait_for(13);
    assert_eq!([3, 4, 9, 13, 14].map(|slot| slots.memory.is_present(slot)), [true, false, true, true, false]);
}

#[test]
fn a_slot_without_memory_is_sent_as_zeros_and_takes_none() {
    use std::io::Read;
    use std::os::fd::AsFd;
    let slots = Slots::open(&Backing::Memory, Geometry { slots: 64, slot_bytes: 16384 }).unwrap();
    let (mut here, there) = std::os::unix::net::UnixStream::pair().unwrap();
    let (from, mut left) = (60 * 16384 - 100, 300);
    while left > 0 {
        left -= slots.send(&host(), there.as_fd(), (from + 300 - left) as u64, left, false).unwrap();
    }
    let mut received = [1; 300];
    here.read_exact(&mut received).unwrap();
    assert_eq!(received, [0; 300]);
    assert!(allocated(&slots) <= 5 * 16384, "{}", allocated(&slots));
}

/// Makes a slot present. Returns the number of bytes requested from the system, if any.
fn asked(memory: &SlotMemory, slot: usize) -> Option<u64> {
    let mut asked = None;
    let check = |bytes| {
        asked = Some(bytes);
        Ok(())
    };
    memory.make_present_if(slot, check).unwrap();
    assert!(memory.is_present(slot));
    asked
}

#[test]
fn an_agent_that_starts_again_asks_for_the_memory_that_its_slots_lack() {
    let file = memfd(GEOMETRY.total_bytes());
    let start = || SlotMemory::map(file.try_clone().unwrap(), true, GEOMETRY).unwrap();
    let first = start();
    assert_eq!((asked(&first, 0), asked(&first, 0)), (Some(16384), None));
    file.write_all_at(b"one page of four", 16384 + 4096).unwrap();
    let second = start();
    assert_eq!([0, 1, 2].map(|slot| asked(&second, slot)), [None, Some(16384 - 4096), Some(16384)]);
}

#[test]
fn threads_that_want_the_same_slot_ask_for_its_memory_once() {
    const THREADS: usize = 8;
    let memory = SlotMemory::map(memfd(GEOMETRY.total_bytes()), true, GEOMETRY).unwrap();
    let (begun, asked) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                begun.fetch_add(1, Ordering::Relaxed);
                let check = |_| {
                    asked.fetch_add(1, Ordering::Relaxed);
                    // Gives the other threads time to request memory too, if nothing stopped them. No event tells that
                    // a thread waits for a lock; too short a sleep hides a fault, and never makes the test fail.
                    while begun.load(Ordering::Relaxed) < THREADS {
                        std::thread::yield_now();
                    }
                    std::thread::sleep(std::time::Duration::from_millis(5));
                    Ok(())
                };
                memory.make_present_if(1, check).unwrap();
            });
        }
    });
    assert_eq!(asked.into_inner(), 1);
}

/// Lets the system refuse to allocate: the file is shorter than the slots, and may not grow.
#[test]
fn a_slot_whose_memory_is_refused_is_not_present() {
    use nix::fcntl::{FcntlArg, SealFlag, fcntl};
    let file = memfd(GEOMETRY.total_bytes());
    let memory = SlotMemory::map(file.try_clone().unwrap(), true, GEOMETRY).unwrap();
    file.set_len(16384).unwrap();
    fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_GROW)).unwrap();
    assert_eq!(asked(&memory, 0), Some(16384));
    assert!(memory.make_present_if(1, |_| Ok(())).is_err());
    assert!(!memory.is_present(1));
}

/// Asks for a slot larger than any machine's memory.
#[test]
fn a_lease_fails_with_an_error_if_there_is_no_memory_for_its_slot() {
    let geometry = Geometry { slots: 1, slot_bytes: 1 << 45 };
    let slots = Slots::open(&inheritable(memfd(geometry.total_bytes())), geometry).unwrap();
    for _ in 0..2 {
        let error = slots.lease(0, layout(), &host()).unwrap_err();
        assert!(matches!(error, LeaseError::Memory(_)) && error.to_string().contains("MB are needed"), "{error}");
    }
    assert_eq!(allocated(&slots), 0);
}

#[test]
fn rows_are_handed_out_once_and_the_payload_after_all_of_them() {
    let slots = slots();
    let lease = slots.lease(0, layout(), &host()).unwrap();
    let mut first = lease.rows(0..2).unwrap();
    assert_eq!(first.each().map(|row| row.len()).collect::<Vec<_>>(), [36, 36]);
    assert!(lease.rows(1..2).is_none(), "taken");
    assert!(lease.rows(4..6).is_none(), "beyond the batch");
    for index in 2..5 {
        drop(lease.rows(index..index + 1).unwrap());
    }
    assert!(lease.payload().is_none(), "a row is still out");
    drop(first);
    assert!(lease.rows(0..1).is_none(), "given back is not free again");
    assert_eq!(lease.payload().unwrap().len(), 5 * 36);
    assert!(lease.payload().is_none(), "handed out once");
}

#[test]
fn rows_written_by_many_threads_lie_where_readers_look() {
    let slots = slots();
    let lease = slots.lease(2, layout(), &host()).unwrap();
    std::thread::scope(|scope| {
        for rows in [0..2, 2..3, 3..5] {
            let lease = &lease;
            scope.spawn(move || {
                for (index, row) in rows.clone().zip(lease.rows(rows).unwrap().each()) {
                    row.fill(index as u8 + 1);
                }
            });
        }
    });
    let payload = bytes(&slots, 2 * 16384 + layout().payload_offset as u64, 5 * 36);
    for (index, row) in payload.chunks(36).enumerate() {
        assert!(row.iter().all(|&byte| byte == index as u8 + 1));
    }
}

#[test]
fn a_slot_is_valid_from_publishing_to_the_next_lease() {
    let slots = slots();
    let header = std::array::from_fn::<u8, HEADER_BYTES, _>(|index| index as u8 | 1);
    let table = vec![7; layout().table_bytes()];
    let lease = slots.lease(1, layout(), &host()).unwrap();
    assert_eq!(bytes(&slots, 16384, 8), MAGIC_FREE);
    lease.publish(&header, &table);
    drop(lease);
    assert_eq!(bytes(&slots, 16384, HEADER_BYTES), header);
    assert_eq!(bytes(&slots, 16384 + HEADER_BYTES as u64, table.len()), table);
    let _lease = slots.lease(1, layout(), &host()).unwrap();
    assert_eq!(bytes(&slots, 16384, 8), MAGIC_FREE, "invalid before the first row is written");
}

#[test]
fn a_file_is_reserved_locked_and_invalidated() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("slots");
    let backing = Backing::File(path.clone());
    let slots = Slots::open(&backing, GEOMETRY).unwrap();
    assert!(!slots.in_memory());
    assert_eq!(std::fs::metadata(&path).unwrap().len(), GEOMETRY.total_bytes());
    assert!(matches!(Slots::open(&backing, GEOMETRY), Err(BackingError::InUse(_))));
    drop(slots);
    let mut old = vec![0; GEOMETRY.total_bytes() as usize];
    for slot in old.chunks_mut(16384) {
        slot[..8].copy_from_slice(&MAGIC);
    }
    std::fs::write(&path, old).unwrap();
    let slots = Slots::open(&backing, GEOMETRY).unwrap();
    for slot in 0..3 {
        assert_eq!(bytes(&slots, slot * 16384, 8), MAGIC_FREE, "what an earlier agent left is invalid");
    }
}

#[test]
fn a_file_with_other_content_is_not_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let mut image = vec![0; 4096];
    image[1080..1082].copy_from_slice(&[0x53, 0xEF]);
    let preallocated = vec![0; GEOMETRY.total_bytes() as usize];
    let text = b"a longer text that is no result slot".to_vec();
    for content in [b"short".to_vec(), b"precious".to_vec(), text, image, preallocated] {
        let path = directory.path().join("photo");
        std::fs::write(&path, &content).unwrap();
        let error = Slots::open(&Backing::File(path.clone()), GEOMETRY).unwrap_err();
        assert!(matches!(error, BackingError::Foreign(_)), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), content);
    }
    assert!(matches!(Slots::open(&Backing::File(directory.path().into()), GEOMETRY), Err(BackingError::Open { .. })));
}

#[test]
fn a_file_of_slots_is_reused_and_grows_but_never_shrinks() {
    let directory = tempfile::tempdir().unwrap();
    let backing = Backing::File(directory.path().join("slots"));
    let length = || std::fs::metadata(directory.path().join("slots")).unwrap().len();
    let more = Geometry { slots: 5, ..GEOMETRY };
    drop(Slots::open(&backing, GEOMETRY).unwrap());
    let slots = Slots::open(&backing, more).unwrap();
    assert_eq!(length(), more.total_bytes());
    slots.memory.file.write_all_at(b"mapped elsewhere", 4 * 16384 + 100).unwrap();
    drop(slots);
    let slots = Slots::open(&backing, GEOMETRY).unwrap();
    assert_eq!(length(), more.total_bytes(), "an earlier loader may have mapped all of it");
    assert_eq!(bytes(&slots, 4 * 16384 + 100, 16), b"mapped elsewhere");
    assert_eq!(slots.geometry(), GEOMETRY);
    assert!(slots.lease(3, layout(), &host()).is_err(), "what is beyond the geometry is left alone");
}

#[test]
fn a_file_that_a_crash_left_unfinished_is_reused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("slots");
    std::fs::write(&path, MAGIC_FREE).unwrap();
    Slots::open(&Backing::File(path), GEOMETRY).unwrap();
}

/// Makes a descriptor that is not close-on-exec, like one that came through exec.
fn inheritable(file: std::fs::File) -> Backing {
    let duplicate = nix::unistd::dup(OwnedFd::from(file)).unwrap();
    Backing::Inherited(duplicate.into_raw_fd())
}

fn memfd(bytes: u64) -> std::fs::File {
    let flags = nix::sys::memfd::MFdFlags::MFD_ALLOW_SEALING;
    let file = std::fs::File::from(nix::sys::memfd::memfd_create(c"test", flags).unwrap());
    file.set_len(bytes).unwrap();
    file
}

#[test]
fn an_inherited_memfd_is_shared_and_cannot_shrink() {
    let file = memfd(GEOMETRY.total_bytes());
    let slots = Slots::open(&inheritable(file.try_clone().unwrap()), GEOMETRY).unwrap();
    assert!(slots.in_memory());
    slots.lease(0, layout(), &host()).unwrap().rows(0..1).unwrap().each().for_each(|row| row.fill(9));
    let mut row = [0; 36];
    file.read_exact_at(&mut row, layout().payload_offset as u64).unwrap();
    assert_eq!(row, [9; 36]);
    assert!(file.set_len(1).is_err(), "sealed");
}

#[test]
fn unfit_descriptors_are_refused() {
    let small = inheritable(memfd(GEOMETRY.total_bytes() - 1));
    let read_only = inheritable(std::fs::File::open("/proc/self/exe").unwrap());
    let device = inheritable(std::fs::File::options().read(true).write(true).open("/dev/null").unwrap());
    for backing in [small, read_only, device] {
        let error = Slots::open(&backing, Geometry { slots: 3, slot_bytes: 16384 }).unwrap_err();
        assert!(matches!(error, BackingError::Unfit { .. }), "{error}");
    }
    let error = Slots::open(&Backing::Inherited(876_543), GEOMETRY).unwrap_err();
    assert!(matches!(error, BackingError::Descriptor { .. }), "{error}");
}

#[test]
fn invalid_geometries_are_refused() {
    for (slots, slot_bytes) in [(0, 4096), (1, 0), (1, 4095), (u32::MAX, !4095)] {
        let error = Slots::open(&Backing::Memory, Geometry { slots, slot_bytes }).unwrap_err();
        assert!(matches!(error, BackingError::Geometry { .. }), "{error}");
    }
}

#[test]
fn backings_are_parsed() {
    assert_eq!("ram".parse(), Ok(Backing::Memory));
    assert_eq!("fd:7".parse(), Ok(Backing::Inherited(7)));
    assert_eq!("/a/b".parse(), Ok(Backing::File("/a/b".into())));
    for wrong in ["", "fd:", "fd:2", "fd:-1", "fd:x"] {
        assert!(wrong.parse::<Backing>().is_err(), "{wrong}");
    }
}
