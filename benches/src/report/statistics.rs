//! Summaries of repeated measurements.

use serde::{Deserialize, Serialize};

/// A rate and a time, over several rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Median over rounds, GB/s.
    pub gbps: f64,
    /// Slowest round, GB/s.
    pub min: f64,
    /// Fastest round, GB/s.
    pub max: f64,
    /// Median time of one transfer, ns.
    pub ns: f64,
}

impl Timing {
    /// Summarizes transfers of `bytes`, given the time of one transfer in each round in nanoseconds.
    ///
    /// `None` without rounds, or if a time is not positive and finite.
    pub fn from_rounds(bytes: u64, ns: &[f64]) -> Option<Self> {
        let sorted = sorted_times(ns)?;
        let gbps = |ns: f64| bytes as f64 / ns;
        Some(Self {
            gbps: gbps(median(&sorted)),
            min: gbps(sorted[sorted.len() - 1]),
            max: gbps(sorted[0]),
            ns: median(&sorted),
        })
    }
}

/// Times of single transfers or calls.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SingleShot {
    /// Median, ns.
    pub p50_ns: f64,
    /// 99th percentile, ns.
    pub p99_ns: f64,
}

impl SingleShot {
    /// Summarizes the times of all transfers in nanoseconds; `None` without samples, or if a time is not
    /// positive and finite.
    pub fn from_samples(ns: &[f64]) -> Option<Self> {
        let sorted = sorted_times(ns)?;
        Some(Self {
            p50_ns: median(&sorted),
            p99_ns: p99(&sorted),
        })
    }
}

/// The distribution of times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Median, ns.
    pub median: f64,
    /// Minimum, ns.
    pub min: f64,
    /// 99th percentile, ns.
    pub p99: f64,
}

impl Spread {
    /// Summarizes the times of all messages in nanoseconds; `None` without samples, or if a time is not
    /// positive and finite.
    pub fn from_samples(ns: &[f64]) -> Option<Self> {
        let sorted = sorted_times(ns)?;
        Some(Self {
            median: median(&sorted),
            min: sorted[0],
            p99: p99(&sorted),
        })
    }
}

/// Sorts times; `None` if there are none, or if a time is not positive and finite.
fn sorted_times(ns: &[f64]) -> Option<Vec<f64>> {
    if ns.is_empty() || !ns.iter().all(|ns| ns.is_finite() && *ns > 0.0) {
        return None;
    }
    let mut sorted = ns.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(sorted)
}

/// The median of sorted times: the middle one, or the mean of the middle two.
fn median(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[half]
    } else {
        (sorted[half - 1] + sorted[half]) / 2.0
    }
}

/// The 99th percentile of sorted times, by nearest rank.
fn p99(sorted: &[f64]) -> f64 {
    let rank = (sorted.len() * 99).div_ceil(100);
    sorted[rank - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timing_is_the_median_of_its_rounds() {
        let timing = Timing::from_rounds(1000, &[4.0, 10.0, 5.0]).unwrap();
        assert_eq!(
            timing,
            Timing {
                gbps: 200.0,
                min: 100.0,
                max: 250.0,
                ns: 5.0
            }
        );
        assert_eq!(
            Timing::from_rounds(1000, &[4.0, 6.0]).unwrap().ns,
            5.0,
            "an even number of rounds has the mean of the middle two"
        );
    }

    #[test]
    fn no_statistic_comes_from_no_time_or_an_impossible_one() {
        for ns in [&[][..], &[0.0], &[1.0, f64::NAN], &[-1.0], &[f64::INFINITY]] {
            assert_eq!(Timing::from_rounds(8, ns), None, "{ns:?}");
            assert_eq!(SingleShot::from_samples(ns), None, "{ns:?}");
            assert_eq!(Spread::from_samples(ns), None, "{ns:?}");
        }
    }

    #[test]
    fn the_99th_percentile_is_by_nearest_rank() {
        let samples: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        let spread = Spread::from_samples(&samples).unwrap();
        assert_eq!((spread.min, spread.median, spread.p99), (1.0, 100.5, 198.0));
        assert_eq!(SingleShot::from_samples(&[7.0]).unwrap().p99_ns, 7.0);
    }
}
