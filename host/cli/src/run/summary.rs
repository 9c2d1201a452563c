//! What a run says when it is over.

use crate::text;
use ddlp_host::report::Report;
use std::fmt::Write;

/// Corrupt samples and faults named.
const NAMED_MAX: usize = 5;

/// The summary for a person.
pub fn describe(report: &Report) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{}: {} in {}, {} in {} ({})",
        text::printable(&report.dataset),
        text::plural(report.images, "image"),
        text::plural(report.batches, "batch"),
        text::rate(report.images_per_s),
        text::seconds(report.seconds),
        report.strategy,
    );
    prongs(&mut out, report);
    let mut row = |name: &str, value: String| {
        let _ = writeln!(out, "  {name:<22}{value}");
    };
    row(
        "first batch after",
        format!("{} (set-up before it {})", text::seconds(report.first_batch_s), text::seconds(report.setup_s)),
    );
    row("consumer waited", text::seconds(report.consumer_wait_s));
    if let Some(share) = report.accelerator_utilisation {
        row("accelerator busy", text::percent(share));
    }
    if report.images > 0 {
        let cpu = report.host_cpu_s * 1000.0 / report.images as f64;
        row("host CPU", format!("{} for 1,000 images", text::seconds(cpu)));
    }
    row("host memory, peak", format!("{} MB", text::figure(report.peak_memory_mb)));
    if let Some(joules) = report.host_energy_j {
        row("host energy", format!("{} J", text::figure(joules)));
    }
    troubles(&mut out, report);
    out
}

fn prongs(out: &mut String, report: &Report) {
    let total: u64 = report.prongs.iter().map(|prong| prong.images).sum();
    for prong in report.prongs.iter().filter(|prong| prong.images > 0 || prong.wasted_batches > 0) {
        let name = text::printable(&prong.name);
        let share = if total > 0 { prong.images as f64 / total as f64 } else { 0.0 };
        let _ = write!(
            out,
            "  {name:<22}{} ({}), {} while busy",
            text::plural(prong.images, "image"),
            text::percent(share),
            text::rate(prong.images_per_s)
        );
        if prong.wasted_batches > 0 {
            let _ = write!(out, ", {} in vain", text::plural(prong.wasted_batches, "batch"));
        }
        out.push('\n');
    }
    if let Some(meeting) = report.meeting_point.filter(|_| report.prongs.len() > 1) {
        let _ = writeln!(out, "  {:<22}at batch {}", "met", text::count(meeting.into()));
    }
}

fn troubles(out: &mut String, report: &Report) {
    for fault in report.faults.iter().take(NAMED_MAX) {
        let prong = text::printable(&fault.prong);
        let _ = writeln!(out, "  fault after {}: {prong}: {}", text::seconds(fault.at_s), text::printable(&fault.what));
    }
    more(out, report.faults.len(), "faults");
    for sample in report.corrupt.iter().take(NAMED_MAX) {
        let name = text::printable(&sample.sample);
        let action = text::printable(&sample.action);
        let _ = writeln!(out, "  corrupt {name}: {}, {action}", text::printable(&sample.reason));
    }
    more(out, report.corrupt.len(), "corrupt samples");
    for note in &report.notes {
        let _ = writeln!(out, "  note: {}", text::printable(note));
    }
}

fn more(out: &mut String, count: usize, what: &str) {
    if count > NAMED_MAX {
        let left = text::count((count - NAMED_MAX) as u64);
        let _ = writeln!(out, "  … and {left} more {what} (--json and --report list them)");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddlp_host::report::{CorruptReport, ProngReport};

    #[test]
    fn the_summary_names_what_matters_and_no_more_than_a_few() {
        let corrupt = |id| CorruptReport {
            sample: format!("class/\u{7}{id}.jpg"),
            sample_id: id,
            epoch: 0,
            reason: "truncated".into(),
            action: "skipped".into(),
        };
        let report = Report {
            dataset: "x.ddlp".into(),
            strategy: "mte".into(),
            images: 2000,
            batches: 32,
            seconds: 2.0,
            images_per_s: 1000.0,
            host_cpu_s: 1.0,
            meeting_point: Some(16),
            prongs: vec![
                ProngReport { name: "cpu".into(), images: 1000, ..ProngReport::default() },
                ProngReport { name: "local".into(), images: 1000, wasted_batches: 1, ..ProngReport::default() },
            ],
            corrupt: (0..7).map(corrupt).collect(),
            ..Report::default()
        };
        let text = describe(&report);
        assert!(text.starts_with("x.ddlp: 2,000 images in 32 batches, 1,000 images/s in 2.00 s (mte)\n"), "{text}");
        assert!(text.contains("500 ms for 1,000 images") && text.contains("at batch 16"), "{text}");
        assert!(text.contains("1 batch in vain") && text.contains("… and 2 more corrupt samples"), "{text}");
        assert!(!text.contains('\u{7}'));
    }
}
