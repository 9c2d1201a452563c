//! The stage that bounds training, and what to change.

use super::Headspace;
use crate::loader::Loader;
use crate::schedule::Strategy;
use serde::Serialize;

/// Share of the time from which a stage counts as busy throughout.
const BUSY: f64 = 0.75;
/// Share of the threads' time from which waiting for a core, or for a disk or a network, counts.
const WAITS: f64 = 0.25;
/// Time of a step while the loader works, relative to its time while the loader is paused, from which the loader slows
/// training.
const SLOWED: f64 = 1.05;
/// Mean number of free buffers below which the loader lacks buffers.
const FREE_BUFFERS: f64 = 0.5;
/// Most changes that are named.
const CHANGES_MAX: usize = 2;

/// The stage that bounds training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// Training itself: loading costs nothing that could be measured.
    Step,
    /// The cores: training and loader, or other programs, compete for them.
    Cores,
    /// Decoding and transforming samples on the CPU.
    Decoding,
    /// Reading samples from a disk or from memory.
    Reading,
    /// Fetching samples from the drive that holds the dataset.
    Fetching,
    /// A drive that prepares batches.
    Drive,
    /// Buffers: threads have no memory for another batch.
    Buffers,
    /// No stage was busy for most of the time.
    Unclear,
}

/// What the loader works with.
#[derive(Debug, Default)]
pub(super) struct Setting {
    pub strategy: Strategy,
    /// Cores that the CPU prong may use.
    pub cores: usize,
    pub buffers: usize,
    pub is_pack: bool,
}

impl Setting {
    pub fn of(loader: &Loader) -> Self {
        let usable = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            strategy: loader.strategy(),
            cores: loader.pinned_cores().unwrap_or(usable),
            buffers: loader.engine.target.count(),
            is_pack: loader.dataset().kind() == "pack",
        }
    }
}

impl Bound {
    /// Returns the stage that bounds training.
    pub(super) fn of(headspace: &Headspace, setting: &Setting) -> Self {
        let stages = &headspace.stages;
        if !headspace.is_significant {
            return Self::Step;
        }
        // Share of the time that steps lose because the loader works beside them.
        let slowed = (1.0 - stages.waiting) * (1.0 - headspace.step_from_memory_s / headspace.step_s);
        if slowed > stages.waiting {
            return Self::Cores;
        }
        let drive_is_busy = stages.drives.iter().any(|drive| drive.busy >= BUSY);
        if setting.strategy == Strategy::Csd {
            return if drive_is_busy { Self::Drive } else { Self::Unclear };
        }
        if stages.idle <= 1.0 - BUSY {
            return match stages.queued {
                Some(queued) if queued >= WAITS => Self::Cores,
                _ if stages.reading > stages.decoding => Self::Reading,
                _ => Self::Decoding,
            };
        }
        match stages.fetching {
            Some(fetching) if fetching >= BUSY => Self::Fetching,
            _ if drive_is_busy => Self::Drive,
            _ if stages.free_buffers < FREE_BUFFERS => Self::Buffers,
            _ => Self::Unclear,
        }
    }

    /// Returns the changes that would help most, the first one first.
    pub(super) fn changes(self, headspace: &Headspace, setting: &Setting) -> Vec<String> {
        let Setting { cores, buffers, .. } = *setting;
        let stages = &headspace.stages;
        let threads = stages.threads;
        let mut changes: Vec<String> = Vec::new();
        let mut say = |holds: bool, change: String| changes.extend(holds.then_some(change));
        let no_drive = stages.drives.is_empty();
        let blocks = stages.blocked.is_some_and(|blocked| blocked >= WAITS);
        let other_machine = "let a drive on another machine prepare part of the batches (`drives`)".to_string();
        match self {
            Self::Step => {}
            Self::Cores => {
                let slows_steps = headspace.step_s > headspace.step_from_memory_s * SLOWED;
                say(
                    slows_steps && threads > 1,
                    format!("give the loader fewer than {threads} `threads`, so that training has a core of its own"),
                );
                say(!slows_steps && threads > cores, format!("use a thread for each core: `threads={cores}`"));
                say(!slows_steps && threads <= cores, "run no other program on these cores".into());
                say(no_drive, other_machine);
                say(!no_drive, "move the drive's work to another machine, or to cores of its own (`drives`)".into());
            }
            Self::Decoding => {
                say(threads < cores, format!("let all usable cores decode: `threads={cores}` instead of {threads}"));
                say(!setting.is_pack, "pack the dataset (`ddlp pack`): a crop then decodes only its part".into());
                say(no_drive, other_machine);
                say(
                    setting.is_pack,
                    "store pixels, if there is room for them: `ddlp pack` with `format=\"raw\"`".into(),
                );
            }
            Self::Reading => {
                say(
                    !setting.is_pack,
                    "pack the dataset (`ddlp pack`): one file, and a crop reads only its part".into(),
                );
                let more = cores * 2;
                say(
                    blocks && threads < more,
                    format!("let more threads wait for the disk: `threads={more}` instead of {threads}"),
                );
                say(no_drive, "let a drive prepare part of the batches, where its data lies (`drives`)".into());
                say(true, "move the dataset to a faster disk".into());
            }
            Self::Fetching => {
                say(setting.strategy == Strategy::Cpu, "let the drive prepare batches: `strategy=\"ordered\"`".into());
                say(true, "copy the pack to this machine, and give its path as the dataset".into());
            }
            Self::Drive => {
                say(setting.strategy == Strategy::Csd, "let the CPU prepare too: `strategy=\"ordered\"`".into());
                say(setting.strategy == Strategy::Ordered, "do not wait for the drive: `strategy=\"wrr\"`".into());
                say(true, "add a drive, or give this one more threads (`drives`)".into());
            }
            Self::Buffers => {
                say(true, format!("give the loader more than {buffers} `buffers`"));
                say(true, "drop batches earlier: each batch that training keeps occupies a buffer".into());
            }
            Self::Unclear => {
                say(threads < cores, format!("try `threads={cores}` instead of {threads}"));
                say(true, format!("try more than {buffers} `buffers`"));
            }
        }
        changes.truncate(CHANGES_MAX);
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DriveStage, Spread, Stages};
    use super::*;

    /// Returns a headspace with these stages, and a gain.
    fn headspace(stages: Stages) -> Headspace {
        Headspace {
            with_loading: Spread::default(),
            from_memory: Spread::default(),
            gain: Spread::default(),
            is_significant: true,
            step_s: 0.01,
            step_from_memory_s: 0.01,
            steps: 50,
            stages,
            bound: Bound::Unclear,
            changes: Vec::new(),
        }
    }

    /// Returns the stages of a CPU prong that training waits for.
    fn waiting(reading: f64, decoding: f64) -> Stages {
        let idle = 1.0 - reading - decoding;
        Stages { waiting: 0.4, threads: 2, reading, decoding, idle, free_buffers: 3.0, ..Stages::default() }
    }

    fn setting() -> Setting {
        Setting { strategy: Strategy::Ordered, cores: 4, buffers: 6, is_pack: true }
    }

    fn drive(busy: f64) -> Vec<DriveStage> {
        vec![DriveStage { name: "csd".into(), busy, images_per_s: 100.0 }]
    }

    #[test]
    fn the_busy_stage_bounds() {
        let bound = |stages: Stages| Bound::of(&headspace(stages), &setting());
        assert_eq!(bound(waiting(0.1, 0.85)), Bound::Decoding);
        assert_eq!(bound(waiting(0.6, 0.3)), Bound::Reading);
        assert_eq!(bound(Stages { queued: Some(0.4), ..waiting(0.1, 0.85) }), Bound::Cores);
        assert_eq!(bound(Stages { drives: drive(0.9), ..waiting(0.1, 0.85) }), Bound::Decoding);
        let idle = || waiting(0.05, 0.2);
        assert_eq!(bound(Stages { fetching: Some(0.9), ..idle() }), Bound::Fetching);
        assert_eq!(bound(Stages { drives: drive(0.9), ..idle() }), Bound::Drive);
        assert_eq!(bound(Stages { free_buffers: 0.1, ..idle() }), Bound::Buffers);
        assert_eq!(bound(Stages { drives: drive(0.2), fetching: Some(0.2), ..idle() }), Bound::Unclear);
    }

    #[test]
    fn without_a_gain_training_bounds_whatever_the_stages_do() {
        let within_noise = Headspace { is_significant: false, ..headspace(waiting(0.1, 0.85)) };
        assert_eq!(Bound::of(&within_noise, &setting()), Bound::Step);
        assert!(Bound::Step.changes(&within_noise, &setting()).is_empty());
    }

    #[test]
    fn steps_that_are_slower_beside_the_loader_lack_cores() {
        let slowed = Headspace { step_s: 0.02, ..headspace(Stages { waiting: 0.05, ..waiting(0.1, 0.85) }) };
        assert_eq!(Bound::of(&slowed, &setting()), Bound::Cores);
        let little = Headspace { step_s: 0.0105, ..headspace(waiting(0.1, 0.85)) };
        assert_eq!(Bound::of(&little, &setting()), Bound::Decoding);
    }

    #[test]
    fn a_run_of_drives_alone_is_bound_by_them() {
        let setting = Setting { strategy: Strategy::Csd, ..setting() };
        let of_drive = headspace(Stages { drives: drive(0.95), ..waiting(0.0, 0.0) });
        assert_eq!(Bound::of(&of_drive, &setting), Bound::Drive);
        assert!(Bound::Drive.changes(&of_drive, &setting)[0].contains("`strategy=\"ordered\"`"));
    }

    #[test]
    fn changes_name_options_that_are_not_used_yet() {
        let decoding = headspace(waiting(0.1, 0.85));
        let changes = Bound::Decoding.changes(&decoding, &setting());
        assert!(changes[0].contains("`threads=4` instead of 2") && changes[1].contains("`drives`"), "{changes:?}");
        let all_cores = Setting { cores: 2, is_pack: false, ..setting() };
        let changes = Bound::Decoding.changes(&decoding, &all_cores);
        assert!(changes[0].contains("`ddlp pack`") && changes.len() == 2, "{changes:?}");
        let blocked = headspace(Stages { blocked: Some(0.5), ..waiting(0.7, 0.2) });
        assert!(Bound::Reading.changes(&blocked, &setting())[0].contains("`threads=8` instead of 2"));
        let copied = headspace(Stages { blocked: Some(0.0), ..waiting(0.7, 0.2) });
        assert!(!Bound::Reading.changes(&copied, &setting())[0].contains("threads"));
    }
}
