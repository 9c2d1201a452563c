//! Images per second over time, as a table for those who do not see the drawing.

use crate::html::Table;
use crate::text;
use ddlp_host::report::{ProngReport, Report};
use std::collections::HashMap;
use std::fmt::Write;

/// Most rows of the table.
const INTERVALS_MAX: usize = 12;

/// Writes the table: images per second that each prong prepared and that were delivered, a row for each of a few
/// intervals of equal length. Writes nothing if nothing was delivered.
pub fn write(page: &mut String, report: &Report) {
    let Some(rates) = Rates::of(report) else { return };
    let made_by = |prong: &ProngReport| format!("made by {}", text::prong_name(&prong.name));
    let prongs: Vec<String> = report.prongs.iter().map(made_by).collect();
    let heads = ["from", "to"].into_iter().chain(prongs.iter().map(String::as_str)).chain(["delivered"]);
    let length_s = report.seconds / rates.delivered.len() as f64;
    let rows = rates.delivered.iter().enumerate().map(|(at, delivered)| {
        let times = [at, at + 1].map(|at| text::seconds(at as f64 * length_s));
        let figures = rates.prongs.iter().map(|made| made[at]).chain([*delivered]).map(text::figure);
        times.into_iter().chain(figures).collect()
    });
    let table = Table { heads: heads.collect(), numbers_from: 0, rows: rows.collect() };
    let _ = write!(page, "<details><summary>Images per second as a table</summary>\n{table}</details>\n");
}

/// Rates of a run, one entry per interval of equal length.
struct Rates {
    /// Images per second that each prong prepared and that were used.
    prongs: Vec<Vec<f64>>,
    /// Images per second that were delivered.
    delivered: Vec<f64>,
}

impl Rates {
    /// Spreads each batch evenly over the time of its preparation, and each delivery over the time since the one
    /// before.
    fn of(report: &Report) -> Option<Self> {
        let (timeline, end_s) = (&report.timeline, report.seconds);
        if !(end_s.is_finite() && end_s > 0.0) || timeline.deliveries.is_empty() {
            return None;
        }
        let every = timeline.kept_every.max(1) as f64;
        let intervals = (timeline.deliveries.len() / 3).clamp(1, INTERVALS_MAX);
        let images: HashMap<(u32, u32), u32> =
            timeline.deliveries.iter().map(|delivery| ((delivery.epoch, delivery.batch), delivery.images)).collect();
        let mut prongs = vec![vec![0.0; intervals]; report.prongs.len()];
        for span in timeline.spans.iter().filter(|span| span.used) {
            let size =
                images.get(&(span.epoch, span.batch)).map_or(report.batch_size as f64, |images| f64::from(*images));
            if let Some(rates) = prongs.get_mut(span.prong) {
                spread(rates, end_s, span.start_s, span.end_s, size * every);
            }
        }
        let mut delivered = vec![0.0; intervals];
        let mut before = 0.0;
        for delivery in &timeline.deliveries {
            spread(&mut delivered, end_s, before, delivery.at_s, f64::from(delivery.images) * every);
            before = delivery.at_s;
        }
        Some(Self { prongs, delivered })
    }
}

/// Spreads `images` prepared between `from` and `to` over the rates of the intervals into which `0..end` is divided.
fn spread(rates: &mut [f64], end: f64, from: f64, to: f64, images: f64) {
    let width = end / rates.len() as f64;
    let last = rates.len() - 1;
    let from = from.clamp(0.0, end);
    let to = to.clamp(0.0, end);
    let lasted = to - from > width * 1e-6;
    if !lasted {
        if to.is_finite() {
            rates[((to / width) as usize).min(last)] += images / width;
        }
        return;
    }
    let columns = ((from / width) as usize).min(last)..=((to / width) as usize).min(last);
    for column in columns {
        let overlap = to.min((column + 1) as f64 * width) - from.max(column as f64 * width);
        rates[column] += images * overlap.max(0.0) / (to - from) / width;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreading_keeps_the_number_of_images() {
        for (from, to) in [(0.0, 10.0), (0.25, 0.3), (3.0, 3.0), (9.99, 12.0), (-4.0, 1.0)] {
            let mut rates = vec![0.0; 20];
            spread(&mut rates, 10.0, from, to, 64.0);
            let images: f64 = rates.iter().map(|rate| rate * 0.5).sum();
            assert!((images - 64.0).abs() < 1e-6, "{from}..{to}: {images}");
        }
    }

    #[test]
    fn an_empty_or_invalid_interval_adds_nothing() {
        let mut rates = vec![0.0; 4];
        spread(&mut rates, 1.0, f64::NAN, f64::NAN, 64.0);
        assert_eq!(rates, vec![0.0; 4]);
        assert!(Rates::of(&Report::default()).is_none());
    }
}
