//! How a measurement is said to a person.

use super::dual::Outcome;
use super::figures::{CaseFigures, PUBLISHED_FACTOR, SlotFigures};
use crate::text;
use std::fmt::Write;

/// The whole text.
pub fn describe(outcome: &Outcome) -> String {
    let mut out = String::new();
    head(&mut out, outcome);
    let _ = writeln!(
        out,
        "\n{:<12}{:>10}{:>9}{:>12}{:>13}{:>9}{:>12}{:>12}{:>9}{:>9}",
        "", "images/s", "spread", "efficiency", "host CPU s", "drive's", "host peak", "drive peak", "set-up", "first"
    );
    let _ = writeln!(
        out,
        "{:<12}{:>10}{:>9}{:>12}{:>13}{:>9}{:>12}{:>12}{:>9}{:>9}",
        "", "", "", "", "/1000 images", "share", "MB", "MB", "", "batch"
    );
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
    }
    if outcome.throttle < 1.0 {
        factors(&mut out, outcome);
    }
    remarks(&mut out, outcome);
    out
}

fn head(out: &mut String, outcome: &Outcome) {
    let _ = writeln!(
        out,
        "dual: {} a run in batches of {}, {}, medians of {}",
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
        super::cases::Slots::Shared => "shared",
        super::cases::Slots::Read => "read by NVMe/TCP",
    }
}

fn case(out: &mut String, name: &str, figures: &CaseFigures) {
    let _ = writeln!(
        out,
        "{name:<12}{:>10}{:>9}{:>12}{:>13}{:>9}{:>12}{:>12}{:>9}{:>9}",
        text::figure(figures.images_per_s),
        text::percent(figures.spread),
        figures.efficiency.map_or("–".to_string(), |efficiency| format!("{efficiency:.3}")),
        format!("{:.3}", figures.host_cpu_s_per_1000_images),
        text::percent(figures.drive_share),
        text::figure(figures.host_peak_memory_mb),
        figures.drive_peak_memory_mb.map_or("–".to_string(), text::figure),
        text::seconds(figures.setup_s),
        text::seconds(figures.first_batch_s),
    );
}

fn cost(out: &mut String, outcome: &Outcome, slots: &SlotFigures) {
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
    let _ = writeln!(out, "; host CPU saved ÷ drive's share: {}", saved.join(", "));
}

fn factors(out: &mut String, outcome: &Outcome) {
    for slots in &outcome.slots {
        for figures in &slots.cases {
            let Some(over_ideal) = figures.factor_over_ideal else { continue };
            let _ = writeln!(
                out,
                "slots {}, {}: {:.3} × the CPU alone; ideal 1 + r_csd/r_cpu = {:.3}, {:.3} of it; published factor {PUBLISHED_FACTOR}",
                slots_name(slots),
                figures.strategy,
                figures.factor_over_cpu,
                figures.factor_over_cpu / over_ideal,
                over_ideal
            );
        }
    }
}

fn remarks(out: &mut String, outcome: &Outcome) {
    for slots in &outcome.slots {
        for figures in &slots.cases {
            for note in &figures.notes {
                let _ = writeln!(
                    out,
                    "note, {} with slots {}: {}",
                    figures.strategy,
                    slots_name(slots),
                    text::printable(note)
                );
            }
            if figures.faults > 0 {
                let faults = text::plural(figures.faults as u64, "fault");
                let _ = writeln!(
                    out,
                    "WARNING: {faults} in the runs of {} with slots {}",
                    figures.strategy,
                    slots_name(slots)
                );
            }
        }
    }
}
