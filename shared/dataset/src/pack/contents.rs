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

/// Checks that labels are below the number of classes.
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
mod tests {
    use super::super::format::classes_to_bytes;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn labels_in_a_hole_take_no_memory() {
        let mut labels = Labels::default();
        let piece = vec![0; 1 << 20];
        for _ in 0..64 {
            labels.append(&piece).unwrap();
        }
        labels.append(&[7, 0, 0, 0, 8, 0, 0, 0]).unwrap();
        let kept = labels.blocks.iter().filter(|block| matches!(block, LabelBlock::Each(_))).count();
        assert_eq!((kept, labels.blocks.len()), (1, 64 * 256 + 1));
        assert_eq!([0, (16 << 20) - 1, 16 << 20, (16 << 20) + 1].map(|index| labels.get(index)), [0, 0, 7, 8]);
    }

    #[test]
    #[should_panic(expected = "sample 3 of 3")]
    fn a_label_past_the_last_one_is_refused_though_its_block_has_equal_labels() {
        let mut labels = Labels::default();
        labels.append(&[0; 12]).unwrap();
        labels.get(3);
    }

    #[test]
    fn class_names_of_a_hole_are_not_kept() {
        let mut classes = ClassNames::new(1);
        for _ in 0..64 {
            classes.take(&[0; 1 << 16]);
            assert!(classes.pending.capacity() <= 2 << 16);
        }
        assert_eq!(classes.finish().unwrap_err(), "4194300 bytes follow the last class");
    }

    #[test]
    fn a_class_name_beyond_the_limit_is_refused() {
        let of = |length: u32| {
            let bytes = classes_to_bytes(&["x".repeat(length as usize)]);
            let mut classes = ClassNames::new(1);
            bytes.chunks(100).for_each(|piece| classes.take(piece));
            classes.finish()
        };
        assert_eq!(of(CLASS_NAME_BYTES_MAX).unwrap()[0].len(), CLASS_NAME_BYTES_MAX as usize);
        assert!(of(CLASS_NAME_BYTES_MAX + 1).unwrap_err().contains("class 0 has 1025 bytes"));
    }

    proptest! {
        #[test]
        fn labels_read_equal_labels_written(runs in prop::collection::vec((0u32..4, 1usize..3000), 1..12)) {
            let written: Vec<u32> = runs.iter().flat_map(|&(label, times)| vec![label; times]).collect();
            let bytes: Vec<u8> = written.iter().flat_map(|label| label.to_le_bytes()).collect();
            let (mut labels, mut check) = (Labels::default(), LabelCheck::new(3));
            for piece in bytes.chunks(2 * BLOCK_BYTES as usize) {
                labels.append(piece).unwrap();
                check.take(piece);
            }
            prop_assert!((0..).zip(&written).all(|(index, &label)| labels.get(index) == label));
            let wrong = written.iter().position(|&label| label == 3);
            let problem = wrong.map(|sample| format!("sample {sample} has label 3, and there are 3 classes"));
            prop_assert_eq!(check.finish().err(), problem);
        }

        #[test]
        fn class_names_do_not_depend_on_the_pieces(
            names in prop::collection::vec(".{0,40}", 0..20),
            piece in 1usize..100,
        ) {
            let bytes = classes_to_bytes(&names);
            let parse = |bytes: &[u8], count| {
                let mut classes = ClassNames::new(count);
                bytes.chunks(piece).for_each(|piece| classes.take(piece));
                classes.finish()
            };
            let count = names.len() as u32;
            prop_assert!(parse(&bytes[..bytes.len().saturating_sub(1)], count).is_err() || names.is_empty());
            prop_assert!(parse(&[&bytes[..], &[0]].concat(), count).is_err());
            prop_assert_eq!(parse(&bytes, count).unwrap(), names);
        }
    }
}
