//! The progress bar for jobs over samples, and the lines that replace it if standard error is not a terminal.

use console::Term;
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle, TermLike};
use std::fmt::Write;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

/// Interval between lines if standard error is not a terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Returns standard error as the target of a bar that is cleared at the end.
fn terminal_target() -> ProgressDrawTarget {
    ProgressDrawTarget::term_like_with_hz(Box::new(Terminal(Term::stderr())), 15)
}

/// Columns that a bar leaves free: a terminal writes ^C behind it, and a line wrapped by that would not be cleared.
const ECHO: u16 = 4;

/// A terminal that claims to be narrower by [`ECHO`]. It serves a single line; indicatif joins several by filling all
/// but the last.
#[derive(Debug)]
struct Terminal(Term);

impl TermLike for Terminal {
    fn width(&self) -> u16 {
        self.0.size().1.saturating_sub(ECHO).max(1)
    }

    fn height(&self) -> u16 {
        self.0.size().0
    }

    fn move_cursor_up(&self, lines: usize) -> io::Result<()> {
        self.0.move_cursor_up(lines)
    }

    fn move_cursor_down(&self, lines: usize) -> io::Result<()> {
        self.0.move_cursor_down(lines)
    }

    fn move_cursor_right(&self, columns: usize) -> io::Result<()> {
        self.0.move_cursor_right(columns)
    }

    fn move_cursor_left(&self, columns: usize) -> io::Result<()> {
        self.0.move_cursor_left(columns)
    }

    fn write_line(&self, line: &str) -> io::Result<()> {
        self.0.write_line(line)
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.0.write_str(text)
    }

    fn clear_line(&self) -> io::Result<()> {
        self.0.clear_line()
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Display of the progress of a job over samples.
pub struct SampleProgress {
    bar: ProgressBar,
    doing: &'static str,
    bytes: u64,
    lines: Option<Lines>,
}

struct Lines {
    last: Instant,
    begun: Instant,
}

impl SampleProgress {
    /// Creates a bar on standard error; if that is not a terminal, a line every few seconds; nothing if `quiet`.
    pub fn new(doing: &'static str, quiet: bool) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let target = if quiet || !terminal { ProgressDrawTarget::hidden() } else { terminal_target() };
        let bar = ProgressBar::with_draw_target(None, target).with_message(doing);
        bar.set_style(style());
        let now = Instant::now();
        let lines = (!quiet && !terminal).then_some(Lines { last: now, begun: now });
        Self { bar, doing, bytes: 0, lines }
    }

    /// Begins another phase of the job.
    pub fn phase(&mut self, doing: &'static str) {
        if self.doing != doing {
            self.doing = doing;
            self.bar.set_message(doing);
            self.bar.reset();
        }
    }

    /// Shows that `samples` of `total`, and `bytes`, are done.
    pub fn update(&mut self, samples: u64, total: u64, bytes: u64, remark: &str) {
        self.bytes = bytes;
        self.bar.set_length(total);
        self.bar.set_position(samples);
        let seconds = self.bar.elapsed().as_secs_f64();
        let mut prefix = String::new();
        if seconds > 0.05 && bytes > 0 {
            let _ = write!(prefix, "{}/s", crate::text::bytes((bytes as f64 / seconds) as u64));
        }
        if !remark.is_empty() {
            let _ = write!(prefix, "  {remark}");
        }
        self.bar.set_prefix(prefix);
        self.line(samples, total, remark);
    }

    fn line(&mut self, samples: u64, total: u64, remark: &str) {
        let Some(lines) = &mut self.lines else { return };
        if lines.last.elapsed() < LINE_EVERY {
            return;
        }
        lines.last = Instant::now();
        let rate = samples as f64 / lines.begun.elapsed().as_secs_f64();
        let counted = format!("{} of {}", crate::text::count(samples), crate::text::plural(total, "sample"));
        let remark = if remark.is_empty() { String::new() } else { format!(", {remark}") };
        eprintln!("{}: {counted}, {} samples/s{remark}", self.doing, crate::text::figure(rate));
    }

    /// Returns the time since the beginning of this phase.
    pub fn elapsed(&self) -> Duration {
        self.bar.elapsed()
    }

    /// Removes the bar.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for SampleProgress {
    fn drop(&mut self) {
        self.clear();
    }
}

fn style() -> ProgressStyle {
    let template = "{msg:10} [{wide_bar:.cyan}] {human_pos}/{human_len} samples  {prefix}  {left}";
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    style.progress_chars("█▉▊▋▌▍▎▏ ").with_key("left", |state: &ProgressState, out: &mut dyn Write| {
        let eta = state.eta();
        if state.pos() > 0 && !eta.is_zero() {
            let _ = write!(out, "{} left", HumanDuration(eta));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_is_valid() {
        assert!(
            ProgressStyle::with_template(
                "{msg:10} [{wide_bar:.cyan}] {human_pos}/{human_len} samples  {prefix}  {left}"
            )
            .is_ok()
        );
    }

    #[test]
    fn a_quiet_bar_takes_every_update() {
        let mut progress = SampleProgress::new("packing", true);
        progress.update(0, 0, 0, "");
        progress.update(5, 10, 1000, "1 repaired");
        progress.phase("verifying");
        progress.update(10, 10, 1000, "");
        assert!(progress.lines.is_none());
    }
}
