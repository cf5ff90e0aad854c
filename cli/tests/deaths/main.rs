//! Random deaths: ranks and the launcher are killed or stopped at random times, with and without `symmem run`, also
//! behind `sh -c`.
//!
//! Each run is drawn from a seed. `SYMMEM_TESTS` chooses how many there are (8, 10 or 300), unless `SYMMEM_DEATHS_RUNS`
//! does; `SYMMEM_TESTS_SEED` is the first seed. `SYMMEM_TESTS=all` also holds survivors to 1.2 s after a kill, times
//! `SYMMEM_DEATHS_FACTOR` (a number, 1 unless it is set) for a machine with other work.
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
use std::str::FromStr;
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
    Limits {
        bound: BOUND.mul_f64(number("SYMMEM_DEATHS_FACTOR").unwrap_or(1.0)),
        deadline: Duration::from_secs(6),
    }
}

/// Returns the number in a variable, if it is set.
fn number<T: FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    let number = text.parse().ok();
    Some(number.unwrap_or_else(|| panic!("{name}={text}: not a number")))
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
    let runs = number("SYMMEM_DEATHS_RUNS").unwrap_or(match amount() {
        Amount::Sample => 8,
        Amount::Long => 10,
        Amount::All => 300,
    });
    let seed: u64 = number("SYMMEM_TESTS_SEED").unwrap_or(0);
    let limits = limits();
    family::adopt_orphans();
    let mut faults = Vec::new();
    let mut reports: Vec<(Plan, Report)> = Vec::new();
    for seed in seed..seed + runs {
        let plan = Plan::draw(seed);
        let report = trial::run(&plan, limits);
        println!("{seed} (load {}): {plan}: {report}", load());
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

/// Returns the machine's load average of the last minute.
fn load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().unwrap_or_default().to_owned()
}

/// Prints counts, and the times in which survivors ended after a kill.
fn tell(reports: &[(Plan, Report)], limits: Limits) {
    let mut kinds: BTreeMap<String, (usize, Vec<Duration>)> = BTreeMap::new();
    for (plan, report) in reports {
        let (runs, times) = kinds.entry(plan.kind()).or_default();
        *runs += 1;
        times.extend(report.after_kill);
    }
    println!("\nthe last survivor's end after a kill that survivors could know of, in ms");
    println!(
        "{:38} {:>5} {:>6} {:>7} {:>7} {:>7} {:>5}",
        "", "runs", "timed", "median", "95 %", "worst", "late"
    );
    let mut all = Vec::new();
    for (kind, (runs, times)) in &mut kinds {
        all.extend(times.iter().copied());
        line(kind, *runs, times);
    }
    line("all", reports.len(), &mut all);
    let count = |is: fn(&Report) -> bool| reports.iter().filter(|(_, report)| is(report)).count();
    println!(
        "under `symmem run`, with a rank killed: {} runs, {} named the first, {} with exit code 137",
        count(|report| report.has_verdict),
        count(|report| report.has_verdict && report.is_named),
        count(|report| report.has_verdict && report.is_code_137),
    );
    println!(
        "without a launcher: in {} runs the dead had met no survivor. All: {} runs left something, {} have faults; \
         bound {:?}",
        count(|report| report.is_unmet),
        count(|report| report.has_left),
        count(|report| !report.faults.is_empty()),
        limits.bound,
    );
}

fn line(name: &str, runs: usize, times: &mut [Duration]) {
    times.sort_unstable();
    let at = |share: f64| {
        let last = times.len().saturating_sub(1);
        let time = times.get((last as f64 * share).round() as usize);
        time.map_or_else(|| "-".into(), |time| time.as_millis().to_string())
    };
    let late = times.iter().filter(|time| **time > BOUND).count();
    println!(
        "{name:38} {runs:>5} {:>6} {:>7} {:>7} {:>7} {late:>5}",
        times.len(),
        at(0.5),
        at(0.95),
        at(1.0)
    );
}
