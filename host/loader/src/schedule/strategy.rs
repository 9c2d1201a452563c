//! The strategies: which prongs take part, and the order of delivery.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The order of delivery, and the prongs that take part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Strategy {
    /// The CPU alone prepares, in order.
    Cpu,
    /// The drives alone prepare, in order; the CPU prepares batches that fail on them.
    Csd,
    /// Prongs move towards each other: the head is delivered in order, then the tail from the end.
    Mte,
    /// Weighted round robin among the prongs' ready batches.
    Wrr,
    /// Exactly the epoch's order; within a look-ahead window drives go ahead of the CPU.
    #[default]
    Ordered,
}

impl Strategy {
    /// All strategies.
    pub const ALL: [Self; 5] = [Self::Cpu, Self::Csd, Self::Mte, Self::Wrr, Self::Ordered];

    /// Returns whether batches are delivered in the epoch's order.
    pub fn is_sequential(self) -> bool {
        matches!(self, Self::Cpu | Self::Csd | Self::Ordered)
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "cpu",
            Self::Csd => "csd",
            Self::Mte => "mte",
            Self::Wrr => "wrr",
            Self::Ordered => "ordered",
        })
    }
}

/// A name that is not a strategy.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("no strategy \"{0}\": cpu, csd, mte, wrr and ordered exist")]
pub struct UnknownStrategy(String);

impl FromStr for Strategy {
    type Err = UnknownStrategy;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|strategy| strategy.to_string() == name).ok_or_else(|| UnknownStrategy(name.into()))
    }
}
