//! The descendants of this process: which run, which rank they belong to, and in which order they end.

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, pidfd_open, pidfd_send_signal, waitid,
};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Makes descendants whose parents have died children of this process.
pub fn adopt_orphans() {
    rustix::process::set_child_subreaper(Some(getpid())).expect("a subreaper");
}

/// A process below this one.
pub struct Member {
    pub pid: Pid,
    /// The rank that it belongs to; `None` for the launcher and its supervisor.
    pub rank: Option<u32>,
    /// Whether it is the shell in front of a rank.
    pub is_shell: bool,
    /// When it was seen to have ended, and its place in the order of ends.
    pub ended: Option<(Instant, usize)>,
    start_time: u64,
    descriptor: OwnedFd,
}

impl Member {
    /// Sends a signal; returns when, or `None` if the process had ended or begun to.
    pub fn signal(&self, signal: Signal) -> Option<Instant> {
        let stat = Stat::read(self.pid)?;
        if stat.is_ending || stat.start_time != self.start_time {
            return None;
        }
        let now = Instant::now();
        pidfd_send_signal(&self.descriptor, signal).ok()?;
        Some(now)
    }
}

/// The processes of one run.
pub struct Family {
    epoll: OwnedFd,
    pub members: Vec<Member>,
    /// Processes by number; a number may be used again.
    known: HashMap<Pid, u64>,
    ends: usize,
    rank_file: PathBuf,
}

impl Family {
    pub fn new() -> Self {
        Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll instance"),
            members: Vec::new(),
            known: HashMap::new(),
            ends: 0,
            rank_file: std::env::current_exe().expect("this program's file"),
        }
    }

    /// Waits for ends, for `time` at most, and looks for new processes. Returns whether any process runs.
    pub fn look(&mut self, time: Duration) -> bool {
        let time = Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: time.subsec_nanos().into(),
        };
        let mut ready: Vec<epoll::Event> = Vec::with_capacity(64);
        // The order is that of the ends.
        let _ = epoll::wait(&self.epoll, spare_capacity(&mut ready), Some(&time));
        let now = Instant::now();
        for event in ready {
            let member = &mut self.members[event.data.u64() as usize];
            member.ended = Some((now, self.ends));
            self.ends += 1;
        }
        for (pid, stat) in below(getpid()) {
            if self.known.get(&pid) != Some(&stat.start_time) && !stat.is_ending {
                self.add(pid, stat.start_time);
            }
        }
        for member in self.members.iter_mut().filter(|one| one.ended.is_none()) {
            identify(member, &self.rank_file);
        }
        self.members.iter().any(|member| member.ended.is_none())
    }

    fn add(&mut self, pid: Pid, start_time: u64) {
        let Ok(descriptor) = pidfd_open(pid, PidfdFlags::empty()) else {
            return;
        };
        // It may have ended, and another have its number.
        if Stat::read(pid).is_none_or(|now| now.start_time != start_time) {
            return;
        }
        let data = epoll::EventData::new_u64(self.members.len() as u64);
        let once = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
        epoll::add(&self.epoll, &descriptor, data, once).expect("one more process");
        self.known.insert(pid, start_time);
        self.members.push(Member {
            pid,
            rank: None,
            is_shell: false,
            ended: None,
            start_time,
            descriptor,
        });
    }

    /// Returns the running process of a rank, or its shell.
    pub fn find(&self, rank: u32, is_shell: bool) -> Option<&Member> {
        self.of_rank(rank)
            .find(|one| one.is_shell == is_shell && one.ended.is_none())
    }

    /// Returns all processes that a rank has had.
    pub fn of_rank(&self, rank: u32) -> impl Iterator<Item = &Member> {
        let all = self.members.iter();
        all.filter(move |member| member.rank == Some(rank))
    }

    /// Kills what runs, and reaps what was adopted; `children` are reaped by the caller.
    pub fn end(&mut self, children: &[Pid]) {
        let start = Instant::now();
        while self.look(Duration::from_millis(5)) {
            for member in self.members.iter().filter(|one| one.ended.is_none()) {
                let _ = pidfd_send_signal(&member.descriptor, Signal::KILL);
            }
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "processes do not end"
            );
        }
        for member in self
            .members
            .iter()
            .filter(|one| !children.contains(&one.pid))
        {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
            // An error means that another process had it as its child.
            let _ = waitid(WaitId::Pid(member.pid), options);
        }
    }
}

/// Finds out what a process is; it changes with each program that the process executes.
fn identify(member: &mut Member, rank_file: &PathBuf) {
    let directory = format!("/proc/{}", member.pid.as_raw_nonzero());
    let environment = std::fs::read(format!("{directory}/environ")).unwrap_or_default();
    let variables = environment.split(|&byte| byte == 0);
    let rank = variables
        .filter_map(|one| std::str::from_utf8(one).ok()?.strip_prefix("SYMMEM_RANK="))
        .find_map(|text| text.parse().ok());
    // A process that is about to end has no environment any more.
    if rank.is_some() {
        member.rank = rank;
        if let Ok(file) = std::fs::read_link(format!("{directory}/exe")) {
            member.is_shell = file != *rank_file;
        }
    }
}

/// The fields of `/proc/<pid>/stat` that matter here.
struct Stat {
    parent: i32,
    is_ending: bool,
    start_time: u64,
}

impl Stat {
    fn read(pid: Pid) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let flags: u32 = fields.get(6)?.parse().ok()?;
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            // PF_EXITING.
            is_ending: matches!(*fields.first()?, "Z" | "X") || flags & 4 != 0,
            start_time: fields.get(19)?.parse().ok()?,
        })
    }
}

/// Returns the processes below `ancestor`.
fn below(ancestor: Pid) -> Vec<(Pid, Stat)> {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let all: HashMap<i32, Stat> = pids
        .filter_map(|pid| Some((pid, Stat::read(Pid::from_raw(pid)?)?)))
        .collect();
    let ancestor = ancestor.as_raw_nonzero().get();
    let is_below = |pid: &i32| {
        let mut parents = std::iter::successors(Some(*pid), |pid| Some(all.get(pid)?.parent));
        parents
            .by_ref()
            .skip(1)
            .take(all.len())
            .any(|parent| parent == ancestor)
    };
    let pids: Vec<i32> = all.keys().copied().filter(is_below).collect();
    let mut all = all;
    pids.into_iter()
        .filter_map(|pid| Some((Pid::from_raw(pid)?, all.remove(&pid)?)))
        .collect()
}
