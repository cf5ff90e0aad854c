//! What a run could leave on the machine: files in `/tmp` and `/dev/shm`, and abstract sockets.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Time for another program's traces, which appeared during the run, to go.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is there.
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
