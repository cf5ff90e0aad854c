//! How much of the tests runs. `SYMMEM_TESTS` chooses:
//!
//! - nothing, or `sample`: a sample that a newcomer waits minutes for, the same one on each run;
//! - `long`: the long lists whole, as `cargo xtask test --full` does;
//! - `all`: every case of every matrix, for hours.
//!
//! `SYMMEM_TESTS_SEED` is a number that picks another sample; CI takes it from the commit's name. Each test that is left out
//! prints its name and the reason.

use std::io::Write;
use std::ops::Range;

/// How much of the tests runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Amount {
    /// A sample.
    Sample,
    /// The long lists.
    Long,
    /// Every case.
    All,
}

/// Returns how much the environment asks for.
///
/// # Panics
///
/// Panics if `SYMMEM_TESTS` has an unknown value: a misspelled one must not pass for a long run.
pub fn amount() -> Amount {
    match std::env::var("SYMMEM_TESTS").as_deref() {
        Err(_) | Ok("" | "sample") => Amount::Sample,
        Ok("long") => Amount::Long,
        Ok("all") => Amount::All,
        Ok(other) => panic!("SYMMEM_TESTS={other}: unknown amount; use `sample`, `long` or `all`"),
    }
}

/// Returns whether the calling test is left out of a sample of one in `share` of its function's cases, and says so.
///
/// The cases are those that rstest makes of a function's parameters: a case is chosen by the sum of its parameters'
/// numbers in its name, so that each value of a parameter comes up among any `share` values of another parameter. A
/// function without parameters is in the sample or not as a whole.
///
/// A sample that is drawn by a seed is a third as large, since each commit draws another one.
pub fn sampled_out(share: u32) -> bool {
    let name = test_name();
    let chosen = match seed() {
        Some(seed) => is_chosen(&name, 3 * share, seed),
        None => is_chosen(&name, share, 0),
    };
    !chosen && left_out_below(Amount::Long, &name)
}

/// Returns whether the calling test is left out because it is too long for a sample, and says so. A sample that is drawn by
/// a seed has one in sixteen of such tests.
pub fn too_long() -> bool {
    let name = test_name();
    let drawn = seed().is_some_and(|seed| is_drawn(&name, 16, seed));
    !drawn && left_out_below(Amount::Long, &name)
}

/// Returns the numbers of those of a test's `count` schedules that run: all, or one of `parts` about equal parts of them if a seed
/// draws the sample.
pub fn drawn(count: u64, parts: u64) -> Range<u64> {
    match seed() {
        Some(seed) if amount() == Amount::Sample => part_of(count, parts, seed),
        _ => 0..count,
    }
}

fn part_of(count: u64, parts: u64, seed: u32) -> Range<u64> {
    let part = u64::from(seed) % parts;
    count * part / parts..count * (part + 1) / parts
}

/// Returns whether a test that needs at least this amount is left out, and says so past the test harness, which hides
/// the output of tests that pass.
pub fn left_out_below(needed: Amount, name: &str) -> bool {
    let left_out = amount() < needed;
    if left_out {
        let value = if needed == Amount::All { "all" } else { "long" };
        let _ = writeln!(
            std::io::stderr(),
            "skipped: {name}: SYMMEM_TESTS={value} runs it"
        );
    }
    left_out
}

fn test_name() -> String {
    std::thread::current().name().unwrap_or_default().to_owned()
}

fn seed() -> Option<u32> {
    std::env::var("SYMMEM_TESTS_SEED").ok()?.parse().ok()
}

/// rstest calls a case `function::first_2_Value::second_1_Other`: 2 and 1 are the numbers of the parameters' values.
fn is_chosen(name: &str, share: u32, seed: u32) -> bool {
    let number = |part: &str| part.split('_').find_map(|word| word.parse::<u32>().ok());
    let sum: u32 = name.split("::").filter_map(number).sum();
    (sum + seed).is_multiple_of(share)
}

/// Whether a seed draws the test among one in `share`.
fn is_drawn(name: &str, share: u32, seed: u32) -> bool {
    let sum: u32 = name.bytes().map(u32::from).sum();
    (sum + seed).is_multiple_of(share)
}

#[test]
fn a_sample_has_each_value_of_a_parameter_that_meets_enough_of_another() {
    let chosen = |setting: u32, wait: u32| {
        is_chosen(
            &format!("waits::heard::setting_{setting}_Setting__Hip::wait_{wait}_Wait__Free"),
            4,
            1,
        )
    };
    for setting in 1..=3 {
        assert_eq!((1..=4).filter(|&wait| chosen(setting, wait)).count(), 1);
    }
    for wait in 1..=7 {
        assert_eq!((1..=4).filter(|&setting| chosen(setting, wait)).count(), 1);
    }
}

#[test]
fn the_parts_of_schedules_are_all_of_them() {
    for count in [24, 5] {
        let parts = (7..10).flat_map(|seed| part_of(count, 3, seed));
        let mut numbers: Vec<u64> = parts.collect();
        numbers.sort();
        assert_eq!(numbers, (0..count).collect::<Vec<_>>());
    }
}
