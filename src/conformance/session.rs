//! A rank that runs cases on one communicator, with buffers and streams kept from case to case.

use super::case::{Case, Operation, Outcome, with_element};
use super::{refusals, registration, transfers};
use std::any::Any;
use std::time::Duration;
use symmem_core::{Communicator, Element, Result, Stream, SymmetricBuffer};

/// How long a case may wait for a peer, unless the session says otherwise.
pub const CASE_DEADLINE: Duration = Duration::from_secs(30);

/// Streams that a case can use.
pub(super) const STREAMS: usize = 3;

/// A fault that a test plants to see a check fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A byte of the data is changed after it arrived.
    WrongByte,
    /// An element beside the data is changed.
    Guard,
    /// An element of the source is changed.
    Source,
    /// Data comes without its signal.
    MissingSignal,
    /// Data is put after the barrier that announces it.
    Late,
}

/// What a rank needs to run cases one after the other.
pub struct Session<'a> {
    communicator: &'a Communicator,
    streams: Vec<Stream>,
    buffers: Vec<Box<dyn AnyBuffers>>,
    deadline: Duration,
    usable: bool,
    #[cfg(test)]
    pub(super) fault: Option<Fault>,
}

/// Destination and source of one type.
pub(super) struct Buffers<T: Element> {
    pub destination: SymmetricBuffer<T>,
    pub source: SymmetricBuffer<T>,
}

/// [`Buffers`] of any type.
trait AnyBuffers: Any {
    fn free(self: Box<Self>) -> Result<()>;
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
    fn as_any(&self) -> &dyn Any;
}

impl<T: Element> AnyBuffers for Buffers<T> {
    fn free(self: Box<Self>) -> Result<()> {
        self.destination.free()?;
        self.source.free()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// What a check works with.
pub(super) struct Context<'a> {
    pub communicator: &'a Communicator,
    pub streams: &'a [Stream],
    pub case: &'a Case,
    pub deadline: Duration,
    pub fault: Option<Fault>,
}

impl Context<'_> {
    /// Whether a test planted this fault.
    pub fn planted(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }
}

/// What this rank saw that it should not have.
pub(super) type Findings = Vec<String>;

/// Runs one case on a communicator. Collective: every rank passes the same case, and gets the same
/// outcome.
///
/// Blocks until all ranks are through; each wait at most [`CASE_DEADLINE`].
pub fn run(communicator: &Communicator, case: &Case) -> Outcome {
    let mut session = match Session::new(communicator) {
        Ok(session) => session,
        Err(error) => return Outcome::Failed(error.to_string()),
    };
    let outcome = session.run(case);
    match (session.close(), outcome) {
        (Err(error), Outcome::Passed) => Outcome::Failed(error.to_string()),
        (_, outcome) => outcome,
    }
}

impl<'a> Session<'a> {
    /// A session on `communicator`.
    ///
    /// # Errors
    /// Streams cannot be created.
    pub fn new(communicator: &'a Communicator) -> Result<Self> {
        let streams = (0..STREAMS)
            .map(|_| communicator.stream())
            .collect::<Result<_>>()?;
        Ok(Self {
            communicator,
            streams,
            buffers: Vec::new(),
            deadline: CASE_DEADLINE,
            usable: true,
            #[cfg(test)]
            fault: None,
        })
    }

    /// Waits at most `deadline` for a peer, in place of [`CASE_DEADLINE`].
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Whether another case can be run: no case has lost the communicator.
    pub fn is_usable(&self) -> bool {
        self.usable && self.communicator.check().is_ok()
    }

    /// Runs one case. Collective: every rank passes the same case, and gets the same outcome, unless
    /// the communicator is lost by it.
    pub fn run(&mut self, case: &Case) -> Outcome {
        let outcome = match case.engine.missing(self.communicator.capabilities()) {
            Some(reason) => Outcome::Skipped(reason.into()),
            None => match with_element!(case.dtype, T => self.check::<T>(case)) {
                Ok(findings) if findings.is_empty() => Outcome::Passed,
                Ok(findings) => Outcome::Failed(findings.join("; ")),
                Err(error) => Outcome::Failed(error.to_string()),
            },
        };
        self.agree(outcome)
    }

    /// Frees what the session kept. Collective.
    ///
    /// # Errors
    /// As any collective call.
    pub fn close(self) -> Result<()> {
        self.buffers
            .into_iter()
            .try_for_each(|buffers| buffers.free())
    }

    fn check<T: Element>(&mut self, case: &Case) -> Result<Findings> {
        let (destination, source) = transfers::sizes(case, self.communicator.world());
        // Registration and refusals want a few elements whatever the case's length is.
        let (destination, source) = (destination.max(1024), source.max(1024));
        let buffers = self.take::<T>(destination, source)?;
        let context = Context {
            communicator: self.communicator,
            streams: &self.streams,
            case,
            deadline: self.deadline,
            #[cfg(test)]
            fault: self.fault,
            #[cfg(not(test))]
            fault: None,
        };
        let findings = match case.operation {
            Operation::HostCopy => transfers::host_copy(&context, &buffers),
            Operation::Refusals => refusals::check(&context, &buffers),
            Operation::Registration => registration::check(&context, &buffers),
            _ => transfers::check(&context, &buffers),
        };
        self.buffers.push(Box::new(buffers));
        findings
    }

    /// Buffers of at least these lengths; kept ones where they are long enough. Every rank decides
    /// alike, since every rank runs the same cases.
    fn take<T: Element>(&mut self, destination: usize, source: usize) -> Result<Buffers<T>> {
        let kept = self
            .buffers
            .iter()
            .position(|kept| kept.as_any().is::<Buffers<T>>());
        if let Some(kept) = kept {
            let kept = self.buffers.swap_remove(kept);
            if let Ok(buffers) = kept.into_any().downcast::<Buffers<T>>() {
                if buffers.destination.len() >= destination && buffers.source.len() >= source {
                    return Ok(*buffers);
                }
                buffers.free()?;
            }
        }
        Ok(Buffers {
            destination: self
                .communicator
                .allocate(&[destination.next_power_of_two()])?,
            source: self.communicator.allocate(&[source.next_power_of_two()])?,
        })
    }

    /// Makes one outcome of every rank's: failed if it failed on any.
    fn agree(&mut self, mine: Outcome) -> Outcome {
        let told = serde_json::to_vec(&mine).unwrap_or_default();
        let answers = match self.communicator.host_all_gather(&told) {
            Ok(answers) => answers,
            Err(error) => {
                self.usable = false;
                let rank = self.communicator.rank();
                return match mine {
                    Outcome::Failed(reason) => Outcome::Failed(format!("rank {rank}: {reason}")),
                    _ => Outcome::Failed(format!("the ranks could not agree: {error}")),
                };
            }
        };
        let outcomes = answers.iter().map(|answer| {
            serde_json::from_slice(answer)
                .unwrap_or_else(|error| Outcome::Failed(format!("told no outcome: {error}")))
        });
        let mut agreed = Outcome::Passed;
        for (rank, outcome) in outcomes.enumerate() {
            match outcome {
                Outcome::Failed(reason) => {
                    return Outcome::Failed(format!("rank {rank}: {reason}"));
                }
                Outcome::Skipped(reason) => agreed = Outcome::Skipped(reason),
                Outcome::Passed => {}
            }
        }
        agreed
    }
}
