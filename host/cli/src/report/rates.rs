//! Images per second over time: stacked, what each prong prepared; as a line, what was delivered.

use super::axis::{Axis, short};
use super::html::{Escaped, Px};
use super::timeline::{colour, short_name};
use ddlp_host::report::Report;
use std::collections::HashMap;
use std::fmt::Write;

const WIDTH: f64 = 1120.0;
const HEIGHT: f64 = 250.0;
const LEFT: f64 = 128.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 28.0;
/// Multiple of the largest preparation rate above which delivery rates are cut off.
const BURST: f64 = 1.5;

/// Rates of a run, one entry per interval of equal length.
pub struct Rates {
    /// End of the last interval in seconds.
    pub end_s: f64,
    /// Images per second that each prong prepared and that were used.
    pub prongs: Vec<Vec<f64>>,
    /// Images per second that were delivered.
    pub delivered: Vec<f64>,
}

impl Rates {
    /// Spreads each batch evenly over the time of its preparation, and each delivery over the time since the one
    /// before.
    pub fn of(report: &Report) -> Self {
        let timeline = &report.timeline;
        let every = timeline.kept_every.max(1) as f64;
        let end_s = Axis::new(report.seconds, 0.0, 1.0).end();
        let intervals = (timeline.deliveries.len() / 3).clamp(6, 110);
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
        Self { end_s, prongs, delivered }
    }

    /// Returns the largest rate at which all prongs together prepared images.
    fn made_max(&self) -> f64 {
        let made = (0..self.delivered.len()).map(|at| self.prongs.iter().map(|rates| rates[at]).sum::<f64>());
        made.fold(0.0, f64::max)
    }

    fn delivered_max(&self) -> f64 {
        self.delivered.iter().copied().fold(0.0, f64::max)
    }

    /// Returns the top of the drawing. Bursts of delivery (of batches that were waiting) must not flatten everything
    /// else.
    fn top(&self) -> f64 {
        let made = self.made_max();
        let delivered = self.delivered_max();
        if made > 0.0 && delivered > BURST * made { BURST * made } else { made.max(delivered) * 1.06 }
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

/// Returns the largest rate of delivery if the drawing cuts it off.
pub fn cut_off(rates: &Rates) -> Option<f64> {
    Some(rates.delivered_max()).filter(|most| *most > rates.top())
}

/// Draws the rates.
pub fn draw(report: &Report, rates: &Rates) -> String {
    let time = Axis::new(rates.end_s, LEFT, WIDTH - RIGHT);
    let value = Axis::new(rates.top(), HEIGHT - BOTTOM, TOP);
    let mut svg =
        format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"Images per second over time\">\n");
    grid(&mut svg, &time, &value);
    let mut floor = vec![0.0; rates.delivered.len()];
    for (prong, made) in rates.prongs.iter().enumerate() {
        let top: Vec<f64> = floor.iter().zip(made).map(|(low, rate)| low + rate).collect();
        let mut path = steps(&top, &time, &value);
        let back = steps(&floor, &time, &value);
        let _ = write!(path, "{}Z", reversed(&back));
        let name = report.prongs.get(prong).map_or("", |prong| prong.name.as_str());
        let _ = writeln!(
            svg,
            "<path d=\"{path}\" class=\"fill {} area\"><title>made by {}</title></path>",
            colour(prong),
            Escaped(&short_name(name))
        );
        floor = top;
    }
    let _ = writeln!(svg, "<path d=\"{}\" class=\"total\"/>", steps(&rates.delivered, &time, &value));
    svg.push_str("</svg>\n");
    svg
}

fn grid(svg: &mut String, time: &Axis, value: &Axis) {
    for tick in value.ticks(4) {
        let y = value.at(tick);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" y1=\"{0}\" x2=\"{1}\" y2=\"{0}\" class=\"grid\"/>\
             <text x=\"{2}\" y=\"{3}\" class=\"e dim\">{4}</text>",
            Px(y),
            WIDTH - RIGHT,
            LEFT - 8.0,
            Px(y + 4.0),
            short(tick)
        );
    }
    for (tick, label) in time.time_ticks(10) {
        let x = time.at(tick);
        let anchor = if x > WIDTH - 40.0 { "e" } else { "m" };
        let _ = writeln!(svg, "<text x=\"{}\" y=\"{}\" class=\"{anchor} dim\">{label}</text>", Px(x), HEIGHT - 8.0);
    }
}

/// Returns a path with one level per interval, from left to right.
fn steps(rates: &[f64], time: &Axis, value: &Axis) -> String {
    let width = time.end() / rates.len() as f64;
    let mut path = String::new();
    for (column, rate) in rates.iter().enumerate() {
        let x = Px(time.at(column as f64 * width));
        let y = Px(value.at(*rate));
        let _ = if column == 0 { write!(path, "M{x} {y}") } else { write!(path, "L{x} {y}") };
        let _ = write!(path, "L{} {y}", Px(time.at((column + 1) as f64 * width)));
    }
    path
}

/// Returns lines through the same points from the last to the first.
fn reversed(path: &str) -> String {
    path.split(['M', 'L']).filter(|point| !point.is_empty()).rev().fold(String::new(), |mut out, point| {
        let _ = write!(out, "L{point}");
        out
    })
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
    }

    #[test]
    fn a_path_can_be_walked_back() {
        assert_eq!(reversed("M1 2L3 4L5 6"), "L5 6L3 4L1 2");
    }
}
