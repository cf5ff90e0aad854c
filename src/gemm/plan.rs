//! From a problem to the steps of one rank: a pure function.
//!
//! In step `i` of `world` rank `r` receives the shard of rank `(r + i) mod world` and sends its own to rank
//! `(r - i) mod world`, so each step is a permutation of the ranks, and no two use a link at once as long as
//! they keep step: these are the indices of nvFuser's pipeline. Step 0 is the rank's own shard, which needs
//! no copy. Products of shards go on `streams` streams in turn, step `i` on stream `i mod streams`.
//!
//! What keeps ranks from waiting for each other for ever:
//! - The start barrier comes before everything else, on the caller's stream.
//! - A grid that is the barrier, too, stores in its first blocks, which wait for nothing but that all ranks'
//!   grids have begun. As many have to be on the device at once, whatever else is there: so two such calls on two
//!   streams of a rank are no more to be under way at once than two collectives that fill the device.
//! - Copies are enqueued before the grid that waits for them, which may fill the device, and nothing that
//!   such a grid waits for needs a compute unit: no signal, turn or exchange is in its plan, only copies.
//! - A product of the vendor's library waits for nothing; what it needs has come before it is begun.
//! - Ranks that keep step do so in every step, also where a shard is empty.

use crate::backend::abi::GatherMode;
use crate::base::gemm_names::{GemmAlgorithm, GemmTransport};
use crate::base::gemm_shape::Division;
use std::fmt;

/// A stream of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum On {
    /// The caller's.
    Main,
    /// One that copies.
    Copies(usize),
    /// One that multiplies.
    Products(usize),
}

/// What is multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// This rank's shard, where the caller has it.
    Own,
    /// A peer's shard, in the gathered `A`.
    Shard(usize),
    /// All of the gathered `A`.
    Whole,
}

/// A step of one rank, in the order in which steps are enqueued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// The caller's stream waits until all ranks are here: their shards are ready, and nobody reads any more
    /// what the last call has gathered.
    Start,
    /// It waits until all ranks have come to the end: nobody reads this rank's shard any more.
    End,
    /// A stream begins once the caller's has come here.
    Fork {
        /// The stream.
        on: On,
    },
    /// The caller's stream goes on once a stream is done.
    Join {
        /// The stream.
        on: On,
    },
    /// The own shard is copied to the own gathered `A`.
    Keep {
        /// The stream.
        on: On,
    },
    /// A peer's shard is copied to the own gathered `A`.
    Get {
        /// The peer.
        peer: usize,
        /// The stream.
        on: On,
    },
    /// A chunk of the own shard is copied to a peer's gathered `A`; chunk 0 is the whole shard in a pipeline.
    Put {
        /// The peer.
        peer: usize,
        /// The chunk.
        chunk: u32,
        /// The stream.
        on: On,
    },
    /// The peer is told, by the copy engine, that a chunk of the own shard is there.
    Arrive {
        /// The peer.
        peer: usize,
        /// The chunk.
        chunk: u32,
        /// The stream.
        on: On,
    },
    /// A signal to a peer: the own shard is there.
    Give {
        /// The peer.
        peer: usize,
        /// The stream.
        on: On,
    },
    /// A wait for a peer's signal: its shard is here.
    Receive {
        /// The peer.
        peer: usize,
        /// The stream.
        on: On,
    },
    /// A link is handed on: a signal to the rank that uses it next, and a wait for the one that has used the
    /// next one here.
    Turn {
        /// Who is told.
        to: usize,
        /// Who is waited for.
        from: usize,
        /// The stream.
        on: On,
    },
    /// The vendor's library sends the own shard and receives another, at once.
    Exchange {
        /// Who gets the own shard.
        to: usize,
        /// Whose shard comes.
        from: usize,
        /// The stream.
        on: On,
    },
    /// What a stream has done up to here can be waited for.
    Mark {
        /// The event.
        event: usize,
        /// The stream.
        on: On,
    },
    /// A stream waits for an event.
    Await {
        /// The event.
        event: usize,
        /// The stream.
        on: On,
    },
    /// All shards are gathered, by a collective on the caller's stream.
    Gather,
    /// Columns that came as a block are put where they belong in the gathered `A`.
    Spread {
        /// Whose they are.
        shard: usize,
        /// The stream.
        on: On,
    },
    /// A product by the vendor's library.
    Multiply {
        /// What is multiplied.
        part: Part,
        /// The stream.
        on: On,
    },
    /// The whole product, by the kernel that multiplies each chunk once it is here, on the caller's stream.
    Gathered {
        /// How chunks come.
        mode: GatherMode,
    },
}

/// What the steps follow from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) rank: usize,
    pub(super) world: usize,
    pub(super) division: Division,
    /// Chosen: not automatic. So is the transport.
    pub(super) algorithm: GemmAlgorithm,
    pub(super) transport: GemmTransport,
    pub(super) streams: usize,
    pub(super) ordered: bool,
    /// How many peers at once keep the links busy.
    pub(super) fanout: u32,
    /// Whether the kernel that pushes is the barrier, too.
    pub(super) at_once: bool,
    /// Whether the own shard has to be in the gathered `A` too.
    pub(super) keep: bool,
    /// Rows of a chunk, and chunks of a full shard.
    pub(super) chunk: u64,
    pub(super) chunks: u32,
}

impl Problem {
    /// Streams that copy.
    pub(super) fn lanes(&self) -> usize {
        let peers = self.world - 1;
        match (self.algorithm, self.transport) {
            // One communicator of a library does one call after the other.
            (_, GemmTransport::Vendor) => 1,
            (GemmAlgorithm::Pipeline, _) if !self.ordered && self.fanout <= 1 => {
                self.streams.min(peers)
            }
            _ => (self.fanout.max(1) as usize).min(peers),
        }
    }

    /// Whether copies keep step with the neighbour.
    fn turns(&self) -> bool {
        let copies = matches!(self.transport, GemmTransport::Get | GemmTransport::Put);
        copies && self.ordered && self.fanout <= 1 && self.world > 2
    }

    /// Whether shards come as blocks that are no part of the gathered `A`.
    pub(super) fn staged(&self) -> bool {
        let blocks = self.algorithm == GemmAlgorithm::Baseline
            || self.algorithm == GemmAlgorithm::Pipeline && self.transport == GemmTransport::Vendor;
        blocks && self.division.by_columns() && self.world > 1
    }

    /// First row of a chunk in a shard, and its rows.
    pub(super) fn chunk_rows(&self, shard: usize, chunk: u32) -> (u64, u64) {
        let rows = self.division.rows(shard);
        let first = (u64::from(chunk) * self.chunk).min(rows);
        (first, (rows - first).min(self.chunk))
    }

    /// The ranks of step `i`: whose shard comes, and who gets the own one.
    fn peers(&self, step: usize) -> (usize, usize) {
        let from = (self.rank + step) % self.world;
        let to = (self.rank + self.world - step) % self.world;
        (from, to)
    }

    /// The steps of this rank.
    pub(super) fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.world == 1 {
            self.push_keep(&mut steps, self.keep, On::Main);
            let (part, on) = (Part::Own, On::Main);
            steps.push(Step::Multiply { part, on });
            return steps;
        }
        match (self.algorithm, self.transport) {
            (GemmAlgorithm::Pipeline, _) => self.pipeline(&mut steps),
            (GemmAlgorithm::Pull, _) => {
                let mode = GatherMode::PULL;
                steps.extend([Step::Start, Step::Gathered { mode }, Step::End]);
            }
            (GemmAlgorithm::Push, GemmTransport::Kernel) if self.at_once => {
                let mode = GatherMode::PUSH_AT_ONCE;
                steps.push(Step::Gathered { mode });
            }
            (GemmAlgorithm::Push, GemmTransport::Kernel) => {
                let mode = GatherMode::PUSH;
                steps.extend([Step::Start, Step::Gathered { mode }]);
            }
            (GemmAlgorithm::Push, _) => self.push(&mut steps),
            _ => self.baseline(&mut steps),
        }
        steps
    }

    fn push_keep(&self, steps: &mut Vec<Step>, keep: bool, on: On) {
        if keep && !self.division.is_empty(self.rank) {
            steps.push(Step::Keep { on });
        }
    }

    fn baseline(&self, steps: &mut Vec<Step>) {
        steps.push(Step::Gather);
        let on = On::Main;
        if self.staged() {
            let shards = (0..self.world).filter(|&shard| !self.division.is_empty(shard));
            steps.extend(shards.map(|shard| Step::Spread { shard, on }));
        }
        let part = Part::Whole;
        steps.push(Step::Multiply { part, on });
    }

    fn pipeline(&self, steps: &mut Vec<Step>) {
        let lanes = self.lanes();
        // Columns are summed over: all of them have to be here.
        let by_columns = self.division.by_columns();
        let products = if by_columns {
            0
        } else {
            self.streams.min(self.world)
        };
        steps.push(Step::Start);
        let copies = (0..lanes).map(On::Copies);
        let sides = copies.chain((0..products).map(On::Products));
        steps.extend(sides.clone().map(|on| Step::Fork { on }));
        for step in 1..self.world {
            self.copy(steps, step, On::Copies((step - 1) % lanes));
        }
        // Last, since nobody waits for it.
        self.push_keep(steps, self.keep || by_columns, On::Copies(0));
        for step in 0..self.world {
            let (from, _) = self.peers(step);
            if self.division.is_empty(from) {
                continue;
            }
            let on = match by_columns {
                true => On::Main,
                false => On::Products(step % products),
            };
            if step > 0 && self.transport == GemmTransport::Put {
                steps.push(Step::Receive { peer: from, on });
            } else if step > 0 && !by_columns {
                steps.push(Step::Await { event: step, on });
            }
            if !by_columns {
                let part = match step {
                    0 => Part::Own,
                    _ => Part::Shard(from),
                };
                steps.push(Step::Multiply { part, on });
            }
        }
        steps.extend(sides.map(|on| Step::Join { on }));
        if by_columns {
            let (part, on) = (Part::Whole, On::Main);
            steps.push(Step::Multiply { part, on });
        }
        if self.transport == GemmTransport::Get {
            steps.push(Step::End);
        }
    }

    /// Step `step`'s copy.
    fn copy(&self, steps: &mut Vec<Step>, step: usize, on: On) {
        let (from, to) = self.peers(step);
        let here = !self.division.is_empty(self.rank);
        let there = !self.division.is_empty(from);
        let (before, after) = (self.peers(self.world - 1).0, self.peers(1).0);
        let turn = match self.transport {
            GemmTransport::Get => {
                if there {
                    steps.push(Step::Get { peer: from, on });
                }
                // What this rank loads from in the next step, the one after it has loaded from in this.
                (before, after)
            }
            GemmTransport::Vendor => {
                if here || there {
                    steps.push(Step::Exchange { to, from, on });
                }
                if there && self.staged() {
                    steps.push(Step::Spread { shard: from, on });
                }
                (before, after)
            }
            _ => {
                if here {
                    let chunk = 0;
                    steps.push(Step::Put {
                        peer: to,
                        chunk,
                        on,
                    });
                    steps.push(Step::Give { peer: to, on });
                }
                (after, before)
            }
        };
        if there && self.transport != GemmTransport::Put && !self.division.by_columns() {
            steps.push(Step::Mark { event: step, on });
        }
        // After the last copy nobody takes the link over.
        if self.turns() && step < self.world - 1 {
            let (to, from) = turn;
            steps.push(Step::Turn { to, from, on });
        }
    }

    fn push(&self, steps: &mut Vec<Step>) {
        let lanes = self.lanes();
        steps.push(Step::Start);
        steps.extend((0..lanes).map(|lane| Step::Fork {
            on: On::Copies(lane),
        }));
        for step in 1..self.world {
            let (_, peer) = self.peers(step);
            let on = On::Copies((step - 1) % lanes);
            for chunk in 0..self.chunks {
                if self.division.is_empty(self.rank) || self.chunk_rows(self.rank, chunk).1 == 0 {
                    continue;
                }
                steps.push(Step::Put { peer, chunk, on });
                steps.push(Step::Arrive { peer, chunk, on });
            }
        }
        self.push_keep(steps, self.keep, On::Copies(0));
        let mode = GatherMode::WAIT;
        steps.push(Step::Gathered { mode });
        steps.extend((0..lanes).map(|lane| Step::Join {
            on: On::Copies(lane),
        }));
    }
}

impl Step {
    /// Its stream. A fork and a join are work of the caller's, too.
    pub fn on(&self) -> On {
        match *self {
            Self::Start | Self::End | Self::Gather | Self::Gathered { .. } => On::Main,
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

impl fmt::Display for On {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Main => write!(formatter, "caller's stream"),
            Self::Copies(index) => write!(formatter, "copy stream {index}"),
            Self::Products(index) => write!(formatter, "product stream {index}"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: ", self.on())?;
        match self {
            Self::Start => write!(formatter, "wait until all ranks are here"),
            Self::End => write!(formatter, "wait until all ranks are done reading"),
            Self::Fork { .. } => write!(formatter, "begin after the caller's stream"),
            Self::Join { .. } => write!(formatter, "the caller's stream waits for it"),
            Self::Keep { .. } => write!(formatter, "copy the own shard to the gathered A"),
            Self::Get { peer, .. } => write!(formatter, "copy the shard of rank {peer} here"),
            Self::Put { peer, chunk, .. } => {
                write!(
                    formatter,
                    "copy chunk {chunk} of the own shard to rank {peer}"
                )
            }
            Self::Arrive { peer, chunk, .. } => {
                write!(formatter, "tell rank {peer} that chunk {chunk} is there")
            }
            Self::Give { peer, .. } => write!(formatter, "signal to rank {peer}"),
            Self::Receive { peer, .. } => write!(formatter, "wait for the signal of rank {peer}"),
            Self::Turn { to, from, .. } => {
                write!(
                    formatter,
                    "hand the link on to rank {to}, wait for rank {from}"
                )
            }
            Self::Exchange { to, from, .. } => write!(
                formatter,
                "send the own shard to rank {to}, receive that of rank {from}"
            ),
            Self::Mark { event, .. } => write!(formatter, "record event {event}"),
            Self::Await { event, .. } => write!(formatter, "wait for event {event}"),
            Self::Gather => write!(formatter, "gather all shards"),
            Self::Spread { shard, .. } => {
                write!(
                    formatter,
                    "put the columns of rank {shard} where they belong"
                )
            }
            Self::Multiply { part, .. } => match part {
                Part::Own => write!(formatter, "multiply the own shard"),
                Part::Shard(rank) => write!(formatter, "multiply the shard of rank {rank}"),
                Part::Whole => write!(formatter, "multiply the gathered A"),
            },
            Self::Gathered { mode } => write!(
                formatter,
                "{}multiply each chunk once it is here ({})",
                match *mode {
                    GatherMode::PUSH_AT_ONCE => "wait until all ranks are here, and ",
                    _ => "",
                },
                mode.name()
            ),
        }
    }
}

/// Rows of a product.
pub(super) fn rows_of(problem: &Problem, part: Part) -> u64 {
    match part {
        Part::Own => problem.division.rows(problem.rank),
        Part::Shard(rank) => problem.division.rows(rank),
        Part::Whole => problem.division.m,
    }
}

/// Elements from one row of a product's `A` to the next.
pub(super) fn a_stride(problem: &Problem, part: Part) -> u64 {
    match part {
        Part::Own => problem.division.columns(problem.rank),
        Part::Shard(_) | Part::Whole => problem.division.k,
    }
}

#[cfg(test)]
#[path = "plan_model.rs"]
mod model;
#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
