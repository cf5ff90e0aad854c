//! Copies a rank's output to this process's output, with the rank in front of each line.

use super::event::Event;
use crate::output::Stream;
use std::io::{self, Read};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Instant;

/// Bytes of the longest line that is kept whole; longer lines are split.
const LONGEST_LINE: usize = 64 * 1024;

/// A thread that copies one pipe until end of file.
pub(super) struct Copier {
    done: Receiver<()>,
}

impl Copier {
    pub(super) fn start(
        mut pipe: impl Read + Send + 'static,
        rank: u32,
        stream: Stream,
        events: Sender<Event>,
    ) -> io::Result<Self> {
        let (ended, done) = mpsc::channel();
        std::thread::Builder::new()
            .name(format!("symmem-output-{rank}"))
            .spawn(move || {
                let mut is_lost = false;
                // After an error the thread reads and drops the rest, so that the rank does not block on a full pipe
                // before it is stopped.
                copy_lines(&mut pipe, rank, |lines| {
                    if !is_lost && let Err(error) = stream.write(lines) {
                        is_lost = true;
                        // Nobody receives the event if the launcher has already returned.
                        let _ = events.send(Event::OutputLost(error));
                    }
                });
                drop(ended);
            })?;
        Ok(Self { done })
    }

    /// Waits for the end of the pipe, at most until `until`.
    pub(super) fn finish(self, until: Instant) {
        let _ = self
            .done
            .recv_timeout(until.saturating_duration_since(Instant::now()));
    }
}

/// Passes each line of `pipe`, prefixed, to `write`; lines from one read go together. Adds a newline to the last line
/// if it lacks one.
fn copy_lines(pipe: &mut impl Read, rank: u32, mut write: impl FnMut(&[u8])) {
    let prefix = format!("[{rank}] ");
    let mut chunk = [0; 8192];
    let mut line: Vec<u8> = Vec::new();
    let mut lines: Vec<u8> = Vec::new();
    loop {
        let count = match pipe.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        for piece in chunk[..count].split_inclusive(|&byte| byte == b'\n') {
            line.extend_from_slice(piece);
            let is_whole = line.ends_with(b"\n");
            if is_whole || line.len() >= LONGEST_LINE {
                lines.extend_from_slice(prefix.as_bytes());
                lines.append(&mut line);
                if !is_whole {
                    lines.push(b'\n');
                }
            }
        }
        if !lines.is_empty() {
            write(&lines);
            lines.clear();
        }
    }
    if !line.is_empty() {
        lines.extend_from_slice(prefix.as_bytes());
        lines.append(&mut line);
        lines.push(b'\n');
        write(&lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns one piece per read.
    struct Pieces<'a>(&'a [&'a [u8]]);

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let Some((first, rest)) = self.0.split_first() else {
                return Ok(0);
            };
            buffer[..first.len()].copy_from_slice(first);
            self.0 = rest;
            Ok(first.len())
        }
    }

    fn copied(pieces: &[&[u8]]) -> Vec<u8> {
        let mut all = Vec::new();
        copy_lines(&mut Pieces(pieces), 3, |lines| {
            assert!(
                lines.ends_with(b"\n"),
                "whole lines only, so that ranks do not mix within one"
            );
            all.extend_from_slice(lines);
        });
        all
    }

    #[test]
    fn every_line_is_prefixed_however_it_arrives() {
        let cases: [(&[&[u8]], &str); 6] = [
            (&[], ""),
            (&[b"one\ntwo\n"], "[3] one\n[3] two\n"),
            (&[b"o", b"ne\ntw", b"o\n"], "[3] one\n[3] two\n"),
            (&[b"\n\n"], "[3] \n[3] \n"),
            (&[b"no newline"], "[3] no newline\n"),
            (&[b"bar 1\rbar 2\r\n"], "[3] bar 1\rbar 2\r\n"),
        ];
        for (pieces, expected) in cases {
            assert_eq!(copied(pieces), expected.as_bytes());
        }
        assert_eq!(
            copied(&[b"\xff\xfe\n"]),
            b"[3] \xff\xfe\n",
            "bytes that are not UTF-8 pass unchanged"
        );
    }

    #[test]
    fn a_line_without_end_does_not_fill_the_memory() {
        let piece = [b'x'; 4096];
        let pieces = vec![&piece[..]; 3 * LONGEST_LINE / 4096];
        assert_eq!(
            copied(&pieces)
                .iter()
                .filter(|&&byte| byte == b'\n')
                .count(),
            3
        );
    }
}
