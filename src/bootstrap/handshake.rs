//! How both ends of a connection prove that they know the job's secret, before any message is read.
//!
//! ```text
//! rank   → store   magic (8 bytes), nonce of the rank (32)
//! store  → rank    nonce of the store (32), proof of the store (32)
//! rank   → store   proof of the rank (32)
//! ```
//! A proof is HMAC-SHA-256 of both nonces under the secret, with the prover's role. All parts have a
//! fixed length, which never changes between versions: versions are compared once both ends trust
//! each other.

use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::bootstrap::secret::{SECRET_BYTES, Secret, random_bytes};
use crate::bootstrap::stream::Stream;

/// A connection that has not joined by then is closed.
pub(super) const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(5);

const MAGIC: [u8; 8] = *b"symmem\0\n";
pub(super) const HELLO_BYTES: usize = 8 + SECRET_BYTES;
const CHALLENGE_BYTES: usize = 2 * SECRET_BYTES;
pub(super) const PROOF_BYTES: usize = SECRET_BYTES;

/// Why a rank's handshake failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The other end does not know the secret.
    WrongSecret,
    /// The connection closed, broke or stayed silent.
    Broken(Errno),
}

impl From<Errno> for Refusal {
    fn from(error: Errno) -> Self {
        Self::Broken(error)
    }
}

/// The rank's side. Blocks until `until` at most.
pub(super) fn greet(stream: &Stream, secret: &Secret, until: Instant) -> Result<(), Refusal> {
    let own = random_bytes().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let mut hello = [0; HELLO_BYTES];
    hello[..8].copy_from_slice(&MAGIC);
    hello[8..].copy_from_slice(&own);
    stream.send_all(&hello, until)?;
    let mut challenge = [0; CHALLENGE_BYTES];
    stream.receive_exact(&mut challenge, until)?;
    let (theirs, proof) = challenge.split_at(SECRET_BYTES);
    if !secret.verify("store", &[&own, theirs], proof) {
        return Err(Refusal::WrongSecret);
    }
    stream.send_all(&secret.prove("rank", &[&own, theirs]), until)?;
    Ok(())
}

/// The store's side, between challenge and proof.
#[derive(Debug)]
pub(super) struct Challenge {
    theirs: [u8; SECRET_BYTES],
    own: [u8; SECRET_BYTES],
}

impl Challenge {
    /// The answer to a rank's hello, or `None` to something that is no hello.
    pub(super) fn new(hello: &[u8; HELLO_BYTES]) -> Option<Self> {
        let theirs = hello.strip_prefix(&MAGIC)?.try_into().ok()?;
        Some(Self {
            theirs,
            own: random_bytes().ok()?,
        })
    }

    /// The bytes to send.
    pub(super) fn bytes(&self, secret: &Secret) -> [u8; CHALLENGE_BYTES] {
        let mut bytes = [0; CHALLENGE_BYTES];
        bytes[..SECRET_BYTES].copy_from_slice(&self.own);
        bytes[SECRET_BYTES..].copy_from_slice(&secret.prove("store", &[&self.theirs, &self.own]));
        bytes
    }

    /// Whether `proof` is the rank's answer.
    pub(super) fn is_met(&self, secret: &Secret, proof: &[u8; PROOF_BYTES]) -> bool {
        secret.verify("rank", &[&self.theirs, &self.own], proof)
    }
}
