//! The kinds of work on a stream, and how each is done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::devices::{Polling, machine, physical};
use crate::driver::state;
use crate::error::{Code, Result};
use crate::graphs::Executable;
use crate::kernels::Launch;
use crate::library::LibraryWork;
use crate::memory::{Engine, Piece, Range};
use crate::multicast::Accessing;
use crate::outstanding;
use crate::report::violation;

/// One piece of a stream's work. Addresses are resolved when it runs.
#[derive(Clone)]
pub(crate) enum Work {
    /// A marker: an event's record, or a wait for other streams.
    Nothing,
    Copy {
        destination: u64,
        source: u64,
        bytes: u64,
    },
    CopyRows(Rows),
    /// A copy from pageable memory, whose bytes were read when it was submitted.
    Write {
        destination: u64,
        data: Arc<[u8]>,
    },
    /// `count` elements of `width` bytes.
    Fill {
        address: u64,
        value: u32,
        width: usize,
        count: u64,
    },
    WriteValue {
        address: u64,
        value: u32,
    },
    WaitValue {
        address: u64,
        value: u32,
        condition: Condition,
    },
    Kernel(Arc<Launch>),
    Graph(Arc<Executable>),
    Library(LibraryWork),
}

/// A copy of rows; each has `bytes` bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    pub destination: u64,
    pub destination_stride: u64,
    pub source: u64,
    pub source_stride: u64,
    pub bytes: u64,
    pub rows: u64,
}

impl Rows {
    /// Returns what it writes, from the first byte to the last, and what it reads.
    pub fn ranges(&self) -> [(u64, u64); 2] {
        let between = self.rows.saturating_sub(1);
        [
            (
                self.destination,
                between * self.destination_stride + self.bytes,
            ),
            (self.source, between * self.source_stride + self.bytes),
        ]
    }
}

/// When a stream's wait on a value ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// The word has reached the value, compared with wrapping arithmetic.
    Reached,
    Equal,
    And,
    Nor,
}

impl Condition {
    pub fn holds(self, word: u32, value: u32) -> bool {
        match self {
            Self::Reached => word.wrapping_sub(value) as i32 >= 0,
            Self::Equal => word == value,
            Self::And => word & value != 0,
            Self::Nor => !(word | value) != 0,
        }
    }
}

impl Work {
    /// Returns the addresses it touches, with lengths.
    pub fn ranges(&self) -> Vec<(u64, u64)> {
        match self {
            Self::Nothing => Vec::new(),
            Self::Copy {
                destination,
                source,
                bytes,
            } => vec![(*destination, *bytes), (*source, *bytes)],
            Self::CopyRows(rows) => rows.ranges().into(),
            Self::Write { destination, data } => vec![(*destination, data.len() as u64)],
            Self::Fill {
                address,
                width,
                count,
                ..
            } => vec![(*address, *width as u64 * count)],
            Self::WriteValue { address, .. } | Self::WaitValue { address, .. } => {
                vec![(*address, 4)]
            }
            Self::Kernel(launch) => launch.ranges(),
            Self::Graph(graph) => graph.nodes().flat_map(Work::ranges).collect(),
            Self::Library(work) => work.ranges.clone(),
        }
    }

    /// Whether it can wait for a peer.
    pub fn can_wait(&self) -> bool {
        match self {
            Self::WaitValue { .. } => true,
            Self::Library(work) => work.waits,
            Self::Kernel(launch) => launch.can_wait(),
            Self::Graph(graph) => graph.nodes().any(Work::can_wait),
            _ => false,
        }
    }

    /// Whether it runs a kernel of `module`.
    pub fn uses_module(&self, module: u64) -> bool {
        match self {
            Self::Kernel(launch) => launch.module == module,
            Self::Graph(graph) => graph.nodes().any(|work| work.uses_module(module)),
            _ => false,
        }
    }

    /// Runs it.
    pub fn run(&self, runner: &Runner) -> Result {
        match self {
            Self::Nothing => Ok(()),
            Self::Copy {
                destination,
                source,
                bytes,
            } => runner.engine_copy(*destination, *source, *bytes),
            Self::CopyRows(rows) => runner.engine_copy_rows(rows),
            Self::Write { destination, data } => {
                let source = data.as_ptr() as u64;
                // The staged bytes are ordinary memory of this process, which copies may read.
                runner.copy(*destination, source, data.len() as u64, Engine::Copy)
            }
            Self::Fill {
                address,
                value,
                width,
                count,
            } => runner.fill(
                *address,
                &value.to_ne_bytes()[..*width],
                *count,
                Engine::Copy,
            ),
            Self::WriteValue { address, value } => {
                runner
                    .word(*address)?
                    .atomic()
                    .store(*value, Ordering::Release);
                Ok(())
            }
            Self::WaitValue {
                address,
                value,
                condition,
            } => {
                let word = runner.polled(*address)?;
                let mut rounds = 0;
                while !condition.holds(word.atomic().load(Ordering::Acquire), *value) {
                    runner.pause(&mut rounds)?;
                }
                Ok(())
            }
            Self::Kernel(launch) => launch.run(runner),
            Self::Graph(graph) => graph.run(runner),
            Self::Library(work) => work.run(runner),
        }
    }
}

/// The context and stream that work runs on.
#[derive(Clone)]
pub(crate) struct Runner {
    pub context: u64,
    pub stream: u64,
    /// The graph branch, if the stream runs a graph.
    pub branch: usize,
    /// Set when the context is released or lost.
    pub dead: Arc<AtomicBool>,
}

impl Runner {
    /// Returns the memory at an address, or reports an illegal access.
    pub fn resolve(&self, address: u64, bytes: u64, engine: Engine) -> Result<Vec<Piece>> {
        state()
            .resolve(address, bytes, self.context, engine)
            .map_err(|why| {
                violation(format!(
                    "illegal access by work that was submitted before: {why}"
                ));
                Code::ILLEGAL_ADDRESS
            })
    }

    /// Returns every member's bytes behind a multicast address, in the order of the switch, with a guard that marks
    /// them as in use; or reports an illegal access.
    pub fn replicas(&self, address: u64, bytes: u64) -> Result<(Vec<Piece>, Accessing)> {
        let found = state().multicast(address, bytes, self.context);
        found
            .and_then(|(object, offset)| {
                let accessing = object.access(offset, bytes);
                let accessing = accessing
                    .map_err(|code| format!("the access cannot be recorded ({})", code.0))?;
                let piece = |(memory, at)| Piece::of(memory, at, bytes as usize);
                let replicas = object.replicas(offset, bytes)?;
                Ok((replicas.into_iter().map(piece).collect(), accessing))
            })
            .map_err(|why| {
                violation(format!(
                    "illegal multimem access by work that was submitted before: {why}"
                ));
                Code::ILLEGAL_ADDRESS
            })
    }

    /// Returns the aligned 32-bit word at an address, as kernels and stream operations access it.
    pub fn word(&self, address: u64) -> Result<Word> {
        if !address.is_multiple_of(4) {
            violation(format!(
                "the word at {address:#x} is not aligned to 4 bytes"
            ));
            return Err(Code::MISALIGNED_ADDRESS);
        }
        let piece = self
            .resolve(address, 4, Engine::Kernel)?
            .pop()
            .ok_or(Code::ILLEGAL_ADDRESS)?;
        Ok(Word(piece))
    }

    /// Like [`Self::word`], for a word that is polled until a peer or the host writes it. On machines where that
    /// matters, such words must be uncached.
    pub fn polled(&self, address: u64) -> Result<Word> {
        let word = self.word(address)?;
        self.check_polled(address);
        Ok(word)
    }

    /// Reports a polled word in memory that devices cache.
    pub fn check_polled(&self, address: u64) {
        let Ok(machine) = machine() else { return };
        let state = state();
        let memory = state.memory.find(address).and_then(Range::physical);
        let Some(memory) = memory.filter(|memory| !memory.uncached) else {
            return;
        };
        let device = state
            .contexts
            .get(&self.context)
            .map(|c| physical(c.device));
        let own = device == Some(memory.device);
        let whose = if own { "its own" } else { "a peer's" };
        let text = format!(
            "the word at {address:#x} is polled in {whose} memory, which the device caches: what others \
             write may not be seen"
        );
        drop(state);
        match machine.polling {
            Polling::Anywhere => {}
            Polling::OwnOrUncached if own => {}
            _ => violation(text),
        }
    }

    /// Copies bytes with a copy engine.
    fn engine_copy(&self, destination: u64, source: u64, bytes: u64) -> Result {
        let copy = self.outstanding(destination, source, bytes);
        outstanding::during(copy, || self.copy(destination, source, bytes, Engine::Copy))
    }

    /// Copies rows of bytes with a copy engine.
    fn engine_copy_rows(&self, rows: &Rows) -> Result {
        let copy = self.outstanding(rows.destination, rows.source, rows.bytes * rows.rows);
        outstanding::during(copy, || {
            (0..rows.rows).try_for_each(|row| {
                let destination = rows.destination + row * rows.destination_stride;
                let source = rows.source + row * rows.source_stride;
                self.copy(destination, source, rows.bytes, Engine::Copy)
            })
        })
    }

    fn outstanding(&self, destination: u64, source: u64, bytes: u64) -> outstanding::Copy {
        let state = state();
        let device = |address: u64| Some(state.memory.find(address)?.physical()?.device);
        outstanding::Copy {
            stream: self.stream,
            branch: self.branch,
            devices: [device(source), device(destination)],
            bytes,
        }
    }

    /// Copies bytes.
    pub fn copy(&self, destination: u64, source: u64, bytes: u64, engine: Engine) -> Result {
        let to = self.resolve(destination, bytes, engine)?;
        let from = self.resolve(source, bytes, engine)?;
        let (mut to, mut from) = (to.iter(), from.iter());
        let (mut out, mut into) = (from.next(), to.next());
        let (mut read, mut written) = (0, 0);
        while let (Some(source), Some(target)) = (out, into) {
            let length = (source.bytes - read).min(target.bytes - written);
            // SAFETY: both pieces were just resolved to memory that they keep mapped, and `length` stays inside both.
            // Other processes and threads may access the same bytes, as with any device memory; the program under test
            // must order its accesses.
            unsafe {
                std::ptr::copy(
                    source.pointer.add(read),
                    target.pointer.add(written),
                    length,
                )
            };
            read += length;
            written += length;
            if read == source.bytes {
                (out, read) = (from.next(), 0);
            }
            if written == target.bytes {
                (into, written) = (to.next(), 0);
            }
        }
        Ok(())
    }

    /// Writes `pattern` `count` times.
    pub fn fill(&self, address: u64, pattern: &[u8], count: u64, engine: Engine) -> Result {
        // A multiple of every width, so that the pattern continues across chunks.
        const AT_ONCE: usize = 64 << 10;
        let bytes = count as usize * pattern.len();
        let chunk = pattern.repeat(bytes.min(AT_ONCE) / pattern.len().max(1));
        let mut offset = 0;
        for piece in self.resolve(address, bytes as u64, engine)? {
            let mut at = match pattern.iter().all(|byte| *byte == 0) {
                true => piece.drop_pages(),
                false => 0,
            };
            while at < piece.bytes {
                let first = (offset + at) % pattern.len();
                let length = (piece.bytes - at).min(chunk.len() - first);
                // SAFETY: the piece is resolved memory with `length` bytes from `at`, and the chunk has `length` bytes
                // from `first`.
                unsafe { std::ptr::copy(chunk.as_ptr().add(first), piece.pointer.add(at), length) };
                at += length;
            }
            offset += piece.bytes;
        }
        Ok(())
    }

    /// Lets other threads run before looking again; fails once the context is gone.
    pub fn pause(&self, rounds: &mut u32) -> Result {
        if self.dead.load(Ordering::Acquire) {
            return Err(Code::DEINITIALIZED);
        }
        *rounds += 1;
        match rounds.checked_sub(200) {
            None => std::thread::yield_now(),
            // Long waits poll less often. Otherwise, in a large world, all streams that wait would take the few
            // processors from the one stream that they wait for.
            Some(slept) => std::thread::sleep(Duration::from_micros(50 << (slept / 64).min(4))),
        }
        Ok(())
    }
}

/// A word that other devices and the host may write.
pub(crate) struct Word(Piece);

impl Word {
    pub fn atomic(&self) -> &AtomicU32 {
        // SAFETY: the word is aligned, stays mapped while the piece is held, and everyone who shares it through this
        // driver uses atomics.
        unsafe { AtomicU32::from_ptr(self.0.pointer.cast()) }
    }
}

#[cfg(test)]
mod tests {
    use super::Condition;

    #[test]
    fn a_stream_waits_for_what_the_driver_documents() {
        assert!(Condition::Reached.holds(5, 5));
        assert!(!Condition::Reached.holds(4, 5));
        assert!(
            Condition::Reached.holds(2, u32::MAX),
            "the comparison wraps"
        );
        assert!(!Condition::Equal.holds(6, 5));
        assert!(Condition::And.holds(0b110, 0b010));
        assert!(!Condition::And.holds(0b101, 0b010));
        assert!(!Condition::Nor.holds(u32::MAX - 1, 1));
        assert!(Condition::Nor.holds(0, 1));
    }
}
