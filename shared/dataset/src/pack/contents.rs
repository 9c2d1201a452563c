//! Contents of the sections, parsed piece by piece: memory is spent on what a section holds, never on what it claims.
//!
//! A sparse file may be larger than any memory, but what is kept of it is bounded by its blocks on disk: a block of
//! equal labels, as a hole gives them, is kept as one number, and the name of a class is at most a quarter of a block
//! long.

use super::format::{BLOCK_BYTES, CLASS_NAME_BYTES_MAX};
use std::collections::TryReserveError;
use std::mem;

/// Labels that are kept together: as many as a block of the file holds.
const BLOCK_LABELS: usize = BLOCK_BYTES as usize / size_of::<u32>();

/// The labels of all samples.
#[derive(Default)]
pub(super) struct Labels {
    blocks: Vec<LabelBlock>,
    count: u64,
}

enum LabelBlock {
    /// A block in which all labels are equal.
    Same(u32),
    Each(Vec<u32>),
}

impl Labels {
    /// Parses the next piece of the section: whole blocks, except in the last piece.
    pub(super) fn append(&mut self, piece: &[u8]) -> Result<(), TryReserveError> {
        assert!(self.count.is_multiple_of(BLOCK_LABELS as u64), "only the last piece ends within a block");
        let labels = piece.as_chunks().0;
        self.blocks.try_reserve(labels.len().div_ceil(BLOCK_LABELS))?;
        for block in labels.chunks(BLOCK_LABELS) {
            self.blocks.push(LabelBlock::new(block)?);
        }
        self.count += labels.len() as u64;
        Ok(())
    }

    /// # Panics
    /// When there is no such label.
    pub(super) fn get(&self, index: u64) -> u32 {
        assert!(index < self.count, "sample {index} of {}", self.count);
        let (block, within) = (index / BLOCK_LABELS as u64, index % BLOCK_LABELS as u64);
        match &self.blocks[block as usize] {
            LabelBlock::Same(label) => *label,
            LabelBlock::Each(labels) => labels[within as usize],
        }
    }
}

impl LabelBlock {
    fn new(block: &[[u8; 4]]) -> Result<Self, TryReserveError> {
        if block.iter().all(|label| *label == block[0]) {
            return Ok(LabelBlock::Same(u32::from_le_bytes(block[0])));
        }
        let mut labels = Vec::new();
        labels.try_reserve_exact(block.len())?;
        labels.extend(block.iter().map(|&label| u32::from_le_bytes(label)));
        Ok(LabelBlock::Each(labels))
    }
}

/// Checks that labels are below the number of classes. Where classes have no names, a label may be any number.
pub(super) struct LabelCheck {
    classes: u32,
    seen: u64,
    /// The first label that is not below, after the index of its sample.
    wrong: Option<(u64, u32)>,
}

impl LabelCheck {
    pub(super) fn new(classes: u32) -> Self {
        Self { classes, seen: 0, wrong: None }
    }

    /// Checks the next piece of the section.
    pub(super) fn take(&mut self, piece: &[u8]) {
        if self.classes == 0 {
            return;
        }
        let labels = piece.as_chunks().0.iter().map(|&label| u32::from_le_bytes(label));
        let wrong = || (self.seen..).zip(labels).find(|&(_, label)| label >= self.classes);
        self.wrong = self.wrong.or_else(wrong);
        self.seen += (piece.len() / size_of::<u32>()) as u64;
    }

    pub(super) fn finish(self) -> Result<(), String> {
        let Some((sample, label)) = self.wrong else { return Ok(()) };
        Err(format!("sample {sample} has label {label}, and there are {} classes", self.classes))
    }
}

/// The names of the classes. In the section, each follows its length.
pub(super) struct ClassNames {
    count: u32,
    names: Vec<String>,
    /// Bytes that do not form a whole name yet: less than a piece and a name.
    pending: Vec<u8>,
    /// Number of bytes behind the last name.
    behind: u64,
    problem: Option<String>,
}

impl ClassNames {
    pub(super) fn new(count: u32) -> Self {
        Self { count, names: Vec::new(), pending: Vec::new(), behind: 0, problem: None }
    }

    /// Parses the next piece of the section. After the first problem, it ignores further pieces.
    pub(super) fn take(&mut self, piece: &[u8]) {
        if self.problem.is_some() {
            return;
        }
        let mut pending = mem::take(&mut self.pending);
        pending.extend_from_slice(piece);
        match self.split(&pending) {
            Ok(rest) if self.is_complete() => self.behind += rest as u64,
            Ok(rest) => {
                pending.drain(..pending.len() - rest);
                self.pending = pending;
            }
            Err(problem) => self.problem = Some(problem),
        }
    }

    fn is_complete(&self) -> bool {
        self.names.len() == self.count as usize
    }

    /// Parses all whole names and returns how many bytes are left.
    fn split(&mut self, mut bytes: &[u8]) -> Result<usize, String> {
        while !self.is_complete() {
            let index = self.names.len();
            let Some((length, rest)) = bytes.split_first_chunk() else { break };
            let length = u32::from_le_bytes(*length);
            if length > CLASS_NAME_BYTES_MAX {
                return Err(format!(
                    "the name of class {index} has {length} bytes, at most {CLASS_NAME_BYTES_MAX} fit"
                ));
            }
            let Some((name, rest)) = rest.split_at_checked(length as usize) else { break };
            let name = str::from_utf8(name).map_err(|_| format!("the name of class {index} is not UTF-8"))?;
            self.names.push(name.to_owned());
            bytes = rest;
        }
        Ok(bytes.len())
    }

    pub(super) fn finish(self) -> Result<Vec<String>, String> {
        match self.problem {
            Some(problem) => Err(problem),
            None if !self.is_complete() => Err(format!("class {} of {} is cut short", self.names.len(), self.count)),
            None if self.behind > 0 => Err(format!("{} bytes follow the last class", self.behind)),
            None => Ok(self.names),
        }
    }
}

#[cfg(test)]
mod tests;
