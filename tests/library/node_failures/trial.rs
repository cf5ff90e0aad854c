//! Makes a run.

use crate::Limits;
use crate::place::{Place, Site};
use crate::plan::{Act, Plan};
use crate::rank::{self, now};
use crate::traces;
use crate::verdict;
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use two_hosts::Skip;

/// Time beyond any deadline, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a run ended.
#[derive(Default)]
pub struct Report {
    /// The error of each survivor that had one.
    pub errors: Vec<Told>,
    /// What the run has left on the hosts and on the machine.
    pub traces: Vec<String>,
    pub faults: Vec<String>,
}

/// The error of a survivor.
pub struct Told {
    pub rank: usize,
    /// Time from the act to the error.
    pub after: Duration,
    pub kind: String,
    pub peer: Option<usize>,
    pub text: String,
}

impl Report {
    /// Returns the time from the act to the last survivor's error.
    pub fn last_error(&self) -> Option<Duration> {
        self.errors.iter().map(|told| told.after).max()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.last_error() {
            Some(time) => write!(formatter, "errors within {} ms", time.as_millis())?,
            None => formatter.write_str("no errors")?,
        }
        match self.faults.len() {
            0 => Ok(()),
            faults => write!(formatter, ", {faults} FAULTS"),
        }
    }
}

/// A line of a rank.
struct Line {
    rank: usize,
    text: String,
}

/// A run under way.
pub struct Trial<'a> {
    plan: &'a Plan,
    ranks: Vec<Child>,
    lines: Receiver<Line>,
    /// What each rank has said so far.
    pub said: Vec<Vec<String>>,
    pub faults: Vec<String>,
}

/// Makes a run; blocks until nothing of it is left.
pub fn run(site: &Site, plan: &Plan, limits: Limits) -> Result<Report, Skip> {
    let place = site.prepare()?;
    let before = traces::files();
    let mut trial = Trial::start(plan, &place);
    if !plan.early {
        trial.await_all("working", &plan.survivors(), rank::DEADLINE + PATIENCE);
    }
    std::thread::sleep(plan.at);
    let at = now();
    let mut others = plan.survivors();
    match plan.act {
        Act::Cut { host } => place.cut(host),
        Act::Kill { .. } | Act::KillRail { .. } => {
            for rank in plan.killed() {
                trial.ranks[rank].kill().expect("a child");
            }
        }
    }
    // A rank that is not there yet as the link is cut meets nobody until its setup's deadline.
    trial.await_all("end ", &others, rank::DEADLINE + PATIENCE);
    let errors = verdict::judge_errors(&mut trial, plan, at, limits);
    // Those that failed to say anything are asked nothing.
    others.retain(|&rank| trial.has_said(rank, "end "));
    let (mut going_on, mut leaving) = (others.clone(), others.clone());
    let rebuilders = plan.rebuilders();
    going_on.retain(|rank| rebuilders.contains(rank));
    leaving.retain(|rank| !rebuilders.contains(rank));
    trial.order(&leaving, "leave");
    trial.order(&going_on, "rebuild");
    if !going_on.is_empty() {
        // A link that is cut stays cut.
        trial.await_all("done", &going_on, rank::DEADLINE + PATIENCE);
        verdict::judge_rebuilt(&mut trial, plan);
    }
    trial.end(&others);
    let mut traces = place.leftovers();
    traces.extend(traces::new_since(&before));
    if !traces.is_empty() {
        trial.faults.push(format!("left: {}", traces.join(", ")));
    }
    if !trial.faults.is_empty() {
        let said = trial.said.iter().enumerate();
        let said: Vec<String> = said
            .map(|(rank, lines)| format!("\n    rank {rank}: {}", lines.join("\n        ")))
            .collect();
        trial
            .faults
            .push(format!("the ranks said{}", said.concat()));
    }
    Ok(Report {
        errors,
        traces,
        faults: std::mem::take(&mut trial.faults),
    })
}

impl<'a> Trial<'a> {
    fn start(plan: &'a Plan, place: &Place<'_>) -> Self {
        let secret = symmem::bootstrap::Secret::random()
            .expect("random bytes")
            .to_hex();
        let (sender, lines) = channel();
        let ranks = (0..plan.world())
            .map(|rank| start(plan, rank, place, &secret, sender.clone()))
            .collect();
        Self {
            plan,
            ranks,
            lines,
            said: vec![Vec::new(); plan.world()],
            faults: Vec::new(),
        }
    }

    /// Returns whether a rank has said a line that starts like this.
    fn has_said(&self, rank: usize, start: &str) -> bool {
        self.said[rank].iter().any(|line| line.starts_with(start))
    }

    /// Waits until ranks have said a line that starts like this, or end; notes a fault if they do not.
    fn await_all(&mut self, start: &str, ranks: &[usize], limit: Duration) {
        let deadline = Instant::now() + limit;
        loop {
            let mut missing = ranks.to_vec();
            missing.retain(|&rank| !self.has_said(rank, start));
            // One that has failed before does not say more.
            missing.retain(|&rank| start != "working" || !self.has_said(rank, "end "));
            missing.retain(|&rank| !self.has_said(rank, "cannot go on"));
            if missing.is_empty() {
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => self.said[line.rank].push(line.text),
                Err(why) => {
                    let why = match why {
                        RecvTimeoutError::Timeout => "in time",
                        RecvTimeoutError::Disconnected => "before they ended",
                    };
                    let fault = format!("ranks {missing:?} did not say `{start}` {why}");
                    return self.faults.push(fault);
                }
            }
        }
    }

    fn order(&mut self, ranks: &[usize], order: &str) {
        for &rank in ranks {
            let input = self.ranks[rank].stdin.as_mut().expect("a pipe");
            // One that failed as the ranks met has ended.
            let _ = writeln!(input, "{order}");
        }
    }

    /// Waits for the ranks' ends, and kills those that stay.
    fn end(&mut self, others: &[usize]) {
        let deadline = Instant::now() + PATIENCE;
        for rank in 0..self.plan.world() {
            let child = &mut self.ranks[rank];
            let status = loop {
                match child.try_wait().expect("a child") {
                    Some(status) => break status,
                    None if Instant::now() > deadline => {
                        self.faults.push(format!("rank {rank} does not end"));
                        child.kill().expect("a child");
                        break child.wait().expect("a child");
                    }
                    None => std::thread::sleep(Duration::from_millis(2)),
                }
            };
            if others.contains(&rank) && !status.success() {
                self.faults.push(format!("rank {rank}: {status}"));
            }
        }
        // All have ended, so the pipes have, too.
        while let Ok(line) = self.lines.recv() {
            self.said[line.rank].push(line.text);
        }
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        // After a panic some may run.
        for rank in &mut self.ranks {
            let _ = rank.kill();
            let _ = rank.wait();
        }
    }
}

fn start(plan: &Plan, rank: usize, place: &Place<'_>, secret: &str, lines: Sender<Line>) -> Child {
    let program = std::env::current_exe().expect("this program's file");
    let mut command = place.command(program, plan, rank);
    command
        .args(["rank", "--exact", "--nocapture", "--test-threads=1"])
        .env(rank::ROLE, "1")
        .env("SYMMEM_RANK", rank.to_string())
        .env("SYMMEM_WORLD", plan.world().to_string())
        .env("SYMMEM_LOCAL_RANK", (rank % plan.ranks).to_string())
        .env("SYMMEM_LOCAL_WORLD", plan.ranks.to_string())
        .env("SYMMEM_SECRET", secret)
        .env("UCX_TLS", "tcp,self")
        .env_remove("SYMMEM_GENERATION")
        .env_remove("SYMMEM_JOB")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("a process");
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    let outputs: [Option<Box<dyn std::io::Read + Send>>; 2] = [
        output.map(|pipe| Box::new(pipe) as _),
        errors.map(|pipe| Box::new(pipe) as _),
    ];
    for output in outputs.into_iter().flatten() {
        let lines = lines.clone();
        std::thread::spawn(move || {
            for text in BufReader::new(output).lines().map_while(Result::ok) {
                // Nobody listens after the run.
                let _ = lines.send(Line { rank, text });
            }
        });
    }
    child
}
