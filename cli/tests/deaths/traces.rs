//! What a run could leave on the machine: files in `/tmp` and `/dev/shm`, and abstract sockets.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time for another program's traces, which appeared during the run, to go.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is there, except what programs that run have named after their process, as scratch folders of builds are.
pub struct Traces(BTreeSet<String>);

impl Traces {
    pub fn look() -> Self {
        let mut found = BTreeSet::new();
        for directory in ["/tmp", "/dev/shm"] {
            let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
            let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
            let names = names.filter(|name| name.contains("symmem"));
            found.extend(names.map(|name| format!("{directory}/{name}")));
        }
        found.retain(|trace| !is_in_use(trace));
        let sockets = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
        let names = sockets.lines().filter_map(|line| line.rsplit_once(" @"));
        let names = names.filter(|(_, name)| name.starts_with("symmem"));
        found.extend(names.map(|(_, name)| format!("@{name}")));
        Self(found)
    }

    /// Returns what has come since and does not go. The traces of another program, whose run ends, go.
    pub fn new_since(&self) -> Vec<String> {
        let start = Instant::now();
        let mut left = Self::look().0;
        left.retain(|trace| !self.0.contains(trace));
        while !left.is_empty() && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
            let now = Self::look().0;
            left.retain(|trace| now.contains(trace));
        }
        left.into_iter().collect()
    }
}

/// Returns whether a name ends with the number of a process that runs.
fn is_in_use(name: &str) -> bool {
    let number = name.rsplit('-').next().unwrap_or_default();
    number
        .parse::<u32>()
        .is_ok_and(|pid| Path::new(&format!("/proc/{pid}")).exists())
}

#[test]
fn only_what_no_running_process_is_named_in_is_a_trace() {
    assert!(is_in_use(&format!(
        "/tmp/symmem-build-{}",
        std::process::id()
    )));
    for name in ["/tmp/symmem-0", "/tmp/symmem", "/tmp/symmem-build-x"] {
        assert!(!is_in_use(name));
    }
}
