//! The decisions of a run: which prong prepares which batch, and which batch is delivered next. No threads, no clock,
//! no I/O.
//!
//! The engine tells the schedule what happened (with the time, in seconds), and asks it what to do. At most two epochs
//! are active: one drains while the next one begins.
//!
//! - `epoch`: the batches of one epoch and their states.
//! - `prong`: rate and outstanding work of a prong.
//! - `claim`: chooses the batch that a prong prepares next, at the end of an epoch too, and takes over another
//!   prong's batch.
//! - `strategy`: the strategies by name. `planned`: the deliveries of an epoch, to be replayed.
//! - `deliver`: the order in which the consumer gets batches.
//!
//! Invariants: a batch is delivered exactly once; every batch that is neither delivered nor ready is open, or a prong
//! that is up works on it; a batch that failed on a drive is prepared by the CPU.

mod claim;
mod deliver;
mod epoch;
mod planned;
mod prong;
#[cfg(test)]
mod simulation;
mod strategy;

pub use planned::PlanEpoch;
pub use strategy::{Strategy, UnknownStrategy};

use epoch::{BatchState, Epoch};
use prong::{ActiveWork, Prong};
use std::collections::VecDeque;

/// Index of a prong: 0 is the host's CPU, the drives follow.
pub type ProngId = usize;
/// The host's CPU.
pub const CPU: ProngId = 0;

/// Names a batch of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId {
    /// Epoch.
    pub epoch: u32,
    /// Batch within the epoch.
    pub batch: u32,
}

/// Options of a schedule.
#[derive(Clone, Debug)]
pub struct ScheduleConfig {
    /// Order of delivery.
    pub strategy: Strategy,
    /// Batches of an epoch.
    pub batches: u32,
    /// Whether the last batch has fewer samples than the others, so that its time does not show the prong's rate.
    pub short_last: bool,
    /// Epochs to run: from the first to before the second.
    pub epochs: std::ops::Range<u32>,
    /// Look-ahead of `ordered` in batches.
    pub window: u32,
    /// Number of drives.
    pub drives: usize,
    /// Batches of the first epoch that were delivered before (resume).
    pub delivered: Vec<u32>,
    /// Epochs to replay instead of following the strategy; others follow it.
    pub replay: Vec<PlanEpoch>,
}

/// Room of a prong when it claims a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// For any batch.
    Any,
    /// Only for a batch without which delivery cannot continue.
    Critical,
}

/// Use of a finished batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultUse {
    /// It will be delivered.
    Used,
    /// Another prong was first: the batch is dropped.
    Late,
}

/// Fate of the batches that a lost prong had finished but not handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldResults {
    /// The batches are lost with the prong.
    Lost,
    /// The batches are at hand, and will be handed over.
    Kept,
}

/// Progress of the prongs in an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EpochProgress {
    /// The epoch.
    pub epoch: u32,
    /// Batches claimed by the CPU.
    pub head: u32,
    /// Batches claimed by drives.
    pub tail: u32,
    /// Batches delivered.
    pub delivered: u32,
}

/// The state of a run's batches and prongs.
#[derive(Debug)]
pub struct Schedule {
    config: ScheduleConfig,
    epochs: VecDeque<Epoch>,
    next_epoch: u32,
    /// The last epoch that may begin while another one is delivered.
    last_epoch: u32,
    prongs: Vec<Prong>,
    credits: Vec<f64>,
    /// Claims of all prongs so far.
    claims: u64,
}

/// Epochs whose batches may be claimed at the same time.
const ACTIVE_EPOCHS_MAX: usize = 2;

impl Schedule {
    /// Creates a schedule at its beginning. All prongs are up.
    pub fn new(config: ScheduleConfig) -> Self {
        let prongs = (0..=config.drives).map(|_| Prong::default()).collect::<Vec<_>>();
        let mut schedule = Self {
            next_epoch: config.epochs.start,
            last_epoch: u32::MAX,
            epochs: VecDeque::new(),
            credits: vec![0.0; prongs.len()],
            prongs,
            claims: 0,
            config,
        };
        schedule.open_epoch();
        let delivered = std::mem::take(&mut schedule.config.delivered);
        if let Some(epoch) = schedule.epochs.front_mut() {
            epoch.resume(&delivered);
        }
        schedule.close_epochs();
        schedule
    }

    /// Returns a schedule with the same options that begins in another epoch. The batches `delivered` of that epoch
    /// are not delivered again.
    pub fn beginning_at(&self, epoch: u32, delivered: Vec<u32>) -> Self {
        let epochs = epoch..self.config.epochs.end;
        Self::new(ScheduleConfig { epochs, delivered, ..self.config.clone() })
    }

    /// Lets prongs claim batches up to this epoch, and no further ones until the next call. The epoch that is being
    /// delivered may always go on. Returns whether that changes anything. Default: all epochs.
    pub fn let_begin(&mut self, epoch: u32) -> bool {
        std::mem::replace(&mut self.last_epoch, epoch) != epoch
    }

    /// Returns whether everything was delivered.
    pub fn is_done(&self) -> bool {
        self.epochs.is_empty()
    }

    /// Returns the epoch that is being delivered.
    pub fn current_epoch(&self) -> Option<u32> {
        self.epochs.front().map(|epoch| epoch.number)
    }

    /// Returns the delivered batches of the current epoch.
    pub fn delivered(&self) -> Vec<u32> {
        self.epochs.front().map(Epoch::delivered).unwrap_or_default()
    }

    /// Returns the batch at which the prongs met in the current epoch, once they have.
    pub fn meeting_point(&self) -> Option<u32> {
        self.epochs.front().and_then(|epoch| epoch.meeting_point())
    }

    /// Returns whether a drive without a free result slot could otherwise prepare more of the tail. Under `mte` its
    /// results wait until the head is delivered, so slots bound the tail.
    pub fn slots_bound_tail(&self) -> bool {
        self.config.strategy == Strategy::Mte
            && self.epochs.front().is_some_and(|epoch| !epoch.is_planned() && epoch.open_count() > 0)
    }

    /// Returns the progress of the current epoch.
    pub fn progress(&self) -> EpochProgress {
        self.epochs.front().map(Epoch::progress).unwrap_or_default()
    }

    /// Returns a prong's measured seconds per batch.
    pub fn batch_s(&self, prong: ProngId) -> Option<f64> {
        self.prongs[prong].batch_s
    }

    /// Returns the number of batches that a prong has in work.
    pub fn outstanding(&self, prong: ProngId) -> usize {
        self.prongs[prong].outstanding.len()
    }

    /// Returns false while a prong is lost.
    pub fn is_up(&self, prong: ProngId) -> bool {
        self.prongs[prong].up
    }

    /// Returns whether a prong other than this one has batches in work.
    pub fn any_other_works(&self, prong: ProngId) -> bool {
        self.prongs.iter().enumerate().any(|(other, work)| other != prong && !work.outstanding.is_empty())
    }

    /// Returns whether no prong works on a batch. A prong may have claimed batches that it has not begun.
    pub fn is_idle(&self) -> bool {
        !self.prongs.iter().any(Prong::is_working)
    }

    /// Describes in words what every prong has in work.
    pub fn describe_outstanding(&self) -> String {
        let describe = |(number, prong): (usize, &Prong)| {
            let name = if number == CPU { "the CPU".to_string() } else { format!("drive {number}") };
            if !prong.up {
                return format!("{name} is away");
            }
            let batches: Vec<String> =
                prong.outstanding.iter().map(|work| format!("{}/{}", work.id.epoch, work.id.batch)).collect();
            match batches.len() {
                0 => format!("{name} has no batch in work"),
                _ => format!("{name} has epoch/batch {} in work", batches.join(", ")),
            }
        };
        self.prongs.iter().enumerate().map(describe).collect::<Vec<_>>().join("; ")
    }

    /// Lets a lost prong work again.
    pub fn prong_up(&mut self, prong: ProngId) {
        self.prongs[prong].up = true;
    }

    /// Counts a prong as lost. Its batches in work become open again, and so do its finished ones, unless they are
    /// kept. Its rate is forgotten, since another drive may come back in its place.
    pub fn prong_down(&mut self, prong: ProngId, held: HeldResults) {
        let lost = std::mem::take(&mut self.prongs[prong]);
        self.prongs[prong].up = false;
        for ActiveWork { id, .. } in lost.outstanding {
            if let Some(epoch) = self.epoch_mut(id.epoch) {
                epoch.give_up(prong, id.batch, true);
            }
        }
        if held == HeldResults::Lost {
            for epoch in &mut self.epochs {
                epoch.reopen_held(prong);
            }
        }
        self.turn_round();
    }

    /// Marks the prong's begun batches as delayed by something else: their times do not count towards its rate.
    pub fn disturbed(&mut self, prong: ProngId) {
        self.prongs[prong].disturb();
    }

    /// Records that the prong's processor is done with a batch, which may still have to be fetched ([`Self::finished`]
    /// follows). Returns whether the batch is wanted.
    pub fn executed(&mut self, prong: ProngId, id: BatchId, now: f64) -> ResultUse {
        let shows_rate = self.shows_rate(id);
        self.prongs[prong].done(id, now, shows_rate);
        let Some(epoch) = self.epoch_mut(id.epoch) else { return ResultUse::Late };
        let by = match epoch.state(id.batch) {
            BatchState::Working(by) if by.contains(&prong) => by.clone(),
            _ => return ResultUse::Late,
        };
        epoch.set(id.batch, BatchState::Held(prong));
        for loser in by.into_iter().filter(|&other| other != prong) {
            self.prongs[loser].cancel(id);
        }
        self.turn_round();
        ResultUse::Used
    }

    /// Makes a wanted batch (see [`Self::executed`]) ready for delivery. Returns false when the batch is no longer
    /// wanted.
    pub fn finished(&mut self, prong: ProngId, id: BatchId) -> bool {
        let Some(epoch) = self.epoch_mut(id.epoch) else { return false };
        let is_wanted = *epoch.state(id.batch) == BatchState::Held(prong);
        if is_wanted {
            epoch.set(id.batch, BatchState::Ready(prong));
        }
        is_wanted
    }

    /// Records that a prong failed at a batch, during the work or with an unusable result. The CPU prepares the batch
    /// again.
    pub fn failed(&mut self, prong: ProngId, id: BatchId, now: f64) {
        self.give_up(prong, id, now, true);
    }

    /// Records that a prong had no place for a batch that it claimed. Any prong may claim the batch again.
    pub fn returned(&mut self, prong: ProngId, id: BatchId, now: f64) {
        self.give_up(prong, id, now, false);
    }

    fn give_up(&mut self, prong: ProngId, id: BatchId, now: f64, failed: bool) {
        self.prongs[prong].forget(id, now);
        if let Some(epoch) = self.epoch_mut(id.epoch) {
            epoch.give_up(prong, id.batch, failed);
        }
        self.turn_round();
    }

    /// Records that a prong stopped work on a batch that another prong finished.
    pub fn cancelled(&mut self, prong: ProngId, id: BatchId, now: f64) {
        self.prongs[prong].stopped(id, now);
    }

    /// Takes the batches that this prong works on although another prong has finished them. Each is returned once.
    pub fn take_cancels(&mut self, prong: ProngId) -> Vec<BatchId> {
        std::mem::take(&mut self.prongs[prong].cancels)
    }

    /// Returns whether this prong works on the batch or holds it.
    pub fn is_wanted(&self, prong: ProngId, id: BatchId) -> bool {
        self.epoch(id.epoch).is_some_and(|epoch| match epoch.state(id.batch) {
            BatchState::Working(by) => by.contains(&prong),
            BatchState::Held(holder) => *holder == prong,
            _ => false,
        })
    }

    /// Returns whether no prong works on the batch or has finished it.
    pub fn is_open(&self, id: BatchId) -> bool {
        self.epoch(id.epoch).is_some_and(|epoch| epoch.is_open(id.batch))
    }

    /// Returns whether the batch is a full one, whose time shows the prong's rate.
    fn shows_rate(&self, id: BatchId) -> bool {
        !self.config.short_last || id.batch + 1 < self.config.batches
    }

    /// Asserts that every batch in work is outstanding exactly once with each of its prongs, and that these are up; and
    /// that no prong works on a batch twice.
    #[cfg(test)]
    fn assert_all_in_work(&self) {
        for prong in &self.prongs {
            let ids: std::collections::BTreeSet<BatchId> = prong.outstanding.iter().map(|work| work.id).collect();
            assert_eq!(ids.len(), prong.outstanding.len(), "{:?}", prong.outstanding);
        }
        for epoch in &self.epochs {
            for batch in 0..epoch.batches() {
                let BatchState::Working(by) = epoch.state(batch) else { continue };
                let id = BatchId { epoch: epoch.number, batch };
                for &prong in by {
                    let claims = self.prongs[prong].outstanding.iter().filter(|work| work.id == id).count();
                    assert!(claims == 1 && self.prongs[prong].up, "{id:?} has {claims} claims of prong {prong}");
                }
            }
        }
    }

    fn epoch(&self, number: u32) -> Option<&Epoch> {
        self.epochs.iter().find(|epoch| epoch.number == number)
    }

    fn epoch_mut(&mut self, number: u32) -> Option<&mut Epoch> {
        self.epochs.iter_mut().find(|epoch| epoch.number == number)
    }

    /// Makes the next epoch active while another one is delivered, if it may begin.
    fn open_ahead(&mut self) -> bool {
        self.next_epoch <= self.last_epoch && self.open_epoch()
    }

    /// Makes the next epoch active. Returns false when there is none, or when two epochs are active.
    fn open_epoch(&mut self) -> bool {
        if self.next_epoch >= self.config.epochs.end || self.epochs.len() >= ACTIVE_EPOCHS_MAX {
            return false;
        }
        let number = self.next_epoch;
        let plan = self.config.replay.iter().find(|plan| plan.epoch == number);
        self.epochs.push_back(Epoch::new(number, self.config.batches, self.config.strategy, plan));
        self.next_epoch += 1;
        true
    }

    /// Drops epochs whose batches are all delivered, and opens the next epoch when none is active.
    fn close_epochs(&mut self) {
        while self.epochs.front().is_some_and(Epoch::is_done) {
            self.epochs.pop_front();
            if self.epochs.is_empty() {
                self.open_epoch();
            }
        }
    }
}
