//! What is left on a host: processes, and sockets that a process holds.

use crate::host::Host;
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Time for killed processes to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the processes and sockets on a host.
pub fn on(host: &Host) -> Vec<String> {
    let name = host.name();
    let processes = processes(host.namespace.inode()).into_iter();
    let processes = processes.map(|pid| format!("{name}: process {pid} {}", program(pid)));
    processes.chain(host.inside(|| sockets(&name))).collect()
}

/// Kills the processes in a network namespace and waits until they have ended.
pub fn kill(inode: u64) {
    let start = Instant::now();
    loop {
        let processes = processes(inode);
        if processes.is_empty() {
            return;
        }
        for pid in processes {
            let Some(pid) = Pid::from_raw(pid) else {
                continue;
            };
            let Ok(descriptor) = pidfd_open(pid, PidfdFlags::empty()) else {
                continue;
            };
            // It may have ended, and another have its number.
            if namespace(pid.as_raw_nonzero().get()) == Some(inode) {
                let _ = pidfd_send_signal(&descriptor, Signal::KILL);
            }
        }
        // A panic here, while another one unwinds, would hide it.
        if start.elapsed() > PATIENCE {
            return eprintln!("two-hosts: killed processes do not end");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns the processes in a network namespace, without this one.
fn processes(inode: u64) -> Vec<i32> {
    let own = getpid().as_raw_nonzero().get();
    let mut processes = pids();
    processes.retain(|&pid| pid != own && namespace(pid) == Some(inode));
    processes
}

fn pids() -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| name.parse().ok()).collect()
}

/// Returns the network namespace of a process; `None` if it has ended or is another user's.
fn namespace(pid: i32) -> Option<u64> {
    number(std::fs::read_link(format!("/proc/{pid}/ns/net")).ok()?)
}

/// Returns the number in `net:[NUMBER]`.
fn number(link: PathBuf) -> Option<u64> {
    let text = link.to_str()?.strip_prefix("net:[")?;
    text.strip_suffix(']')?.parse().ok()
}

fn program(pid: i32) -> String {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = words.split(|&byte| byte == 0).map(String::from_utf8_lossy);
    words.collect::<Vec<_>>().join(" ")
}

/// Returns the sockets of the calling thread's network namespace that a descriptor refers to. What the kernel keeps to
/// finish a closed connection is not among them.
fn sockets(host: &str) -> Vec<String> {
    // The kind, the column of the socket's number, and that of its name.
    let kinds = [
        ("tcp", 9, 1),
        ("tcp6", 9, 1),
        ("udp", 9, 1),
        ("udp6", 9, 1),
        ("unix", 6, 7),
    ];
    let mut found = Vec::new();
    for (kind, number, name) in kinds {
        let text = std::fs::read_to_string(format!("/proc/thread-self/net/{kind}"));
        for line in text.unwrap_or_default().lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            if words.get(number).is_some_and(|number| *number != "0") {
                let name = words.get(name).copied().unwrap_or("without a name");
                found.push(format!("{host}: {kind} socket {name}"));
            }
        }
    }
    found
}

/// Returns what refers to one of these network namespaces (numbers of [`Hosts::inodes`](crate::Hosts::inodes)):
/// processes in them and descriptors of them. Without any, the kernel removes them.
pub fn references(inodes: &[u64]) -> Vec<String> {
    let is_one = |link: PathBuf| number(link).is_some_and(|number| inodes.contains(&number));
    let mut found = Vec::new();
    for pid in pids() {
        if namespace(pid).is_some_and(|inode| inodes.contains(&inode)) {
            found.push(format!("process {pid} {}", program(pid)));
        }
        let entries = std::fs::read_dir(format!("/proc/{pid}/fd"));
        for entry in entries.into_iter().flatten().flatten() {
            if std::fs::read_link(entry.path()).is_ok_and(is_one) {
                found.push(format!("a descriptor of process {pid} {}", program(pid)));
            }
        }
    }
    found
}
