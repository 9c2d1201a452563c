//! The kernel's energy meters: files with a count of microjoules that wraps.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest interval between two readings of a meter. A counter that wraps twice between readings loses a round. The
/// counters of processor packages (32 bits of 15 µJ or more) take two minutes or more to wrap at 500 W.
pub const READ_WITHIN: Duration = Duration::from_secs(60);

/// A meter, and the energy that it has counted since it was made.
#[derive(Debug)]
pub struct Meter {
    file: PathBuf,
    count: Count,
}

impl Meter {
    /// Starts counting at the present value of `file`; the file `range` holds the value at which the counter wraps to
    /// 0. Returns `None` if the meter cannot be read.
    pub fn new(file: PathBuf, range: Option<&Path>) -> Option<Self> {
        let last_uj = number(&file)?;
        Some(Self { count: Count { wraps_at_uj: range.and_then(number), last_uj, total_uj: 0 }, file })
    }

    /// Reads the meter. If the meter cannot be read, its count stays.
    pub fn advance(&mut self) {
        if let Some(now_uj) = number(&self.file) {
            self.count.advance(now_uj);
        }
    }

    /// Returns the microjoules counted until the last [`advance`](Self::advance).
    pub fn microjoules(&self) -> u64 {
        self.count.total_uj
    }

    /// Returns the microjoules counted until now, or `None` if the meter can no longer be read.
    pub fn microjoules_now(&self) -> Option<u64> {
        let mut count = self.count;
        count.advance(number(&self.file)?);
        Some(count.total_uj)
    }
}

/// Returns the meters of the processor packages (RAPL) below `powercap`, which is `/sys/class/powercap` except in
/// tests.
pub fn packages(powercap: &Path) -> Vec<Meter> {
    let Ok(zones) = fs::read_dir(powercap) else { return Vec::new() };
    let package = |zone: PathBuf| {
        // A package is intel-rapl:N. Its parts, intel-rapl:N:M, are counted in it.
        let number = zone.file_name()?.to_str()?.strip_prefix("intel-rapl:")?;
        let is_package = !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
        is_package.then(|| Meter::new(zone.join("energy_uj"), Some(&zone.join("max_energy_range_uj"))))?
    };
    zones.flatten().filter_map(|zone| package(zone.path())).collect()
}

/// Total of a counter that wraps.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    wraps_at_uj: Option<u64>,
    last_uj: u64,
    total_uj: u64,
}

impl Count {
    /// Takes a reading. A reading below the last one is a wrap. If the counter's range is unknown, it is a restart, and
    /// nothing is added.
    fn advance(&mut self, now_uj: u64) {
        let step_uj = match now_uj.checked_sub(self.last_uj) {
            Some(step_uj) => step_uj,
            None => self.wraps_at_uj.map_or(0, |wrap_uj| wrap_uj.saturating_sub(self.last_uj).saturating_add(now_uj)),
        };
        self.total_uj = self.total_uj.saturating_add(step_uj);
        self.last_uj = now_uj;
    }
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_may_wrap_any_number_of_times() {
        let mut count = Count { wraps_at_uj: Some(1000), last_uj: 900, total_uj: 0 };
        for (now_uj, total_uj) in [(950, 50), (50, 150), (40, 1140), (40, 1140), (999, 2099), (0, 2100)] {
            count.advance(now_uj);
            assert_eq!(count.total_uj, total_uj, "at {now_uj}");
        }
    }

    #[test]
    fn a_counter_of_unknown_range_that_starts_anew_counts_nothing_for_it() {
        let mut count = Count { wraps_at_uj: None, last_uj: 900, total_uj: 7 };
        for (now_uj, total_uj) in [(100, 7), (130, 37)] {
            count.advance(now_uj);
            assert_eq!(count.total_uj, total_uj, "at {now_uj}");
        }
    }
}
