//! The handshake: how a rank proves that it belongs to the job, before any message is read.
//!
//! Over a Unix socket the kernel reports the user at the other end (`SO_PEERCRED`, see unix(7)). Each end
//! compares that user with its own before a byte passes: the rank before it sends, the store before it reads.
//! So the rank may show the key itself, which is the launcher's secret or, without one, the job's name; a
//! process of the same user could read either from `/proc` as well.
//! ```text
//! rank   → store   magic (8 bytes), kind of key (1 secret, 2 job's name), length of key (2), key (0 to 4096)
//! store  → rank    "welcome\n" or "refused\n" (8)
//! ```
//! Over TCP, which needs the feature `tcp`, any process may be at the other end: both ends prove that they know
//! the secret.
//! ```text
//! rank   → store   magic (8 bytes), nonce of the rank (32)
//! store  → rank    nonce of the store (32), proof of the store (32)
//! rank   → store   proof of the rank (32)
//! ```
//! A proof is HMAC-SHA-256 of both nonces under the secret, with the prover's role.
//!
//! Integers are little-endian. Neither form changes between versions: versions are compared once both ends trust
//! each other.

#[cfg(feature = "tcp")]
mod tcp;
pub(super) mod unix;
pub(super) mod verdict;

use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::bootstrap::handshake::verdict::Step;
use crate::bootstrap::key::Key;
use crate::bootstrap::stream::{Stream, Transport};

/// Time after which a connection that has not joined is closed.
pub(super) const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(5);

/// Makes the rank's side of the handshake. Returns false if the listener is not of this job. Blocks until
/// `until` at most.
///
/// On a Unix socket the caller has checked that the listener is of its own user.
pub(super) fn greet(stream: &Stream, key: &Key, until: Instant) -> Result<bool, Errno> {
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
    pub(super) fn advance(&mut self, count: usize, key: &Key) -> Step {
        match self {
            Self::Unix(hello) => hello.advance(count, key),
            #[cfg(feature = "tcp")]
            Self::Tcp(exchange) => exchange.advance(count, key.secret()),
        }
    }
}
