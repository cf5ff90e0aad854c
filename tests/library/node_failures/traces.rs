//! Files that a run could leave in `/tmp` and `/dev/shm`, which the hosts share with the machine. Sockets and processes
//! are those of the hosts, which [`two_hosts::Hosts::leftovers`] lists.

use std::collections::BTreeSet;
use std::time::Duration;

/// Time for another program's file, which came during the run, to go.
const PATIENCE: Duration = Duration::from_secs(5);

/// Returns symmem's files, except the scratch folders of builds.
pub fn files() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for directory in ["/tmp", "/dev/shm"] {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let names = names.filter(|name| name.contains("symmem") && !name.contains("-build-"));
        found.extend(names.map(|name| format!("{directory}/{name}")));
    }
    found
}

/// Returns the files that have come since and stay.
pub fn new_since(before: &BTreeSet<String>) -> Vec<String> {
    let mut left = files();
    left.retain(|file| !before.contains(file));
    if !left.is_empty() {
        std::thread::sleep(PATIENCE);
        let now = files();
        left.retain(|file| now.contains(file));
    }
    left.into_iter().collect()
}

#[test]
fn a_new_file_that_stays_is_a_trace() {
    let before = files();
    let path = format!("/tmp/symmem-trace-{}", std::process::id());
    std::fs::write(&path, "").unwrap();
    let left = new_since(&before);
    std::fs::remove_file(&path).unwrap();
    assert!(left.contains(&path), "{left:?}");
}
