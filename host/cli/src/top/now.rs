//! What two readings of a program say about the time between them.

use ddlp_metrics::Scrape;
use serde::Serialize;

/// All programs at one moment.
#[derive(Debug, Default, Serialize)]
pub struct Programs {
    pub loaders: Vec<LoaderNow>,
    pub agents: Vec<AgentNow>,
    /// Programs that did not answer.
    pub silent: Vec<Silent>,
}

/// The place of a program.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Whose {
    /// Process, if the program runs on this machine.
    pub process: Option<u32>,
    /// Its command line.
    pub command: Option<String>,
    /// Address of its figures, if the user gave one.
    pub address: Option<String>,
}

/// A loader. Rates are `None` at the first scrape.
#[derive(Debug, Default, Serialize)]
pub struct LoaderNow {
    #[serde(flatten)]
    pub whose: Whose,
    /// The epoch that is being delivered, from 0.
    pub epoch: u64,
    pub epoch_delivered: u64,
    pub epoch_batches: u64,
    /// Images delivered in all.
    pub images: u64,
    pub images_per_s: Option<f64>,
    /// Share of the time in which the consumer waited.
    pub waits: Option<f64>,
    /// Whether the consumer waited all the time.
    pub is_stalled: bool,
    /// Finished batches that wait for their delivery.
    pub ready_batches: u64,
    pub free_buffers: u64,
    pub faults: u64,
    pub corrupt_samples: u64,
    pub prongs: Vec<ProngNow>,
    /// The requests to the store of the dataset, if it lies in one.
    pub store: Option<StoreNow>,
}

/// The requests of a loader to the store that holds the dataset. Rates are `None` at the first scrape.
#[derive(Debug, Default, Serialize)]
pub struct StoreNow {
    pub requests_per_s: Option<f64>,
    pub bytes_per_s: Option<f64>,
    pub in_flight: u64,
    /// Samples that may be in flight.
    pub depth: Option<u64>,
    /// Time within which half and 99 % of the answers came.
    pub half_within_ms: Option<f64>,
    pub most_within_ms: Option<f64>,
    /// Requests that were made again, and those of them for which the store was busy.
    pub retries: u64,
    pub pushed_back: u64,
}

/// A prong of a loader.
#[derive(Debug, Default, Serialize)]
pub struct ProngNow {
    pub name: String,
    /// Images delivered that the prong prepared.
    pub images_per_s: Option<f64>,
    /// Images that the prong prepared.
    pub prepared_per_s: Option<f64>,
    /// Batches that the prong has in work.
    pub in_work: u64,
    pub is_up: bool,
}

/// An agent. Rates are `None` at the first scrape.
#[derive(Debug, Default, Serialize)]
pub struct AgentNow {
    #[serde(flatten)]
    pub whose: Whose,
    pub samples: u64,
    pub samples_per_s: Option<f64>,
    /// Cores that its process uses.
    pub cores: Option<f64>,
    /// Batches queued or running.
    pub in_work: u64,
    pub connections: u64,
    /// Batches refused or failed.
    pub errors: u64,
    pub corrupt_samples: u64,
}

/// A program that does not answer.
#[derive(Debug, Serialize)]
pub struct Silent {
    #[serde(flatten)]
    pub whose: Whose,
    pub why: String,
}

/// The latest scrape of a program, and the one before.
pub struct Scrapes<'a> {
    pub before: Option<&'a Scrape>,
    pub now: &'a Scrape,
}

impl Scrapes<'_> {
    /// Returns whether the program is a loader; otherwise it is an agent.
    pub fn is_loader(&self) -> bool {
        self.now.value("run_images").is_some()
    }

    pub fn loader(&self, whose: Whose) -> LoaderNow {
        let images_per_s = self.per_s("run_images");
        let is_stalled = images_per_s == Some(0.0) && self.count("run_waits") > 0;
        let waits = self.per_s("run_wait_seconds").map(|share| if is_stalled { 1.0 } else { share.min(1.0) });
        let mut prongs: Vec<_> = self.now.by_prong("prong_images").map(|(name, _)| self.prong(name)).collect();
        prongs.sort_by_key(|prong| prong.name != "cpu");
        LoaderNow {
            whose,
            epoch: self.count("run_epoch"),
            epoch_delivered: self.count("run_epoch_delivered"),
            epoch_batches: self.count("run_epoch_batches"),
            images: self.count("run_images"),
            images_per_s,
            waits,
            is_stalled,
            ready_batches: self.count("run_ready_batches"),
            free_buffers: self.count("run_free_buffers"),
            faults: self.count("run_faults"),
            corrupt_samples: self.count("run_corrupt_samples"),
            prongs,
            store: self.now.value("store_requests").map(|_| self.store()),
        }
    }

    fn store(&self) -> StoreNow {
        let figure = |name| self.now.value(name).filter(|value| value.is_finite());
        StoreNow {
            requests_per_s: self.per_s("store_requests"),
            bytes_per_s: self.per_s("store_bytes"),
            in_flight: self.count("store_in_flight"),
            depth: figure("store_depth").map(|depth| depth as u64),
            half_within_ms: figure("store_half_within_seconds").map(|seconds| seconds * 1e3),
            most_within_ms: figure("store_most_within_seconds").map(|seconds| seconds * 1e3),
            retries: self.count("store_retries"),
            pushed_back: self.count("store_pushed_back"),
        }
    }

    pub fn agent(&self, whose: Whose) -> AgentNow {
        AgentNow {
            whose,
            samples: self.count("agent_samples"),
            samples_per_s: self.per_s("agent_samples"),
            cores: self.per_s("agent_cpu_seconds"),
            in_work: self.count("agent_in_work"),
            connections: self.count("agent_connections"),
            errors: self.count("agent_errors"),
            corrupt_samples: self.count("agent_corrupt_samples"),
        }
    }

    fn prong(&self, name: &str) -> ProngNow {
        let now = |figure| of_prong(self.now, figure, name).unwrap_or(0.0);
        let per_s = |figure| self.rate(of_prong(self.before?, figure, name), now(figure));
        ProngNow {
            name: name.to_owned(),
            images_per_s: per_s("prong_images"),
            prepared_per_s: per_s("prong_prepared"),
            in_work: now("prong_in_work") as u64,
            is_up: now("prong_up") > 0.0,
        }
    }

    fn count(&self, name: &str) -> u64 {
        self.now.value(name).unwrap_or(0.0) as u64
    }

    fn per_s(&self, name: &str) -> Option<f64> {
        self.rate(self.before?.value(name), self.now.value(name)?)
    }

    /// Returns a counter's growth per second. A counter that has shrunk belongs to another program.
    fn rate(&self, before: Option<f64>, now: f64) -> Option<f64> {
        let seconds = self.now.at.duration_since(self.before?.at).as_secs_f64();
        Some((now - before?) / seconds).filter(|rate| rate.is_finite() && *rate >= 0.0)
    }
}

fn of_prong(scrape: &Scrape, figure: &str, name: &str) -> Option<f64> {
    scrape.by_prong(figure).find(|&(prong, _)| prong == name).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const LOADER: &str = "ddlp_run_images_total 100\nddlp_run_wait_seconds_total 1\nddlp_run_waits 1\n\
        ddlp_run_epoch 2\nddlp_prong_images_total{prong=\"/dev/nvme0\"} 40\nddlp_prong_images_total{prong=\"cpu\"} 60\n\
        ddlp_prong_in_work{prong=\"cpu\"} 3\nddlp_prong_up{prong=\"cpu\"} 1\n";

    fn later(page: &str, before: &Scrape) -> Scrape {
        let mut scrape = Scrape::parse(page);
        scrape.at = before.at + Duration::from_secs(2);
        scrape
    }

    #[test]
    fn rates_are_those_between_two_readings() {
        let first = Scrape::parse(LOADER);
        let alone = Scrapes { before: None, now: &first }.loader(Whose::default());
        assert_eq!((alone.images, alone.images_per_s, alone.waits, alone.is_stalled), (100, None, None, false));
        let page = LOADER.replace(" 100\n", " 150\n").replace("total 1\n", "total 1.5\n").replace(" 60\n", " 100\n");
        let second = later(&page, &first);
        let now = Scrapes { before: Some(&first), now: &second }.loader(Whose::default());
        assert_eq!((now.images_per_s, now.waits, now.is_stalled, now.epoch), (Some(25.0), Some(0.25), false, 2));
        let [cpu, drive] = &now.prongs[..] else { panic!("{now:?}") };
        assert_eq!((&*cpu.name, cpu.images_per_s, cpu.in_work, cpu.is_up), ("cpu", Some(20.0), 3, true));
        assert_eq!((&*drive.name, drive.images_per_s, drive.is_up), ("/dev/nvme0", Some(0.0), false));
    }

    #[test]
    fn a_consumer_that_got_nothing_and_waits_is_stalled() {
        let first = Scrape::parse(LOADER);
        let second = later(LOADER, &first);
        let now = Scrapes { before: Some(&first), now: &second }.loader(Whose::default());
        assert_eq!((now.is_stalled, now.waits), (true, Some(1.0)));
        let busy = later(&LOADER.replace("waits 1", "waits 0"), &first);
        let now = Scrapes { before: Some(&first), now: &busy }.loader(Whose::default());
        assert_eq!((now.is_stalled, now.waits), (false, Some(0.0)));
    }

    #[test]
    fn requests_to_a_store_are_shown_if_there_is_one() {
        let first = Scrape::parse(LOADER);
        assert!(Scrapes { before: None, now: &first }.loader(Whose::default()).store.is_none());
        let page = |requests: u32| {
            format!(
                "{LOADER}ddlp_store_requests_total {requests}\nddlp_store_bytes_total 7000000\nddlp_store_in_flight 9\n\
                 ddlp_store_depth +Inf\nddlp_store_half_within_seconds 0.128\nddlp_store_most_within_seconds NaN\n\
                 ddlp_store_retries_total 5\nddlp_store_pushed_back_total 2\n"
            )
        };
        let first = Scrape::parse(&page(100));
        let second = later(&page(300), &first);
        let store = Scrapes { before: Some(&first), now: &second }.loader(Whose::default()).store.unwrap();
        assert_eq!((store.requests_per_s, store.bytes_per_s, store.in_flight), (Some(100.0), Some(0.0), 9));
        assert_eq!((store.depth, store.half_within_ms, store.most_within_ms), (None, Some(128.0), None));
        assert_eq!((store.retries, store.pushed_back), (5, 2));
    }

    #[test]
    fn a_counter_that_has_shrunk_has_no_rate() {
        let first = Scrape::parse(LOADER);
        let second = later(&LOADER.replace(" 100\n", " 7\n"), &first);
        let now = Scrapes { before: Some(&first), now: &second }.loader(Whose::default());
        assert_eq!((now.images, now.images_per_s), (7, None));
    }
}
