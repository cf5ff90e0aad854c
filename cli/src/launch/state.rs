//! The state of running ranks: forwards signals, and stops the other ranks after one has failed.

use super::event::{Ended, Event};
use super::first_failure::FirstFailure;
use super::link::Outcome;
use super::messages::Messages;
use super::options::RunOptions;
use super::processes::{self, Processes};
use super::rank::Rank;
use crate::output::{OutputError, Stream};
use rustix::process::{Pid, Signal};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// 128 + SIGINT.
const INTERRUPTED: u8 = 130;

/// Time between the end of an adopted process and its reaping: often several end together.
const REAP_PAUSE: Duration = Duration::from_secs(1);

/// The next signal for ranks that still run.
#[derive(Clone, Copy, Debug)]
enum Step {
    Terminate,
    Kill,
}

/// The state of the ranks of a job.
pub(super) struct State<'a> {
    ranks: &'a [Rank],
    options: &'a RunOptions,
    messages: &'a Messages,
    running: Vec<bool>,
    /// The first failure.
    failure: Option<FirstFailure>,
    /// Whether the user still has to be told of it.
    is_untold: bool,
    /// Whether the user was told of it.
    is_told: bool,
    /// The last forwarded signal, and when.
    passed_on: Option<(Signal, Instant)>,
    lost: Option<OutputError>,
    next: Option<(Instant, Step)>,
    /// Time at which to reap adopted processes that have ended.
    reap_at: Option<Instant>,
}

impl<'a> State<'a> {
    pub(super) fn new(ranks: &'a [Rank], options: &'a RunOptions, messages: &'a Messages) -> Self {
        Self {
            ranks,
            options,
            messages,
            running: vec![true; ranks.len()],
            failure: None,
            is_untold: false,
            is_told: false,
            passed_on: None,
            lost: None,
            next: None,
            reap_at: None,
        }
    }

    /// Blocks until every rank has ended, or the launcher has died. Returns the exit code of the rank that failed first.
    ///
    /// # Errors
    /// The write error if output was lost.
    pub(super) fn stay(mut self, inbox: &Receiver<Event>) -> Result<u8, Outcome> {
        while self.running.contains(&true) {
            let event = match self.due() {
                Some(at) => inbox.recv_timeout(at.saturating_duration_since(Instant::now())),
                None => inbox.recv().map_err(RecvTimeoutError::from),
            };
            match event {
                Ok(Event::Signal(signal)) => self.pass_on(signal),
                Ok(Event::Ended { rank, how, at }) => self.ended(rank, how, at),
                Ok(Event::OutputLost(error)) => self.lose(error),
                Ok(Event::ChildEnded) => {
                    self.reap_at.get_or_insert(Instant::now() + REAP_PAUSE);
                }
                // Nobody reads the code.
                Ok(Event::LauncherGone) => return Ok(1),
                Err(RecvTimeoutError::Timeout) => {}
                // Every sender is gone, so no event can arrive any more.
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.proceed();
        }
        self.tell();
        let is_interrupted = matches!(self.passed_on, Some((Signal::INT, _)));
        match (self.lost, self.failure) {
            (Some(error), _) => Err(Outcome::output_lost(&error)),
            (None, Some(first)) => Ok(first.how.code()),
            (None, None) if is_interrupted => Ok(INTERRUPTED),
            (None, None) => Ok(0),
        }
    }

    /// Returns when something is to be done even if nothing happens.
    fn due(&self) -> Option<Instant> {
        let settles = self.failure.as_ref().and_then(FirstFailure::settles_at);
        // Afterwards only the end of a rank or the next step makes the failure certain.
        let settles = settles.filter(|&at| self.is_untold && at > Instant::now());
        let next = self.next.map(|(at, _)| at);
        [settles, next, self.reap_at].into_iter().flatten().min()
    }

    /// Does what is due.
    fn proceed(&mut self) {
        let now = Instant::now();
        if self
            .failure
            .as_ref()
            .is_some_and(|first| first.is_certain(now))
        {
            self.tell();
        }
        if let Some((_, step)) = self.next.take_if(|(at, _)| *at <= now) {
            self.tell();
            self.take_step(step);
        }
        if self.reap_at.take_if(|at| *at <= now).is_some() {
            let pids: Vec<Pid> = self.ranks.iter().map(Rank::pid).collect();
            processes::reap_adopted(&pids);
        }
    }

    /// Forwards a signal; a second Ctrl-C kills the ranks.
    fn pass_on(&mut self, signal: Signal) {
        let again = signal == Signal::INT && matches!(self.passed_on, Some((Signal::INT, _)));
        self.passed_on = Some((signal, Instant::now()));
        self.signal(if again { Signal::KILL } else { signal });
    }

    /// Handles the end of a rank, which was noticed at `now`.
    fn ended(&mut self, rank: usize, how: Ended, now: Instant) {
        self.running[rank] = false;
        if how.code() == 0 {
            return;
        }
        // What the rank leaves is no rank any more, but its peers would wait for it.
        self.ranks[rank].signal(Signal::KILL);
        if let Some(first) = &mut self.failure {
            // Afterwards the message and the exit code would be of different ranks.
            if !self.is_told {
                first.consider(rank, how, now);
            }
            return;
        }
        if self.lost.is_some() {
            return;
        }
        if !self.options.prefix
            && how.is_broken_pipe()
            && let Some(error) = Stream::Output.lost_reader()
        {
            // Without a prefix, the rank wrote to this process's standard output directly.
            return self.lose(error);
        }
        let suspects = match how.signal() {
            Some(_) => Vec::new(),
            None => self.ending(),
        };
        self.failure = Some(FirstFailure::new(rank, how, suspects, now));
        // A signal was just forwarded: a second one would interrupt the ranks' cleanup, and the user who sent the
        // first needs no message.
        let grace = self.options.grace;
        if self.passed_on.is_some_and(|(_, at)| at.elapsed() < grace) {
            return self.plan(now, grace, Step::Kill);
        }
        self.is_untold = true;
        match self.options.asks_to_end {
            true => self.plan(now, self.options.reaction, Step::Terminate),
            false => self.plan(now, grace, Step::Kill),
        }
    }

    /// Returns the running ranks of which a process has ended or begun to.
    fn ending(&self) -> Vec<usize> {
        let all = Processes::look();
        let ranks = self.ranks.iter().zip(&self.running).enumerate();
        let ending =
            ranks.filter(|(_, (rank, running))| **running && all.is_any_ending(rank.pid()));
        ending.map(|(rank, _)| rank).collect()
    }

    /// Tells of the first failure, once.
    fn tell(&mut self) {
        let Some(first) = self.failure.as_ref().filter(|_| self.is_untold) else {
            return;
        };
        (self.is_untold, self.is_told) = (false, true);
        let others = match (self.running.contains(&true), self.options.asks_to_end) {
            (false, _) => "",
            (true, true) => "; stopping the other ranks",
            (true, false) => "; waiting for the other ranks to end",
        };
        let FirstFailure { rank, how, .. } = first;
        if self.options.tells_codes || how.is_signal() {
            let rank = self.options.rank(*rank as u32);
            self.messages.say(format!("rank {rank} {how}{others}"));
        }
    }

    /// Stops the ranks without reaction time, since nobody reads their output.
    fn lose(&mut self, error: OutputError) {
        if self.lost.is_none() {
            self.lost = Some(error);
            self.signal(Signal::TERM);
            self.plan(Instant::now(), self.options.grace, Step::Kill);
        }
    }

    fn take_step(&mut self, step: Step) {
        match step {
            Step::Terminate => {
                self.signal(Signal::TERM);
                self.plan(Instant::now(), self.options.grace, Step::Kill);
            }
            Step::Kill => {
                if self.lost.is_none() {
                    let grace = self.options.grace;
                    self.messages.say(format!(
                        "killing the ranks that have not ended within {grace:?}"
                    ));
                }
                self.signal(Signal::KILL);
            }
        }
    }

    fn plan(&mut self, since: Instant, after: Duration, step: Step) {
        self.next = since.checked_add(after).map(|at| (at, step));
    }

    fn signal(&self, signal: Signal) {
        let all = self.ranks.iter().zip(&self.running);
        let running = all.filter(|(_, running)| **running);
        running.for_each(|(rank, _)| rank.signal(signal));
    }
}
