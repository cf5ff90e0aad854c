//! Atomic operations and waits on words of symmetric memory, in order with a stream.
//!
//! A word is one element of a buffer of `u32` or `u64`. [`Queue::put_signal`] and [`Queue::wait_signal`] count
//! on words that the library owns; here the caller chooses the word, the value and the condition that ends a
//! wait. Every operation is atomic at system scope: ranks, their kernels ([`crate::backend::abi::Handle`]) and
//! streams may use one word at the same time.
//!
//! Every method enqueues and returns, and can be captured. Each replay uses the operands and compared values of
//! the capture.

use crate::backend::Signals;
use crate::backend::abi::{DeviceAddress, WordOperation, WordUpdate, WordWait};
use crate::base::element::Element;
use crate::base::error::Result;
use crate::base::names::Condition;
use crate::buffer::slice::Slice;
use crate::network::command::{Action, Place};
use crate::stream::queue::Queue;
use std::time::Duration;

mod sealed {
    pub trait Sealed: Into<u64> {}
    impl Sealed for u32 {}
    impl Sealed for u64 {}
}

/// A word that devices update atomically: `u32` or `u64`.
pub trait Word: Element + sealed::Sealed {}
impl Word for u32 {}
impl Word for u64 {}

fn bits<W: Word>() -> u32 {
    size_of::<W>() as u32 * 8
}

impl Queue {
    /// Enqueues a store of `value` to `word`, one element of `peer`'s copy. `peer` may be this rank.
    ///
    /// A rank that has waited for the value, by [`Queue::wait_word`] or in a kernel, sees the effects of this
    /// stream's earlier work, such as puts.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] if the range is not one element, if there is no such peer or for a
    /// buffer of another communicator; the backend's errors; the error that poisoned the communicator.
    pub fn signal_set<'a, W: Word>(
        &self,
        peer: usize,
        word: impl Into<Slice<'a, W>>,
        value: W,
    ) -> Result<()> {
        let call = ("signal_set", WordUpdate::SET);
        self.update(peer, word.into(), call, value, value, None)
    }

    /// Enqueues an atomic addition of `value`, wrapping, to `word`, one element of `peer`'s copy. Ordering and
    /// visibility are those of [`Queue::signal_set`].
    ///
    /// Several ranks may add to one word; its owner waits for all of them with [`Condition::GreaterOrEqual`].
    ///
    /// ```
    /// # use symmem::Condition;
    /// # fn main() -> symmem::Result<()> {
    /// # let communicator = symmem::init()?;
    /// # let (rank, world) = (communicator.rank(), communicator.world_size());
    /// # let stream = communicator.stream()?;
    /// let words = communicator.allocate::<u64>(&[1])?; // zeroed
    /// stream.signal_add((rank + 1) % world, words.slice(..1)?, 1)?;
    /// stream.wait_word(words.slice(..1)?, Condition::GreaterOrEqual, 1)?; // counted up by the previous rank
    /// stream.synchronize()?;
    /// # communicator.finalize().map(drop)
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Queue::signal_set`].
    pub fn signal_add<'a, W: Word>(
        &self,
        peer: usize,
        word: impl Into<Slice<'a, W>>,
        value: W,
    ) -> Result<()> {
        let call = ("signal_add", WordUpdate::ADD);
        self.update(peer, word.into(), call, value, value, None)
    }

    /// Enqueues an atomic load of `word`, one element of `peer`'s copy, into `result`, one element of this
    /// rank's copy of its buffer.
    ///
    /// # Errors
    /// As [`Queue::signal_set`], for both ranges.
    pub fn atomic_fetch<'a, W: Word>(
        &self,
        peer: usize,
        word: impl Into<Slice<'a, W>>,
        result: impl Into<Slice<'a, W>>,
    ) -> Result<()> {
        let none = W::new_zeroed();
        let call = ("atomic_fetch", WordUpdate::FETCH);
        self.update(peer, word.into(), call, none, none, Some(result.into()))
    }

    /// Enqueues an atomic addition of `value`, wrapping, to `word`, one element of `peer`'s copy. Stores the
    /// previous value in `result`, one element of this rank's copy, if there is one.
    ///
    /// # Errors
    /// As [`Queue::atomic_fetch`].
    pub fn atomic_fetch_add<'a, W: Word>(
        &self,
        peer: usize,
        word: impl Into<Slice<'a, W>>,
        value: W,
        result: Option<Slice<'_, W>>,
    ) -> Result<()> {
        let call = ("atomic_fetch_add", WordUpdate::ADD);
        self.update(peer, word.into(), call, value, value, result)
    }

    /// Enqueues an atomic exchange: stores `value` in `word`, one element of `peer`'s copy, and the previous
    /// value in `result`, one element of this rank's copy, if there is one.
    ///
    /// # Errors
    /// As [`Queue::atomic_fetch`].
    pub fn atomic_swap<'a, W: Word>(
        &self,
        peer: usize,
        word: impl Into<Slice<'a, W>>,
        value: W,
        result: Option<Slice<'_, W>>,
    ) -> Result<()> {
        let call = ("atomic_swap", WordUpdate::SWAP);
        self.update(peer, word.into(), call, value, value, result)
    }

    /// Enqueues an atomic compare-and-swap: stores `value` in `word`, one element of `peer`'s copy, if the word
    /// equals `compare`. Stores the previous value in `result`, one element of this rank's copy, if there is
    /// one. The swap took place if the previous value equals `compare`.
    ///
    /// # Errors
    /// As [`Queue::atomic_fetch`].
    pub fn atomic_compare_swap<'a, W: Word>(
        &self,
        peer: usize,
        word: impl Into<Slice<'a, W>>,
        compare: W,
        value: W,
        result: Option<Slice<'_, W>>,
    ) -> Result<()> {
        let call = ("atomic_compare_swap", WordUpdate::COMPARE_SWAP);
        self.update(peer, word.into(), call, value, compare, result)
    }

    fn update<W: Word>(
        &self,
        peer: usize,
        word: Slice<'_, W>,
        (operation, update): (&'static str, WordUpdate),
        operand: W,
        compare: W,
        result: Option<Slice<'_, W>>,
    ) -> Result<()> {
        let world = self.world();
        world.health.check()?;
        world.check_peer(peer, operation)?;
        self.check_word(operation, "the word", word)?;
        if let Some(result) = result {
            self.check_word(operation, "the result", result)?;
        }
        if self.is_remote(peer) {
            let submit = self.submit_chained(operation);
            let Some((number, offset)) = submit.place(&word.memory()) else {
                return Err(self.invalid(operation, "the word is not symmetric"));
            };
            let rank = submit.rank();
            let result = result.map(|result| submit.address(&result.memory(), rank).0);
            let action = Action::Update {
                peer,
                word: Place { number, offset },
                update,
                bits: bits::<W>(),
                operand: operand.into(),
                compare: compare.into(),
                result,
            };
            return self.enqueue_remote(&submit, operation, world.deadlines.wait, action);
        }
        let submit = self.submit(operation);
        let address = |slice: Slice<'_, W>, rank| submit.address(&slice.memory(), rank);
        let call = WordOperation {
            word: address(word, peer),
            result: result.map_or(DeviceAddress::NULL, |result| address(result, submit.rank())),
            operand: operand.into(),
            compare: compare.into(),
            update,
            bits: bits::<W>(),
        };
        // SAFETY: both words are inside live allocations, which `submit` keeps.
        let enqueued = unsafe { submit.backend().word_update(&call, submit.stream()) };
        submit
            .end(enqueued)
            .map_err(|error| error.about(Some(peer), size_of::<W>() as u64))
    }

    /// Enqueues a wait until `condition` holds for `word`, one element of this rank's own copy, and `value`.
    /// Later work of this stream sees everything that the word's writer did before the change. The host does
    /// not wait.
    ///
    /// Comparisons wrap, as those of epochs do: a word is greater if it is less than half of its range ahead.
    /// So a counter may wrap around.
    ///
    /// # Errors
    /// As [`Queue::signal_set`]. If the condition does not hold within the deadline, or a rank dies,
    /// [`crate::Stream::synchronize`] returns the error. At the deadline it is [`crate::Error::WordTimeout`], which
    /// has the word's index in the wait; of 64-bit values it has the lower half only.
    pub fn wait_word<'a, W: Word>(
        &self,
        word: impl Into<Slice<'a, W>>,
        condition: Condition,
        value: W,
    ) -> Result<()> {
        self.wait_word_within(word, condition, value, self.world().deadlines.wait)
    }

    /// [`Queue::wait_word`] with its own deadline, counted from the start of the wait on the device.
    ///
    /// # Errors
    /// As [`Queue::wait_word`].
    pub fn wait_word_within<'a, W: Word>(
        &self,
        word: impl Into<Slice<'a, W>>,
        condition: Condition,
        value: W,
        deadline: Duration,
    ) -> Result<()> {
        let word = word.into();
        self.check_word("wait_word", "the word", word)?;
        let wait = Wait {
            operation: "wait_word",
            stride: 1,
            any: false,
            index: None,
            deadline,
        };
        self.wait_for(word, &wait, condition, value)
    }

    /// Enqueues a wait until `condition` has held at least once for each of the elements `0`, `stride`,
    /// `2 * stride`, … of `words`, in this rank's own copy, and `value`. `stride` counts elements.
    ///
    /// With a stride of [`crate::backend::abi::SIGNAL_STRIDE`] bytes no two words share a cache line, so ranks
    /// that update different words do not slow each other down.
    ///
    /// # Errors
    /// As [`Queue::wait_word`]; [`crate::Error::InvalidArgument`] for an empty slice or a stride of 0.
    pub fn wait_all<'a, W: Word>(
        &self,
        words: impl Into<Slice<'a, W>>,
        stride: usize,
        condition: Condition,
        value: W,
    ) -> Result<()> {
        let deadline = self.world().deadlines.wait;
        self.wait_all_within(words, stride, condition, value, deadline)
    }

    /// [`Queue::wait_all`] with its own deadline, counted from the start of the wait on the device.
    ///
    /// # Errors
    /// As [`Queue::wait_all`].
    pub fn wait_all_within<'a, W: Word>(
        &self,
        words: impl Into<Slice<'a, W>>,
        stride: usize,
        condition: Condition,
        value: W,
        deadline: Duration,
    ) -> Result<()> {
        let wait = Wait {
            operation: "wait_all",
            stride,
            any: false,
            index: None,
            deadline,
        };
        self.wait_for(words.into(), &wait, condition, value)
    }

    /// Enqueues a wait until `condition` holds for any of the elements `0`, `stride`, `2 * stride`, … of
    /// `words`, in this rank's own copy, and `value`. If `index`, one element of this rank's copy, is given, stores
    /// the word's position there, counted from 0 in steps of the stride. If several words satisfy the condition at
    /// the same look, the position is that of the lowest.
    ///
    /// # Errors
    /// As [`Queue::wait_all`].
    pub fn wait_any<'a, W: Word>(
        &self,
        words: impl Into<Slice<'a, W>>,
        stride: usize,
        condition: Condition,
        value: W,
        index: Option<Slice<'_, u32>>,
    ) -> Result<()> {
        let deadline = self.world().deadlines.wait;
        self.wait_any_within(words, stride, condition, value, index, deadline)
    }

    /// [`Queue::wait_any`] with its own deadline, counted from the start of the wait on the device.
    ///
    /// # Errors
    /// As [`Queue::wait_all`].
    pub fn wait_any_within<'a, W: Word>(
        &self,
        words: impl Into<Slice<'a, W>>,
        stride: usize,
        condition: Condition,
        value: W,
        index: Option<Slice<'_, u32>>,
        deadline: Duration,
    ) -> Result<()> {
        let wait = Wait {
            operation: "wait_any",
            stride,
            any: true,
            index,
            deadline,
        };
        self.wait_for(words.into(), &wait, condition, value)
    }

    fn wait_for<W: Word>(
        &self,
        words: Slice<'_, W>,
        wait: &Wait<'_>,
        condition: Condition,
        value: W,
    ) -> Result<()> {
        let world = self.world();
        let operation = wait.operation;
        world.health.check()?;
        self.check_same(words.world(), operation)?;
        let count = match wait.stride {
            0 => 0,
            stride => words.len().div_ceil(stride),
        };
        let Some(count) = u32::try_from(count).ok().filter(|&count| count > 0) else {
            return Err(self.invalid(
                operation,
                format!(
                    "no words to wait for in {} elements with a stride of {}; pass at least one element and a \
                     stride of at least 1",
                    words.len(),
                    wait.stride
                ),
            ));
        };
        if let Some(index) = wait.index {
            self.check_word(operation, "the index", index)?;
        }
        let submit = self.submit_wait(operation)?;
        let rank = submit.rank();
        let index = wait.index.map(|index| index.memory());
        let call = WordWait {
            words: submit.address(&words.memory(), rank),
            // A stride that saturates exceeds the range; only the first word is then waited for.
            stride: wait.stride.saturating_mul(size_of::<W>()) as u64,
            value: value.into(),
            index: index.map_or(DeviceAddress::NULL, |index| submit.address(&index, rank)),
            watch: world.watch(wait.deadline),
            count,
            condition: condition.into(),
            any: u32::from(wait.any),
            bits: bits::<W>(),
        };
        // SAFETY: the words are inside live allocations, which `submit` keeps; abort word and record live as
        // long as the world, which drains its streams before it lets them go.
        let enqueued = unsafe { submit.backend().word_wait(&call, submit.stream()) };
        submit.end(enqueued)
    }

    /// Refuses a slice that is not one element, or is another communicator's.
    fn check_word<W: Word>(
        &self,
        operation: &'static str,
        what: &str,
        word: Slice<'_, W>,
    ) -> Result<()> {
        self.check_same(word.world(), operation)?;
        if word.len() != 1 {
            let length = word.len();
            let message =
                format!("{what} must be one element, not {length}; pass slice(index..=index)");
            return Err(self.invalid(operation, message));
        }
        Ok(())
    }

    /// Orders this stream's earlier puts before its later ones: a rank that sees a later put, signal or atomic
    /// operation of this stream sees the earlier ones (OpenSHMEM's `shmem_fence`).
    ///
    /// A stream does its work in order, and each operation is complete, and visible to every rank, before the
    /// next one starts. So the call enqueues nothing: it documents the dependency, and reports whether the
    /// communicator can still be used. It does not order different streams; use an event or a signal.
    ///
    /// # Errors
    /// The error that poisoned the communicator.
    pub fn fence(&self) -> Result<()> {
        self.world().health.check()
    }

    /// Completes all earlier work of this stream before any later work of it: puts have arrived, and sources
    /// may be overwritten (OpenSHMEM's `shmem_quiet`).
    ///
    /// The stream's own order guarantees this, as with [`Queue::fence`], so nothing is enqueued. The host does
    /// not wait; use [`crate::Stream::synchronize`] for that.
    ///
    /// # Errors
    /// The error that poisoned the communicator.
    pub fn quiet(&self) -> Result<()> {
        self.world().health.check()
    }
}

/// Parameters of a wait for words.
struct Wait<'a> {
    operation: &'static str,
    stride: usize,
    any: bool,
    index: Option<Slice<'a, u32>>,
    deadline: Duration,
}
