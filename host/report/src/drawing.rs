//! The data of the drawings, which the page's script (`page.js`) makes from it.
//!
//! Lists of numbers, one for each property of a span or a delivery, keep the page small. Times are seconds, rounded to
//! 10 µs.

use crate::text;
use crate::{Context, NAME_CHARS};
use ddlp_host::report::{Delivery, Report, Span};
use serde::Serialize;

/// Most faults that are drawn.
const FAULTS_MAX: usize = 60;

/// What the script draws.
#[derive(Serialize)]
pub struct Drawing {
    end_s: f64,
    batch_size: u64,
    kept_every: usize,
    /// Number of batches in the longest epoch.
    batches: u64,
    /// Names of the prongs, in at most `NAME_CHARS` characters.
    prongs: Vec<String>,
    epochs: Vec<DrawnEpoch>,
    faults: Vec<DrawnFault>,
    spans: Spans,
    deliveries: Deliveries,
}

#[derive(Serialize)]
struct DrawnEpoch {
    epoch: u32,
    start_s: f64,
    end_s: f64,
    /// Batch at which the prongs met, if several prongs made batches.
    met: Option<u32>,
}

#[derive(Serialize)]
struct DrawnFault {
    at_s: f64,
    what: String,
}

#[derive(Default, Serialize)]
struct Spans {
    prong: Vec<usize>,
    epoch: Vec<u32>,
    batch: Vec<u32>,
    start_s: Vec<f64>,
    end_s: Vec<f64>,
    /// 1 if the result was used.
    used: Vec<u8>,
}

#[derive(Default, Serialize)]
struct Deliveries {
    prong: Vec<usize>,
    epoch: Vec<u32>,
    batch: Vec<u32>,
    images: Vec<u32>,
    asked_s: Vec<f64>,
    at_s: Vec<f64>,
}

impl Drawing {
    /// Returns the data of a run's drawings. Spans and deliveries with times that are no numbers are left out.
    pub fn of(report: &Report, context: &Context) -> Self {
        let timeline = &report.timeline;
        let ends = timeline.spans.iter().map(|span| span.end_s).chain(timeline.deliveries.iter().map(|at| at.at_s));
        let end_s = ends.chain([report.seconds]).filter(|at| at.is_finite()).fold(0.0, f64::max);
        let batches = timeline.spans.iter().map(|span| span.batch).chain(timeline.deliveries.iter().map(|at| at.batch));
        let named = batches.max().map_or(1, |batch| u64::from(batch) + 1);
        let counted = report.epochs.iter().map(|epoch| epoch.batches).max().unwrap_or(0);
        let epochs = report.epochs.iter().map(|epoch| {
            let is_shared = epoch.batches_by_prong.iter().filter(|batches| **batches > 0).count() > 1;
            let met = epoch.meeting_point.filter(|_| is_shared);
            DrawnEpoch { epoch: epoch.epoch, start_s: epoch.start_s, end_s: epoch.end_s, met }
        });
        let names = report.prongs.iter().map(|prong| text::ending(&text::prong_name(&prong.name), NAME_CHARS));
        let faults = report.faults.iter().filter(|fault| !fault.is_recovery()).take(FAULTS_MAX);
        Self {
            end_s,
            batch_size: report.batch_size,
            kept_every: timeline.kept_every.max(1),
            batches: named.max(counted),
            prongs: names.collect(),
            epochs: epochs.filter(|epoch| epoch.start_s.is_finite() && epoch.end_s.is_finite()).collect(),
            faults: faults
                .map(|fault| DrawnFault {
                    at_s: fault.at_s,
                    what: (context.spelled)(&text::short_addresses(&fault.what)),
                })
                .collect(),
            spans: Spans::of(&timeline.spans),
            deliveries: Deliveries::of(&timeline.deliveries),
        }
    }

    /// Returns JSON that can stand in a script element of a page.
    pub fn to_json(&self) -> String {
        let json = serde_json::to_string(self).expect("lists of numbers and text");
        // Only strings have these characters.
        json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
    }
}

impl Spans {
    fn of(spans: &[Span]) -> Self {
        let mut lists = Self::default();
        for span in spans.iter().filter(|span| span.start_s.is_finite() && span.end_s.is_finite()) {
            lists.prong.push(span.prong);
            lists.epoch.push(span.epoch);
            lists.batch.push(span.batch);
            lists.start_s.push(rounded(span.start_s));
            lists.end_s.push(rounded(span.end_s));
            lists.used.push(span.used.into());
        }
        lists
    }
}

impl Deliveries {
    fn of(deliveries: &[Delivery]) -> Self {
        let mut lists = Self::default();
        for delivery in deliveries.iter().filter(|at| at.asked_s.is_finite() && at.at_s.is_finite()) {
            lists.prong.push(delivery.prong);
            lists.epoch.push(delivery.epoch);
            lists.batch.push(delivery.batch);
            lists.images.push(delivery.images);
            lists.asked_s.push(rounded(delivery.asked_s));
            lists.at_s.push(rounded(delivery.at_s));
        }
        lists
    }
}

fn rounded(seconds: f64) -> f64 {
    (seconds * 1e5).round() / 1e5
}
