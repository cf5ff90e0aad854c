//! Formatting of numbers and names.

/// Formats a value with at least three significant digits, and from 1 on with at most two decimals.
pub(super) fn significant(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        small if small < 1e-4 => format!("{value:.2e}"),
        small if small < 1.0 => {
            let decimals = 2 - small.log10().floor() as i32;
            format!("{value:.*}", decimals as usize)
        }
        few if few < 100.0 => format!("{value:.2}"),
        many if many < 1e9 => format!("{value:.1}"),
        _ => format!("{value:.2e}"),
    }
}

/// Formats a size exactly, in the largest binary unit that divides it: `2 KiB`, `4 MiB`, `1000003 B`.
pub(super) fn size(bytes: u64) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes != 0 && bytes.trailing_zeros() >= shift {
            return format!("{} {unit}", bytes >> shift);
        }
    }
    format!("{bytes} B")
}

/// Formats a rate with its significant digits, padded so that decimal points align in a column.
pub(super) fn rate(gbps: f64) -> String {
    match gbps {
        gbps if gbps < 1.0 => format!("{gbps:.3}"),
        gbps if gbps < 100.0 => format!("{gbps:.2} "),
        gbps => format!("{gbps:.1}  "),
    }
}

/// Formats TFLOP/s; the host backend needs more decimals.
pub(super) fn tflops(teraflops: f64) -> String {
    match teraflops {
        few if few < 1.0 => format!("{few:.5}"),
        many => format!("{many:.1}"),
    }
}

pub(super) fn microseconds(ns: f64) -> String {
    let digits = if ns < 100e3 { 1 } else { 0 };
    format!("{:.digits$}", ns / 1e3)
}

/// Formats a time with at most five significant digits, as nccl-tests does.
pub(super) fn decimal(value: f64) -> String {
    match value {
        value if value < 100.0 => format!("{value:.2}"),
        value if value < 10_000.0 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

pub(super) fn fine_microseconds(ns: f64) -> String {
    format!("{:.3}", ns / 1e3)
}

/// Formats the range of values: `a`, `a–b`, or an empty string for no values.
pub(super) fn range(values: &[u64], show: impl Fn(u64) -> String) -> String {
    match (values.iter().min(), values.iter().max()) {
        (Some(&least), Some(&most)) if least != most => format!("{}–{}", show(least), show(most)),
        (Some(&only), _) => show(only),
        _ => String::new(),
    }
}

pub(super) fn capital(word: &str) -> String {
    let mut letters = word.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => String::new(),
    }
}

/// Joins names and counts equal neighbors: `2 × A, B`.
pub(super) fn counted(names: &[String]) -> String {
    let runs = names.chunk_by(|a, b| a == b).map(|run| match run.len() {
        1 => run[0].clone(),
        count => format!("{count} × {}", run[0]),
    });
    runs.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_exact() {
        assert_eq!(size(2048), "2 KiB");
        assert_eq!(size(3 << 20), "3 MiB");
        assert_eq!(size(1_000_003), "1000003 B");
        assert_eq!(size(0), "0 B");
    }

    #[test]
    fn small_values_keep_their_digits() {
        let values = [0.0, 0.00002, 0.00123, 0.5, 1.0, 99.5, 450.0, 1e300];
        assert_eq!(
            values.map(significant),
            [
                "0", "2.00e-5", "0.00123", "0.500", "1.00", "99.50", "450.0", "1.00e300"
            ]
        );
    }

    #[test]
    fn decimal_points_of_rates_stand_in_line() {
        for gbps in [0.0604, 0.168, 2.25, 44.31, 395.12] {
            let text = rate(gbps);
            let after = text.chars().count() - text.find('.').unwrap();
            assert_eq!(after, 4, "{text:?}");
        }
    }

    #[test]
    fn equal_devices_are_counted() {
        let names = ["A", "A", "B"].map(str::to_owned);
        assert_eq!(counted(&names), "2 × A, B");
    }
}
