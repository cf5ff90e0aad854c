//! Moves of bytes, and what the kernels that make them take.

use super::forms::open_enum;
use super::handles::DeviceAddress;
use super::signals::{SignalTarget, Watch};

open_enum!(
    /// How bytes are moved.
    Method {
        /// Let the planner choose by direction and size.
        AUTOMATIC = 0,
        /// The copy engine: no compute unit is used.
        COPY_ENGINE = 1,
        /// A kernel of 16-byte loads and stores, unrolled.
        VECTOR = 2,
        /// A kernel of bulk asynchronous copies through shared memory.
        BULK = 3,
        /// Four warps, a quarter each, 4-byte loads unrolled by four: TileScale's published method.
        UNROLLED = 4,
    }
);

open_enum!(
    /// Which side of a transfer is remote.
    Direction {
        /// Store to the peer.
        PUT = 0,
        /// Load from the peer.
        GET = 1,
        /// Neither: both are this rank's, in device or host memory.
        LOCAL = 2,
    }
);

/// A row of a transfer table: up to `bytes`, move like this.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferRow {
    /// The row holds for transfers of at most this many bytes.
    pub bytes: u64,
    /// How to move them.
    pub method: Method,
    /// Blocks of the grid.
    pub blocks: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Bulk copies in flight per block ([`Method::BULK`]).
    pub stages: u32,
    /// Bytes of each bulk copy, a multiple of 16 ([`Method::BULK`]).
    pub stage_bytes: u32,
    /// Zero.
    pub reserved: u32,
}

/// A move of bytes between two addresses, ordered on a stream.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Transfer {
    /// First byte written.
    pub destination: DeviceAddress,
    /// First byte read.
    pub source: DeviceAddress,
    /// Bytes; may be 0.
    pub bytes: u64,
    /// The signal to give once every byte is visible to the peer; `word` 0 for none.
    pub signal: SignalTarget,
    /// Which side is remote.
    pub direction: Direction,
    /// Method, blocks, threads and bytes in flight; never [`Method::AUTOMATIC`].
    pub row: TransferRow,
}

impl Transfer {
    /// A copy of `bytes` by the copy engine, without a signal, between any two addresses of this rank's
    /// that the device knows; or a peer's, where the direction is changed.
    pub fn by_engine(destination: DeviceAddress, source: DeviceAddress, bytes: u64) -> Self {
        Self {
            destination,
            source,
            bytes,
            direction: Direction::LOCAL,
            row: TransferRow {
                bytes,
                method: Method::COPY_ENGINE,
                ..TransferRow::default()
            },
            ..Self::default()
        }
    }
}

/// A copy of a matrix of bytes to where its rows lie further apart, or closer.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowsCopy {
    /// First byte written.
    pub destination: DeviceAddress,
    /// Bytes from one row to the next there; at least `bytes`.
    pub destination_stride: u64,
    /// First byte read.
    pub source: DeviceAddress,
    /// Bytes from one row to the next there; at least `bytes`.
    pub source_stride: u64,
    /// Bytes of a row; may be 0.
    pub bytes: u64,
    /// Rows; may be 0.
    pub rows: u64,
    /// Which side is remote, if one is.
    pub direction: Direction,
    /// Zero.
    pub reserved: u32,
}

/// What the copy kernels take: the device's part of a [`Transfer`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct TransferArguments {
    /// First byte written.
    pub destination: DeviceAddress,
    /// First byte read.
    pub source: DeviceAddress,
    /// Bytes; may be 0.
    pub bytes: u64,
    /// The signal to give; `word` 0 for none.
    pub signal: SignalTarget,
    /// Bulk copies in flight per block.
    pub stages: u32,
    /// Bytes of each bulk copy.
    pub stage_bytes: u32,
}

/// What the ping-pong kernels of the benchmark take (`symmem_latency_packet`,
/// `symmem_latency_signal`): `rounds` round trips between two ranks inside one kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct LatencyArguments {
    /// This rank's inbox, aligned to 16 bytes: the flag at its start, two slots of payload from
    /// [`SIGNAL_STRIDE`](super::SIGNAL_STRIDE) on.
    pub local: DeviceAddress,
    /// The peer's inbox.
    pub remote: DeviceAddress,
    /// Bytes of payload put before each signal, a multiple of 8.
    pub bytes: u64,
    /// Where the nanoseconds of all rounds together are written (64 bits); all ones if a wait gave up.
    pub result: DeviceAddress,
    /// Abort word, record and deadline.
    pub watch: Watch,
    /// Round trips.
    pub rounds: u32,
    /// The flag's value before the first round.
    pub base: u32,
    /// 1 at the rank that sends first.
    pub first: u32,
    /// The other rank (for the record).
    pub peer: u32,
}
