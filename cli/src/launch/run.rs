//! Starts the ranks and waits until all have ended.

use super::copier::Copier;
use super::event::Event;
use super::options::RunOptions;
use super::rank::Rank;
use super::signals::SignalWatch;
use super::supervise::Supervisor;
use crate::output::Stream;
use rustix::process::Signal;
use std::io;
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use symmem::bootstrap::Secret;

/// Time to copy output that is still in the pipes after every rank has ended. It runs out only if a process that left
/// its rank's process group holds a pipe open.
const LAST_OUTPUT: Duration = Duration::from_secs(1);

/// Runs the job; blocks until all ranks have ended.
///
/// Every rank gets `SYMMEM_RANK`, `SYMMEM_WORLD`, `SYMMEM_LOCAL_RANK`, `SYMMEM_LOCAL_WORLD`, a fresh `SYMMEM_JOB` and
/// `SYMMEM_SECRET`, `/dev/null` as standard input, and its own process group. The launcher forwards SIGINT, SIGTERM and
/// SIGHUP to all ranks.
///
/// When a rank fails (exit code other than 0, or a signal), the others have [`RunOptions::reaction`] to print their
/// errors. Then they get SIGTERM, if the options ask for it, and SIGKILL after [`RunOptions::grace`]. A second SIGINT
/// kills them at once. At the end, processes that the ranks left in their process groups are killed. If this process
/// is killed, the kernel kills the ranks.
///
/// When this process has no job left, signals whose action was the default before the first job have the default
/// action again. A program with handlers of its own must install them before its first job.
///
/// Returns the exit code of the first rank that failed, 128 + signal if a signal killed it; 130 after SIGINT if no
/// rank failed.
///
/// # Errors
/// The kind of the failed write if a rank's output could not be written, [`io::ErrorKind::BrokenPipe`] if the reader
/// has closed the pipe; the ranks get SIGTERM without the reaction time.
///
/// A rank could not be started (no such program, no permission, no processes left), or the options ask for no rank.
/// Ranks that had been started are killed.
pub fn run(options: RunOptions) -> io::Result<ExitCode> {
    if options.ranks == 0 {
        let message = "0 ranks; use at least 1";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let (events, inbox) = mpsc::channel();
    // Before the first rank starts, so that no signal can end this process and leave a rank behind.
    let signals = SignalWatch::start(events.clone())?;
    let secret = Secret::random()?.to_hex();
    let job = Secret::random()?.to_hex();
    let mut ranks: Vec<Rank> = Vec::new();
    let mut copiers = Vec::new();
    for number in 0..options.ranks {
        let started = Rank::start(&options, number, &job[..32], &secret).and_then(|mut rank| {
            let (output, error) = rank.take_outputs();
            let watched = rank.watch(number as usize, events.clone());
            // Pushed even if it cannot be watched, so that it is killed below.
            ranks.push(rank);
            watched?;
            if let Some(pipe) = output {
                copiers.push(Copier::start(pipe, number, Stream::Output, events.clone())?);
            }
            if let Some(pipe) = error {
                copiers.push(Copier::start(pipe, number, Stream::Error, events.clone())?);
            }
            Ok(())
        });
        match started {
            Ok(()) => {}
            Err(error) => {
                ranks.iter().for_each(|rank| rank.signal(Signal::KILL));
                ranks.into_iter().for_each(Rank::reap);
                let program = options.program.to_string_lossy();
                let message = format!("could not start rank {number} ({program}): {error}");
                return Err(io::Error::new(error.kind(), message));
            }
        }
    }
    let code = Supervisor::new(&ranks, &options).stay(&inbox);
    // No group leader has been reaped yet, so the kernel cannot have reused a process group ID.
    ranks.iter().for_each(|rank| rank.signal(Signal::KILL));
    let until = Instant::now() + LAST_OUTPUT;
    for copier in copiers {
        copier.finish(until);
    }
    ranks.into_iter().for_each(Rank::reap);
    drop(signals);
    let code = code?;
    // Writing the last output of the ranks may have failed after they ended.
    for event in inbox.try_iter() {
        if let Event::OutputLost(error) = event {
            return Err(error.into());
        }
    }
    Ok(ExitCode::from(code))
}
