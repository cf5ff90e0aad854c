//! Identity of a rank's process, and whether it still runs.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::bootstrap::deadline::time_until;

/// Identity of a process, distinct from a later one with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessIdentity {
    /// Process ID in its own PID namespace.
    pub pid: u32,
    /// Start time in clock ticks since boot (field 22 of `/proc/<pid>/stat`).
    pub start_time: u64,
    /// Inode of its PID namespace, 0 if the kernel does not report it: process IDs of another namespace are
    /// meaningless here.
    pub namespace: u64,
}

impl ProcessIdentity {
    /// Returns the calling process.
    ///
    /// # Errors
    /// The operating system's, if `/proc` is not mounted or cannot be read.
    pub fn current() -> io::Result<Self> {
        let stat = std::fs::read("/proc/self/stat")?;
        let stat = Stat::parse(&stat).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "/proc/self/stat lacks the fields of proc(5)",
            )
        })?;
        Ok(Self {
            pid: std::process::id(),
            start_time: stat.start_time,
            namespace: own_namespace(),
        })
    }

    /// Returns the process with ID `pid` in this namespace, or `None` if there is none.
    pub fn of(pid: u32) -> Option<Self> {
        let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        let stat = Stat::parse(&stat)?;
        Some(Self {
            pid,
            start_time: stat.start_time,
            namespace: own_namespace(),
        })
    }

    /// Returns whether the process runs and has not begun to exit. Does not block.
    ///
    /// A process counts as dead if it has ended, is a zombie, is exiting (its memory may take a second to be
    /// released), or if its ID now names another process. If this process cannot tell (another PID namespace,
    /// `/proc` unreadable), the answer is `true`; the store then learns of its death from its socket.
    pub fn is_alive(&self) -> bool {
        if self.namespace != own_namespace() {
            return true;
        }
        match std::fs::read(format!("/proc/{}/stat", self.pid)) {
            Ok(stat) => Stat::parse(&stat)
                .is_none_or(|stat| stat.start_time == self.start_time && !stat.is_exiting()),
            // ESRCH: it ended between opening and reading the file.
            Err(error) => {
                !(error.kind() == io::ErrorKind::NotFound
                    || error.raw_os_error() == Some(Errno::SRCH.raw_os_error()))
            }
        }
    }

    /// Returns whether the process is stopped, by a signal or a debugger. Does not block; `false` if this process cannot
    /// tell.
    pub(super) fn is_stopped(&self) -> bool {
        let stat = std::fs::read(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        let stat = Stat::parse(&stat).filter(|stat| stat.start_time == self.start_time);
        self.namespace == own_namespace() && stat.is_some_and(|stat| stat.is_stopped())
    }

    /// Blocks until the process has ended and released all it held (memory, mappings, devices), or until
    /// `until`. Returns whether it has.
    ///
    /// That is later than [`ProcessIdentity::is_alive`] returns `false`. A process in another PID namespace
    /// cannot be observed, and counts as ended.
    ///
    /// # Errors
    /// The operating system's, if the kernel has no `pidfd_open` (before Linux 5.3), or this process has no
    /// descriptor left.
    pub fn wait_end(&self, until: Instant) -> io::Result<bool> {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let Some(pid) = pid.filter(|_| self.namespace == own_namespace()) else {
            return Ok(true);
        };
        let process = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => process,
            // No process has this ID, or it is a thread of another process.
            Err(Errno::SRCH | Errno::INVAL) => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        // The process with this ID keeps it while the descriptor is open.
        if Self::of(self.pid).is_none_or(|now| now.start_time != self.start_time) {
            return Ok(true);
        }
        loop {
            let mut polled = [PollFd::new(&process, PollFlags::IN)];
            match poll(&mut polled, Some(&time_until(Some(until)))) {
                Ok(0) if Instant::now() >= until => return Ok(false),
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn own_namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |metadata| metadata.ino())
}

/// The fields of `/proc/<pid>/stat` that matter here; see proc_pid_stat(5).
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    state: u8,
    flags: u32,
    start_time: u64,
}

/// Set in a task's flags once it has entered `do_exit` (include/linux/sched.h), before its memory is released.
const PF_EXITING: u32 = 0x4;

impl Stat {
    fn parse(stat: &[u8]) -> Option<Self> {
        // The command's name is in parentheses and may contain spaces and parentheses.
        let name_end = stat.iter().rposition(|&byte| byte == b')')?;
        let rest = std::str::from_utf8(&stat[name_end + 1..]).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?; // field 3
        let flags = fields.nth(5)?.parse().ok()?; // field 9
        let start_time = fields.nth(12)?.parse().ok()?; // field 22
        Some(Self {
            state,
            flags,
            start_time,
        })
    }

    fn is_stopped(&self) -> bool {
        matches!(self.state, b'T' | b't')
    }

    fn is_exiting(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x') || self.flags & PF_EXITING != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::time::Duration;

    const FIELDS: &str = "S 1 2 3 4 5 4194560 7 8 9 10 11 12 13 14 20 0 1 0 987654 100 200 1";

    #[test]
    fn the_name_may_hold_spaces_parentheses_and_any_byte() {
        for name in ["sh", "a b", "a) S 1 (b", ") Z 0", ""] {
            let stat = Stat::parse(format!("77 ({name}) {FIELDS}").as_bytes()).unwrap();
            assert_eq!(
                stat,
                Stat {
                    state: b'S',
                    flags: 4194560,
                    start_time: 987654
                },
                "{name}"
            );
        }
        let mut odd = b"77 (\xff\xfe) ".to_vec();
        odd.extend_from_slice(FIELDS.as_bytes());
        assert_eq!(Stat::parse(&odd).unwrap().start_time, 987654);
    }

    #[test]
    fn a_truncated_line_is_no_answer() {
        let line = format!("77 (sh) {FIELDS}");
        let needed = line.find("987654").unwrap();
        for end in 0..needed {
            assert_eq!(Stat::parse(&line.as_bytes()[..end]), None, "{end}");
        }
    }

    #[test]
    fn zombies_and_tasks_in_exit_are_exiting() {
        for (state, flags, exiting) in [
            (b'S', 0, false),
            (b'R', 4194560, false),
            (b'D', 4, true),
            (b'Z', 0, true),
        ] {
            assert_eq!(
                Stat {
                    state,
                    flags,
                    start_time: 0
                }
                .is_exiting(),
                exiting
            );
        }
    }

    #[test]
    fn this_process_is_alive_and_a_later_one_of_its_number_is_not() {
        let me = ProcessIdentity::current().unwrap();
        assert!(me.is_alive());
        assert_eq!(ProcessIdentity::of(me.pid), Some(me));
        assert!(
            !ProcessIdentity {
                start_time: me.start_time + 1,
                ..me
            }
            .is_alive()
        );
    }

    #[test]
    fn a_stopped_child_is_alive_and_stopped_until_it_continues() {
        use rustix::process::{Signal, kill_process};
        let mut child = Command::new("/bin/sleep").arg("60").spawn().unwrap();
        let identity = ProcessIdentity::of(child.id()).unwrap();
        assert!(!identity.is_stopped());
        for (signal, stopped) in [(Signal::STOP, true), (Signal::CONT, false)] {
            kill_process(Pid::from_child(&child), signal).unwrap();
            let start = Instant::now();
            while identity.is_stopped() != stopped {
                assert!(start.elapsed() < Duration::from_secs(60));
                std::thread::yield_now();
            }
            assert!(identity.is_alive());
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_process_of_another_namespace_is_never_called_dead() {
        let me = ProcessIdentity::current().unwrap();
        assert!(
            ProcessIdentity {
                pid: u32::MAX,
                namespace: me.namespace + 1,
                ..me
            }
            .is_alive()
        );
    }

    #[test]
    fn a_killed_child_is_dead_and_has_ended_before_and_after_it_is_reaped() {
        let mut child = Command::new("/bin/sleep").arg("60").spawn().unwrap();
        let identity = ProcessIdentity::of(child.id()).unwrap();
        assert!(identity.is_alive());
        let soon = || Instant::now() + Duration::from_millis(20);
        assert!(!identity.wait_end(soon()).unwrap(), "it still runs");
        child.kill().unwrap();
        let start = Instant::now();
        assert!(identity.wait_end(start + Duration::from_secs(5)).unwrap());
        while identity.is_alive() {
            assert!(
                start.elapsed() < Duration::from_secs(5),
                "a zombie counts as dead"
            );
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(!identity.is_alive());
        assert!(identity.wait_end(soon()).unwrap());
        let me = ProcessIdentity::current().unwrap();
        let earlier = ProcessIdentity {
            start_time: me.start_time - 1,
            ..me
        };
        assert!(
            earlier.wait_end(soon()).unwrap(),
            "its number is another's now"
        );
    }
}
