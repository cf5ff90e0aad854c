//! The test's side of a world.

use super::setting::Setting;
use super::{DEADLINE, JOB, PATIENCE, RANK, ROLE, SETTING, SETUP_DEADLINE, WORLD, fresh_name};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// A rank, as the test sees it.
pub struct Rank {
    pub number: usize,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<(Instant, String)>,
    heard: Vec<String>,
    ended: Option<ExitStatus>,
}

/// The ranks of one job. Dropping it kills those that still run.
pub struct World {
    pub ranks: Vec<Rank>,
    directory: PathBuf,
    setting: Setting,
}

/// How a world is started.
pub struct Plan {
    role: &'static str,
    world: usize,
    setting: Setting,
    environment: Vec<(String, String)>,
    special: Vec<(usize, String, String)>,
    absent: Vec<usize>,
    job: String,
}

impl Plan {
    pub fn new(role: &'static str, world: usize, setting: Setting) -> Self {
        Self {
            role,
            world,
            setting,
            environment: Vec::new(),
            special: Vec::new(),
            absent: Vec::new(),
            job: fresh_name("job"),
        }
    }

    /// Sets a variable of all ranks.
    pub fn env(mut self, name: &str, value: impl ToString) -> Self {
        self.environment.push((name.into(), value.to_string()));
        self
    }

    /// Sets a variable of one rank.
    pub fn env_of(mut self, rank: usize, name: &str, value: impl ToString) -> Self {
        self.special.push((rank, name.into(), value.to_string()));
        self
    }

    /// Sets the argument of the role.
    pub fn argument(self, text: impl ToString) -> Self {
        self.env("FAILURES_ARGUMENT", text)
    }

    pub fn deadline(self, deadline: Duration) -> Self {
        self.env(DEADLINE, deadline.as_millis())
    }

    pub fn setup_deadline(self, deadline: Duration) -> Self {
        self.env(SETUP_DEADLINE, deadline.as_millis())
    }

    pub fn without_rank(mut self, rank: usize) -> Self {
        self.absent.push(rank);
        self
    }

    pub fn job(mut self, job: &str) -> Self {
        self.job = job.into();
        self
    }

    pub fn start(self) -> World {
        let built_here = Path::new(env!("CARGO_TARGET_TMPDIR"));
        // A test program that was copied to another machine has no target directory.
        let root = match built_here.is_dir() {
            true => built_here.to_path_buf(),
            false => std::env::temp_dir(),
        };
        let directory = root.join(fresh_name("world"));
        std::fs::create_dir_all(&directory).expect("a directory for the world");
        let mut world = World {
            ranks: Vec::new(),
            directory,
            setting: self.setting,
        };
        for rank in (0..self.world).filter(|rank| !self.absent.contains(rank)) {
            let child = self.spawn(rank, &world.directory);
            world.ranks.push(child);
        }
        world
    }

    fn spawn(&self, rank: usize, directory: &Path) -> Rank {
        let mut command = Command::new(std::env::current_exe().expect("this program's path"));
        command
            .args([
                "--exact",
                "rank",
                "--nocapture",
                "--test-threads=1",
                "--quiet",
            ])
            .env(ROLE, self.role)
            .env(RANK, rank.to_string())
            .env(WORLD, self.world.to_string())
            .env(JOB, &self.job)
            .env(SETTING, self.setting.name())
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        if let Some(libraries) = self.setting.libraries() {
            command
                .env("SYMMEM_LIBRARY_PATH", libraries)
                .env("FAKE_DEVICE_COUNT", "4")
                .env("FAKE_DEVICE_LEDGER", directory.join("ledger"))
                .env("FAKE_DEVICE_REPORT", directory.join("report"));
        }
        for (name, value) in &self.environment {
            command.env(name, value);
        }
        for (_, name, value) in self.special.iter().filter(|(who, ..)| *who == rank) {
            command.env(name, value);
        }
        let mut child = command.spawn().expect("this program starts");
        let output = child.stdout.take().expect("piped");
        let (give, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let Ok(line) = line else { return };
                if let Some(line) = line.strip_prefix('@')
                    && give.send((Instant::now(), line.to_owned())).is_err()
                {
                    return;
                }
            }
        });
        Rank {
            number: rank,
            input: child.stdin.take(),
            child,
            lines,
            heard: Vec::new(),
            ended: None,
        }
    }
}

impl Rank {
    /// Waits for `@key text`; returns when it arrived, and the text.
    #[track_caller]
    pub fn expect(&mut self, key: &str) -> (Instant, String) {
        self.expect_within(key, PATIENCE)
    }

    #[track_caller]
    pub fn expect_within(&mut self, key: &str, limit: Duration) -> (Instant, String) {
        let until = Instant::now() + limit;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok((at, line)) => {
                    let (found, text) = line.split_once(' ').unwrap_or((&line, ""));
                    if found == key {
                        return (at, text.to_owned());
                    }
                    self.heard.push(line);
                }
                Err(reason) => {
                    let why = match reason {
                        RecvTimeoutError::Timeout => format!("hangs: no line for {limit:?}"),
                        RecvTimeoutError::Disconnected => "ended".into(),
                    };
                    panic!(
                        "rank {} {why}; awaited @{key}, heard {:?}",
                        self.number, self.heard
                    );
                }
            }
        }
    }

    /// Lets the rank continue.
    pub fn go(&mut self) {
        if let Some(input) = &mut self.input {
            // The next expectation notices a rank that is gone.
            let _ = input.write_all(b"go\n");
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("a child of ours that was not waited for");
    }

    /// Kills the rank; returns when.
    pub fn kill(&self) -> Instant {
        let now = Instant::now();
        self.signal(Signal::KILL);
        now
    }

    /// Stops the rank until [`Rank::resume`].
    pub fn stop(&self) -> Instant {
        let now = Instant::now();
        self.signal(Signal::STOP);
        now
    }

    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child of ours") {
                self.ended = Some(status);
                return status;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "rank {} hangs at its end; heard {:?}",
                self.number,
                self.heard
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn ended_well(&self) -> bool {
        self.ended.is_some_and(|status| status.success())
    }

    /// Returns the start of the fake driver's report on this rank.
    fn head(&self) -> String {
        format!("process {} rank {} ", self.process(), self.number)
    }

    /// Waits for a clean end.
    #[track_caller]
    pub fn ends_well(&mut self) {
        let status = self.wait();
        assert!(
            status.success(),
            "rank {}: {status}; heard {:?}",
            self.number,
            self.heard
        );
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        if self.ended.is_none() {
            // This also ends a stopped process. Nothing else waits for this child.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl World {
    /// Waits until every rank is ready.
    #[track_caller]
    pub fn ready(&mut self) -> &mut Self {
        for rank in &mut self.ranks {
            rank.expect("ready");
        }
        self
    }

    /// Lets every rank continue.
    pub fn go(&mut self) {
        for rank in &mut self.ranks {
            rank.go();
        }
    }

    /// Returns what every rank sends under `key`.
    #[track_caller]
    pub fn expect(&mut self, key: &str) -> Vec<String> {
        self.ranks
            .iter_mut()
            .map(|rank| rank.expect(key).1)
            .collect()
    }

    /// Waits for every rank's clean end and checks that nothing is left behind.
    #[track_caller]
    pub fn ends_well(&mut self) {
        for rank in &mut self.ranks {
            rank.ends_well();
        }
        self.left_nothing();
    }

    /// Asserts that the fake driver reports no violation and no leak.
    #[track_caller]
    pub fn left_nothing(&self) {
        let report = self.report();
        let bad: Vec<&str> = report
            .lines()
            .filter(|line| !line.starts_with("process "))
            .collect();
        assert!(bad.is_empty(), "the fake driver reports:\n{report}");
    }

    /// Returns the fake driver's report of all processes that ended by themselves.
    #[track_caller]
    pub fn report(&self) -> String {
        if self.setting.libraries().is_none() {
            return String::new();
        }
        let report = std::fs::read_to_string(self.directory.join("report")).unwrap_or_default();
        // A missing report must not pass as one without violations.
        for rank in self.ranks.iter().filter(|rank| rank.ended_well()) {
            let found = report.lines().filter(|line| line.starts_with(&rank.head()));
            let (number, found) = (rank.number, found.count());
            assert_eq!(found, 1, "reports of rank {number}, in:\n{report}");
        }
        report
    }

    /// Returns the report of one rank that ended by itself: its violations and leaks.
    #[track_caller]
    pub fn report_of(&self, rank: &Rank) -> Vec<String> {
        let report = self.report();
        let own = report
            .lines()
            .skip_while(|line| !line.starts_with(&rank.head()));
        let own = own.skip(1).take_while(|line| !line.starts_with("process "));
        own.map(str::to_owned).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.ranks.clear();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
