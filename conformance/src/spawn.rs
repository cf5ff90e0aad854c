//! Starts child processes that do not outlive this process.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, PoisonError};

use rustix::process::Signal;

/// A program to start, and the channel for the result.
type SpawnRequest = (Command, Sender<io::Result<Child>>);

/// The channel to the thread that starts children, once that thread runs.
static STARTER: Mutex<Option<Sender<SpawnRequest>>> = Mutex::new(None);

/// Starts a program that the kernel kills (SIGKILL) when this process ends for any reason.
///
/// The kernel sends the signal when the thread that started the child ends (`PR_SET_PDEATHSIG`). So one thread,
/// which lives as long as the process, starts all children.
///
/// # Errors
/// Any error of the system: no such program, no permission, too many processes.
pub fn spawn(mut command: Command) -> io::Result<Child> {
    let parent = rustix::process::getpid();
    let die_with_parent = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before the kernel was asked to watch it.
        if rustix::process::getppid() != Some(parent) {
            return Err(io::Error::from(rustix::io::Errno::SRCH));
        }
        Ok(())
    };
    // SAFETY: the closure runs in the child between fork and exec, where only async-signal-safe code is
    // allowed. It makes two system calls on values it owns, allocates nothing and takes no lock.
    unsafe { command.pre_exec(die_with_parent) };
    let gone = || io::Error::other("the thread that starts children has ended");
    let (answer, answered) = mpsc::channel();
    starter()?.send((command, answer)).map_err(|_| gone())?;
    answered.recv().map_err(|_| gone())?
}

fn starter() -> io::Result<Sender<SpawnRequest>> {
    let mut starter = STARTER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(orders) = &*starter {
        return Ok(orders.clone());
    }
    let (orders, inbox) = mpsc::channel::<SpawnRequest>();
    std::thread::Builder::new()
        .name("symmem-children".into())
        .spawn(move || {
            for (mut command, answer) in inbox {
                // Sending cannot fail: the caller waits for the answer.
                let _ = answer.send(command.spawn());
            }
        })?;
    Ok(starter.insert(orders).clone())
}
