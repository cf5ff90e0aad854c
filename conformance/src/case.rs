//! What a case is: plain data, so that a test, the installed command and a machine far away run the
//! very same one.

use super::collectives::{CollectiveCase, RefusalCase, SoakCase};
use super::products::ProductCase;
use serde::{Deserialize, Serialize};
use std::fmt;
use symmem::TransferOptions;
use symmem::backend::abi::{
    CAPABILITY_BULK, CAPABILITY_COPY_ENGINE, CAPABILITY_GRAPHS, Capabilities, Method,
    SignalPlacement,
};

/// One check that all ranks of a world run together.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Case {
    /// Data put and got, signals, barriers, host copies, refusals, registration.
    Transfer(TransferCase),
    /// One collective.
    Collective(CollectiveCase),
    /// Collectives that must be refused.
    Refusal(RefusalCase),
    /// Mixed collectives for a while.
    Soak(SoakCase),
    /// A product of matrices that gathers.
    Product(ProductCase),
}

impl Case {
    /// Where the communicator's signals live.
    pub fn placement(&self) -> Placement {
        match self {
            Self::Transfer(case) => case.placement,
            Self::Collective(_) | Self::Refusal(_) | Self::Soak(_) | Self::Product(_) => {
                Placement::Device
            }
        }
    }

    /// What a device lacks to run this; `None` if nothing.
    pub fn missing(&self, capabilities: &Capabilities) -> Option<&'static str> {
        match self {
            Self::Transfer(case) => case.engine.missing(capabilities),
            Self::Collective(case) => case.missing(capabilities),
            Self::Product(case) if case.captured && capabilities.flags & CAPABILITY_GRAPHS == 0 => {
                Some("the device has no graphs")
            }
            Self::Refusal(_) | Self::Soak(_) | Self::Product(_) => None,
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transfer(case) => case.fmt(formatter),
            Self::Collective(case) => case.fmt(formatter),
            Self::Refusal(case) => case.fmt(formatter),
            Self::Soak(case) => case.fmt(formatter),
            Self::Product(case) => case.fmt(formatter),
        }
    }
}

/// Data moved between ranks, or what goes with it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TransferCase {
    /// What is checked.
    pub operation: Operation,
    /// Between whom.
    pub traffic: Traffic,
    /// Type of the elements.
    pub dtype: Dtype,
    /// How many elements move.
    pub length: Length,
    /// Elements between a 256-byte boundary and the first element written.
    pub destination_offset: usize,
    /// Elements between a 256-byte boundary and the first element read.
    pub source_offset: usize,
    /// How they move.
    pub engine: Engine,
    /// Where the communicator's signals live.
    pub placement: Placement,
    /// Seeds the data.
    pub seed: u64,
}

impl fmt::Display for TransferCase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{:?}/{:?}/{:?}/{}/+{}+{}/{}/{:?}",
            self.operation,
            self.traffic,
            self.dtype,
            self.length,
            self.destination_offset,
            self.source_offset,
            self.engine,
            self.placement,
        )
    }
}

/// What a case checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Operation {
    /// Put, complete after `synchronize` and a host barrier.
    Put,
    /// Get of what the peer had written before a host barrier.
    Get,
    /// Put with signal, visible after the peer's wait; twice, with new data.
    PutSignal,
    /// Put, visible after a device barrier; twice, with new data.
    Barrier,
    /// Put with signal, wait and barrier, captured, replayed several times between eager rounds.
    Replay,
    /// Several streams at once, each with its own channel and data.
    Streams,
    /// One stream, several channels, waited for in the reverse order.
    Channels,
    /// Host elements written into the local copy and read from it.
    HostCopy,
    /// Calls that must be refused, with which error, and that nothing is lost by them.
    Refusals,
    /// Memory that the caller owns: registered, or refused by type and staged.
    Registration,
}

impl Operation {
    /// Those that move data between ranks, for which every parameter of a case matters.
    pub const TRANSFERS: [Self; 7] = [
        Self::Put,
        Self::Get,
        Self::PutSignal,
        Self::Barrier,
        Self::Replay,
        Self::Streams,
        Self::Channels,
    ];
}

/// Who moves data to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Traffic {
    /// Each rank to itself.
    Own,
    /// Each rank to the next.
    Ring,
    /// Each rank to every rank, itself included.
    AllPairs,
}

impl Traffic {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Own, Self::Ring, Self::AllPairs];

    /// To whom `rank` puts.
    pub fn targets(self, rank: usize, world: usize) -> Vec<usize> {
        match self {
            Self::Own => vec![rank],
            Self::Ring => vec![(rank + 1) % world],
            Self::AllPairs => (0..world).collect(),
        }
    }

    /// Who puts to `rank`.
    pub fn givers(self, rank: usize, world: usize) -> Vec<usize> {
        match self {
            Self::Own => vec![rank],
            Self::Ring => vec![(rank + world - 1) % world],
            Self::AllPairs => (0..world).collect(),
        }
    }
}

/// Type of the elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are the types")]
pub enum Dtype {
    U8,
    I8,
    F8E4m3,
    F8E5m2,
    U16,
    I16,
    F16,
    Bf16,
    U32,
    I32,
    F32,
    U64,
    I64,
    F64,
}

impl Dtype {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::U8,
        Self::I8,
        Self::F8E4m3,
        Self::F8E5m2,
        Self::U16,
        Self::I16,
        Self::F16,
        Self::Bf16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    /// Whether it is floating point.
    pub fn is_float(self) -> bool {
        matches!(
            self,
            Self::F8E4m3 | Self::F8E5m2 | Self::F16 | Self::Bf16 | Self::F32 | Self::F64
        )
    }

    /// Bytes of an element.
    pub fn size(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::F8E4m3 | Self::F8E5m2 => 1,
            Self::U16 | Self::I16 | Self::F16 | Self::Bf16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }
}

/// Runs `$body` with `$T` as the Rust type of `$dtype`.
macro_rules! with_element {
    ($dtype:expr, $T:ident => $body:expr) => {
        $crate::case::with_element! {
            @ $dtype, $T => $body;
            U8 u8, I8 i8, F8E4m3 symmem::F8E4M3, F8E5m2 symmem::F8E5M2,
            U16 u16, I16 i16, F16 half::f16, Bf16 half::bf16,
            U32 u32, I32 i32, F32 f32,
            U64 u64, I64 i64, F64 f64,
        }
    };
    (@ $dtype:expr, $T:ident => $body:expr; $($name:ident $type:ty,)*) => {
        match $dtype {
            $($crate::Dtype::$name => {
                type $T = $type;
                $body
            })*
        }
    };
}
pub(super) use with_element;

/// How many elements move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Length {
    /// This many.
    Elements(usize),
    /// As many as `bytes` holds, and `delta` more.
    Around {
        /// Bytes, a multiple of every element's size.
        bytes: usize,
        /// Elements more, or fewer.
        delta: isize,
    },
    /// As many as a rank's share of `bytes` holds, in whole vectors of 16 bytes, and `delta` more.
    Shared {
        /// Bytes.
        bytes: usize,
        /// Elements more, or fewer.
        delta: isize,
    },
}

impl Length {
    /// Around the sizes at which kernels change what they do: a 16-byte vector, a warp's and a
    /// block's worth of them, a page, a few stages of bulk copies, and an odd megabyte.
    pub const ALL: [Self; 20] = [
        Self::Elements(0),
        Self::Elements(1),
        Self::Elements(2),
        Self::Elements(3),
        Self::Elements(7),
        Self::Elements(15),
        Self::Elements(16),
        Self::Elements(17),
        Self::Elements(31),
        Self::Elements(33),
        Self::Elements(127),
        Self::Elements(129),
        Self::Elements(1000),
        Self::around(4 << 10, -1),
        Self::around(4 << 10, 0),
        Self::around(4 << 10, 1),
        Self::around(64 << 10, -1),
        Self::around(64 << 10, 0),
        Self::around(64 << 10, 1),
        Self::around(1 << 20, 3),
    ];

    const fn around(bytes: usize, delta: isize) -> Self {
        Self::Around { bytes, delta }
    }

    /// Elements of `size` bytes, among one rank.
    pub fn elements(self, size: usize) -> usize {
        self.elements_among(1, size)
    }

    /// Elements of `size` bytes, among `world` ranks.
    pub fn elements_among(self, world: usize, size: usize) -> usize {
        let (bytes, delta) = match self {
            Self::Elements(count) => return count,
            Self::Around { bytes, delta } => (bytes, delta),
            Self::Shared { bytes, delta } => (bytes / world / 16 * 16, delta),
        };
        (bytes / size).saturating_add_signed(delta)
    }
}

impl fmt::Display for Length {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Elements(count) => write!(formatter, "{count}"),
            Self::Around { bytes, delta } => write!(formatter, "{bytes}B{delta:+}"),
            Self::Shared { bytes, delta } => write!(formatter, "{bytes}B/world{delta:+}"),
        }
    }
}

/// Offsets from a 256-byte boundary, in elements.
pub const OFFSETS: [usize; 7] = [0, 1, 2, 3, 5, 8, 15];

/// Where a communicator's signals live: [`SignalPlacement`] as data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Placement {
    /// In memory of the rank that waits.
    Device,
    /// In host memory that the ranks share.
    Host,
}

impl Placement {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Device, Self::Host];
}

impl From<Placement> for SignalPlacement {
    fn from(placement: Placement) -> Self {
        match placement {
            Placement::Device => Self::DEVICE,
            Placement::Host => Self::HOST,
        }
    }
}

/// How bytes are moved: [`Method`] as data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs, reason = "documented at `Method`")]
pub enum MethodName {
    Automatic,
    CopyEngine,
    Vector,
    Bulk,
    Unrolled,
}

impl MethodName {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Automatic,
        Self::CopyEngine,
        Self::Vector,
        Self::Bulk,
        Self::Unrolled,
    ];
}

impl From<MethodName> for Method {
    fn from(name: MethodName) -> Self {
        match name {
            MethodName::Automatic => Self::AUTOMATIC,
            MethodName::CopyEngine => Self::COPY_ENGINE,
            MethodName::Vector => Self::VECTOR,
            MethodName::Bulk => Self::BULK,
            MethodName::Unrolled => Self::UNROLLED,
        }
    }
}

/// Method and geometry; zeros leave the choice to the backend's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Engine {
    /// The method.
    pub method: MethodName,
    /// Blocks of the grid.
    pub blocks: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Bulk copies in flight per block.
    pub stages: u32,
    /// Bytes of each bulk copy.
    pub stage_bytes: u32,
}

impl Engine {
    /// Everything the tables choose.
    pub const AUTOMATIC: Self = Self::of(MethodName::Automatic);

    /// The engines that cases are run with.
    pub const ALL: [Self; 14] = [
        Self::AUTOMATIC,
        Self::of(MethodName::CopyEngine),
        Self::of(MethodName::Vector),
        Self::grid(1, 32),
        Self::grid(1, 128),
        Self::grid(4, 256),
        Self::grid(16, 1024),
        Self::of(MethodName::Bulk),
        Self::ring(2),
        Self::ring(4),
        Self::ring(8),
        Self::rings(4, 2, 2 << 10),
        Self::rings(16, 8, 1 << 10),
        Self::of(MethodName::Unrolled),
    ];

    const fn of(method: MethodName) -> Self {
        Self {
            method,
            blocks: 0,
            threads: 0,
            stages: 0,
            stage_bytes: 0,
        }
    }

    const fn grid(blocks: u32, threads: u32) -> Self {
        Self {
            blocks,
            threads,
            ..Self::of(MethodName::Vector)
        }
    }

    const fn ring(stages: u32) -> Self {
        Self::rings(1, stages, 16 << 10)
    }

    /// A ring in each of several blocks, of which the last one signals.
    const fn rings(blocks: u32, stages: u32, stage_bytes: u32) -> Self {
        Self {
            blocks,
            threads: 128,
            stages,
            stage_bytes,
            ..Self::of(MethodName::Bulk)
        }
    }

    /// What a call is given.
    pub fn options(&self) -> TransferOptions {
        TransferOptions::method(self.method.into())
            .geometry(self.blocks, self.threads)
            .in_flight(self.stages, self.stage_bytes)
    }

    /// What a device lacks to run this; `None` if nothing.
    pub fn missing(&self, capabilities: &Capabilities) -> Option<&'static str> {
        let has = |flag| capabilities.flags & flag != 0;
        // The planner keeps a kilobyte for the ring's barriers.
        let room = capabilities.shared_memory_per_block.saturating_sub(1024);
        match self.method {
            MethodName::CopyEngine if !has(CAPABILITY_COPY_ENGINE) => {
                Some("the device has no copy engine")
            }
            MethodName::Bulk if !has(CAPABILITY_BULK) => Some("the device has no bulk copies"),
            MethodName::Bulk if self.stages * self.stage_bytes > room => {
                Some("the ring of bulk copies does not fit into a block's shared memory")
            }
            _ => None,
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}", self.method)?;
        if self.blocks != 0 {
            write!(formatter, ".{}x{}", self.blocks, self.threads)?;
        }
        if self.stages != 0 {
            write!(formatter, ".ring{}x{}", self.stages, self.stage_bytes)?;
        }
        Ok(())
    }
}

/// What became of a case, the same on all ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", content = "reason", rename_all = "snake_case")]
pub enum Outcome {
    /// Every rank saw what it should.
    Passed,
    /// The device cannot do this; why.
    Skipped(String),
    /// A rank saw something else, or a call failed; which and what.
    Failed(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_survives_json() {
        let case = TransferCase {
            operation: Operation::Replay,
            traffic: Traffic::AllPairs,
            dtype: Dtype::Bf16,
            length: Length::Around {
                bytes: 4096,
                delta: -1,
            },
            destination_offset: 3,
            source_offset: 15,
            engine: Engine::ring(4),
            placement: Placement::Host,
            seed: u64::MAX,
        };
        let case = Case::Transfer(case);
        let text = serde_json::to_string(&case).unwrap();
        assert_eq!(serde_json::from_str::<Case>(&text).unwrap(), case);
        assert_eq!(
            case.to_string(),
            "Replay/AllPairs/Bf16/4096B-1/+3+15/Bulk.1x128.ring4x16384/Host"
        );
    }

    #[test]
    fn who_puts_to_whom_reads_the_same_from_both_ends() {
        for world in [1, 2, 3, 8] {
            for traffic in Traffic::ALL {
                for rank in 0..world {
                    for target in traffic.targets(rank, world) {
                        assert!(traffic.givers(target, world).contains(&rank));
                    }
                }
            }
        }
    }
}
