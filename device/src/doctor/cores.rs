//! The processor: how many cores of which kinds, how fast they may run, and how many the agent would use.

use super::finding::{Finding, ranges};
use super::system::System;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use serde::Serialize;
use std::collections::BTreeMap;
use std::thread::available_parallelism;

const SUBJECT: &str = "cores";
const CPUS: &str = "sys/devices/system/cpu";

/// Cores that are alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kind {
    /// What the processor calls itself.
    pub name: String,
    /// Highest frequency in kHz.
    pub max_khz: Option<u64>,
    /// Highest frequency that the present settings allow, in kHz.
    pub allowed_khz: Option<u64>,
    /// Speed relative to the fastest kind, which has 1024 (ARM boards only).
    pub capacity: Option<u32>,
    /// What sets the frequency.
    pub governor: Option<String>,
    /// Whether this governor goes up with the load.
    pub follows_load: bool,
    /// Numbers of the cores.
    pub cores: Vec<usize>,
}

/// The processor.
#[derive(Clone, Debug, Serialize)]
pub struct Cores {
    /// Cores that are switched on, by kind, fastest first.
    pub kinds: Vec<Kind>,
    /// Cores that the agent may run on.
    pub usable: Vec<usize>,
    /// Workers that the agent would start.
    pub threads: usize,
    /// Cores' worth of time that control groups grant, where they grant less than the usable cores.
    pub granted: Option<usize>,
}

impl Cores {
    /// Looks at the cores; `chosen` are those that the configuration names (none for all), `threads` its workers.
    pub fn read(system: &System, chosen: &[usize], threads: usize) -> Self {
        let kinds = kinds(system);
        let mut usable = allowed().unwrap_or_else(|| kinds.iter().flat_map(|kind| kind.cores.clone()).collect());
        if !chosen.is_empty() {
            usable.retain(|core| chosen.contains(core));
        }
        let granted = available_parallelism().map_or(usable.len(), |granted| granted.get());
        Self { kinds, threads, granted: (granted < usable.len()).then_some(granted), usable }
    }

    /// One core of each kind that may be used, and how many there are of it.
    pub fn samples(&self) -> Vec<(usize, usize)> {
        let of_kind = |kind: &Kind| {
            let cores: Vec<usize> = kind.cores.iter().filter(|core| self.usable.contains(core)).copied().collect();
            cores.first().map(|&core| (core, cores.len()))
        };
        self.kinds.iter().filter_map(of_kind).collect()
    }

    /// Cores' worth of work that the agent can do at a time.
    pub fn parallel(&self) -> usize {
        self.threads.min(self.usable.len()).min(self.granted.unwrap_or(usize::MAX))
    }

    /// What there is to say.
    pub fn findings(&self) -> Vec<Finding> {
        if self.usable.is_empty() {
            let advice = "name cores that are there in the configuration's `cores`";
            return vec![Finding::failure(SUBJECT, "none of the cores that are named may be used", advice)];
        }
        let kinds: Vec<String> = self.kinds.iter().map(describe).collect();
        let usable = format!("{}; {} usable ({})", kinds.join(", "), self.usable.len(), ranges(&self.usable));
        let mut findings = vec![Finding::fine(SUBJECT, usable)];
        if let Some(granted) = self.granted {
            let text = format!("control groups grant the time of {granted}");
            let advice = "raise CPUQuota= of the service, or cpu.max of the container, to use all of them";
            findings.push(Finding::warning(SUBJECT, text, advice));
        }
        for kind in &self.kinds {
            findings.extend(slowed(kind));
        }
        if self.threads < self.usable.len() {
            let text = format!("{} workers on {} cores: the others idle", self.threads, self.usable.len());
            findings.push(Finding::warning(SUBJECT, text, "raise `threads` in the configuration, or leave it out"));
        }
        findings
    }
}

fn describe(kind: &Kind) -> String {
    let frequency = kind.max_khz.map_or(String::new(), |khz| format!(" up to {}", gigahertz(khz)));
    format!("{} × {}{frequency}", kind.cores.len(), kind.name)
}

fn gigahertz(khz: u64) -> String {
    format!("{:.2} GHz", khz as f64 / 1e6)
}

/// What keeps cores below their speed.
fn slowed(kind: &Kind) -> Vec<Finding> {
    let mut findings = Vec::new();
    let cores = ranges(&kind.cores);
    if let Some(governor) = kind.governor.as_ref().filter(|_| !kind.follows_load) {
        let text = format!("governor `{governor}` does not let cores {cores} speed up under load");
        let advice = "echo schedutil | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor (or performance)";
        findings.push(Finding::warning(SUBJECT, text, advice));
    }
    if let (Some(most), Some(allowed)) = (kind.max_khz, kind.allowed_khz)
        && allowed < most
    {
        let text = format!("cores {cores} are held at {} of {}", gigahertz(allowed), gigahertz(most));
        let advice =
            "raise scaling_max_freq below /sys/devices/system/cpu/cpu*/cpufreq; a hot board may lower it by itself";
        findings.push(Finding::warning(SUBJECT, text, advice));
    }
    findings
}

fn allowed() -> Option<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0)).ok()?;
    Some((0..CpuSet::count()).filter(|&core| set.is_set(core).unwrap_or(false)).collect())
}

/// The cores that are switched on, by kind, fastest first.
fn kinds(system: &System) -> Vec<Kind> {
    let names = names_of(&system.text("proc/cpuinfo").unwrap_or_default());
    let online = system.text(&format!("{CPUS}/online")).and_then(|text| numbers(&text));
    let online = online.unwrap_or_else(|| names.keys().copied().collect());
    let mut kinds: Vec<Kind> = Vec::new();
    for core in online {
        let found = kind_of(system, core, names.get(&core));
        let same = kinds.iter_mut().find(|kind| Kind { cores: Vec::new(), ..(*kind).clone() } == found);
        match same {
            Some(kind) => kind.cores.push(core),
            None => kinds.push(Kind { cores: vec![core], ..found }),
        }
    }
    kinds.sort_by_key(|kind| std::cmp::Reverse((kind.capacity, kind.max_khz)));
    kinds
}

fn kind_of(system: &System, core: usize, name: Option<&String>) -> Kind {
    let frequency = |file: &str| format!("{CPUS}/cpu{core}/cpufreq/{file}");
    let governor = system.text(&frequency("scaling_governor"));
    let driver = system.text(&frequency("scaling_driver")).unwrap_or_default();
    Kind {
        name: name.cloned().unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        max_khz: system.value(&frequency("cpuinfo_max_freq")),
        allowed_khz: system.value(&frequency("scaling_max_freq")),
        capacity: system.value(&format!("{CPUS}/cpu{core}/cpu_capacity")),
        follows_load: governor.as_ref().is_none_or(|governor| follows_load(governor, &driver)),
        governor,
        cores: Vec::new(),
    }
}

/// The drivers of newer x86 processors let the hardware speed up under any governor.
fn follows_load(governor: &str, driver: &str) -> bool {
    let hardware_decides = driver.starts_with("intel_pstate") || driver.starts_with("amd-pstate");
    hardware_decides || !matches!(governor, "powersave" | "userspace")
}

/// `0-3,6` as numbers.
fn numbers(list: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        all.extend(first.parse::<usize>().ok()?..=last.parse::<usize>().ok().filter(|&last| last < 65_536)?);
    }
    Some(all)
}

/// What each core calls itself in `/proc/cpuinfo`: a model name on x86, implementer and part on ARM.
fn names_of(cpuinfo: &str) -> BTreeMap<usize, String> {
    let mut names = BTreeMap::new();
    for block in cpuinfo.split("\n\n") {
        let field = |key: &str| {
            let line = block.lines().find(|line| line.split(':').next().is_some_and(|name| name.trim() == key))?;
            line.split_once(':').map(|(_, value)| value.split_whitespace().collect::<Vec<_>>().join(" "))
        };
        let Some(core) = field("processor").and_then(|number| number.parse().ok()) else { continue };
        let arm = || Some(arm_name(&field("CPU implementer")?, &field("CPU part")?));
        if let Some(name) = field("model name").filter(|_| field("CPU part").is_none()).or_else(arm) {
            names.insert(core, name);
        }
    }
    names
}

/// Names of ARM's own cores by part number, as their technical reference manuals give it (MIDR_EL1.PartNum).
fn arm_name(implementer: &str, part: &str) -> String {
    let name = match (implementer, part) {
        ("0x41", "0xd03") => "Cortex-A53",
        ("0x41", "0xd04") => "Cortex-A35",
        ("0x41", "0xd05") => "Cortex-A55",
        ("0x41", "0xd07") => "Cortex-A57",
        ("0x41", "0xd08") => "Cortex-A72",
        ("0x41", "0xd09") => "Cortex-A73",
        ("0x41", "0xd0a") => "Cortex-A75",
        ("0x41", "0xd0b") => "Cortex-A76",
        ("0x41", "0xd0c") => "Neoverse-N1",
        ("0x41", "0xd40") => "Neoverse-V1",
        ("0x41", "0xd41") => "Cortex-A78",
        ("0x41", "0xd42") => "Cortex-A78AE",
        ("0x41", "0xd46") => "Cortex-A510",
        ("0x41", "0xd47") => "Cortex-A710",
        ("0x41", "0xd49") => "Neoverse-N2",
        ("0x41", "0xd4d") => "Cortex-A715",
        ("0x41", "0xd4f") => "Neoverse-V2",
        ("0x41", "0xd80") => "Cortex-A520",
        _ => return format!("ARM core {part} of implementer {implementer}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::super::system::board_with;
    use super::*;

    const RK3588: &str = include_str!("testdata/cpuinfo-rk3588.txt");
    const X86: &str = include_str!("testdata/cpuinfo-x86.txt");

    fn board(governor: &'static str) -> (tempfile::TempDir, System) {
        let cpu = |core: usize, file: &str| format!("{CPUS}/cpu{core}/{file}");
        let mut files = vec![("proc/cpuinfo".to_owned(), RK3588), (format!("{CPUS}/online"), "0-7\n")];
        for core in 0..8 {
            let (most, capacity) = if core < 4 { ("1800000\n", "530\n") } else { ("2400000\n", "1024\n") };
            files.push((cpu(core, "cpu_capacity"), capacity));
            files.push((cpu(core, "cpufreq/cpuinfo_max_freq"), most));
            files.push((cpu(core, "cpufreq/scaling_max_freq"), if core < 4 { "1200000\n" } else { most }));
            files.push((cpu(core, "cpufreq/scaling_governor"), governor));
        }
        board_with(&files.iter().map(|(file, text)| (file.as_str(), *text)).collect::<Vec<_>>())
    }

    #[test]
    fn big_and_little_cores_are_told_apart() {
        let (_root, system) = board("schedutil\n");
        let found = kinds(&system);
        let short: Vec<_> = found.iter().map(|kind| (kind.name.as_str(), kind.cores.clone())).collect();
        assert_eq!(short, [("Cortex-A76", vec![4, 5, 6, 7]), ("Cortex-A55", vec![0, 1, 2, 3])]);
        let cores = Cores { kinds: found, usable: (2..8).collect(), threads: 8, granted: Some(5) };
        assert_eq!(cores.samples(), [(4, 4), (2, 2)]);
        assert_eq!(cores.parallel(), 5);
        let said: Vec<_> = cores.findings().into_iter().map(|finding| (finding.level, finding.text)).collect();
        let expected = "4 × Cortex-A76 up to 2.40 GHz, 4 × Cortex-A55 up to 1.80 GHz; 6 usable (2-7)";
        assert_eq!(said[0], (Level::Fine, expected.to_owned()));
        assert_eq!(said[1].1, "control groups grant the time of 5");
        assert_eq!(said[2].1, "cores 0-3 are held at 1.20 GHz of 1.80 GHz");
        assert_eq!(said.len(), 3);
    }

    #[test]
    fn a_governor_that_ignores_the_load_is_a_warning() {
        let (_root, system) = board("powersave\n");
        let cores = Cores { kinds: kinds(&system), usable: (0..8).collect(), threads: 8, granted: None };
        let warned = cores.findings().into_iter().filter(|finding| finding.text.contains("`powersave`")).count();
        assert_eq!(warned, 2, "one for each kind");
        assert!(follows_load("powersave", "intel_pstate") && !follows_load("powersave", "cpufreq-dt"));
    }

    #[test]
    fn an_x86_has_a_model_name_and_may_lack_frequencies() {
        let (_root, system) = board_with(&[("proc/cpuinfo", X86)]);
        let found = kinds(&system);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].name.as_str(), found[0].cores.len()), ("Some Xeon(R) Processor @ 2.10GHz", 2));
        let idle = Cores { kinds: found, usable: vec![0, 1], threads: 1, granted: None };
        assert!(idle.findings().iter().any(|finding| finding.text == "1 workers on 2 cores: the others idle"));
    }

    #[test]
    fn cores_that_are_not_there_are_a_failure() {
        let (_root, system) = board_with(&[("proc/cpuinfo", X86)]);
        let cores = Cores::read(&system, &[1000], 1);
        assert_eq!(cores.findings()[0].level, Level::Failure);
    }

    #[test]
    fn lists_of_cores_are_read() {
        assert_eq!(numbers("0-2,5\n"), Some(vec![0, 1, 2, 5]));
        assert_eq!(numbers("a"), None);
        assert_eq!(arm_name("0x61", "0x22"), "ARM core 0x22 of implementer 0x61");
    }
}
