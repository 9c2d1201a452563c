//! Resources that the host process uses: CPU time, memory, energy.

use ddlp_csd::energy::{self, Meter};
use ddlp_csd::memory;
use ddlp_csd::prepare::BytesRead;
use nix::unistd::Pid;
use std::ops::Add;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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

/// Time that the loader's threads have worked.
#[derive(Debug, Default)]
pub struct WorkTimes {
    measures_reading: AtomicBool,
    busy_ns: AtomicU64,
    reading_ns: AtomicU64,
    fetching_ns: AtomicU64,
}

impl WorkTimes {
    /// Chooses whether threads that begin from now on measure how long they read.
    pub fn measure(&self, reading: bool) {
        self.measures_reading.store(reading, Ordering::Release);
    }

    /// Returns whether a thread that begins should measure how long it reads.
    pub fn measures_reading(&self) -> bool {
        self.measures_reading.load(Ordering::Acquire)
    }

    /// Adds a chunk of samples that a thread of the CPU prong has prepared, and the part of the time that it read.
    pub fn prepared(&self, busy: Duration, reading: Duration) {
        self.busy_ns.fetch_add(busy.as_nanos() as u64, Ordering::Relaxed);
        self.reading_ns.fetch_add(reading.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Adds samples that a thread of the fetch stage has fetched.
    pub fn fetched(&self, time: Duration) {
        self.fetching_ns.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Returns the seconds that the threads of the CPU prong have worked.
    pub fn busy_s(&self) -> f64 {
        seconds(&self.busy_ns)
    }

    /// Returns how many of these seconds the threads have read.
    pub fn reading_s(&self) -> f64 {
        seconds(&self.reading_ns)
    }

    /// Returns the seconds that the threads of the fetch stage have fetched.
    pub fn fetching_s(&self) -> f64 {
        seconds(&self.fetching_ns)
    }
}

fn seconds(nanoseconds: &AtomicU64) -> f64 {
    nanoseconds.load(Ordering::Relaxed) as f64 / 1e9
}

/// Times of a thread since its start, or of several threads together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CoreTimes {
    /// Seconds on a core.
    pub on_core_s: f64,
    /// Seconds in which the thread could have run, but waited for a core.
    pub queued_s: f64,
}

impl CoreTimes {
    /// Returns the times of a thread of this process, if it runs and the kernel counts them.
    pub fn of_thread(thread: Pid) -> Option<Self> {
        let counted = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?;
        let mut seconds = counted.split_whitespace().map(|field| field.parse::<u64>().map(|ns| ns as f64 / 1e9).ok());
        Some(Self { on_core_s: seconds.next()??, queued_s: seconds.next()?? })
    }

    /// Returns the times after an `earlier` moment.
    pub fn since(self, earlier: Self) -> Self {
        Self { on_core_s: self.on_core_s - earlier.on_core_s, queued_s: self.queued_s - earlier.queued_s }
    }
}

impl Add for CoreTimes {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { on_core_s: self.on_core_s + other.on_core_s, queued_s: self.queued_s + other.queued_s }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_computes_is_on_a_core_and_one_that_sleeps_is_not() {
        let times = || CoreTimes::of_thread(nix::unistd::gettid());
        let Some(before) = times() else { return };
        let begun = Instant::now();
        while times().expect("counted before").since(before).on_core_s < 0.02 {
            assert!(begun.elapsed() < Duration::from_secs(60), "a thread that computes has a core at times");
            std::hint::black_box((0..100_000u64).sum::<u64>());
        }
        let (begun, computed) = (Instant::now(), times().expect("counted before"));
        std::thread::sleep(Duration::from_millis(200));
        let slept = times().expect("counted before").since(computed);
        let awake = begun.elapsed().as_secs_f64() - 0.2;
        assert!(slept.on_core_s + slept.queued_s < awake + 0.1, "{slept:?}, awake for {awake} s");
        assert_eq!(CoreTimes::of_thread(Pid::from_raw(i32::MAX)), None);
    }

    #[test]
    fn anonymous_memory_grows_with_what_is_touched() {
        let before = anonymous_bytes().unwrap();
        // Much more than the other tests of this process free meanwhile.
        let memory = std::hint::black_box(vec![1u8; 192 << 20]);
        assert!(anonymous_bytes().unwrap() >= before + (64 << 20), "{} bytes were touched", memory.len());
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
