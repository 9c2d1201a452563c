//! The time line: where each batch was prepared and when it was delivered, above lanes that show what each side was
//! doing.
//!
//! It is a single drawing with one time axis. Its size in bytes is bounded: above [`DETAILED_MAX`], marks are merged to
//! pixels.

use super::axis::Axis;
use super::html::{Escaped, Px};
use crate::text;
use ddlp_host::report::{Report, Span};
use std::collections::HashSet;
use std::fmt::Write;

/// Largest number of spans for which each mark is an element of its own, with a tooltip.
const DETAILED_MAX: usize = 600;
/// Most fault lines that are drawn.
const FAULT_LINES_MAX: usize = 60;

const WIDTH: f64 = 1120.0;
const LEFT: f64 = 128.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 30.0;
const MAP_HEIGHT: f64 = 310.0;
const LANE_HEIGHT: f64 = 30.0;
const LANE_PITCH: f64 = 42.0;
/// Columns into which a lane is divided.
const COLUMNS: usize = 490;

/// Returns the colour class of a prong.
pub fn colour(prong: usize) -> String {
    format!("p{}", prong % 6)
}

/// Draws the time line.
pub fn draw(report: &Report) -> String {
    let drawing = TimelineDrawing::new(report);
    let mut svg = drawing.open();
    drawing.epochs(&mut svg);
    drawing.batches(&mut svg);
    drawing.deliveries(&mut svg);
    drawing.meeting_points(&mut svg);
    drawing.lanes(&mut svg);
    drawing.faults(&mut svg);
    drawing.time_axis(&mut svg);
    svg.push_str("</svg>\n");
    svg
}

struct TimelineDrawing<'a> {
    report: &'a Report,
    time: Axis,
    /// Number of batches in the longest epoch.
    batches: f64,
    row: f64,
    height: f64,
}

impl<'a> TimelineDrawing<'a> {
    fn new(report: &'a Report) -> Self {
        let spans = &report.timeline.spans;
        let deliveries = &report.timeline.deliveries;
        let ends = spans.iter().map(|span| span.end_s).chain(deliveries.iter().map(|delivery| delivery.at_s));
        let end = ends.filter(|at| at.is_finite()).fold(report.seconds, f64::max);
        let named = spans.iter().map(|span| span.batch).chain(deliveries.iter().map(|delivery| delivery.batch)).max();
        let counted = report.epochs.iter().map(|epoch| epoch.batches).max().unwrap_or(0);
        let batches = named.map_or(1, |batch| u64::from(batch) + 1).max(counted) as f64;
        let lanes = report.prongs.len() as f64 + 2.0;
        Self {
            report,
            time: Axis::new(end, LEFT, WIDTH - RIGHT),
            batches,
            row: MAP_HEIGHT / batches,
            height: TOP + MAP_HEIGHT + 20.0 + lanes * LANE_PITCH + 28.0,
        }
    }

    fn open(&self) -> String {
        format!(
            "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
             aria-label=\"Time line of both prongs and of delivery\">\n\
             <defs><pattern id=\"vain\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" \
             patternTransform=\"rotate(45)\">\
             <line x1=\"0\" y1=\"0\" x2=\"0\" y2=\"5\" class=\"vain\"/></pattern></defs>\n\
             <rect x=\"{LEFT}\" y=\"{TOP}\" width=\"{width}\" height=\"{MAP_HEIGHT}\" class=\"plot\"/>\n",
            height = Px(self.height),
            width = Px(WIDTH - RIGHT - LEFT),
        )
    }

    /// Returns the middle of a batch's row; batch 0 is at the bottom.
    fn row_at(&self, batch: f64) -> f64 {
        TOP + MAP_HEIGHT - (batch + 0.5) * self.row
    }

    fn lanes_top(&self) -> f64 {
        TOP + MAP_HEIGHT + 20.0
    }

    fn epochs(&self, svg: &mut String) {
        let mut label_end = 0.0;
        for epoch in &self.report.epochs {
            let x = self.time.at(epoch.start_s);
            let bottom = self.height - 28.0;
            let _ = writeln!(
                svg,
                "<line x1=\"{0}\" y1=\"{TOP}\" x2=\"{0}\" y2=\"{1}\" class=\"epoch\"/>",
                Px(x),
                Px(bottom)
            );
            if x >= label_end {
                let _ =
                    writeln!(svg, "<text x=\"{}\" y=\"18\" class=\"strong\">epoch {}</text>", Px(x + 2.0), epoch.epoch);
                label_end = x + 74.0;
            }
        }
        let last = text::count(self.batches as u64 - 1);
        let middle = TOP + MAP_HEIGHT / 2.0;
        let _ = writeln!(svg, "<text x=\"{0}\" y=\"{1}\" class=\"e\">batch {last}</text>", LEFT - 8.0, TOP + 11.0);
        let _ =
            writeln!(svg, "<text x=\"{0}\" y=\"{1}\" class=\"e\">batch 0</text>", LEFT - 8.0, TOP + MAP_HEIGHT - 2.0);
        let _ = writeln!(svg, "<text x=\"{0}\" y=\"{1}\" class=\"e dim\">place in</text>", LEFT - 8.0, middle - 4.0);
        let _ = writeln!(svg, "<text x=\"{0}\" y=\"{1}\" class=\"e dim\">the epoch</text>", LEFT - 8.0, middle + 12.0);
    }

    fn batches(&self, svg: &mut String) {
        let height = if self.row > 5.0 { (self.row - 1.5).min(22.0) } else { self.row.max(3.2) };
        if self.report.timeline.spans.len() <= DETAILED_MAX {
            for span in &self.report.timeline.spans {
                self.detailed_span(svg, span, height);
            }
            return;
        }
        for prong in 0..self.report.prongs.len() {
            for used in [false, true] {
                self.merged_spans(svg, prong, used, height);
            }
        }
    }

    fn detailed_span(&self, svg: &mut String, span: &Span, height: f64) {
        let (from, to) = (self.time.at(span.start_s), self.time.at(span.end_s));
        let name = self.report.prongs.get(span.prong).map_or("?".to_string(), |prong| text::prong_name(&prong.name));
        let fate = if span.used { "" } else { ", not used" };
        let took = text::seconds((span.end_s - span.start_s).max(0.0));
        let class = if span.used { colour(span.prong) } else { format!("{} idle", colour(span.prong)) };
        let _ = writeln!(
            svg,
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" class=\"{class}\">\
             <title>epoch {}, batch {} by {}: {took}{fate}</title></rect>",
            Px(from),
            Px(self.row_at(f64::from(span.batch)) - height / 2.0),
            Px((to - from).max(1.5)),
            Px(height),
            span.epoch,
            span.batch,
            Escaped(&name),
        );
    }

    fn merged_spans(&self, svg: &mut String, prong: usize, used: bool, height: f64) {
        let mut seen = HashSet::new();
        let mut path = String::new();
        for span in self.report.timeline.spans.iter().filter(|span| span.prong == prong && span.used == used) {
            let y = self.row_at(f64::from(span.batch)).round();
            let from = self.time.at(span.start_s).round();
            let to = self.time.at(span.end_s).round().max(from + 1.0);
            if seen.insert((from as i64, to as i64, y as i64)) {
                let _ = write!(path, "M{from} {y}H{to}");
            }
        }
        if !path.is_empty() {
            let idle = if used { "" } else { " idle" };
            let _ = writeln!(
                svg,
                "<path d=\"{path}\" stroke-width=\"{}\" class=\"line {}{idle}\"/>",
                Px(height),
                colour(prong)
            );
        }
    }

    fn deliveries(&self, svg: &mut String) {
        let size = (self.row * 0.55).clamp(1.2, 7.0);
        let mut seen = HashSet::new();
        let mut path = String::new();
        for delivery in &self.report.timeline.deliveries {
            let (x, y) = (self.time.at(delivery.at_s), self.row_at(f64::from(delivery.batch)));
            if seen.insert((x.round() as i64, y.round() as i64)) {
                let _ = write!(path, "M{} {}h0", Px(x), Px(y));
            }
        }
        let _ = writeln!(svg, "<path d=\"{path}\" stroke-width=\"{}\" class=\"dots\"/>", Px(size));
    }

    fn meeting_points(&self, svg: &mut String) {
        for epoch in &self.report.epochs {
            let shared = epoch.batches_by_prong.iter().filter(|batches| **batches > 0).count() > 1;
            let Some(meeting) = epoch.meeting_point.filter(|_| shared) else { continue };
            let (from, to) = (self.time.at(epoch.start_s), self.time.at(epoch.end_s));
            let y = self.row_at(f64::from(meeting) - 0.5);
            let _ = writeln!(
                svg,
                "<line x1=\"{}\" y1=\"{2}\" x2=\"{}\" y2=\"{2}\" class=\"meet\"/>",
                Px(from),
                Px(to),
                Px(y)
            );
            if to - from > 130.0 {
                let label = format!("met at batch {}", text::count(u64::from(meeting)));
                let _ =
                    writeln!(svg, "<text x=\"{}\" y=\"{}\" class=\"halo\">{label}</text>", Px(from + 8.0), Px(y - 6.0));
            }
        }
    }

    fn lanes(&self, svg: &mut String) {
        let mut y = self.lanes_top();
        for (index, prong) in self.report.prongs.iter().enumerate() {
            let spans = self.report.timeline.spans.iter().filter(|span| span.prong == index);
            let shares = occupancy(spans.map(|span| (span.start_s, span.end_s)), self.time.end(), COLUMNS);
            self.lane(svg, y, &short_name(&prong.name), "batches in work", &shares, &colour(index));
            y += LANE_PITCH;
        }
        self.delivery_lane(svg, y);
        y += LANE_PITCH;
        let waits = self.report.timeline.deliveries.iter().map(|delivery| (delivery.asked_s, delivery.at_s));
        let shares = occupancy(waits, self.time.end(), COLUMNS);
        self.lane(svg, y, "consumer", "waits", &shares, "wait");
    }

    fn lane_frame(&self, svg: &mut String, y: f64, name: &str, what: &str) {
        let base = y + LANE_HEIGHT;
        let _ = writeln!(svg, "<text x=\"{}\" y=\"{}\" class=\"e\">{}</text>", LEFT - 8.0, Px(y + 13.0), Escaped(name));
        let _ = writeln!(svg, "<text x=\"{}\" y=\"{}\" class=\"e dim\">{what}</text>", LEFT - 8.0, Px(y + 27.0));
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" y1=\"{0}\" x2=\"{1}\" y2=\"{0}\" class=\"base\"/>",
            Px(base),
            WIDTH - RIGHT
        );
    }

    /// Draws an area whose height is a figure's share of the largest figure.
    fn lane(&self, svg: &mut String, y: f64, name: &str, what: &str, figures: &[f64], class: &str) {
        self.lane_frame(svg, y, name, what);
        let largest = figures.iter().copied().fold(1.0, f64::max);
        let base = y + LANE_HEIGHT;
        let step = (WIDTH - RIGHT - LEFT) / figures.len() as f64;
        let mut path = format!("M{LEFT} {}", Px(base));
        let mut level = 0.0;
        for (column, figure) in figures.iter().enumerate() {
            let next = (figure / largest * 60.0).round() / 60.0 * LANE_HEIGHT;
            if next != level {
                let _ = write!(path, "H{}V{}", Px(LEFT + column as f64 * step), Px(base - next));
                level = next;
            }
        }
        let _ = writeln!(svg, "<path d=\"{path}H{}V{}Z\" class=\"fill {class}\"/>", WIDTH - RIGHT, Px(base));
    }

    fn delivery_lane(&self, svg: &mut String, y: f64) {
        self.lane_frame(svg, y, "delivered", "by source");
        let few = self.report.timeline.deliveries.len() <= 200;
        for prong in 0..self.report.prongs.len() {
            let mut path = String::new();
            let mut seen = HashSet::new();
            for delivery in self.report.timeline.deliveries.iter().filter(|delivery| delivery.prong == prong) {
                let x = self.time.at(delivery.at_s).round();
                if seen.insert(x as i64) {
                    let _ = write!(path, "M{x} {}v{LANE_HEIGHT}", Px(y));
                }
            }
            if !path.is_empty() {
                let width = if few { 2.2 } else { 1.0 };
                let _ = writeln!(svg, "<path d=\"{path}\" stroke-width=\"{width}\" class=\"line {}\"/>", colour(prong));
            }
        }
    }

    fn faults(&self, svg: &mut String) {
        let mut label_end = 0.0;
        let faults = self.report.faults.iter().filter(|fault| !fault.is_recovery());
        for (number, fault) in faults.enumerate().take(FAULT_LINES_MAX) {
            let x = self.time.at(fault.at_s);
            let bottom = self.height - 28.0;
            let _ = writeln!(
                svg,
                "<line x1=\"{0}\" y1=\"{TOP}\" x2=\"{0}\" y2=\"{1}\" class=\"fault\"><title>{2}</title></line>",
                Px(x),
                Px(bottom),
                Escaped(&text::fault(&fault.what))
            );
            if x >= label_end {
                let y = TOP + MAP_HEIGHT + 8.0;
                let _ = writeln!(
                    svg,
                    "<circle cx=\"{0}\" cy=\"{1}\" r=\"8\" class=\"faultmark\"/>\
                     <text x=\"{0}\" y=\"{2}\" class=\"m marktext\">{3}</text>",
                    Px(x),
                    Px(y),
                    Px(y + 4.0),
                    number + 1
                );
                label_end = x + 20.0;
            }
        }
    }

    fn time_axis(&self, svg: &mut String) {
        let y = self.height - 28.0;
        for (tick, label) in self.time.time_ticks(10) {
            let x = self.time.at(tick);
            let anchor = if x > WIDTH - 40.0 { "e" } else { "m" };
            let _ = writeln!(
                svg,
                "<line x1=\"{0}\" y1=\"{1}\" x2=\"{0}\" y2=\"{2}\" class=\"base\"/>\
                 <text x=\"{0}\" y=\"{3}\" class=\"{anchor} dim\">{label}</text>",
                Px(x),
                Px(y),
                Px(y + 5.0),
                Px(y + 20.0)
            );
        }
    }
}

/// Returns the mean number of open intervals, per column of `0..end`.
pub fn occupancy(intervals: impl Iterator<Item = (f64, f64)>, end: f64, columns: usize) -> Vec<f64> {
    let mut open = vec![0.0; columns];
    let width = end / columns as f64;
    for (from, to) in intervals {
        // Checked explicitly, since max and min ignore an operand that is not a number.
        let lasted = from < to && from < end && to > 0.0;
        if !lasted {
            continue;
        }
        let (from, to) = (from.max(0.0), to.min(end));
        let first = ((from / width) as usize).min(columns - 1);
        let last = ((to / width) as usize).min(columns - 1);
        for (column, share) in open.iter_mut().enumerate().take(last + 1).skip(first) {
            let overlap = to.min((column + 1) as f64 * width) - from.max(column as f64 * width);
            *share += overlap.max(0.0) / width;
        }
    }
    open
}

/// Returns a prong's name, shortened to fit the margin.
pub fn short_name(name: &str) -> String {
    const LONGEST: usize = 17;
    text::ending(&text::prong_name(name), LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn occupancy_counts_open_intervals_by_time() {
        let intervals = [(0.0, 2.0), (1.0, 2.0), (3.5, 4.0), (5.0, 4.0), (f64::NAN, 1.0)];
        assert_eq!(occupancy(intervals.into_iter(), 4.0, 4), vec![1.0, 2.0, 0.0, 0.5]);
    }

    #[test]
    fn occupancy_ignores_time_outside_of_the_axis() {
        assert_eq!(occupancy([(-5.0, 50.0)].into_iter(), 2.0, 2), vec![1.0, 1.0]);
    }

    #[test]
    fn long_names_are_cut() {
        assert_eq!(short_name("cpu"), "cpu");
        assert_eq!(short_name("tcp://10.0.0.1:4420/nqn.2014"), "10.0.0.1:4420");
        assert_eq!(short_name("tcp://255.255.255.255:4420/nqn.2014"), "…255.255.255:4420");
    }
}
