//! One rank as a child process.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal};

use super::link::Order;
use symmem_conformance::spawn::spawn_watched;

/// A rank that was started and not yet reaped, so that the kernel cannot reuse its process ID.
pub(super) struct Rank {
    child: Child,
    pid: Pid,
}

impl Rank {
    /// Starts the rank with this number on this node, in a process group of its own. Its program runs once `watch` has
    /// returned.
    pub(super) fn start(order: &Order, number: u32, watch: impl FnOnce(Pid)) -> io::Result<Self> {
        let options = &order.options;
        let mut command = Command::new(&options.program);
        command
            .args(&options.arguments)
            .envs(
                options
                    .environment
                    .iter()
                    .map(|(name, value)| (name, value)),
            )
            .env("SYMMEM_RANK", options.rank(number).to_string())
            .env("SYMMEM_WORLD", options.world().to_string())
            .env("SYMMEM_LOCAL_RANK", number.to_string())
            .env("SYMMEM_LOCAL_WORLD", options.ranks.to_string())
            // If this process is a rank of another job, its rendezvous does not apply to these ranks.
            .env_remove("SYMMEM_GENERATION")
            // SIGTTIN would stop a background process group that reads from the terminal.
            .stdin(Stdio::null())
            .process_group(0);
        match &options.node {
            // Ranks of all nodes meet by address and secret; a name of this launcher's would differ on each.
            Some(node) => command
                .env_remove("SYMMEM_JOB")
                .env("SYMMEM_RENDEZVOUS", &node.rendezvous)
                .env("SYMMEM_SECRET", &node.secret),
            None => command
                .env("SYMMEM_JOB", &order.job)
                .env("SYMMEM_SECRET", &order.secret)
                .env_remove("SYMMEM_RENDEZVOUS"),
        };
        if options.prefix {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        let child = spawn_watched(command, watch)?;
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

    /// Returns its process.
    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends `signal` to the rank's process group. Stopped processes continue, since they are to end.
    pub(super) fn signal(&self, signal: Signal) {
        // ESRCH means that all have ended; signals to one's own children fail for no other reason.
        let _ = rustix::process::kill_process_group(self.pid, signal);
        let _ = rustix::process::kill_process_group(self.pid, Signal::CONT);
    }
}
