//! A linear axis: from values to pixels, with ticks at round values.

/// Maps `0..=end` to `from..=to` pixels.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    end: f64,
    from: f64,
    to: f64,
}

impl Axis {
    /// Creates an axis for values from 0 to `end`; an `end` that is not a positive number counts as 1.
    pub fn new(end: f64, from: f64, to: f64) -> Self {
        let end = if end.is_finite() && end > 0.0 { end } else { 1.0 };
        Self { end, from, to }
    }

    /// Returns the largest value.
    pub fn end(&self) -> f64 {
        self.end
    }

    /// Returns the pixel of a value; values outside of the axis are moved to its ends.
    pub fn at(&self, value: f64) -> f64 {
        let share = if value.is_finite() { (value / self.end).clamp(0.0, 1.0) } else { 0.0 };
        self.from + share * (self.to - self.from)
    }

    /// Returns the ticks, with labels that share one suitable unit of time.
    pub fn time_ticks(&self, wanted: usize) -> Vec<(f64, String)> {
        let (unit, name) = match self.end {
            end if end < 1.0 => (1e-3, "ms"),
            end if end < 300.0 => (1.0, "s"),
            end if end < 18_000.0 => (60.0, "min"),
            _ => (3600.0, "h"),
        };
        let scaled = Axis { end: self.end / unit, ..*self };
        let label = |tick: f64| format!("{} {name}", short(tick));
        scaled.ticks(wanted).into_iter().map(|tick| (tick * unit, label(tick))).collect()
    }

    /// Returns round values that divide the axis into about `wanted` parts, beginning with 0.
    pub fn ticks(&self, wanted: usize) -> Vec<f64> {
        let step = round_step(self.end / wanted.max(1) as f64);
        let last = (self.end / step + 1e-9).floor() as usize;
        (0..=last).map(|index| index as f64 * step).collect()
    }
}

/// Returns the smallest number not below `least` that is 1, 2 or 5 times a power of ten.
pub fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= least * 0.999_999)
        .unwrap_or(power * 10.0)
}

/// Formats a round value without needless digits, its thousands grouped.
pub fn short(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        return crate::text::count(value as u64);
    }
    let digits = format!("{value:.6}");
    digits.trim_end_matches('0').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_become_pixels_and_stay_inside() {
        let axis = Axis::new(10.0, 100.0, 200.0);
        assert_eq!(axis.at(5.0), 150.0);
        assert_eq!(axis.at(-1.0), 100.0);
        assert_eq!(axis.at(99.0), 200.0);
        assert_eq!(axis.at(f64::NAN), 100.0);
        let upwards = Axis::new(4.0, 80.0, 0.0);
        assert_eq!(upwards.at(1.0), 60.0);
    }

    #[test]
    fn an_empty_axis_is_still_an_axis() {
        for end in [0.0, -3.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Axis::new(end, 0.0, 10.0).end(), 1.0);
        }
    }

    #[test]
    fn labels_share_one_unit() {
        let labels =
            |end| Axis::new(end, 0.0, 1.0).time_ticks(4).into_iter().map(|(_, label)| label).collect::<Vec<_>>();
        assert_eq!(labels(0.04), ["0 ms", "10 ms", "20 ms", "30 ms", "40 ms"]);
        assert_eq!(labels(2.0), ["0 s", "0.5 s", "1 s", "1.5 s", "2 s"]);
        assert_eq!(labels(1200.0), ["0 min", "5 min", "10 min", "15 min", "20 min"]);
        assert_eq!(short(12_000.0), "12,000");
    }

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(Axis::new(10.0, 0.0, 1.0).ticks(5), vec![0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(Axis::new(0.9, 0.0, 1.0).ticks(4), vec![0.0, 0.5]);
        for end in [1e-9, 0.003, 0.7, 1.0, 17.0, 86_400.0, 1e15] {
            let ticks = Axis::new(end, 0.0, 1.0).ticks(8);
            assert!((2..=9).contains(&ticks.len()), "{end}: {ticks:?}");
            assert!(ticks.iter().all(|tick| *tick <= end * 1.000_001));
        }
    }
}
