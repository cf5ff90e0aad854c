//! The handshake over TCP: both ends prove that they know the job's secret, which does not travel.

use std::time::Instant;

use hmac::{Hmac, KeyInit, Mac};
use rustix::io::Errno;
use sha2::Sha256;

use crate::bootstrap::handshake::verdict::{Step, Verdict};
use crate::bootstrap::secret::{SECRET_BYTES, Secret, random_bytes};
use crate::bootstrap::stream::Stream;

const MAGIC: [u8; 8] = *b"symmem\0\n";
const HELLO_BYTES: usize = 8 + SECRET_BYTES;
const CHALLENGE_BYTES: usize = 2 * SECRET_BYTES;
const PROOF_BYTES: usize = SECRET_BYTES;

/// Makes the rank's side of the handshake; returns false if the store does not know the secret. Blocks until
/// `until` at most.
pub(super) fn greet(stream: &Stream, secret: &Secret, until: Instant) -> Result<bool, Errno> {
    let own = random_bytes().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let mut hello = [0; HELLO_BYTES];
    hello[..8].copy_from_slice(&MAGIC);
    hello[8..].copy_from_slice(&own);
    stream.send_all(&hello, until)?;
    let mut challenge = [0; CHALLENGE_BYTES];
    stream.receive_exact(&mut challenge, until)?;
    let (theirs, proof) = challenge.split_at(SECRET_BYTES);
    if !verify(secret, "store", &[&own, theirs], proof) {
        return Ok(false);
    }
    stream.send_all(&prove(secret, "rank", &[&own, theirs]), until)?;
    Ok(true)
}

/// The store's side: hello, then proof, as far as they have arrived.
pub(in crate::bootstrap) struct Exchange {
    /// The part that is arriving; a proof is shorter than a hello.
    part: [u8; HELLO_BYTES],
    filled: usize,
    /// The nonces of the rank and of the store, once the challenge is out.
    nonces: Option<[[u8; SECRET_BYTES]; 2]>,
}

impl Exchange {
    pub(super) fn new() -> Self {
        Self {
            part: [0; HELLO_BYTES],
            filled: 0,
            nonces: None,
        }
    }

    /// Returns the buffer for the next bytes, limited to one part, so that nothing behind the proof is read.
    pub(super) fn space(&mut self) -> &mut [u8] {
        let end = self.part_bytes();
        &mut self.part[self.filled..end]
    }

    fn part_bytes(&self) -> usize {
        match self.nonces {
            None => HELLO_BYTES,
            Some(_) => PROOF_BYTES,
        }
    }

    /// Evaluates the bytes received, with `count` more in the buffer.
    pub(super) fn advance(&mut self, count: usize, secret: Option<&Secret>) -> Step {
        self.filled += count;
        if self.filled < self.part_bytes() {
            return Step::silent(Verdict::Pending);
        }
        self.filled = 0;
        let Some(secret) = secret else {
            return Step::silent(Verdict::Refused("this job has no secret"));
        };
        let Some([theirs, own]) = &self.nonces else {
            return self.challenge(secret);
        };
        let proof = &self.part[..PROOF_BYTES];
        Step::silent(if verify(secret, "rank", &[theirs, own], proof) {
            Verdict::Trusted
        } else {
            Verdict::Refused("it does not know the job's secret")
        })
    }

    fn challenge(&mut self, secret: &Secret) -> Step {
        let theirs = self.part.strip_prefix(&MAGIC);
        let Some(theirs) = theirs.and_then(|nonce| nonce.try_into().ok()) else {
            return Step::silent(Verdict::Refused("its first bytes are not a greeting"));
        };
        let Ok(own) = random_bytes() else {
            return Step::silent(Verdict::Refused("the kernel returned no random bytes"));
        };
        self.nonces = Some([theirs, own]);
        let proof = prove(secret, "store", &[&theirs, &own]);
        Step {
            answer: [own, proof].concat(),
            verdict: Verdict::Pending,
        }
    }
}

/// Returns HMAC-SHA-256 of `role` and `parts` under `secret`. The role prevents a proof of one direction from
/// being replayed in the other.
fn prove(secret: &Secret, role: &str, parts: &[&[u8]]) -> [u8; PROOF_BYTES] {
    authenticator(secret, role, parts)
        .finalize()
        .into_bytes()
        .into()
}

/// Returns whether `proof` equals [`prove`] of the same, in constant time.
fn verify(secret: &Secret, role: &str, parts: &[&[u8]], proof: &[u8]) -> bool {
    authenticator(secret, role, parts)
        .verify_slice(proof)
        .is_ok()
}

fn authenticator(secret: &Secret, role: &str, parts: &[&[u8]]) -> Hmac<Sha256> {
    let mut mac =
        Hmac::<Sha256>::new_from_slice(secret.bytes()).expect("HMAC takes a key of any length");
    mac.update(role.as_bytes());
    mac.update(&[0]);
    for part in parts {
        // The length prevents adjacent parts from being split differently.
        mac.update(&(part.len() as u64).to_le_bytes());
        mac.update(part);
    }
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_holds_for_its_secret_role_and_parts_only() {
        let secret = Secret::random().unwrap();
        let proof = prove(&secret, "client", &[b"one", b"two"]);
        assert!(verify(&secret, "client", &[b"one", b"two"], &proof));
        assert!(!verify(&secret, "server", &[b"one", b"two"], &proof));
        assert!(!verify(&secret, "client", &[b"onet", b"wo"], &proof));
        assert!(!verify(&secret, "client", &[b"one", b"two"], &proof[..31]));
        let other = Secret::random().unwrap();
        assert!(!verify(&other, "client", &[b"one", b"two"], &proof));
    }
}
