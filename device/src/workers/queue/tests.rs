use super::*;
use crate::slots::{Backing, Geometry, Slots};
use crate::workers::row_crc::RowCrc;
use ddlp_csd::program::CorruptPolicy;
use ddlp_csd::request::BatchRequest;
use ddlp_csd::slot::{HEADER_BYTES, Outcome, SlotHeader, SlotLayout};
use ddlp_pixels::Fidelity;
use std::panic::AssertUnwindSafe;

const ID: JobId = JobId(1);

fn slots() -> Slots {
    Slots::open(&Backing::Memory, Geometry { slots: 1, slot_bytes: 1 << 20 }).unwrap()
}

/// Makes a job of `samples` samples for slot 0.
fn job(id: JobId, samples: u64) -> Job {
    let program = crate::test_support::loaded("cifar-train", CorruptPolicy::Fail);
    let layout = SlotLayout::new(samples as usize, program.program.pipeline.output()).unwrap();
    let request = BatchRequest {
        program: 7,
        seed: 1,
        epoch: 2,
        fidelity: Fidelity::WHOLE,
        batch: 3,
        slot: 0,
        generation: 4,
        id_limit: samples,
        sample_ids: (0..samples).collect(),
    };
    Job { id, program, host: crate::test_support::host(1), request, layout }
}

/// Makes a queue with one job.
fn queue(samples: u64) -> JobQueue {
    let queue = JobQueue::default();
    queue.push(job(ID, samples));
    queue
}

/// Takes the next samples. Leases the slot with the first of them.
fn next<'a>(queue: &'a JobQueue, slots: &Slots, most: usize) -> WorkerTask<'a> {
    let task = queue.next(most).unwrap();
    if task.is_first() {
        queue.leased(&task, slots.lease(0, task.work.job.layout, &task.work.job.host).unwrap());
    }
    task
}

/// Takes the next sample and records it as prepared.
fn step<'a>(queue: &'a JobQueue, slots: &Slots) -> Recorded<'a> {
    let task = next(queue, slots, 1);
    drop(task.work.lease().rows(task.positions.clone()).unwrap());
    let made = [made(task.positions.start)];
    queue.record(task, &made, Duration::ZERO)
}

fn made(position: usize) -> Sample {
    let sample_id = position as u64;
    (SampleRecord { sample_id, index: 0, outcome: Outcome::Prepared, warned: false }, 0)
}

fn finish(recorded: Recorded<'_>) -> (Finishing<'_>, SlotSeal) {
    let Recorded::Complete(finishing) = recorded else { panic!("the last sample completes the job") };
    let finished = finishing.finish(&RowCrc::new(finishing.row_bytes()), Instant::now());
    (*finishing, finished)
}

fn is_valid(slots: &Slots) -> bool {
    let mut block = vec![0; HEADER_BYTES];
    slots.read(&crate::test_support::host(1), 0, &mut block).unwrap();
    SlotHeader::parse(&block).is_ok()
}

fn is_free(slots: &Slots) -> bool {
    slots
        .lease(
            0,
            SlotLayout::new(1, ddlp_pixels::Shape { height: 1, width: 1, channels: 3 }).unwrap(),
            &crate::test_support::host(1),
        )
        .is_ok()
}

#[test]
fn a_batch_becomes_visible_when_it_is_published() {
    let slots = slots();
    let queue = queue(2);
    assert!(matches!(step(&queue, &slots), Recorded::More));
    let (finishing, finished) = finish(step(&queue, &slots));
    assert!(!is_valid(&slots));
    assert!(queue.publish(finishing, &finished));
    assert!(is_valid(&slots));
    assert!(!queue.cancel(ID), "too late, and harmless");
    assert!(is_valid(&slots) && is_free(&slots));
}

#[test]
fn a_batch_cancelled_while_it_is_finished_never_becomes_visible() {
    let slots = slots();
    let queue = queue(1);
    let (finishing, finished) = finish(step(&queue, &slots));
    assert!(!queue.cancel(ID), "a worker is at it");
    assert!(!is_free(&slots));
    assert!(!queue.publish(finishing, &finished));
    assert!(!is_valid(&slots) && is_free(&slots));
}

#[test]
fn a_queued_batch_is_released_at_once_and_a_running_one_by_its_last_worker() {
    let slots = slots();
    assert!(queue(2).cancel(ID));
    assert!(is_free(&slots));
    let queue = queue(3);
    let running = [next(&queue, &slots, 1), next(&queue, &slots, 1)];
    assert!(!queue.cancel(ID));
    let ends = running.map(|task| matches!(queue.record(task, &[made(0)], Duration::ZERO), Recorded::Released(ID)));
    assert_eq!(ends, [false, true]);
    assert!(is_free(&slots) && !is_valid(&slots));
}

#[test]
fn a_job_has_one_worker_until_its_slot_is_leased() {
    let slots = slots();
    let queue = queue(3);
    queue.push(job(JobId(2), 3));
    let first = queue.next(1).unwrap();
    assert_eq!(queue.next(1).unwrap().id(), JobId(2));
    queue.leased(&first, slots.lease(0, first.work.job.layout, &first.work.job.host).unwrap());
    let second = queue.next(1).unwrap();
    assert_eq!((second.id(), second.positions.clone()), (ID, 1..2));
}

#[test]
fn a_job_whose_slot_cannot_be_leased_leaves_the_queue() {
    for is_cancelled in [false, true] {
        let queue = queue(3);
        let task = queue.next(1).unwrap();
        if is_cancelled {
            assert!(!queue.cancel(ID), "a worker is at it");
        }
        queue.remove(task);
        assert!(!queue.cancel(ID) && queue.state().entries.is_empty());
    }
}

#[test]
fn samples_are_asked_for_as_far_as_their_lengths_allow() {
    let asked = |reserved, bytes: Option<u64>| {
        let (queue, mut asks) = (JobQueue::new(true), Vec::new());
        queue.push(job(ID, 64));
        assert_eq!(queue.asks(1000, reserved, |_| bytes, &mut asks), Some(false), "the depth held nothing back");
        asks.len()
    };
    let large = Some(4 << 20);
    assert_eq!((asked(0, large), asked(100 << 20, large), asked(128 << 20, large)), (32, 7, 0));
    assert_eq!((asked(0, Some(1 << 30)), asked(1, Some(1 << 30))), (1, 0), "one is asked for, whatever it takes");
    assert_eq!((asked(0, None), asked(127 << 20, None)), (64, 8), "unknown lengths count as the average");
}

#[test]
fn samples_are_taken_in_runs_and_a_cancelled_run_may_be_cut_short() {
    let slots = slots();
    let queue = queue(5);
    let (first, rest) = (next(&queue, &slots, 3), next(&queue, &slots, 3));
    assert_eq!((first.positions.clone(), rest.positions.clone()), (0..3, 3..5));
    drop(first.work.lease().rows(0..3).unwrap());
    assert!(matches!(queue.record(first, &[0, 1, 2].map(made), Duration::ZERO), Recorded::More));
    assert!(!rest.is_over());
    assert!(!queue.cancel(ID));
    assert!(rest.is_over(), "the worker sees it between samples");
    assert!(matches!(queue.record(rest, &[], Duration::ZERO), Recorded::Released(ID)));
    assert!(is_free(&slots) && !is_valid(&slots));
}

#[test]
fn a_stopping_queue_ends_runs_and_publishes_nothing() {
    let slots = slots();
    let queue = queue(2);
    let task = next(&queue, &slots, 2);
    queue.stop();
    assert!(task.is_over());
    assert!(matches!(queue.record(task, &[made(0)], Duration::ZERO), Recorded::More));
    assert!(queue.next(1).is_none() && !is_valid(&slots));
}

#[test]
fn a_job_of_a_worker_that_panicked_is_released() {
    let slots = slots();
    let queue = queue(3);
    let other = next(&queue, &slots, 1);
    let panicked = std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let task = next(&queue, &slots, 1);
            let _rows = task.work.lease().rows(task.positions.clone()).unwrap();
            panic!("a defect");
        });
        worker.join().is_err()
    });
    assert!(panicked && !is_free(&slots));
    let recorded = queue.record(other, &[made(0)], Duration::ZERO);
    assert!(matches!(recorded, Recorded::Released(ID)), "no sample of it is started any more");
    assert!(is_free(&slots) && !is_valid(&slots));
}

#[test]
fn a_job_whose_last_worker_panicked_while_it_finished_can_be_cancelled() {
    let slots = slots();
    let queue = queue(1);
    drop(finish(step(&queue, &slots)));
    assert!(!is_free(&slots), "until somebody is there to say so");
    assert!(queue.cancel(ID));
    assert!(is_free(&slots) && !is_valid(&slots));
}

#[test]
fn a_job_whose_worker_panicked_while_it_published_can_be_cancelled() {
    let slots = slots();
    let queue = queue(1);
    let (finishing, mut finished) = finish(step(&queue, &slots));
    finished.table.clear();
    let published = std::panic::catch_unwind(AssertUnwindSafe(|| queue.publish(finishing, &finished)));
    assert!(published.is_err() && queue.cancel(ID));
    assert!(is_free(&slots) && !is_valid(&slots));
}

#[test]
fn the_samples_of_each_job_are_handed_out_once_to_be_announced() {
    let slots = slots();
    let queue = queue(3);
    let (first, second) = (next(&queue, &slots, 1), next(&queue, &slots, 1));
    assert_eq!((&first.ahead[..], &second.ahead[..]), (&[0, 1, 2][..], &[][..]));
}
