//! A finding of the doctor about one subject, and how it is shown.

use serde::Serialize;
use std::fmt;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be, or merely worth knowing.
    Fine,
    /// Not checked, because the user did not ask for it.
    Unchecked,
    /// The drive serves, but slower or less safely than it could.
    Warning,
    /// The drive cannot serve.
    Failure,
}

/// One sentence about the board.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What the finding is about.
    pub subject: &'static str,
    /// Severity.
    pub level: Severity,
    /// What was found.
    pub text: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Finding {
    /// Makes a finding that something is as it should be.
    pub fn fine(subject: &'static str, text: impl Into<String>) -> Self {
        Self { subject, level: Severity::Fine, text: text.into(), advice: None }
    }

    /// Makes a finding that something was not checked.
    pub fn unchecked(subject: &'static str, text: impl Into<String>) -> Self {
        Self { subject, level: Severity::Unchecked, text: text.into(), advice: None }
    }

    /// Makes a finding that something could be better.
    pub fn warning(subject: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { subject, level: Severity::Warning, text: text.into(), advice: Some(advice.into()) }
    }

    /// Makes a finding of something that keeps the drive from serving.
    pub fn failure(subject: &'static str, text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { subject, level: Severity::Failure, text: text.into(), advice: Some(advice.into()) }
    }
}

impl fmt::Display for Finding {
    /// Writes subject, mark and text in one line, and advice in the next.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self.level {
            Severity::Fine => "ok",
            Severity::Unchecked => "-",
            Severity::Warning => "warning",
            Severity::Failure => "FAILURE",
        };
        writeln!(f, "{:<9}{mark:<9}{}", self.subject, self.text)?;
        self.advice.iter().try_for_each(|advice| writeln!(f, "{:18}-> {advice}", ""))
    }
}

/// Formats a number of bytes in decimal units, with about three digits.
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
    fn advice_has_a_line_of_its_own() {
        let said = Finding::warning("memory", "little", "buy some").to_string();
        assert_eq!(said, "memory   warning  little\n                  -> buy some\n");
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(
            [999, 1500, 38_547_456, 5_000_000_000].map(bytes),
            ["999 bytes", "1.5 kB", "39 MB", "5.0 GB"].map(str::to_owned)
        );
    }
}
