//! The live display: both prongs moving towards each other in one bar.
//!
//! On a terminal it is drawn in place ten times a second; elsewhere a line is written every few seconds.

use crate::text;
use console::{Style, Term};
use ddlp_host::{Progress, ProgressHandle};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fmt::Write;
use std::io::IsTerminal;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const DRAW_EVERY: Duration = Duration::from_millis(100);
const LINE_EVERY: Duration = Duration::from_secs(5);

/// The display of a run; it goes away when this is dropped.
pub struct Live {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Live {
    /// Shows the progress of a run on standard error until dropped.
    pub fn start(progress: ProgressHandle) -> Self {
        let (stop, stopped) = mpsc::channel();
        let terminal = std::io::stderr().is_terminal();
        let show = move || {
            let every = if terminal { DRAW_EVERY } else { LINE_EVERY };
            let drawing = terminal.then(Drawing::new);
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(every) {
                let now = progress.snapshot();
                match &drawing {
                    Some(drawing) => drawing.show(&now),
                    None => eprintln!("{}", line(&now)),
                }
            }
            if let Some(drawing) = drawing {
                drawing.clear();
            }
        };
        // Without a thread for it the run goes on unseen.
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

struct Drawing {
    bar: ProgressBar,
    prongs: ProgressBar,
    all: MultiProgress,
}

impl Drawing {
    fn new() -> Self {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(15));
        let style = ProgressStyle::with_template("{wide_msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
        let row = || all.add(ProgressBar::new_spinner().with_style(style.clone()));
        Self { bar: row(), prongs: row(), all }
    }

    fn show(&self, now: &Progress) {
        let (_, columns) = Term::stderr().size();
        self.bar.set_message(bar_line(now, usize::from(columns)));
        self.prongs.set_message(prong_line(now));
    }

    fn clear(&self) {
        let _ = self.all.clear();
    }
}

/// Cells of a bar that are done from the left, not done, and done from the right. What is done shows at least one cell, and
/// an epoch that is not over leaves at least one cell open.
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

fn bar_line(now: &Progress, columns: usize) -> String {
    let epoch = format!("epoch {}/{}", now.epoch + 1, now.epochs);
    let done = u64::from(now.head) + u64::from(now.tail);
    let share = done as f64 / f64::from(now.batches.max(1));
    let rate = if now.elapsed_s > 0.0 { now.images as f64 / now.elapsed_s } else { 0.0 };
    let tail = format!("{:>4}  {}{}", text::percent(share.min(1.0)), text::rate(rate), eta_text(now));
    let width = columns.saturating_sub(epoch.len() + tail.chars().count() + 6).clamp(10, 80);
    let (left, open, right) = cells(now.head.into(), now.tail.into(), now.batches.into(), width);
    let [host, drive] = colours();
    let head = host.apply_to("█".repeat(left));
    let back = drive.apply_to("█".repeat(right));
    format!("{epoch}  {head}{}{back}  {tail}", "·".repeat(open))
}

fn prong_line(now: &Progress) -> String {
    let [host, drive] = colours();
    let mut line = String::from("  ");
    for (index, prong) in now.prongs.iter().enumerate() {
        let mark = if index == 0 { host.apply_to("▶") } else { drive.apply_to("◀") };
        let name = text::printable(&prong.name);
        let _ = write!(line, "{mark} {name} {}", text::rate(prong.images_per_s));
        if !prong.is_up {
            line.push_str(" (away)");
        }
        line.push_str("   ");
    }
    line + &troubles(now)
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

/// Seconds until the last epoch is over, by the mean speed so far.
fn eta_s(now: &Progress) -> Option<f64> {
    let batches = f64::from(now.batches);
    let all = batches * f64::from(now.epochs);
    let done = batches * f64::from(now.epoch) + f64::from(now.head) + f64::from(now.tail);
    (done > 0.0 && now.elapsed_s > 0.2).then(|| (all - done).max(0.0) * now.elapsed_s / done)
}

fn eta_text(now: &Progress) -> String {
    let shown = |left: f64| match left.ceil() {
        left if left < 60.0 => format!("  {left:.0} s left"),
        left if left < 3600.0 => format!("  {} min {:02} s left", left as u64 / 60, left as u64 % 60),
        left => format!("  {} left", text::seconds(left)),
    };
    eta_s(now).map(shown).unwrap_or_default()
}

/// The state of a run in one line without colours.
fn line(now: &Progress) -> String {
    let mut line = format!(
        "epoch {}/{}: {} of {} delivered",
        now.epoch + 1,
        now.epochs,
        text::count(now.delivered.into()),
        text::plural(now.batches.into(), "batch")
    );
    for prong in &now.prongs {
        let _ = write!(line, ", {} {}", text::printable(&prong.name), text::rate(prong.images_per_s));
        if !prong.is_up {
            line.push_str(" (away)");
        }
    }
    let troubles = troubles(now);
    if !troubles.is_empty() {
        let _ = write!(line, ", {troubles}");
    }
    line + &eta_text(now).replace("  ", ", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddlp_host::ProngProgress;

    #[test]
    fn the_bar_always_has_its_width_and_fills_from_both_ends() {
        for width in [1, 10, 33] {
            for batches in [1, 3, 157, 20_000] {
                for head in 0..=batches.min(200) {
                    for tail in [0, 1, (batches - head) / 2, batches - head] {
                        let (left, open, right) = cells(head, tail, batches, width);
                        assert_eq!(left + open + right, width, "{head} {tail} {batches}");
                        if width > 2 {
                            assert_eq!(left > 0, head > 0, "{head} {tail} {batches} {width}");
                            assert!(open > 0 || head + tail >= batches, "{head} {tail} {batches} {width}");
                        }
                    }
                }
            }
        }
        assert_eq!(cells(157, 0, 157, 20), (20, 0, 0));
        assert_eq!(cells(0, 157, 157, 20), (0, 0, 20));
    }

    fn progress() -> Progress {
        let prong = |name: &str, images_per_s, is_up| ProngProgress {
            name: name.into(),
            images: 640,
            images_per_s,
            outstanding: 2,
            is_up,
        };
        Progress {
            epoch: 1,
            epochs: 2,
            batches: 100,
            delivered: 30,
            head: 35,
            tail: 25,
            images: 8320,
            elapsed_s: 8.0,
            prongs: vec![prong("cpu", 612.0, true), prong("lo\u{1b}cal", 575.0, false)],
            faults: 1,
            corrupt: 4,
        }
    }

    #[test]
    fn the_line_says_everything() {
        let expected = "epoch 2/2: 30 of 100 batches delivered, cpu 612 images/s, lo\u{fffd}cal 575 images/s (away), \
                        1 fault, 4 corrupt, 2 s left";
        assert_eq!(line(&progress()), expected);
    }

    #[test]
    fn the_time_left_counts_all_epochs() {
        assert_eq!(eta_s(&progress()), Some(2.0));
        assert_eq!(eta_s(&Progress { elapsed_s: 0.0, ..progress() }), None);
    }

    #[test]
    fn the_time_left_is_said_in_whole_seconds() {
        let left = |elapsed_s| eta_text(&Progress { elapsed_s, ..progress() });
        assert_eq!(left(8.0), "  2 s left");
        assert_eq!(left(300.0), "  1 min 15 s left");
        assert_eq!(left(36_000.0), "  2 h 30 min left");
    }

    #[test]
    fn the_drawing_fits_a_narrow_terminal() {
        let shown = bar_line(&progress(), 80);
        assert!(console::measure_text_width(&shown) <= 80, "{shown}");
        assert!(shown.contains("60 %") && shown.contains("1,040 images/s"), "{shown}");
    }
}
