//! The handshake over TCP: Noise with a pre-shared key, the job's secret, which does not travel.
//!
//! The pattern is [NNpsk0]: fresh keys on both sides, the secret mixed in before the first byte that counts. The crate
//! `snow` does all the cryptography; the random bytes are the kernel's.
//!
//! [NNpsk0]: https://noiseprotocol.org/noise.html#pattern-modifiers

use std::time::Instant;

use rustix::io::Errno;
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, TransportState};

use crate::bootstrap::handshake::verdict::{Step, Verdict, WELCOME};
use crate::bootstrap::handshake::verifier::Verifier;
use crate::bootstrap::secret::{Secret, fill_random};
use crate::bootstrap::stream::Stream;

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
const MAGIC: [u8; 8] = *b"symmem\0N";
/// The magic of versions 1 and 2, whose handshake was another, with a hello of 40 bytes.
const EARLIER_MAGIC: [u8; 8] = *b"symmem\0\n";
/// Bytes of each message of the handshake: a public key and the tag of an empty payload.
const MESSAGE_BYTES: usize = 32 + TAG_BYTES;
const TAG_BYTES: usize = 16;
const HELLO_BYTES: usize = MAGIC.len() + MESSAGE_BYTES;
/// Bytes of the rank's last part: an empty message under the new keys.
const CONFIRMATION_BYTES: usize = TAG_BYTES;

const RECORDING: &str = "its greeting was a recording of another one";

/// Makes the rank's side of the handshake, whose last part travels with the rank's first message, and seals `stream`; returns
/// false if the store does not know the secret.
/// Blocks until `until` at most.
pub(super) fn greet(stream: &mut Stream, secret: &Secret, until: Instant) -> Result<bool, Errno> {
    // The only failure of these steps, all of fixed sizes, is the kernel's without random bytes.
    let failed = |_: snow::Error| Errno::IO;
    let initiator = builder(secret).and_then(Builder::build_initiator);
    let mut noise = initiator.map_err(failed)?;
    let mut hello = [0; HELLO_BYTES];
    hello[..MAGIC.len()].copy_from_slice(&MAGIC);
    noise
        .write_message(&[], &mut hello[MAGIC.len()..])
        .map_err(failed)?;
    stream.send_all(&hello, until)?;
    let mut answer = [0; WELCOME.len()];
    stream.receive_exact(&mut answer, until)?;
    if answer != WELCOME {
        return Ok(false);
    }
    let mut message = [0; MESSAGE_BYTES];
    stream.receive_exact(&mut message, until)?;
    if noise.read_message(&message, &mut []).is_err() {
        return Ok(false);
    }
    // This process may have been stopped: the store has given up, and the rank would take itself for proved.
    if Instant::now() >= until {
        return Err(Errno::TIMEDOUT);
    }
    let mut transport = noise.into_transport_mode().map_err(failed)?;
    let mut confirmation = [0; CONFIRMATION_BYTES];
    transport
        .write_message(&[], &mut confirmation)
        .map_err(failed)?;
    // It travels with the rank's first message, which tells its number: if the rank dies, the store knows which, or takes the
    // connection for a stranger's.
    stream.seal(transport, &confirmation);
    Ok(true)
}

/// The store's side: hello, then confirmation, as far as they have arrived.
pub(in crate::bootstrap) struct Exchange {
    /// The part that is arriving; a confirmation is shorter than a hello.
    part: [u8; HELLO_BYTES],
    filled: usize,
    /// The keys, once the answer is out.
    transport: Option<Box<TransportState>>,
}

impl Exchange {
    pub(super) fn new() -> Self {
        Self {
            part: [0; HELLO_BYTES],
            filled: 0,
            transport: None,
        }
    }

    /// Returns the buffer for the next bytes, limited to one part, so that nothing behind the confirmation is read.
    pub(super) fn space(&mut self) -> &mut [u8] {
        let end = self.part_bytes();
        &mut self.part[self.filled..end]
    }

    fn part_bytes(&self) -> usize {
        match self.transport {
            None => HELLO_BYTES,
            Some(_) => CONFIRMATION_BYTES,
        }
    }

    /// Evaluates the bytes received, with `count` more in the buffer.
    pub(super) fn advance(&mut self, count: usize, verifier: &mut Verifier) -> Step {
        self.filled += count;
        if let Some(reason) = self.foreign() {
            return Step::silent(Verdict::Refused(reason));
        }
        if self.filled < self.part_bytes() {
            return Step::silent(Verdict::Pending);
        }
        self.filled = 0;
        let Some(transport) = &mut self.transport else {
            return self.welcome(verifier);
        };
        let confirmed = transport.read_message(&self.part[..CONFIRMATION_BYTES], &mut []);
        Step::silent(match confirmed {
            Ok(_) => Verdict::Trusted,
            Err(_) => Verdict::Refused(RECORDING),
        })
    }

    /// Returns why the first bytes are not those of a hello, once they are there: a hello of another version may never
    /// become as long as one of this.
    fn foreign(&self) -> Option<&'static str> {
        if self.transport.is_some() || self.filled < MAGIC.len() {
            return None;
        }
        match self.part[..MAGIC.len()] {
            ref magic if magic == MAGIC => None,
            ref magic if magic == EARLIER_MAGIC => {
                Some("it greets as an earlier version of symmem; run the same build on all ranks")
            }
            _ => Some("its first bytes are not a greeting"),
        }
    }

    /// Answers the hello.
    fn welcome(&mut self, verifier: &mut Verifier) -> Step {
        let Some(secret) = verifier.key.secret() else {
            return Step::silent(Verdict::Refused("this job has no secret"));
        };
        let (_, message) = self.part.split_at(MAGIC.len());
        let Ok(mut noise) = builder(secret).and_then(Builder::build_responder) else {
            return Step::silent(Verdict::Refused("the kernel returned no random bytes"));
        };
        // No key is agreed on before this has checked that the other end knows the secret.
        if noise.read_message(message, &mut []).is_err() {
            return Step::refused("it does not know the job's secret");
        }
        if !verifier.is_new(message) {
            return Step::silent(Verdict::Refused(RECORDING));
        }
        let mut answer = [0; WELCOME.len() + MESSAGE_BYTES];
        answer[..WELCOME.len()].copy_from_slice(&WELCOME);
        let written = noise.write_message(&[], &mut answer[WELCOME.len()..]);
        let Ok(transport) = written.and_then(|_| noise.into_transport_mode()) else {
            return Step::silent(Verdict::Refused("the kernel returned no random bytes"));
        };
        self.transport = Some(Box::new(transport));
        Step {
            answer: answer.to_vec(),
            verdict: Verdict::Pending,
        }
    }

    /// Returns whether the hello was made with the secret, and has been answered.
    pub(super) fn is_answered(&self) -> bool {
        self.transport.is_some()
    }

    /// Seals `stream` with the keys that both ends agreed on.
    pub(super) fn seal(&mut self, stream: &mut Stream) {
        if let Some(transport) = self.transport.take() {
            stream.seal(*transport, &[]);
        }
    }
}

/// Returns what either side of a handshake under `secret` is built from.
fn builder(secret: &Secret) -> Result<Builder<'_>, snow::Error> {
    Builder::with_resolver(PATTERN.parse()?, Box::new(Resolver)).psk(0, secret.bytes())
}

/// snow's own implementations, with the kernel's random source: so snow needs none of the packages for that.
struct Resolver;

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Kernel))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

/// The kernel's random source.
struct Kernel;

impl Random for Kernel {
    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), snow::Error> {
        fill_random(bytes).map_err(|_| snow::Error::Rng)
    }
}

/// Returns the keys of a rank and of the store that have made a handshake.
#[cfg(test)]
pub(in crate::bootstrap) fn keys_of_both(secret: &Secret) -> (TransportState, TransportState) {
    let mut rank = builder(secret).unwrap().build_initiator().unwrap();
    let mut store = builder(secret).unwrap().build_responder().unwrap();
    let mut message = [0; MESSAGE_BYTES];
    rank.write_message(&[], &mut message).unwrap();
    store.read_message(&message, &mut []).unwrap();
    store.write_message(&[], &mut message).unwrap();
    rank.read_message(&message, &mut []).unwrap();
    let [rank, store] = [rank, store].map(|side| side.into_transport_mode().unwrap());
    (rank, store)
}

#[cfg(test)]
mod tests;
