//! Times of the stages of preparation.

use std::time::{Duration, Instant};

/// Time spent in each stage of preparation.
#[derive(Clone, Copy, Debug, Default)]
pub struct StageTimes {
    /// Time to plan and fetch.
    pub read: Duration,
    /// Time to render.
    pub prepare: Duration,
}

/// Measures the stages, if the caller wants their times.
pub(super) struct Watch<'t>(Option<(&'t mut StageTimes, Instant)>);

impl<'t> Watch<'t> {
    pub(super) fn start(times: Option<&'t mut StageTimes>) -> Self {
        Self(times.map(|times| (times, Instant::now())))
    }

    pub(super) fn has_read(&mut self) {
        self.lap(|times| &mut times.read);
    }

    pub(super) fn has_prepared(&mut self) {
        self.lap(|times| &mut times.prepare);
    }

    fn lap(&mut self, of: impl FnOnce(&mut StageTimes) -> &mut Duration) {
        if let Some((times, since)) = &mut self.0 {
            let now = Instant::now();
            *of(times) += now - *since;
            *since = now;
        }
    }
}
