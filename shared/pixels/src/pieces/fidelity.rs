//! How exactly images are read.

use super::groups::SCANS;
use std::fmt;

/// How exactly images are read: the number of the last [scan group](super::ScanGroups) of which anything is read, 1
/// to 10. Applies to samples that are stored in pieces; all others are read whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fidelity(u8);

impl Fidelity {
    /// Every scan group.
    pub const WHOLE: Self = Self(SCANS);

    /// Returns the fidelity with this number; `None` unless it is from 1 to 10.
    pub fn new(number: u8) -> Option<Self> {
        (1..=SCANS).contains(&number).then_some(Self(number))
    }

    /// Returns the number of the last scan group that is read.
    pub fn number(self) -> u8 {
        self.0
    }

    /// Returns whether every scan group is read.
    pub fn is_whole(self) -> bool {
        self == Self::WHOLE
    }
}

impl Default for Fidelity {
    fn default() -> Self {
        Self::WHOLE
    }
}

impl fmt::Display for Fidelity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
