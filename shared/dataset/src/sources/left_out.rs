//! Counting what a source holds beside its samples.

use super::folder::EXTENSIONS;

/// Files, or members of shards, that are not samples.
pub(super) struct LeftOut {
    pub(super) count: u64,
    /// Names of the first ones.
    pub(super) names: Vec<String>,
    names_max: usize,
}

impl LeftOut {
    /// Counts from 0, and keeps at most `names_max` names.
    pub(super) fn new(names_max: usize) -> Self {
        Self { count: 0, names: Vec::new(), names_max }
    }

    pub(super) fn add(&mut self, name: impl FnOnce() -> String) {
        self.count += 1;
        if self.names.len() < self.names_max {
            self.names.push(name());
        }
    }

    pub(super) fn append(&mut self, other: Self) {
        self.count += other.count;
        self.names.extend(other.names.into_iter().take(self.names_max - self.names.len()));
    }
}

/// Returns, for messages, what [`Dataset::left_out`](crate::Dataset::left_out) counts in a source of this kind.
pub fn left_out_reason(kind: &str) -> String {
    let files = format!("outside the class folders, or without an image's extension ({})", EXTENSIONS.join(" "));
    let members = "members without a sample, or with a second dot before an image's extension (.seg.png), and shards \
                   in folders below";
    match kind {
        "tar" => members.to_owned(),
        "mix" => format!("{files}; in shards, {members}"),
        _ => files,
    }
}
