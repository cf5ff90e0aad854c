//! The store's decisions under requests in any order, of any content, from ranks and from strangers that hold the
//! job's key.
//!
//! The input is a script: world size, a byte of flags, then steps of a connection (1 byte), a kind (1), a length
//! (2, little-endian) and a body. See [`Bench::step`].

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::bootstrap::codec::Reader;
use crate::bootstrap::coordinator::Coordinator;
use crate::bootstrap::coordinator::action::{Action, HOST, SentDescriptor, Token};
use crate::bootstrap::frame::{Frame, HEADER_BYTES, MAX_BODY, MessageError};
use crate::bootstrap::peer::PeerInformation;
use crate::bootstrap::process::ProcessIdentity;
use crate::bootstrap::reply::Reply;
use crate::bootstrap::request::{Request, VERSION};

const GENERATION: u64 = 7;
const BOOT: &str = "boot";
/// Longer than any deadline, which the store limits to a century.
const MORE_THAN_A_CENTURY: Duration = Duration::from_secs(101 * 365 * 24 * 3600);
/// Steps of a script that count: more would only take time.
const MOST_STEPS: usize = 200;

/// Flag: all ranks join first.
const JOINED: u8 = 1;
/// Bits of a step's connection: the number of the connection, and how its request travels.
const CONNECTION: u8 = 0b0000_0111;
/// The kernel dropped the descriptor beside the request.
const LOST: u8 = 0b0001_0000;
/// The body is as long as a body may be: its last string, or list of bytes, is extended.
const STRETCHED: u8 = 0b0010_0000;
/// It came over TCP.
const OVER_TCP: u8 = 0b0100_0000;
/// Kinds of steps that are not requests.
const DISCONNECT: u8 = 200;
const WAIT: u8 = 201;

/// Checks the script `bytes`.
pub fn check(bytes: &[u8]) {
    let mut reader = Reader(bytes);
    let (Some(world), Some(flags)) = (reader.u8(), reader.u8()) else {
        return;
    };
    let mut bench = Bench::new(1 + u32::from(world % 4));
    if flags & JOINED != 0 {
        bench.join_all();
    }
    for _ in 0..MOST_STEPS {
        let (Some(connection), Some(kind), Some(length)) = (reader.u8(), reader.u8(), reader.u16())
        else {
            break;
        };
        let body = reader.take(usize::from(length).min(reader.0.len()));
        bench.step(connection, kind, body.unwrap_or_default());
    }
    bench.end();
}

/// The store's server without its sockets, and with a clock of its own.
struct Bench {
    coordinator: Coordinator,
    world: u32,
    now: Instant,
    /// Connections that the server has closed.
    closed: BTreeSet<Token>,
    /// The store has ended.
    ended: bool,
}

impl Bench {
    fn new(world: u32) -> Self {
        Self {
            coordinator: Coordinator::new(world, GENERATION, BOOT.into()),
            world,
            now: Instant::now(),
            closed: BTreeSet::new(),
            ended: false,
        }
    }

    fn join_all(&mut self) {
        for rank in 0..self.world {
            let peer = PeerInformation {
                rank,
                process: ProcessIdentity {
                    pid: 1,
                    start_time: 2,
                    namespace: 3,
                },
                uid: 0,
                boot_id: BOOT.into(),
                node: BOOT.into(),
            };
            let join = Request::Join {
                version: VERSION,
                world: self.world,
                generation: GENERATION,
                peer,
                deadline: 1_000_000,
            };
            self.handle(rank.into(), None, 1, join, SentDescriptor::Nothing);
        }
    }

    /// Makes one step: a request, the end of a connection, or the passing of as many milliseconds as the body has
    /// bytes.
    fn step(&mut self, connection: u8, kind: u8, body: &[u8]) {
        let token = HOST + Token::from(connection & CONNECTION);
        match kind {
            WAIT => self.pass(Duration::from_millis(body.len() as u64)),
            DISCONNECT => self.close(token, None),
            kind => {
                let mut parsed = Request::parse(kind.into(), body);
                if connection & STRETCHED != 0 {
                    parsed = parsed.and_then(stretched);
                }
                let request = match parsed {
                    Ok(request) => request,
                    Err(error) => return self.close(token, Some(error.to_string())),
                };
                let onward = (connection & OVER_TCP != 0).then_some("onward");
                let beside = match connection & LOST {
                    0 => SentDescriptor::Nothing,
                    _ => SentDescriptor::Lost,
                };
                self.handle(token, onward, 1 + u64::from(kind), request, beside);
            }
        }
    }

    fn handle(
        &mut self,
        token: Token,
        onward: Option<&str>,
        number: u64,
        request: Request,
        beside: SentDescriptor,
    ) {
        if self.ended || self.closed.contains(&token) {
            return;
        }
        let handled = (self.coordinator).handle(token, onward, number, request, beside, self.now);
        self.carry_out();
        if let Err(reason) = handled {
            assert!(!reason.is_empty());
            self.close(token, Some(reason.into()));
        }
    }

    fn close(&mut self, token: Token, reason: Option<String>) {
        if !self.ended && self.closed.insert(token) {
            self.coordinator.disconnect(token, reason, self.now);
            self.carry_out();
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.carry_out();
    }

    /// Does what the server does between two polls. Checks that the store would not poll in vain, and that each of
    /// its messages can be read.
    fn carry_out(&mut self) {
        if self.ended {
            return;
        }
        self.coordinator.expire(self.now);
        self.coordinator.end_silent(self.now);
        let next = self.coordinator.next_deadline();
        assert!(
            next.is_none_or(|next| next > self.now),
            "a deadline that has passed would wake the store again and again"
        );
        for action in self.coordinator.take_actions() {
            match action {
                Action::Send { frame, .. } => {
                    let parsed = Frame::parse(&frame)
                        .expect("a reply is within the limits")
                        .expect("a reply is complete");
                    assert_eq!(frame.len(), HEADER_BYTES + parsed.body.len());
                    Reply::parse(parsed.kind, parsed.body).expect("a reply can be read");
                }
                Action::StopListening => {}
                Action::Finish => self.ended = true,
            }
        }
    }

    /// Checks that every wait ends with its deadline.
    fn end(mut self) {
        self.pass(MORE_THAN_A_CENTURY);
        assert!(self.ended || self.coordinator.next_deadline().is_none());
    }
}

/// Extends a request to the longest that a message can hold, as the store would read it.
fn stretched(mut request: Request) -> Result<Request, MessageError> {
    let length = request.encode(0, 0).len() - HEADER_BYTES;
    let room = MAX_BODY.saturating_sub(length);
    match &mut request {
        Request::Set { value: bytes, .. } | Request::AllGather { payload: bytes, .. } => {
            bytes.resize(bytes.len() + room, 0)
        }
        Request::Get { key: text, .. }
        | Request::Add { key: text, .. }
        | Request::Fail { reason: text }
        | Request::Blame { reason: text, .. } => text.extend(std::iter::repeat_n(' ', room)),
        Request::Join { .. }
        | Request::ForeignJoin { .. }
        | Request::Leave
        | Request::Pulse { .. } => {}
    }
    let bytes = request.encode(0, 0);
    let frame = Frame::parse(&bytes)?.expect("an encoded message is complete");
    Request::parse(frame.kind, frame.body)
}
