//! Text for people: what the reports say in the same way, and options in messages (`flags`).

mod flags;

pub use ddlp_report::text::{bytes, count, ending, figure, percent, plural, printable, prong_name, rate, seconds};
pub use flags::flags;

/// Names an epoch of a run with the numbers that epochs have: `epoch 1 (0 to 2)`. A single epoch needs no name.
pub fn epoch_of(epoch: u32, epochs: u32) -> Option<String> {
    (epochs > 1).then(|| format!("epoch {epoch} (0 to {})", epochs - 1))
}

/// Formats a message of the loader.
pub fn message(text: &str) -> String {
    flags(&printable(text))
}

/// Formats what happened to a drive, with the drive's address as [`prong_name`] shortens it.
pub fn fault(what: &str) -> String {
    flags(&ddlp_report::text::short_addresses(what))
}

/// Breaks lines between words so that none is wider than `columns`, as far as words allow. Continuation lines are
/// indented.
pub fn wrapped(text: &str, columns: usize) -> String {
    const INDENT: &str = "      ";
    let mut out = String::new();
    for line in text.lines() {
        let mut width = 0;
        for word in line.split_inclusive(' ') {
            let word_width = console::measure_text_width(word.trim_end());
            if width + word_width > columns && width > INDENT.len() {
                out.truncate(out.trim_end().len());
                out.push('\n');
                out.push_str(INDENT);
                width = INDENT.len();
            }
            out.push_str(word);
            width += console::measure_text_width(word);
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests;
