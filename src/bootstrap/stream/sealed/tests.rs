//! Tests that bytes arrive as they were sent, in whatever pieces the socket carries them, or not at all.

use super::*;
use crate::bootstrap::handshake::tcp::keys_of_both;
use crate::bootstrap::secret::Secret;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Both ends of a connection whose wire the test holds: what one end sends, the other receives once it was carried.
struct Wire {
    ends: [Sealed; 2],
    /// The sending end's socket, and the test's.
    out: [OwnedFd; 2],
    /// The test's socket, and the receiving end's.
    into: [OwnedFd; 2],
}

impl Wire {
    fn new() -> Self {
        let (rank, store) = keys_of_both(&Secret::random().unwrap());
        let pair = || {
            let (left, right) = UnixStream::pair().unwrap();
            [left.into(), right.into()]
        };
        Self {
            ends: [rank, store].map(|keys| Sealed::new(keys, &[])),
            out: pair(),
            into: pair(),
        }
    }

    /// Returns the record that the wire carries for `bytes`.
    fn record(&self, bytes: &[u8]) -> Vec<u8> {
        let [rank, _] = &self.ends;
        assert_eq!(rank.send(self.out[0].as_fd(), bytes), Ok(bytes.len()));
        let mut record = vec![0; 64 * 1024];
        let count = raw::receive(self.out[1].as_fd(), &mut record).unwrap();
        record.truncate(count);
        record
    }

    fn carry(&self, bytes: &[u8]) {
        assert_eq!(raw::send(self.into[0].as_fd(), bytes), Ok(bytes.len()));
    }

    fn receive(&self) -> Result<Vec<u8>, Errno> {
        let [_, store] = &self.ends;
        let mut buffer = vec![0; MOST_PLAIN];
        let count = store.receive(self.into[1].as_fd(), &mut buffer)?;
        buffer.truncate(count);
        Ok(buffer)
    }
}

#[test]
fn bytes_of_any_number_pass_in_both_directions_at_once() {
    let (rank, store) = keys_of_both(&Secret::random().unwrap());
    let [rank, store] = [rank, store].map(|keys| Sealed::new(keys, &[]));
    let (left, right) = UnixStream::pair().unwrap();
    for socket in [&left, &right] {
        // Records go out in many pieces.
        rustix::net::sockopt::set_socket_send_buffer_size(socket, 4096).unwrap();
    }
    for length in [1, 2, MOST_PLAIN - 1, MOST_PLAIN, MOST_PLAIN + 1, 1 << 20] {
        let sent: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
        let pump = |end: &Sealed, socket: &UnixStream, chunk: usize| {
            let (mut rest, mut received) = (&sent[..], Vec::new());
            let mut buffer = vec![0; chunk];
            while !rest.is_empty() || !end.is_flushed() || received.len() < sent.len() {
                match end.send(socket.as_fd(), rest) {
                    Ok(count) => rest = &rest[count..],
                    Err(error) => assert_eq!(error, Errno::AGAIN),
                }
                match end.receive(socket.as_fd(), &mut buffer) {
                    Ok(count) => received.extend_from_slice(&buffer[..count]),
                    Err(error) => assert_eq!(error, Errno::AGAIN),
                }
            }
            assert!(received == sent, "{length} bytes");
        };
        std::thread::scope(|scope| {
            scope.spawn(|| pump(&rank, &left, MOST_PLAIN));
            scope.spawn(|| pump(&store, &right, 1000));
        });
    }
}

#[test]
fn a_record_that_arrives_byte_by_byte_is_one_record() {
    let wire = Wire::new();
    for text in ["first", "second"] {
        let record = wire.record(text.as_bytes());
        for byte in &record[..record.len() - 1] {
            wire.carry(&[*byte]);
            assert_eq!(wire.receive(), Err(Errno::AGAIN));
        }
        wire.carry(&record[record.len() - 1..]);
        assert_eq!(wire.receive().unwrap(), text.as_bytes());
    }
}

#[test]
fn a_record_with_one_bit_flipped_does_not_open_and_nothing_after_it_does() {
    let length = Wire::new().record(b"a message").len();
    for bit in 0..8 * length {
        let wire = Wire::new();
        let mut record = wire.record(b"a message");
        record[bit / 8] ^= 1 << (bit % 8);
        wire.carry(&record);
        // A length that is now larger needs more bytes than there are; those of the next record complete it.
        let received = wire.receive();
        let next = wire.record(&[0; MOST_PLAIN]);
        wire.carry(&next);
        let after = wire.receive();
        assert!(
            received == Err(Errno::BADMSG) || received == Err(Errno::AGAIN),
            "bit {bit}: {received:?}"
        );
        // Half of the longest record is still on its way.
        let is_long = received == Err(Errno::AGAIN) && record[1] > 0x3f;
        assert!(
            after == Err(Errno::BADMSG) || is_long,
            "bit {bit}: {after:?}"
        );
    }
}

#[test]
fn a_record_that_is_left_out_repeated_or_moved_does_not_open() {
    type Change = fn(&mut Vec<Vec<u8>>);
    let changes: [(Change, usize); 3] = [
        (|records| drop(records.remove(1)), 1),
        (|records| records.insert(1, records[0].clone()), 1),
        (|records| records.swap(1, 2), 1),
    ];
    for (change, opens) in changes {
        let wire = Wire::new();
        let texts = [b"one", b"two", b"six"];
        let mut records = texts.map(|text| wire.record(text)).to_vec();
        change(&mut records);
        records.iter().for_each(|record| wire.carry(record));
        for text in &texts[..opens] {
            assert_eq!(wire.receive().unwrap(), *text);
        }
        for _ in 0..3 {
            assert_eq!(wire.receive(), Err(Errno::BADMSG));
        }
    }
}

#[test]
fn a_record_that_comes_back_to_its_sender_does_not_open() {
    let wire = Wire::new();
    let record = wire.record(b"mine");
    wire.carry(&record);
    let [rank, _] = &wire.ends;
    let received = rank.receive(wire.into[1].as_fd(), &mut [0; 64]);
    assert_eq!(received, Err(Errno::BADMSG));
}

#[test]
fn a_length_that_no_record_has_is_refused_before_anything_else_arrives() {
    let too_long = (MOST_PLAIN + TAG_BYTES + 1) as u16;
    for length in [0, 1, 15, 16, too_long, u16::MAX] {
        let wire = Wire::new();
        wire.carry(&length.to_le_bytes());
        assert_eq!(wire.receive(), Err(Errno::BADMSG), "{length}");
    }
}

#[test]
fn neither_the_wire_nor_debug_output_shows_what_is_sent() {
    let wire = Wire::new();
    let text = b"a text that is easily found again";
    let record = wire.record(text);
    assert!(
        !record
            .windows(4)
            .any(|four| text.windows(4).any(|part| part == four))
    );
    wire.carry(&record);
    let [_, store] = &wire.ends;
    store.receive(wire.into[1].as_fd(), &mut [0; 4]).unwrap();
    assert_eq!(format!("{store:?}"), "Sealed(hidden)");
}
