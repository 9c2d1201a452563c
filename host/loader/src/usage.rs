//! What the host process uses: CPU time, memory, energy.

use std::path::PathBuf;

/// CPU time of this process in seconds, user and system.
pub fn cpu_s() -> f64 {
    use nix::sys::resource::{UsageWho, getrusage};
    use nix::sys::time::TimeValLike;
    getrusage(UsageWho::RUSAGE_SELF)
        .map(|usage| (usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64 / 1e6)
        .unwrap_or(0.0)
}

/// Anonymous memory of this process in bytes now; mapped files and mapped result slots are not part of it.
pub fn anonymous_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// The energy counters of the host's processor packages (RAPL through powercap).
#[derive(Debug)]
pub struct EnergyMeter {
    packages: Vec<Package>,
}

#[derive(Debug)]
struct Package {
    counter: PathBuf,
    wraps_at_uj: u64,
    start_uj: u64,
}

impl EnergyMeter {
    /// Starts to measure, or `None` where no counter can be read.
    pub fn start() -> Option<Self> {
        let zones = std::fs::read_dir("/sys/class/powercap").ok()?;
        let packages: Vec<Package> = zones
            .flatten()
            .filter(|zone| {
                // Packages are intel-rapl:N; what lies below them (intel-rapl:N:M) is part of them.
                zone.file_name()
                    .to_str()
                    .is_some_and(|name| name.starts_with("intel-rapl:") && name.matches(':').count() == 1)
            })
            .filter_map(|zone| {
                let counter = zone.path().join("energy_uj");
                let wraps_at_uj = read_number(&zone.path().join("max_energy_range_uj"))?;
                Some(Package { start_uj: read_number(&counter)?, counter, wraps_at_uj })
            })
            .collect();
        (!packages.is_empty()).then_some(Self { packages })
    }

    /// Joules since the start; `None` when a counter can no longer be read. A counter is taken to wrap at most once.
    pub fn joules(&self) -> Option<f64> {
        let mut total_uj = 0u64;
        for package in &self.packages {
            let now_uj = read_number(&package.counter)?;
            total_uj += match now_uj.checked_sub(package.start_uj) {
                Some(used) => used,
                None => (package.wraps_at_uj + now_uj).saturating_sub(package.start_uj),
            };
        }
        Some(total_uj as f64 / 1e6)
    }
}

fn read_number(path: &std::path::Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Memory that can be had without swapping, in bytes.
pub fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anonymous_memory_grows_with_what_is_touched() {
        let before = anonymous_bytes().unwrap();
        let memory = std::hint::black_box(vec![1u8; 32 << 20]);
        assert!(anonymous_bytes().unwrap() >= before + (24 << 20), "{} bytes were touched", memory.len());
    }
}
