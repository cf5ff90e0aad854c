//! The launcher's side: starts the supervisor, forwards signals to it, and reports its outcome.

use super::event::Ended;
use super::link::{Order, Outcome};
use super::options::RunOptions;
use super::processes::{self, Process};
use super::signals::SignalWatch;
use crate::output;
use crate::program;
use rustix::process::{Pid, Signal};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ExitCode, ExitStatus};
use std::sync::mpsc::{self, Receiver};
use symmem::bootstrap::Secret;

/// Runs the job; blocks until all ranks, and all processes that they have started, have ended.
///
/// Every rank gets `SYMMEM_RANK`, `SYMMEM_WORLD`, `SYMMEM_LOCAL_RANK`, `SYMMEM_LOCAL_WORLD`, a fresh `SYMMEM_JOB` and
/// `SYMMEM_SECRET` (on several nodes the secret and `SYMMEM_RENDEZVOUS` of [`RunOptions::node`]), `/dev/null` as standard input, and its own process group, in the supervisor's session. The launcher
/// forwards SIGINT, SIGTERM and SIGHUP to all ranks. If it was started to ignore SIGHUP, as by nohup, so are the ranks.
///
/// When a rank fails (exit code other than 0, or a signal), the others have [`RunOptions::reaction`] to print their
/// errors. Then they get SIGTERM, if the options ask for it, and SIGKILL after [`RunOptions::grace`]. A second SIGINT
/// kills them at once. At the end, all processes that the ranks have started are killed.
///
/// The ranks are children of a supervisor, a second process, which this function starts with
/// [`RunOptions::supervisor`]. If this process is killed, the supervisor kills the ranks and their descendants at once.
/// If the supervisor is killed, this process does: to that end it is a subreaper until the function returns, and kills
/// every descendant that started after the supervisor.
///
/// When this process has no job left, signals whose action was the default before the first job have the default
/// action again. A program with handlers of its own must install them before its first job.
///
/// Returns the exit code of the rank that failed first, 128 + signal if a signal killed it; 130 after SIGINT if no
/// rank failed; 128 + signal if a signal killed the supervisor.
///
/// # Errors
/// The kind of the failed write if a rank's output could not be written, [`io::ErrorKind::BrokenPipe`] if the reader
/// has closed the pipe; the ranks get SIGTERM without the reaction time.
///
/// The supervisor or a rank could not be started (no such program, no permission, no processes left), or the options
/// ask for no rank. Ranks that had been started are killed.
pub fn run(options: RunOptions) -> io::Result<ExitCode> {
    if options.ranks == 0 {
        let message = "0 ranks; use at least 1";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let (sender, signals) = mpsc::channel();
    // Before the supervisor starts, so that no signal can end this process without reaching the ranks.
    let watch = SignalWatch::start(move |signal| {
        // Nobody receives the signal if the job has ended.
        let _ = sender.send(signal);
    })?;
    let was_subreaper = rustix::process::child_subreaper()?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let code = run_supervised(options, signals);
    rustix::process::set_child_subreaper(was_subreaper)?;
    drop(watch);
    code.map(ExitCode::from)
}

/// Runs the job in a supervisor and returns the exit code.
fn run_supervised(options: RunOptions, signals: Receiver<Signal>) -> io::Result<u8> {
    let order = Order {
        job: Secret::random()?.to_hex()[..32].to_owned(),
        secret: Secret::random()?.to_hex(),
        options,
    };
    let line = serde_json::to_string(&order)?;
    let (link, theirs) = UnixStream::pair()?;
    let mut supervisor = start(&order.options, theirs)?;
    // It has not been reaped, so the kernel cannot have given its number to another.
    let process = Process::find(Pid::from_child(&supervisor));
    // The link ends with the call, also after an error: a supervisor that still runs then ends.
    let answer = converse(link, &line, signals);
    let status = supervisor.wait()?;
    match serde_json::from_str::<Outcome>(&answer?) {
        Ok(outcome) => outcome.into_code(),
        Err(_) => Ok(bury(status, process.as_ref())),
    }
}

/// Starts the supervisor in a session of its own: a terminal's signals reach it by this process only, and no terminal
/// stops it when it writes (`stty tostop`).
fn start(options: &RunOptions, link: UnixStream) -> io::Result<Child> {
    let program = program::this()?;
    let mut command = program.command();
    command.args(&options.supervisor);
    command.stdin(OwnedFd::from(link));
    let leave_session = || Ok(rustix::process::setsid().map(drop)?);
    // SAFETY: the closure runs in the child between fork and exec, where only async-signal-safe code is allowed. It makes
    // one system call, allocates nothing and takes no lock.
    unsafe { command.pre_exec(leave_session) };
    command.spawn().map_err(|error| {
        let program = program.file.display();
        let message = format!("could not start the ranks' supervisor ({program}): {error}");
        io::Error::new(error.kind(), message)
    })
}

/// Sends the supervisor its order, and then signals. Blocks until it answers or ends; returns its answer, which is empty
/// if it has ended without one.
fn converse(link: UnixStream, order: &str, signals: Receiver<Signal>) -> io::Result<String> {
    let mut answer = String::new();
    if writeln!(&link, "{order}").is_err() {
        return Ok(answer);
    }
    forward(signals, link.try_clone()?)?;
    // The connection to a supervisor that was killed may be reset instead of closed.
    let _ = BufReader::new(&link).read_line(&mut answer);
    Ok(answer)
}

/// Starts a thread that sends signals to the supervisor.
fn forward(signals: Receiver<Signal>, link: UnixStream) -> io::Result<()> {
    let forward = move || {
        for signal in signals {
            // A supervisor that has ended needs no signal.
            let _ = writeln!(&link, "{}", signal.as_raw());
        }
    };
    let thread = std::thread::Builder::new().name("symmem-forward".into());
    thread.spawn(forward).map(drop)
}

/// Kills what a supervisor left behind that ended without an answer. Returns the exit code.
fn bury(status: ExitStatus, supervisor: Option<&Process>) -> u8 {
    let how = match status.signal() {
        Some(signal) => Ended::Signal(signal),
        None => Ended::Code(status.code().unwrap_or(1)),
    };
    let left = supervisor.map(processes::kill_since).unwrap_or_default();
    output::last_words(format_args!(
        "the ranks' supervisor {how}; the ranks were killed"
    ));
    if let Some(message) = processes::message_of_left(&left) {
        output::last_words(message);
    }
    how.code().max(1)
}
