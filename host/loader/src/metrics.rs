//! The figures of a run, for Prometheus and for `ddlp top`.

use crate::error::LoaderError;
use crate::progress::{ProgressHandle, ProngProgress};
use ddlp_metrics::{Figures, LocalServer, MetricsServer, Page};
use std::fmt;
use std::io;
use std::net::SocketAddr;

/// Serves the figures of a run.
pub(crate) fn serve(address: SocketAddr, run: ProgressHandle) -> Result<MetricsServer, LoaderError> {
    MetricsServer::start(address, RunFigures(run)).map_err(|source| LoaderError::Metrics { address, source })
}

/// Serves the figures of a run to programs of the same user, if the system lets it.
pub(crate) fn serve_locally(run: ProgressHandle) -> Option<LocalServer> {
    let refused = |error: &io::Error| tracing::debug!(%error, "`ddlp top` does not see this run");
    LocalServer::start(RunFigures(run)).inspect_err(refused).ok()
}

/// A run as other programs see it.
#[derive(Debug)]
struct RunFigures(ProgressHandle);

impl Figures for RunFigures {
    fn write(&self, page: &mut Page<'_>) -> fmt::Result {
        let (now, report, state) = (self.0.snapshot(), self.0.report(), self.0.state());
        let by_prong = |value: fn(&ProngProgress) -> f64| -> Vec<(&str, f64)> {
            now.prongs.iter().map(|prong| (prong.name.as_str(), value(prong))).collect()
        };
        page.counter("run_images", "Images delivered", &[("", now.images as f64)])?;
        page.counter("run_batches", "Batches delivered", &[("", report.batches as f64)])?;
        page.counter("run_seconds", "Time since the first batch was asked for", &[("", now.elapsed_s)])?;
        page.counter("run_wait_seconds", "Time the consumer waited for batches", &[("", report.consumer_wait_s)])?;
        page.counter("run_cpu_seconds", "CPU time of the process", &[("", report.host_cpu_s)])?;
        page.counter("run_corrupt_samples", "Corrupt samples", &[("", now.corrupt as f64)])?;
        page.counter("run_faults", "Faults, recoveries not counted", &[("", now.faults as f64)])?;
        page.gauge("run_epoch", "Epoch that is being delivered, from 0", &[("", state.epoch.into())])?;
        page.gauge("run_epoch_batches", "Batches of an epoch", &[("", now.batches.into())])?;
        page.gauge("run_epoch_delivered", "Batches delivered of this epoch", &[("", state.delivered.len() as f64)])?;
        page.gauge("run_ready_batches", "Finished batches that wait for their delivery", &[("", now.ready as f64)])?;
        page.gauge("run_free_buffers", "Buffers without a batch", &[("", now.free_buffers as f64)])?;
        page.gauge("run_waits", "1 while the consumer waits for a batch, else 0", &[("", now.waits.into())])?;
        page.gauge("run_peak_memory_bytes", "Most memory allocated", &[("", report.peak_memory_mb * 1e6)])?;
        if let Some(store) = report.requests {
            page.counter("store_requests", "Requests answered by the store", &[("", store.answered as f64)])?;
            page.counter("store_bytes", "Bytes of the store's answers", &[("", store.mb * 1e6)])?;
            page.counter("store_retries", "Requests made again", &[("", store.retries as f64)])?;
            page.counter(
                "store_pushed_back",
                "Requests for which the store was busy",
                &[("", store.pushed_back as f64)],
            )?;
            page.counter("store_hedged", "Samples asked for a second time", &[("", store.hedged as f64)])?;
            page.counter("store_hedges_won", "Second requests that came first", &[("", store.hedges_won as f64)])?;
            page.gauge("store_in_flight", "Requests in flight", &[("", store.in_flight as f64)])?;
            let depth = store.depth.map_or(f64::INFINITY, |depth| depth as f64);
            page.gauge("store_depth", "Samples that may be in flight", &[("", depth)])?;
            let latencies = [store.half_within_ms, store.most_within_ms].map(|ms| ms.map_or(f64::NAN, |ms| ms / 1e3));
            page.gauge("store_half_within_seconds", "Time in which half of the answers came", &[("", latencies[0])])?;
            page.gauge("store_most_within_seconds", "Time in which 99 of 100 came", &[("", latencies[1])])?;
        }
        page.counter("prong_images", "Images delivered, by prong", &by_prong(|prong| prong.images as f64))?;
        page.counter("prong_prepared", "Images prepared, by prong", &by_prong(|prong| prong.prepared as f64))?;
        page.gauge("prong_in_work", "Batches in work, by prong", &by_prong(|prong| prong.outstanding as f64))?;
        page.gauge("prong_up", "1, or 0 while the drive is lost", &by_prong(|prong| prong.is_up.into()))
    }
}
