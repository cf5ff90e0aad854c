//! From a problem to the steps of one rank: a pure function.
//!
//! A pipeline cuts each rank's rows of the sum into chunks. A block is a chunk of an owner's rows. Its sum starts at the
//! rank behind the owner and goes from rank to rank, up to the owner, which is last. So in hop `h` rank `r` adds to the
//! blocks of owner `r - 1 - h`, receives from rank `r - 1` and sends to rank `r + 1`: a ring, as in a ring reduce-scatter.
//!
//! Hop `h` of chunk `c` comes at place `c · world + h · (world + 1)`. So between a rank's GEMM of a block and the next rank's
//! GEMM of it there is at least one other GEMM, under which the sum travels, and chunks are complete one after the other,
//! not all at the end: a GEMM + all-reduce sends each on while the next is multiplied.
//!
//! What a step waits for comes at an earlier place of another rank's order, which is the same on all ranks. So even if all work
//! is on one stream, in the order in which it is enqueued, some rank can always go on. Waits are on the streams of GEMMs: beside a
//! GEMM, a wait would take the place of one of its blocks.
//!
//! No rank writes to a peer's memory before the start barrier, so no peer still reads what the last call left there. If copy
//! engines send sums, the barrier is on their stream, beside the first GEMM. Finished blocks do not need it, since every rank has
//! added to them, but their signals have its number.

use crate::base::gemm_names::GemmTransport;
use crate::gemm::streams::{GemmStream, PlanStep, StreamOrder};
use crate::gemm_reduce::options::GemmReduceAlgorithm;
use std::fmt;

/// What is done with the sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reduction {
    /// Rank `r` gets part `r` of its rows.
    Scatter,
    /// All ranks get all of it.
    All,
    /// All ranks get all of it, with a residual and a norm.
    Norm,
}

/// A block: a chunk of an owner's rows of the sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GemmBlock {
    /// The rank that adds last.
    pub owner: usize,
    /// The chunk of its rows.
    pub chunk: u32,
    /// How many ranks have added to it before.
    pub hop: usize,
}

/// A step of one rank, in the order in which steps are enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GemmReduceStep {
    /// Makes a stream wait until all ranks have reached the call.
    Start {
        /// The stream.
        on: GemmStream,
    },
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
    /// Multiplies all rows on the caller's stream.
    MultiplyAll,
    /// Multiplies the rows of a block, and adds the sum that has arrived from the previous rank, if there is one. The result
    /// goes to the next rank, or to memory from which copy engines send it; the owner's goes to `C`.
    Multiply {
        /// The block.
        block: GemmBlock,
        /// The stream.
        on: GemmStream,
    },
    /// Copies the sum of a block to the next rank.
    PutSum {
        /// The block.
        block: GemmBlock,
        /// The stream.
        on: GemmStream,
    },
    /// Signals the next rank that the sum of a block is there.
    GiveSum {
        /// The block.
        block: GemmBlock,
        /// The stream.
        on: GemmStream,
    },
    /// Waits for the sum of a block from the previous rank, and keeps the number that its signal had behind the wait: the signals
    /// of what this rank adds to the sum have that number.
    ReceiveSum {
        /// The block, as this rank adds to it.
        block: GemmBlock,
        /// The stream.
        on: GemmStream,
    },
    /// Copies a finished block of this rank's to a peer.
    PutBlock {
        /// The chunk.
        chunk: u32,
        /// The peer.
        peer: usize,
        /// The stream.
        on: GemmStream,
    },
    /// Signals a peer that a finished block of this rank's is there.
    GiveBlock {
        /// The chunk.
        chunk: u32,
        /// The peer.
        peer: usize,
        /// The stream.
        on: GemmStream,
    },
    /// Waits for a finished block of a peer's, on the caller's stream.
    ReceiveBlock {
        /// The chunk.
        chunk: u32,
        /// The peer.
        peer: usize,
    },
    /// Multiplies all rows and adds up all ranks' products, by one kernel on the caller's stream. It waits for the other ranks'.
    Reduced,
    /// Copies the sum from the operation's memory to `C`, on the caller's stream.
    Copy,
    /// Adds up all ranks' results by a collective, on the caller's stream, and normalises rows if the operation does.
    Reduce,
}

/// The input of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) rank: usize,
    pub(super) world: usize,
    pub(super) reduction: Reduction,
    /// The chosen algorithm, not automatic.
    pub(super) algorithm: GemmReduceAlgorithm,
    /// The chosen transport of a pipeline.
    pub(super) transport: GemmTransport,
    pub(super) streams: usize,
    /// Rows of the sum, of a full rank's part of them, and of a chunk of that.
    pub(super) rows: u64,
    pub(super) shard: u64,
    pub(super) chunk: u64,
    pub(super) chunks: u32,
    /// How many peers at once keep the links busy.
    pub(super) fanout: u32,
    /// Whether finished blocks are stored in `C` itself.
    pub(super) in_place: bool,
}

impl Problem {
    /// Returns the first row of a block, and its number of rows.
    pub(super) fn block_rows(&self, owner: usize, chunk: u32) -> (u64, u64) {
        let first = (owner as u64 * self.shard).min(self.rows);
        let end = (first + self.shard).min(self.rows);
        let start = (first + u64::from(chunk) * self.chunk).min(end);
        (start, (end - start).min(self.chunk))
    }

    /// Returns whether results go to peers while others are multiplied.
    pub(super) fn is_pipeline(&self) -> bool {
        self.algorithm == GemmReduceAlgorithm::Pipeline && self.world > 1
    }

    /// Returns whether one kernel multiplies and reduces.
    pub(super) fn is_fused(&self) -> bool {
        self.algorithm.is_fused() && self.world > 1
    }

    /// Returns whether sums are stored in the operation's memory, from which they are copied to `C`.
    pub(super) fn keeps_result(&self) -> bool {
        let stores = self.is_pipeline() || self.is_fused();
        stores && self.reduction == Reduction::All && !self.in_place
    }

    /// Returns the rank that this one sends sums to.
    pub(super) fn next(&self) -> usize {
        (self.rank + 1) % self.world
    }

    /// Returns the rank that this one receives sums from.
    pub(super) fn previous(&self) -> usize {
        (self.rank + self.world - 1) % self.world
    }

    /// Returns whether the owner's GEMM of a block is the last one.
    pub(super) fn is_last(&self, block: GemmBlock) -> bool {
        block.hop + 1 == self.world
    }

    /// Returns a block of this rank's own rows, to which it adds last.
    pub(super) fn own_block(&self, chunk: u32) -> GemmBlock {
        GemmBlock {
            owner: self.rank,
            chunk,
            hop: self.world - 1,
        }
    }

    /// Returns whether another rank gets a sum to which this one adds in a block.
    pub(super) fn is_passed_on(&self, block: GemmBlock) -> bool {
        !self.is_last(block) || self.reduction == Reduction::All
    }

    /// Returns the steps of this rank.
    pub(super) fn steps(&self) -> Vec<GemmReduceStep> {
        let mut steps = Vec::new();
        if self.is_pipeline() {
            self.pipeline(&mut steps);
        } else if self.is_fused() {
            steps.push(GemmReduceStep::Reduced);
        } else {
            steps.push(GemmReduceStep::MultiplyAll);
            if self.world > 1 || self.reduction == Reduction::Norm {
                steps.push(GemmReduceStep::Reduce);
            }
        }
        if self.keeps_result() {
            steps.push(GemmReduceStep::Copy);
        }
        steps
    }

    /// Returns the blocks in the order in which this rank multiplies them. Blocks without rows are left out, at all ranks.
    fn blocks(&self) -> Vec<GemmBlock> {
        let world = self.world;
        let mut blocks: Vec<GemmBlock> = (0..world)
            .flat_map(|hop| {
                (0..self.chunks).map(move |chunk| GemmBlock {
                    owner: (self.rank + 2 * world - 1 - hop) % world,
                    chunk,
                    hop,
                })
            })
            .filter(|block| self.block_rows(block.owner, block.chunk).1 > 0)
            .collect();
        blocks.sort_by_key(|block| block.chunk as usize * world + block.hop * (world + 1));
        blocks
    }

    fn pipeline(&self, steps: &mut Vec<GemmReduceStep>) {
        use GemmReduceStep as S;
        let blocks = self.blocks();
        let gemms = match self.streams.min(blocks.len()) {
            0 | 1 => 0,
            gemms => gemms,
        };
        let by_kernel = self.transport == GemmTransport::Kernel;
        if by_kernel {
            let on = GemmStream::Main;
            steps.push(S::Start { on });
        }
        let copies = (0..self.lanes()).map(GemmStream::Copies);
        let sides = copies.chain((0..gemms).map(GemmStream::Gemms));
        steps.extend(sides.clone().map(|on| S::Fork { on }));
        let mut event = 0;
        if !by_kernel {
            let on = GemmStream::Copies(0);
            steps.push(S::Start { on });
            steps.push(S::Mark { event, on });
            let others = (1..self.lanes()).map(GemmStream::Copies);
            steps.extend(others.map(|on| S::Await { event, on }));
            event += 1;
        }
        for (index, &block) in blocks.iter().enumerate() {
            let on = match gemms {
                0 => GemmStream::Main,
                _ => GemmStream::Gemms(index % gemms),
            };
            if block.hop > 0 {
                steps.push(S::ReceiveSum { block, on });
            }
            steps.push(S::Multiply { block, on });
            match (self.is_last(block), self.transport, self.reduction) {
                (true, _, Reduction::Scatter) => {}
                (true, _, _) => {
                    steps.push(S::Mark { event, on });
                    self.send(steps, block.chunk, event);
                    event += 1;
                }
                (false, GemmTransport::Kernel, _) => steps.push(S::GiveSum { block, on }),
                (false, _, _) => {
                    steps.push(S::Mark { event, on });
                    let on = GemmStream::Copies(0);
                    steps.push(S::Await { event, on });
                    steps.push(S::PutSum { block, on });
                    steps.push(S::GiveSum { block, on });
                    event += 1;
                }
            }
        }
        steps.extend(sides.map(|on| S::Join { on }));
        if self.reduction == Reduction::All {
            for chunk in 0..self.chunks {
                let peers = (1..self.world).map(|step| (self.rank + step) % self.world);
                let full = peers.filter(|&peer| self.block_rows(peer, chunk).1 > 0);
                steps.extend(full.map(|peer| S::ReceiveBlock { chunk, peer }));
            }
        }
    }

    /// Returns the number of streams for copies: one for sums, if copy engines send them, then those for finished blocks.
    fn lanes(&self) -> usize {
        self.block_lane(0)
            + match self.reduction {
                Reduction::Scatter => 0,
                _ => (self.fanout.max(1) as usize).min(self.world - 1),
            }
    }

    /// Returns the copy stream for finished blocks that go to peer `index`.
    fn block_lane(&self, index: usize) -> usize {
        let first = usize::from(self.transport != GemmTransport::Kernel);
        let lanes = (self.fanout.max(1) as usize).min(self.world - 1);
        first + index % lanes
    }

    /// Sends a finished block to all peers, in the order of the ring, so that in each step every rank receives from one.
    fn send(&self, steps: &mut Vec<GemmReduceStep>, chunk: u32, event: usize) {
        use GemmReduceStep as S;
        for step in 1..self.world {
            let peer = (self.rank + step) % self.world;
            let on = GemmStream::Copies(self.block_lane(step - 1));
            steps.push(S::Await { event, on });
            steps.push(S::PutBlock { chunk, peer, on });
            steps.push(S::GiveBlock { chunk, peer, on });
        }
    }
}

impl GemmReduceStep {
    /// Returns the step's stream. A fork or join also concerns the caller's stream.
    pub fn on(&self) -> GemmStream {
        match *self {
            Self::MultiplyAll
            | Self::ReceiveBlock { .. }
            | Self::Reduced
            | Self::Copy
            | Self::Reduce => GemmStream::Main,
            Self::Start { on }
            | Self::Fork { on }
            | Self::Join { on }
            | Self::Mark { on, .. }
            | Self::Await { on, .. }
            | Self::Multiply { on, .. }
            | Self::PutSum { on, .. }
            | Self::GiveSum { on, .. }
            | Self::ReceiveSum { on, .. }
            | Self::PutBlock { on, .. }
            | Self::GiveBlock { on, .. } => on,
        }
    }
}

impl PlanStep for GemmReduceStep {
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

impl fmt::Display for GemmBlock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "chunk {} of rank {}", self.chunk, self.owner)
    }
}

impl fmt::Display for GemmReduceStep {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: ", self.on())?;
        match self {
            Self::Start { .. } => write!(formatter, "wait until all ranks have started"),
            Self::Fork { .. } => write!(formatter, "start after the caller's stream"),
            Self::Join { .. } => write!(formatter, "the caller's stream waits for this one"),
            Self::Mark { event, .. } => write!(formatter, "record event {event}"),
            Self::Await { event, .. } => write!(formatter, "wait for event {event}"),
            Self::MultiplyAll => write!(formatter, "multiply all rows"),
            Self::Multiply { block, .. } if block.hop == 0 => {
                write!(formatter, "multiply {block}")
            }
            Self::Multiply { block, .. } => {
                write!(formatter, "multiply {block} and add what arrived")
            }
            Self::PutSum { block, .. } => {
                write!(formatter, "copy the sum of {block} to the next rank")
            }
            Self::GiveSum { block, .. } => {
                write!(formatter, "signal the next rank: the sum of {block}")
            }
            Self::ReceiveSum { block, .. } => {
                write!(formatter, "wait for the previous rank: the sum of {block}")
            }
            Self::PutBlock { chunk, peer, .. } => write!(
                formatter,
                "copy chunk {chunk} of this rank's sums to rank {peer}"
            ),
            Self::GiveBlock { chunk, peer, .. } => write!(
                formatter,
                "signal rank {peer}: chunk {chunk} of this rank's sums"
            ),
            Self::ReceiveBlock { chunk, peer } => {
                write!(formatter, "wait for rank {peer}: chunk {chunk} of its sums")
            }
            Self::Reduced => write!(
                formatter,
                "multiply all rows and add up all ranks' products, in one kernel"
            ),
            Self::Copy => write!(formatter, "copy the sums to C"),
            Self::Reduce => write!(formatter, "add up all ranks' results"),
        }
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
