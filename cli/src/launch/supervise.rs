//! Supervises running ranks: forwards signals, and stops the other ranks after one has failed.

use super::event::{Ended, Event};
use super::options::RunOptions;
use super::rank::Rank;
use crate::output::{self, OutputError, Stream};
use rustix::process::Signal;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// 128 + SIGINT.
const INTERRUPTED: u8 = 130;

/// The next signal for ranks that still run.
#[derive(Clone, Copy, Debug)]
enum Step {
    Terminate,
    Kill,
}

/// The state of the ranks of a job.
pub(super) struct Supervisor<'a> {
    ranks: &'a [Rank],
    options: &'a RunOptions,
    running: Vec<bool>,
    /// The exit code of the first rank that failed.
    failure: Option<u8>,
    /// The last forwarded signal, and when.
    passed_on: Option<(Signal, Instant)>,
    lost: Option<OutputError>,
    next: Option<(Instant, Step)>,
}

impl<'a> Supervisor<'a> {
    pub(super) fn new(ranks: &'a [Rank], options: &'a RunOptions) -> Self {
        Self {
            ranks,
            options,
            running: vec![true; ranks.len()],
            failure: None,
            passed_on: None,
            lost: None,
            next: None,
        }
    }

    /// Blocks until every rank has ended. Returns the exit code of the first that failed.
    ///
    /// # Errors
    /// The write error if output was lost.
    pub(super) fn stay(mut self, inbox: &Receiver<Event>) -> Result<u8, OutputError> {
        while self.running.contains(&true) {
            let event = match self.next {
                Some((at, _)) => inbox.recv_timeout(at.saturating_duration_since(Instant::now())),
                None => inbox.recv().map_err(RecvTimeoutError::from),
            };
            match event {
                Ok(Event::Signal(signal)) => self.pass_on(signal),
                Ok(Event::Ended { rank, how }) => self.ended(rank, how),
                Ok(Event::OutputLost(error)) => self.lose(error),
                Err(RecvTimeoutError::Timeout) => self.proceed(),
                // Every sender is gone, so no event can arrive any more.
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let is_interrupted = matches!(self.passed_on, Some((Signal::INT, _)));
        match (self.lost, self.failure) {
            (Some(error), _) => Err(error),
            (None, Some(code)) => Ok(code),
            (None, None) if is_interrupted => Ok(INTERRUPTED),
            (None, None) => Ok(0),
        }
    }

    /// Forwards a signal; a second Ctrl-C kills the ranks.
    fn pass_on(&mut self, signal: Signal) {
        let again = signal == Signal::INT && matches!(self.passed_on, Some((Signal::INT, _)));
        self.passed_on = Some((signal, Instant::now()));
        self.signal(if again { Signal::KILL } else { signal });
    }

    fn ended(&mut self, rank: usize, how: Ended) {
        self.running[rank] = false;
        if self.failure.is_some() || self.lost.is_some() || how.code() == 0 {
            return;
        }
        if !self.options.prefix
            && how.is_broken_pipe()
            && let Some(error) = Stream::Output.lost_reader()
        {
            // Without a prefix, the rank wrote to this process's standard output directly.
            return self.lose(error);
        }
        let (rank, how) = self.cause(rank, how);
        self.failure = Some(how.code());
        // A signal was just forwarded: a second one would interrupt the ranks' cleanup, and the user who sent the
        // first needs no message.
        let grace = self.options.grace;
        if self.passed_on.is_some_and(|(_, at)| at.elapsed() < grace) {
            return self.plan(grace, Step::Kill);
        }
        let others = match (self.running.contains(&true), self.options.asks_to_end) {
            (false, _) => "",
            (true, true) => "; stopping the other ranks",
            (true, false) => "; waiting for the other ranks to end",
        };
        if self.options.tells_codes || how.is_signal() {
            output::last_words(format_args!("rank {rank} {how}{others}"));
        }
        match self.options.asks_to_end {
            true => self.plan(self.options.reaction, Step::Terminate),
            false => self.plan(grace, Step::Kill),
        }
    }

    /// Returns the first failure. The event of a rank that fails because a peer was killed may arrive before the
    /// event of the peer.
    fn cause(&self, rank: usize, how: Ended) -> (usize, Ended) {
        let others = self.ranks.iter().enumerate();
        let mut killed = others.filter_map(|(other, rank)| {
            let how = rank.end().filter(|how| how.is_signal())?;
            self.running[other].then_some((other, how))
        });
        match how.is_signal() {
            true => (rank, how),
            false => killed.next().unwrap_or((rank, how)),
        }
    }

    /// Stops the ranks without reaction time, since nobody reads their output.
    fn lose(&mut self, error: OutputError) {
        if self.lost.is_none() {
            self.lost = Some(error);
            self.signal(Signal::TERM);
            self.plan(self.options.grace, Step::Kill);
        }
    }

    /// Performs the step that is due.
    fn proceed(&mut self) {
        match self.next.take() {
            Some((_, Step::Terminate)) => {
                self.signal(Signal::TERM);
                self.plan(self.options.grace, Step::Kill);
            }
            Some((_, Step::Kill)) => {
                if self.lost.is_none() {
                    let grace = self.options.grace;
                    output::last_words(format_args!(
                        "killing the ranks that have not ended within {grace:?}"
                    ));
                }
                self.signal(Signal::KILL);
            }
            None => {}
        }
    }

    fn plan(&mut self, after: Duration, step: Step) {
        self.next = Instant::now().checked_add(after).map(|at| (at, step));
    }

    fn signal(&self, signal: Signal) {
        let all = self.ranks.iter().zip(&self.running);
        let running = all.filter(|(_, running)| **running);
        running.for_each(|(rank, _)| rank.signal(signal));
    }
}
