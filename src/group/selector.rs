//! The selector: chooses algorithm and grid of each call.
//!
//! The table is data: rows that the backend measured for its devices, preceded by the caller's
//! ([`crate::Configuration::collective_rows`]). The first row that fits a call, and whose algorithm can serve
//! it, wins. The choice depends only on what is the same on all members, since all must choose alike.

use crate::backend::abi::*;
use crate::backend::{Backend, CallResult, CollectiveKernels};
use crate::base::error::{Error, Result};
use crate::base::names::MulticastSupport;
use crate::group::choice::{Choice, Constraints, Query};
use crate::group::families::{self, FAMILIES, most_blocks};
use crate::group::inbox::{Division, Inboxes};
use crate::group::named::{MOST_THREADS, THREAD_STEP, check_grid, has_no_algorithm};
use crate::group::operations::{
    algorithms, fallbacks, fits_place, kernel_of, multicast_only_by_name, multicast_reduces,
    own_memory_fallbacks, reduces, takes_own_memory, tuning_sources, without_multicast,
};
use crate::group::provider::Provider;
use crate::group::residency::Residency;
use crate::memory::multicast::object::MulticastStatus;
use std::cmp::Reverse;

/// The device is queried for resident blocks at multiples of this many threads. A block in between counts as
/// the next larger.
const ASKED_STEP: u32 = 128;
const ASKED: usize = (MOST_THREADS / ASKED_STEP) as usize;
/// Most rows of a backend's table; a longer one is a fault of the backend.
const MOST_ROWS: u32 = 4096;

/// The grid of a call for which no table has a row: enough to keep a link busy, and few enough to be
/// co-resident on any device. A starting point, not measured.
const DEFAULT_BLOCKS: u32 = 16;
const DEFAULT_THREADS: u32 = 512;

/// The table and the device's limits, read once.
pub struct Selector {
    /// In the order of their operations; of each, the caller's come first.
    rows: Vec<CollectiveRow>,
    resident: Vec<[u32; ASKED]>,
    /// Whether kernels run as grids: the host backend has none.
    grids: bool,
    copy_engine: bool,
    /// Bytes of each rank's inbox; 0 if pieces need none.
    inbox_bytes: u64,
    residency: Residency,
    multicast: MulticastStatus,
}

impl Selector {
    /// Reads the backend's table; `rows` take precedence over it. `units`: SMs or compute units of the device.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for an invalid row; the backend's errors.
    pub fn read(
        backend: &Backend,
        (capabilities, units): (&Capabilities, u32),
        rows: &[CollectiveRow],
        rank: usize,
    ) -> Result<Self> {
        let grids = capabilities.flags & CAPABILITY_LAUNCH != 0;
        if let Some(row) = rows.iter().find(|row| !is_sound(row, grids)) {
            return Err(Error::InvalidArgument {
                rank,
                operation: "read the tuning rows",
                message: format!(
                    "invalid {row:?}: threads must be a multiple of {THREAD_STEP} up to {MOST_THREADS}, blocks at \
                     most {SLOT_BLOCKS}, and the operation must have the algorithm"
                ),
            });
        }
        let failed = |failure| Error::backend(rank, "read the tuning rows", failure);
        let mut selector = Self {
            rows: rows.to_vec(),
            resident: vec![[0; ASKED]; FAMILIES],
            grids,
            copy_engine: capabilities.flags & CAPABILITY_COPY_ENGINE != 0,
            inbox_bytes: capabilities.reduce_inbox_bytes.into(),
            residency: Residency::new(if grids { units } else { 0 }),
            multicast: MulticastStatus::default(),
        };
        match rows_of(|index| backend.collective_row(index)) {
            Ok(rows) => selector.rows.extend(rows),
            // A plugin that is older than collectives has no table.
            Err(failure) if failure.status == Status::UNSUPPORTED => {}
            Err(failure) => return Err(failed(failure)),
        }
        selector.rows.sort_by_key(|row| row.operation.0);
        for (family, (kernel, element)) in families::all().enumerate() {
            for step in 0..ASKED {
                let threads = (step as u32 + 1) * ASKED_STEP;
                selector.resident[family][step] =
                    match backend.resident_blocks(kernel, element, threads) {
                        Ok(blocks) => blocks,
                        Err(failure) if failure.status == Status::UNSUPPORTED => 0,
                        Err(failure) => return Err(failed(failure)),
                    };
            }
        }
        Ok(selector)
    }

    /// Makes the selector of a device that is not open: with a copy engine, and large enough for every grid. It has no
    /// multicast.
    pub fn unopened(mut rows: Vec<CollectiveRow>, grids: bool) -> Self {
        rows.sort_by_key(|row| row.operation.0);
        Self {
            rows,
            resident: vec![[u32::MAX; ASKED]; FAMILIES],
            grids,
            copy_engine: true,
            inbox_bytes: if grids { u64::MAX } else { 0 },
            residency: Residency::new(0),
            multicast: MulticastStatus::default(),
        }
    }

    /// Sets the largest number of ranks that share a device, the same on all ranks.
    pub fn share_device(&mut self, sharers: u32) {
        self.residency.share_device(sharers);
    }

    /// Returns the budget of blocks that wait for peers.
    #[inline]
    pub fn residency(&self) -> &Residency {
        &self.residency
    }

    /// Returns whether multicast may be chosen without being named: only with a real switch.
    pub fn prefers_multicast(&self) -> bool {
        self.multicast.support == MulticastSupport::Hardware
    }

    /// Sets the status of multicast, the same on all ranks.
    pub fn set_multicast(&mut self, status: MulticastStatus) {
        self.multicast = status;
    }

    /// Returns whether kernels run as grids; on the host backend one thread does all.
    pub fn has_grids(&self) -> bool {
        self.grids
    }

    /// Returns, as text, what must be the same on all ranks. Leaves out the residency of multicast kernels: if
    /// one rank has none, all do without multicast.
    pub fn describe(&self) -> String {
        let resident = self.resident_of(|kernel| !families::is_multicast(kernel));
        format!(
            "{:?}{resident:?}{} {} {}",
            self.rows,
            self.copy_engine,
            self.inbox_bytes,
            self.residency.units()
        )
    }

    /// Returns, as text, what must be the same on all ranks that use multicast.
    pub fn describe_multicast(&self) -> String {
        format!("{:?}", self.resident_of(families::is_multicast))
    }

    fn resident_of(&self, wanted: impl Fn(CollectiveKernel) -> bool) -> Vec<[u32; ASKED]> {
        let all = families::all().zip(&self.resident);
        let wanted = all.filter(|((kernel, _), _)| wanted(*kernel));
        wanted.map(|(_, resident)| *resident).collect()
    }

    /// Returns the division of each rank's inbox for at most `channels` channels in a group of
    /// `world` ranks, if there is room, and for no more than the largest resident grid has.
    pub fn inbox(&self, world: usize, channels: u32) -> Division {
        let all = families::all().zip(&self.resident);
        let pushing = all.filter(|((kernel, _), _)| takes_inbox(*kernel));
        let resident = pushing.flat_map(|(_, resident)| {
            let steps = resident.iter().zip(1..);
            steps.map(|(&blocks, step)| {
                blocks.min(SLOT_BLOCKS) * step * ASKED_STEP / PUSH_PAIR_THREADS
            })
        });
        let most = resident.max().unwrap_or(0);
        Division::new(world, self.inbox_bytes, channels.min(most))
    }

    /// Returns the largest call that each row with one of `algorithms` decides in a group of `world` ranks, with the
    /// row: of symmetric buffers, or of memory that only its rank knows. Leaves out rows that others hide from every call.
    pub fn largest_calls(
        &self,
        world: usize,
        algorithms: &[AlgorithmCode],
        own_memory: bool,
    ) -> impl Iterator<Item = (Query, CollectiveRow)> {
        let operations = CollectiveOperationCode::BROADCAST.0..=CollectiveOperationCode::EXCHANGE.0;
        let calls = operations.flat_map(|operation| {
            [false, true].map(|in_place| (CollectiveOperationCode(operation), in_place))
        });
        calls.flat_map(move |(operation, in_place)| {
            let rows = self.rows.iter().filter(move |row| {
                algorithms.contains(&row.algorithm)
                    && tuning_sources(operation).contains(&row.operation)
                    && world <= row.world as usize
            });
            rows.filter_map(move |row| {
                // Of an element type that every algorithm has. Smaller calls have more rows to choose from, so that a
                // row that does not decide its largest call decides none.
                let query = Query {
                    operation,
                    element: ElementTypeCode::BF16,
                    reduce: ReduceOpCode::SUM,
                    world: world as u32,
                    bytes: row.bytes,
                    in_place,
                    own_memory,
                    nccl: false,
                    multicast: false,
                    push_channels: u32::MAX,
                    lamport_bytes: 0,
                };
                let found = self.row(&query, &Constraints::default()).ok()?;
                (found == *row).then_some((query, found))
            })
        })
    }

    /// Returns the number of channels for pieces in these inboxes; unlimited if the backend needs
    /// none.
    pub fn push_channels(&self, inboxes: Option<&Inboxes>) -> u32 {
        self.channels_of(inboxes.map(|inboxes| &inboxes.division))
    }

    /// Returns the number of channels for pieces of an inbox with this division.
    pub fn channels_of(&self, inbox: Option<&Division>) -> u32 {
        match inbox {
            _ if self.inbox_bytes == 0 => u32::MAX,
            Some(inbox) => inbox.channels,
            None => 0,
        }
    }

    /// Chooses algorithm and grid for a call.
    ///
    /// # Errors
    /// The reason why the constraints cannot be met, and the possible algorithms.
    pub fn choose(
        &self,
        query: &Query,
        constraints: &Constraints,
    ) -> std::result::Result<Choice, String> {
        let row = self.row(query, constraints)?;
        let Some(kernel) = kernel_of(query.operation, row.algorithm) else {
            // Copies need no kernel, except that one may copy this rank's own part.
            let (blocks, threads) = match row.algorithm {
                AlgorithmCode::COPY_ENGINE if row.threads > 0 => (row.blocks, row.threads),
                _ => (0, 0),
            };
            return Ok(Choice {
                algorithm: row.algorithm,
                blocks,
                threads,
                concurrent: constraints.concurrent.unwrap_or(row.concurrent),
            });
        };
        let threads = constraints.threads.unwrap_or(row.threads);
        check_grid(most_blocks(kernel), row.algorithm.name(), constraints)?;
        let mut choice = Choice {
            algorithm: row.algorithm,
            blocks: 1,
            threads: 1,
            concurrent: constraints.concurrent.unwrap_or(row.concurrent),
        };
        if !self.grids {
            // One thread does the work of a grid of any size.
            return Ok(choice);
        }
        let mut threads = threads.clamp(THREAD_STEP, MOST_THREADS);
        let most = kernels(kernel, row.algorithm)
            .map(|kernel| self.most_resident(kernel, query.element, threads))
            .min()
            .unwrap_or(0);
        let mut room = u32::MAX;
        if takes_inbox(kernel) {
            if constraints
                .threads
                .is_some_and(|threads| !threads.is_multiple_of(PUSH_THREAD_STEP))
            {
                return Err(format!(
                    "{threads} threads; use a multiple of {PUSH_THREAD_STEP} for {}, whose warps work in pairs",
                    row.algorithm.name()
                ));
            }
            threads = threads.next_multiple_of(PUSH_THREAD_STEP);
            room = query.push_channels / (threads / PUSH_PAIR_THREADS);
        }
        if most == 0 {
            return Err(format!(
                "a block of {threads} threads of {} cannot be resident on this device{}; use fewer threads, or \
                 another algorithm",
                kernel.name(),
                self.residency.because_shared()
            ));
        }
        let named = constraints
            .blocks
            .map(|blocks| match constraints.fewer_blocks {
                true => blocks.min(most).min(room),
                false => blocks,
            });
        if let Some(blocks) = named.filter(|&blocks| blocks > most) {
            return Err(format!(
                "{blocks} blocks of {threads} threads wait for each other, but only {most} can be co-resident on \
                 this device{}; use fewer",
                self.residency.because_shared()
            ));
        }
        if let Some(blocks) = named.filter(|&blocks| blocks > room) {
            return Err(format!(
                "{blocks} blocks of {threads} threads push through inboxes with channels for {room} of them; use \
                 fewer, or start with a tuning row that pushes with this grid"
            ));
        }
        choice.threads = threads;
        // An inbox has channels for at least one block.
        choice.blocks = named.unwrap_or(row.blocks).min(room).clamp(1, most);
        Ok(choice)
    }

    /// Returns the most blocks of a grid whose blocks wait for peers: its share of the device.
    pub fn most_resident(
        &self,
        kernel: CollectiveKernel,
        element: ElementTypeCode,
        threads: u32,
    ) -> u32 {
        let step = (threads.div_ceil(ASKED_STEP).max(1) as usize - 1).min(ASKED - 1);
        let resident =
            families::index(kernel, element).map_or(0, |family| self.resident[family][step]);
        self.residency.limit(resident).min(most_blocks(kernel))
    }

    /// Returns the rows of an operation. Every call looks for one, and a table has hundreds.
    fn rows_of_operation(&self, operation: CollectiveOperationCode) -> &[CollectiveRow] {
        let begin = self
            .rows
            .partition_point(|row| row.operation.0 < operation.0);
        let rows = &self.rows[begin..];
        &rows[..rows.partition_point(|row| row.operation == operation)]
    }

    /// Returns the row that applies to a call.
    fn row(
        &self,
        query: &Query,
        constraints: &Constraints,
    ) -> std::result::Result<CollectiveRow, String> {
        let named = match (constraints.provider, constraints.algorithm) {
            (
                Provider::Nccl | Provider::NcclWindows,
                AlgorithmCode::AUTOMATIC | AlgorithmCode::VENDOR,
            ) => AlgorithmCode::VENDOR,
            (Provider::Nccl | Provider::NcclWindows, other) => {
                return Err(format!(
                    "{} is an algorithm of symmem, which this provider excludes; leave the algorithm or the \
                     provider automatic",
                    other.name()
                ));
            }
            (Provider::Symmem, AlgorithmCode::VENDOR) => {
                return Err("`Nccl` needs NCCL or RCCL; `Provider::Symmem` excludes both".into());
            }
            // None of the others below takes its place there.
            (_, named) if query.own_memory && !takes_own_memory(named) => named,
            // Push if there is an inbox; otherwise pull the same data.
            (_, AlgorithmCode::PUSH)
                if reduces(query.operation) && self.lacks(query, AlgorithmCode::PUSH) =>
            {
                match query.operation {
                    CollectiveOperationCode::REDUCE_SCATTER => AlgorithmCode::ONE_SHOT,
                    _ => AlgorithmCode::TWO_SHOT,
                }
            }
            // The same data with flags beside it, if there is no inbox or no kernel.
            (_, AlgorithmCode::PIECES)
                if algorithms(query.operation).contains(&AlgorithmCode::PIECES)
                    && self.lacks(query, AlgorithmCode::PIECES) =>
            {
                own_memory_fallbacks(query.operation)[0]
            }
            // The same data with flags beside it, if it has no room or no word that cannot be data.
            (_, named)
                if named.is_lamport()
                    && algorithms(query.operation).contains(&named)
                    && self.lacks(query, named) =>
            {
                match named {
                    AlgorithmCode::LAMPORT_TWO_SHOT => AlgorithmCode::PACKETS_TWO_SHOT,
                    _ => AlgorithmCode::PACKETS,
                }
            }
            // The equivalent algorithm over the members' own addresses, if multicast does not reach all memory
            // of the call or the switch lacks the reduction.
            (_, named)
                if named.is_multicast()
                    && self.multicast.support != MulticastSupport::None
                    && algorithms(query.operation).contains(&named)
                    && self.lacks(query, named) =>
            {
                without_multicast(query.operation, named)
            }
            (_, named) => named,
        };
        let fits = |row: &&CollectiveRow| query.world <= row.world && query.bytes <= row.bytes;
        if named != AlgorithmCode::AUTOMATIC {
            self.serves(query, named)?;
            let of_it = |operation| {
                let rows = self.rows_of_operation(operation).iter();
                rows.filter(move |row| row.algorithm == named)
            };
            let found = tuning_sources(query.operation)
                .iter()
                .find_map(|&operation| {
                    // For a larger call, the largest row of the group's size or the next one.
                    let of_world = of_it(operation).filter(|row| query.world <= row.world);
                    of_it(operation)
                        .find(fits)
                        .or_else(|| of_world.max_by_key(|row| (Reverse(row.world), row.bytes)))
                })
                .copied();
            return Ok(found.unwrap_or(default_row(query.operation, named)));
        }
        let nccl_allowed = constraints.provider == Provider::Automatic;
        // Emulated multicast exists for tests and is slower than other algorithms. And sums of lower precision
        // are made only on request.
        let by_itself = self.prefers_multicast()
            && !(reduces(query.operation) && multicast_only_by_name(query.element));
        let found = tuning_sources(query.operation)
            .iter()
            .find_map(|&operation| {
                let rows = self.rows_of_operation(operation).iter();
                rows.filter(fits).find(|row| {
                    (nccl_allowed || row.algorithm != AlgorithmCode::VENDOR)
                        && (!row.algorithm.is_multicast() || by_itself)
                        && self.obstacle(query, row.algorithm).is_none()
                })
            });
        Ok(found.copied().unwrap_or_else(|| {
            let first = |algorithm: &&AlgorithmCode| self.obstacle(query, **algorithm).is_none();
            let list = match query.own_memory {
                true => own_memory_fallbacks(query.operation),
                false => fallbacks(query.operation),
            };
            // Each list ends with an algorithm that serves every call.
            let algorithm = list.iter().find(first).unwrap_or(&list[0]);
            let row = default_row(query.operation, *algorithm);
            match query.own_memory {
                true => CollectiveRow {
                    blocks: own_memory_blocks(query.bytes),
                    ..row
                },
                false => row,
            }
        }))
    }

    /// Checks that an algorithm can serve a call; returns the reason and the possible algorithms if it cannot.
    fn serves(&self, query: &Query, algorithm: AlgorithmCode) -> std::result::Result<(), String> {
        let Some(obstacle) = self.obstacle(query, algorithm) else {
            return Ok(());
        };
        let name = algorithm.name();
        let why = match obstacle {
            Obstacle::Operation => has_no_algorithm(query.operation, algorithm),
            Obstacle::Nccl => {
                "NCCL or RCCL is not open for these ranks; see `Communicator::open_nccl`".into()
            }
            Obstacle::Multicast => {
                let reason = self.multicast.reason.as_deref();
                format!(
                    "multicast is not available: {}",
                    reason.unwrap_or("it is not enabled")
                )
            }
            Obstacle::CopyEngine => "this device has no copy engine".into(),
            Obstacle::Place => {
                let place = if query.in_place { "in" } else { "out of" };
                format!("{name} does not run {place} place")
            }
            Obstacle::OwnMemory => {
                format!("{name} needs symmetric buffers as source and destination")
            }
            Obstacle::Kernel => format!("this device has no kernel for {name}"),
        };
        let names: Vec<&str> = algorithms(query.operation)
            .iter()
            .filter(|&&other| {
                fits_place(query.operation, other, query.in_place)
                    && (other != AlgorithmCode::COPY_ENGINE || self.copy_engine)
                    && (other != AlgorithmCode::VENDOR || query.nccl)
                    && (!query.own_memory || takes_own_memory(other))
                    && !self.lacks(query, other)
            })
            .map(|algorithm| algorithm.name())
            .collect();
        Err(format!("{why}; possible algorithms: {}", names.join(", ")))
    }

    /// Returns why an algorithm cannot serve a call; `None` if it can. Makes no text, since a call passes rows that cannot.
    fn obstacle(&self, query: &Query, algorithm: AlgorithmCode) -> Option<Obstacle> {
        let operation = query.operation;
        if !algorithms(operation).contains(&algorithm) {
            Some(Obstacle::Operation)
        } else if algorithm == AlgorithmCode::VENDOR && !query.nccl {
            Some(Obstacle::Nccl)
        } else if algorithm.is_multicast() && self.multicast.support == MulticastSupport::None {
            Some(Obstacle::Multicast)
        } else if algorithm == AlgorithmCode::COPY_ENGINE && !self.copy_engine {
            Some(Obstacle::CopyEngine)
        } else if !fits_place(operation, algorithm, query.in_place) {
            Some(Obstacle::Place)
        } else if query.own_memory && !takes_own_memory(algorithm) {
            Some(Obstacle::OwnMemory)
        } else if self.lacks(query, algorithm) {
            Some(Obstacle::Kernel)
        } else {
            None
        }
    }

    /// Returns whether the call lacks what an algorithm needs: its kernel, its inbox, or the reach of
    /// multicast.
    fn lacks(&self, query: &Query, algorithm: AlgorithmCode) -> bool {
        kernel_of(query.operation, algorithm).is_some_and(|kernel| {
            let has_channels = query.push_channels >= MOST_THREADS / PUSH_PAIR_THREADS;
            let reached = !algorithm.is_multicast()
                || self.multicast.support != MulticastSupport::None
                    && query.multicast
                    && (!reduces(query.operation)
                        || multicast_reduces(query.element, query.reduce));
            let fits = (1..=query.lamport_bytes).contains(&query.sent_bytes(algorithm));
            let carries = match kernel {
                CollectiveKernel::REDUCE_LAMPORT => {
                    fits && ReduceLamportArguments::can_carry(query.element, query.reduce)
                }
                CollectiveKernel::MOVE_LAMPORT => fits,
                _ => true,
            };
            !reached
                || takes_inbox(kernel) && !has_channels
                || !carries
                || kernels(kernel, algorithm).any(|kernel| {
                    families::index(kernel, query.element).is_none_or(|family| {
                        self.resident[family].iter().all(|&blocks| blocks == 0)
                    })
                })
        })
    }
}

/// Why an algorithm cannot serve a call.
enum Obstacle {
    /// The operation has no such algorithm.
    Operation,
    /// No NCCL is open.
    Nccl,
    /// There is no multicast.
    Multicast,
    /// There is no copy engine.
    CopyEngine,
    /// It does not run in place, or only so.
    Place,
    /// It needs symmetric buffers.
    OwnMemory,
    /// The device lacks a kernel, or the call what the kernel needs.
    Kernel,
}

/// Returns the kernels of an algorithm whose first is `kernel`: what was reduced in pieces may be gathered in pieces.
fn kernels(
    kernel: CollectiveKernel,
    algorithm: AlgorithmCode,
) -> impl Iterator<Item = CollectiveKernel> {
    let gathers = algorithm == AlgorithmCode::PIECES && kernel != CollectiveKernel::PIECES;
    [kernel]
        .into_iter()
        .chain(gathers.then_some(CollectiveKernel::PIECES))
}

/// Returns whether the warps of a kernel work in pairs, through the channels of an inbox.
fn takes_inbox(kernel: CollectiveKernel) -> bool {
    [CollectiveKernel::REDUCE_PUSH, CollectiveKernel::PIECES].contains(&kernel)
}

/// Returns all rows of a table that returns `None` past the last.
///
/// # Errors
/// The table's failure.
pub fn rows_of(
    row: impl Fn(u32) -> CallResult<Option<CollectiveRow>>,
) -> CallResult<Vec<CollectiveRow>> {
    let rows = (0..MOST_ROWS).map_while(|index| row(index).transpose());
    rows.collect()
}

/// Returns whether a caller's row is valid. Without grids its geometry is ignored.
fn is_sound(row: &CollectiveRow, grids: bool) -> bool {
    let possible = row.threads <= MOST_THREADS
        && row.threads.is_multiple_of(THREAD_STEP)
        && row.blocks <= SLOT_BLOCKS;
    (possible || !grids) && algorithms(row.operation).contains(&row.algorithm)
}

fn default_row(operation: CollectiveOperationCode, algorithm: AlgorithmCode) -> CollectiveRow {
    CollectiveRow {
        operation,
        world: MAX_RANKS as u32,
        bytes: u64::MAX,
        algorithm,
        blocks: match algorithm {
            // A barrier moves nothing.
            _ if operation == CollectiveOperationCode::BARRIER => 1,
            AlgorithmCode::COPY_ENGINE if kernel_of(operation, algorithm).is_none() => 0,
            _ => DEFAULT_BLOCKS,
        },
        threads: DEFAULT_THREADS,
        concurrent: 0,
    }
}

/// Returns the blocks of a call that only LL packets serve: each has a unit for every thread, as far as there are regions
/// for blocks. 64 blocks take a quarter of the time of 16 from 1 to 64 MiB (`2026-11-24-own-memory-large-1xh200`).
fn own_memory_blocks(bytes: u64) -> u32 {
    const BLOCK_BYTES: u64 = 8 * DEFAULT_THREADS as u64;
    let blocks = u32::try_from(bytes / BLOCK_BYTES).unwrap_or(u32::MAX);
    blocks.clamp(DEFAULT_BLOCKS, PACKET_BLOCKS)
}

#[cfg(test)]
#[path = "selector_tests.rs"]
mod tests;
