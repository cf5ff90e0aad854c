//! Programs: what all ranks do, in one order.
//!
//! A program names what it uses by number, and [`crate::plan`] takes each number modulo what exists by then. So every
//! program is valid, also one that a shrink has cut in the middle.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Most ranks of a world.
pub const RANKS: usize = 4;

/// The number of the newest buffer, stream or graph; [`LAST`]` + 1` is the one before.
pub const LAST: usize = 100;

/// What all ranks of one or two communicators do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// Number of ranks, each a thread.
    pub world: usize,
    /// Number of communicators of each rank.
    pub communicators: usize,
    /// One after the other; in each all communicators are new or rebuilt.
    pub phases: Vec<Phase>,
}

/// The life of the communicators until they end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// Whether calls are compared ([`symmem::Builder::check_calls`]), where the communicators are new.
    pub checked: bool,
    /// What is done.
    pub steps: Vec<Step>,
    /// How each communicator ends.
    pub endings: Vec<Ending>,
    /// Decides in which order each rank drops what is left.
    pub order: u64,
}

/// One step of all ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The communicator.
    pub on: usize,
    /// What is done.
    pub act: Act,
}

/// What a step does. A number of a buffer, stream, graph or group counts those of the communicator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Act {
    Allocate {
        element: Element,
        length: usize,
    },
    /// Bit `r` of `ranks`: rank `r` drops its handle. Does not wait for work.
    Drop {
        buffer: usize,
        ranks: u8,
    },
    Free {
        buffer: usize,
    },
    Stream,
    DropStream {
        stream: usize,
    },
    Enqueue {
        stream: usize,
        operation: Operation,
    },
    Capture {
        stream: usize,
        operations: Vec<Operation>,
    },
    Launch {
        graph: usize,
        stream: usize,
    },
    DropGraph {
        graph: usize,
    },
    Write {
        stream: usize,
        buffer: usize,
        at: usize,
        count: usize,
        pattern: u32,
    },
    Read {
        stream: usize,
        buffer: usize,
        at: usize,
        count: usize,
    },
    Synchronize {
        stream: usize,
    },
    HostBarrier,
    HostAllGather {
        bytes: usize,
    },
    /// Rank `r` takes `colors[r]`; 3 is none.
    Split {
        colors: [u8; RANKS],
        keys: [u8; RANKS],
    },
    DropGroup {
        group: usize,
    },
    /// Two threads enqueue on two streams, while a third drops a buffer and a graph.
    Threads {
        first: Vec<Operation>,
        second: Vec<Operation>,
        dropped: usize,
    },
    /// A call that every rank must refuse.
    Refused {
        refusal: Refusal,
        stream: usize,
        buffer: usize,
    },
    /// A collective host call in which ranks disagree.
    Disagree {
        disagreement: Disagreement,
        rank: usize,
    },
    /// A story with buffers of its own.
    Scene {
        scene: Scene,
        stream: usize,
    },
}

/// Stories with buffers of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Scene {
    /// All-gather + GEMM, whose operation is dropped under its work.
    Gemm {
        m: usize,
        n: usize,
        k: usize,
        algorithm: usize,
    },
    /// Memory of the application's.
    Registered { length: usize },
    /// Memory that each rank allocated alone.
    Met { length: usize },
    /// A kernel of a module that is dropped under it.
    Kernel { launches: usize },
    /// A stream waits, while a buffer of the other communicator is dropped, or freed where that can be.
    Blocked { dropped: usize, freed: bool },
    /// Two threads copy between the host and buffers of their own, this often.
    Copies { length: usize, times: usize },
}

/// The type of a buffer's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Element {
    U8,
    U16,
    U32,
    U64,
    F16,
    Bf16,
    F32,
    F64,
}

impl Element {
    /// Returns the size in bytes.
    pub fn size(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::U16 | Self::F16 | Self::Bf16 => 2,
            Self::U32 | Self::F32 => 4,
            Self::U64 | Self::F64 => 8,
        }
    }

    /// Whether elements can be signal words.
    pub fn is_word(self) -> bool {
        matches!(self, Self::U32 | Self::U64)
    }
}

/// One enqueued operation. Where both buffers are the same, one half is read and the other written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Operation {
    /// Which.
    pub kind: Kind,
    /// The buffer that is read.
    pub from: usize,
    /// The buffer that is written, among those of the same element type.
    pub to: usize,
    /// The first element read.
    pub read_at: usize,
    /// The first element written.
    pub write_at: usize,
    /// Elements of a part.
    pub count: usize,
    /// The channel.
    pub channel: u32,
    /// The group, if any; 0 is the world.
    pub group: usize,
    /// A root, a shift or a graph.
    pub number: usize,
    /// The algorithm, among those of the operation; 0 leaves it open.
    pub algorithm: usize,
    /// Whether the destination is the source, where the operation can do so.
    pub in_place: bool,
}

/// The kinds of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Kind {
    AllReduce(Reduce),
    Reduce(Reduce),
    ReduceScatter(Reduce),
    AllGather,
    AllGatherV,
    Broadcast,
    AllToAll,
    AllToAllV,
    Gather,
    Scatter,
    /// Each rank sends to the one `number` after it, in this many messages.
    Exchange(usize),
    /// One member sends and another receives.
    SendRecv,
    Barrier,
    GroupBarrier,
    /// Between two barriers, to the rank `number` after this one.
    Put,
    Get,
    /// Behind a barrier, with a signal for which the peer waits.
    PutSignal,
    /// Between two barriers, on one word of the rank `number` after this one.
    Atomic(Atomic),
    /// A copy within this rank.
    Local,
    /// The graph `number`.
    Launch,
}

/// Reduction operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Reduce {
    Sum,
    Average,
    Minimum,
    Maximum,
    Product,
}

/// Operations on words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Atomic {
    FetchAdd,
    Swap,
    CompareSwap,
    SignalAdd,
    /// Sets the peer's word, and waits for the own one.
    SetAndWait,
}

/// Calls that every rank must refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Refusal {
    Root,
    Peer,
    Channel,
    BarrierChannel,
    Range,
    Overlap,
    Lengths,
    HostLength,
    /// A buffer on a stream of the other communicator, by many calls.
    OtherCommunicator,
    EmptyWait,
    Algorithm,
}

/// Disagreements in collective host calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Disagreement {
    /// One rank allocates one element more.
    Length,
    /// One rank allocates another type.
    Element,
    /// One rank calls `host_barrier`, the others `allocate`.
    Call,
    /// The shape exceeds the address space, at all ranks.
    Overflow,
    /// One rank frees another buffer.
    Free,
    /// One rank contributes too much.
    Payload,
}

/// How a communicator ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Ending {
    Finalize,
    Drop,
    /// A rank aborts, with or without work that waits for it; all rebuild.
    Abort {
        rank: usize,
        busy: bool,
    },
    /// A rank misses a barrier or an all-reduce; all rebuild.
    Missing {
        rank: usize,
        barrier: bool,
    },
    /// A receiver expects another size than its sender; all rebuild.
    Size {
        rank: usize,
    },
    /// A receiver drops its handle of the sender's buffer beside the receive; all rebuild.
    ReceiveDropped {
        rank: usize,
        delay: u8,
    },
}

impl fmt::Display for Program {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "{} rank(s), {} communicator(s)",
            self.world, self.communicators
        )?;
        for (number, phase) in self.phases.iter().enumerate() {
            let checked = if phase.checked {
                ", calls compared"
            } else {
                ""
            };
            writeln!(formatter, "phase {number}{checked}:")?;
            for step in &phase.steps {
                writeln!(formatter, "  [{}] {:?}", step.on, step.act)?;
            }
            let endings = phase.endings.iter().take(self.communicators);
            for (on, ending) in endings.enumerate() {
                writeln!(formatter, "  [{on}] ends: {ending:?}")?;
            }
            writeln!(formatter, "  dropped in order {}", phase.order)?;
        }
        Ok(())
    }
}

impl Program {
    /// Whether a rank may enqueue work for one communicator, or on one thread, beside a call of another.
    pub fn enqueues_beside(&self) -> bool {
        let mut steps = self.phases.iter().flat_map(|phase| &phase.steps);
        self.communicators > 1 || steps.any(|step| matches!(step.act, Act::Threads { .. }))
    }
}

impl Operation {
    /// Returns an operation with every number 0.
    pub fn plain() -> Self {
        Self {
            kind: Kind::Barrier,
            from: 0,
            to: 0,
            read_at: 0,
            write_at: 0,
            count: 0,
            channel: 0,
            group: 0,
            number: 0,
            algorithm: 0,
            in_place: false,
        }
    }
}
