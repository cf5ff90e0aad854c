//! The processes below this one: which have begun to end, and how to end all of them.

use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, kill_process, pidfd_open,
    pidfd_send_signal, waitid,
};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Time for killed processes to end. Only a process that is stuck in the kernel takes longer.
const KILL_DEADLINE: Duration = Duration::from_secs(10);

/// Pause between two looks at processes that are to end.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// Set in a task's flags once it has entered `do_exit` (include/linux/sched.h).
const PF_EXITING: u32 = 0x4;

/// A process, as `/proc/<pid>/stat` shows it; see proc_pid_stat(5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub pid: Pid,
    parent: i32,
    state: u8,
    flags: u32,
    start_time: u64,
}

impl Process {
    /// Returns a process of this number; `None` if there is none.
    pub(super) fn find(pid: Pid) -> Option<Self> {
        let stat = std::fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
        Self::parse(pid, &stat)
    }

    fn parse(pid: Pid, stat: &[u8]) -> Option<Self> {
        // The command's name is in parentheses and may contain spaces and parentheses.
        let name_end = stat.iter().rposition(|&byte| byte == b')')?;
        let rest = std::str::from_utf8(&stat[name_end + 1..]).ok()?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // The first field after the name is number 3.
        let field = |number: usize| fields.get(number - 3);
        Some(Self {
            pid,
            parent: field(4)?.parse().ok()?,
            state: *field(3)?.as_bytes().first()?,
            flags: field(9)?.parse().ok()?,
            start_time: field(22)?.parse().ok()?,
        })
    }

    /// Returns whether it has ended and only awaits its parent.
    fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }

    /// Returns whether it has ended or begun to.
    fn is_ending(&self) -> bool {
        self.has_ended() || self.flags & PF_EXITING != 0
    }

    /// Kills the process; returns false if it is another user's.
    fn kill(&self) -> bool {
        let killed = match pidfd_open(self.pid, PidfdFlags::empty()) {
            // While the descriptor is open, no other process gets the number.
            Ok(_) if Self::find(self.pid).is_none_or(|now| now.start_time != self.start_time) => {
                Ok(())
            }
            Ok(process) => pidfd_send_signal(process, Signal::KILL),
            Err(Errno::SRCH) => Ok(()),
            // Before Linux 5.3, or no descriptor left.
            Err(_) => kill_process(self.pid, Signal::KILL),
        };
        killed != Err(Errno::PERM)
    }
}

/// The processes of this machine that this process may see.
pub(super) struct Processes(HashMap<i32, Process>);

impl Processes {
    pub(super) fn look() -> Self {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| {
            let name = entry.file_name();
            Pid::from_raw(name.to_str()?.parse().ok()?)
        });
        let found = pids.filter_map(Process::find);
        Self(
            found
                .map(|process| (process.pid.as_raw_nonzero().get(), process))
                .collect(),
        )
    }

    /// Returns whether `process` is `ancestor` or descends from it.
    fn is_below(&self, process: &Process, ancestor: Pid) -> bool {
        let ancestor = ancestor.as_raw_nonzero().get();
        let mut pid = process.pid.as_raw_nonzero().get();
        // Parents that change between two reads could form a circle.
        for _ in 0..=self.0.len() {
            if pid == ancestor {
                return true;
            }
            match self.0.get(&pid) {
                Some(process) => pid = process.parent,
                None => return false,
            }
        }
        false
    }

    /// Returns the descendants of `ancestor`.
    fn below(&self, ancestor: Pid) -> impl Iterator<Item = &Process> {
        let all = self.0.values();
        all.filter(move |process| process.pid != ancestor && self.is_below(process, ancestor))
    }

    /// Returns whether the process `root` or one of its descendants has ended or begun to.
    pub(super) fn is_any_ending(&self, root: Pid) -> bool {
        let mut all = self.0.values().filter(|one| self.is_below(one, root));
        all.any(Process::is_ending)
    }
}

/// Kills all descendants of this process, a subreaper, and reaps its children. Blocks until all have ended, at most 10
/// seconds. Returns those that have not, because they are stuck in the kernel; says nothing of another user's.
pub(super) fn kill_descendants() -> Vec<Pid> {
    // Without a child there is no descendant: an orphan would be this process's child.
    kill_all(|| !reap_all(), |_| true)
}

/// Kills the descendants of this process that started when `first` did or later, as [`kill_descendants`] does. Reaps none,
/// since this process may have children of its own.
pub(super) fn kill_since(first: &Process) -> Vec<Pid> {
    kill_all(|| true, |process| process.start_time >= first.start_time)
}

fn kill_all(may_be_left: impl Fn() -> bool, is_meant: impl Fn(&Process) -> bool) -> Vec<Pid> {
    let start = Instant::now();
    let mut quiet = 0;
    while may_be_left() {
        let all = Processes::look();
        let running = all.below(getpid()).filter(|process| !process.has_ended());
        let left: Vec<Pid> = running
            .filter(|process| is_meant(process) && process.kill())
            .map(|process| process.pid)
            .collect();
        // A look may miss a process whose parent ends meanwhile, and which is then adopted: so two in a row count.
        quiet = if left.is_empty() { quiet + 1 } else { 0 };
        if quiet == 2 || start.elapsed() > KILL_DEADLINE {
            return left;
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
    Vec::new()
}

/// Reaps the children of this process that have ended. Returns whether it has no other.
fn reap_all() -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    loop {
        match waitid(WaitId::All, options) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return false,
            // ECHILD; no other error is possible with these options.
            Err(_) => return true,
        }
    }
}

/// Reaps the children of this process that have ended, except `ranks`.
pub(super) fn reap_adopted(ranks: &[Pid]) {
    let (all, own) = (Processes::look(), getpid().as_raw_nonzero().get());
    let ended = all.0.values().filter(|process| process.has_ended());
    for process in ended.filter(|process| process.parent == own && !ranks.contains(&process.pid)) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        // An error means that it has been reaped.
        let _ = waitid(WaitId::Pid(process.pid), options);
    }
}

/// Returns a message about killed processes that have not ended, if there are any.
pub(super) fn message_of_left(left: &[Pid]) -> Option<String> {
    let pids: Vec<String> = left
        .iter()
        .map(|pid| pid.as_raw_nonzero().to_string())
        .collect();
    (!pids.is_empty()).then(|| {
        format!(
            "killed processes have not ended within {KILL_DEADLINE:?}: {}; a driver may be stuck, see the kernel log",
            pids.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_name_may_hold_spaces_and_parentheses() {
        let line = b"77 (a) Z 1 (b) S 12 77 77 0 -1 4194560 7 8 9 10 11 12 13 14 20 0 1 0 987654 100 200 1";
        let pid = Pid::from_raw(77).unwrap();
        let process = Process::parse(pid, line).unwrap();
        assert_eq!((process.parent, process.start_time), (12, 987654));
        assert!(!process.is_ending());
        assert_eq!(Process::parse(pid, b"77 (a) S 12"), None);
    }

    #[test]
    fn a_child_is_below_its_ancestors_and_a_killed_one_is_ending() {
        let mut child = Command::new("/bin/sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_child(&child);
        let all = Processes::look();
        let below: Vec<Pid> = all.below(getpid()).map(|process| process.pid).collect();
        assert!(below.contains(&pid) && !below.contains(&getpid()));
        assert!(!all.is_any_ending(pid));
        assert!(all.below(pid).next().is_none());
        child.kill().unwrap();
        while !Processes::look().is_any_ending(pid) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
    }

    #[test]
    fn a_process_of_the_same_number_that_started_later_is_not_killed() {
        let mut child = Command::new("/bin/sleep").arg("60").spawn().unwrap();
        let now = Process::find(Pid::from_child(&child)).unwrap();
        let earlier = Process {
            start_time: now.start_time - 1,
            ..now.clone()
        };
        assert!(earlier.kill());
        std::thread::sleep(Duration::from_millis(20));
        assert!(child.try_wait().unwrap().is_none());
        assert!(now.kill());
        child.wait().unwrap();
    }
}
