//! Figures computed from the runs of a measurement.

use super::cases::{CPU, Case, DUAL, SlotAccess};
use super::child::RunFigures;
use serde::Serialize;
use std::collections::BTreeSet;

/// The speed-up of learning on ImageNet that DDLP's authors published (arXiv 2407.00005), for comparison.
pub const PUBLISHED_FACTOR: f64 = 1.235;

/// Returns the middle value, or the mean of the two middle values; `None` for no values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[half]),
        _ => Some((sorted[half - 1] + sorted[half]) / 2.0),
    }
}

/// Returns the largest minus the smallest value, as a share of the median; `None` for a single value.
pub fn spread(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let largest = values.iter().copied().fold(f64::MIN, f64::max);
    let smallest = values.iter().copied().fold(f64::MAX, f64::min);
    median(values).filter(|median| *median > 0.0).map(|median| (largest - smallest) / median)
}

/// Results of the measurement, as in the JSON output.
#[derive(Debug, Serialize)]
pub struct DualFigures {
    pub version: String,
    pub machine: String,
    pub dataset: String,
    pub dataset_samples: u64,
    pub pipeline: String,
    /// Bytes of a prepared image.
    pub image_bytes: u64,
    pub batch: u32,
    pub samples: u64,
    /// Whole rounds that were measured; also 1 if the first round was stopped.
    pub rounds: u64,
    /// Whether all rounds were completed.
    pub is_complete: bool,
    /// Names of the corrupt samples, which the runs left out.
    pub corrupt: Vec<String>,
    pub throttle: f64,
    pub host_cores: String,
    pub drive_cores: String,
    /// The reason why the figures mean little, if there are too few cores.
    pub too_few_cores: Option<String>,
    pub published_factor: f64,
    /// The CPU alone.
    pub cpu: CaseFigures,
    /// The strategies with the first kind of slots.
    pub strategies: Vec<CaseFigures>,
    /// Everything, by kind of slots.
    pub slots: Vec<SlotFigures>,
}

/// The runs of one case.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The case.
    pub case: Case,
    /// One entry per round.
    pub runs: Vec<RunFigures>,
}

/// The figures of one case, as in the JSON output: medians over the rounds, unless said otherwise.
#[derive(Clone, Debug, Serialize)]
pub struct CaseFigures {
    /// `cpu`, `csd`, `mte`, `wrr` or `ordered`.
    pub strategy: &'static str,
    /// Images per second.
    pub images_per_s: f64,
    /// Rate of both prongs together ÷ (rate of the CPU alone + rate of the drive alone). `None` for one prong alone.
    pub efficiency: Option<f64>,
    /// Images per second of each round.
    pub images_per_s_rounds: Vec<f64>,
    /// Largest minus smallest rate, as a share of the median. `None` for one round.
    pub spread: Option<f64>,
    /// Share of the images that the drive prepared.
    pub drive_share: f64,
    /// Host CPU time for 1000 images in seconds.
    pub host_cpu_s_per_1000_images: f64,
    /// Share of host CPU time that is saved per image, compared with the CPU alone, ÷ the drive's share of the images.
    pub host_cpu_saved_over_drive_share: Option<f64>,
    /// Images per second ÷ images per second of the CPU alone.
    pub factor_over_cpu: f64,
    /// That factor ÷ (1 + rate of the drive alone ÷ rate of the CPU alone).
    pub factor_over_ideal: Option<f64>,
    /// Time before the run, for opening, starting the drive and allocating result slots, in seconds.
    pub setup_s: f64,
    /// Time until the first batch, in seconds.
    pub first_batch_s: f64,
    /// The batch at which the prongs met, in the last round.
    pub meeting_point: Option<u32>,
    /// Largest value of all rounds, in 10⁶ bytes.
    pub host_peak_memory_mb: f64,
    /// Result slots that host and drive share, in 10⁶ bytes; not included in the host's peak.
    pub slot_memory_mb: f64,
    /// Largest value of all rounds, including mapped slots.
    pub drive_peak_memory_mb: Option<f64>,
    /// Bytes of samples that the host's CPU prong read, in 10⁶ bytes, mean of the rounds.
    pub read_mb: f64,
    /// The same in blocks of 4 KiB, if the dataset is a pack.
    pub read_blocks_mb: Option<f64>,
    /// All bytes of these samples.
    pub read_samples_mb: f64,
    /// Batches that were prepared but not used, in all rounds.
    pub wasted_batches: u64,
    /// Faults, in all rounds.
    pub faults: usize,
    /// Messages of the faults and recoveries, without repetition.
    pub fault_texts: Vec<String>,
    /// Limits that bounded a run, in words.
    pub notes: Vec<String>,
}

/// All figures for one way of getting results.
#[derive(Clone, Debug, Serialize)]
pub struct SlotFigures {
    /// The way of getting results.
    pub results: SlotAccess,
    /// The drive alone, then the strategies.
    pub cases: Vec<CaseFigures>,
    /// Host CPU time for an image that the drive prepared, in microseconds, measured with the drive alone.
    pub host_cpu_us_per_drive_image: f64,
}

impl Measured {
    fn of(&self, figure: impl Fn(&RunFigures) -> f64) -> Vec<f64> {
        self.runs.iter().map(figure).collect()
    }

    fn mean(&self, figure: impl Fn(&RunFigures) -> f64) -> f64 {
        self.of(figure).iter().sum::<f64>() / self.runs.len().max(1) as f64
    }

    fn rate(&self) -> f64 {
        median(&self.of(|run| run.images_per_s)).unwrap_or(0.0)
    }

    fn host_cpu_s_per_image(&self) -> f64 {
        median(&self.of(|run| run.host_cpu_s / run.images.max(1) as f64)).unwrap_or(0.0)
    }

    fn drive_share(&self) -> f64 {
        let share = |run: &RunFigures| {
            let drives: u64 = run.prongs.iter().skip(1).map(|prong| prong.images).sum();
            drives as f64 / run.images.max(1) as f64
        };
        median(&self.of(share)).unwrap_or(0.0)
    }

    /// Returns the texts that `texts` takes from the runs, sorted and without repetition.
    fn distinct(&self, texts: impl Fn(&RunFigures) -> Vec<String>) -> Vec<String> {
        self.runs.iter().flat_map(texts).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Returns the figures of this case, compared with the figures of each prong alone.
    pub fn figures(&self, cpu: &Measured, csd: Option<&Measured>) -> CaseFigures {
        let rates = self.of(|run| run.images_per_s);
        let (rate, share) = (self.rate(), self.drive_share());
        let dual = csd.filter(|_| DUAL.contains(&self.case.strategy));
        let saved = 1.0 - self.host_cpu_s_per_image() / cpu.host_cpu_s_per_image();
        let memory =
            |run: &RunFigures| run.prongs.iter().skip(1).filter_map(|prong| prong.peak_memory_mb).reduce(f64::max);
        let is_pack = self.runs.iter().all(|run| run.read_blocks_mb.is_some());
        CaseFigures {
            strategy: self.case.strategy,
            images_per_s: rate,
            efficiency: dual.map(|csd| rate / (cpu.rate() + csd.rate())),
            spread: spread(&rates),
            images_per_s_rounds: rates,
            drive_share: share,
            host_cpu_s_per_1000_images: self.host_cpu_s_per_image() * 1000.0,
            host_cpu_saved_over_drive_share: dual.filter(|_| share > 0.0).map(|_| saved / share),
            factor_over_cpu: rate / cpu.rate(),
            factor_over_ideal: dual.map(|csd| rate / cpu.rate() / (1.0 + csd.rate() / cpu.rate())),
            setup_s: median(&self.of(|run| run.setup_s)).unwrap_or(0.0),
            first_batch_s: median(&self.of(|run| run.first_batch_s)).unwrap_or(0.0),
            meeting_point: self.runs.last().and_then(|run| run.meeting_point),
            host_peak_memory_mb: self.of(|run| run.peak_memory_mb).into_iter().fold(0.0, f64::max),
            slot_memory_mb: self.of(|run| run.slot_memory_mb).into_iter().fold(0.0, f64::max),
            drive_peak_memory_mb: self.runs.iter().filter_map(memory).reduce(f64::max),
            read_mb: self.mean(|run| run.read_mb),
            read_blocks_mb: is_pack.then(|| self.mean(|run| run.read_blocks_mb.unwrap_or_default())),
            read_samples_mb: self.mean(|run| run.read_samples_mb),
            wasted_batches: self.runs.iter().flat_map(|run| &run.prongs).map(|prong| prong.wasted_batches).sum(),
            faults: self.runs.iter().map(|run| run.fault_count).sum(),
            fault_texts: self.distinct(|run| run.faults.iter().map(|fault| fault.what.clone()).collect()),
            notes: self.distinct(|run| run.notes.clone()),
        }
    }
}

/// Leaves only whole rounds, so that all cases have equally many runs; if not even the first round is whole, leaves the
/// cases that were measured in it. Returns the number of rounds that are left.
pub fn whole_rounds(measured: &mut Vec<Measured>) -> u64 {
    let whole = measured.iter().map(|measured| measured.runs.len()).min().unwrap_or(0);
    let kept = whole.max(1);
    for measured in measured.iter_mut() {
        measured.runs.truncate(kept);
    }
    measured.retain(|measured| !measured.runs.is_empty());
    kept as u64
}

/// Returns the names of the corrupt samples, which the runs left out.
pub fn corrupt_samples(measured: &[Measured]) -> Vec<String> {
    let runs = measured.iter().flat_map(|measured| &measured.runs);
    let names = runs.flat_map(|run| run.corrupt.iter().map(|corrupt| corrupt.sample.clone()));
    names.collect::<BTreeSet<_>>().into_iter().collect()
}

fn find(measured: &[Measured], case: Case) -> Option<&Measured> {
    measured.iter().find(|measured| measured.case == case)
}

/// Returns the figures of the CPU alone.
pub fn cpu_figures(measured: &[Measured]) -> Option<CaseFigures> {
    let cpu = find(measured, CPU)?;
    Some(cpu.figures(cpu, None))
}

/// Returns the figures for one way of getting results; `None` if it was not measured.
pub fn slot_figures(measured: &[Measured], slots: SlotAccess) -> Option<SlotFigures> {
    let cpu = find(measured, CPU)?;
    let csd = find(measured, Case { strategy: "csd", slots: Some(slots) })?;
    let cases = measured.iter().filter(|measured| measured.case.slots == Some(slots));
    Some(SlotFigures {
        results: slots,
        cases: cases.map(|measured| measured.figures(cpu, Some(csd))).collect(),
        host_cpu_us_per_drive_image: csd.host_cpu_s_per_image() * 1e6,
    })
}

#[cfg(test)]
mod tests {
    use super::super::child::ProngFigures;
    use super::*;

    #[test]
    fn medians_and_spread() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(spread(&[90.0, 100.0, 110.0]), Some(0.2));
        assert_eq!((spread(&[]), spread(&[3.0])), (None, None));
    }

    fn measured(strategy: &'static str, rates: &[f64], cpu_s: f64, drive_images: u64) -> Measured {
        let prong = |images| ProngFigures { images, peak_memory_mb: Some(50.0), ..ProngFigures::default() };
        let run = |rate: &f64| RunFigures {
            images: 1000,
            images_per_s: *rate,
            host_cpu_s: cpu_s,
            prongs: vec![prong(1000 - drive_images), prong(drive_images)],
            notes: vec!["bound".into()],
            ..RunFigures::default()
        };
        let slots = (strategy != "cpu").then_some(SlotAccess::Shared);
        Measured { case: Case { strategy, slots }, runs: rates.iter().map(run).collect() }
    }

    #[test]
    fn a_stopped_measurement_keeps_whole_rounds() {
        let mut all = vec![measured("cpu", &[1.0, 2.0], 1.0, 0), measured("csd", &[1.0], 1.0, 0)];
        assert_eq!(whole_rounds(&mut all), 1);
        assert!(all.iter().all(|measured| measured.runs.len() == 1));
        // Stopped in the first round, before the strategies.
        let mut first =
            vec![measured("cpu", &[1.0], 1.0, 0), measured("csd", &[1.0], 1.0, 0), measured("wrr", &[], 1.0, 0)];
        assert_eq!((whole_rounds(&mut first), first.len()), (1, 2));
        assert_eq!(slot_figures(&first, SlotAccess::Shared).unwrap().cases.len(), 1);
        let mut nothing = vec![measured("cpu", &[], 1.0, 0)];
        whole_rounds(&mut nothing);
        assert!(cpu_figures(&nothing).is_none());
    }

    #[test]
    fn efficiency_and_factors_follow_from_medians() {
        let all = [
            measured("cpu", &[600.0, 610.0, 590.0], 1.6, 0),
            measured("csd", &[400.0, 300.0, 410.0], 0.02, 1000),
            measured("wrr", &[950.0, 980.0, 990.0], 0.96, 400),
        ];
        let figures = slot_figures(&all, SlotAccess::Shared).unwrap();
        assert_eq!(figures.host_cpu_us_per_drive_image.round(), 20.0);
        let wrr = figures.cases.iter().find(|case| case.strategy == "wrr").unwrap();
        assert_eq!(wrr.efficiency, Some(0.98));
        assert!((wrr.factor_over_cpu - 980.0 / 600.0).abs() < 1e-12);
        assert!((wrr.factor_over_ideal.unwrap() - 0.98).abs() < 1e-12);
        // 40 % less host CPU at a share of 40 %.
        assert!((wrr.host_cpu_saved_over_drive_share.unwrap() - 1.0).abs() < 1e-12);
        assert_eq!((wrr.drive_share, wrr.notes.len()), (0.4, 1));
        let csd = figures.cases.iter().find(|case| case.strategy == "csd").unwrap();
        assert_eq!(csd.efficiency, None);
        assert!(slot_figures(&all, SlotAccess::Read).is_none());
        assert_eq!(cpu_figures(&all).unwrap().drive_share, 0.0);
    }
}
