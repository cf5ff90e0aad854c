//! Builds the fake driver, and runs a role of this test program over it.
//!
//! The backend opens the driver once per process and finds it by environment variables. Every role is therefore
//! this program, started again with its own environment.

use crate::fakes::{driver, fake, place_without};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use symmem_core::backend::{CallResult, Failure};

/// Variable with the role of a started child.
pub const ROLE: &str = "SYMMEM_TEST_ROLE";
/// Variable with the file to which a child writes its outcome.
const OUTCOME: &str = "SYMMEM_TEST_OUTCOME";

/// Returns a directory with the fake driver as `libcuda.so.1`.
pub fn fake_directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let directory = fresh("fake").with_file_name("fake");
        std::fs::create_dir_all(&directory).expect("a directory");
        let link = directory.join("libcuda.so.1");
        // Another run may create the same link at the same time; only its target matters.
        let _ = std::os::unix::fs::symlink(driver().0, &link);
        assert!(link.exists(), "{} leads nowhere", link.display());
        directory
    })
}

/// Returns a directory with the fake driver, and the fake NCCL as `libnccl.so.2`.
pub fn nccl_directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let directory = with_driver("nccl");
        let _ = std::os::unix::fs::symlink(fake(NCCL_FAKE), directory.join(NCCL));
        directory
    })
}

/// Returns a directory as [`nccl_directory`] does, with a copy of NCCL in which the names of these functions
/// are overwritten.
pub fn nccl_without(functions: &[&str]) -> PathBuf {
    let directory = with_driver("nccl-without");
    place_without(&fake(NCCL_FAKE), functions, &directory.join(NCCL));
    directory
}

const NCCL: &str = "libnccl.so.2";
/// The file of the fake NCCL.
const NCCL_FAKE: &str = "libsymmem_fake_nccl.so";

/// Returns a new directory with the fake driver.
fn with_driver(name: &str) -> PathBuf {
    let directory = fresh(name);
    std::fs::create_dir_all(&directory).expect("a directory");
    let driver = directory.join("libcuda.so.1");
    let target = fake_directory().join("libcuda.so.1");
    std::os::unix::fs::symlink(target, driver).expect("a link");
    directory
}

/// Returns a path that no other run uses.
pub fn fresh(name: &str) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let process = std::process::id();
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.{process}.{number}"))
}

/// A running role.
pub struct Running {
    child: Child,
    /// Whether its driver may be another than the fake.
    elsewhere: bool,
    outcome: PathBuf,
    report: PathBuf,
    trace: PathBuf,
}

/// Outcome of a role.
pub struct Outcome {
    /// `key value` lines that the role wrote.
    pub lines: Vec<(String, String)>,
    /// The fake's final report: broken rules and leaks.
    pub report: Vec<String>,
    /// The driver's calls, in order.
    pub calls: Vec<String>,
}

/// Starts a role with these variables.
pub fn start(role: &str, environment: &[(&str, &str)]) -> Running {
    let (outcome, report, trace) = (fresh("outcome"), fresh("report"), fresh("trace"));
    let child = Command::new(std::env::current_exe().expect("this program's path"))
        .args(["--exact", "child", "--ignored", "--quiet"])
        .env(ROLE, role)
        .env(OUTCOME, &outcome)
        .env("SYMMEM_LIBRARY_PATH", fake_directory())
        .env("FAKE_DEVICE_REPORT", &report)
        .env("FAKE_DEVICE_TRACE", &trace)
        .envs(environment.iter().copied())
        .stdout(Stdio::null())
        .spawn()
        .expect("this program starts");
    let path = |(name, _): &(&str, &str)| *name == "SYMMEM_LIBRARY_PATH";
    Running {
        child,
        elsewhere: environment.iter().any(path),
        outcome,
        report,
        trace,
    }
}

/// Runs a role to its end.
pub fn run(role: &str, environment: &[(&str, &str)]) -> Outcome {
    start(role, environment).wait()
}

impl Running {
    /// Waits for the end.
    pub fn wait(mut self) -> Outcome {
        let process = self.child.id();
        let status = self.child.wait().expect("a child of ours");
        let take = |path: &Path| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            let _ = std::fs::remove_file(path);
            text
        };
        let (text, report, trace) = (take(&self.outcome), take(&self.report), take(&self.trace));
        assert!(
            status.success(),
            "the role failed: {status}\n{text}{report}"
        );
        Outcome {
            lines: text
                .lines()
                .filter_map(|line| line.split_once(' '))
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
            report: {
                let mut lines = report.lines();
                // A missing report must not count as a clean one.
                let head = lines.next().unwrap_or_default();
                let own = head.starts_with(&format!("process {process} "));
                let uncalled = self.elsewhere && trace.is_empty();
                assert!(own || uncalled, "no report of {process}: {report}");
                lines.map(str::to_owned).collect()
            },
            // process thread #number symbol = code
            calls: trace
                .lines()
                .filter(|line| line.contains(" = "))
                .filter_map(|line| line.split(' ').nth(3))
                .map(str::to_owned)
                .collect(),
        }
    }
}

impl Outcome {
    /// Returns a line's value; empty if there is no such line.
    pub fn get(&self, key: &str) -> &str {
        let line = self.lines.iter().find(|(name, _)| name == key);
        line.map_or("", |(_, value)| value)
    }

    /// Asserts that the role succeeded, broke no rule and leaked nothing.
    #[track_caller]
    pub fn assert_clean(&self) {
        assert_eq!(self.get("result"), "ok", "{:?}", self.lines);
        assert_eq!(self.report, [""; 0]);
    }
}

/// Writes a role's outcome.
pub fn tell(key: &str, value: impl std::fmt::Display) {
    use std::io::Write;
    let Some(path) = std::env::var_os(OUTCOME) else {
        return;
    };
    let mut file = std::fs::File::options()
        .create(true)
        .append(true)
        .open(path)
        .expect("the outcome's file");
    let line = value.to_string().replace('\n', " ");
    writeln!(file, "{key} {line}").expect("a line");
}

/// Writes a result: `result ok`, or the failure's parts.
pub fn tell_result(result: CallResult<()>) {
    match result {
        Ok(()) => tell("result", "ok"),
        Err(failure) => tell_failure(&failure),
    }
}

fn tell_failure(failure: &Failure) {
    tell("result", "failed");
    tell("call", &failure.call);
    tell("code", failure.vendor_code);
    tell("status", failure.status.name());
    tell("message", &failure.message);
}

/// Calls one of the fake's own functions without arguments.
pub fn fake_number(name: &str) -> u64 {
    let path = std::env::var_os("SYMMEM_LIBRARY_PATH").expect("set by the parent");
    // SAFETY: the fake is loaded already, or loads without side effects; the function takes no arguments and
    // returns a number.
    unsafe {
        let library = libloading::Library::new(Path::new(&path).join("libcuda.so.1"))
            .expect("the fake driver");
        let function = library
            .get::<unsafe extern "C" fn() -> u64>(name)
            .expect("a function of the fake");
        let number = function();
        std::mem::forget(library);
        number
    }
}
