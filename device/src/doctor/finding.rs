//! What the doctor has to say of one subject, and how it is shown.

use serde::Serialize;
use std::fmt::{self, Write as _};

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be, or merely worth knowing.
    Fine,
    /// The drive serves, but slower or less safely than it could.
    Warning,
    /// The drive cannot serve.
    Failure,
}

/// One sentence about the board.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it is about.
    pub subject: &'static str,
    /// How much it matters.
    pub level: Level,
    /// What was found.
    pub text: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Finding {
    /// Something that is as it should be.
    pub fn fine(subject: &'static str, text: impl Into<String>) -> Self {
        Self { subject, level: Level::Fine, text: text.into(), advice: None }
    }

    /// Something that could be better.
    pub fn warning(subject: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { subject, level: Level::Warning, text: text.into(), advice: Some(advice.into()) }
    }

    /// Something that keeps the drive from serving.
    pub fn failure(subject: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { subject, level: Level::Failure, text: text.into(), advice: Some(advice.into()) }
    }
}

/// The findings as lines: subject, mark, text; advice below it.
pub struct Lines<'a> {
    /// What was found.
    pub findings: &'a [Finding],
    /// Characters of a line; a longer word has one of its own.
    pub width: usize,
}

/// Where texts begin.
const TEXT_COLUMN: usize = 18;
const ARROW: &str = "-> ";

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut last = "";
        for finding in self.findings {
            let mark = match finding.level {
                Level::Fine => "ok",
                Level::Warning => "warning",
                Level::Failure => "FAILURE",
            };
            let subject = if finding.subject == last { "" } else { finding.subject };
            last = finding.subject;
            let (text, indent) = (self.width - TEXT_COLUMN, " ".repeat(TEXT_COLUMN));
            writeln!(f, "{subject:<9}{mark:<9}{}", wrapped(&finding.text, text).join(&format!("\n{indent}")))?;
            if let Some(advice) = &finding.advice {
                let lines = wrapped(advice, text - ARROW.len());
                let below = format!("\n{indent}{:1$}", "", ARROW.len());
                writeln!(f, "{indent}{ARROW}{}", lines.join(&below))?;
            }
        }
        Ok(())
    }
}

/// The text in lines of at most `width` characters, broken at spaces. Lines of its own that fit stay as they are.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let length = |text: &str| text.chars().count();
    let mut lines = Vec::new();
    for line in text.lines() {
        if length(line) <= width {
            lines.push(line.to_owned());
            continue;
        }
        let mut started = String::new();
        for word in line.split_whitespace() {
            if !started.is_empty() && length(&started) + 1 + length(word) > width {
                lines.push(std::mem::take(&mut started));
            }
            if !started.is_empty() {
                started.push(' ');
            }
            started.push_str(word);
        }
        lines.push(started);
    }
    lines
}

/// `1, 2 and 5-7`-like lists of numbers: `1-2,5-7`.
pub fn ranges(numbers: &[usize]) -> String {
    let mut text = String::new();
    let mut rest = numbers;
    while let Some(&first) = rest.first() {
        let run = rest.iter().enumerate().take_while(|&(step, &number)| number == first + step).count();
        let comma = if text.is_empty() { "" } else { "," };
        // Writing to a string does not fail.
        let _ = match run {
            1 => write!(text, "{comma}{first}"),
            _ => write!(text, "{comma}{first}-{}", first + run - 1),
        };
        rest = &rest[run..];
    }
    text
}

/// Bytes in decimal units, three digits or so.
pub fn bytes(count: u64) -> String {
    let units = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    match units.into_iter().find(|(unit, _)| count as f64 >= *unit) {
        Some((unit, name)) if count as f64 / unit < 10.0 => format!("{:.1} {name}", count as f64 / unit),
        Some((unit, name)) => format!("{:.0} {name}", count as f64 / unit),
        None => format!("{count} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_is_named_once_and_advice_stands_below() {
        let findings = [Finding::fine("cores", "four"), Finding::warning("cores", "slow", "hurry")];
        let expected = "cores    ok       four\n         warning  slow\n                  -> hurry\n";
        assert_eq!(Lines { findings: &findings, width: 100 }.to_string(), expected);
    }

    #[test]
    fn long_texts_go_on_below_where_they_began() {
        let findings = [Finding::warning("cores", "two of four × rest\n  | \nfind", "let them work as hard")];
        let expected = "cores    warning  two of four\n                  × rest\n                    | \n                  find\n\
                        \u{20}                 -> let them\n                     work as\n                     hard\n";
        assert_eq!(Lines { findings: &findings, width: 29 }.to_string(), expected);
        assert_eq!(wrapped("a /very/long/path b", 6), ["a", "/very/long/path", "b"]);
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2,5,7-8");
        assert_eq!(ranges(&[]), "");
        assert_eq!(
            [999, 1500, 38_547_456, 5_000_000_000].map(bytes),
            ["999 bytes", "1.5 kB", "39 MB", "5.0 GB"].map(str::to_owned)
        );
    }
}
