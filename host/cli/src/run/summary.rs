//! The text after a run.

use crate::text;
use ddlp_host::report::{FaultKind, FaultReport, ProngReport, Report};
use ddlp_report::{fault_count, host_cpu_s_per_1000_images, host_memory, host_read};
use std::collections::HashMap;
use std::fmt::Write;
use std::path::Path;

/// Most corrupt samples, and most faults, that are named.
const NAMED_MAX: usize = 5;

/// Width of the names in front, unless a drive's name is longer.
const NAME_COLUMNS: usize = 22;

/// Returns the summary as text for people; `page` is the path of the HTML report.
pub fn describe(report: &Report, page: Option<&Path>) -> String {
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
    let longest = report.prongs.iter().map(|prong| text::prong_name(&prong.name).chars().count()).max().unwrap_or(0);
    let columns = NAME_COLUMNS.max(longest + 2);
    let mut row = |name: &str, value: String| {
        let _ = writeln!(out, "  {name:<columns$}{value}");
    };
    prongs(&mut row, report);
    if let Some(device) = &report.device {
        row("delivered to", text::printable(device));
    }
    row(
        "first batch after",
        format!("{} (set-up before it {})", text::seconds(report.first_batch_s), text::seconds(report.setup_s)),
    );
    row("consumer waited", text::seconds(report.consumer_wait_s));
    if let Some(share) = report.accelerator_utilisation {
        row("accelerator busy", text::percent(share));
    }
    if let Some(cpu) = host_cpu_s_per_1000_images(report) {
        row("host CPU", format!("{} for 1,000 images", text::seconds(cpu)));
    }
    row("host memory, peak", host_memory(report));
    if let Some(read) = host_read(report) {
        row("host read", read);
    }
    if let Some(joules) = report.host_energy_j {
        row("host energy", format!("{} J", text::figure(joules)));
    }
    if let Some(page) = page {
        row("report", page.display().to_string());
    }
    troubles(&mut out, report);
    out
}

fn prongs(row: &mut impl FnMut(&str, String), report: &Report) {
    let total: u64 = report.prongs.iter().map(|prong| prong.images).sum();
    let worked = |prong: &&ProngReport| prong.images > 0 || prong.prepared > 0 || prong.wasted_batches > 0;
    for prong in report.prongs.iter().filter(worked) {
        let share = if total > 0 { prong.images as f64 / total as f64 } else { 0.0 };
        let images = text::plural(prong.images, "image");
        let mut line = format!("{images} ({}), {} while busy", text::percent(share), text::rate(prong.images_per_s));
        if prong.prepared > prong.images {
            let _ = write!(line, ", {} more not delivered", text::count(prong.prepared - prong.images));
        }
        if prong.wasted_batches > 0 {
            let _ = write!(line, ", {} not used", text::plural(prong.wasted_batches, "batch"));
        }
        row(&text::prong_name(&prong.name), line);
    }
    if let Some(meeting) = report.meeting_point.filter(|_| report.prongs.len() > 1) {
        row("met", format!("at batch {}", text::count(meeting.into())));
    }
}

fn troubles(out: &mut String, report: &Report) {
    let named = named_faults(&report.faults);
    for fault in &named {
        let kind = if fault.is_recovery() { "recovery" } else { "fault" };
        let (prong, what) = (text::prong_name(&fault.prong), text::fault(&fault.what));
        let _ = writeln!(out, "  {kind} after {}: {prong}: {what}", text::seconds(fault.at_s));
    }
    let named = named.iter().filter(|fault| !fault.is_recovery()).count();
    more(out, fault_count(report) - named, "faults");
    let several = report.epochs.len() > 1;
    for sample in report.corrupt.iter().take(NAMED_MAX) {
        let name = text::printable(&sample.sample);
        let action = text::printable(&sample.action);
        let epoch = if several { format!(" in epoch {}", sample.epoch) } else { String::new() };
        let _ = writeln!(out, "  corrupt{epoch} {name}: {}, {action}", text::printable(&sample.reason));
    }
    more(out, report.corrupt.len().saturating_sub(NAMED_MAX), "corrupt samples");
    for note in &report.notes {
        let _ = writeln!(out, "  note: {}", text::message(note));
    }
}

/// Returns the first faults, and the recoveries from them, however many other faults come in between.
fn named_faults<'f>(faults: &'f [FaultReport]) -> Vec<&'f FaultReport> {
    let mut named = 0;
    // For each prong, whether its last loss is named.
    let mut losses: HashMap<&'f str, bool> = HashMap::new();
    let is_named = |fault: &&'f FaultReport| {
        if fault.is_recovery() {
            return losses.get(&*fault.prong).is_none_or(|is_named| *is_named);
        }
        named += 1;
        if matches!(fault.kind, FaultKind::Lost | FaultKind::Timeout | FaultKind::Start) {
            losses.insert(&fault.prong, named <= NAMED_MAX);
        }
        named <= NAMED_MAX
    };
    faults.iter().filter(is_named).collect()
}

fn more(out: &mut String, left: usize, what: &str) {
    if left > 0 {
        let left = text::count(left as u64);
        let _ = writeln!(out, "  … and {left} more {what} (--json and --report list them)");
    }
}

#[cfg(test)]
mod tests;
