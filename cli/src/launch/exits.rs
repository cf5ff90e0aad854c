//! Reports ranks' ends in the order in which they happened.
//!
//! The kernel queues the descriptors of an epoll instance in the order in which they become ready, and a process's
//! descriptor does when the process has ended. So the order is right even if this process runs only after several
//! ranks have ended.

use super::event::{Ended, Event};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Instant;

/// Events that are read at once.
const BATCH: usize = 64;

/// The ranks that are watched.
pub(super) struct Exits {
    epoll: Arc<OwnedFd>,
    /// Processes' descriptors; closing one would end its watch.
    processes: Vec<OwnedFd>,
    events: Sender<Event>,
}

impl Exits {
    /// Starts a thread that sends an event for each end of a rank, without reaping it.
    pub(super) fn start(events: Sender<Event>) -> io::Result<Self> {
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let exits = Self {
            epoll: epoll.clone(),
            processes: Vec::new(),
            events: events.clone(),
        };
        let report = move || {
            let mut ready = Vec::with_capacity(BATCH);
            loop {
                ready.clear();
                match epoll::wait(&*epoll, spare_capacity(&mut ready), None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    // Unreachable: the instance is open and the memory is valid.
                    Err(_) => return,
                }
                for event in &ready {
                    let (rank, pid) = unpacked(event.data.u64());
                    // Nobody receives the event if the job has ended.
                    let _ = events.send(await_end(rank, pid));
                }
            }
        };
        let thread = std::thread::Builder::new().name("symmem-exits".into());
        thread.spawn(report)?;
        Ok(exits)
    }

    /// Watches a rank, a child of this process that has not been reaped.
    pub(super) fn watch(&mut self, rank: usize, pid: Pid) -> io::Result<()> {
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => {
                let once = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
                let data = epoll::EventData::new_u64(packed(rank, pid));
                epoll::add(&*self.epoll, &process, data, once)?;
                self.processes.push(process);
                Ok(())
            }
            // Before Linux 5.3: of ranks that end at almost the same time, the order may be wrong.
            Err(Errno::NOSYS) => {
                let events = self.events.clone();
                let wait = move || drop(events.send(await_end(rank, pid)));
                let thread = std::thread::Builder::new().name(format!("symmem-wait-{rank}"));
                thread.spawn(wait).map(drop)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Waits for the end of a rank, without reaping it.
fn await_end(rank: usize, pid: Pid) -> Event {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    let how = match retry_on_intr(|| rustix::process::waitid(WaitId::Pid(pid), options)) {
        Ok(Some(status)) => Ended::of(&status),
        // Another part of the process reaped it, so its exit status is unknown.
        Ok(None) | Err(_) => Ended::Code(1),
    };
    let at = Instant::now();
    Event::Ended { rank, how, at }
}

fn packed(rank: usize, pid: Pid) -> u64 {
    (rank as u64) << 32 | pid.as_raw_nonzero().get() as u64
}

fn unpacked(data: u64) -> (usize, Pid) {
    // The lower half is a process ID, which is positive.
    let pid = Pid::from_raw((data & 0x7fff_ffff) as i32).unwrap_or(Pid::INIT);
    ((data >> 32) as usize, pid)
}
