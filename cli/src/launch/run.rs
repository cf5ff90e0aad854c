//! Starts the ranks, and stays with them until all have ended.

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

/// Time for output that is still in the pipes once every rank has ended. Longer only if a process
/// that left its rank's process group holds a pipe open.
const LAST_OUTPUT: Duration = Duration::from_secs(1);

/// Run the job and wait for its end; blocks.
///
/// Every rank gets `SYMMEM_RANK`, `SYMMEM_WORLD`, `SYMMEM_LOCAL_RANK`, `SYMMEM_LOCAL_WORLD`, and a
/// fresh `SYMMEM_JOB` and `SYMMEM_SECRET`; `/dev/null` as its standard input; and a process group of
/// its own. SIGINT, SIGTERM and SIGHUP are passed on to all ranks. When a rank fails (ends with a
/// code other than 0, or by a signal) the others have a time to notice that and to say so. Then they are asked to end,
/// if the options say so, and, after the grace, ended. A second SIGINT ends them at once. What the ranks leave in their process groups is ended too. Should this process
/// be killed, the kernel kills the ranks. Once no job is left in this process, a signal that did what
/// it does by default before the first job does so again: a program that handles these signals itself
/// does so before its first job.
///
/// Returns the code of the first rank that failed, 128 + signal where a signal ended it; 130 after SIGINT if none
/// failed.
///
/// # Errors
/// What a rank wrote could not be written: the ranks are ended at once. The kind is that of the failed write,
/// [`io::ErrorKind::BrokenPipe`] if the reader has gone.
///
/// No rank could be started (no such program, no permission, no processes left), or there is no
/// rank to start. Ranks that had been started are ended.
pub fn run(options: RunOptions) -> io::Result<ExitCode> {
    if options.ranks == 0 {
        let message = "a job has at least one rank: ask for 1 or more";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let (events, inbox) = mpsc::channel();
    // Before the first rank starts: from now on no signal leaves a rank behind.
    let signals = SignalWatch::start(events.clone())?;
    let secret = Secret::random()?.to_hex();
    let job = Secret::random()?.to_hex();
    let mut ranks: Vec<Rank> = Vec::new();
    let mut copiers = Vec::new();
    for number in 0..options.ranks {
        let started = Rank::start(&options, number, &job[..32], &secret).and_then(|mut rank| {
            let (output, error) = rank.take_outputs();
            let watched = rank.watch(number as usize, events.clone());
            // Kept even if it cannot be watched, so that it is ended below.
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
    // No leader is reaped before this, so no process group number can have come to mean another.
    ranks.iter().for_each(|rank| rank.signal(Signal::KILL));
    let until = Instant::now() + LAST_OUTPUT;
    for copier in copiers {
        copier.finish(until);
    }
    ranks.into_iter().for_each(Rank::reap);
    drop(signals);
    let code = code?;
    // What the ranks wrote last may have been lost after they ended.
    for event in inbox.try_iter() {
        if let Event::OutputLost(error) = event {
            return Err(error.into());
        }
    }
    Ok(ExitCode::from(code))
}
