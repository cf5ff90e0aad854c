//! A stream of bytes under the keys of a Noise handshake: authenticated and encrypted in both directions.
//!
//! The bytes travel in records: a length (2 bytes, little-endian), then a Noise transport message of that length. Each
//! direction numbers its messages, so a record that was altered, left out, repeated or moved does not open, and nothing
//! after it does. Both directions keep what is half done when a deadline ends a call, and the next call goes on with it.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Mutex;

use rustix::io::Errno;
use snow::TransportState;

use crate::base::lock::lock;
use crate::bootstrap::stream::raw;

/// Most bytes of a record before they are sealed: what the readers above take at a time, so that `poll`, which sees the
/// socket only, never misses bytes that wait here. Noise allows four times as much.
const MOST_PLAIN: usize = 16 * 1024;
const TAG_BYTES: usize = 16;
const LENGTH_BYTES: usize = 2;

/// The keys of a connection, and what is half done in either direction. One thread may send while another receives.
pub(super) struct Sealed {
    outgoing: Mutex<Outgoing>,
    incoming: Mutex<Incoming>,
    /// Held for single records only, by a thread that holds one of the others.
    keys: Mutex<TransportState>,
}

/// The record that is being sent.
#[derive(Default)]
struct Outgoing {
    /// Bytes that travel in front of the first record.
    prefix: Vec<u8>,
    record: Vec<u8>,
    sent: usize,
}

/// The record that is arriving, and the opened one that is being read.
#[derive(Default)]
struct Incoming {
    record: Vec<u8>,
    opened: Vec<u8>,
    read: usize,
    /// A record did not open: nothing after it can.
    is_broken: bool,
}

impl Sealed {
    /// Makes both directions. `prefix` travels in front of the first record, and with it.
    pub(super) fn new(keys: TransportState, prefix: &[u8]) -> Self {
        Self {
            outgoing: Mutex::new(Outgoing {
                prefix: prefix.to_vec(),
                ..Outgoing::default()
            }),
            incoming: Mutex::default(),
            keys: Mutex::new(keys),
        }
    }

    /// Seals what fits in a record, and sends what the kernel takes of it. Returns the number of bytes sealed; `AGAIN` if
    /// an earlier record is not out yet.
    pub(super) fn send(&self, socket: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno> {
        let mut outgoing = lock(&self.outgoing);
        if !outgoing.flush(socket)? {
            return Err(Errno::AGAIN);
        }
        let bytes = &bytes[..bytes.len().min(MOST_PLAIN)];
        if bytes.is_empty() {
            return Ok(0);
        }
        let length = bytes.len() + TAG_BYTES;
        let mut record = std::mem::take(&mut outgoing.prefix);
        // At most MOST_PLAIN + TAG_BYTES.
        record.extend_from_slice(&(length as u16).to_le_bytes());
        let start = record.len();
        record.resize(start + length, 0);
        lock(&self.keys)
            .write_message(bytes, &mut record[start..])
            // All numbers of messages are used up: not within the age of the universe.
            .map_err(|_| Errno::IO)?;
        outgoing.record = record;
        outgoing.sent = 0;
        outgoing.flush(socket)?;
        Ok(bytes.len())
    }

    /// Sends what the kernel takes of the record that is not out yet. Returns whether it is out.
    pub(super) fn flush(&self, socket: BorrowedFd<'_>) -> Result<bool, Errno> {
        lock(&self.outgoing).flush(socket)
    }

    /// Returns whether all that was sealed is out.
    pub(super) fn is_flushed(&self) -> bool {
        lock(&self.outgoing).is_flushed()
    }

    /// Receives what is there of one record. 0 is the end of the connection, which anyone in between can bring about.
    /// `AGAIN` if no record is complete; `BADMSG` if one is not what the other end sent, and from then on.
    pub(super) fn receive(
        &self,
        socket: BorrowedFd<'_>,
        buffer: &mut [u8],
    ) -> Result<usize, Errno> {
        let mut incoming = lock(&self.incoming);
        if incoming.is_broken {
            return Err(Errno::BADMSG);
        }
        if incoming.read == incoming.opened.len() {
            if !incoming.fill(socket)? {
                return Ok(0);
            }
            let record = std::mem::take(&mut incoming.record);
            incoming.opened = vec![0; record.len() - LENGTH_BYTES - TAG_BYTES];
            incoming.read = 0;
            let opened =
                lock(&self.keys).read_message(&record[LENGTH_BYTES..], &mut incoming.opened);
            if opened.is_err() {
                incoming.is_broken = true;
                return Err(Errno::BADMSG);
            }
        }
        let rest = &incoming.opened[incoming.read..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        incoming.read += count;
        Ok(count)
    }
}

impl fmt::Debug for Sealed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Sealed(hidden)")
    }
}

impl Outgoing {
    fn is_flushed(&self) -> bool {
        self.sent == self.record.len()
    }

    fn flush(&mut self, socket: BorrowedFd<'_>) -> Result<bool, Errno> {
        while !self.is_flushed() {
            match raw::send(socket, &self.record[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

impl Incoming {
    /// Receives until the record is complete, and nothing behind it: what the kernel still holds, `poll` reports.
    /// Returns false at the end of the connection.
    fn fill(&mut self, socket: BorrowedFd<'_>) -> Result<bool, Errno> {
        loop {
            let wanted = self.wanted()?;
            let filled = self.record.len();
            if filled == wanted {
                return Ok(true);
            }
            self.record.resize(wanted, 0);
            let received = raw::receive(socket, &mut self.record[filled..]);
            self.record.truncate(filled + received.unwrap_or(0));
            if received? == 0 {
                return Ok(false);
            }
        }
    }

    /// Returns the bytes of the record as far as they are known: its length, then all of it.
    fn wanted(&mut self) -> Result<usize, Errno> {
        let Some((length, _)) = self.record.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(LENGTH_BYTES);
        };
        let length = usize::from(u16::from_le_bytes(*length));
        // No rank sends an empty record.
        if !(TAG_BYTES + 1..=TAG_BYTES + MOST_PLAIN).contains(&length) {
            self.is_broken = true;
            return Err(Errno::BADMSG);
        }
        Ok(LENGTH_BYTES + length)
    }
}

#[cfg(test)]
mod tests;
