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

/// A rank that was started and not yet reaped, so that the kernel cannot reuse its process ID.
pub(super) struct Rank {
    child: Child,
    pid: Pid,
}

impl Rank {
    /// Starts rank `number` in a process group of its own.
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
            // If this process is a rank of another job, its rendezvous does not apply to these ranks.
            .env_remove("SYMMEM_RENDEZVOUS")
            .env_remove("SYMMEM_GENERATION")
            // SIGTTIN would stop a background process group that reads from the terminal.
            .stdin(Stdio::null())
            .process_group(0);
        if options.prefix {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        let child = spawn(command)?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid =
            pid.ok_or_else(|| io::Error::other("the kernel returned an invalid process ID"))?;
        Ok(Self { child, pid })
    }

    /// Takes the pipes of standard output and standard error, if the output is prefixed. The second call returns none.
    pub(super) fn take_outputs(
        &mut self,
    ) -> (
        Option<std::process::ChildStdout>,
        Option<std::process::ChildStderr>,
    ) {
        (self.child.stdout.take(), self.child.stderr.take())
    }

    /// Sends an event when the rank ends, without reaping it.
    pub(super) fn watch(&self, rank: usize, events: Sender<Event>) -> io::Result<()> {
        let pid = self.pid;
        let wait = move || {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            let how = match retry_on_intr(|| rustix::process::waitid(WaitId::Pid(pid), options)) {
                Ok(Some(status)) => Ended::of(&status),
                // Another part of the process reaped it, so its exit status is unknown.
                Ok(None) | Err(_) => Ended::Code(1),
            };
            // Nobody receives the event if the launcher has already returned.
            let _ = events.send(Event::Ended { rank, how });
        };
        std::thread::Builder::new()
            .name(format!("symmem-wait-{rank}"))
            .spawn(wait)?;
        Ok(())
    }

    /// Returns how the rank ended, if it has. Does not block.
    pub(super) fn end(&self) -> Option<Ended> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let status = rustix::process::waitid(WaitId::Pid(self.pid), options);
        status.ok().flatten().map(|status| Ended::of(&status))
    }

    /// Sends `signal` to the rank's process group.
    pub(super) fn signal(&self, signal: Signal) {
        // ESRCH means that all have ended; signals to one's own children fail for no other reason.
        let _ = rustix::process::kill_process_group(self.pid, signal);
    }

    /// Waits for the rank's end and reaps it.
    pub(super) fn reap(mut self) {
        // Does not block for long: the rank has ended or was killed.
        let _ = self.child.wait();
    }
}
