//! The agent's figures, for Prometheus and for `ddlp top`.

use crate::tcp::hub::Hub;
use ddlp_metrics::{Figures, Page};
use std::fmt;
use std::sync::Arc;

/// An agent as other programs see it.
pub(super) struct AgentFigures(pub Arc<Hub>);

impl fmt::Debug for AgentFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AgentFigures")
    }
}

impl Figures for AgentFigures {
    fn write(&self, page: &mut Page<'_>) -> fmt::Result {
        let now = self.0.counters();
        let seconds = |micros: u64| micros as f64 / 1e6;
        page.counter("agent_uptime_seconds", "Time since the start", &[("", now.uptime_s as f64)])?;
        page.counter("agent_batches", "Batches finished", &[("", now.batches as f64)])?;
        page.counter("agent_samples", "Samples prepared", &[("", now.samples as f64)])?;
        page.counter("agent_corrupt_samples", "Corrupt samples of finished batches", &[("", now.corrupt as f64)])?;
        page.counter("agent_cancelled_batches", "Batches cancelled", &[("", now.cancelled as f64)])?;
        page.counter("agent_errors", "Batches refused or failed", &[("", now.errors as f64)])?;
        page.counter("agent_read_seconds", "Time that workers fetched samples", &[("", seconds(now.read_us))])?;
        page.counter("agent_prepare_seconds", "Time that workers rendered samples", &[("", seconds(now.prepare_us))])?;
        page.counter("agent_finish_seconds", "Time that workers finished batches", &[("", seconds(now.finish_us))])?;
        page.counter("agent_cpu_seconds", "CPU time of the process", &[("", seconds(now.cpu_us))])?;
        page.gauge("agent_in_work", "Batches queued or running", &[("", now.outstanding.into())])?;
        page.gauge("agent_connections", "Open connections", &[("", self.0.connections() as f64)])?;
        page.gauge("agent_peak_memory_bytes", "Most resident memory", &[("", now.peak_rss_bytes as f64)])?;
        if let Some(tenths) = now.temperature_dc {
            page.gauge("agent_temperature_celsius", "Highest temperature", &[("", f64::from(tenths) / 10.0)])?;
        }
        if let Some(milliwatts) = now.power_mw {
            page.gauge("agent_power_watts", "Power", &[("", f64::from(milliwatts) / 1000.0)])?;
        }
        if let Some(millijoules) = now.energy_mj {
            page.counter("agent_energy_joules", "Energy since the start", &[("", millijoules as f64 / 1000.0)])?;
        }
        Ok(())
    }
}
