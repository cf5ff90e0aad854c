//! Where values lie on an axis, and its ticks.

/// Most ticks on an axis.
const MOST_TICKS: i32 = 8;

/// An axis in the logarithms of what it shows, or in the values themselves.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Axis {
    pub ticks: Vec<f64>,
    pub low: f64,
    pub high: f64,
}

impl Axis {
    /// Between 0 and 1 for values on the axis.
    pub fn place(&self, value: f64) -> f64 {
        (value - self.low) / (self.high - self.low)
    }

    /// Over whole powers, at a stride that leaves between 2 and about [`MOST_TICKS`] ticks.
    pub fn of_powers(low: i32, high: i32) -> Self {
        let high = high.max(low + 1);
        let stride = (high - low + MOST_TICKS - 1) / MOST_TICKS;
        Self {
            ticks: (low..=high)
                .step_by(stride as usize)
                .map(f64::from)
                .collect(),
            low: low.into(),
            high: high.into(),
        }
    }

    /// Between steps of 1, 2, 5, 10, 20, …; an axis within a decade has each digit for a step, and of
    /// an axis of many decades only whole ones are ticks.
    pub fn of_decades(least: f64, most: f64) -> Self {
        let (least, most) = (least.log10(), most.log10());
        let (first, last) = (least.floor() as i32, most.ceil() as i32);
        let digits: &[f64] = if most - least < 1.0 {
            &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
        } else {
            &[1.0, 2.0, 5.0]
        };
        let steps: Vec<f64> = (first..=last.max(first + 1))
            .flat_map(|decade| {
                digits
                    .iter()
                    .map(move |digit| f64::from(decade) + digit.log10())
            })
            .collect();
        // The first step is at or below `least`, and the last above `most`.
        let below = steps.iter().rposition(|step| *step <= least).unwrap_or(0);
        let above = steps.iter().position(|step| *step >= most);
        let above = above.unwrap_or(steps.len() - 1).max(below + 1);
        let (low, high) = (steps[below], steps[above]);
        let ticks = if high - low > 3.0 {
            let (first, last) = (low.ceil() as i32, high.floor() as i32);
            Self::of_powers(first, last).ticks
        } else {
            steps[below..=above].to_vec()
        };
        Self { ticks, low, high }
    }

    /// From 0 to `most`, in steps of 1, 2 or 5 times a power of ten.
    pub fn from_zero(most: f64) -> Self {
        let power = 10f64.powf((most / 4.0).log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power);
        let step = steps.into_iter().find(|step| most / step <= 5.0);
        let step = step.unwrap_or(steps[3]);
        let count = (most / step).ceil().clamp(1.0, 6.0) as u32;
        Self {
            ticks: (0..=count).map(|tick| f64::from(tick) * step).collect(),
            low: 0.0,
            high: f64::from(count) * step,
        }
    }
}

/// The label of a tick: one digit or two, and zeros.
pub(super) fn label(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    // A tick is made of its logarithm, so it is a little off.
    let power = (value.log10() + 1e-9).floor();
    if !(-4.0..6.0).contains(&power) {
        return format!("{value:.0e}");
    }
    let digits = 1 - power as i32;
    let text = format!("{value:.*}", digits.max(0) as usize);
    match digits > 0 {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_ticks_and_hold_every_point() {
        for (least, most) in [
            (0.2, 350.0),
            (1.0, 1.0),
            (0.99, 1.01),
            (2.0, 5.0),
            (9.9, 99.0),
            (1e-9, 1e3),
        ] {
            let axis = Axis::of_decades(least, most);
            assert!(axis.ticks.len() >= 2, "{axis:?}");
            assert!(axis.ticks.len() <= 13, "{axis:?}");
            assert!(
                axis.low <= least.log10() && most.log10() <= axis.high,
                "{least} {most} {axis:?}"
            );
        }
        let axis = Axis::of_powers(11, 30);
        assert_eq!(axis.ticks, [11.0, 14.0, 17.0, 20.0, 23.0, 26.0, 29.0]);
    }

    #[test]
    fn an_axis_from_zero_has_a_few_round_ticks() {
        for most in [1e-3, 0.7, 1.0, 4.0, 7.9, 989.5, 2e6] {
            let axis = Axis::from_zero(most);
            assert!((2..=7).contains(&axis.ticks.len()), "{axis:?}");
            assert!(axis.high >= most && axis.high <= 2.5 * most, "{axis:?}");
        }
        assert_eq!(
            Axis::from_zero(989.5).ticks,
            [0.0, 200.0, 400.0, 600.0, 800.0, 1000.0]
        );
    }

    #[test]
    fn labels_are_exact() {
        let labels = [0.0, 0.01, 0.1, 0.5, 1.0, 5.0, 1000.0, 2.5, 1e-9].map(label);
        assert_eq!(
            labels,
            ["0", "0.01", "0.1", "0.5", "1", "5", "1000", "2.5", "1e-9"]
        );
    }
}
