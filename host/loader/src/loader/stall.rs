//! What the loader says when the consumer waits for long.

use super::Loader;
use crate::cpu::{Activity, Desk, Doing};
use crate::engine::{Core, KeptPlaces};
use crate::report::FaultKind;
use crate::schedule::CPU;
use ddlp_csd::prepare;
use ddlp_dataset::Dataset;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Longest wait for the name of a sample in a message.
const NAMED_WITHIN: Duration = Duration::from_millis(500);

impl Loader {
    /// Describes what the CPU prong has been doing for longest.
    fn describe_cpu(&self) -> String {
        let busy = self.desks.iter().filter_map(Desk::doing).min_by_key(|doing| doing.since);
        let Some(Doing { activity, id, sample_id, since }) = busy else {
            return "no CPU thread has work".to_string();
        };
        let sample = || match name_within(&self.engine.task.dataset, sample_id) {
            Some(name) => format!("sample {name} (id {sample_id}) of"),
            None => format!("the sample with id {sample_id} of"),
        };
        let doing = match activity {
            Activity::Preparing => format!("has been working on {}", sample()),
            Activity::Fetching => format!("has been reading {}", sample()),
            Activity::Announcing => "has been sending read-ahead hints for the samples of".to_string(),
        };
        let since_s = since.elapsed().as_secs_f64();
        format!("the CPU {doing} epoch {} batch {} for {since_s:.1} s", id.epoch, id.batch)
    }

    /// Reports what the consumer waits for.
    pub(super) fn name_stall(&self, waited: Duration) {
        let cpu = self.describe_cpu();
        let mut core = self.engine.lock();
        let outstanding = core.schedule.describe_outstanding();
        let mut what = format!("nothing arrived for {:.1} s; {cpu}; {outstanding}", waited.as_secs_f64());
        if self.engine.target.free() == 0 {
            what += "; no batch buffer is free: a batch keeps its buffer until the consumer drops it";
        }
        if self.slots.iter().any(|slots| slots.is_shared() && slots.free() == 0) {
            what += "; a drive has no free result slot: a batch in shared memory keeps its slot until the consumer \
                     drops it";
        }
        core.recorder.fault(CPU, None, FaultKind::Stall, what);
    }
}

/// Returns the name of a sample, unless the dataset takes long to find it.
fn name_within(dataset: &Arc<dyn Dataset>, sample_id: u64) -> Option<String> {
    let (dataset, (sender, receiver)) = (dataset.clone(), mpsc::sync_channel(1));
    let find = move || {
        let _ = sender.send(dataset.name(prepare::stored_at(&*dataset, sample_id)));
    };
    std::thread::Builder::new().name("ddlp-name".into()).spawn(find).ok()?;
    receiver.recv_timeout(NAMED_WITHIN).ok()
}

/// Warns that the consumer keeps all places for batches. Writes to standard error too if no log is set up.
pub(super) fn name_kept(core: &mut Core, kept: &KeptPlaces) {
    let (places, more) = match kept {
        KeptPlaces::Buffers(count) => (format!("{count} buffers"), "give the loader more `buffers`"),
        KeptPlaces::Slots(count) => (format!("{count} result slots"), "give the local drive more `slots`"),
    };
    let what = format!(
        "the consumer keeps batches in all {places}, and gets no further batch until it drops one: drop batches, copy \
         them, or {more}"
    );
    if !tracing::dispatcher::has_been_set() {
        eprintln!("ddlp: {what}");
    }
    core.recorder.fault(CPU, None, FaultKind::Kept, what);
}
