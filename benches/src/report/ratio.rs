//! Ratios, and when they are noise.

use super::collectives::Time;

/// A difference of latencies within this share is noise: round trips are not grouped in rounds.
const LATENCY_NOISE: f64 = 0.03;

/// A ratio, and whether it is noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ratio {
    pub value: f64,
    pub noise: bool,
}

impl Ratio {
    /// Returns the baseline's time divided by symmem's; noise if the rounds of both overlap.
    pub fn of(ours: Time, theirs: Time) -> Option<Self> {
        let spread = |time: Time| (time.min, time.max);
        let value = theirs.ns / ours.ns;
        Self::of_spreads(value, spread(ours), spread(theirs))
    }

    /// Returns a ratio of two figures with their lowest and highest rounds; noise if these overlap. `None` if the
    /// ratio is not finite.
    pub fn of_spreads(value: f64, a: (f64, f64), b: (f64, f64)) -> Option<Self> {
        let noise = a.0 <= b.1 && b.0 <= a.1;
        value.is_finite().then_some(Self { value, noise })
    }

    /// Returns a ratio of latencies; noise if it is close to 1. `None` if it is not finite.
    pub fn of_latencies(value: f64) -> Option<Self> {
        let noise = (1.0 - LATENCY_NOISE..=1.0 + LATENCY_NOISE).contains(&value);
        value.is_finite().then_some(Self { value, noise })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_of_rounds_that_overlap_is_noise() {
        let time = |ns: f64| Time {
            ns,
            min: ns * 0.9,
            max: ns * 1.1,
        };
        assert!(Ratio::of(time(100.0), time(105.0)).unwrap().noise);
        let ratio = Ratio::of(time(100.0), time(200.0)).unwrap();
        assert!(!ratio.noise && ratio.value == 2.0);
        assert_eq!(Ratio::of(time(0.0), time(0.0)), None);
    }

    #[test]
    fn latencies_within_three_percent_are_noise() {
        let noise = [0.96, 0.98, 1.02, 1.04].map(|value| Ratio::of_latencies(value).unwrap().noise);
        assert_eq!(noise, [false, true, true, false]);
    }
}
