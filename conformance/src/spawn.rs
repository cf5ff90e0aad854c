//! Starts child processes that do not outlive this process.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, PoisonError};

use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Pid, Signal, getpid};

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
    die_with_parent(&mut command);
    start(command, || ())
}

/// Starts a program as [`spawn`] does, and calls `watch` with its process before the program runs: whatever happens to
/// the program happens after `watch` has returned.
///
/// # Errors
/// As [`spawn`]; `watch` may then have been called or not. Or no socket pair is left.
pub fn spawn_watched(mut command: Command, watch: impl FnOnce(Pid)) -> io::Result<Child> {
    die_with_parent(&mut command);
    let mut gate = gate(&mut command)?;
    start(command, || {
        let mut pid = [0; size_of::<i32>()];
        // The read fails if no child could be made: then nobody holds the other end any more.
        if gate.read_exact(&mut pid).is_ok()
            && let Some(pid) = Pid::from_raw(i32::from_ne_bytes(pid))
        {
            watch(pid);
            // A child that has died since needs no answer.
            let _ = gate.write_all(&[1]);
        }
    })
}

/// Has the kernel kill the child when the thread that starts it ends.
fn die_with_parent(command: &mut Command) {
    let parent = getpid();
    let die_with_parent = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before the kernel was asked to watch it.
        if rustix::process::getppid() != Some(parent) {
            return Err(io::Error::from(Errno::SRCH));
        }
        Ok(())
    };
    // SAFETY: the closure runs in the child between fork and exec, where only async-signal-safe code is
    // allowed. It makes two system calls on values it owns, allocates nothing and takes no lock.
    unsafe { command.pre_exec(die_with_parent) };
}

/// Has the child send its process ID to the socket that is returned, and wait for a byte from there.
fn gate(command: &mut Command) -> io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    let pass = move || {
        let pid = getpid().as_raw_nonzero().get().to_ne_bytes();
        retry_on_intr(|| rustix::io::write(&theirs, &pid))?;
        match retry_on_intr(|| rustix::io::read(&theirs, &mut [0]))? {
            0 => Err(io::Error::from(Errno::SRCH)),
            _ => Ok(()),
        }
    };
    // SAFETY: as in `die_with_parent`; these are three system calls, on a socket that the closure owns.
    unsafe { command.pre_exec(pass) };
    Ok(ours)
}

/// Has the thread that starts all children start this one, and calls `meanwhile` before it waits for the answer.
fn start(command: Command, meanwhile: impl FnOnce()) -> io::Result<Child> {
    let gone = || io::Error::other("the thread that starts children has ended");
    let (answer, answered) = mpsc::channel();
    starter()?.send((command, answer)).map_err(|_| gone())?;
    meanwhile();
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
                let child = command.spawn();
                // Its end of a socket pair, if it has one: a caller that waits there for a child learns that none came.
                drop(command);
                // Sending cannot fail: the caller waits for the answer.
                let _ = answer.send(child);
            }
        })?;
    Ok(starter.insert(orders).clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    #[test]
    fn a_program_runs_only_once_it_is_watched() {
        let (mut output, theirs) = UnixStream::pair().unwrap();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo ran; exit 7"]);
        command.stdout(OwnedFd::from(theirs));
        let mut watched = None;
        let watch = |pid| {
            std::thread::sleep(Duration::from_millis(200));
            output.set_nonblocking(true).unwrap();
            let early = output.read(&mut [0; 4]).map_err(|error| error.kind());
            watched = Some((pid, early));
        };
        let mut child = spawn_watched(command, watch).unwrap();
        let nothing = Err(io::ErrorKind::WouldBlock);
        assert_eq!(watched, Some((Pid::from_child(&child), nothing)));
        assert_eq!(child.wait().unwrap().code(), Some(7));
        output.set_nonblocking(false).unwrap();
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        assert_eq!(text, "ran\n");
    }

    #[test]
    fn a_program_that_cannot_be_started_is_an_error_and_no_hang() {
        let error = spawn_watched(Command::new("/no/such/program"), drop).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let mut command = Command::new("/bin/true");
        // SAFETY: the closure makes no call at all.
        unsafe { command.pre_exec(|| Err(Errno::PERM.into())) };
        let watch = |_| panic!("a child that failed before is not watched");
        let error = spawn_watched(command, watch).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }
}
