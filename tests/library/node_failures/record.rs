//! The record of all runs: a file with a line of JSON for each, and a table.

use crate::plan::{Act, Legs, Plan};
use crate::trial::Report;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The variable that names the file. Lines are appended to it.
pub const FILE: &str = "SYMMEM_NODE_FAILURES_JSON";

/// The file, if one is asked for.
pub struct Record {
    file: Option<File>,
    origin: Value,
}

impl Record {
    /// Opens the file.
    ///
    /// # Panics
    /// If it cannot be opened: a long run without its record would be for nothing.
    pub fn open() -> Self {
        let path = std::env::var_os(FILE);
        let file = path.map(|path| {
            let mut options = File::options();
            let opened = options.create(true).append(true).open(&path);
            opened.unwrap_or_else(|error| panic!("{FILE}={}: {error}", path.display()))
        });
        Self {
            file,
            origin: origin(),
        }
    }

    /// Appends a run.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn add(&mut self, plan: &Plan, report: &Report) {
        let Some(file) = &mut self.file else {
            return;
        };
        let line = line(plan, report, &self.origin);
        // In one piece, so that two drivers may write to one file.
        let written = file.write_all(format!("{line}\n").as_bytes());
        written.unwrap_or_else(|error| panic!("{FILE}: {error}"));
    }
}

/// Returns commit, machine and time of the driver's start.
fn origin() -> Value {
    let directory = env!("CARGO_MANIFEST_DIR");
    let describe = ["describe", "--always", "--dirty", "--abbrev=12"];
    let commit = Command::new("git")
        .args(["-C", directory])
        .args(describe)
        .output();
    let commit = commit.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    json!({
        "commit": commit.unwrap_or_default(),
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
    })
}

fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e4).round() / 10.0
}

fn line(plan: &Plan, report: &Report, origin: &Value) -> Value {
    let victim = match plan.act {
        Act::Kill { rank } => json!({ "rank": rank }),
        Act::KillRail { .. } => json!({ "ranks": plan.killed() }),
        Act::Cut { host } => json!({ "host": host }),
    };
    let errors = report.errors.iter().map(|told| {
        json!({
            "rank": told.rank,
            "ms": milliseconds(told.after),
            "kind": told.kind,
            "peer": told.peer,
            "text": told.text,
        })
    });
    let errors: Vec<Value> = errors.collect();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    json!({
        "kind": plan.kind(),
        "legs": match plan.legs {
            Legs::Ucx => "ucx",
            Legs::Nccl => "nccl",
        },
        "placement": plan.placement(),
        "seed": plan.seed,
        "victim": victim,
        "at_ms": milliseconds(plan.at),
        "errors": errors,
        "survivors": plan.survivors(),
        "last_ms": report.last_error().map(milliseconds),
        "rebuilt": plan.rebuilders(),
        "traces": report.traces,
        "faults": report.faults,
        "unix_time": since.unwrap_or_default().as_secs(),
        "load": load.split(' ').next(),
        "commit": origin["commit"],
        "cores": origin["cores"],
    })
}

/// Prints counts, and the times from each failure to the last survivor's error.
pub fn tell(reports: &[(Plan, Report)]) {
    let mut kinds: BTreeMap<(&str, String), Vec<&Report>> = BTreeMap::new();
    for (plan, report) in reports {
        let by = match plan.legs {
            Legs::Ucx => "",
            Legs::Nccl => " nccl",
        };
        let kind = (plan.kind(), plan.placement() + by);
        kinds.entry(kind).or_default().push(report);
    }
    println!("\nms from the failure to the last survivor's error");
    println!(
        "{:18} {:>5} {:>8} {:>8} {:>8} {:>7}",
        "", "runs", "median", "95 %", "most", "faulty"
    );
    for ((kind, placement), reports) in kinds {
        let mut times: Vec<Duration> = reports
            .iter()
            .filter_map(|report| report.last_error())
            .collect();
        times.sort_unstable();
        let at = |share: f64| {
            let last = times.len().saturating_sub(1);
            let time = times.get((last as f64 * share).round() as usize);
            time.map_or("-".into(), |time| time.as_millis().to_string())
        };
        let faulty = reports.iter().filter(|report| !report.faults.is_empty());
        println!(
            "{:18} {:>5} {:>8} {:>8} {:>8} {:>7}",
            format!("{kind}, {placement}"),
            reports.len(),
            at(0.5),
            at(0.95),
            at(1.0),
            faulty.count()
        );
    }
}

#[test]
fn a_line_names_victim_and_survivors_with_their_errors_and_times() {
    use crate::trial::Told;
    let mut plan = Plan::kill(1);
    plan.act = Act::Kill { rank: 2 };
    let report = Report {
        errors: vec![Told {
            rank: 3,
            after: Duration::from_micros(12_340),
            kind: "PeerDied".into(),
            peer: Some(2),
            text: "rank 3: rank 2 died".into(),
        }],
        traces: vec!["a socket".into()],
        faults: Vec::new(),
    };
    let line = line(&plan, &report, &json!({ "commit": "c", "cores": 2 }));
    assert_eq!(line["placement"], "2x4");
    assert_eq!(line["victim"], json!({ "rank": 2 }));
    assert_eq!(line["errors"][0]["ms"], 12.3);
    assert_eq!(line["errors"][0]["peer"], 2);
    assert_eq!(line["traces"], json!(["a socket"]));
    assert_eq!((&line["commit"], &line["cores"]), (&json!("c"), &json!(2)));
}
