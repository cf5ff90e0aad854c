//! Starts the ranks of a world.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use symmem::bootstrap::Secret;

/// The variable that makes this binary a rank.
pub const ROLE: &str = "SYMMEM_NODES_TEST_RANK";
/// Time after which a world that has not ended has failed.
const LIMIT: Duration = Duration::from_secs(300);

/// Runs the checks in a world with a rank on each of the given nodes.
///
/// # Panics
/// If a rank fails, with its output.
pub fn check(nodes: &[u32]) {
    run(nodes, "check");
}

/// Runs ranks in a role.
///
/// # Panics
/// If a rank fails, with its output.
pub fn run(nodes: &[u32], role: &str) {
    if symmem_ucx_is_missing() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound address").to_string();
    drop(listener);
    let secret = Secret::random().expect("random bytes").to_hex();
    let start = |(rank, node): (usize, &u32)| {
        let local = nodes[..rank].iter().filter(|other| *other == node).count();
        let here = nodes.iter().filter(|other| *other == node).count();
        Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "rank", "--nocapture"])
            .env(ROLE, role)
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
        .filter_map(|(rank, end)| Some(format!("rank {rank}: {}", end.expect("no panic").err()?)))
        .collect();
    assert!(failed.is_empty(), "{nodes:?}:\n{}", failed.join("\n"));
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
