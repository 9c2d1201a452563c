//! The live display: a bar in which both prongs move towards each other.
//!
//! The bar shows how much of the epoch the prongs have taken. Percentage and time left follow what was delivered of all
//! epochs, since a consumer may be slower than the prongs.
//!
//! On a terminal, the display is redrawn in place ten times a second; elsewhere a line is written every few seconds.

use crate::text;
use console::{Style, Term};
use ddlp_host::{Progress, ProgressHandle, ProngProgress};
use std::fmt::Write;
use std::io::IsTerminal;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const DRAW_EVERY: Duration = Duration::from_millis(100);
const LINE_EVERY: Duration = Duration::from_secs(5);
/// Columns for the figures behind the bar, so that the bar keeps its width when the figures grow.
const FIGURES_CHARS: usize = 46;
/// Escape sequences: up a line; clear from the cursor to the end of the line.
const UP: &str = "\u{1b}[1A";
const CLEAR_REST: &str = "\u{1b}[K";
/// Longest and shortest length to which a prong's name is cut.
const NAME_CHARS: (usize, usize) = (40, 6);

/// The display of a run; dropping it removes it.
pub struct Live {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Live {
    /// Shows the progress of a run on standard error until the display is dropped.
    pub fn start(progress: ProgressHandle) -> Self {
        let (stop, stopped) = mpsc::channel();
        let terminal = std::io::stderr().is_terminal();
        let show = move || {
            let every = if terminal { DRAW_EVERY } else { LINE_EVERY };
            let mut drawing = terminal.then(LiveDrawing::new);
            let mut course = Course::new(progress.snapshot());
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(every) {
                course.follow(progress.snapshot());
                match &mut drawing {
                    Some(drawing) => drawing.show(&course),
                    None => eprintln!("{}", line(&course)),
                }
            }
            if let Some(drawing) = drawing {
                drawing.clear();
            }
        };
        // If there is no thread for the display, the run goes on without it.
        let thread = thread::Builder::new().name("display".into()).spawn(show).ok();
        Self { stop: Some(stop), thread }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Progress of a run's deliveries.
struct Course {
    now: Progress,
    /// Batches of all epochs that were delivered before this run, if it resumed from a state.
    before: u64,
}

impl Course {
    fn new(now: Progress) -> Self {
        Self { before: delivered(&now), now }
    }

    /// Takes over the next progress. After the last batch a run has no epoch any more: the display then stays at the
    /// end.
    fn follow(&mut self, next: Progress) {
        if delivered(&next) >= delivered(&self.now) {
            self.now = next;
            return;
        }
        let (epoch, batches) = (next.epochs.saturating_sub(1), next.batches);
        let (head, tail) = (self.now.head, batches.saturating_sub(self.now.head));
        self.now = Progress { epoch, delivered: batches, head, tail, ..next };
    }

    fn all(&self) -> u64 {
        u64::from(self.now.batches) * u64::from(self.now.epochs)
    }

    /// Returns the delivered share of all epochs' batches.
    fn share(&self) -> f64 {
        (delivered(&self.now) as f64 / self.all().max(1) as f64).min(1.0)
    }

    /// Returns the seconds until the end of the last epoch, at the mean speed of delivery so far. The time for which a
    /// drive that holds the dataset was silent says nothing about that speed.
    fn left_s(&self) -> Option<f64> {
        let done = delivered(&self.now);
        let here = done.saturating_sub(self.before);
        let left = self.all().saturating_sub(done) as f64;
        let worked_s = self.now.elapsed_s - self.now.silent_s;
        (here > 0 && worked_s > 0.2).then(|| left * worked_s / here as f64)
    }
}

/// Returns the number of batches delivered of all epochs.
fn delivered(now: &Progress) -> u64 {
    u64::from(now.epoch) * u64::from(now.batches) + u64::from(now.delivered)
}

/// Two lines that are drawn in place. The cursor rests at the beginning of the second one, so that nothing moves when a
/// terminal itself writes there, for example ^C.
struct LiveDrawing {
    terminal: Term,
    is_there: bool,
}

impl LiveDrawing {
    fn new() -> Self {
        Self { terminal: Term::stderr(), is_there: false }
    }

    fn show(&mut self, course: &Course) {
        let columns = usize::from(self.terminal.size().1).saturating_sub(1);
        let bar = fit(&bar_line(course, columns), columns);
        let prongs = match &course.now.silence {
            Some(silence) => format!("  {}", silence_text(silence)),
            None => prong_line(&course.now, columns),
        };
        let prongs = fit(&prongs, columns);
        let back = if self.is_there { UP } else { "" };
        self.is_there = true;
        // If this cannot be written, nobody can see it.
        let _ = self.terminal.write_str(&format!("{back}\r{bar}{CLEAR_REST}\n\r{prongs}{CLEAR_REST}\r"));
    }

    fn clear(&self) {
        if self.is_there {
            let _ = self.terminal.write_str(&format!("\r{CLEAR_REST}{UP}{CLEAR_REST}"));
        }
    }
}

fn fit(line: &str, columns: usize) -> String {
    console::truncate_str(line, columns, "…").into_owned()
}

/// Divides a bar into cells that are done from the left, not done, and done from the right. A side that has done
/// anything has at least one cell, and an epoch that is not over has at least one open cell.
fn cells(head: u64, tail: u64, batches: u64, width: usize) -> (usize, usize, usize) {
    let batches = batches.max(1);
    let done = (head + tail).min(batches);
    let scaled = |part: u64| {
        let exact = (part as u128 * width as u128).div_ceil(u128::from(batches)) as usize;
        exact.min(width)
    };
    let left = scaled(head.min(batches));
    let right = scaled(tail.min(batches)).min(width - left);
    let open = width - left - right;
    if open == 0 && done < batches && left + right > 1 {
        return if left >= right { (left - 1, 1, right) } else { (left, 1, right - 1) };
    }
    (left, open, right)
}

fn colours() -> [Style; 2] {
    [Style::new().for_stderr().blue().bright(), Style::new().for_stderr().yellow()]
}

fn bar_line(course: &Course, columns: usize) -> String {
    let now = &course.now;
    let epoch = text::epoch_of(now.epoch, now.epochs).map(|epoch| epoch + "  ").unwrap_or_default();
    let worked_s = now.elapsed_s - now.silent_s;
    let rate = if worked_s > 0.0 { now.images as f64 / worked_s } else { 0.0 };
    let tail = format!("{:>4} delivered, {}{}", text::percent(course.share()), text::rate(rate), left_text(course));
    let width = columns.saturating_sub(epoch.len() + tail.chars().count().max(FIGURES_CHARS) + 2).clamp(10, 80);
    let (left, open, right) = cells(now.head.into(), now.tail.into(), now.batches.into(), width);
    let [host, drive] = colours();
    let head = host.apply_to("█".repeat(left));
    let back = drive.apply_to("█".repeat(right));
    format!("{epoch}{head}{}{back}  {tail}", "·".repeat(open))
}

/// Describes what the prongs do, in at most `columns`: first the names and the unit are shortened, then the drives are
/// counted together.
fn prong_line(now: &Progress, columns: usize) -> String {
    let (longest, shortest) = NAME_CHARS;
    let fits = |line: &String| console::measure_text_width(line) <= columns;
    let forms =
        [" images/s", "/s"].into_iter().flat_map(|unit| (shortest..=longest).rev().map(move |chars| (chars, unit)));
    let mut lines = forms.map(|(chars, unit)| named_prongs(now, chars, unit));
    lines.find(fits).unwrap_or_else(|| counted_prongs(now))
}

fn named_prongs(now: &Progress, chars: usize, unit: &str) -> String {
    let [host, drive] = colours();
    let mut line = String::from("  ");
    for (index, prong) in now.prongs.iter().enumerate() {
        let mark = if index == 0 { host.apply_to("▶") } else { drive.apply_to("◀") };
        let _ = write!(line, "{mark} {}  ", prong_text(prong, chars, unit));
    }
    line + &troubles(now)
}

fn counted_prongs(now: &Progress) -> String {
    let [host, drive] = colours();
    let (hosts, drives) = now.prongs.split_at(1.min(now.prongs.len()));
    let of_host = hosts.first().map(|prong| prong_text(prong, NAME_CHARS.1, "/s")).unwrap_or_default();
    let of_drives = text::figure(drives.iter().map(|prong| prong.images_per_s).sum());
    let count = text::plural(drives.len() as u64, "drive");
    let away = match drives.iter().filter(|prong| !prong.is_up).count() {
        0 => String::new(),
        away => format!(" ({away} away)"),
    };
    let (up, down) = (host.apply_to("▶"), drive.apply_to("◀"));
    format!("  {up} {of_host}  {down} {count} {of_drives}/s{away}  {}", troubles(now))
}

/// Returns name, rate and whether the prong is away. A prong has a rate from its first batch on.
fn prong_text(prong: &ProngProgress, chars: usize, unit: &str) -> String {
    let name = text::ending(&text::prong_name(&prong.name), chars);
    let rate = if prong.prepared > 0 { text::figure(prong.images_per_s) } else { "–".to_string() };
    format!("{name} {rate}{unit}{}", if prong.is_up { "" } else { " (away)" })
}

fn troubles(now: &Progress) -> String {
    let mut parts = Vec::new();
    if now.faults > 0 {
        parts.push(text::plural(now.faults as u64, "fault"));
    }
    if now.corrupt > 0 {
        parts.push(format!("{} corrupt", text::count(now.corrupt as u64)));
    }
    parts.join(", ")
}

fn left_text(course: &Course) -> String {
    let shown = |left: f64| match left.ceil() {
        left if left < 60.0 => format!(", {left:.0} s left"),
        left if left < 3600.0 => format!(", {} min {:02} s left", left as u64 / 60, left as u64 % 60),
        left => format!(", {} left", text::seconds(left)),
    };
    course.left_s().map(shown).unwrap_or_default()
}

/// Returns the state of a run in one line without colours.
fn line(course: &Course) -> String {
    let now = &course.now;
    let epoch = text::epoch_of(now.epoch, now.epochs).map(|epoch| epoch + ": ").unwrap_or_default();
    let mut line = format!(
        "{epoch}{} of {} delivered",
        text::count(now.delivered.into()),
        text::plural(now.batches.into(), "batch")
    );
    for prong in &now.prongs {
        let _ = write!(line, ", {}", prong_text(prong, NAME_CHARS.0, " images/s"));
    }
    let troubles = troubles(now);
    if !troubles.is_empty() {
        let _ = write!(line, ", {troubles}");
    }
    match &now.silence {
        Some(silence) => format!("{line}, {}", silence_text(silence)),
        None => line + &left_text(course),
    }
}

/// Says that the drive that holds the dataset does not answer. Names the drive like a prong.
fn silence_text(silence: &str) -> String {
    format!("the CPU waits: {}", text::fault(silence))
}

#[cfg(test)]
mod tests;
