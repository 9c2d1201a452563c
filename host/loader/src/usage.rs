//! Resources that the host process uses: CPU time, memory, energy.

use ddlp_csd::energy::{self, Meter};
use ddlp_csd::memory;
use ddlp_csd::prepare::BytesRead;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Returns the CPU time of this process in seconds, user and system.
pub fn cpu_s() -> f64 {
    use nix::sys::resource::{UsageWho, getrusage};
    use nix::sys::time::TimeValLike;
    getrusage(UsageWho::RUSAGE_SELF)
        .map(|usage| (usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64 / 1e6)
        .unwrap_or(0.0)
}

/// Returns the anonymous memory of this process in bytes now; mapped files and mapped result slots are not part of it.
pub fn anonymous_bytes() -> Option<u64> {
    memory::of_this_process("RssAnon:")
}

/// Shortest time between two looks at the memory of the process.
const MEMORY_PERIOD: Duration = Duration::from_millis(20);

/// The peak of the process's memory, sampled by the loader's threads.
#[derive(Debug)]
pub struct MemoryPeak {
    start: Instant,
    /// Time of the last sample in milliseconds since the start; `u64::MAX` before the first.
    looked_ms: AtomicU64,
    bytes: AtomicU64,
}

impl MemoryPeak {
    /// Creates a peak without samples.
    pub fn new() -> Self {
        Self { start: Instant::now(), looked_ms: AtomicU64::new(u64::MAX), bytes: AtomicU64::new(0) }
    }

    /// Samples the memory, unless a thread has just done so.
    pub fn look(&self) {
        let now_ms = self.start.elapsed().as_millis() as u64;
        let last_ms = self.looked_ms.load(Ordering::Relaxed);
        let is_due = last_ms == u64::MAX || now_ms >= last_ms + MEMORY_PERIOD.as_millis() as u64;
        if is_due && self.looked_ms.compare_exchange(last_ms, now_ms, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.bytes.fetch_max(anonymous_bytes().unwrap_or(0), Ordering::Relaxed);
        }
    }

    /// Returns the largest sample.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// How often the energy counters are read.
const ENERGY_PERIOD: Duration = Duration::from_secs(10);
const _: () = assert!(ENERGY_PERIOD.as_secs() < energy::READ_WITHIN.as_secs());

/// The energy counters of the host's processor packages (RAPL through powercap).
#[derive(Debug)]
pub struct EnergyMeter {
    packages: Vec<Meter>,
    read_at: Instant,
}

impl EnergyMeter {
    /// Starts to measure, or `None` where no counter can be read.
    pub fn start() -> Option<Self> {
        Self::start_under(Path::new("/sys/class/powercap"))
    }

    fn start_under(powercap: &Path) -> Option<Self> {
        let packages = energy::packages(powercap);
        (!packages.is_empty()).then(|| Self { packages, read_at: Instant::now() })
    }

    /// Reads the counters if the last reading is some seconds old. Call it at least once within
    /// [`energy::READ_WITHIN`], since the counters wrap.
    pub fn tick(&mut self) {
        if self.read_at.elapsed() >= ENERGY_PERIOD {
            self.read();
        }
    }

    fn read(&mut self) {
        self.packages.iter_mut().for_each(Meter::advance);
        self.read_at = Instant::now();
    }

    /// Returns the joules since the start; `None` when a counter can no longer be read.
    pub fn joules(&self) -> Option<f64> {
        let total_uj: Option<u64> = self.packages.iter().map(Meter::microjoules_now).sum();
        total_uj.map(|total_uj| total_uj as f64 / 1e6)
    }
}

/// Bytes that several threads have read.
#[derive(Debug, Default)]
pub struct ReadSum {
    bytes: AtomicU64,
    block_bytes: AtomicU64,
    sample_bytes: AtomicU64,
}

impl ReadSum {
    /// Adds what a thread has read.
    pub fn add(&self, read: BytesRead) {
        if read != BytesRead::default() {
            self.bytes.fetch_add(read.bytes, Ordering::Relaxed);
            self.block_bytes.fetch_add(read.block_bytes, Ordering::Relaxed);
            self.sample_bytes.fetch_add(read.sample_bytes, Ordering::Relaxed);
        }
    }

    /// Returns the sum.
    pub fn sum(&self) -> BytesRead {
        BytesRead {
            bytes: self.bytes.load(Ordering::Relaxed),
            block_bytes: self.block_bytes.load(Ordering::Relaxed),
            sample_bytes: self.sample_bytes.load(Ordering::Relaxed),
        }
    }
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

    #[test]
    fn energy_is_counted_over_wraps_of_packages_only() {
        let root = std::env::temp_dir().join(format!("ddlp-energy-{}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        let set = |zone: &str, value: u64| {
            let zone = root.join(zone);
            std::fs::create_dir_all(&zone).unwrap();
            std::fs::write(zone.join("energy_uj"), format!("{value}\n")).unwrap();
            std::fs::write(zone.join("max_energy_range_uj"), "10000000\n").unwrap();
        };
        assert!(EnergyMeter::start_under(&root).is_none());
        set("intel-rapl:0", 9_000_000);
        set("intel-rapl:1", 500_000);
        set("intel-rapl:0:0", 0);
        let mut meter = EnergyMeter::start_under(&root).unwrap();
        for value in [1_000_000, 9_500_000, 500_000] {
            set("intel-rapl:0", value);
            set("intel-rapl:0:0", value);
            meter.read();
        }
        set("intel-rapl:1", 750_000);
        assert_eq!(meter.joules(), Some(2.0 + 8.5 + 1.0 + 0.25));
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(meter.joules(), None);
    }
}
