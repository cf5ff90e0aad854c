//! The product that gathers its `A`: what a grid would do, by one thread.
//!
//! Each chunk is multiplied as soon as it is here, in the order in which the ranks' copies go round: the
//! own shard first, then that of the next rank.

use super::product::{Panel, product};
use crate::backend::abi::*;
use crate::host::copies;
use crate::host::progress::{Bounds, Look, Pending, SignalWord, Step, fill_record, look, word_at};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Bytes of an element: all that can be multiplied have as many.
const ELEMENT: u64 = 2;

/// Where a shard lies in the whole `A`.
#[derive(Clone, Copy)]
struct Shard {
    /// Its first row, and how many it has.
    row: u64,
    rows: u64,
    /// Its first column, and how many.
    column: u64,
    columns: u64,
}

/// The arguments, with what follows from them.
struct Call<'a> {
    arguments: &'a GatheredGemmArguments,
    rank: usize,
    world: usize,
}

impl Call<'_> {
    fn shard(&self, member: usize) -> Shard {
        let GatheredGemmArguments { shape, shard, .. } = self.arguments;
        let part = |whole: u64| {
            let first = (member as u64).saturating_mul(*shard).min(whole);
            (first, (whole - first).min(*shard))
        };
        if self.arguments.sharding == Sharding::COLUMNS {
            let (column, columns) = part(shape.k);
            return Shard {
                row: 0,
                rows: shape.m,
                column,
                columns,
            };
        }
        let (row, rows) = part(shape.m);
        Shard {
            row,
            rows,
            column: 0,
            columns: shape.k,
        }
    }

    /// First row, in the shard, and rows of a chunk.
    fn chunk(&self, shard: Shard, chunk: u64) -> (u64, u64) {
        let first = (chunk * self.arguments.chunk).min(shard.rows);
        (first, (shard.rows - first).min(self.arguments.chunk))
    }

    /// The word that says at `member` that a chunk is there.
    fn word(&self, member: usize, shard: usize, chunk: u64) -> DeviceAddress {
        let index = shard as u64 * u64::from(self.arguments.chunks) + chunk;
        DeviceAddress(self.arguments.arrivals[member].0 + index * SIGNAL_STRIDE)
    }

    /// Where a row of a shard lies in the gathered `A` of `member`.
    fn gathered(&self, member: usize, shard: Shard, row: u64) -> DeviceAddress {
        let element = (shard.row + row) * self.arguments.shape.a_stride + shard.column;
        DeviceAddress(self.arguments.gathered[member].0 + element * ELEMENT)
    }

    /// Copies a chunk of a shard from where it is at its owner to the gathered `A` of `member`.
    ///
    /// # Safety
    /// Both are live.
    unsafe fn copy(&self, owner: usize, member: usize, chunk: u64) {
        let shard = self.shard(owner);
        let (first, rows) = self.chunk(shard, chunk);
        let bytes = shard.columns * ELEMENT;
        let copy = RowsCopy {
            destination: self.gathered(member, shard, first),
            destination_stride: self.arguments.shape.a_stride * ELEMENT,
            source: DeviceAddress(self.arguments.sources[owner].0 + first * bytes),
            source_stride: bytes,
            bytes,
            rows,
            ..RowsCopy::default()
        };
        // SAFETY: the caller's word.
        unsafe { copies::copy_rows(&copy) };
    }

    /// A chunk's columns of a shard, once they are here. Own ones are where the caller has them.
    fn panel(&self, member: usize, chunk: u64) -> Panel {
        let shard = self.shard(member);
        let (first, _) = self.chunk(shard, chunk);
        let (address, stride) = if member == self.rank {
            let offset = first * shard.columns * ELEMENT;
            let own = self.arguments.sources[member];
            (DeviceAddress(own.0 + offset), shard.columns)
        } else {
            let stride = self.arguments.shape.a_stride;
            (self.gathered(self.rank, shard, first), stride)
        };
        Panel {
            address,
            stride,
            first: shard.column,
            columns: shard.columns,
        }
    }

    /// The word that says at `member` that a rank has come to the call.
    fn entered(&self, member: usize, rank: usize) -> DeviceAddress {
        DeviceAddress(self.arguments.group.slots[member].0 + rank as u64 * SIGNAL_STRIDE)
    }

    /// Of a product that is its own barrier: tells all that this rank has come, and waits until all have.
    ///
    /// # Safety
    /// As [`advance`].
    unsafe fn enter(&self, pending: &mut Pending) -> Result<(), Step> {
        let peers = || (0..self.world).filter(|&peer| peer != self.rank);
        if pending.begin() {
            for peer in peers() {
                // SAFETY: the caller's word.
                unsafe { SignalWord::at(self.entered(peer, self.rank)).publish(pending.expected) };
            }
        }
        while (pending.peer as usize) < self.world {
            let peer = pending.peer as usize;
            if peer != self.rank {
                // SAFETY: the caller's word.
                unsafe { self.wait(self.entered(self.rank, peer), peer, pending) }?;
            }
            // All have been told already: the step goes on.
            pending.peer += 1;
        }
        pending.end();
        Ok(())
    }

    /// What is done before a chunk is waited for: what peers need, and the copy for the caller.
    ///
    /// # Safety
    /// As [`advance`].
    unsafe fn begin(&self, epoch: u32) {
        let arguments = self.arguments;
        let chunks = u64::from(arguments.chunks);
        if matches!(arguments.mode, GatherMode::PUSH | GatherMode::PUSH_AT_ONCE) {
            for step in 1..self.world {
                let peer = (self.rank + self.world - step) % self.world;
                for chunk in 0..chunks {
                    // SAFETY: the caller's word.
                    unsafe {
                        self.copy(self.rank, peer, chunk);
                        SignalWord::at(self.word(peer, self.rank, chunk)).publish(epoch);
                    }
                }
            }
        }
        if arguments.mode != GatherMode::WAIT && arguments.keep != 0 {
            for chunk in 0..chunks {
                // SAFETY: the caller's word.
                unsafe { self.copy(self.rank, self.rank, chunk) };
            }
        }
    }

    /// Makes sure that a chunk of a peer is here.
    ///
    /// # Safety
    /// As [`advance`].
    unsafe fn await_chunk(
        &self,
        member: usize,
        chunk: u64,
        pending: &mut Pending,
    ) -> Result<(), Step> {
        let arguments = self.arguments;
        let shard = self.shard(member);
        let empty = shard.columns == 0 || self.chunk(shard, chunk).1 == 0;
        if member == self.rank || empty {
            return Ok(());
        }
        let word = self.word(self.rank, member, chunk);
        if arguments.mode == GatherMode::PULL {
            // SAFETY: the caller's word.
            unsafe {
                self.copy(member, self.rank, chunk);
                SignalWord::at(word).publish(pending.expected);
            }
            return Ok(());
        }
        // SAFETY: the caller's word.
        unsafe { self.wait(word, member, pending) }
    }

    /// Until a word that a member raises is here.
    ///
    /// # Safety
    /// As [`advance`].
    unsafe fn wait(
        &self,
        word: DeviceAddress,
        member: usize,
        pending: &mut Pending,
    ) -> Result<(), Step> {
        let group = &self.arguments.group;
        let watch = &group.watch;
        let bounds = Bounds {
            abort: watch.abort,
            deadline: Some(Duration::from_nanos(watch.deadline_ns)),
        };
        // SAFETY: the caller's word.
        match unsafe { look(word, &bounds, pending) } {
            Look::Reached => Ok(()),
            Look::Blocked(sleep) => Err(Step::Blocked(sleep)),
            Look::GaveUp { seen, reason } => {
                let record = WaitRecord {
                    kind: WaitRecord::COLLECTIVE + group.operation.0,
                    rank: watch.rank,
                    peer: group.members[member].into(),
                    slot: group.slot,
                    expected: pending.expected,
                    seen,
                    reason,
                    elapsed_ns: pending.elapsed_ns(),
                    ..WaitRecord::default()
                };
                // SAFETY: the caller's word.
                unsafe { fill_record(watch.record, &record) };
                Err(Step::Done)
            }
        }
    }
}

/// Goes on with a product as far as it can without waiting.
///
/// # Safety
/// All memory that it names is live, and its numbers are in range.
pub(crate) unsafe fn advance(
    arguments: &GatheredGemmArguments,
    pending: &mut Option<Pending>,
) -> Step {
    let call = Call {
        arguments,
        rank: arguments.group.rank as usize,
        world: arguments.group.world as usize,
    };
    if pending.is_none() {
        let at_once = arguments.mode == GatherMode::PUSH_AT_ONCE;
        // SAFETY: the caller's word; the barrier before has raised it, or this call is the one that does.
        let word = unsafe { word_at(arguments.epoch) };
        let epoch = match at_once {
            true => word.fetch_add(1, Ordering::Relaxed).wrapping_add(1),
            false => word.load(Ordering::Relaxed),
        };
        let chunks = u64::from(arguments.chunks);
        let by_rows = arguments.sharding != Sharding::COLUMNS;
        let shards = if by_rows { call.world as u64 } else { 1 };
        let mut begun = Pending::of_rounds(shards * chunks);
        begun.expected = epoch;
        begun.stage = u32::from(!at_once);
        if !at_once {
            // SAFETY: the caller's word.
            unsafe { call.begin(epoch) };
        }
        *pending = Some(begun);
    }
    let Some(pending) = pending else {
        return Step::Done;
    };
    if pending.stage == 0 {
        // SAFETY: the caller's word.
        if let Err(step) = unsafe { call.enter(pending) } {
            return step;
        }
        pending.stage = 1;
        // SAFETY: the caller's word; all have come, so that nobody reads any more what the last call gathered.
        unsafe { call.begin(pending.expected) };
    }
    // SAFETY: the caller's word.
    match unsafe { multiply(&call, pending) } {
        Ok(()) => Step::Done,
        Err(step) => step,
    }
}

/// A round is a chunk of `C`: one of a shard's rows, or, where each rank has columns, one of all of them.
///
/// # Safety
/// As [`advance`].
unsafe fn multiply(call: &Call<'_>, pending: &mut Pending) -> Result<(), Step> {
    let arguments = call.arguments;
    let operands = GemmOperands {
        a: DeviceAddress::NULL,
        b: arguments.b,
        c: arguments.c,
        bias: arguments.bias,
    };
    let chunks = u64::from(arguments.chunks);
    while pending.round < pending.rounds {
        let (turn, chunk) = (pending.round / chunks, pending.round % chunks);
        let mut panels = [Panel {
            address: DeviceAddress::NULL,
            stride: 0,
            first: 0,
            columns: 0,
        }; MAX_RANKS];
        let (needed, first) = if arguments.sharding == Sharding::COLUMNS {
            (call.world, call.rank)
        } else {
            (1, (call.rank + turn as usize) % call.world)
        };
        while (pending.peer as usize) < needed {
            let member = (first + pending.peer as usize) % call.world;
            // SAFETY: the caller's word.
            unsafe { call.await_chunk(member, chunk, pending) }?;
            pending.next_peer();
        }
        for (index, panel) in panels[..needed].iter_mut().enumerate() {
            *panel = call.panel((first + index) % call.world, chunk);
        }
        let shard = call.shard(first);
        let (row, rows) = call.chunk(shard, chunk);
        let rows = shard.row + row..shard.row + row + rows;
        // SAFETY: the caller's word; every panel has these rows, and has arrived.
        unsafe { product(&arguments.shape, &panels[..needed], &operands, rows) };
        pending.end();
        pending.round += 1;
    }
    Ok(())
}
