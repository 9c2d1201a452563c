//! Position and figures of a run. A closed run keeps those that it had at its end, and nothing else of its loader.

use ddlp_host::{LoaderError, LoaderState, Progress, ProgressHandle, Report, Stopper};

/// Position and figures of a run.
pub(super) enum Figures {
    /// The run is open, or its threads are ending.
    Now {
        progress: Box<ProgressHandle>,
        stopper: Stopper,
    },
    Last(Box<Last>),
}

/// What a run was at its end.
pub(super) struct Last {
    state: LoaderState,
    report: Report,
    progress: Progress,
}

impl Figures {
    /// Returns the position after the batch that the loader delivered last.
    pub fn state(&self) -> LoaderState {
        match self {
            Self::Now { progress, .. } => progress.state(),
            Self::Last(last) => last.state.clone(),
        }
    }

    pub fn report(&self) -> Report {
        match self {
            Self::Now { progress, .. } => progress.report(),
            Self::Last(last) => last.report.clone(),
        }
    }

    pub fn progress(&self) -> Progress {
        match self {
            Self::Now { progress, .. } => progress.snapshot(),
            Self::Last(last) => last.progress.clone(),
        }
    }

    /// Refuses a state of another run. A closed run refuses none, since it can go nowhere.
    pub fn check(&self, state: &LoaderState) -> Result<(), LoaderError> {
        match self {
            Self::Now { progress, .. } => progress.check(state),
            Self::Last(_) => Ok(()),
        }
    }

    /// Ends the run, unless it has ended.
    pub fn stop(&self) {
        if let Self::Now { stopper, .. } = self {
            stopper.stop();
        }
    }

    /// Returns figures that need no loader: this report and, as they are now, position and progress.
    pub fn kept(&self, report: Report) -> Self {
        Self::Last(Box::new(Last { state: self.state(), report, progress: self.progress() }))
    }
}
