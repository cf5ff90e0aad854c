//! GEMM + reduce-scatter and GEMM + all-reduce: one thread does the work of a grid.
//!
//! In [`ReducedMode::PUSH`] a rank stores its partial sums of a peer's rows in the peer's inbox, and the owner adds them. In
//! [`ReducedMode::PACKETS`] with `all` it stores all its partial sums at all peers, and every rank adds the same ones.
//!
//! ```text
//! inbox   [peer][row][column]   partial sums of that peer: of the owner's rows, or of all; the next rank's first
//! words   entered  [rank]       32 bytes apart, like all words: that rank has reached the call
//!         partials [rank]       partial sums of that rank are here
//!         finished [rank]       finished rows of that rank are here
//!         calls                 counts this rank's calls
//! ```

use super::call::{check, refuse};
use super::product::{MatrixFormat, Panel, known, load, store, sums_of};
use super::wait::wait;
use crate::backend::abi::*;
use crate::backend::{CallResult, Failure};
use crate::float::{Bfloat, Half};
use crate::host::copies;
use crate::host::progress::{Pending, SignalWord, Step, is_aborted, word_at};
use std::ops::Range;
use std::ptr;
use std::sync::atomic::Ordering;

const CALL: &str = "reduced_gemm";

/// Bytes per element of f16 and bf16, and of f32. Matrices of f32 have no fused kernel.
const ELEMENT: u64 = 2;
const F32: u64 = 4;

/// Most rows for [`ReducedMode::PACKETS`], as on GPUs, so that the host has shapes without it.
const PACKET_ROWS: u64 = 128;

/// Rows of the sum that a grid computes at a time.
const TILE_ROWS: u32 = 16;

/// Bytes from one word to the next. So all of them are no longer than one word for each rank in kernels' words, which are
/// [`SIGNAL_STRIDE`] apart: the fake drivers run this code in memory of the size that a kernel asks for.
const WORD_STRIDE: u64 = 32;

/// Kinds of words, each of which has one for each rank.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Entered = 0,
    Partials = 1,
    Finished = 2,
}

/// Number of kinds.
const KINDS: u64 = 3;

/// Returns the offset of a word that `rank` raises.
pub(crate) fn word_offset(world: usize, kind: Kind, rank: usize) -> u64 {
    (kind as u64 * world as u64 + rank as u64) * WORD_STRIDE
}

/// Returns the limits of the host backend; `None` for a shape or problem that it does not know.
pub fn limits(shape: &GemmLayout, problem: &ReducedProblem) -> Option<ReducedLimits> {
    check_problem(shape, problem).ok()?;
    if problem.mode == ReducedMode::PACKETS && shape.m > PACKET_ROWS {
        return None;
    }
    let world = u64::from(problem.world);
    let rows = match is_broadcast(problem) {
        true => shape.m,
        false => problem.shard,
    };
    let partial = partial_bytes(problem.partial);
    let peers = (world - 1).max(1);
    let inbox_bytes = rows.checked_mul(shape.n)?.checked_mul(partial * peers)?;
    Some(ReducedLimits {
        blocks: 1,
        threads: 1,
        tile_m: TILE_ROWS,
        tile_n: 1,
        alignment: 1,
        inbox_bytes: inbox_bytes.checked_next_multiple_of(SIGNAL_STRIDE)?,
        word_bytes: ((KINDS * world + 1) * WORD_STRIDE).next_multiple_of(SIGNAL_STRIDE),
        ..ReducedLimits::default()
    })
}

/// Whether every rank gets all partial sums.
fn is_broadcast(problem: &ReducedProblem) -> bool {
    problem.mode == ReducedMode::PACKETS && problem.all != 0
}

fn partial_bytes(partial: ElementTypeCode) -> u64 {
    match partial {
        ElementTypeCode::F32 => F32,
        _ => ELEMENT,
    }
}

fn check_problem(shape: &GemmLayout, problem: &ReducedProblem) -> CallResult<()> {
    check(shape, CALL)?;
    if shape.element.bytes() != ELEMENT {
        return Err(Failure::new(
            Status::UNSUPPORTED,
            CALL,
            format!(
                "no kernel multiplies {} before a reduction; use F16 or BF16",
                shape.element.name()
            ),
        ));
    }
    let ReducedProblem { shard, world, .. } = *problem;
    if world == 0 || world as usize > MAX_RANKS {
        return refuse(
            CALL,
            format!("a group of {world} ranks; it has 1 to {MAX_RANKS}"),
        );
    }
    if shard
        .checked_mul(world.into())
        .is_none_or(|rows| rows < shape.m)
    {
        return refuse(
            CALL,
            format!(
                "{world} parts of {shard} rows do not cover {} rows; pass rows divided by ranks, rounded up",
                shape.m
            ),
        );
    }
    if !(ReducedMode::PUSH..=ReducedMode::PACKETS).contains(&problem.mode) || problem.all > 1 {
        return refuse(
            CALL,
            format!(
                "mode {} with `all` of {} is unknown; use one of this version, and 0 or 1",
                problem.mode.0, problem.all
            ),
        );
    }
    if problem.partial != ElementTypeCode::F32 && problem.partial != shape.element {
        return refuse(
            CALL,
            format!(
                "partial sums of {} for matrices of {}; use F32 or the matrices' type",
                problem.partial.name(),
                shape.element.name()
            ),
        );
    }
    Ok(())
}

/// Checks that all numbers are in range.
pub(crate) fn check_reduced(arguments: &ReducedGemmArguments) -> CallResult<()> {
    check_problem(&arguments.shape, &arguments.problem())?;
    let CollectiveGroup { rank, world, .. } = arguments.group;
    if rank >= world || arguments.shape.addend != 0 {
        return refuse(
            CALL,
            format!(
                "rank {rank} of a group of {world}, {} addends; ranks are numbered from 0, and there is no addend",
                arguments.shape.addend
            ),
        );
    }
    Ok(())
}

/// The arguments and values derived from them.
struct Call<'a> {
    arguments: &'a ReducedGemmArguments,
    rank: usize,
    world: usize,
    /// Whether every rank gets all partial sums.
    broadcast: bool,
}

impl Call<'_> {
    /// Returns the rows that a rank owns.
    fn rows(&self, owner: usize) -> Range<u64> {
        let ReducedGemmArguments { shape, shard, .. } = self.arguments;
        let first = (owner as u64).saturating_mul(*shard).min(shape.m);
        first..(first + shard).min(shape.m)
    }

    /// Returns the rows of which a rank gets partial sums.
    fn added_by(&self, member: usize) -> Range<u64> {
        match self.broadcast {
            true => 0..self.arguments.shape.m,
            false => self.rows(member),
        }
    }

    fn peers(&self) -> impl Iterator<Item = usize> {
        (1..self.world).map(|step| (self.rank + step) % self.world)
    }

    /// The word at `member` that `rank` raises.
    fn word(&self, member: usize, kind: Kind, rank: usize) -> DeviceAddress {
        DeviceAddress(self.arguments.words[member].0 + word_offset(self.world, kind, rank))
    }

    /// The word that counts this rank's calls.
    fn calls(&self) -> DeviceAddress {
        let offset = KINDS * self.world as u64 * WORD_STRIDE;
        DeviceAddress(self.arguments.words[self.rank].0 + offset)
    }

    /// Raises this rank's word at a member.
    ///
    /// # Safety
    /// As for [`advance`].
    unsafe fn raise(&self, member: usize, kind: Kind, epoch: u32) {
        // SAFETY: the members' words are live, as this function requires.
        unsafe { SignalWord::at(self.word(member, kind, self.rank)).publish(epoch) };
    }

    /// Waits for the words of all peers for which `from` returns true.
    ///
    /// # Safety
    /// As for [`advance`].
    unsafe fn await_peers(
        &self,
        kind: Kind,
        from: impl Fn(usize) -> bool,
        pending: &mut Pending,
    ) -> Result<(), Step> {
        while (pending.peer as usize) < self.world {
            let peer = pending.peer as usize;
            if peer != self.rank && from(peer) {
                let word = self.word(self.rank, kind, peer);
                // SAFETY: this rank's words are live, as this function requires.
                unsafe { wait(&self.arguments.group, word, peer, pending) }?;
            }
            pending.peer += 1;
        }
        pending.end();
        Ok(())
    }

    /// Where partial sums of `rank` are in the inbox of `member`, another one.
    fn partials(&self, member: usize, rank: usize) -> DeviceAddress {
        let ReducedGemmArguments { shape, shard, .. } = self.arguments;
        let rows = match self.broadcast {
            true => shape.m,
            false => *shard,
        };
        let bytes = rows * shape.n * partial_bytes(self.arguments.partial);
        let index = (rank + self.world - member - 1) % self.world;
        DeviceAddress(self.arguments.inboxes[member].0 + index as u64 * bytes)
    }

    /// Multiplies some rows, and passes the sums on as [`sums_of`] does.
    ///
    /// # Safety
    /// As for [`advance`].
    unsafe fn multiply<F: MatrixFormat>(
        &self,
        rows: Range<u64>,
        take: impl FnMut(u64, u64, &[f32]),
    ) {
        let ReducedGemmArguments { shape, a, b, .. } = self.arguments;
        let panel = Panel {
            address: DeviceAddress(a.0 + rows.start * shape.a_stride * ELEMENT),
            stride: shape.a_stride,
            first: 0,
            columns: shape.k,
        };
        let operands = GemmOperands {
            b: *b,
            ..GemmOperands::default()
        };
        // SAFETY: the matrices are live, as this function requires, and the panel has these rows.
        unsafe { sums_of::<F>(shape, &[panel], &operands, rows, take) };
    }

    /// Stores partial sums in the peers' inboxes.
    ///
    /// # Safety
    /// As for [`advance`], and all members have entered.
    unsafe fn send<F: MatrixFormat>(&self, epoch: u32) {
        let n = self.arguments.shape.n;
        for peer in self.peers() {
            let rows = self.added_by(peer);
            if rows.is_empty() {
                continue;
            }
            let (first, to) = (rows.start, self.partials(peer, self.rank));
            let place = |row: u64, left: u64, sums: &[f32]| {
                for (column, &sum) in sums.iter().enumerate() {
                    let index = (row - first) * n + left + column as u64;
                    // SAFETY: the inbox has the rows that its rank adds up.
                    unsafe { self.store_partial::<F>(to, index, sum) };
                }
            };
            // SAFETY: this function has the same conditions.
            unsafe {
                self.multiply::<F>(rows, place);
                self.raise(peer, Kind::Partials, epoch);
            }
        }
    }

    /// Adds the partial sums of all ranks and the bias in the order of the ranks, and rounds once.
    ///
    /// # Safety
    /// As for [`advance`], and the partial sums of all peers are here.
    unsafe fn add<F: MatrixFormat>(&self) {
        let ReducedGemmArguments {
            shape, bias, all, ..
        } = self.arguments;
        let rows = self.added_by(self.rank);
        let first = rows.start;
        // Without `all`, `C` begins with the own rows.
        let skipped = if *all != 0 { 0 } else { first };
        let finish = |row: u64, left: u64, sums: &[f32]| {
            for (column, &own) in sums.iter().enumerate() {
                let column = left + column as u64;
                // SAFETY: the matrices and the inbox have this element.
                unsafe {
                    let mut sum = match bias.0 {
                        0 => 0.0,
                        _ => load::<F>(*bias, column),
                    };
                    for rank in 0..self.world {
                        let index = (row - first) * shape.n + column;
                        sum += match rank == self.rank {
                            true => self.own::<F>(own),
                            false => {
                                let from = self.partials(self.rank, rank);
                                self.load_partial::<F>(from, index)
                            }
                        };
                    }
                    let index = (row - skipped) * shape.c_stride + column;
                    store::<F>(self.arguments.c, index, sum);
                }
            }
        };
        // SAFETY: this function has the same conditions.
        unsafe { self.multiply::<F>(rows, finish) };
    }

    /// Returns this rank's own partial sum as it enters the total: if all ranks add up, as the others got it.
    fn own<F: MatrixFormat>(&self, sum: f32) -> f32 {
        match self.broadcast && self.arguments.partial != ElementTypeCode::F32 {
            true => F::widen(F::narrow(sum)),
            false => sum,
        }
    }

    /// # Safety
    /// `index` is inside a live array of partial sums at `address`.
    unsafe fn store_partial<F: MatrixFormat>(&self, address: DeviceAddress, index: u64, sum: f32) {
        if self.arguments.partial != ElementTypeCode::F32 {
            // SAFETY: the element exists, as this function requires, and inboxes are aligned.
            return unsafe { store::<F>(address, index, sum) };
        }
        let numbers: *mut f32 = ptr::with_exposed_provenance_mut(address.0 as usize);
        // SAFETY: as above.
        unsafe { numbers.add(index as usize).write(sum) };
    }

    /// # Safety
    /// As for [`Call::store_partial`].
    unsafe fn load_partial<F: MatrixFormat>(&self, address: DeviceAddress, index: u64) -> f32 {
        if self.arguments.partial != ElementTypeCode::F32 {
            // SAFETY: the element exists, as this function requires, and inboxes are aligned.
            return unsafe { load::<F>(address, index) };
        }
        let numbers: *const f32 = ptr::with_exposed_provenance(address.0 as usize);
        // SAFETY: as above.
        unsafe { numbers.add(index as usize).read() }
    }

    /// Sends this rank's finished rows to all peers.
    ///
    /// # Safety
    /// As for [`advance`], and all members have entered.
    unsafe fn send_finished(&self, epoch: u32) {
        let ReducedGemmArguments { shape, results, .. } = self.arguments;
        let rows = self.rows(self.rank);
        if rows.is_empty() {
            return;
        }
        let offset = rows.start * shape.c_stride * ELEMENT;
        for peer in self.peers() {
            let copy = RowsCopy {
                destination: DeviceAddress(results[peer].0 + offset),
                destination_stride: shape.c_stride * ELEMENT,
                source: DeviceAddress(self.arguments.c.0 + offset),
                source_stride: shape.c_stride * ELEMENT,
                bytes: shape.n * ELEMENT,
                rows: rows.end - rows.start,
                ..RowsCopy::default()
            };
            // SAFETY: all results and words are live, as this function requires.
            unsafe {
                copies::copy_rows(&copy);
                self.raise(peer, Kind::Finished, epoch);
            }
        }
    }

    /// Does the rest of a call that has begun. An error is the step with which the caller returns: also if a wait has given up,
    /// so that no word is raised after it.
    ///
    /// # Safety
    /// As for [`advance`].
    unsafe fn go_on<F: MatrixFormat>(&self, pending: &mut Pending) -> Result<(), Step> {
        let epoch = pending.expected;
        let is_sent_on = self.arguments.all != 0 && !self.broadcast;
        // SAFETY: this function has the same conditions. A stage begins when the one before it has ended.
        unsafe {
            if pending.stage == 0 {
                if pending.begin() {
                    self.peers()
                        .for_each(|peer| self.raise(peer, Kind::Entered, epoch));
                }
                self.await_peers(Kind::Entered, |_| true, pending)?;
                self.send::<F>(epoch);
                pending.stage = 1;
            }
            if pending.stage == 1 {
                let adds = !self.added_by(self.rank).is_empty();
                self.await_peers(Kind::Partials, |_| adds, pending)?;
                self.add::<F>();
                if is_sent_on {
                    self.send_finished(epoch);
                }
                pending.stage = 2;
            }
            let sends = |peer| is_sent_on && !self.rows(peer).is_empty();
            self.await_peers(Kind::Finished, sends, pending)
        }
    }
}

/// Advances a GEMM + reduce-scatter or GEMM + all-reduce as far as possible without waiting.
///
/// # Safety
/// All memory in `arguments` is live, and [`check_reduced`] has passed.
pub(crate) unsafe fn advance(
    arguments: &ReducedGemmArguments,
    pending: &mut Option<Pending>,
) -> Step {
    let call = Call {
        arguments,
        rank: arguments.group.rank as usize,
        world: arguments.group.world as usize,
        broadcast: is_broadcast(&arguments.problem()),
    };
    if pending.is_none() {
        // As the GPUs' kernels do, whose GEMMs would otherwise take their whole time each.
        // SAFETY: the watch's words are null or live, as this function requires.
        if unsafe { is_aborted(&arguments.group.watch) } {
            return Step::Done;
        }
        // SAFETY: this rank's words are live, as this function requires.
        let calls = unsafe { word_at(call.calls()) };
        let epoch = calls.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        *pending = Some(Pending::new(epoch));
    }
    let Some(pending) = pending else {
        return Step::Done;
    };
    debug_assert!(known(arguments.shape.element));
    // SAFETY: this function has the same conditions.
    let done = unsafe {
        match arguments.shape.element {
            ElementTypeCode::F16 => call.go_on::<Half>(pending),
            _ => call.go_on::<Bfloat>(pending),
        }
    };
    match done {
        Ok(()) => Step::Done,
        Err(step) => step,
    }
}
