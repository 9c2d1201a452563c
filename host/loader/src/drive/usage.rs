//! Resources that a drive's agent uses during a run, by its own counters.

use super::DriveLink;
use super::handle::ProngHandle;
use ddlp_csd::log::Counters;
use std::time::{Duration, Instant};

/// Tolerance when the agent's uptime is compared with the time since its counters were first read. A larger gap means
/// that the agent is another process.
const UPTIME_SLACK: Duration = Duration::from_secs(2);

/// The agent's counters when the run first reached it, and the time of that reading; `None` if they cannot be read.
pub(super) struct AgentUsage(Option<(Counters, Instant)>);

impl AgentUsage {
    /// Reads the counters of an agent that the run has just reached, if it has.
    pub fn begin(link: Option<&DriveLink>) -> Self {
        Self(link.and_then(|link| link.counters().map(|counters| (counters, Instant::now()))))
    }

    /// Reports what the agent used during the run, unless it is another process than at the start.
    pub fn report(&self, link: &DriveLink, handle: &ProngHandle) {
        let Some(now) = link.counters() else { return };
        let Some((before, asked)) = self.0 else { return };
        if Duration::from_secs(now.uptime_s).saturating_add(UPTIME_SLACK)
            < Duration::from_secs(before.uptime_s) + asked.elapsed()
        {
            return;
        }
        let cpu_s = now.cpu_us.saturating_sub(before.cpu_us) as f64 / 1e6;
        let energy_j = match (now.energy_mj, before.energy_mj) {
            (Some(end), Some(start)) => Some(end.saturating_sub(start) as f64 / 1e3),
            _ => None,
        };
        let peak_mb = now.peak_rss_bytes as f64 / 1e6;
        handle.engine.lock().recorder.drive_usage(handle.prong, Some(cpu_s), Some(peak_mb), energy_j);
    }
}
