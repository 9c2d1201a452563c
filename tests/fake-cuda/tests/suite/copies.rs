//! Queued copies, and what happens to programs that use them wrongly. Each mistake shows as wrong bytes or as an error,
//! with every seed or with one of a few.

use std::ffi::c_void;

use crate::driver::{Gpu, Pinned, SUCCESS, cu};

const BYTES: usize = 10_000;
const SEEDS: std::ops::Range<u64> = 0..20;

/// Copies a pinned buffer of sevens to the device on a stream of its own, does something, and reads what has arrived.
fn copied(seed: u64, between: impl FnOnce(&Gpu, &mut Pinned, u64)) -> (Vec<u8>, Vec<String>) {
    let gpu = Gpu::new(seed);
    let stream = gpu.stream();
    let (mut buffer, address) = (Pinned::new(&gpu, BYTES), gpu.allocate(BYTES));
    buffer.fill(7);
    assert_eq!(gpu.copy_to_device(address, &buffer, stream), SUCCESS);
    between(&gpu, &mut buffer, stream);
    assert_eq!(gpu.synchronize(stream), SUCCESS);
    (gpu.read(address, BYTES), gpu.stand_in.defects())
}

#[test]
fn a_buffer_that_is_kept_arrives() {
    for seed in SEEDS {
        assert_eq!(copied(seed, |_, _, _| ()), (vec![7; BYTES], vec![]));
    }
}

#[test]
fn a_buffer_that_is_used_again_too_early_is_seen() {
    let mut wrong = 0;
    for seed in SEEDS {
        let (found, defects) = copied(seed, |_, buffer, _| buffer.fill(8));
        assert_ne!(found, [7; BYTES], "no call came between: nothing had run");
        assert!(matches!(&defects[..], [one] if one.contains("changed before")), "{defects:?}");
    }
    let later = |gpu: &Gpu, buffer: &mut Pinned, stream| {
        assert!([0, 600].contains(&cu!(gpu, cuStreamQuery(stream => u64))));
        buffer.fill(8);
    };
    for seed in SEEDS {
        let (found, defects) = copied(seed, later);
        wrong += usize::from(found != [7; BYTES]);
        let is_wrong = matches!(&defects[..], [one] if one.contains("changed before"));
        assert!(is_wrong || defects.is_empty(), "{defects:?}");
    }
    assert!((1..SEEDS.count()).contains(&wrong), "{wrong} seeds: a device may be quick or slow");
}

#[test]
fn a_buffer_that_is_used_again_after_its_event_arrives() {
    for seed in SEEDS {
        let between = |gpu: &Gpu, buffer: &mut Pinned, stream| {
            let event = gpu.event();
            assert_eq!(gpu.record(event, stream), SUCCESS);
            assert_eq!(cu!(gpu, cuEventSynchronize(event => u64)), SUCCESS);
            buffer.fill(8);
        };
        assert_eq!(copied(seed, between), (vec![7; BYTES], vec![]));
    }
}

#[test]
fn memory_that_is_unregistered_before_its_copy_ran_is_seen() {
    let mut wrong = 0;
    for seed in SEEDS {
        let (found, defects) = copied(seed, |_, buffer, _| buffer.unregister());
        assert!(matches!(&defects[..], [one] if one.contains("cannot know")), "{defects:?}");
        wrong += usize::from(found != [7; BYTES]);
    }
    assert!(wrong > 0);
}

#[test]
fn a_copy_within_device_memory_needs_an_event_after_the_copy_to_it() {
    let copied = |seed, waits: bool| {
        let gpu = Gpu::new(seed);
        let [copies, computes] = [gpu.stream(), gpu.stream()];
        let (mut buffer, from, to) = (Pinned::new(&gpu, BYTES), gpu.allocate(BYTES), gpu.allocate(BYTES));
        buffer.fill(7);
        assert_eq!(gpu.copy_to_device(from, &buffer, copies), SUCCESS);
        let event = gpu.event();
        assert_eq!(gpu.record(event, copies), SUCCESS);
        if waits {
            assert_eq!(gpu.wait(computes, event), SUCCESS);
        }
        let result = cu!(gpu, cuMemcpyDtoDAsync_v2(to => u64, from => u64, BYTES => usize, computes => u64));
        assert_eq!((result, gpu.synchronize(computes), gpu.synchronize(copies)), (SUCCESS, SUCCESS, SUCCESS));
        (gpu.read(to, BYTES) == [7; BYTES], gpu.stand_in.defects())
    };
    let mut wrong = 0;
    for seed in SEEDS {
        assert_eq!(copied(seed, true), (true, vec![]));
        let (is_right, defects) = copied(seed, false);
        let are_named = defects.iter().all(|sentence| sentence.contains("no event orders them"));
        assert!(are_named && !defects.is_empty(), "seed {seed}: {defects:?}");
        wrong += usize::from(!is_right);
    }
    assert!(wrong > 0, "and with some seeds the bytes are wrong");
}

#[test]
fn an_event_that_was_recorded_too_early_orders_nothing() {
    for seed in SEEDS {
        let gpu = Gpu::new(seed);
        let [copies, computes] = [gpu.stream(), gpu.stream()];
        let (buffer, from, to) = (Pinned::new(&gpu, BYTES), gpu.allocate(BYTES), gpu.allocate(BYTES));
        let event = gpu.event();
        assert_eq!(gpu.wait(computes, event), SUCCESS, "an event that was never recorded");
        assert_eq!(gpu.record(event, copies), SUCCESS);
        assert_eq!(gpu.copy_to_device(from, &buffer, copies), SUCCESS);
        assert_eq!(gpu.wait(computes, event), SUCCESS);
        let result = cu!(gpu, cuMemcpyDtoDAsync_v2(to => u64, from => u64, BYTES => usize, computes => u64));
        assert_eq!((result, gpu.synchronize(computes), gpu.synchronize(copies)), (SUCCESS, SUCCESS, SUCCESS));
        assert_ne!(gpu.stand_in.defects().len(), 0, "seed {seed}");
    }
}

#[test]
fn the_default_stream_waits_for_blocking_streams_alone() {
    for seed in SEEDS {
        for (flags, is_wrong) in [(0, false), (1, true)] {
            let gpu = Gpu::new(seed);
            let mut stream = 0;
            assert_eq!(cu!(gpu, cuStreamCreate(&mut stream => *mut u64, flags => u32)), SUCCESS);
            let (buffer, address, to) = (Pinned::new(&gpu, BYTES), gpu.allocate(BYTES), gpu.allocate(BYTES));
            assert_eq!(gpu.copy_to_device(address, &buffer, stream), SUCCESS);
            for handle in [0, 1] {
                let copy = cu!(gpu, cuMemcpyDtoDAsync_v2(to => u64, address => u64, BYTES => usize, handle => u64));
                assert_eq!(copy, SUCCESS);
            }
            assert_eq!(cu!(gpu, cuCtxSynchronize()), SUCCESS);
            assert_eq!(!gpu.stand_in.defects().is_empty(), is_wrong, "seed {seed}, flags {flags}");
        }
    }
}

#[test]
fn host_memory_that_is_read_before_its_copy_ran_has_other_bytes() {
    for seed in SEEDS {
        let gpu = Gpu::new(seed);
        let (stream, address) = (gpu.stream(), gpu.allocate(BYTES));
        let mut pinned = Pinned::new(&gpu, BYTES);
        gpu.write(address, &[7; BYTES]);
        // It happens to have the right bytes already.
        pinned.fill(7);
        let to = pinned.as_mut_ptr();
        let copied = cu!(gpu, cuMemcpyDtoHAsync_v2(to => *mut u8, address => u64, BYTES => usize, stream => u64));
        assert_eq!(copied, SUCCESS);
        assert_ne!(pinned[..], [7; BYTES]);
        assert_eq!(gpu.synchronize(stream), SUCCESS);
        assert_eq!(pinned[..], [7; BYTES]);
    }
}

#[test]
fn pageable_memory_is_counted() {
    let gpu = Gpu::new(0);
    let address = gpu.allocate(BYTES);
    assert_eq!(gpu.copy_to_device(address, &[7; BYTES], 0), SUCCESS);
    assert_eq!(gpu.read(address, BYTES), [7; BYTES]);
    let statistics = gpu.stand_in.statistics();
    assert_eq!((statistics.pageable_to_device, statistics.pageable_to_host), (1, 1));
    assert_eq!((statistics.copies_to_device, statistics.bytes_to_device), (1, BYTES as u64));
}

#[test]
fn addresses_and_lengths_are_checked() {
    const INVALID_VALUE: i32 = 1;
    let gpu = Gpu::new(0);
    let (mut buffer, address) = (Pinned::new(&gpu, BYTES), gpu.allocate(BYTES));
    let fails = |to: u64, from: *const u8, bytes: usize| {
        let before = gpu.stand_in.defects().len();
        let copy = cu!(gpu, cuMemcpyHtoDAsync_v2(to => u64, from.cast() => *const c_void, bytes => usize, 0 => u64));
        assert_eq!((copy, gpu.stand_in.defects().len()), (INVALID_VALUE, before + 1));
    };
    let host = buffer.as_ptr();
    fails(address, host, BYTES + 1);
    fails(address + 1, host, BYTES);
    fails(address - 1, host, BYTES);
    fails(address, std::ptr::null(), 1);
    fails(address, address as *const u8, 1);
    fails(host as u64, host, 1);
    // Bytes that are not all page-locked.
    fails(address, host.wrapping_sub(1), 2);
    assert_eq!(gpu.free(address + 256), INVALID_VALUE);
    assert_eq!(gpu.free(address), SUCCESS);
    fails(address, host, 1);
    assert!(gpu.stand_in.defects().last().is_some_and(|sentence| sentence.contains("freed")));
    assert_eq!(gpu.free(address), INVALID_VALUE);
    buffer.unregister();
}

#[test]
fn new_memory_has_bytes_that_nobody_wrote() {
    for seed in SEEDS {
        let gpu = Gpu::new(seed);
        let address = gpu.allocate(BYTES);
        let found = gpu.read(address, BYTES);
        assert!(!found.contains(&0) && !found.contains(&255));
        assert_ne!(address % 512, 0, "no more aligned than the driver promises");
        assert_eq!(address % 256, 0);
    }
}
