//! Worlds of rank processes: each rank is this program, started again with a role.
//!
//! A rank sends its test lines `@key text` on its standard output, and continues at a line on its standard input.

use crate::backend::Backend;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use symmem::backends::Selection;
use symmem::bootstrap::Secret;
use symmem::{Builder, Communicator};

const ROLE: &str = "NODES_ROLE";
/// Names the backend to a role.
const BACKEND: &str = "NODES_BACKEND";

/// Returns the directory of the fake runtime, if it needs one.
fn runtime(backend: Backend) -> Option<PathBuf> {
    match backend {
        Backend::Host => None,
        Backend::Cuda => Some(crate::fakes::fake_driver().into()),
        Backend::Hip => Some(crate::hip::fake_hip_without_libraries()),
    }
}

/// Time limit of each step of a test, however busy the machine is. A hang ends here.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// This rank, in its own process.
pub struct Member {
    pub rank: usize,
    pub world: usize,
}

impl Member {
    /// Returns the role of this process, if a test started it as a rank.
    pub fn find() -> Option<(String, Self)> {
        let role = std::env::var(ROLE).ok()?;
        // If the test is killed, its ranks are killed too.
        let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
        let number = |name: &str| std::env::var(name).unwrap().parse().unwrap();
        let member = Self {
            rank: number("SYMMEM_RANK"),
            world: number("SYMMEM_WORLD"),
        };
        Some((role, member))
    }

    pub fn builder(&self) -> Builder {
        let backend = std::env::var(BACKEND).unwrap_or_else(|_| "host".into());
        Builder::new()
            .backend(Selection::Named(backend))
            .deadline(PATIENCE)
            .setup_deadline(PATIENCE)
    }

    pub fn join(&self) -> Communicator {
        self.builder().build().expect("all ranks come")
    }

    /// Sends a line to the test.
    pub fn say(&self, key: &str, text: impl std::fmt::Display) {
        let text = text.to_string().replace('\n', " | ");
        let mut output = std::io::stdout().lock();
        // The harness may have begun a line. A failure means that the test is gone, so it is ignored.
        let _ = write!(output, "\n@{key} {text}\n");
        let _ = output.flush();
    }

    /// Tells the test that this rank is ready, and waits until it may continue.
    pub fn ready(&self) {
        self.say("ready", "");
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).unwrap();
    }
}

/// How a job is started.
pub struct Plan {
    role: &'static str,
    nodes: Vec<&'static str>,
    environment: Vec<(usize, String, String)>,
    address: String,
    secret: String,
    /// The file in which a fake runtime reports what broke its rules.
    report: Option<PathBuf>,
}

impl Plan {
    /// Plans a job with one rank for each node's key.
    pub fn new(role: &'static str, nodes: &[&'static str]) -> Self {
        Self {
            role,
            nodes: nodes.to_vec(),
            environment: Vec::new(),
            address: free_address(),
            secret: Secret::random().unwrap().to_hex(),
            report: None,
        }
    }

    /// Gives the ranks memory of this backend. Each has a device of its own.
    pub fn on(mut self, backend: Backend) -> Self {
        static JOBS: AtomicU32 = AtomicU32::new(0);
        let Some(runtime) = runtime(backend) else {
            return self;
        };
        let (process, number) = (std::process::id(), JOBS.fetch_add(1, Ordering::Relaxed));
        let report =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("nodes-{process}-{number}.report"));
        self.report = Some(report.clone());
        self.env(BACKEND, backend.name())
            .env("SYMMEM_LIBRARY_PATH", runtime.display())
            .env("NCCL_NVLS_ENABLE", "0")
            .env("FAKE_DEVICE_COUNT", "4")
            .env("FAKE_DEVICE_REPORT", report.display())
    }

    /// Does not look at the fake runtime's report: ranks do not end in good order.
    pub fn without_report(mut self) -> Self {
        self.report = None;
        self
    }

    /// Makes ranks meet where those of `other` do.
    pub fn at_the_address_of(mut self, other: &Self) -> Self {
        self.address.clone_from(&other.address);
        self
    }

    /// Sets a variable of one rank; empty unsets it.
    pub fn env_of(mut self, rank: usize, name: &str, value: impl ToString) -> Self {
        self.environment
            .push((rank, name.into(), value.to_string()));
        self
    }

    /// Sets a variable of all ranks; empty unsets it.
    pub fn env(self, name: &str, value: impl ToString) -> Self {
        let ranks = 0..self.nodes.len();
        ranks.fold(self, |plan, rank| {
            plan.env_of(rank, name, value.to_string())
        })
    }

    pub fn start(&self) -> Job {
        let ranks = (0..self.nodes.len()).map(|rank| self.start_rank(rank));
        Job {
            ranks: ranks.collect(),
            report: self.report.clone(),
        }
    }

    fn start_rank(&self, rank: usize) -> Rank {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "rank", "--nocapture", "--test-threads=1"])
            .env(ROLE, self.role)
            .env("SYMMEM_RANK", rank.to_string())
            .env("SYMMEM_WORLD", self.nodes.len().to_string())
            .env("SYMMEM_NODE", self.nodes[rank])
            .env("SYMMEM_RENDEZVOUS", &self.address)
            .env("SYMMEM_SECRET", &self.secret)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        for (_, name, value) in self.environment.iter().filter(|(of, ..)| *of == rank) {
            command.env(name, value);
        }
        let mut child = command.spawn().unwrap();
        let (sender, lines) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if let Some(line) = line.strip_prefix('@') {
                    let _ = sender.send((Instant::now(), line.to_owned()));
                }
            }
        });
        Rank {
            number: rank,
            input: child.stdin.take(),
            child,
            lines,
        }
    }
}

/// Returns an address with a port that was free a moment ago.
pub fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

/// The ranks of one job. Dropping it kills those that still run.
pub struct Job {
    pub ranks: Vec<Rank>,
    report: Option<PathBuf>,
}

impl Job {
    /// Waits until all ranks are ready.
    pub fn ready(&mut self) {
        for rank in &mut self.ranks {
            rank.hear("ready");
        }
    }

    /// Lets all ranks continue.
    pub fn go(&mut self) {
        for rank in &mut self.ranks {
            rank.go();
        }
    }

    /// Waits until all ranks have ended without a failure.
    pub fn end(mut self) {
        for rank in &mut self.ranks {
            assert!(rank.child.wait().unwrap().success(), "rank {}", rank.number);
        }
        let Some(report) = &self.report else { return };
        let told = std::fs::read_to_string(report).expect("the runtime's report");
        let _ = std::fs::remove_file(report);
        let (ranks, wrong): (Vec<&str>, Vec<&str>) =
            (told.lines()).partition(|line| line.starts_with("process "));
        assert_eq!(ranks.len(), self.ranks.len(), "reports in\n{told}");
        assert!(
            wrong.is_empty(),
            "the runtime's report:\n{}",
            wrong.join("\n")
        );
    }
}

/// A rank, as the test sees it.
pub struct Rank {
    number: usize,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<(Instant, String)>,
}

impl Rank {
    /// Returns the text of the rank's next line with this key, and when it came.
    pub fn hear(&mut self, key: &str) -> (String, Instant) {
        let until = Instant::now() + PATIENCE + Duration::from_secs(90);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let heard = self.lines.recv_timeout(left);
            let (at, line) = heard.unwrap_or_else(|_| panic!("rank {} says no {key}", self.number));
            let (said, text) = line.split_once(' ').unwrap_or((&line, ""));
            if said == key {
                return (text.to_owned(), at);
            }
        }
    }

    pub fn go(&mut self) {
        // A rank that was killed reads nothing.
        let _ = self.input.as_mut().unwrap().write_all(b"go\n");
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
