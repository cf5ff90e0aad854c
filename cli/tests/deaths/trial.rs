//! Makes a run, and judges how it ended.

use crate::Limits;
use crate::family::{Family, Member};
use crate::plan::{Act, How, Plan, Whom};
use crate::rank::{self, END};
use crate::traces::Traces;
use rustix::process::{Pid, Signal};
use std::fmt;
use std::io::{BufRead, BufReader, PipeReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use symmem_conformance::spawn::spawn;

/// Interval at which processes are looked at.
const LOOK: Duration = Duration::from_millis(10);

/// Two deaths that are closer than this may be told of in either order if shells in front of the ranks end later.
const CLOSE: Duration = Duration::from_millis(250);

/// Time beyond a deadline for the end of a run, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a run ended.
#[derive(Default)]
pub struct Report {
    /// When the last survivor ended after the kill that it could know of.
    pub after_kill: Option<Duration>,
    /// Whether a rank of `symmem run` was killed, and the launcher was not.
    pub has_verdict: bool,
    /// Whether the launcher named the rank that died first.
    pub is_named: bool,
    /// Whether the launcher's exit code was that of SIGKILL.
    pub is_code_137: bool,
    /// Whether a process, file or socket was left.
    pub has_left: bool,
    /// Whether no survivor could know of the death.
    pub is_unmet: bool,
    pub faults: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.after_kill {
            Some(after) => write!(formatter, "survivors ended within {} ms", after.as_millis())?,
            None => write!(formatter, "no survivor of a kill")?,
        }
        if self.is_unmet {
            write!(formatter, ", nobody had met the dead")?;
        }
        match self.faults.len() {
            0 => Ok(()),
            faults => write!(formatter, ", {faults} FAULTS"),
        }
    }
}

/// A signal that has reached a process that ran.
struct Done {
    act: Act,
    at: Instant,
    pid: Pid,
}

/// A run under way.
struct Trial<'a> {
    plan: &'a Plan,
    limits: Limits,
    family: Family,
    children: Vec<Child>,
    done: Vec<Done>,
    start: Instant,
}

/// Makes a run; blocks until nothing of it is left.
pub fn run(plan: &Plan, limits: Limits) -> Report {
    let before = Traces::look();
    let (output, writer) = std::io::pipe().expect("a pipe");
    let commands = match plan.launched {
        true => vec![launched(plan)],
        false => {
            static RUNS: AtomicU32 = AtomicU32::new(0);
            let run = RUNS.fetch_add(1, Ordering::Relaxed);
            let job = format!("deaths-{}-{run}", std::process::id());
            (0..plan.world)
                .map(|rank| alone(plan, rank, &job))
                .collect()
        }
    };
    let lines = read(output);
    let start = Instant::now();
    let spawned = commands.into_iter().map(|mut command| {
        let writer = writer.try_clone().expect("one more descriptor");
        command.env(rank::ROLE, limits.deadline.as_millis().to_string());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(writer);
        // If this test is killed, nothing goes on.
        spawn(command).expect("a process")
    });
    let mut trial = Trial {
        plan,
        limits,
        family: Family::new(),
        children: spawned.collect(),
        done: Vec::new(),
        start,
    };
    drop(writer);
    trial.act();
    let mut report = Report::default();
    trial.await_end(&mut report);
    let status = trial.clean_up();
    let lines = lines.join().expect("the reader of the output");
    trial.judge(&lines, status, &mut report);
    let left = before.new_since();
    if !left.is_empty() {
        report.has_left = true;
        report.fault(format!("left {}", left.join(", ")));
    }
    if !report.faults.is_empty() {
        let output = lines.join("\n    ");
        report.fault(format!("the output is\n    {output}"));
    }
    report
}

/// Returns the command of a rank: this binary, behind a shell or not.
fn program(plan: &Plan) -> Vec<String> {
    let file = std::env::current_exe().expect("this program's file");
    let file = file
        .into_os_string()
        .into_string()
        .expect("a readable path");
    let arguments = ["rank", "--exact", "--nocapture", "--test-threads=1"].map(str::to_owned);
    let shell = ["sh", "-c", "\"$0\" \"$@\"; exit $?"].map(str::to_owned);
    let shell = shell.into_iter().filter(|_| plan.wrapped);
    shell.chain([file]).chain(arguments).collect()
}

fn launched(plan: &Plan) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_symmem"));
    command
        .args(["run", "-n", &plan.world.to_string(), "--"])
        .args(program(plan));
    for name in ["SYMMEM_RANK", "SYMMEM_WORLD", "SYMMEM_BACKEND"] {
        command.env_remove(name);
    }
    command
}

fn alone(plan: &Plan, rank: u32, job: &str) -> Command {
    let program = program(plan);
    let mut command = Command::new(&program[0]);
    command
        .args(&program[1..])
        .env("SYMMEM_RANK", rank.to_string())
        .env("SYMMEM_WORLD", plan.world.to_string())
        .env("SYMMEM_LOCAL_RANK", rank.to_string())
        .env("SYMMEM_LOCAL_WORLD", plan.world.to_string())
        .env("SYMMEM_JOB", job);
    for name in ["SYMMEM_RENDEZVOUS", "SYMMEM_SECRET", "SYMMEM_GENERATION"] {
        command.env_remove(name);
    }
    command
}

fn read(output: PipeReader) -> JoinHandle<Vec<String>> {
    std::thread::spawn(move || {
        BufReader::new(output)
            .lines()
            .map_while(Result::ok)
            .collect()
    })
}

impl Report {
    fn fault(&mut self, what: String) {
        self.faults.push(what);
    }
}

impl Trial<'_> {
    /// Sends the signals, each as soon as its process is there.
    fn act(&mut self) {
        for &act in &self.plan.acts {
            let at = self.start + act.at;
            while Instant::now() < at {
                let left = at.saturating_duration_since(Instant::now());
                self.family.look(left.min(LOOK));
            }
            let signal = match act.how {
                How::Kill => Signal::KILL,
                How::Stop => Signal::STOP,
            };
            while self.family.look(Duration::ZERO) {
                let target = match act.whom {
                    Whom::Launcher => {
                        let launcher = Pid::from_child(&self.children[0]);
                        self.family.members.iter().find(|one| one.pid == launcher)
                    }
                    Whom::Rank { number, is_shell } => self.family.find(number, is_shell),
                };
                if let Some(target) = target {
                    let pid = target.pid;
                    if let Some(at) = target.signal(signal) {
                        self.done.push(Done { act, at, pid });
                    }
                    break;
                }
                // It has ended because of an earlier signal, or is yet to start.
                let number = match act.whom {
                    Whom::Rank { number, .. } => number,
                    Whom::Launcher => break,
                };
                let came = self.family.of_rank(number).any(|one| one.ended.is_some());
                if came || self.start.elapsed() > PATIENCE {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Returns whether a process is one of a rank that was neither stopped nor killed.
    fn is_survivor(&self, member: &Member) -> bool {
        let is_hit = self.done.iter().any(|done| {
            let is_stopped = done.act.how == How::Stop
                && matches!(done.act.whom, Whom::Rank { number, .. } if member.rank == Some(number));
            is_stopped || done.pid == member.pid
        });
        member.rank.is_some() && !is_hit
    }

    /// Waits until no process is left that ends by itself.
    fn await_end(&mut self, report: &mut Report) {
        let limit = self.limits.deadline + self.limits.bound + PATIENCE;
        let start = Instant::now();
        loop {
            let some_run = self.family.look(LOOK);
            let runs = |member: &Member| member.ended.is_none();
            let awaited = match self.plan.launched {
                // With the launcher, everything ends.
                true => some_run,
                // Nobody ends a stopped rank.
                false => (self.family.members.iter())
                    .any(|member| runs(member) && self.is_survivor(member)),
            };
            if !awaited {
                return;
            }
            if start.elapsed() > limit {
                let left = self.family.members.iter().filter(|member| runs(member));
                let left: Vec<String> = left
                    .map(|one| format!("{} of rank {:?}", one.pid.as_raw_nonzero(), one.rank))
                    .collect();
                report.has_left = true;
                return report.fault(format!("processes are left: {}", left.join(", ")));
            }
        }
    }

    /// Ends what is left; returns how the launcher ended.
    fn clean_up(&mut self) -> Option<ExitStatus> {
        let children: Vec<Pid> = self.children.iter().map(Pid::from_child).collect();
        self.family.end(&children);
        let ended = self
            .children
            .iter_mut()
            .map(|child| child.wait().expect("a child"));
        let ended: Vec<ExitStatus> = ended.collect();
        ended.first().copied().filter(|_| self.plan.launched)
    }

    fn judge(&self, lines: &[String], status: Option<ExitStatus>, report: &mut Report) {
        let kills: Vec<&Done> = (self.done.iter())
            .filter(|done| done.act.how == How::Kill)
            .collect();
        let known_from = match self.plan.launched {
            true => kills.first().copied(),
            false => self.judge_lines(lines, &kills, report),
        };
        if let Some(done) = known_from {
            let survivors = self
                .family
                .members
                .iter()
                .filter(|one| self.is_survivor(one));
            let ends = survivors.filter_map(|one| Some(one.ended?.0));
            let last = ends.map(|end| end.saturating_duration_since(done.at)).max();
            report.after_kill = last;
            if let Some(last) = last.filter(|last| *last > self.limits.bound) {
                report.fault(format!("a survivor ended {last:?} after the kill"));
            }
        }
        if let Some(status) = status.filter(|_| !self.plan.ends_launcher()) {
            report.has_verdict = !kills.is_empty();
            report.is_code_137 = status.code() == Some(137);
            self.judge_launcher(lines, status, &kills, report);
        }
    }

    /// Judges what `symmem run` says of the ranks that were killed.
    fn judge_launcher(
        &self,
        lines: &[String],
        status: ExitStatus,
        kills: &[&Done],
        report: &mut Report,
    ) {
        let said = lines.iter().find(|line| line.starts_with("symmem: rank "));
        let Some(said) = said else {
            return report.fault("the launcher names no rank".into());
        };
        let code = if kills.is_empty() { 1 } else { 137 };
        if status.code() != Some(code) {
            report.fault(format!("{status} instead of {code}"));
        }
        let names =
            |number: u32, how: &str| said.starts_with(&format!("symmem: rank {number} {how}"));
        if kills.is_empty() {
            let stopped = self.plan.ranks(How::Stop);
            let mut others = (0..self.plan.world).filter(|number| !stopped.contains(number));
            if !others.any(|number| names(number, "exited with code 1")) {
                report.fault(format!("`{said}` names no rank that gave up"));
            }
            return;
        }
        // In the order in which they died, which is that of the signals only if both got to run.
        let mut dead: Vec<(usize, Instant, &Done)> = (kills.iter())
            .filter_map(|done| {
                let member = self.family.members.iter().find(|one| one.pid == done.pid)?;
                let (at, place) = member.ended?;
                Some((place, at, *done))
            })
            .collect();
        dead.sort_by_key(|(place, ..)| *place);
        let first = dead.first().map(|(_, at, _)| *at);
        let may_be_first = dead.iter().enumerate().filter(|(index, (_, at, _))| {
            let after = first.map(|first| at.saturating_duration_since(first));
            *index == 0 || self.plan.wrapped && after.is_some_and(|after| after < CLOSE)
        });
        let mut names_first = may_be_first.map(|(_, (.., done))| match done.act.whom {
            Whom::Rank { number, is_shell } if self.plan.wrapped && !is_shell => {
                names(number, "exited with code 137 (SIGKILL)")
            }
            Whom::Rank { number, .. } => names(number, "was killed (SIGKILL)"),
            Whom::Launcher => false,
        });
        report.is_named = names_first.any(|named| named);
        if !report.is_named {
            report.fault(format!("`{said}` does not name the rank that died first"));
        }
    }

    /// Judges what survivors say that no launcher ends. Returns the first kill that one of them knows of.
    fn judge_lines<'d>(
        &self,
        lines: &[String],
        kills: &[&'d Done],
        report: &mut Report,
    ) -> Option<&'d Done> {
        let hit: Vec<u32> = [How::Kill, How::Stop]
            .into_iter()
            .flat_map(|how| self.plan.ranks(how))
            .collect();
        let mut of_survivors = Vec::new();
        for number in (0..self.plan.world).filter(|number| !hit.contains(number)) {
            let start = format!("{END} {number}: ");
            match lines.iter().find(|line| line.starts_with(&start)) {
                Some(line) => of_survivors.push(line),
                None => report.fault(format!("rank {number} does not say why it ended")),
            }
        }
        let known = kills.iter().find(|done| {
            let Whom::Rank { number, .. } = done.act.whom else {
                return false;
            };
            of_survivors
                .iter()
                .any(|line| rank::names_death(line, number))
        });
        if known.is_none() && !kills.is_empty() {
            report.is_unmet = true;
            // Rank 0 knows who has come.
            let rank_0_lives = !hit.contains(&0);
            let is_unmet = |line: &str| match rank_0_lives {
                true => {
                    (self.plan.ranks(How::Kill).iter()).all(|&dead| rank::names_missing(line, dead))
                }
                false => rank::is_timeout(line),
            };
            if let Some(line) = of_survivors.iter().find(|line| !is_unmet(line)) {
                report.fault(format!("nobody names the dead, but one says: {line}"));
            }
        }
        known.copied()
    }
}
