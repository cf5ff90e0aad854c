//! One rank as a child process.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Sender;

use rustix::io::retry_on_intr;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use super::event::{Ended, Event};
use super::options::RunOptions;
use symmem_conformance::spawn::spawn;

/// A rank that was started and has not been reaped, so that its number stays its own.
pub(super) struct Rank {
    child: Child,
    pid: Pid,
}

impl Rank {
    /// Start rank `number` in a process group of its own.
    pub(super) fn start(
        options: &RunOptions,
        number: u32,
        job: &str,
        secret: &str,
    ) -> io::Result<Self> {
        let mut command = Command::new(&options.program);
        command
            .args(&options.arguments)
            .envs(
                options
                    .environment
                    .iter()
                    .map(|(name, value)| (name, value)),
            )
            .env("SYMMEM_RANK", number.to_string())
            .env("SYMMEM_WORLD", options.ranks.to_string())
            .env("SYMMEM_LOCAL_RANK", number.to_string())
            .env("SYMMEM_LOCAL_WORLD", options.ranks.to_string())
            .env("SYMMEM_JOB", job)
            .env("SYMMEM_SECRET", secret)
            // This process's own place in another job is none of theirs.
            .env_remove("SYMMEM_RENDEZVOUS")
            .env_remove("SYMMEM_GENERATION")
            // A rank in the background that reads the terminal would be stopped.
            .stdin(Stdio::null())
            .process_group(0);
        if options.prefix {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        let child = spawn(command)?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid =
            pid.ok_or_else(|| io::Error::other("the kernel gave a child an impossible number"))?;
        Ok(Self { child, pid })
    }

    /// The pipes of standard output and standard error, if there are any; once.
    pub(super) fn take_outputs(
        &mut self,
    ) -> (
        Option<std::process::ChildStdout>,
        Option<std::process::ChildStderr>,
    ) {
        (self.child.stdout.take(), self.child.stderr.take())
    }

    /// Tell `events` when the rank ends, without reaping it.
    pub(super) fn watch(&self, rank: usize, events: Sender<Event>) -> io::Result<()> {
        let pid = self.pid;
        let wait = move || {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            let how = match retry_on_intr(|| rustix::process::waitid(WaitId::Pid(pid), options)) {
                Ok(Some(status)) => Ended::of(&status),
                // Somebody else reaped it, or the kernel broke its promise: its end is unknown.
                Ok(None) | Err(_) => Ended::Code(1),
            };
            // The launcher has gone on if nobody listens.
            let _ = events.send(Event::Ended { rank, how });
        };
        std::thread::Builder::new()
            .name(format!("symmem-wait-{rank}"))
            .spawn(wait)?;
        Ok(())
    }

    /// How the rank ended, if it has.
    pub(super) fn end(&self) -> Option<Ended> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let status = rustix::process::waitid(WaitId::Pid(self.pid), options);
        status.ok().flatten().map(|status| Ended::of(&status))
    }

    /// Send `signal` to the rank and all it has started in its process group.
    pub(super) fn signal(&self, signal: Signal) {
        // ESRCH: all have ended. There is no other reason to fail for one's own children.
        let _ = rustix::process::kill_process_group(self.pid, signal);
    }

    /// Wait for its end and give its number back to the system.
    pub(super) fn reap(mut self) {
        // Its end was seen before, or it was killed.
        let _ = self.child.wait();
    }
}
