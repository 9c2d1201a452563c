//! What may go wrong with a drive, and when.

use std::time::Duration;

/// What may go wrong with a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The association is lost, and the drive cannot be reached.
    Cut,
    /// The agent ends. If the loader started it, it stays away until it is restarted.
    Death,
    /// The loader's own agent runs, but cannot be reached until it is restarted.
    Hang,
    /// The loader's own agent ends, and cannot be started.
    StartFails,
    /// The drive loses its association, and has fewer slots from then on.
    FewerSlots,
    /// The drive loses its association, and does not fit any more.
    Stranger,
    /// The drive neither works nor answers.
    Stall,
    /// The drive works ten times slower.
    Slow,
    /// Commands cannot be sent.
    NotSent,
    /// The agent says that it is about to end.
    Ending,
    /// The drive has lost the run's program, until it is connected again.
    ProgramGone,
    /// Half of the commands fail.
    Errors,
    /// Another host holds some or all slots.
    Foreign,
    /// The drive has memory for some of its slots only.
    Short,
    /// Some or all results are damaged.
    Damage,
    /// Some or all results claim corruption that the CPU refutes.
    Refuted,
    /// The drive cannot read its dataset.
    Unavailable,
    /// Results leave samples to the host.
    LeftToHost,
}

impl Trouble {
    pub const ALL: [Self; 18] = [
        Self::Cut,
        Self::Death,
        Self::Hang,
        Self::StartFails,
        Self::FewerSlots,
        Self::Stranger,
        Self::Stall,
        Self::Slow,
        Self::NotSent,
        Self::Ending,
        Self::ProgramGone,
        Self::Errors,
        Self::Foreign,
        Self::Short,
        Self::Damage,
        Self::Refuted,
        Self::Unavailable,
        Self::LeftToHost,
    ];

    /// Returns whether the trouble ends the association when it begins.
    pub fn cuts(self) -> bool {
        matches!(self, Self::Cut | Self::Death | Self::Hang | Self::StartFails | Self::FewerSlots | Self::Stranger)
    }
}

/// A trouble, and when it lasts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planned {
    pub trouble: Trouble,
    pub from: Duration,
    pub to: Duration,
    /// Number of slots, or one in how many results.
    pub extent: u32,
}
