//! A headspace in words.

use crate::text::{figure, percent, plural};
use ddlp_host::{Bound, Headspace, Spread, Stages};
use std::fmt::Write;

/// Columns of the names in front.
const NAME_COLUMNS: usize = 21;

/// Describes what training would gain if loading were free. Options are in backticks.
pub fn describe_headspace(headspace: &Headspace) -> String {
    let mut out = String::new();
    let mut row = |name: &str, what: String| {
        let _ = writeln!(out, "{name:<NAME_COLUMNS$}{what}");
    };
    let rates = |rates: &Spread| {
        let Spread { median, min, max } = *rates;
        format!("{} images/s ({} to {})", figure(median), figure(min), figure(max))
    };
    row("with loading", rates(&headspace.with_loading));
    row("batches from memory", rates(&headspace.from_memory));
    let Spread { median, min, max } = headspace.gain;
    let (gain, range) = (percent(median), format!("{} to {} over the intervals", percent(min), percent(max)));
    row(
        "gain",
        if headspace.is_significant {
            format!("{gain} if loading were free ({range})")
        } else {
            format!("within the noise: {gain} ({range})")
        },
    );
    row("bounded by", in_words(headspace.bound).to_string());
    let (beside, alone) = (figure(headspace.step_s * 1e3), figure(headspace.step_from_memory_s * 1e3));
    row("step", format!("{beside} ms while the loader works, {alone} ms while the loader is paused"));
    stages(&mut row, &headspace.stages);
    for (number, change) in headspace.changes.iter().enumerate() {
        row(if number == 0 { "to change" } else { "" }, change.clone());
    }
    out
}

fn in_words(bound: Bound) -> &'static str {
    match bound {
        Bound::Step => "the training step: faster loading would gain nothing",
        Bound::Cores => "the cores, for which training, the loader and other programs compete",
        Bound::Decoding => "decoding and transforming on the CPU",
        Bound::Reading => "reading samples",
        Bound::Fetching => "fetching samples from the drive that holds the dataset",
        Bound::Drive => "a drive that prepares batches",
        Bound::Buffers => "buffers: threads have no memory for another batch",
        Bound::Unclear => "no single stage: none was busy for most of the time",
    }
}

fn stages(row: &mut impl FnMut(&str, String), stages: &Stages) {
    let free = figure(stages.free_buffers);
    row("training waited", format!("{} of the time; {free} buffers were free on average", percent(stages.waiting)));
    let (reading, decoding, idle) = (percent(stages.reading), percent(stages.decoding), percent(stages.idle));
    let mut cpu = format!(
        "{} images/s by {}: {decoding} decoding, {reading} reading, {idle} without work",
        figure(stages.cpu_images_per_s),
        plural(stages.threads as u64, "thread")
    );
    if let (Some(queued), Some(blocked)) = (stages.queued, stages.blocked) {
        let (queued, blocked) = (percent(queued), percent(blocked));
        let _ = write!(cpu, "; threads waited for a core {queued} of the time, for a disk or the network {blocked}");
    }
    row("cpu", cpu);
    if let Some(fetching) = stages.fetching {
        row("fetch threads", format!("{} fetching", percent(fetching)));
    }
    for drive in &stages.drives {
        let (made, busy) = (figure(drive.images_per_s), percent(drive.busy));
        let name = crate::text::ending(&crate::text::prong_name(&drive.name), NAME_COLUMNS - 1);
        row(&name, format!("{made} images/s, working on a batch {busy} of the time"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddlp_host::DriveStage;

    #[test]
    fn a_headspace_says_what_training_would_gain_and_what_to_change() {
        let spread = |median: f64| Spread { median, min: median * 0.99, max: median * 1.01 };
        let stages = Stages {
            waiting: 0.25,
            threads: 2,
            reading: 0.05,
            decoding: 0.91,
            idle: 0.04,
            queued: Some(0.02),
            blocked: Some(0.0),
            fetching: None,
            free_buffers: 3.5,
            cpu_images_per_s: 1204.0,
            drives: vec![DriveStage { name: "csd".into(), busy: 0.99, images_per_s: 310.0 }],
        };
        let headspace = Headspace {
            with_loading: spread(1514.0),
            from_memory: spread(2024.0),
            gain: spread(0.337),
            is_significant: true,
            step_s: 0.0398,
            step_from_memory_s: 0.0397,
            steps: 80,
            stages,
            bound: Bound::Decoding,
            changes: vec!["use more `threads`".into(), "pack".into()],
        };
        let expected = "\
with loading         1,514 images/s (1,499 to 1,529)
batches from memory  2,024 images/s (2,004 to 2,044)
gain                 34 % if loading were free (33 % to 34 % over the intervals)
bounded by           decoding and transforming on the CPU
step                 39.8 ms while the loader works, 39.7 ms while the loader is paused
training waited      25 % of the time; 3.50 buffers were free on average
cpu                  1,204 images/s by 2 threads: 91 % decoding, 5.0 % reading, 4.0 % without work; \
threads waited for a core 2.0 % of the time, for a disk or the network 0 %
csd                  310 images/s, working on a batch 99 % of the time
to change            use more `threads`
                     pack
";
        assert_eq!(describe_headspace(&headspace), expected);
        let within = Headspace { is_significant: false, bound: Bound::Step, ..headspace };
        assert!(describe_headspace(&within).contains("within the noise: 34 %"));
    }
}
