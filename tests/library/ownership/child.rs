//! Runs a program in a child process, since it may crash, and judges how it ended.

use crate::backend::Backend;
use crate::fakes::fake_driver;
use crate::hip::{Release, fake_hip};
use crate::job::job;
use rustix::process::Signal;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use symmem::{Error, Result};

/// Environment variable that names the program to a child.
const PROGRAM: &str = "OWNERSHIP_PROGRAM";
/// Environment variable that names the backend to a child.
pub const BACKEND: &str = "OWNERSHIP_BACKEND";
/// Starts the line in which a child reports its outcome.
const OUTCOME: &str = "outcome: ";
/// When a child counts as hung. Programs take seconds.
const LIMIT: Duration = Duration::from_secs(300);

fn libraries(backend: Backend) -> Option<&'static Path> {
    match backend {
        Backend::Host => None,
        Backend::Cuda => Some(fake_driver()),
        Backend::Hip => Some(fake_hip(Release::Seven)),
    }
}

/// Returns the name of the program that this process is to run, if it is a child.
pub fn requested() -> Option<String> {
    std::env::var(PROGRAM).ok()
}

/// Reports the outcome of a program to the parent.
///
/// # Panics
/// If the error is not one by which a call is refused: a device that failed or a wait that timed out means
/// that the program went wrong.
pub fn report(outcome: Result<()>) {
    // The test harness has printed the start of a line.
    match outcome {
        Ok(()) => println!("\n{OUTCOME}right"),
        Err(
            refusal @ (Error::InvalidArgument { .. }
            | Error::Mismatch { .. }
            | Error::Unsupported { .. }),
        ) => println!("\n{OUTCOME}{refusal}"),
        Err(error) => panic!("not a refusal: {error}"),
    }
}

/// Runs a program on a backend and asserts that it passes.
pub fn passes(program: &str, backend: Backend) {
    let violations = Path::new(env!("CARGO_TARGET_TMPDIR")).join(job("ownership-report"));
    let mut command = Command::new(std::env::current_exe().expect("a test knows its own file"));
    command
        .args(["--exact", "program", "--nocapture", "--test-threads=1"])
        .env(PROGRAM, program)
        .env(BACKEND, backend.name())
        .env("FAKE_DEVICE_REPORT", &violations)
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(libraries) = libraries(backend) {
        command.env("SYMMEM_LIBRARY_PATH", libraries);
    }
    let mut child = command.spawn().expect("this binary starts");
    let output = collect(child.stdout.take().expect("piped"));
    let errors = collect(child.stderr.take().expect("piped"));
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            break status;
        }
        if start.elapsed() > LIMIT {
            child.kill().expect("a child can be killed");
            child.wait().expect("a child can be waited for");
            panic!("{program} on {backend:?} still ran after {LIMIT:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let output = output.join().expect("the output is read");
    let errors = errors.join().expect("the output is read");
    let report = std::fs::read_to_string(&violations).unwrap_or_default();
    let _ = std::fs::remove_file(&violations);
    // The report also counts calls and leaks, which other tests check.
    let violations: Vec<&str> = report
        .lines()
        .filter(|line| line.starts_with("violation: "))
        .collect();
    let outcome = output.lines().find_map(|line| line.strip_prefix(OUTCOME));
    assert!(
        status.success() && violations.is_empty() && outcome.is_some(),
        "{program} on {backend:?}: {}; outcome: {}\n{}\n{errors}",
        describe(status),
        outcome.unwrap_or("none"),
        violations.join("\n"),
    );
}

/// Reads a pipe to its end on a thread, so that the child never waits for room in it.
fn collect<Pipe: Read + Send + 'static>(mut pipe: Pipe) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn describe(status: ExitStatus) -> String {
    let name = |signal| match Signal::from_named_raw(signal) {
        Some(Signal::SEGV) => "SIGSEGV".into(),
        Some(Signal::BUS) => "SIGBUS".into(),
        Some(Signal::ABORT) => "SIGABRT".into(),
        _ => format!("signal {signal}"),
    };
    match (status.code(), status.signal()) {
        (_, Some(signal)) => format!("killed by {}", name(signal)),
        (Some(code), None) => format!("exit code {code}"),
        (None, None) => status.to_string(),
    }
}
