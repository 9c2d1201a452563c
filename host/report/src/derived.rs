//! Facts that follow from a report, as the page, the summary and the JSON report state them.

use crate::text;
use ddlp_host::report::{CacheReport, Report, RequestReport};

/// Counts the faults, without the recoveries.
pub fn fault_count(report: &Report) -> usize {
    report.faults.iter().filter(|fault| !fault.is_recovery()).count()
}

/// Returns the host's CPU time per 1,000 images that were prepared, since a run that ended early did not deliver all of
/// them.
pub fn host_cpu_s_per_1000_images(report: &Report) -> Option<f64> {
    let prepared: u64 = report.prongs.iter().map(|prong| prong.prepared).sum();
    (prepared > 0).then(|| report.host_cpu_s * 1000.0 / prepared as f64)
}

/// Describes the host's peak of allocated memory, and the result slots that it shares with drives.
pub fn host_memory(report: &Report) -> String {
    let own = format!("{} MB allocated", text::figure(report.peak_memory_mb));
    if report.slot_memory_mb > 0.0 {
        format!("{own}, and {} MB of result slots", text::figure(report.slot_memory_mb))
    } else {
        own
    }
}

/// Describes how many bytes of samples the host's CPU prong read, and by which requests; `None` if the prong read
/// nothing.
pub fn host_read(report: &Report) -> Option<String> {
    let read = || read_text(report.read_mb, report.read_blocks_mb, report.read_samples_mb);
    let requests = || report.requests.as_ref().map(requests_text).unwrap_or_default();
    let cache = || report.cache.as_ref().map(cache_text).unwrap_or_default();
    (report.read_mb > 0.0).then(|| format!("{}{}{}", read(), requests(), cache()))
}

fn cache_text(cache: &CacheReport) -> String {
    let CacheReport { mb, kept_mb, is_full, off } = cache;
    let full = if *is_full { ", full" } else { "" };
    let off = off.as_ref().map(|off| format!("; {off}")).unwrap_or_default();
    format!("; cache: {} MB read, {} MB added{full}{off}", text::figure(*mb), text::figure(*kept_mb))
}

fn requests_text(requests: &RequestReport) -> String {
    let within = |share: &str, ms: Option<f64>| ms.map(|ms| format!(", {share} within {ms:.0} ms")).unwrap_or_default();
    let RequestReport { answered, half_within_ms, most_within_ms, retries, .. } = *requests;
    let (half, most) = (within("half", half_within_ms), within("99 %", most_within_ms));
    let again = if retries > 0 { format!(", {retries} made again") } else { String::new() };
    format!("; {answered} requests{half}{most}{again}")
}

/// Describes how many bytes of samples were read, and their share of all bytes of these samples. All arguments are in
/// units of 10⁶ bytes.
pub fn read_text(read_mb: f64, blocks_mb: Option<f64>, samples_mb: f64) -> String {
    let share = |mb: f64| if samples_mb > 0.0 { format!(" ({:.1} %)", mb / samples_mb * 100.0) } else { String::new() };
    let (exact, all) = (text::figure(read_mb), text::figure(samples_mb));
    let blocks = blocks_mb.map(|mb| format!("; {} MB in blocks of 4 KiB{}", text::figure(mb), share(mb)));
    format!("{exact} of the samples' {all} MB{}{}", share(read_mb), blocks.unwrap_or_default())
}
