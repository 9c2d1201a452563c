//! Operations within an operation.

use super::{Effects, Operation};
use crate::draw::Words;
use crate::error::PixelError;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use std::borrow::Cow;
use std::cell::Cell;
use std::ops::Deref;

/// Most operations in a list.
pub(super) const TRANSFORMS_MAX: usize = 16;
/// Most lists within each other.
const DEPTH_MAX: usize = 4;

/// The operations that an operation applies.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Transforms(Cow<'static, [Operation]>);

impl Transforms {
    /// Returns a list of these operations.
    pub const fn of(operations: &'static [Operation]) -> Self {
        Self(Cow::Borrowed(operations))
    }

    /// Checks the number of the operations and each operation. The error names it.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.is_empty() || self.len() > TRANSFORMS_MAX {
            return Err(format!("transforms has {} operations, but must have 1 to {TRANSFORMS_MAX}", self.len()));
        }
        let mut all = self.iter().enumerate();
        all.try_for_each(|(index, operation)| {
            operation.check().map_err(|message| Self::within(index, operation, &message))
        })
    }

    fn within(index: usize, operation: &Operation, message: &str) -> String {
        format!("transform {index}, {}: {message}", operation.name())
    }

    /// Returns the size of an image after one operation.
    pub(super) fn size_after_one(
        &self,
        index: usize,
        before: Option<(u32, u32)>,
    ) -> Result<Option<(u32, u32)>, String> {
        let operation = &self[index];
        operation.size_after(before).map_err(|message| Self::within(index, operation, &message))
    }

    /// Returns the size of an image after all operations, one after the other.
    pub(super) fn size_after_all(&self, before: Option<(u32, u32)>) -> Result<Option<(u32, u32)>, String> {
        (0..self.len()).try_fold(before, |size, index| self.size_after_one(index, size))
    }

    /// Draws one operation, for the image after the effects so far.
    pub(super) fn draw(
        &self,
        index: usize,
        words: &mut impl Words,
        effects: &mut impl Effects,
    ) -> Result<(), PixelError> {
        self[index].draw(effects.size(), words, effects)
    }
}

impl From<Vec<Operation>> for Transforms {
    fn from(operations: Vec<Operation>) -> Self {
        Self(Cow::Owned(operations))
    }
}

impl Deref for Transforms {
    type Target = [Operation];

    fn deref(&self) -> &[Operation] {
        &self.0
    }
}

thread_local! {
    /// Lists that are being read, each within the one before.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// A list that is being read.
struct Level;

impl Level {
    /// Returns `None` if there are too many lists within each other. Reading calls itself for each, so a short program
    /// of many would take the whole stack.
    fn enter() -> Option<Self> {
        DEPTH.set(DEPTH.get() + 1);
        Some(Self).filter(|_| DEPTH.get() <= DEPTH_MAX)
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

impl<'de> Deserialize<'de> for Transforms {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Some(_level) = Level::enter() else {
            let message = format!("transforms has operations with operations more than {DEPTH_MAX} levels deep");
            return Err(D::Error::custom(message));
        };
        Vec::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests;
