//! The runs of `ddlp bench dual`, and their cores.

use crate::cores::CoreList;
use clap::ValueEnum;
use serde::Serialize;
use std::fs;

/// The way in which the host gets the drive's results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum SlotAccess {
    /// Host and drive map the same memory
    Shared,
    /// The host reads the drive's memory by NVMe/TCP
    Read,
}

impl SlotAccess {
    /// Returns the name that `ddlp run --results` uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Read => "read",
        }
    }
}

/// One kind of run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Name that `ddlp run --strategy` uses.
    pub strategy: &'static str,
    /// Kind of slots; `None` for the CPU alone, which has no slots.
    pub slots: Option<SlotAccess>,
}

/// The CPU alone.
pub const CPU: Case = Case { strategy: "cpu", slots: None };
/// Strategies in which both prongs work.
pub const DUAL: [&str; 3] = ["mte", "wrr", "ordered"];

/// Returns the runs of a round, in order.
pub fn round(slots: &[SlotAccess]) -> Vec<Case> {
    let mut cases = vec![CPU];
    for slots in slots {
        for strategy in ["csd"].into_iter().chain(DUAL) {
            cases.push(Case { strategy, slots: Some(*slots) });
        }
    }
    cases
}

/// Estimates the seconds of a round on cores that are alike: the CPU alone prepares `cpu_rate` images per second, the
/// drive `drive_share` of that.
pub fn round_s(cases: &[Case], samples: u64, cpu_rate: f64, drive_share: f64) -> f64 {
    let relative = |case: &Case| match case.strategy {
        "cpu" => 1.0,
        "csd" => drive_share,
        _ => 1.0 + drive_share,
    };
    cases.iter().map(|case| samples as f64 / (cpu_rate * relative(case)).max(1e-9)).sum()
}

/// Cores of both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores {
    /// The host's cores.
    pub host: CoreList,
    /// Cores of the local drive; `None` if the drive is elsewhere.
    pub drive: Option<CoreList>,
    /// The reason why the figures mean little, if there are too few cores.
    pub warning: Option<String>,
}

impl Cores {
    /// Takes the cores that are named; otherwise chooses one core for each side, if possible not two threads of the
    /// same core.
    pub fn choose(
        available: &[usize],
        host: Option<CoreList>,
        drive: Option<CoreList>,
        siblings: impl Fn(usize) -> Vec<usize>,
    ) -> Self {
        let taken = drive.as_ref().map_or(&[][..], |list| &list.0);
        let free = |core: &&usize| !taken.contains(*core);
        let first = available.iter().find(free).or(available.first()).copied().unwrap_or(0);
        let host = host.unwrap_or_else(|| CoreList(vec![first]));
        let beside: Vec<usize> = host.0.iter().flat_map(|core| siblings(*core)).collect();
        let others: Vec<usize> = available.iter().copied().filter(|core| !host.0.contains(core)).collect();
        let apart = others.iter().find(|core| !beside.contains(core)).or(others.first()).copied();
        let drive = drive.unwrap_or_else(|| CoreList(vec![apart.unwrap_or(host.0.first().copied().unwrap_or(0))]));
        let warning = warning(&host, &drive, &beside);
        Self { host, drive: Some(drive), warning }
    }

    /// Chooses the host's cores for a drive elsewhere: those that are named, otherwise the first one.
    pub fn of_host(available: &[usize], host: Option<CoreList>) -> Self {
        let first = available.first().copied().unwrap_or(0);
        Self { host: host.unwrap_or_else(|| CoreList(vec![first])), drive: None, warning: None }
    }
}

fn warning(host: &CoreList, drive: &CoreList, beside: &[usize]) -> Option<String> {
    if drive.0.iter().any(|core| host.0.contains(core)) {
        return Some(
            "too few cores: host and drive share a core, so both together cannot be faster than one alone, and the \
             efficiency below has no meaning"
                .to_string(),
        );
    }
    drive.0.iter().any(|core| beside.contains(core)).then(|| {
        "too few cores: host and drive work on two hardware threads of one core, so each slows the other down and the \
         efficiency below is too low"
            .to_string()
    })
}

/// Returns the other hardware threads that share a core with this one, according to Linux.
pub fn siblings(core: usize) -> Vec<usize> {
    let path = format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list");
    let listed = fs::read_to_string(path).ok().and_then(|text| crate::cores::parse(text.trim()).ok());
    listed.unwrap_or_default().0.into_iter().filter(|other| *other != core).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_has_each_case_once_and_the_cpu_first() {
        let cases = round(&[SlotAccess::Shared, SlotAccess::Read]);
        assert_eq!(cases.len(), 9);
        assert_eq!(cases[0], CPU);
        assert_eq!(cases[4], Case { strategy: "ordered", slots: Some(SlotAccess::Shared) });
        assert_eq!(cases[5], Case { strategy: "csd", slots: Some(SlotAccess::Read) });
    }

    #[test]
    fn a_round_takes_the_sum_of_its_runs() {
        let cases = round(&[SlotAccess::Shared]);
        // The CPU alone 10 s, a drive of a quarter of its speed 40 s, three strategies of both 8 s each.
        assert_eq!(round_s(&cases, 1000, 100.0, 0.25), 10.0 + 40.0 + 3.0 * 8.0);
    }

    fn chosen(available: &[usize], host: Option<usize>, drive: Option<usize>) -> (usize, usize, bool) {
        // Threads 0 and 1, 2 and 3, … share a core.
        let list = |core: Option<usize>| core.map(|core| CoreList(vec![core]));
        let cores = Cores::choose(available, list(host), list(drive), |core| vec![core ^ 1]);
        (cores.host.0[0], cores.drive.unwrap().0[0], cores.warning.is_some())
    }

    #[test]
    fn both_sides_get_cores_of_their_own() {
        assert_eq!(chosen(&[0, 1, 2, 3], None, None), (0, 2, false));
        assert_eq!(chosen(&[0, 1, 2, 3], None, Some(0)), (1, 0, true));
        assert_eq!(chosen(&[0, 1, 2, 3], Some(3), None), (3, 0, false));
    }

    #[test]
    fn too_few_cores_give_a_warning() {
        assert_eq!(chosen(&[5], None, None), (5, 5, true));
        assert_eq!(chosen(&[4, 5], None, None), (4, 5, true));
        let cores = Cores::choose(&[0, 1], None, None, |_| Vec::new());
        assert_eq!((cores.drive.unwrap().0[0], cores.warning), (1, None));
    }
}
