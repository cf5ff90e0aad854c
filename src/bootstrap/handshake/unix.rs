//! The handshake over a Unix socket: the rank shows its key, and the store compares it with the job's.

use std::time::Instant;

use rustix::io::Errno;

use crate::bootstrap::handshake::verdict::{Step, Verdict, WELCOME};
use crate::bootstrap::key::{Key, MAX_KEY};
use crate::bootstrap::stream::Stream;

const MAGIC: [u8; 8] = *b"symmem\0@";
/// Bytes before the key: magic, kind, length.
const HEADER_BYTES: usize = 11;

/// Returns a rank's greeting. The key must not be longer than [`MAX_KEY`].
pub(in crate::bootstrap) fn hello(key: &Key) -> Vec<u8> {
    let shown = key.bytes();
    let length = shown.len() as u16;
    [&MAGIC[..], &[key.kind()], &length.to_le_bytes(), &shown].concat()
}

/// Makes the rank's side of the handshake; returns false if the store has another key. Blocks until `until` at
/// most.
pub(super) fn greet(stream: &Stream, key: &Key, until: Instant) -> Result<bool, Errno> {
    stream.send_all(&hello(key), until)?;
    let mut answer = [0; 8];
    stream.receive_exact(&mut answer, until)?;
    Ok(answer == WELCOME)
}

/// The store's side: a greeting as far as it has arrived.
pub(in crate::bootstrap) struct Hello {
    header: [u8; HEADER_BYTES],
    /// The key, as long as the header says once the header is complete.
    shown: Vec<u8>,
    filled: usize,
}

impl Hello {
    pub(super) fn new() -> Self {
        Self {
            header: [0; HEADER_BYTES],
            shown: Vec::new(),
            filled: 0,
        }
    }

    /// Returns the buffer for the next bytes, limited to one part, so that nothing behind the greeting is read.
    pub(super) fn space(&mut self) -> &mut [u8] {
        match self.filled.checked_sub(HEADER_BYTES) {
            None => &mut self.header[self.filled..],
            Some(filled) => &mut self.shown[filled..],
        }
    }

    /// Evaluates the bytes received, with `count` more in the buffer.
    pub(super) fn advance(&mut self, count: usize, key: &Key) -> Step {
        let was_incomplete = self.filled < HEADER_BYTES;
        self.filled += count;
        let [magic @ .., kind, low, high] = self.header;
        if was_incomplete && self.filled == HEADER_BYTES {
            let length = usize::from(u16::from_le_bytes([low, high]));
            if magic != MAGIC {
                return Step::silent(Verdict::Refused("its first bytes are not a greeting"));
            }
            if length > MAX_KEY {
                return Step::silent(Verdict::Refused("its key exceeds the limit"));
            }
            self.shown = vec![0; length];
        }
        if self.filled < HEADER_BYTES + self.shown.len() {
            return Step::silent(Verdict::Pending);
        }
        if key.is(kind, &self.shown) {
            return Step {
                answer: WELCOME.to_vec(),
                verdict: Verdict::Trusted,
            };
        }
        Step::refused("it belongs to another job or has another secret")
    }
}
