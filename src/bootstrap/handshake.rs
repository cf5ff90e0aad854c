//! The handshake: how a rank proves that it belongs to the job, before any message is read.
//!
//! Over a Unix socket the kernel reports the user at the other end (`SO_PEERCRED`, see unix(7)). Each end
//! compares that user with its own before a byte passes: the rank before it sends, the store before it reads.
//! So the rank may show the key itself; a process of the same user could read it from `/proc` as well.
//! ```text
//! rank   → store   magic (8 bytes), kind of key (1 secret, 2 job's name, 3 the user's secret and the job's name),
//!                  length of key (2), key (0 to 4128)
//! store  → rank    "welcome\n" or "refused\n" (8)
//! ```
//! Over TCP, which needs the feature `tcp`, any process may be at the other end or in between: both ends prove by the
//! Noise protocol that they know the secret, and agree on keys for all that follows.
//! ```text
//! rank   → store   magic (8), first message of NNpsk0 (48)
//! store  → rank    "welcome\n" (8), second message (48); or "refused\n"
//! rank   → store   an empty message under the new keys (16)
//! ```
//! The last one proves that the first was not a recording. A first message that the store has heard before is one, and
//! is not answered again.
//!
//! Integers are little-endian. Neither form changes between versions: versions are compared once both ends trust
//! each other.

#[cfg(feature = "tcp")]
pub(super) mod tcp;
pub(super) mod unix;
pub(super) mod verdict;
pub(super) mod verifier;

use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::bootstrap::handshake::verdict::Step;
use crate::bootstrap::handshake::verifier::Verifier;
use crate::bootstrap::key::Key;
use crate::bootstrap::stream::{Stream, Transport};

/// Time after which a connection that has not joined is closed.
pub(super) const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(5);

/// Makes the rank's side of the handshake, which seals a stream over TCP. Returns false if the listener is not of this
/// job. Blocks until `until` at most.
///
/// On a Unix socket the caller has checked that the listener is of its own user.
pub(super) fn greet(stream: &mut Stream, key: &Key, until: Instant) -> Result<bool, Errno> {
    match stream.transport {
        Transport::Unix => unix::greet(stream, key, until),
        #[cfg(feature = "tcp")]
        Transport::Tcp => match key.secret() {
            Some(secret) => tcp::greet(stream, secret, until),
            None => Ok(false),
        },
    }
}

/// The state of the store's side of a handshake. It does no input or output of its own.
pub(super) enum Handshake {
    Unix(unix::Hello),
    #[cfg(feature = "tcp")]
    Tcp(tcp::Exchange),
}

impl Handshake {
    pub(super) fn new(transport: Transport) -> Self {
        match transport {
            Transport::Unix => Self::Unix(unix::Hello::new()),
            #[cfg(feature = "tcp")]
            Transport::Tcp => Self::Tcp(tcp::Exchange::new()),
        }
    }

    /// Returns the buffer for the next bytes; never empty while the verdict is pending.
    pub(super) fn space(&mut self) -> &mut [u8] {
        match self {
            Self::Unix(hello) => hello.space(),
            #[cfg(feature = "tcp")]
            Self::Tcp(exchange) => exchange.space(),
        }
    }

    /// Evaluates the bytes received, with `count` more in [`Handshake::space`].
    pub(super) fn advance(&mut self, count: usize, verifier: &mut Verifier) -> Step {
        match self {
            Self::Unix(hello) => hello.advance(count, &verifier.key),
            #[cfg(feature = "tcp")]
            Self::Tcp(exchange) => exchange.advance(count, verifier),
        }
    }

    /// Returns whether the other end has shown something that only a rank of this job can have made, and the store has
    /// answered it: the rank may believe that it is in.
    pub(super) fn is_answered(&self) -> bool {
        match self {
            Self::Unix(_) => false,
            #[cfg(feature = "tcp")]
            Self::Tcp(exchange) => exchange.is_answered(),
        }
    }

    /// Seals `stream` with the keys that a trusted rank and the store agreed on, if it is one over TCP.
    #[cfg_attr(
        not(feature = "tcp"),
        expect(unused_variables, reason = "only TCP needs sealing")
    )]
    pub(super) fn seal(&mut self, stream: &mut Stream) {
        match self {
            Self::Unix(_) => {}
            #[cfg(feature = "tcp")]
            Self::Tcp(exchange) => exchange.seal(stream),
        }
    }
}
