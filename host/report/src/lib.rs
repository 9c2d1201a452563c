//! What people read about a run: the report as one HTML page, and a headspace in words.
//!
//! The page is made from a run's figures, and loads nothing from elsewhere. Its script draws the time line and the
//! rates with hover and zoom; without the script, the tables show rates, epochs and the longest waits.
//!
//! - [`render`] writes the page. `tables`: epochs, prongs, stalls, faults, corrupt samples. `rates`: images per second,
//!   as a table. `drawing`: what the script, `page.js`, draws.
//! - `derived`: facts that follow from the figures; the summary and the JSON report state them, too.
//! - `headspace`: what training would gain if loading were free. [`text`]: figures for people.
//!
//! The page stays small however long the run is: the time line is thinned ([`TIMELINE_ENTRIES_MAX`]), and tables show
//! the first rows and the number of the others. Figures that were not measured are shown as “unknown”.
//!
//! [`TIMELINE_ENTRIES_MAX`]: ddlp_host::report::TIMELINE_ENTRIES_MAX
#![forbid(unsafe_code)]

mod derived;
mod drawing;
mod headspace;
mod html;
mod rates;
mod tables;
pub mod text;

pub use derived::{fault_count, host_cpu_s_per_1000_images, host_memory, host_read, read_text};
pub use headspace::describe_headspace;
pub use html::Escaped;

use ddlp_host::report::Report;
use drawing::Drawing;
use std::fmt::Write;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("page.js");
/// What the page may load: nothing.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";
/// Most characters of a prong's name in a drawing.
const NAME_CHARS: usize = 17;
/// Explains how to use the drawings. Stands above them until the reader points at a place.
const HELP: &str = "Point at a bar to see its batch. Drag to zoom; double-click to see the whole run. By keyboard: \
    select a drawing with Tab; arrows step through the deliveries, Shift and arrows move through time, + and - zoom, \
    Escape shows the whole run.";

/// Facts about a run that the page shows beside the figures.
#[derive(Clone, Debug)]
pub struct Context {
    /// Command line of the run; may be empty.
    pub command: String,
    /// Version of this program.
    pub version: String,
    /// Processor and number of cores; may be empty.
    pub machine: String,
    /// The reason, if the run ended early.
    pub ended_early: Option<String>,
    /// Spells the options in messages, which are in backticks, as the reader writes them.
    pub spelled: fn(&str) -> String,
}

impl Default for Context {
    fn default() -> Self {
        Self {
            command: String::new(),
            version: String::new(),
            machine: String::new(),
            ended_early: None,
            spelled: str::to_string,
        }
    }
}

/// Renders the page.
pub fn render(report: &Report, context: &Context) -> String {
    let mut page = head(report);
    early_end(&mut page, context);
    tiles(&mut page, report);
    split(&mut page, report);
    time_line(&mut page, report);
    rates_over_time(&mut page, report);
    tables::write(&mut page, report, context);
    about(&mut page, report, context);
    let data = Drawing::of(report, context).to_json();
    let _ = writeln!(
        page,
        "</main>\n<script type=\"application/json\" id=\"run\">{data}</script>\n<script>\n{SCRIPT}</script>\n\
         </body></html>"
    );
    page
}

fn head(report: &Report) -> String {
    let dataset = Escaped(&report.dataset);
    let epochs = text::plural(report.epochs.len() as u64, "epoch");
    let samples = text::plural(report.epoch_samples, "sample");
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <title>DDLP: {dataset}</title>\n<style>\n{STYLE}</style></head>\n<body><main>\n\
         <h1>{dataset}</h1>\n<p class=\"sub\">\
         DDLP run: strategy <strong>{strategy}</strong>, {epochs} of {samples} in batches of {batch}, \
         seed {seed}</p>\n",
        strategy = Escaped(&report.strategy),
        batch = text::count(report.batch_size),
        seed = report.seed,
    )
}

fn early_end(page: &mut String, context: &Context) {
    if let Some(why) = &context.ended_early {
        let _ =
            writeln!(page, "<section class=\"bad\"><h2>The run ended early</h2><div>{}</div></section>", Escaped(why));
    }
}

/// Writes one figure at the top of the page: value, unit, meaning.
fn tile(page: &mut String, value: Option<(String, &str)>, what: &str) {
    let shown = match value {
        Some((value, "")) => format!("<b>{}</b>", Escaped(&value)),
        Some((value, unit)) => format!("<b>{} <small>{unit}</small></b>", Escaped(&value)),
        None => "<b class=\"unknown\">unknown</b>".to_string(),
    };
    let _ = writeln!(page, "<div class=\"tile\">{shown}<span>{}</span></div>", Escaped(what));
}

fn tiles(page: &mut String, report: &Report) {
    page.push_str("<div class=\"tiles\">\n");
    tile(page, Some((text::figure(report.images_per_s), "images/s")), "delivered");
    let what = format!("for {} in {}", text::plural(report.images, "image"), text::plural(report.batches, "batch"));
    tile(page, Some((text::seconds(report.seconds), "")), &what);
    let what = format!("to the first batch, after {} of set-up", text::seconds(report.setup_s));
    tile(page, Some((text::seconds(report.first_batch_s), "")), &what);
    let waited = if report.seconds > 0.0 { report.consumer_wait_s / report.seconds } else { 0.0 };
    tile(page, Some((text::percent(waited), "")), "of the time the consumer waited");
    let what = match report.accelerator_utilisation {
        Some(_) => "accelerator busy (simulated by --step-ms)",
        None => "accelerator busy: known only with --step-ms",
    };
    tile(page, report.accelerator_utilisation.map(|share| (text::percent(share), "")), what);
    let cpu = host_cpu_s_per_1000_images(report);
    tile(page, cpu.map(|cpu| (text::seconds(cpu), "")), "host CPU time per 1,000 images");
    let slots = match report.slot_memory_mb {
        mb if mb > 0.0 => {
            format!("peak memory allocated by the host; {} MB of result slots shared with drives", text::figure(mb))
        }
        _ => "peak memory allocated by the host".to_string(),
    };
    tile(page, Some((text::figure(report.peak_memory_mb), "MB")), &slots);
    let what = match report.host_energy_j {
        Some(_) => "energy of the host's processors",
        None => "energy of the host's processors: no counter under /sys/class/powercap can be read (it may need root)",
    };
    tile(page, report.host_energy_j.map(|joules| (text::figure(joules), "J")), what);
    page.push_str("</div>\n");
}

fn split(page: &mut String, report: &Report) {
    let total: u64 = report.prongs.iter().map(|prong| prong.images).sum();
    if total == 0 {
        return;
    }
    page.push_str("<section><h2>Who made the images</h2>\n<div class=\"share\">");
    for (index, prong) in report.prongs.iter().enumerate().filter(|(_, prong)| prong.images > 0) {
        let share = prong.images as f64 / total as f64;
        let name = text::ending(&text::prong_name(&prong.name), NAME_CHARS);
        let label = if share > 0.07 { format!("{name} {}", text::percent(share)) } else { String::new() };
        let _ = write!(
            page,
            "<div class=\"b{}\" style=\"flex:{:.0}\">{}</div>",
            index % 6,
            share * 1000.0,
            Escaped(&label)
        );
    }
    page.push_str("</div>\n");
    tables::prongs(page, report);
    page.push_str("</section>\n");
}

fn legend(page: &mut String, report: &Report, extra: &str) {
    page.push_str("<ul class=\"legend\">");
    for (index, prong) in report.prongs.iter().enumerate() {
        let _ = write!(page, "<li><i class=\"b{}\"></i>{}</li>", index % 6, Escaped(&text::prong_name(&prong.name)));
    }
    let _ = writeln!(page, "{extra}</ul>");
}

/// Explains the drawing in words, which depend on the strategy.
fn way_through_epoch(report: &Report) -> &'static str {
    match report.strategy.as_str() {
        _ if report.prongs.len() < 2 => "The CPU works alone, from batch 0 upwards.",
        "mte" => {
            "The CPU works from batch 0 upwards, drives from the last batch downwards, until they meet; the CPU's \
             batches are delivered first, then those of the drives, from the last one down."
        }
        "wrr" => {
            "The CPU works from batch 0 upwards, drives from the last batch downwards; finished batches of both \
             sides are delivered, weighted by each side's rate."
        }
        "ordered" => {
            "Delivery is in order, so all work lies in a window that climbs through the epoch. Within the window, a \
             drive goes ahead of the CPU to the first batch that it can finish before the CPU would reach that batch, \
             so the batches of both interleave. A drive whose rate is not known yet begins at the window's far end."
        }
        "csd" => "Drives work alone, from batch 0 upwards; the CPU prepares only batches at which they fail.",
        _ => "",
    }
}

fn time_line(page: &mut String, report: &Report) {
    page.push_str(
        "<noscript><p>The drawings of the time line and of the rates need JavaScript; the tables show rates, epochs \
         and the longest waits.</p></noscript>\n<section class=\"drawing\">\
         <h2>Time line</h2>\n\
         <p>Each bar is a batch while a prong prepares it, at its place in the epoch. Dots are deliveries \
         to the consumer. ",
    );
    page.push_str(way_through_epoch(report));
    if report.epochs.len() > 1 {
        page.push_str(
            " An epoch's label stands where the consumer asks for the epoch's first batch. Prongs begin an epoch while \
             batches of the epoch before are still being delivered, so an epoch's first bars stand left of its label.",
        );
    }
    page.push_str("</p>\n");
    let mut extra = String::from("<li><i class=\"dot\"></i>delivered</li><li><i class=\"bw\"></i>consumer waits</li>");
    if report.prongs.iter().any(|prong| prong.wasted_batches > 0) {
        extra.push_str("<li><i class=\"hollow\"></i>not used</li>");
    }
    if fault_count(report) > 0 {
        extra.push_str("<li><i class=\"bf\"></i>fault</li>");
    }
    legend(page, report, &extra);
    page.push_str("<div class=\"tools\" role=\"group\" aria-label=\"Part of the run that is drawn\">");
    let tools = [
        ("zoom-in", "Zoom in"),
        ("zoom-out", "Zoom out"),
        ("earlier", "Earlier"),
        ("later", "Later"),
        ("whole", "Whole run"),
    ];
    for (id, name) in tools {
        let _ = write!(page, "<button type=\"button\" id=\"{id}\">{name}</button>");
    }
    let help = Escaped(HELP);
    let _ = writeln!(
        page,
        "<span id=\"range\"></span></div>\n\
         <p class=\"details\" id=\"details\" role=\"status\" data-help=\"{help}\">{help}</p>"
    );
    canvas(page, "timeline", "Time line: batches that each prong prepares, deliveries, and waits of the consumer");
    if report.timeline.kept_every > 1 {
        let _ = writeln!(page, "<p>One batch in {} is drawn.</p>", text::count(report.timeline.kept_every as u64));
    }
    page.push_str("</section>\n");
}

fn canvas(page: &mut String, id: &str, what: &str) {
    let _ = writeln!(
        page,
        "<div class=\"scroll\"><canvas id=\"{id}\" tabindex=\"0\" role=\"img\" aria-label=\"{what}\" \
         aria-describedby=\"details\">{what}. The tables show rates, epochs and the longest waits.</canvas></div>"
    );
}

fn rates_over_time(page: &mut String, report: &Report) {
    page.push_str(
        "<section><h2>Images per second</h2>\n<div class=\"drawing\">\
         <p>Coloured areas: made by each prong, stacked. Line: delivered.</p>\n",
    );
    legend(page, report, "<li><i class=\"bar\"></i>delivered<span id=\"bursts\"></span></li>");
    canvas(page, "rates", "Images per second over time: made by each prong, and delivered");
    page.push_str("</div>\n");
    rates::write(page, report);
    page.push_str("</section>\n");
}

fn about(page: &mut String, report: &Report, context: &Context) {
    page.push_str("<section><h2>About this run</h2>\n<dl>");
    let mut entry = |name: &str, value: &str, code: bool| {
        let value = Escaped(value);
        let _ = if code {
            writeln!(page, "<dt>{name}</dt><dd><code>{value}</code></dd>")
        } else {
            writeln!(page, "<dt>{name}</dt><dd>{value}</dd>")
        };
    };
    if !context.command.is_empty() {
        entry("Command", &context.command, true);
    }
    entry("Version", &context.version, false);
    if !context.machine.is_empty() {
        entry("Machine", &context.machine, false);
    }
    entry("CPU threads", &report.threads.to_string(), false);
    entry("Host CPU time", &text::seconds(report.host_cpu_s), false);
    if let Some(read) = host_read(report) {
        entry("Read by the host", &read, false);
    }
    if let Some(digest) = &report.digest {
        entry("Digest (order-free)", digest, true);
    }
    if let Some(digest) = &report.ordered_digest {
        entry("Digest (in order)", digest, true);
    }
    page.push_str("</dl></section>\n");
}

#[cfg(test)]
mod tests;
