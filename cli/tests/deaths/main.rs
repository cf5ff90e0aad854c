//! Random deaths: ranks and the launcher are killed or stopped at random times, with and without `symmem run`, also
//! behind `sh -c`.
//!
//! Each run is drawn from a seed. `SYMMEM_TESTS` chooses how many there are (8, 40 or 300), `SYMMEM_TESTS_SEED` the
//! first seed; `SYMMEM_TESTS=all` also holds survivors to 1.2 s after a kill, times `SYMMEM_DEATHS_FACTOR` (a number, 1
//! unless it is set) for a machine with other work.
//!
//! `plan` draws a run, `rank` is the program of a rank, `family` watches the processes, `traces` looks for what a run
//! could leave, `trial` makes a run and judges it.

#[path = "../../../tests/support/amount.rs"]
#[allow(dead_code, reason = "only the amount is asked for here")]
mod amount;
mod family;
mod plan;
mod rank;
mod traces;
mod trial;

use amount::{Amount, amount};
use plan::Plan;
use std::collections::BTreeMap;
use std::time::Duration;
use trial::Report;

/// Time after a kill within which survivors must have ended.
const BOUND: Duration = Duration::from_millis(1200);

/// How long ranks may take, which depends on how busy the machine may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time after a kill within which survivors must have ended.
    pub bound: Duration,
    /// Deadline of each rank's waits, and of its setup. A run with a stopped rank takes that long.
    pub deadline: Duration,
}

fn limits() -> Limits {
    if amount() < Amount::All {
        // Without a deadline that a busy machine misses.
        return Limits {
            bound: Duration::from_secs(8),
            deadline: Duration::from_secs(12),
        };
    }
    let factor = std::env::var("SYMMEM_DEATHS_FACTOR");
    let factor: f64 = factor.map_or(1.0, |text| text.parse().expect("a number"));
    Limits {
        bound: BOUND.mul_f64(factor),
        deadline: Duration::from_secs(6),
    }
}

/// The program of a rank; does nothing in the test run itself.
#[test]
fn rank() {
    if std::env::var_os(rank::ROLE).is_some() {
        rank::run();
    }
}

#[test]
fn random_deaths_are_named_and_leave_nothing() {
    if std::env::var_os(rank::ROLE).is_some() {
        return;
    }
    let runs = match amount() {
        Amount::Sample => 8,
        Amount::Long => 40,
        Amount::All => 300,
    };
    let seed: u64 =
        std::env::var("SYMMEM_TESTS_SEED").map_or(0, |text| text.parse().expect("a number"));
    let limits = limits();
    family::adopt_orphans();
    let mut faults = Vec::new();
    let mut reports: Vec<(Plan, Report)> = Vec::new();
    for seed in seed..seed + runs {
        let plan = Plan::draw(seed);
        let report = trial::run(&plan, limits);
        println!("{seed}: {plan}: {report}");
        for fault in &report.faults {
            println!("    fault: {fault}");
            faults.push(format!("{seed}: {plan}: {fault}"));
        }
        reports.push((plan, report));
    }
    tell(&reports, limits);
    assert!(
        faults.is_empty(),
        "{} faults:\n{}",
        faults.len(),
        faults.join("\n")
    );
}

/// Prints counts, and the times in which survivors ended after a kill.
fn tell(reports: &[(Plan, Report)], limits: Limits) {
    let mut times: BTreeMap<String, Vec<Duration>> = BTreeMap::new();
    for (plan, report) in reports {
        let after = report.after_kill;
        times.entry(plan.kind()).or_default().extend(after);
    }
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("\nsurvivors' ends after a kill, in ms; load average {load}");
    println!(
        "{:44} {:>5} {:>7} {:>7} {:>7} {:>7}",
        "", "runs", "median", "95 %", "most", "late"
    );
    let mut all = Vec::new();
    for (kind, times) in &mut times {
        all.extend(times.iter().copied());
        line(kind, times);
    }
    line("all", &mut all);
    let count = |is: fn(&Report) -> bool| reports.iter().filter(|(_, report)| is(report)).count();
    println!(
        "{} runs: in {} nobody knew of the death, since the dead had not met a survivor; {} ranks killed, {} named first; \
         {} with faults; bound {:?}",
        reports.len(),
        count(|report| report.is_unmet),
        count(|report| report.has_killed),
        count(|report| report.is_named),
        count(|report| !report.faults.is_empty()),
        limits.bound,
    );
}

fn line(name: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let at = |share: f64| {
        let last = times.len().saturating_sub(1);
        let time = times.get((last as f64 * share).round() as usize);
        time.map_or_else(|| "-".into(), |time| time.as_millis().to_string())
    };
    let late = times.iter().filter(|time| **time > BOUND).count();
    println!(
        "{name:44} {:>5} {:>7} {:>7} {:>7} {late:>7}",
        times.len(),
        at(0.5),
        at(0.95),
        at(1.0)
    );
}
