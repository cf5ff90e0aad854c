//! Children that do not outlive this process.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, PoisonError};

use rustix::process::Signal;

/// A program to start, and where to say what came of it.
type Order = (Command, Sender<io::Result<Child>>);

/// The thread that starts children, once there is one.
static STARTER: Mutex<Option<Sender<Order>>> = Mutex::new(None);

/// Starts a program that the kernel kills once this process has ended, however it came to end.
///
/// What the kernel watches is the thread that starts a child, so one thread starts them all, and lives as long as
/// the process does: the caller's may end before.
///
/// # Errors
/// The system's: no such program, no permission, no processes left.
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
    // SAFETY: the closure runs in the child between fork and exec. It makes two system calls on
    // values it owns, allocates nothing and takes no lock, as that place demands.
    unsafe { command.pre_exec(die_with_parent) };
    let gone = || io::Error::other("the thread that starts children has ended");
    let (answer, answered) = mpsc::channel();
    starter()?.send((command, answer)).map_err(|_| gone())?;
    answered.recv().map_err(|_| gone())?
}

fn starter() -> io::Result<Sender<Order>> {
    let mut starter = STARTER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(orders) = &*starter {
        return Ok(orders.clone());
    }
    let (orders, inbox) = mpsc::channel::<Order>();
    std::thread::Builder::new()
        .name("symmem-children".into())
        .spawn(move || {
            for (mut command, answer) in inbox {
                // Whoever ordered it waits for the answer.
                let _ = answer.send(command.spawn());
            }
        })?;
    Ok(starter.insert(orders).clone())
}
