//! Agreements: every collective call on the control plane is one.
//!
//! Every rank sends what it is about to do, and every rank compares. So a call that differs, a rank that fails
//! and a rank that dies each become the same typed error on all ranks, and no rank waits for another that will
//! not come.
//!
//! A step that all ranks complete, with any outcome, leaves them in step. A step that does not complete (a rank
//! died, failed or was late) poisons the communicator on all ranks.

pub(crate) use crate::base::error::translate;
use crate::base::error::{Error, Result};
use crate::base::lock::lock;
use crate::base::shortened::shortened;
use crate::bootstrap::{Bootstrap, BootstrapError, Contribution};
use crate::health::watcher::Health;
use rustix::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

/// The control plane: one collective call at a time, with the same number on all ranks.
pub struct Agreement {
    bootstrap: Arc<Bootstrap>,
    deadline: Duration,
    number: Mutex<u64>,
    /// Poisoned by a step that does not complete; absent while the communicator is being opened.
    health: OnceLock<Arc<Health>>,
}

/// Separates values of a comparison; occurs in none of them.
const SEPARATOR: &str = "\0";

/// First byte of a rank's message about a step that can fail: it worked.
const WORKED: u8 = 0;
/// First byte of such a message: it failed, and the reason follows.
const FAILED: u8 = 1;

/// Most bytes of the reason why a step failed.
const MOST_REASON: usize = 4096;

/// One collective call on the control plane.
pub struct Round<'a> {
    agreement: &'a Agreement,
    /// `None` in a fork, where a thread that is not there may hold the lock.
    number: Option<MutexGuard<'a, u64>>,
    operation: &'static str,
}

impl Agreement {
    /// Makes agreements over `bootstrap`, with `deadline` for each step.
    pub fn new(bootstrap: Arc<Bootstrap>, deadline: Duration) -> Self {
        Self {
            bootstrap,
            deadline,
            number: Mutex::new(0),
            health: OnceLock::new(),
        }
    }

    /// Makes steps that do not complete poison `health` from here on.
    pub fn watch_over(&self, health: Arc<Health>) {
        // Called once, when the communicator is opened.
        let _ = self.health.set(health);
    }

    /// Handles a step that did not complete: tells every rank, so that none waits for another's next step.
    fn broken(&self, error: BootstrapError) -> Error {
        match error {
            // The ranks are still in step: this rank's message was too large, or every rank learns that a peer
            // has left in good order.
            BootstrapError::TooLarge { .. } | BootstrapError::PeerLeft { .. } => error.into(),
            error => {
                let error = translate(self.rank(), error);
                match self.health.get() {
                    Some(health) => health.broken(error),
                    None => {
                        // If rank 0 is gone, the other ranks notice it themselves.
                        let _ = self.bootstrap.store().fail(&error.to_string());
                        error
                    }
                }
            }
        }
    }

    /// Returns the connection to the other ranks.
    pub fn bootstrap(&self) -> &Arc<Bootstrap> {
        &self.bootstrap
    }

    /// Returns this rank.
    pub fn rank(&self) -> usize {
        self.bootstrap.rank() as usize
    }

    /// Returns the number of ranks in the world.
    pub fn world(&self) -> usize {
        self.bootstrap.world() as usize
    }

    /// Returns the most bytes that a rank can contribute to one step.
    pub fn most_bytes(&self) -> usize {
        // One byte for the length of the operation's name, and the name.
        self.bootstrap.payload_limit() - 1 - usize::from(u8::MAX)
    }

    /// Begins a collective call. Threads of a rank take turns.
    pub fn begin(&self, operation: &'static str) -> Round<'_> {
        let forked = self.bootstrap.store().process().is_fork();
        Round {
            agreement: self,
            number: (!forked).then(|| lock(&self.number)),
            operation,
        }
    }
}

impl Round<'_> {
    fn rank(&self) -> usize {
        self.agreement.rank()
    }

    /// Returns the number of the step, the same on all ranks.
    pub fn number(&self) -> u64 {
        self.number.as_deref().copied().unwrap_or_default()
    }

    /// Exchanges bytes: returns every rank's bytes in rank order. Blocks until all ranks have come.
    ///
    /// # Errors
    /// The error of a rank that died, failed, did not come within the deadline, or is in another operation; at
    /// once, the error that poisoned the communicator.
    pub fn exchange(&mut self, payload: &[u8]) -> Result<Vec<Vec<u8>>> {
        let contributions = self.exchange_with(payload, None)?;
        Ok(contributions
            .into_iter()
            .map(|contribution| contribution.payload)
            .collect())
    }

    /// Exchanges as [`Round::exchange`] does, with an optional file descriptor beside the bytes, which goes to the ranks
    /// of this node only.
    pub fn exchange_with(
        &mut self,
        payload: &[u8],
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<Vec<Contribution>> {
        if let Some(health) = self.agreement.health.get() {
            // The rank that poisoned it has told the others; this check also reports a wait that just gave up.
            health.look()?;
        }
        if let Some(number) = &mut self.number {
            **number += 1;
        }
        let tag = format!("agreement/{}", self.number());
        let mut message = Vec::with_capacity(1 + self.operation.len() + payload.len());
        message.push(self.operation.len() as u8);
        message.extend_from_slice(self.operation.as_bytes());
        message.extend_from_slice(payload);
        let agreement = self.agreement;
        let rank = self.rank();
        let mut answers = agreement
            .bootstrap
            .gather(&tag, &message, descriptor, agreement.deadline)
            .map_err(|error| agreement.broken(error))?;
        for (peer, answer) in answers.iter_mut().enumerate() {
            let length = answer
                .payload
                .first()
                .map_or(0, |&length| usize::from(length));
            let operation = answer.payload.get(1..1 + length).unwrap_or_default();
            if operation != self.operation.as_bytes() {
                return Err(Error::Mismatch {
                    rank,
                    peer,
                    operation: self.operation,
                    what: "the operation",
                    mine: self.operation.into(),
                    theirs: String::from_utf8_lossy(operation).into_owned(),
                });
            }
            answer.payload.drain(..1 + length);
        }
        Ok(answers)
    }

    /// Compares named values among all ranks. Blocks until all ranks have come.
    ///
    /// # Errors
    /// [`Error::Mismatch`] on every rank if any differs; the errors of [`Round::exchange`].
    pub fn compare(&mut self, fields: &[(&'static str, String)]) -> Result<()> {
        let values: Vec<&str> = fields.iter().map(|(_, value)| value.as_str()).collect();
        let answers = self.exchange(values.join(SEPARATOR).as_bytes())?;
        let answers: Vec<String> = answers
            .iter()
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            .collect();
        let value_of = |peer: usize, index: usize| {
            answers[peer]
                .split(SEPARATOR)
                .nth(index)
                .unwrap_or("missing")
                .to_owned()
        };
        // Every rank looks for the first rank that differs from rank 0, so that all report the same.
        for peer in 0..answers.len() {
            for (index, (what, mine)) in fields.iter().enumerate() {
                if value_of(peer, index) != value_of(0, index) {
                    let rank = self.rank();
                    // Names a rank that differs from this one: the first that differs, or rank 0.
                    let peer = if value_of(peer, index) == *mine {
                        0
                    } else {
                        peer
                    };
                    return Err(Error::Mismatch {
                        rank,
                        peer,
                        operation: self.operation,
                        what,
                        mine: mine.clone(),
                        theirs: value_of(peer, index),
                    });
                }
            }
        }
        Ok(())
    }

    /// Exchanges the outcomes of a step. Returns in rank order, for each rank, its contribution or the reason
    /// why the step failed there.
    ///
    /// # Errors
    /// The errors of [`Round::exchange`]. A failed step is not an error.
    pub fn tell(
        &mut self,
        outcome: std::result::Result<&[u8], String>,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<Vec<std::result::Result<Contribution, String>>> {
        let message = match outcome {
            Ok(payload) => [&[WORKED], payload].concat(),
            // Longer reasons are cut; with hundreds of ranks a message has little more than a thousand bytes.
            Err(reason) => {
                let most = MOST_REASON.min(self.agreement.most_bytes() - 1);
                [&[FAILED], shortened(&reason, most).as_bytes()].concat()
            }
        };
        let answers = self.exchange_with(&message, descriptor)?;
        let told = answers.into_iter().map(|mut answer| {
            let worked = answer.payload.first() == Some(&WORKED);
            answer.payload.drain(..answer.payload.len().min(1));
            if worked {
                Ok(answer)
            } else {
                Err(String::from_utf8_lossy(&answer.payload).into_owned())
            }
        });
        Ok(told.collect())
    }

    /// Ends a step that can fail on one rank alone, so that it succeeds on all ranks or fails on all. Blocks
    /// until all ranks have come.
    ///
    /// # Errors
    /// This rank's own error, or [`Error::PeerFailed`] with the reason of the first rank that failed.
    pub fn vote<T>(&mut self, outcome: Result<T>) -> Result<T> {
        let outcome = outcome.map(|value| (value, Vec::new()));
        self.give(outcome, None).map(|(value, _)| value)
    }

    /// Votes as [`Round::vote`] does; if the step succeeds, also returns every rank's bytes and descriptors, in
    /// rank order.
    ///
    /// # Errors
    /// As [`Round::vote`].
    pub fn give<T>(
        &mut self,
        outcome: Result<(T, Vec<u8>)>,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<(T, Vec<Contribution>)> {
        // The step may have failed because a peer died: a handle whose owner has ended cannot be opened.
        if let (Err(error), Some(health)) = (&outcome, self.agreement.health.get()) {
            health.watch_once();
            if health.check().is_err() {
                tracing::warn!(rank = self.rank(), %error, "a step failed, and a peer too");
            }
        }
        let said = match &outcome {
            Ok((_, payload)) => Ok(payload.as_slice()),
            Err(error) => Err(error.to_string()),
        };
        let answers = self.tell(said, descriptor);
        // This rank's own failure is more precise than its effect on the exchange, unless a death caused both.
        if let (Err(_), Err(error @ Error::PeerDied { .. })) = (&outcome, &answers) {
            return Err(error.clone());
        }
        let (value, _) = outcome?;
        let answers = answers?.into_iter().enumerate().map(|(peer, answer)| {
            answer.map_err(|reason| Error::PeerFailed {
                rank: self.rank(),
                peer,
                reason,
            })
        });
        Ok((value, answers.collect::<Result<_>>()?))
    }
}
