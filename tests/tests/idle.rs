//! Idle threads of a loader do not run: they wait for a signal. Reads the switches of this process's threads, so it is
//! a program of its own.

use ddlp_dataset::FetchDepth;
use ddlp_host::{Batch, Strategy};
use ddlp_tests::hooked::{Hooked, Hooks};
use ddlp_tests::photos::Photos;
use ddlp_tests::runs::loader;
use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Much longer than any interval at which a thread might look for work.
const WHILE: Duration = Duration::from_millis(500);

/// A dataset whose samples are fetched ahead.
struct Latent;

impl Hooks for Latent {
    fn reads(&self, _index: u64) {}

    fn fetch_depth(&self) -> FetchDepth {
        FetchDepth { threads: 2, samples: 2, join_gap: None, at_once: None }
    }
}

/// Returns how often each thread of the CPU prong and the fetch stage has stopped running by itself.
fn switches() -> BTreeMap<u32, (String, u64)> {
    let tasks = fs::read_dir("/proc/self/task").expect("Linux has /proc").flatten();
    let threads = tasks.filter_map(|task| {
        let name = fs::read_to_string(task.path().join("comm")).ok()?;
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        let is_idle = name.starts_with("ddlp-cpu") || name.starts_with("ddlp-fetch");
        is_idle.then_some((task.file_name().to_str()?.parse().ok()?, (name, line.trim().parse().ok()?)))
    });
    threads.collect()
}

#[test]
fn threads_without_work_do_not_run() {
    let photos = Photos::new(80);
    for (threads, is_fetched) in [(2, false), (4, true)] {
        let base = loader(&photos.pack()).with(|o| (o.strategy, o.threads, o.buffers) = (Strategy::Cpu, Some(2), 2));
        let dataset = ddlp_dataset::open(&photos.pack()).expect("the pack opens");
        let builder = if is_fetched { base.dataset(Arc::new(Hooked { dataset, hooks: Latent })) } else { base };
        let mut loader = builder.build().expect("the loader builds");
        // The consumer keeps all buffers, so nothing can be prepared.
        let kept: Vec<Batch> = loader.by_ref().take(2).map(|batch| batch.expect("it is prepared")).collect();
        let until = Instant::now() + Duration::from_secs(60);
        let (mut before, mut now) = (BTreeMap::new(), switches());
        while now.len() != threads || now != before {
            assert!(Instant::now() < until, "threads run without work: {before:?}, {now:?}");
            thread::sleep(WHILE);
            (before, now) = (now, switches());
        }
        drop(kept);
        assert_eq!(loader.filter(Result::is_ok).count(), 8, "the run goes on");
    }
}
