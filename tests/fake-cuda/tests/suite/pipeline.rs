//! A small loader on the stand-in: buffers that are pairs of pinned and device memory, a stream that copies, a stream
//! that computes, and a thread that waits for events and makes pairs free. A right loader delivers the right bytes with
//! every seed, and nothing is reported. Each [`Mistake`] is reported with every seed, and gives wrong bytes with some.

use std::sync::mpsc;

use crate::driver::{Gpu, PTX, Pinned, SUCCESS, cu};

const PIXELS: u32 = 64;
const ROWS: u32 = 4;
const BYTES: usize = (PIXELS * ROWS * 3) as usize;
const BATCHES: u8 = 40;
const PAIRS: usize = 3;

/// What the loader forgets.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mistake {
    None,
    /// The consumer's stream does not wait for the copy.
    NoWait,
    /// The pair is free when the copy has ended, instead of the kernel.
    FreeAfterCopy,
    /// The host writes the pinned memory again before the copy has ended.
    FreeAtOnce,
    /// The event after the kernel is recorded before the kernel is queued.
    EarlyEvent,
}

struct Pair {
    pinned: Pinned,
    device: u64,
    copied: u64,
    computed: u64,
}

/// A pair, and the event after which it is free.
struct Busy {
    pair: Pair,
    free_after: Option<u64>,
}

/// Delivers batches. Returns how many of them were wrong, and the sentences about mistakes.
fn deliver(seed: u64, mistake: Mistake) -> (usize, Vec<String>) {
    let gpu = Gpu::new(seed);
    let [copies, computes] = [gpu.stream(), gpu.stream()];
    let function = gpu.function(PTX, "finish_u8");
    let outputs: Vec<u64> = (0..BATCHES).map(|_| gpu.allocate(BYTES)).collect();
    let (free, pairs) = mpsc::channel();
    for _ in 0..PAIRS {
        let pinned = Pinned::new(&gpu, BYTES);
        let (device, copied, computed) = (gpu.allocate(BYTES), gpu.event(), gpu.event());
        free.send(Pair { pinned, device, copied, computed }).expect("a receiver");
    }
    let (busy, waiting) = mpsc::channel::<Busy>();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            gpu.enter();
            for Busy { pair, free_after } in waiting {
                if let Some(event) = free_after {
                    assert_eq!(cu!(gpu, cuEventSynchronize(event => u64)), SUCCESS);
                }
                // At the end nobody receives them.
                let _ = free.send(pair);
            }
        });
        for (number, &output) in (0..BATCHES).zip(&outputs) {
            let mut pair = pairs.recv().expect("the thread returns pairs");
            pair.pinned.fill(number);
            assert_eq!(gpu.copy_to_device(pair.device, &pair.pinned, copies), SUCCESS);
            assert_eq!(gpu.record(pair.copied, copies), SUCCESS);
            if mistake != Mistake::NoWait {
                assert_eq!(gpu.wait(computes, pair.copied), SUCCESS);
            }
            if mistake == Mistake::EarlyEvent {
                assert_eq!(gpu.record(pair.computed, computes), SUCCESS);
            }
            let mut arguments = vec![pair.device, output, 0, ROWS.into(), PIXELS.into(), PIXELS.into()];
            arguments.extend([0; 9]);
            assert_eq!(gpu.launch(function, [1, ROWS, 1], 32, &arguments, computes), SUCCESS);
            if mistake != Mistake::EarlyEvent {
                assert_eq!(gpu.record(pair.computed, computes), SUCCESS);
            }
            let free_after = match mistake {
                Mistake::FreeAtOnce => None,
                Mistake::FreeAfterCopy => Some(pair.copied),
                _ => Some(pair.computed),
            };
            busy.send(Busy { pair, free_after }).expect("a receiver");
        }
        drop(busy);
        assert_eq!((gpu.synchronize(computes), gpu.synchronize(copies)), (SUCCESS, SUCCESS));
    });
    let is_wrong = |&(number, &output): &(u8, &u64)| gpu.read(output, BYTES) != [number; BYTES];
    let wrong = (0..BATCHES).zip(&outputs).filter(is_wrong).count();
    (wrong, gpu.stand_in.defects())
}

#[test]
fn a_right_loader_delivers_right_batches_with_every_seed() {
    for seed in 0..50 {
        assert_eq!(deliver(seed, Mistake::None), (0, vec![]), "seed {seed}");
    }
}

#[test]
fn a_loader_with_a_mistake_is_found() {
    const SEEDS: u64 = 20;
    for mistake in [Mistake::NoWait, Mistake::FreeAfterCopy, Mistake::FreeAtOnce, Mistake::EarlyEvent] {
        let runs: Vec<(usize, Vec<String>)> = (0..SEEDS).map(|seed| deliver(seed, mistake)).collect();
        let reported = runs.iter().filter(|(_, defects)| !defects.is_empty()).count();
        let wrong = runs.iter().filter(|(wrong, _)| *wrong > 0).count();
        println!("{mistake:?}: {reported} runs reported, {wrong} with wrong bytes, of {SEEDS}");
        // On a busy machine a thread may come so late that the mistake does no harm in a run.
        assert!(reported > 0 && wrong > 0, "{mistake:?}");
    }
}
