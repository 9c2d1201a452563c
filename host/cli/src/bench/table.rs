//! The results of a measurement as text for people.

use super::figures::{CaseFigures, DualFigures, PUBLISHED_FACTOR, SlotFigures};
use crate::text;
use std::fmt::Write;

/// Most samples, and most faults of one case, that are named.
const NAMED_MAX: usize = 5;

/// Explains a figure of [`cost`].
const SAVED_MEANING: &str = "host CPU saved ÷ drive's share: 1.00 means that images from the drive cost the host no \
                             CPU time; 0.00 means that they cost as much as images from the CPU\n";

/// Returns the whole text.
pub fn describe(outcome: &DualFigures) -> String {
    let mut out = String::new();
    head(&mut out, outcome);
    out.push('\n');
    row(
        &mut out,
        "",
        [
            "images/s",
            "spread",
            "× CPU",
            "efficiency",
            "host CPU s",
            "drive's",
            "host peak",
            "drive peak",
            "set-up",
            "first",
        ]
        .map(String::from),
    );
    row(&mut out, "", ["", "", "alone", "", "/1000 images", "share", "MB", "MB", "", "batch"].map(String::from));
    case(&mut out, "cpu alone", &outcome.cpu);
    for slots in &outcome.slots {
        let _ = writeln!(out, "slots {}", slots_name(slots));
        for figures in &slots.cases {
            let name = if figures.strategy == "csd" { "csd alone" } else { figures.strategy };
            case(&mut out, &format!("  {name}"), figures);
        }
    }
    out.push('\n');
    for slots in &outcome.slots {
        cost(&mut out, outcome, slots);
        slot_memory(&mut out, slots);
    }
    bytes_read(&mut out, outcome);
    if outcome.slots.iter().flat_map(|slots| &slots.cases).any(|case| case.host_cpu_saved_over_drive_share.is_some()) {
        out.push_str(SAVED_MEANING);
    }
    if outcome.throttle < 1.0 {
        factors(&mut out, outcome);
    }
    remarks(&mut out, outcome);
    out
}

fn head(out: &mut String, outcome: &DualFigures) {
    let stopped = if outcome.is_complete { "" } else { ", stopped before the end" };
    let _ = writeln!(
        out,
        "dual: {} per run in batches of {}, {}, medians of {}{stopped}",
        text::plural(outcome.samples, "sample"),
        outcome.batch,
        outcome.pipeline,
        text::plural(outcome.rounds, "round")
    );
    let _ = writeln!(out, "dataset  {} ({})", outcome.dataset, text::plural(outcome.dataset_samples, "sample"));
    let _ = writeln!(out, "machine  {}", outcome.machine);
    let _ = writeln!(out, "version  {}", outcome.version);
    let slowed =
        if outcome.throttle < 1.0 { format!(", slowed to {}", text::percent(outcome.throttle)) } else { String::new() };
    let _ = writeln!(out, "cores    host {}, drive {}{slowed}", outcome.host_cores, outcome.drive_cores);
    if let Some(warning) = &outcome.too_few_cores {
        let _ = writeln!(out, "WARNING  {warning}");
    }
}

fn slots_name(slots: &SlotFigures) -> &'static str {
    match slots.results {
        super::cases::SlotAccess::Shared => "shared",
        super::cases::SlotAccess::Read => "read by NVMe/TCP",
    }
}

fn row(out: &mut String, name: &str, cells: [String; 10]) {
    const COLUMNS: [usize; 10] = [10, 8, 8, 12, 13, 9, 11, 12, 9, 9];
    let mut line = format!("{name:<12}");
    for (cell, columns) in cells.iter().zip(COLUMNS) {
        let _ = write!(line, "{cell:>columns$}");
    }
    let _ = writeln!(out, "{}", line.trim_end());
}

fn case(out: &mut String, name: &str, figures: &CaseFigures) {
    let or_none = |value: Option<String>| value.unwrap_or_else(|| "–".to_string());
    let cells = [
        text::figure(figures.images_per_s),
        or_none(figures.spread.map(text::percent)),
        format!("{:.3}", figures.factor_over_cpu),
        or_none(figures.efficiency.map(|efficiency| format!("{efficiency:.3}"))),
        format!("{:.3}", figures.host_cpu_s_per_1000_images),
        text::percent(figures.drive_share),
        text::figure(figures.host_peak_memory_mb),
        or_none(figures.drive_peak_memory_mb.map(text::figure)),
        text::seconds(figures.setup_s),
        text::seconds(figures.first_batch_s),
    ];
    row(out, name, cells);
}

/// Describes the memory of shared slots, which the host's peak leaves out.
fn slot_memory(out: &mut String, slots: &SlotFigures) {
    let shared = slots.cases.iter().filter(|figures| figures.slot_memory_mb > 0.0);
    let shared: Vec<String> =
        shared.map(|figures| format!("{} {} MB", figures.strategy, text::figure(figures.slot_memory_mb))).collect();
    if !shared.is_empty() {
        let _ =
            writeln!(out, "result slots, which host and drive share, beside the host's peak: {}", shared.join(", "));
    }
}

/// Describes what the CPU prong read in each case but `csd`, in which it reads nothing.
fn bytes_read(out: &mut String, outcome: &DualFigures) {
    let line = |name: String, figures: &CaseFigures| {
        let read = ddlp_report::read_text(figures.read_mb, figures.read_blocks_mb, figures.read_samples_mb);
        (figures.read_mb > 0.0).then(|| format!("host read, {name}: {read}\n"))
    };
    out.extend(line("cpu alone".to_owned(), &outcome.cpu));
    for slots in &outcome.slots {
        let of_slots =
            |figures: &CaseFigures| line(format!("slots {}, {}", slots_name(slots), figures.strategy), figures);
        out.extend(slots.cases.iter().filter_map(of_slots));
    }
}

fn cost(out: &mut String, outcome: &DualFigures, slots: &SlotFigures) {
    let _ = write!(
        out,
        "slots {}: {:.1} µs of host CPU for an image of {} that the drive made",
        slots_name(slots),
        slots.host_cpu_us_per_drive_image,
        text::bytes(outcome.image_bytes)
    );
    let saved = slots.cases.iter().filter_map(|figures| {
        let saved = figures.host_cpu_saved_over_drive_share?;
        Some(format!("{} {saved:.2}", figures.strategy))
    });
    let saved: Vec<String> = saved.collect();
    if !saved.is_empty() {
        let _ = write!(out, "; host CPU saved ÷ drive's share: {}", saved.join(", "));
    }
    out.push('\n');
}

fn factors(out: &mut String, outcome: &DualFigures) {
    for slots in &outcome.slots {
        for figures in &slots.cases {
            let Some(over_ideal) = figures.factor_over_ideal else { continue };
            let _ = writeln!(
                out,
                "slots {}, {}: {:.3} × the CPU alone; ideal 1 + r_csd/r_cpu = {:.3}, {:.3} of it; published factor \
                 {PUBLISHED_FACTOR}",
                slots_name(slots),
                figures.strategy,
                figures.factor_over_cpu,
                figures.factor_over_cpu / over_ideal,
                over_ideal
            );
        }
    }
}

/// Returns the first few texts in one line.
fn first_few(texts: &[String]) -> String {
    let named = texts.iter().take(NAMED_MAX).map(|text| text::printable(text)).collect::<Vec<_>>().join("; ");
    match texts.len().saturating_sub(NAMED_MAX) {
        0 => named,
        more => format!("{named}; and {} more", text::count(more as u64)),
    }
}

fn remarks(out: &mut String, outcome: &DualFigures) {
    if !outcome.corrupt.is_empty() {
        let samples = text::plural(outcome.corrupt.len() as u64, "corrupt sample");
        let _ = writeln!(out, "note: the runs left out {samples}: {}", first_few(&outcome.corrupt));
    }
    for slots in &outcome.slots {
        for figures in &slots.cases {
            for note in &figures.notes {
                let _ = writeln!(
                    out,
                    "note, {} with slots {}: {}",
                    figures.strategy,
                    slots_name(slots),
                    text::message(note)
                );
            }
            if figures.faults > 0 {
                let faults = text::plural(figures.faults as u64, "fault");
                let _ = writeln!(
                    out,
                    "WARNING: {faults} in the runs of {} with slots {}: {}",
                    figures.strategy,
                    slots_name(slots),
                    first_few(&figures.fault_texts)
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases::{CPU, Case, SlotAccess};
    use super::super::child::{CorruptFigures, FaultFigures, ProngFigures, RunFigures};
    use super::super::figures::{Measured, corrupt_samples, cpu_figures, slot_figures};
    use super::*;

    #[test]
    fn the_table_has_the_factor_and_no_spread_of_one_round() {
        let measured = |case, images_per_s, slot_memory_mb| Measured {
            case,
            runs: vec![RunFigures {
                images: 10,
                images_per_s,
                slot_memory_mb,
                read_mb: 71.7,
                read_blocks_mb: Some(81.2),
                read_samples_mb: 100.0,
                prongs: vec![ProngFigures::default(), ProngFigures { images: 5, ..ProngFigures::default() }],
                fault_count: 1,
                faults: vec![FaultFigures { what: "its agent had ended".into() }],
                corrupt: vec![CorruptFigures { sample: "class/bad.jpg".into() }],
                ..RunFigures::default()
            }],
        };
        let shared = |strategy| Case { strategy, slots: Some(SlotAccess::Shared) };
        let all =
            [measured(CPU, 100.0, 0.0), measured(shared("csd"), 50.0, 617.0), measured(shared("mte"), 123.5, 617.0)];
        let outcome = DualFigures {
            version: String::new(),
            machine: String::new(),
            dataset: "x.ddlp".into(),
            dataset_samples: 10,
            pipeline: "p".into(),
            image_bytes: 1,
            batch: 2,
            samples: 10,
            rounds: 1,
            is_complete: false,
            corrupt: corrupt_samples(&all),
            throttle: 1.0,
            host_cores: "0".into(),
            drive_cores: "1".into(),
            too_few_cores: None,
            published_factor: PUBLISHED_FACTOR,
            cpu: cpu_figures(&all).unwrap(),
            strategies: Vec::new(),
            slots: slot_figures(&all, SlotAccess::Shared).into_iter().collect(),
        };
        let text = describe(&outcome);
        let words = |name: &str| {
            let line = text.lines().find(|line| line.trim_start().starts_with(name)).expect(name);
            line.split_whitespace().map(str::to_string).collect::<Vec<_>>()
        };
        assert_eq!(words("mte")[1..5], ["124", "–", "1.235", "0.823"]);
        assert_eq!(words("cpu alone")[2..6], ["100", "–", "1.000", "–"]);
        assert!(text.contains("csd 617 MB, mte 617 MB") && text.contains("stopped before the end"), "{text}");
        assert!(text.contains("the runs left out 1 corrupt sample: class/bad.jpg\n"), "{text}");
        assert!(text.contains("1 fault in the runs of mte with slots shared: its agent had ended\n"), "{text}");
        assert!(text.contains("1.00 means that"), "{text}");
        let read = "71.7 of the samples' 100 MB (71.7 %); 81.2 MB in blocks of 4 KiB (81.2 %)\n";
        assert!(text.contains(&format!("host read, cpu alone: {read}host read, slots shared, csd: {read}")), "{text}");
    }
}
