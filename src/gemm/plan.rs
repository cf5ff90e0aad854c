//! From a problem to the steps of one rank: a pure function.
//!
//! In step `i` of `world` rank `r` receives the shard of rank `(r + i) mod world` and sends its own to rank
//! `(r - i) mod world`. So each step is a permutation of the ranks, and no two use a link at once as long as
//! they keep step: these are the indices of nvFuser's pipeline. Step 0 is the rank's own shard, which needs no
//! copy. The GEMMs of shards use `streams` streams in turn, step `i` stream `i mod streams`.
//!
//! Rules that prevent deadlocks:
//! - The start barrier comes before everything else, on the caller's stream.
//! - A grid that is its own barrier stores in its first blocks, which wait only until all ranks' grids have
//!   begun. These blocks must be co-resident, whatever else runs. So two such calls on two streams of a rank
//!   must not be under way at once, just as two collectives that fill the device must not.
//! - Copies are enqueued before the grid that waits for them, which may fill the device. Nothing that such a
//!   grid waits for needs a compute unit: its plan has no signal, turn or exchange, only copies.
//! - A GEMM of cuBLASLt or hipBLASLt does not wait; its input has arrived before it begins.
//! - Ranks that keep step do so in every step, even if a shard is empty.

use crate::backend::abi::{GatherMode, GemmLayout};
use crate::base::gemm_names::{GemmAlgorithm, GemmTransport};
use crate::base::gemm_shape::{Division, GemmShape};
use crate::base::names::ElementType;
use crate::gemm::streams::{GemmStream, PlanStep, StreamOrder};
use std::fmt;

/// The rows that are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GemmPart {
    /// This rank's shard, in the caller's buffer.
    Own,
    /// A peer's shard, in the gathered `A`.
    Shard(usize),
    /// All of the gathered `A`.
    Whole,
}

/// A step of one rank, in the order in which steps are enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GemmStep {
    /// Makes the caller's stream wait until all ranks have reached the call: their shards are ready, and no rank still
    /// reads the `A` that the last call gathered.
    Start,
    /// Makes the caller's stream wait until all ranks have reached the end: no rank still reads this rank's shard.
    End,
    /// Makes a side stream wait for the caller's stream.
    Fork {
        /// The stream.
        on: GemmStream,
    },
    /// Makes the caller's stream wait for a side stream.
    Join {
        /// The stream.
        on: GemmStream,
    },
    /// Copies this rank's shard to its own gathered `A`.
    Keep {
        /// The stream.
        on: GemmStream,
    },
    /// Copies a peer's shard to this rank's gathered `A`.
    Get {
        /// The peer.
        peer: usize,
        /// The stream.
        on: GemmStream,
    },
    /// Copies a chunk of this rank's shard to a peer's gathered `A`; chunk 0 is the whole shard in a pipeline.
    Put {
        /// The peer.
        peer: usize,
        /// The chunk.
        chunk: u32,
        /// The stream.
        on: GemmStream,
    },
    /// Sets a peer's arrival word for a chunk of this rank's shard, by the copy engine.
    Arrive {
        /// The peer.
        peer: usize,
        /// The chunk.
        chunk: u32,
        /// The stream.
        on: GemmStream,
    },
    /// Signals a peer that this rank's shard has arrived there.
    Give {
        /// The peer.
        peer: usize,
        /// The stream.
        on: GemmStream,
    },
    /// Waits for a peer's signal that its shard has arrived here.
    Receive {
        /// The peer.
        peer: usize,
        /// The stream.
        on: GemmStream,
    },
    /// Passes a link on: signals the rank that uses this rank's link next, and waits for the signal of the rank
    /// that has used this rank's next link.
    Turn {
        /// The rank to signal.
        to: usize,
        /// The rank to wait for.
        from: usize,
        /// The stream.
        on: GemmStream,
    },
    /// Sends this rank's shard and receives another shard at the same time, by NCCL or RCCL.
    Exchange {
        /// The rank that receives this rank's shard.
        to: usize,
        /// The rank whose shard arrives.
        from: usize,
        /// The stream.
        on: GemmStream,
    },
    /// Records an event on a stream.
    Mark {
        /// The event.
        event: usize,
        /// The stream.
        on: GemmStream,
    },
    /// Makes a stream wait for an event.
    Await {
        /// The event.
        event: usize,
        /// The stream.
        on: GemmStream,
    },
    /// Gathers all shards, by a collective on the caller's stream.
    Gather,
    /// Copies columns that arrived as one contiguous block to their place in the gathered `A`.
    Spread {
        /// The rank whose columns they are.
        shard: usize,
        /// The stream.
        on: GemmStream,
    },
    /// Runs a GEMM of cuBLASLt or hipBLASLt.
    Multiply {
        /// The rows that are multiplied.
        part: GemmPart,
        /// The stream.
        on: GemmStream,
    },
    /// Computes all of `C` on the caller's stream, by the kernel that multiplies each chunk once it has
    /// arrived.
    Gathered {
        /// How chunks arrive.
        mode: GatherMode,
    },
}

/// The input of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) rank: usize,
    pub(super) world: usize,
    pub(super) division: Division,
    /// The chosen algorithm, not automatic.
    pub(super) algorithm: GemmAlgorithm,
    pub(super) transport: GemmTransport,
    pub(super) streams: usize,
    pub(super) ordered: bool,
    /// How many peers at once keep the links busy.
    pub(super) fanout: u32,
    /// Whether the pushing kernel is its own barrier.
    pub(super) at_once: bool,
    /// Whether this rank's own shard must be in the gathered `A`, too.
    pub(super) keep: bool,
    /// Rows of a chunk, and chunks of a full shard.
    pub(super) chunk: u64,
    pub(super) chunks: u32,
}

impl Problem {
    /// Returns the number of streams for copies.
    pub(super) fn lanes(&self) -> usize {
        let peers = self.world - 1;
        match (self.algorithm, self.transport) {
            // A communicator of NCCL runs one call after the other.
            (_, GemmTransport::Nccl) => 1,
            (GemmAlgorithm::Pipeline, _) if !self.ordered && self.fanout <= 1 => {
                self.streams.min(peers)
            }
            _ => (self.fanout.max(1) as usize).min(peers),
        }
    }

    /// Returns whether copies keep step with the neighbor.
    fn turns(&self) -> bool {
        let copies = matches!(self.transport, GemmTransport::Get | GemmTransport::Put);
        copies && self.ordered && self.fanout <= 1 && self.world > 2
    }

    /// Returns whether shards arrive as blocks that are not part of the gathered `A`.
    pub(super) fn staged(&self) -> bool {
        let blocks = self.algorithm == GemmAlgorithm::Baseline
            || self.algorithm == GemmAlgorithm::Pipeline && self.transport == GemmTransport::Nccl;
        blocks && self.division.by_columns() && self.world > 1
    }

    /// Returns the first row of a chunk in a shard, and its number of rows.
    pub(super) fn chunk_rows(&self, shard: usize, chunk: u32) -> (u64, u64) {
        let rows = self.division.rows(shard);
        let first = (u64::from(chunk) * self.chunk).min(rows);
        (first, (rows - first).min(self.chunk))
    }

    /// Returns the ranks of step `i`: the one whose shard arrives, and the one that receives this rank's.
    fn peers(&self, step: usize) -> (usize, usize) {
        let from = (self.rank + step) % self.world;
        let to = (self.rank + self.world - step) % self.world;
        (from, to)
    }

    /// Returns the steps of this rank.
    pub(super) fn steps(&self) -> Vec<GemmStep> {
        let mut steps = Vec::new();
        if self.world == 1 {
            self.push_keep(&mut steps, self.keep, GemmStream::Main);
            let (part, on) = (GemmPart::Own, GemmStream::Main);
            steps.push(GemmStep::Multiply { part, on });
            return steps;
        }
        match (self.algorithm, self.transport) {
            (GemmAlgorithm::Pipeline, _) => self.pipeline(&mut steps),
            (GemmAlgorithm::Pull, _) => {
                let mode = GatherMode::PULL;
                steps.extend([GemmStep::Start, GemmStep::Gathered { mode }, GemmStep::End]);
            }
            (GemmAlgorithm::Push, GemmTransport::Kernel) if self.at_once => {
                let mode = GatherMode::PUSH_AT_ONCE;
                steps.push(GemmStep::Gathered { mode });
            }
            (GemmAlgorithm::Push, GemmTransport::Kernel) => {
                let mode = GatherMode::PUSH;
                steps.extend([GemmStep::Start, GemmStep::Gathered { mode }]);
            }
            (GemmAlgorithm::Push, _) => self.push(&mut steps),
            _ => self.baseline(&mut steps),
        }
        steps
    }

    fn push_keep(&self, steps: &mut Vec<GemmStep>, keep: bool, on: GemmStream) {
        if keep && !self.division.is_empty(self.rank) {
            steps.push(GemmStep::Keep { on });
        }
    }

    fn baseline(&self, steps: &mut Vec<GemmStep>) {
        steps.push(GemmStep::Gather);
        let on = GemmStream::Main;
        if self.staged() {
            let shards = (0..self.world).filter(|&shard| !self.division.is_empty(shard));
            steps.extend(shards.map(|shard| GemmStep::Spread { shard, on }));
        }
        let part = GemmPart::Whole;
        steps.push(GemmStep::Multiply { part, on });
    }

    fn pipeline(&self, steps: &mut Vec<GemmStep>) {
        let lanes = self.lanes();
        // Columns are summed over, so all of them must have arrived.
        let by_columns = self.division.by_columns();
        let products = if by_columns {
            0
        } else {
            self.streams.min(self.world)
        };
        steps.push(GemmStep::Start);
        let copies = (0..lanes).map(GemmStream::Copies);
        let sides = copies.chain((0..products).map(GemmStream::Gemms));
        steps.extend(sides.clone().map(|on| GemmStep::Fork { on }));
        for step in 1..self.world {
            self.copy(steps, step, GemmStream::Copies((step - 1) % lanes));
        }
        // Last, since no rank waits for it.
        self.push_keep(steps, self.keep || by_columns, GemmStream::Copies(0));
        for step in 0..self.world {
            let (from, _) = self.peers(step);
            if self.division.is_empty(from) {
                continue;
            }
            let on = match by_columns {
                true => GemmStream::Main,
                false => GemmStream::Gemms(step % products),
            };
            if step > 0 && self.transport == GemmTransport::Put {
                steps.push(GemmStep::Receive { peer: from, on });
            } else if step > 0 && !by_columns {
                steps.push(GemmStep::Await { event: step, on });
            }
            if !by_columns {
                let part = match step {
                    0 => GemmPart::Own,
                    _ => GemmPart::Shard(from),
                };
                steps.push(GemmStep::Multiply { part, on });
            }
        }
        steps.extend(sides.map(|on| GemmStep::Join { on }));
        if by_columns {
            let (part, on) = (GemmPart::Whole, GemmStream::Main);
            steps.push(GemmStep::Multiply { part, on });
        }
        if self.transport == GemmTransport::Get {
            steps.push(GemmStep::End);
        }
    }

    /// Adds the copy of step `step`.
    fn copy(&self, steps: &mut Vec<GemmStep>, step: usize, on: GemmStream) {
        let (from, to) = self.peers(step);
        let here = !self.division.is_empty(self.rank);
        let there = !self.division.is_empty(from);
        let (before, after) = (self.peers(self.world - 1).0, self.peers(1).0);
        let turn = match self.transport {
            GemmTransport::Get => {
                if there {
                    steps.push(GemmStep::Get { peer: from, on });
                }
                // The rank after this one has loaded, in this step, from the rank that this one loads from in
                // the next.
                (before, after)
            }
            GemmTransport::Nccl => {
                if here || there {
                    steps.push(GemmStep::Exchange { to, from, on });
                }
                if there && self.staged() {
                    steps.push(GemmStep::Spread { shard: from, on });
                }
                (before, after)
            }
            _ => {
                if here {
                    let chunk = 0;
                    steps.push(GemmStep::Put {
                        peer: to,
                        chunk,
                        on,
                    });
                    steps.push(GemmStep::Give { peer: to, on });
                }
                (after, before)
            }
        };
        if there && self.transport != GemmTransport::Put && !self.division.by_columns() {
            steps.push(GemmStep::Mark { event: step, on });
        }
        // After the last copy no rank takes the link over.
        if self.turns() && step < self.world - 1 {
            let (to, from) = turn;
            steps.push(GemmStep::Turn { to, from, on });
        }
    }

    fn push(&self, steps: &mut Vec<GemmStep>) {
        let lanes = self.lanes();
        steps.push(GemmStep::Start);
        steps.extend((0..lanes).map(|lane| GemmStep::Fork {
            on: GemmStream::Copies(lane),
        }));
        for step in 1..self.world {
            let (_, peer) = self.peers(step);
            let on = GemmStream::Copies((step - 1) % lanes);
            for chunk in 0..self.chunks {
                if self.division.is_empty(self.rank) || self.chunk_rows(self.rank, chunk).1 == 0 {
                    continue;
                }
                steps.push(GemmStep::Put { peer, chunk, on });
                steps.push(GemmStep::Arrive { peer, chunk, on });
            }
        }
        self.push_keep(steps, self.keep, GemmStream::Copies(0));
        let mode = GatherMode::WAIT;
        steps.push(GemmStep::Gathered { mode });
        steps.extend((0..lanes).map(|lane| GemmStep::Join {
            on: GemmStream::Copies(lane),
        }));
    }
}

impl GemmStep {
    /// Returns the step's stream. A fork or join also concerns the caller's stream.
    pub fn on(&self) -> GemmStream {
        match *self {
            Self::Start | Self::End | Self::Gather | Self::Gathered { .. } => GemmStream::Main,
            Self::Fork { on }
            | Self::Join { on }
            | Self::Keep { on }
            | Self::Get { on, .. }
            | Self::Put { on, .. }
            | Self::Arrive { on, .. }
            | Self::Give { on, .. }
            | Self::Receive { on, .. }
            | Self::Turn { on, .. }
            | Self::Exchange { on, .. }
            | Self::Mark { on, .. }
            | Self::Await { on, .. }
            | Self::Spread { on, .. }
            | Self::Multiply { on, .. } => on,
        }
    }
}

impl PlanStep for GemmStep {
    fn order(&self) -> Option<StreamOrder> {
        match *self {
            Self::Fork { on } => Some(StreamOrder::Fork(on)),
            Self::Join { on } => Some(StreamOrder::Join(on)),
            Self::Mark { event, on } => Some(StreamOrder::Mark(event, on)),
            Self::Await { event, on } => Some(StreamOrder::Await(event, on)),
            _ => None,
        }
    }
}

impl fmt::Display for GemmStep {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: ", self.on())?;
        match self {
            Self::Start => write!(formatter, "wait until all ranks have started"),
            Self::End => write!(formatter, "wait until all ranks have finished reading"),
            Self::Fork { .. } => write!(formatter, "start after the caller's stream"),
            Self::Join { .. } => write!(formatter, "the caller's stream waits for this one"),
            Self::Keep { .. } => write!(formatter, "copy this rank's shard to the gathered A"),
            Self::Get { peer, .. } => {
                write!(formatter, "copy the shard of rank {peer} to this rank")
            }
            Self::Put { peer, chunk, .. } => {
                write!(
                    formatter,
                    "copy chunk {chunk} of this rank's shard to rank {peer}"
                )
            }
            Self::Arrive { peer, chunk, .. } => {
                write!(
                    formatter,
                    "signal rank {peer} that chunk {chunk} has arrived"
                )
            }
            Self::Give { peer, .. } => write!(formatter, "signal rank {peer}"),
            Self::Receive { peer, .. } => write!(formatter, "wait for the signal of rank {peer}"),
            Self::Turn { to, from, .. } => {
                write!(
                    formatter,
                    "pass the link on to rank {to}, wait for rank {from}"
                )
            }
            Self::Exchange { to, from, .. } => write!(
                formatter,
                "send this rank's shard to rank {to}, receive the shard of rank {from}"
            ),
            Self::Mark { event, .. } => write!(formatter, "record event {event}"),
            Self::Await { event, .. } => write!(formatter, "wait for event {event}"),
            Self::Gather => write!(formatter, "gather all shards"),
            Self::Spread { shard, .. } => {
                write!(
                    formatter,
                    "copy the columns of rank {shard} to their place in the gathered A"
                )
            }
            Self::Multiply { part, .. } => match part {
                GemmPart::Own => write!(formatter, "multiply this rank's shard"),
                GemmPart::Shard(rank) => write!(formatter, "multiply the shard of rank {rank}"),
                GemmPart::Whole => write!(formatter, "multiply the gathered A"),
            },
            Self::Gathered { mode } => write!(
                formatter,
                "{}multiply each chunk once it has arrived ({})",
                match *mode {
                    GatherMode::PUSH_AT_ONCE => "wait until all ranks have started, and ",
                    _ => "",
                },
                mode.name()
            ),
        }
    }
}

/// Returns the layout of a GEMM.
pub(super) fn layout(
    shape: &GemmShape,
    element: ElementType,
    problem: &Problem,
    part: GemmPart,
) -> GemmLayout {
    let division = &problem.division;
    let (rows, stride) = match part {
        GemmPart::Own => (division.rows(problem.rank), division.columns(problem.rank)),
        GemmPart::Shard(rank) => (division.rows(rank), division.k),
        GemmPart::Whole => (division.m, division.k),
    };
    shape.raw(element, rows, stride)
}

#[cfg(test)]
#[path = "plan_model.rs"]
mod model;
#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
