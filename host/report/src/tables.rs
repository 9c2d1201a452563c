//! The tables of the page.

use crate::Context;
use crate::derived::host_memory;
use crate::html::{Escaped, Table};
use crate::text;
use ddlp_host::report::{Delivery, Report};
use std::fmt::Write;

/// Most rows shown of a table that can be as long as the run.
const ROWS_MAX: usize = 100;
/// Number of stalls shown, the longest ones.
const STALLS_MAX: usize = 8;
/// Shortest wait that counts as a stall.
const STALL_S: f64 = 0.001;

/// Explains the times and rates of epochs.
const EPOCHS_MEANING: &str = "An epoch's time runs from the request for its first batch to the delivery of its last \
    one. Prongs prepare batches ahead, some of them during the epoch before: so an epoch can deliver more images per \
    second than the prongs together prepare, and its first batch can be ready at once (0 ms).";
/// Explains the figures of prongs.
const PRONGS_MEANING: &str = "A prong is whoever prepares batches: the host's CPU, or one drive (a local one is \
    called csd). Images/s count only the time in which the prong is busy. The CPU's memory is what the loader's \
    process has allocated, without program files and shared result slots; a drive's memory is its agent's resident \
    memory, slots included.";

/// Writes all tables except [`prongs`], and only those that have rows.
pub fn write(page: &mut String, report: &Report, context: &Context) {
    faults(page, report, context);
    corrupt(page, report);
    notes(page, report, context);
    epochs(page, report);
    stalls(page, report);
}

fn unknown(value: Option<String>) -> String {
    value.unwrap_or_else(|| "unknown".to_string())
}

/// Writes the table of what each prong did.
pub fn prongs(page: &mut String, report: &Report) {
    let rows = report.prongs.iter().enumerate().map(|(index, prong)| {
        let host = index == 0;
        let cpu = if host { Some(report.host_cpu_s) } else { prong.cpu_s };
        let of_drive = prong.peak_memory_mb.map(|mb| format!("{} MB", text::figure(mb)));
        let memory = if host { Some(host_memory(report)) } else { of_drive };
        let energy = if host { report.host_energy_j } else { prong.energy_j };
        vec![
            text::prong_name(&prong.name),
            text::count(prong.batches),
            text::count(prong.images),
            text::figure(prong.images_per_s),
            text::seconds(prong.busy_s),
            text::count(prong.wasted_batches),
            unknown(cpu.map(text::seconds)),
            unknown(memory),
            unknown(energy.map(|joules| format!("{} J", text::figure(joules)))),
        ]
    });
    let table = Table {
        heads: vec!["prong", "batches", "images", "images/s", "busy", "not used", "CPU time", "peak memory", "energy"],
        numbers_from: 1,
        rows: rows.collect(),
    };
    let _ = write!(page, "<p>{PRONGS_MEANING}</p>\n{table}");
}

/// Writes a table with its title and, if it is not empty, the sentence that explains the figures.
fn section(page: &mut String, title: &str, meaning: &str, bad: bool, total: usize, table: &Table<'_>) {
    let class = if bad { " class=\"bad\"" } else { "" };
    let meaning = if meaning.is_empty() { String::new() } else { format!("<p>{}</p>\n", Escaped(meaning)) };
    let _ = writeln!(page, "<section{class}><h2>{title}</h2>\n{meaning}{table}");
    if total > table.rows.len() {
        let rest = text::count((total - table.rows.len()) as u64);
        let _ = writeln!(page, "<p>… and {rest} more; the JSON report has them all.</p>");
    }
    page.push_str("</section>\n");
}

fn epochs(page: &mut String, report: &Report) {
    if report.epochs.is_empty() {
        return;
    }
    // Prongs meet only under some strategies.
    let met = report.epochs.iter().any(|epoch| epoch.meeting_point.is_some());
    let rows = report.epochs.iter().take(ROWS_MAX).map(|epoch| {
        let took = epoch.end_s - epoch.start_s;
        let by_prong: Vec<String> = epoch.batches_by_prong.iter().map(|batches| text::count(*batches)).collect();
        let mut cells = vec![
            epoch.epoch.to_string(),
            text::count(epoch.batches),
            text::count(epoch.images),
            text::seconds(took),
            if took > 0.0 { text::figure(epoch.images as f64 / took) } else { "–".to_string() },
            text::seconds(epoch.first_batch_s),
            by_prong.join(" + "),
        ];
        if met {
            cells.push(epoch.meeting_point.map_or("–".to_string(), |batch| text::count(u64::from(batch))));
        }
        cells
    });
    let mut heads = vec!["epoch", "batches", "images", "time", "images/s", "first batch after", "batches by prong"];
    if met {
        heads.push("prongs met at batch");
    }
    let table = Table { heads, numbers_from: 1, rows: rows.collect() };
    section(page, "Epochs", EPOCHS_MEANING, false, report.epochs.len(), &table);
}

/// Returns the consumer's longest waits, longest first.
fn longest_stalls(deliveries: &[Delivery]) -> Vec<&Delivery> {
    let waited = |delivery: &Delivery| delivery.at_s - delivery.asked_s;
    let mut stalls: Vec<&Delivery> = deliveries.iter().filter(|delivery| waited(delivery) > STALL_S).collect();
    stalls.sort_by(|a, b| waited(b).total_cmp(&waited(a)));
    stalls.truncate(STALLS_MAX);
    stalls
}

fn stalls(page: &mut String, report: &Report) {
    let stalls = longest_stalls(&report.timeline.deliveries);
    if stalls.is_empty() {
        return;
    }
    let rows = stalls.iter().map(|delivery| {
        vec![
            report.prongs.get(delivery.prong).map_or("?".to_string(), |prong| text::prong_name(&prong.name)),
            delivery.epoch.to_string(),
            text::count(u64::from(delivery.batch)),
            text::seconds(delivery.asked_s),
            text::seconds(delivery.at_s - delivery.asked_s),
        ]
    });
    let table =
        Table { heads: vec!["waited for", "epoch", "batch", "at", "how long"], numbers_from: 1, rows: rows.collect() };
    section(page, "Longest waits of the consumer", "", false, table.rows.len(), &table);
}

fn faults(page: &mut String, report: &Report, context: &Context) {
    if report.faults.is_empty() {
        return;
    }
    let mut number = 0;
    let rows = report.faults.iter().take(ROWS_MAX).map(|fault| {
        number += u32::from(!fault.is_recovery());
        let place = |(epoch, batch)| format!("{} / {}", epoch, text::count(u64::from(batch)));
        vec![
            if fault.is_recovery() { String::new() } else { number.to_string() },
            text::seconds(fault.at_s),
            text::prong_name(&fault.prong),
            fault.batch.map_or(String::new(), place),
            fault.kind.to_string(),
            (context.spelled)(&text::short_addresses(&fault.what)),
        ]
    });
    let heads = vec!["", "at", "prong", "epoch / batch", "kind", "what happened"];
    let table = Table { numbers_from: heads.len(), heads, rows: rows.collect() };
    section(page, "Faults survived, and recoveries", "", true, report.faults.len(), &table);
}

fn corrupt(page: &mut String, report: &Report) {
    if report.corrupt.is_empty() {
        return;
    }
    let rows = report.corrupt.iter().take(ROWS_MAX).map(|sample| {
        vec![sample.sample.clone(), sample.epoch.to_string(), sample.reason.clone(), sample.action.clone()]
    });
    let heads = vec!["sample", "epoch", "reason", "action"];
    let table = Table { numbers_from: heads.len(), heads, rows: rows.collect() };
    section(page, "Corrupt samples", "", true, report.corrupt.len(), &table);
}

fn notes(page: &mut String, report: &Report, context: &Context) {
    let warned =
        (report.warned > 0).then(|| format!("The decoder warned about {}.", text::plural(report.warned, "sample")));
    let notes: Vec<&String> = report.notes.iter().chain(&warned).collect();
    if notes.is_empty() {
        return;
    }
    page.push_str("<section><h2>Notes</h2><ul class=\"notes\">");
    for note in notes.iter().take(ROWS_MAX) {
        let _ = write!(page, "<li>{}</li>", Escaped(&(context.spelled)(note)));
    }
    page.push_str("</ul></section>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_come_longest_first_and_only_where_the_consumer_waited() {
        let delivery = |batch, asked_s, at_s| Delivery { prong: 0, epoch: 0, batch, images: 1, asked_s, at_s };
        let deliveries = [delivery(0, 0.0, 0.2), delivery(1, 0.3, 0.3001), delivery(2, 0.4, 0.9)];
        let batches: Vec<u32> = longest_stalls(&deliveries).iter().map(|delivery| delivery.batch).collect();
        assert_eq!(batches, vec![2, 0]);
    }
}
