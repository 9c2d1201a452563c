//! Division of the machine's cores between the CPU prong and local drives.

use crate::drive::{DriveSpec, LocalDrive};
use crate::options::LoaderOptions;
use crate::schedule::Strategy;

/// Threads of either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadShares {
    /// Threads of the CPU prong.
    pub cpu: usize,
    /// Threads of a local drive whose options do not set them.
    drive: usize,
}

impl ThreadShares {
    /// Divides the cores that this process may use, where the options do not say otherwise.
    pub fn of(options: &LoaderOptions) -> Self {
        Self::divide(options, std::thread::available_parallelism().map_or(1, usize::from))
    }

    /// Divides the share that this process has of these cores.
    fn divide(options: &LoaderOptions, cores: usize) -> Self {
        let cores = (cores / options.local_world_size.max(1) as usize).max(1);
        let locals = options.drives_by_name().filter(|(_, spec)| matches!(spec, DriveSpec::Local(_))).count();
        let for_drives = match (locals, options.strategy) {
            (0, _) => 0,
            (_, Strategy::Csd) => cores,
            _ => (cores / 2).max(1),
        };
        let own = match options.cores.len() {
            0 => cores.saturating_sub(for_drives).max(1),
            named => named,
        };
        Self { cpu: options.threads.unwrap_or(own), drive: (for_drives / locals.max(1)).max(1) }
    }

    /// Workers of a local drive.
    pub fn of_drive(self, drive: &LocalDrive) -> usize {
        let named = Some(drive.cores.len()).filter(|&cores| cores > 0);
        drive.threads.or(named).unwrap_or(self.drive)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(strategy: Strategy, drives: usize) -> LoaderOptions {
        let local = DriveSpec::Local(LocalDrive::default());
        LoaderOptions { strategy, drives: Some(vec![local; drives]), ..LoaderOptions::default() }
    }

    fn divided(options: &LoaderOptions, cores: usize) -> (usize, usize) {
        let threads = ThreadShares::divide(options, cores);
        (threads.cpu, threads.of_drive(&LocalDrive::default()))
    }

    #[test]
    fn local_drives_get_half_of_the_cores() {
        let one = options(Strategy::Ordered, 1);
        assert_eq!([8, 3, 1].map(|cores| divided(&one, cores)), [(4, 4), (2, 1), (1, 1)]);
        assert_eq!(divided(&options(Strategy::Mte, 2), 8), (4, 2));
    }

    #[test]
    fn one_prong_alone_gets_all_cores() {
        assert_eq!(divided(&options(Strategy::Cpu, 1), 8), (8, 1));
        assert_eq!(divided(&options(Strategy::Csd, 1), 8), (1, 8));
        assert_eq!(divided(&options(Strategy::Ordered, 0), 8).0, 8);
        let drives = Some(vec![DriveSpec::Remote("tcp://h:1/nqn.x".into())]);
        let remote = LoaderOptions { drives, ..options(Strategy::Mte, 0) };
        assert_eq!(divided(&remote, 8).0, 8);
    }

    #[test]
    fn processes_of_a_machine_share_its_cores() {
        let of_four = |drives| LoaderOptions { local_world_size: 4, ..options(Strategy::Ordered, drives) };
        assert_eq!(divided(&of_four(0), 16).0, 4);
        assert_eq!(divided(&of_four(1), 16), (2, 2));
        assert_eq!(divided(&of_four(1), 2), (1, 1), "every process has threads");
        assert_eq!(divided(&LoaderOptions { threads: Some(7), ..of_four(1) }, 16), (7, 2));
    }

    #[test]
    fn explicit_threads_and_cores_take_precedence() {
        let named = LoaderOptions { cores: vec![0, 1, 2], ..options(Strategy::Ordered, 1) };
        let threads = ThreadShares::divide(&named, 8);
        assert_eq!(threads.cpu, 3);
        assert_eq!(threads.of_drive(&LocalDrive { cores: vec![3], ..LocalDrive::default() }), 1);
        assert_eq!(threads.of_drive(&LocalDrive { cores: vec![3], threads: Some(2), ..LocalDrive::default() }), 2);
        assert_eq!(ThreadShares::divide(&LoaderOptions { threads: Some(7), ..named }, 8).cpu, 7);
    }
}
