//! All-gather + GEMM: one thread does the work of a grid.
//!
//! Each chunk is multiplied as soon as it has arrived, starting with the own shard and going on with the next rank's.

use super::product::{Panel, product};
use super::wait::wait;
use crate::backend::abi::*;
use crate::host::copies;
use crate::host::progress::{Pending, SignalWord, Step, is_aborted, word_at};
use std::sync::atomic::Ordering;

/// A shard's place in the whole `A`.
#[derive(Clone, Copy)]
struct Shard {
    /// First row and number of rows.
    row: u64,
    rows: u64,
    /// First column and number of columns.
    column: u64,
    columns: u64,
}

/// The arguments and values derived from them.
struct Call<'a> {
    arguments: &'a GatheredGemmArguments,
    rank: usize,
    world: usize,
}

impl Call<'_> {
    /// Bytes per element.
    fn element(&self) -> u64 {
        self.arguments.shape.element.bytes()
    }

    fn shard(&self, member: usize) -> Shard {
        let GatheredGemmArguments { shape, shard, .. } = self.arguments;
        let part = |whole: u64| {
            let first = (member as u64).saturating_mul(*shard).min(whole);
            (first, (whole - first).min(*shard))
        };
        if self.arguments.sharding == ShardingCode::COLUMNS {
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

    /// Returns a chunk's first row in the shard and its number of rows.
    fn chunk(&self, shard: Shard, chunk: u64) -> (u64, u64) {
        let first = (chunk * self.arguments.chunk).min(shard.rows);
        (first, (shard.rows - first).min(self.arguments.chunk))
    }

    /// The arrival word of a chunk at `member`.
    fn word(&self, member: usize, shard: usize, chunk: u64) -> DeviceAddress {
        let index = shard as u64 * u64::from(self.arguments.chunks) + chunk;
        DeviceAddress(self.arguments.arrivals[member].0 + index * SIGNAL_STRIDE)
    }

    /// The place of a shard's row in the gathered `A` of `member`.
    fn gathered(&self, member: usize, shard: Shard, row: u64) -> DeviceAddress {
        let element = (shard.row + row) * self.arguments.shape.a_stride + shard.column;
        DeviceAddress(self.arguments.gathered[member].0 + element * self.element())
    }

    /// Copies a chunk of a shard from its owner to the gathered `A` of `member`.
    ///
    /// # Safety
    /// Both ranges are live.
    unsafe fn copy(&self, owner: usize, member: usize, chunk: u64) {
        let shard = self.shard(owner);
        let (first, rows) = self.chunk(shard, chunk);
        let bytes = shard.columns * self.element();
        let copy = RowsCopy {
            destination: self.gathered(member, shard, first),
            destination_stride: self.arguments.shape.a_stride * self.element(),
            source: DeviceAddress(self.arguments.sources[owner].0 + first * bytes),
            source_stride: bytes,
            bytes,
            rows,
            ..RowsCopy::default()
        };
        // SAFETY: both ranges are live, as this function requires.
        unsafe { copies::copy_rows(&copy) };
    }

    /// Returns a chunk of a shard that has arrived. An own chunk stays where the caller has it.
    fn panel(&self, member: usize, chunk: u64) -> Panel {
        let shard = self.shard(member);
        let (first, _) = self.chunk(shard, chunk);
        let (address, stride) = if member == self.rank {
            let offset = first * shard.columns * self.element();
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

    /// The word at `member` that says that `rank` has reached the call.
    fn entered(&self, member: usize, rank: usize) -> DeviceAddress {
        DeviceAddress(self.arguments.group.slots[member].0 + rank as u64 * SIGNAL_STRIDE)
    }

    /// Synchronizes the ranks in `PUSH_AT_ONCE`: tells all peers that this rank has arrived, and waits until all
    /// have.
    ///
    /// # Safety
    /// As for [`advance`].
    unsafe fn enter(&self, pending: &mut Pending) -> Result<(), Step> {
        let peers = || (0..self.world).filter(|&peer| peer != self.rank);
        if pending.begin() {
            for peer in peers() {
                // SAFETY: the members' slots are live, as this function requires.
                unsafe { SignalWord::at(self.entered(peer, self.rank)).publish(pending.expected) };
            }
        }
        while (pending.peer as usize) < self.world {
            let peer = pending.peer as usize;
            if peer != self.rank {
                // SAFETY: this rank's slots are live, as this function requires.
                unsafe {
                    wait(
                        &self.arguments.group,
                        self.entered(self.rank, peer),
                        peer,
                        pending,
                    )
                }?;
            }
            // Not `next_peer`: this rank has signaled all peers already, so the step continues.
            pending.peer += 1;
        }
        pending.end();
        Ok(())
    }

    /// Does what no chunk has to arrive for: pushes to the peers, and copies the own shard for the caller.
    ///
    /// # Safety
    /// As for [`advance`].
    unsafe fn begin(&self, epoch: u32) {
        let arguments = self.arguments;
        let chunks = u64::from(arguments.chunks);
        if matches!(arguments.mode, GatherMode::PUSH | GatherMode::PUSH_AT_ONCE) {
            for step in 1..self.world {
                let peer = (self.rank + self.world - step) % self.world;
                for chunk in 0..chunks {
                    // SAFETY: the shards and arrival words are live, as this function requires.
                    unsafe {
                        self.copy(self.rank, peer, chunk);
                        SignalWord::at(self.word(peer, self.rank, chunk)).publish(epoch);
                    }
                }
            }
        }
        if arguments.mode != GatherMode::WAIT && arguments.keep != 0 {
            for chunk in 0..chunks {
                // SAFETY: the own shard and gathered `A` are live, as this function requires.
                unsafe { self.copy(self.rank, self.rank, chunk) };
            }
        }
    }

    /// Pulls a chunk of a member, or waits for it. An error is the step with which the caller returns.
    ///
    /// # Safety
    /// As for [`advance`].
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
            // SAFETY: the peer's shard and this rank's arrival words are live, as this function requires.
            unsafe {
                self.copy(member, self.rank, chunk);
                SignalWord::at(word).publish(pending.expected);
            }
            return Ok(());
        }
        // SAFETY: this rank's arrival words are live, as this function requires.
        unsafe { wait(&arguments.group, word, member, pending) }
    }
}

/// Advances an all-gather + GEMM as far as possible without waiting.
///
/// # Safety
/// All memory in `arguments` is live, and [`super::check_gathered`] has passed.
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
        // As the GPUs' kernels do, whose GEMMs would otherwise take their whole time each.
        // SAFETY: the watch's words are null or live, as this function requires.
        if unsafe { is_aborted(&arguments.group.watch) } {
            return Step::Done;
        }
        let at_once = arguments.mode == GatherMode::PUSH_AT_ONCE;
        // SAFETY: the word is live. The barrier before has raised it, or, in `PUSH_AT_ONCE`, this call does.
        let word = unsafe { word_at(arguments.epoch) };
        let epoch = match at_once {
            true => word.fetch_add(1, Ordering::Relaxed).wrapping_add(1),
            false => word.load(Ordering::Relaxed),
        };
        let chunks = u64::from(arguments.chunks);
        let by_rows = arguments.sharding != ShardingCode::COLUMNS;
        let shards = if by_rows { call.world as u64 } else { 1 };
        let mut begun = Pending::of_rounds(shards * chunks);
        begun.expected = epoch;
        begun.stage = u32::from(!at_once);
        if !at_once {
            // SAFETY: this function has the same conditions.
            unsafe { call.begin(epoch) };
        }
        *pending = Some(begun);
    }
    let Some(pending) = pending else {
        return Step::Done;
    };
    if pending.stage == 0 {
        // SAFETY: this function has the same conditions.
        if let Err(step) = unsafe { call.enter(pending) } {
            return step;
        }
        pending.stage = 1;
        // SAFETY: this function has the same conditions; all ranks have arrived, so none still reads the last call's
        // gathered `A`.
        unsafe { call.begin(pending.expected) };
    }
    // SAFETY: this function has the same conditions.
    match unsafe { multiply(&call, pending) } {
        Ok(()) => Step::Done,
        Err(step) => step,
    }
}

/// Multiplies in rounds. A round computes the rows of `C` of one chunk: of one shard if `A` is sharded by rows, of
/// all shards together if it is sharded by columns.
///
/// # Safety
/// As for [`advance`].
unsafe fn multiply(call: &Call<'_>, pending: &mut Pending) -> Result<(), Step> {
    let arguments = call.arguments;
    let operands = GemmOperands {
        a: DeviceAddress::NULL,
        b: arguments.b,
        c: arguments.c,
        bias: arguments.bias,
        addend: DeviceAddress::NULL,
        scale: arguments.scale,
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
        let (needed, first) = if arguments.sharding == ShardingCode::COLUMNS {
            (call.world, call.rank)
        } else {
            (1, (call.rank + turn as usize) % call.world)
        };
        while (pending.peer as usize) < needed {
            let member = (first + pending.peer as usize) % call.world;
            // SAFETY: this function has the same conditions.
            unsafe { call.await_chunk(member, chunk, pending) }?;
            pending.next_peer();
        }
        for (index, panel) in panels[..needed].iter_mut().enumerate() {
            *panel = call.panel((first + index) % call.world, chunk);
        }
        let shard = call.shard(first);
        let (row, rows) = call.chunk(shard, chunk);
        let rows = shard.row + row..shard.row + row + rows;
        // SAFETY: the matrices are live, and every panel has arrived and has these rows.
        unsafe { product(&arguments.shape, &panels[..needed], &operands, rows) };
        pending.end();
        pending.round += 1;
    }
    Ok(())
}
