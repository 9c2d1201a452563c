//! Live numbers: the workers' counters, the process's own use of memory and CPU, and the machine's sensors.
//!
//! A thread of its own reads the sensors every few seconds, since some of them sit behind slow buses. On a machine
//! without sensors the values are absent, never guessed.

use crate::controller::Gauges;
use crate::workers::Pool;
use ddlp_csd::energy::{self, Meter};
use ddlp_csd::log::Counters;
use ddlp_csd::memory;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Time between two readings of the sensors.
const PERIOD: Duration = Duration::from_secs(2);
const _: () = assert!(PERIOD.as_secs() < energy::READ_WITHIN.as_secs());

/// Latest readings of the sensors.
#[derive(Clone, Copy, Debug, Default)]
struct Readings {
    /// Highest temperature in tenths of a degree.
    temperature_dc: Option<i16>,
    /// Sum of all powers in mW.
    power_mw: Option<u32>,
    /// Sum of all energy meters in mJ.
    energy_mj: Option<u64>,
}

/// Live numbers of the agent.
pub struct LiveGauges {
    started: Instant,
    pool: Arc<Pool>,
    readings: Arc<Mutex<Readings>>,
    /// Ends the sensor thread when dropped.
    _stop: Option<Sender<()>>,
}

impl LiveGauges {
    /// Starts to read the sensors under `/sys`, if there are any.
    pub fn start(pool: Arc<Pool>) -> Self {
        Self::start_under(Path::new("/sys/class"), pool)
    }

    fn start_under(root: &Path, pool: Arc<Pool>) -> Self {
        let readings = Arc::new(Mutex::new(Readings::default()));
        let mut sensors = Sensors::find(root);
        let mut stop = None;
        if !sensors.is_empty() {
            sensors.read_into(&readings);
            let (sender, stopped) = channel::<()>();
            let shared = readings.clone();
            let watch = move || {
                while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                    sensors.read_into(&shared);
                }
            };
            // If the thread does not start, the first readings stay: no reason to refuse to serve.
            stop = std::thread::Builder::new().name("sensors".into()).spawn(watch).ok().map(|_| sender);
        }
        Self { started: Instant::now(), pool, readings, _stop: stop }
    }
}

impl Gauges for LiveGauges {
    fn counters(&self) -> Counters {
        let totals = self.pool.stats().totals();
        let readings = *self.readings.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let usage = getrusage(UsageWho::RUSAGE_SELF).ok();
        let cpu_us = usage.map_or(0, |usage| (usage.user_time() + usage.system_time()).num_microseconds());
        Counters {
            uptime_s: self.started.elapsed().as_secs(),
            batches: totals.batches,
            samples: totals.samples,
            corrupt: totals.corrupt,
            read_us: micros(totals.read),
            prepare_us: micros(totals.prepare),
            finish_us: micros(totals.finish),
            temperature_dc: readings.temperature_dc,
            power_mw: readings.power_mw,
            energy_mj: readings.energy_mj,
            // Not from getrusage, whose value includes the process that started this one.
            peak_rss_bytes: memory::of_this_process("VmHWM:").unwrap_or(0),
            cpu_us: cpu_us.max(0) as u64,
            ..Counters::default()
        }
    }
}

/// Files of the machine's sensors.
struct Sensors {
    temperatures: Vec<PathBuf>,
    powers: Vec<PathBuf>,
    meters: Vec<Meter>,
}

fn number<T: std::str::FromStr>(file: &Path) -> Option<T> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn named(path: &Path, prefix: &str, suffix: &str) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| {
        name.strip_prefix(prefix)
            .and_then(|rest| rest.strip_suffix(suffix))
            .is_some_and(|middle| !middle.is_empty() && middle.bytes().all(|digit| digit.is_ascii_digit()))
    })
}

impl Sensors {
    fn find(root: &Path) -> Self {
        let files: Vec<PathBuf> = entries(&root.join("hwmon")).iter().flat_map(|chip| entries(chip)).collect();
        let readable = |prefix: &str, suffix: &str| -> Vec<PathBuf> {
            let fits = |path: &&PathBuf| named(path, prefix, suffix) && number::<i64>(path).is_some();
            files.iter().filter(fits).cloned().collect()
        };
        let mut meters = energy::packages(&root.join("powercap"));
        meters.extend(readable("energy", "_input").into_iter().filter_map(|file| Meter::new(file, None)));
        Self { temperatures: readable("temp", "_input"), powers: readable("power", "_input"), meters }
    }

    fn is_empty(&self) -> bool {
        self.temperatures.is_empty() && self.powers.is_empty() && self.meters.is_empty()
    }

    /// Stores the highest temperature, the sum of powers and the sum of energies in `readings`.
    fn read_into(&mut self, readings: &Mutex<Readings>) {
        let millidegrees = self.temperatures.iter().filter_map(|file| number::<i64>(file)).max();
        let microwatts: Vec<u64> = self.powers.iter().filter_map(|file| number(file)).collect();
        self.meters.iter_mut().for_each(Meter::advance);
        let microjoules = self.meters.iter().fold(0u64, |sum, meter| sum.saturating_add(meter.microjoules()));
        let fresh = Readings {
            temperature_dc: millidegrees.and_then(|value| i16::try_from(value / 100).ok()),
            power_mw: (!microwatts.is_empty())
                .then(|| u32::try_from(microwatts.iter().sum::<u64>() / 1000).unwrap_or(u32::MAX)),
            energy_mj: (!self.meters.is_empty()).then_some(microjoules / 1000),
        };
        *readings.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = fresh;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, file: &str, value: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, value).unwrap();
    }

    #[test]
    fn sensors_are_found_and_meters_wrap() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(root, "hwmon/hwmon0/temp1_input", "41500\n");
        write(root, "hwmon/hwmon1/temp2_input", "52300\n");
        write(root, "hwmon/hwmon1/temp2_max", "99000\n");
        write(root, "hwmon/hwmon1/power1_input", "2500000\n");
        write(root, "powercap/intel-rapl:0/energy_uj", "900000\n");
        write(root, "powercap/intel-rapl:0/max_energy_range_uj", "1000000\n");
        write(root, "powercap/intel-rapl:0:0/energy_uj", "5\n");
        let mut sensors = Sensors::find(root);
        write(root, "powercap/intel-rapl:0/energy_uj", "50000\n");
        let readings = Mutex::default();
        sensors.read_into(&readings);
        let found = readings.into_inner().unwrap();
        assert_eq!((found.temperature_dc, found.power_mw, found.energy_mj), (Some(523), Some(2500), Some(150)));
    }

    #[test]
    fn a_machine_without_sensors_has_no_readings() {
        let root = tempfile::tempdir().unwrap();
        assert!(Sensors::find(root.path()).is_empty());
    }
}
