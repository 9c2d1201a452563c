//! How many samples of a store may be in flight. No clock, no I/O: the caller says when samples start and come.
//!
//! A depth of `auto` begins small and doubles every round trip, as long as samples then come faster. When they do not,
//! it is set to twice the rate times the least latency: what the path holds, and as much again for jitter. From time to
//! time, the depth grows as a trial, in case more samples in flight are faster by now. Each time that the store pushes
//! back, the depth shrinks.
//!
//! Only a round in which the depth held back requests shows whether the depth is too small.

/// First depth of `auto`.
const FIRST: usize = 16;
/// Least depth of `auto`.
const LEAST: usize = 4;
/// Least samples by which a rate is judged.
const ROUND_SAMPLES: u64 = 8;
/// Shortest time by which a rate is judged, in seconds.
const ROUND_S_MIN: f64 = 0.02;
/// Gain of rate that is worth a larger depth.
const GAIN: f64 = 1.05;
/// Rounds without a gain after which the depth is large enough. One alone may be chance.
const MISSES: u32 = 2;
/// Rounds between two trials of a larger depth.
const TRIAL_EVERY: u32 = 16;
/// Weight of the newest latency in the average.
const NEWEST: f64 = 0.125;

/// The bound on the samples in flight.
#[derive(Clone, Debug)]
pub struct Depth {
    limit: usize,
    most: usize,
    auto: Option<Auto>,
}

/// What `auto` has measured.
#[derive(Clone, Debug)]
struct Auto {
    /// When the round began, and the samples that have come in it.
    began: f64,
    came: u64,
    /// Whether the depth kept a sample from being asked for in this round.
    was_reached: bool,
    latency: f64,
    latency_min: f64,
    /// Best rate so far while the depth grows; after that the rate before the last trial.
    rate: f64,
    phase: Phase,
    /// The store was told to have less until then.
    relieved_until: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Growing {
        misses: u32,
    },
    /// The depth is large enough. It was `before` when the last trial began.
    Steady {
        rounds: u32,
        before: usize,
    },
}

impl Depth {
    /// Returns a depth that stays as it is.
    pub fn fixed(limit: usize) -> Self {
        Self { limit, most: limit, auto: None }
    }

    /// Returns a depth that follows latency and rate, up to `most`.
    pub fn auto(most: usize) -> Self {
        let auto = Auto {
            began: 0.0,
            came: 0,
            was_reached: false,
            latency: 0.0,
            latency_min: f64::INFINITY,
            rate: 0.0,
            phase: Phase::Growing { misses: 0 },
            relieved_until: 0.0,
        };
        Self { limit: FIRST.min(most), most, auto: Some(auto) }
    }

    /// Returns a depth that stays `most` until the store pushes back, and then grows again by trial.
    pub fn most(most: usize) -> Self {
        let depth = Self::auto(most);
        let auto = depth.auto.map(|auto| Auto { phase: Phase::Steady { rounds: 0, before: most }, ..auto });
        Self { limit: most, auto, ..depth }
    }

    /// Returns the most samples that may be in flight now.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Records that there was a sample to ask for, but no more may be in flight.
    pub fn reached(&mut self) {
        self.auto.iter_mut().for_each(|auto| auto.was_reached = true);
    }

    /// Records that a sample came at `now`, this many seconds after it was asked for.
    pub fn came(&mut self, now: f64, latency: f64) {
        let Some(auto) = &mut self.auto else { return };
        if auto.latency == 0.0 {
            (auto.latency, auto.began) = (latency, now - latency);
        }
        auto.latency += NEWEST * (latency - auto.latency);
        auto.latency_min = auto.latency_min.min(latency);
        auto.came += 1;
        if auto.came < ROUND_SAMPLES || now - auto.began < auto.latency.max(ROUND_S_MIN) {
            return;
        }
        let rate = auto.came as f64 / (now - auto.began);
        if auto.was_reached {
            self.limit = auto.judge(rate, self.limit).clamp(LEAST.min(self.most), self.most);
        }
        (auto.began, auto.came, auto.was_reached) = (now, 0, false);
    }

    /// Records that the store could not keep up.
    pub fn pushed_back(&mut self, now: f64) {
        let Some(auto) = &mut self.auto else { return };
        if now < auto.relieved_until {
            // What was in flight then says nothing about the smaller depth.
            return;
        }
        auto.relieved_until = now + 2.0 * auto.latency.max(ROUND_S_MIN);
        self.limit = (self.limit * 7 / 10).max(LEAST.min(self.most));
        auto.phase = Phase::Steady { rounds: 0, before: self.limit };
    }
}

impl Auto {
    /// Returns the depth after a round of this rate, in which samples had to wait for the `limit`.
    fn judge(&mut self, rate: f64, limit: usize) -> usize {
        match self.phase {
            Phase::Growing { .. } if rate > self.rate * GAIN => {
                (self.rate, self.phase) = (rate, Phase::Growing { misses: 0 });
                limit * 2
            }
            Phase::Growing { misses } if misses + 1 < MISSES => {
                self.phase = Phase::Growing { misses: misses + 1 };
                limit
            }
            Phase::Growing { .. } => {
                let held = (2.0 * self.rate * self.latency_min).ceil() as usize;
                let limit = held.clamp(FIRST, limit.max(FIRST));
                self.phase = Phase::Steady { rounds: 0, before: limit };
                limit
            }
            Phase::Steady { rounds, before } if rounds + 1 < TRIAL_EVERY => {
                self.phase = Phase::Steady { rounds: rounds + 1, before };
                limit
            }
            Phase::Steady { before, .. } => {
                let is_in_vain = limit > before && rate < self.rate * GAIN;
                let kept = if is_in_vain { before } else { limit };
                let next = if is_in_vain { kept } else { kept + (kept / 4).max(1) };
                (self.rate, self.phase) = (rate, Phase::Steady { rounds: 0, before: kept });
                next
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Runs a path that delivers a sample every `every_s` seconds, each at the earliest `latency_s` after it was asked
    /// for. Returns the depth after these seconds, and the samples per second of the second half.
    fn over(depth: &mut Depth, (latency_s, every_s): (f64, f64), seconds: f64) -> (usize, f64) {
        let (mut now, mut free, mut came) = (0.0, 0.0, 0);
        let mut flying: VecDeque<(f64, f64)> = VecDeque::new();
        while now < seconds {
            while flying.len() < depth.limit() {
                free = f64::max(free + every_s, now + latency_s);
                flying.push_back((now, free));
            }
            depth.reached();
            let (asked, at) = flying.pop_front().expect("a depth of at least one");
            now = at;
            depth.came(now, now - asked);
            came += u32::from(now > seconds / 2.0);
        }
        (depth.limit(), f64::from(came) / (seconds / 2.0))
    }

    #[test]
    fn auto_finds_the_depth_that_the_path_holds() {
        // 100 ms, 2000 samples a second: 200 fill the path.
        let (limit, rate) = over(&mut Depth::auto(1024), (0.1, 0.0005), 20.0);
        assert!(rate > 1900.0, "{rate} samples a second");
        assert!((200..=640).contains(&limit), "{limit}");
        // Without latency, a few are enough.
        let (limit, rate) = over(&mut Depth::auto(1024), (0.0001, 0.001), 20.0);
        assert!(rate > 950.0 && limit <= 64, "{rate} samples a second with {limit}");
        // The bound is reached where the path holds more.
        let (limit, _) = over(&mut Depth::auto(64), (0.1, 0.0005), 20.0);
        assert_eq!(limit, 64);
    }

    #[test]
    fn a_depth_that_nobody_needs_does_not_grow() {
        let mut depth = Depth::auto(1024);
        (1..1000).for_each(|sample| depth.came(f64::from(sample) * 0.01, 0.1));
        assert_eq!(depth.limit(), FIRST);
    }

    #[test]
    fn a_store_that_pushes_back_gets_less_once_a_round_trip_and_more_later() {
        let mut depth = Depth::auto(1024);
        let (before, _) = over(&mut depth, (0.1, 0.0005), 2.0);
        (0..50).for_each(|_| depth.pushed_back(2.0));
        assert_eq!(depth.limit(), before * 7 / 10);
        depth.pushed_back(4.0);
        assert_eq!(depth.limit(), before * 7 / 10 * 7 / 10);
        (0..1000).for_each(|time| depth.pushed_back(10.0 + f64::from(time)));
        assert_eq!(depth.limit(), LEAST);
        let mut depth = Depth { auto: depth.auto.map(|auto| Auto { began: 0.0, ..auto }), ..depth };
        let (limit, _) = over(&mut depth, (0.1, 0.0005), 200.0);
        assert!(limit > 50, "{limit}");
        let mut depth = Depth::most(600);
        assert_eq!(over(&mut depth, (0.0001, 0.001), 20.0).0, 600);
        depth.pushed_back(20.0);
        assert_eq!(depth.limit(), 420);
        let mut fixed = Depth::fixed(7);
        fixed.pushed_back(1.0);
        assert_eq!(fixed.limit(), 7);
    }
}
