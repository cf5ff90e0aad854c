//! Starts the ranks of a world.

use crate::amount::sampled_out;
use crate::backend::Backend;
use crate::support::{Release, fake_driver_and_libraries, fake_hip};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use symmem::bootstrap::Secret;

/// The variable that makes this binary a rank.
pub const ROLE: &str = "SYMMEM_NODES_TEST_RANK";
/// The variable that names a rank's backend.
pub const BACKEND: &str = "SYMMEM_NODES_TEST_BACKEND";
/// Time after which a world that has not ended has failed.
const LIMIT: Duration = Duration::from_secs(300);

/// Returns the directory of the fake runtime and of the fake NCCL or RCCL.
fn libraries(backend: Backend) -> Option<&'static Path> {
    match backend {
        Backend::Host => None,
        Backend::Cuda => Some(fake_driver_and_libraries()),
        Backend::Hip => Some(fake_hip(Release::Seven)),
    }
}

/// Runs the checks in a world with a rank on each of the given nodes.
///
/// # Panics
/// If a rank fails, with its output; if a rank violates a rule of its fake runtime.
pub fn check(backend: Backend, nodes: &[u32]) {
    if sampled_out(3) {
        return;
    }
    run(backend, nodes, "check", &Expected::default());
}

/// What is particular about a world.
#[derive(Default)]
pub struct Expected {
    /// Variables of all its ranks.
    pub variables: &'static [(&'static str, &'static str)],
    /// A rank that kills itself.
    pub killed: Option<usize>,
}

/// Runs ranks in a role.
///
/// # Panics
/// As [`check`].
pub fn run(backend: Backend, nodes: &[u32], role: &str, expected: &Expected) {
    if symmem_ucx_is_missing() {
        return;
    }
    let libraries = libraries(backend);
    let report = libraries.map(|_| report_file());
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound address").to_string();
    drop(listener);
    let secret = Secret::random().expect("random bytes").to_hex();
    let start = |(rank, node): (usize, &u32)| {
        let local = nodes[..rank].iter().filter(|other| *other == node).count();
        let here = nodes.iter().filter(|other| *other == node).count();
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        if let (Some(libraries), Some(report)) = (libraries, &report) {
            command
                .env("SYMMEM_LIBRARY_PATH", libraries)
                .env("NCCL_NVLS_ENABLE", "0")
                .env("FAKE_DEVICE_COUNT", nodes.len().to_string())
                .env("FAKE_DEVICE_REPORT", report);
        }
        command
            .args(["--exact", "rank", "--nocapture"])
            .env(ROLE, role)
            .env(BACKEND, backend.name())
            .envs(expected.variables.iter().copied())
            .env("SYMMEM_RANK", rank.to_string())
            .env("SYMMEM_WORLD", nodes.len().to_string())
            .env("SYMMEM_LOCAL_RANK", local.to_string())
            .env("SYMMEM_LOCAL_WORLD", here.to_string())
            .env("SYMMEM_RENDEZVOUS", &address)
            .env("SYMMEM_SECRET", &secret)
            .env("SYMMEM_NODE", format!("node {node}"))
            .env("UCX_TLS", "tcp,self")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a process")
    };
    let ranks: Vec<Child> = nodes.iter().enumerate().map(start).collect();
    let begun = Instant::now();
    let waiting = ranks
        .into_iter()
        .map(|child| std::thread::spawn(move || finish(child, begun)));
    let ends: Vec<_> = waiting
        .collect::<Vec<_>>()
        .into_iter()
        .map(|one| one.join())
        .collect();
    let failed: Vec<String> = ends
        .into_iter()
        .enumerate()
        .filter(|(rank, _)| expected.killed != Some(*rank))
        .filter_map(|(rank, end)| Some(format!("rank {rank}: {}", end.expect("no panic").err()?)))
        .collect();
    assert!(failed.is_empty(), "{nodes:?}:\n{}", failed.join("\n"));
    if let Some(report) = report {
        check_report(
            &report,
            nodes.len() - usize::from(expected.killed.is_some()),
        );
    }
}

/// Returns a name for the file to which the processes of a world report what they did against the rules.
fn report_file() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("node-collectives-{}-{number}.report", std::process::id());
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Requires that as many processes have reported, and nothing that they did against the rules.
fn check_report(file: &Path, processes: usize) {
    let report = std::fs::read_to_string(file).expect("the report's file");
    let (told, wrong): (Vec<&str>, Vec<&str>) = report
        .lines()
        .partition(|line| line.starts_with("process "));
    assert_eq!(told.len(), processes, "reports in\n{report}");
    assert!(wrong.is_empty(), "the runtime's report:\n{report}");
    // What a failed test found stays for whoever looks.
    std::fs::remove_file(file).expect("the report's file");
}

/// Waits for a rank. Returns its output if it failed or did not end.
fn finish(mut child: Child, begun: Instant) -> Result<(), String> {
    let id = rustix::process::Pid::from_child(&child);
    // A thread, since the rank's output must be read while it runs.
    let (done, ended) = std::sync::mpsc::channel::<()>();
    let guard = std::thread::spawn(move || {
        if ended
            .recv_timeout(LIMIT.saturating_sub(begun.elapsed()))
            .is_err()
        {
            let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
        }
    });
    let (mut output, mut errors) = (String::new(), String::new());
    let read = |mut from: Box<dyn std::io::Read + Send>| {
        std::thread::spawn(move || {
            let mut text = String::new();
            let _ = from.read_to_string(&mut text);
            text
        })
    };
    let readers = (
        child.stdout.take().map(|out| read(Box::new(out))),
        child.stderr.take().map(|errors| read(Box::new(errors))),
    );
    let status = child.wait().map_err(|error| error.to_string())?;
    let _ = done.send(());
    let _ = guard.join();
    if let (Some(out), Some(err)) = readers {
        output = out.join().unwrap_or_default();
        errors = err.join().unwrap_or_default();
    }
    match status.success() {
        true => {
            // A test's output is shown if it asks for that.
            print!("{output}");
            Ok(())
        }
        false => Err(format!("{status}\n{output}\n{errors}")),
    }
}

/// Returns whether the machine has no UCX, and says so.
fn symmem_ucx_is_missing() -> bool {
    let name = std::env::var("SYMMEM_UCX_LIBRARY").unwrap_or_else(|_| "libucp.so.0".into());
    // SAFETY: UCX's library may be loaded; it is not called.
    let missing = unsafe { libloading::Library::new(&name) }.is_err();
    if missing {
        eprintln!("skipped: {name} is not installed");
    }
    missing
}
