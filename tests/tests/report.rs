//! Compares the report's figures with what the consumer itself counted and measured, and with each other. A program of
//! its own, since CPU time is measured for the process.

use ddlp_csd::slot::SlotLayout;
use ddlp_host::report::{Report, Span};
use ddlp_host::{DriveSpec, Loader, LocalDrive, LocalResults, Strategy};
use ddlp_pixels::Shape;
use ddlp_tests::hooked::gated;
use ddlp_tests::photos::Photos;
use ddlp_tests::runs::{images, loader};
use ddlp_tests::stand_in;
use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const SAMPLES: u32 = 157;
const EPOCHS: u32 = 2;
const SLOTS: u32 = 12;
/// Interval, in files, between files about which the decoder warns.
const WARNS_EVERY: usize = 5;
/// Time for which the drive's program waits before it becomes the agent.
const START_S: f64 = 0.2;
/// Tolerance for clocks of different precision, and for sums in different order.
const EXACT: f64 = 1e-6;
/// Linux counts a process's CPU time in ticks of a hundredth of a second.
const TICKS: f64 = 0.03;

/// Figures that the consumer measured itself.
#[derive(Default)]
struct Seen {
    build_s: f64,
    first_wait_s: f64,
    /// Seconds in the calls for a batch.
    wait_s: f64,
    /// Seconds at work, between deliveries.
    work_s: f64,
    whole_s: f64,
    /// CPU time of this process: from delivery to delivery, and from before the loader until after it.
    cpu_within_s: f64,
    cpu_around_s: f64,
    /// CPU time of the drive, from the first delivery to the last.
    drive_cpu_s: f64,
    children_cpu_s: f64,
    order: Vec<(u32, u32, usize)>,
    images: [u64; 2],
    warned: Vec<u64>,
}

fn cpu_s(who: UsageWho) -> f64 {
    let total = |usage: Usage| usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    total(getrusage(who).expect("Linux counts it")) as f64 / 1e6
}

/// Returns the CPU time of another process, while that process lives.
fn cpu_s_of(process: nix::unistd::Pid) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, tail) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = tail.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some((ticks(11)? + ticks(12)?) as f64 / 100.0)
}

/// Runs a loader with a consumer that works on each batch.
fn consume(photos: &Photos, strategy: Strategy, results: LocalResults) -> (Report, Seen) {
    let mut seen = Seen::default();
    let (begun, own_cpu_s, children_cpu_s) =
        (Instant::now(), cpu_s(UsageWho::RUSAGE_SELF), cpu_s(UsageWho::RUSAGE_CHILDREN));
    let agent = stand_in::named(photos.scratch(), "ddlp-measured");
    // The sleep is what the report has to show: a drive that takes long to start.
    let body = format!("sleep {START_S}; exec '{}' \"$@\"", agent.display());
    let script = stand_in::script(photos.scratch(), "late.sh", &body);
    let drive = LocalDrive { agent: Some(script), slots: Some(SLOTS), results, ..LocalDrive::default() };
    let builder = loader(&photos.folder())
        .with(|o| (o.epochs, o.threads, o.strategy) = (EPOCHS, Some(1), strategy))
        .drive(DriveSpec::Local(drive));
    let gated = gated(&photos.folder());
    let mut loader = builder.dataset(gated.clone()).build().expect("the loader builds");
    seen.build_s = begun.elapsed().as_secs_f64();
    let process = (strategy != Strategy::Cpu).then(|| stand_in::process("ddlp-measured"));
    if process.is_some() {
        gated.hooks.hold_for_drive(&loader);
    }
    let started = Instant::now();
    let mut own: Vec<f64> = Vec::new();
    let mut drives: Vec<f64> = Vec::new();
    let mut work_s = 0.0;
    while let Some(waited_s) = take(&mut loader, &mut seen, &mut work_s) {
        if own.is_empty() {
            seen.first_wait_s = waited_s;
        }
        own.push(cpu_s(UsageWho::RUSAGE_SELF));
        // The drive may be gone when the last batch has come.
        drives.extend(process.and_then(cpu_s_of));
    }
    let growth = |readings: &[f64]| readings.last().zip(readings.first()).map_or(0.0, |(last, first)| last - first);
    (seen.cpu_within_s, seen.drive_cpu_s) = (growth(&own), growth(&drives));
    let report = loader.report();
    seen.whole_s = started.elapsed().as_secs_f64();
    drop(loader);
    seen.cpu_around_s = cpu_s(UsageWho::RUSAGE_SELF) - own_cpu_s;
    seen.children_cpu_s = cpu_s(UsageWho::RUSAGE_CHILDREN) - children_cpu_s;
    (report, seen)
}

/// Takes a batch and works on it; returns how long it waited. `work_s` is the time of work on the batch before.
fn take(loader: &mut Loader, seen: &mut Seen, work_s: &mut f64) -> Option<f64> {
    let asked = Instant::now();
    let batch = loader.next()?.expect("every batch comes");
    let waited_s = asked.elapsed().as_secs_f64();
    seen.wait_s += waited_s;
    seen.work_s += *work_s;
    seen.order.push((batch.epoch(), batch.index(), batch.prong()));
    seen.images[batch.prong()] += batch.len() as u64;
    seen.warned.extend(batch.records().iter().filter(|record| record.warned).map(|record| record.sample_id));
    let begun = Instant::now();
    let mut sum = 0u64;
    while begun.elapsed() < Duration::from_millis(4) {
        sum = images::<u8>(&batch).flatten().fold(sum, |sum, &value| sum.rotate_left(1) ^ u64::from(value));
    }
    std::hint::black_box(sum);
    *work_s = begun.elapsed().as_secs_f64();
    Some(waited_s)
}

/// Returns the seconds that at least one of the spans covers.
fn union_s(spans: &[Span], prong: usize) -> f64 {
    let mut own: Vec<(f64, f64)> =
        spans.iter().filter(|span| span.prong == prong).map(|span| (span.start_s, span.end_s)).collect();
    own.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut until = 0.0f64;
    own.into_iter().fold(0.0, |sum, (start, end)| {
        let added = (end - start.max(until)).max(0.0);
        until = until.max(end);
        sum + added
    })
}

fn assert_close(what: &str, left: f64, right: f64) {
    assert!((left - right).abs() < EXACT, "{what}: {left}, {right} expected");
}

fn assert_within(what: &str, least: f64, value: f64, most: f64) {
    assert!(least - EXACT <= value && value <= most + EXACT, "{what}: {value} is not from {least} to {most}");
}

fn check_times(name: &str, report: &Report, seen: &Seen) {
    let deliveries = &report.timeline.deliveries;
    let start_s = if name.starts_with("cpu") { 0.0 } else { START_S };
    assert_within(&format!("{name}: setup_s"), start_s, report.setup_s, seen.build_s);
    assert!(report.setup_s > 0.0, "{name}");
    assert_within(&format!("{name}: seconds"), seen.work_s, report.seconds, seen.whole_s);
    assert_close(&format!("{name}: seconds"), report.seconds, deliveries.last().expect("deliveries").at_s);
    assert_close(&format!("{name}: rate"), report.images_per_s * report.seconds, report.images as f64);
    assert_close(&format!("{name}: first_batch_s"), report.first_batch_s, deliveries[0].at_s);
    assert_within(&format!("{name}: first_batch_s"), 0.0, report.first_batch_s, seen.first_wait_s);
    assert!(report.first_batch_s > 0.0, "{name}");
    let waits: f64 = deliveries.iter().map(|delivery| delivery.at_s - delivery.asked_s).sum();
    assert_close(&format!("{name}: consumer_wait_s"), report.consumer_wait_s, waits);
    // A consumer that works does not wait.
    let most = seen.wait_s.min(report.seconds - seen.work_s);
    assert_within(&format!("{name}: consumer_wait_s"), 0.0, report.consumer_wait_s, most);
    assert!(report.consumer_wait_s > 0.0, "{name}");
    let cpu = format!("{name}: host_cpu_s");
    assert_within(&cpu, seen.cpu_within_s, report.host_cpu_s, seen.cpu_around_s);
    assert!(seen.cpu_within_s > 0.0, "{cpu}");
}

fn check_prongs(name: &str, strategy: Strategy, report: &Report, seen: &Seen) {
    let by_prong = |prong| seen.order.iter().filter(|&&(_, _, by)| by == prong).count() as u64;
    let drives = usize::from(strategy != Strategy::Cpu);
    assert_eq!(report.prongs.len(), 1 + drives, "{name}");
    for (number, prong) in report.prongs.iter().enumerate() {
        let what = format!("{name}: {}", prong.name);
        assert_eq!((prong.batches, prong.images), (by_prong(number), seen.images[number]), "{what}");
        assert!(prong.prepared >= prong.images, "{what}: {} of {}", prong.images, prong.prepared);
        let busy_s = union_s(&report.timeline.spans, number);
        // Batches that were in work at the end have no span.
        assert_within(&format!("{what}: busy_s"), busy_s, prong.busy_s, seen.whole_s);
        if prong.busy_s > 0.0 {
            assert_close(&format!("{what}: images_per_s"), prong.images_per_s * prong.busy_s, prong.prepared as f64);
        }
        let wasted = report.timeline.spans.iter().filter(|span| span.prong == number && !span.used).count();
        assert_eq!(prong.wasted_batches, wasted as u64, "{what}");
    }
    let prepared: u64 = report.prongs.iter().map(|prong| prong.prepared).sum();
    let most = report.images + 8 * report.prongs.iter().map(|prong| prong.wasted_batches).sum::<u64>();
    assert!((report.images..=most).contains(&prepared), "{name}: {prepared} prepared, {} delivered", report.images);
    if strategy == Strategy::Cpu {
        assert_close(name, report.prongs[0].busy_s, union_s(&report.timeline.spans, 0));
        assert_eq!(report.prongs[0].prepared, report.images, "{name}");
        return;
    }
    let drive = &report.prongs[1];
    let cpu_s = drive.cpu_s.expect("an agent on Linux tells it");
    assert_within(&format!("{name}: cpu_s"), seen.drive_cpu_s - TICKS, cpu_s, seen.children_cpu_s + TICKS);
    assert!(cpu_s > 0.0 && seen.images[1] > 0, "{name}");
    assert!(drive.peak_memory_mb.is_some_and(|mb| mb > report.slot_memory_mb), "{name}: slots are part of it");
}

fn check_order(name: &str, strategy: Strategy, report: &Report, seen: &Seen) {
    let batches = SAMPLES.div_ceil(8);
    assert_eq!((report.batches, report.epochs.len()), (u64::from(EPOCHS * batches), EPOCHS as usize), "{name}");
    for (epoch, figures) in (0..).zip(&report.epochs) {
        let order: Vec<u32> = seen.order.iter().filter(|batch| batch.0 == epoch).map(|batch| batch.1).collect();
        match figures.meeting_point {
            Some(met) if strategy == Strategy::Mte => {
                let expected: Vec<u32> = (0..met).chain((met..batches).rev()).collect();
                assert_eq!(order, expected, "{name}: epoch {epoch} met at {met}");
            }
            met => {
                let by_drive = seen.order.iter().any(|batch| batch.0 == epoch && batch.2 > 0);
                assert!(
                    met.is_none() && (strategy != Strategy::Mte || !by_drive),
                    "{name}: epoch {epoch} met at {met:?}"
                );
            }
        }
        assert_eq!(figures.batches, order.len() as u64, "{name}");
        let by_prong: Vec<u64> = (0..report.prongs.len())
            .map(|prong| seen.order.iter().filter(|batch| batch.0 == epoch && batch.2 == prong).count() as u64)
            .collect();
        assert_eq!(figures.batches_by_prong, by_prong, "{name}");
    }
    assert_eq!(report.meeting_point, report.epochs.last().and_then(|epoch| epoch.meeting_point), "{name}");
}

#[test]
fn every_figure_agrees_with_what_the_consumer_saw() {
    let photos = Photos::new(SAMPLES);
    for number in (0..SAMPLES).step_by(WARNS_EVERY) {
        // Bytes behind the first segment that belong to nothing make the decoder warn and go on. Packing would repair
        // the file.
        let mut bytes = photos.read(number);
        let behind = 4 + usize::from(u16::from_be_bytes([bytes[4], bytes[5]]));
        bytes.splice(behind..behind, [0; 3]);
        photos.write(number, &bytes);
    }
    let shape = Shape { height: 224, width: 224, channels: 3 };
    let slot_mb = SlotLayout::new(8, shape).expect("a small batch").total_bytes as f64 / 1e6;
    let mut warned = BTreeSet::new();
    for strategy in Strategy::ALL {
        for results in [LocalResults::Shared, LocalResults::Read] {
            let is_shared = results == LocalResults::Shared && strategy != Strategy::Cpu;
            let name = format!("{strategy} {results:?}");
            let (report, mut seen) = consume(&photos, strategy, results);
            assert_eq!(report.timeline.kept_every, 1, "the time line is whole");
            assert_eq!(report.images, u64::from(EPOCHS * SAMPLES), "{name}");
            let used = report.slot_memory_mb / slot_mb;
            let slots = if is_shared { 1.0..=f64::from(SLOTS) } else { 0.0..=0.0 };
            assert!(slots.contains(&used.round()), "{name}: {used} slots");
            assert_close(&format!("{name}: slot_memory_mb"), report.slot_memory_mb, used.round() * slot_mb);
            check_times(&name, &report, &seen);
            check_prongs(&name, strategy, &report, &seen);
            check_order(&name, strategy, &report, &seen);
            assert_eq!(report.warned, u64::from(EPOCHS * SAMPLES.div_ceil(WARNS_EVERY as u32)), "{name}");
            assert_eq!(report.warned, seen.warned.len() as u64, "{name}");
            seen.warned.sort_unstable();
            warned.insert(seen.warned);
        }
    }
    assert_eq!(warned.len(), 1, "the decoder warns of the same samples on every prong");
}
