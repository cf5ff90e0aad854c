//! Random failures of worlds that span two hosts: ranks are killed and links are cut at random times in mixed
//! operations. Every survivor on both hosts must get a typed error that names a lost rank, in time; half of the worlds
//! then end and half are rebuilt and go on; nothing may be left on either host.
//!
//! Each run is drawn from a seed. `SYMMEM_TESTS` chooses how many there are (4 kills and 2 cuts, 10 and 4, or 100 and
//! 40), unless `SYMMEM_NODE_FAILURES=KILLS,CUTS` does; a tenth as many more come while ranks meet, or as many as a third
//! number there says.
//! `SYMMEM_TESTS_SEED` is the first seed. `SYMMEM_TESTS=all` also holds survivors to 1 s after a kill and to 3.5 s after
//! a cut, the silence of 3 s and a pulse, times `SYMMEM_DEATHS_FACTOR` (a number, 1 unless it is set) for a machine with
//! other work. `SYMMEM_NODE_FAILURES_JSON` names a file to which each run is appended as a line of JSON.
//!
//! On devices ranks are killed only: nodes of this machine, with a device each, have no link to cut. They are the fake CUDA
//! driver's, or this machine's with `SYMMEM_NODE_FAILURES_DEVICES=cuda`. Half of the runs have legs by NCCL.
//!
//! `plan` draws a run, `place` is where it is made, `rank` is the program of a rank, `work` its laps, `trial` makes a run, `verdict` judges it,
//! `record` keeps it.

#[path = "../../support/amount.rs"]
#[allow(dead_code, reason = "only the amount is asked for here")]
mod amount;
#[path = "../../support/fakes.rs"]
#[allow(dead_code, reason = "these tests need the fake driver only")]
mod fakes;
mod place;
mod plan;
mod rank;
mod record;
mod traces;
mod trial;
mod verdict;
mod work;

use amount::{Amount, amount};
use place::Site;
use plan::Plan;
use record::Record;
use std::str::FromStr;
use std::time::Duration;
use two_hosts::Skip;

/// How long ranks may take, which depends on how busy the machine may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time from a kill to the survivors' errors.
    pub death: Duration,
    /// Time from a cut to the errors of both sides.
    pub silence: Duration,
}

fn limits() -> Limits {
    if amount() < Amount::All {
        // Without a deadline that a busy machine misses.
        return Limits {
            death: Duration::from_secs(8),
            silence: Duration::from_secs(12),
        };
    }
    let factor = number("SYMMEM_DEATHS_FACTOR").unwrap_or(1.0);
    Limits {
        death: Duration::from_millis(1000).mul_f64(factor),
        silence: Duration::from_millis(3500).mul_f64(factor),
    }
}

/// Returns the number in a variable, if it is set.
fn number<T: FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    let number = text.parse().ok();
    Some(number.unwrap_or_else(|| panic!("{name}={text}: not a number")))
}

/// Returns the numbers of kills, of cuts, and of failures while ranks meet.
fn runs() -> [u64; 3] {
    let (kills, cuts) = match std::env::var("SYMMEM_NODE_FAILURES") {
        Ok(text) => {
            let numbers: Result<Vec<u64>, _> = text.split(',').map(str::parse).collect();
            match numbers.as_deref() {
                Ok(&[kills, cuts, early]) => return [kills, cuts, early],
                Ok(&[kills, cuts]) => (kills, cuts),
                _ => panic!("SYMMEM_NODE_FAILURES={text}: not KILLS,CUTS or KILLS,CUTS,EARLY"),
            }
        }
        Err(_) => match amount() {
            Amount::Sample => (4, 2),
            Amount::Long => (10, 4),
            Amount::All => (100, 40),
        },
    };
    [kills, cuts, (kills + cuts).div_ceil(10)]
}

/// The program of a rank; does nothing in the test run itself.
#[test]
fn rank() {
    if std::env::var_os(rank::ROLE).is_some() {
        rank::run();
    }
}

#[test]
fn random_failures_are_named_on_both_hosts_and_leave_nothing() {
    if std::env::var_os(rank::ROLE).is_some() {
        return;
    }
    let [kills, cuts, early] = runs();
    let seed: u64 = number("SYMMEM_TESTS_SEED").unwrap_or(0);
    let plans = (seed..seed + kills).map(Plan::kill);
    let plans = plans.chain((seed..seed + cuts).map(Plan::cut));
    let plans = plans.chain((seed..seed + early).map(Plan::early));
    let run = run_all(&Site::Hosts, plans);
    if let Err(skip) = run {
        skip.tell("random_failures_are_named_on_both_hosts");
    }
}

#[test]
fn random_kills_are_named_on_both_nodes_of_devices_and_leave_nothing() {
    if std::env::var_os(rank::ROLE).is_some() {
        return;
    }
    let default = match amount() {
        Amount::Sample => 2,
        Amount::Long => 4,
        Amount::All => 20,
    };
    let kills = number("SYMMEM_NODE_FAILURES_KILLS").unwrap_or(default);
    let seed: u64 = number("SYMMEM_TESTS_SEED").unwrap_or(0);
    let run = run_all(&Site::devices(), (seed..seed + kills).map(Plan::on_devices));
    if let Err(skip) = run {
        skip.tell("random_kills_are_named_on_both_nodes_of_devices");
    }
}

/// Makes runs.
///
/// # Errors
/// Why the machine cannot make them.
///
/// # Panics
/// With the faults of all runs, if there are any.
fn run_all(site: &Site, plans: impl Iterator<Item = Plan>) -> Result<(), Skip> {
    let limits = limits();
    let mut faults = Vec::new();
    let mut reports = Vec::new();
    let mut record = Record::open();
    for plan in plans {
        let report = trial::run(site, &plan, limits)?;
        println!("{plan}: {report}");
        for fault in &report.faults {
            println!("    fault: {fault}");
            faults.push(format!("{plan}: {fault}"));
        }
        record.add(&plan, &report);
        reports.push((plan, report));
    }
    record::tell(&reports);
    assert!(
        faults.is_empty(),
        "{} faults:\n{}",
        faults.len(),
        faults.join("\n")
    );
    Ok(())
}
