//! Masks of compute units: variables that restrict a process to some compute units of a device.
//!
//! The runtime reports all units nevertheless. A grid that waits for its own blocks and is sized by that report
//! would not be co-resident. This module counts what the masks leave, the same for every device, because all
//! ranks of a job share one environment and must choose the same grids.

use std::env::var;

/// ROCr's variable: `CU_SET [; CU_SET]…`, each set `GPUS : UNITS`. Both are lists of numbers and ranges; the
/// units may also be a hexadecimal mask (ROCm's guide, "Setting the number of compute units").
const OF_DEVICES: &str = "HSA_CU_MASK";
/// HIP's variable for all devices: a hexadecimal mask with one bit per unit (same guide).
const OF_ALL: &str = "ROC_GLOBAL_CU_MASK";

/// Effect of a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mask {
    /// Leaves at least this many units of each device.
    Units(u32),
    /// Set to text that this module cannot parse; the runtime ignores such a mask.
    Unclear,
}

/// Returns how many of a device's `units` the masks leave.
pub fn leave(units: u32) -> u32 {
    let left = masks().filter_map(|(_, mask)| match mask {
        Mask::Units(left) => Some(left),
        Mask::Unclear => None,
    });
    left.fold(units, u32::min)
}

/// Describes each mask that is set and what it leaves, for `symmem info`.
pub fn text() -> Vec<String> {
    let text = |(name, mask)| match mask {
        Mask::Units(left) => {
            format!("{name} leaves {left} compute units, for which grids are sized")
        }
        Mask::Unclear => {
            format!("{name} is set and not understood: grids are sized for whole devices")
        }
    };
    masks().map(text).collect()
}

fn masks() -> impl Iterator<Item = (&'static str, Mask)> {
    let read = |name, of: fn(&str) -> Option<u32>| {
        let value = var(name).ok().filter(|value| !value.trim().is_empty())?;
        Some((name, of(&value).map_or(Mask::Unclear, Mask::Units)))
    };
    let masks = [read(OF_DEVICES, of_devices), read(OF_ALL, of_all)];
    masks.into_iter().flatten()
}

/// Returns the smallest number of units in any set, because which device is which depends on other variables.
fn of_devices(value: &str) -> Option<u32> {
    let sets = value.split(';').filter(|set| !set.trim().is_empty());
    let units = sets.map(|set| {
        let (devices, units) = set.split_once(':')?;
        listed(devices)?;
        match hexadecimal(units) {
            Some(count) => Some(count),
            None => listed(units),
        }
    });
    units.collect::<Option<Vec<u32>>>()?.into_iter().min()
}

fn of_all(value: &str) -> Option<u32> {
    hexadecimal(value)
}

/// Counts the bits of a hexadecimal mask of any length; `None` if it has none or is invalid.
fn hexadecimal(text: &str) -> Option<u32> {
    let text = text.trim();
    let digits = text
        .strip_prefix("0x")
        .or_else(|| text.strip_prefix("0X"))?;
    let bits = digits
        .chars()
        .map(|digit| Some(digit.to_digit(16)?.count_ones()));
    bits.sum::<Option<u32>>().filter(|&count| count > 0)
}

/// Counts the numbers in a list such as `0-3,8`.
fn listed(text: &str) -> Option<u32> {
    let entries = text.split(',').map(|entry| {
        let (first, last) = entry.split_once('-').unwrap_or((entry, entry));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    });
    // Ranges may overlap, so together they may have more numbers than there are.
    entries
        .into_iter()
        .try_fold(0u32, |sum, count| sum.checked_add(count?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_of_devices_leaves_what_its_smallest_set_does() {
        for (value, left) in [
            ("0:0-15", Some(16)),
            ("0,2-3: 0-7, 16", Some(9)),
            ("0:0-63;1:0x0f0f", Some(8)),
            ("0:0-3;", Some(4)),
            ("", None),
            ("0", None),
            ("0:", None),
            ("gpu:0-3", None),
            ("0:7-3", None),
            ("0:0x0", None),
            ("0:0-4294967294,0-4294967294", None),
            ("0:0-4294967295", None),
        ] {
            assert_eq!(of_devices(value), left, "{value}");
        }
    }

    #[test]
    fn a_mask_of_all_devices_leaves_its_bits() {
        let longest = format!("0x{}", "f".repeat(76));
        for (value, left) in [
            ("0xff", Some(8)),
            ("0X10f", Some(5)),
            (&*longest, Some(304)),
            ("0x", None),
            ("ff", None),
            ("0xfg", None),
        ] {
            assert_eq!(of_all(value), left, "{value}");
        }
    }
}
