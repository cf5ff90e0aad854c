//! The store's end of a connection: bytes in, requests out; replies in, bytes out.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;

use crate::bootstrap::coordinator::action::SentDescriptor;
use crate::bootstrap::descriptors;
use crate::bootstrap::descriptors::Batch;
use crate::bootstrap::frame::{Frame, HEADER_BYTES, MAX_BODY};
use crate::bootstrap::handshake::verdict::{Step, Verdict};
use crate::bootstrap::handshake::verifier::Verifier;
use crate::bootstrap::handshake::{HANDSHAKE_DEADLINE, Handshake};
use crate::bootstrap::request::Request;
use crate::bootstrap::stream::Stream;

/// Pause before a retry of a send that the kernel refused because too many descriptors are in flight
/// (`ETOOMANYREFS`); no event reports that there are fewer.
const DESCRIPTORS_IN_FLIGHT_PAUSE: Duration = Duration::from_millis(1);

/// The phase of a connection.
enum Phase {
    Greeting(Handshake),
    Trusted,
}

/// A queued frame.
struct Outgoing {
    frame: Vec<u8>,
    sent: usize,
    descriptors: Option<Arc<Vec<OwnedFd>>>,
}

/// A connection to a rank, or to a stranger that has not proved to be one.
pub(super) struct Connection {
    stream: Stream,
    phase: Phase,
    /// Time at which it is closed unless it has completed its handshake.
    deadline: Option<Instant>,
    incoming: Vec<u8>,
    batches: VecDeque<Batch>,
    outgoing: VecDeque<Outgoing>,
    /// Time at which to try again to send descriptors.
    paused: Option<Instant>,
}

/// The reason why a connection ends.
pub(super) enum End {
    /// The other side closed it, or it broke with this error.
    Closed(Option<Errno>),
    /// It did not complete the handshake.
    Refused(&'static str),
    /// It sent something that no rank sends.
    Violation(String),
}

/// How far a connection has come in proving to be a rank's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It has shown nothing.
    Stranger,
    /// It has shown something that only a rank can have made, if perhaps long ago, and may believe that it is in.
    Answered,
    /// It is a rank's.
    Proved,
}

impl Connection {
    /// Makes a connection that has not completed its handshake.
    pub(super) fn new(stream: Stream) -> Self {
        let greeting = Phase::Greeting(Handshake::new(stream.transport));
        let deadline = Instant::now() + HANDSHAKE_DEADLINE;
        Self::in_phase(stream, greeting, Some(deadline))
    }

    /// Makes the connection of rank 0, made within this process: it needs no handshake.
    pub(super) fn of_rank_0(stream: Stream) -> Self {
        Self::in_phase(stream, Phase::Trusted, None)
    }

    fn in_phase(stream: Stream, phase: Phase, deadline: Option<Instant>) -> Self {
        Self {
            stream,
            phase,
            deadline,
            incoming: Vec::new(),
            batches: VecDeque::new(),
            outgoing: VecDeque::new(),
            paused: None,
        }
    }

    /// Returns whether it carries file descriptors.
    pub(super) fn carries_descriptors(&self) -> bool {
        self.stream.carries_descriptors()
    }

    /// Returns how far it has come in proving to be a rank's.
    pub(super) fn standing(&self) -> Standing {
        match &self.phase {
            Phase::Greeting(handshake) if handshake.is_answered() => Standing::Answered,
            Phase::Greeting(_) => Standing::Stranger,
            Phase::Trusted => Standing::Proved,
        }
    }

    /// Returns the addresses of both ends of a connection over TCP; see [`Stream::connection`].
    pub(super) fn name(&self) -> Option<String> {
        self.stream.connection()
    }

    /// Returns whether its time for the handshake has passed at `now`.
    pub(super) fn is_silent(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Returns when something is due even if no bytes arrive.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadline.into_iter().chain(self.paused).min()
    }

    /// Queues a frame, with descriptors beside it, and sends what the kernel accepts at once.
    pub(super) fn send(&mut self, frame: Vec<u8>, descriptors: Option<Arc<Vec<OwnedFd>>>) {
        self.outgoing.push_back(Outgoing {
            frame,
            sent: 0,
            descriptors,
        });
        // An error appears again, as an end, when the connection is read.
        let _ = self.send_queued();
    }

    /// Continues sending; ends a pause that is over.
    pub(super) fn resume(&mut self, now: Instant) {
        if self.paused.is_some_and(|until| until <= now) {
            self.paused = None;
        }
        // As above.
        let _ = self.send_queued();
    }

    /// Hands the queue to the kernel. Blocks until `until` at most.
    pub(super) fn flush(&mut self, until: Instant) {
        while self.send_queued().is_ok() && !self.is_sent() {
            if self.paused.take().is_some() {
                std::thread::sleep(DESCRIPTORS_IN_FLIGHT_PAUSE);
            }
            if !self.stream.wait(PollFlags::OUT, until).unwrap_or(false) || Instant::now() >= until
            {
                break;
            }
        }
    }

    /// Returns the events to poll for.
    pub(super) fn events(&self) -> PollFlags {
        if self.is_sent() || self.paused.is_some() {
            PollFlags::IN
        } else {
            PollFlags::IN | PollFlags::OUT
        }
    }

    /// Returns whether the kernel has all of the queue.
    fn is_sent(&self) -> bool {
        self.outgoing.is_empty() && self.stream.is_flushed()
    }

    /// Reads the available bytes that the phase allows: no byte of a message before the handshake is complete.
    pub(super) fn read(&mut self, verifier: &mut Verifier, scratch: &mut [u8]) -> Result<(), End> {
        // At most one message's bytes at a time, so that one rank cannot occupy the store.
        while self.incoming.len() < HEADER_BYTES + MAX_BODY {
            let received = match &mut self.phase {
                Phase::Greeting(handshake) => {
                    let received = self.stream.receive(handshake.space());
                    if let Ok(count @ 1..) = received {
                        let Step { answer, verdict } = handshake.advance(count, verifier);
                        self.answer(answer, verdict)?;
                    }
                    received
                }
                Phase::Trusted => self.receive_message_bytes(scratch),
            };
            match received {
                Ok(0) => return Err(End::Closed(None)),
                // There is rarely more, and poll reports it.
                Ok(count) if count < scratch.len() && matches!(self.phase, Phase::Trusted) => {
                    return Ok(());
                }
                Ok(_) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(End::Closed(Some(error))),
            }
        }
        Ok(())
    }

    /// Sends the store's part of the handshake and applies the verdict.
    fn answer(&mut self, frame: Vec<u8>, verdict: Verdict) -> Result<(), End> {
        if !frame.is_empty() {
            self.outgoing.push_back(Outgoing {
                frame,
                sent: 0,
                descriptors: None,
            });
        }
        let sent = self.send_queued();
        match verdict {
            Verdict::Pending => {}
            Verdict::Trusted => {
                if let Phase::Greeting(handshake) = &mut self.phase {
                    handshake.seal(&mut self.stream);
                }
                self.phase = Phase::Trusted;
                self.deadline = None;
            }
            Verdict::Refused(reason) => return Err(End::Refused(reason)),
        }
        sent.map_err(|error| End::Closed(Some(error)))
    }

    fn receive_message_bytes(&mut self, scratch: &mut [u8]) -> Result<usize, Errno> {
        let received = if self.stream.carries_descriptors() {
            descriptors::receive(&self.stream, scratch, &mut self.batches)
        } else {
            self.stream.receive(scratch)
        }?;
        self.incoming.extend_from_slice(&scratch[..received]);
        Ok(received)
    }

    /// Takes the first complete request out of the received bytes.
    pub(super) fn next_request(
        &mut self,
    ) -> Result<Option<(u64, Request, SentDescriptor)>, String> {
        let Some(frame) = Frame::parse(&self.incoming).map_err(|error| error.to_string())? else {
            return Ok(None);
        };
        let message = Request::parse(frame.kind, frame.body).map_err(|error| error.to_string())?;
        let (request, announced) = (frame.request, frame.descriptors);
        let taken = HEADER_BYTES + frame.body.len();
        self.incoming.drain(..taken);
        let beside = match (announced, message_takes_descriptor(&message)) {
            (0, _) => SentDescriptor::Nothing,
            (1, true) => {
                let batch = self
                    .batches
                    .pop_front()
                    .ok_or("an announced file descriptor is missing")?;
                let mut descriptors = batch.descriptors.into_iter();
                match (descriptors.next(), batch.truncated) {
                    (Some(descriptor), false) => SentDescriptor::Descriptor(descriptor),
                    (None, true) | (Some(_), true) => SentDescriptor::Lost,
                    (None, false) => return Err("an empty batch of file descriptors".into()),
                }
            }
            _ => {
                return Err(format!(
                    "{announced} file descriptors with a message that takes fewer"
                ));
            }
        };
        if self.batches.len() > 1 {
            return Err("file descriptors that no message announced".into());
        }
        Ok(Some((request, message, beside)))
    }

    /// Sends as much of the queue as the kernel accepts.
    fn send_queued(&mut self) -> Result<(), Errno> {
        while let Some(first) = self.outgoing.front_mut() {
            if self.paused.is_some() {
                return Ok(());
            }
            let rest = &first.frame[first.sent..];
            let sent = match first.descriptors.as_ref().filter(|_| first.sent == 0) {
                Some(batch) => {
                    let borrowed: Vec<_> = batch.iter().map(AsFd::as_fd).collect();
                    descriptors::send(&self.stream, rest, &borrowed)
                }
                None => self.stream.send(rest),
            };
            match sent {
                Ok(count) => first.sent += count,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::TOOMANYREFS) => {
                    self.paused = Some(Instant::now() + DESCRIPTORS_IN_FLIGHT_PAUSE);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
            if first.sent == first.frame.len() {
                self.outgoing.pop_front();
            }
        }
        self.stream.flush().map(drop)
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn message_takes_descriptor(message: &Request) -> bool {
    matches!(message, Request::AllGather { .. })
}
