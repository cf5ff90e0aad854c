//! Starts the ranks, waits until all have ended, and ends what they leave.

use super::copier::Copier;
use super::event::Event;
use super::exits::Exits;
use super::link::{Order, Outcome};
use super::messages::Messages;
use super::processes;
use super::rank::Rank;
use super::state::State;
use crate::output::Stream;
use rustix::process::Signal;
use std::io;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

/// Time to write output and messages that are left after every rank has ended. It runs out only if a process that could
/// not be killed holds a pipe open, or if the reader of this process's output has paused.
const LAST_OUTPUT: Duration = Duration::from_secs(1);

/// Runs the job, with events from `inbox`, whose sender is `events`. Blocks until no descendant of this process runs any
/// more, except those that are stuck in the kernel, of which it tells.
pub(super) fn run(order: &Order, events: Sender<Event>, inbox: &Receiver<Event>) -> Outcome {
    let mut ranks = Vec::new();
    let mut copiers = Vec::new();
    let messages = match Messages::start() {
        Ok(messages) => messages,
        Err(error) => return not_started(order, 0, &error),
    };
    let started = start(order, &events, &mut ranks, &mut copiers);
    // The ranks are watched as long as the first value lives.
    let ended =
        started.and_then(|_exits| State::new(&ranks, &order.options, &messages).stay(inbox));
    // No rank has been reaped yet, so the kernel cannot have reused a process group ID.
    ranks.iter().for_each(|rank| rank.signal(Signal::KILL));
    let left = processes::kill_descendants();
    let until = Instant::now() + LAST_OUTPUT;
    for copier in copiers {
        copier.finish(until);
    }
    if let Some(message) = processes::message_of_left(&left) {
        messages.say(message);
    }
    messages.finish(until);
    let code = match ended {
        Ok(code) => code,
        Err(failure) => return failure,
    };
    // Writing the last output of the ranks may have failed after they ended.
    for event in inbox.try_iter() {
        if let Event::OutputLost(error) = event {
            return Outcome::output_lost(&error);
        }
    }
    Outcome::Ended(code)
}

/// Starts all ranks. If one cannot be started, those before it run.
fn start(
    order: &Order,
    events: &Sender<Event>,
    ranks: &mut Vec<Rank>,
    copiers: &mut Vec<Copier>,
) -> Result<Exits, Outcome> {
    let failed = |rank, error| not_started(order, rank, &error);
    let mut exits = Exits::start(events.clone()).map_err(|error| failed(0, error))?;
    for number in 0..order.options.ranks {
        let mut watched = Ok(());
        // Before it runs: of two ranks, one that ends unwatched would seem to end after one that it outlived.
        let watch = |pid| watched = exits.watch(number as usize, pid);
        let started = Rank::start(order, number, watch).and_then(|mut rank| {
            let (output, error) = rank.take_outputs();
            // Pushed even if it cannot be watched, so that it is killed.
            ranks.push(rank);
            watched?;
            let number = order.options.rank(number);
            if let Some(pipe) = output {
                copiers.push(Copier::start(pipe, number, Stream::Output, events.clone())?);
            }
            if let Some(pipe) = error {
                copiers.push(Copier::start(pipe, number, Stream::Error, events.clone())?);
            }
            Ok(())
        });
        started.map_err(|error| failed(number, error))?;
    }
    Ok(exits)
}

fn not_started(order: &Order, rank: u32, error: &io::Error) -> Outcome {
    let program = order.options.program.to_string_lossy();
    let rank = order.options.rank(rank);
    let message = format!("could not start rank {rank} ({program}): {error}");
    Outcome::not_started(message, error)
}
