//! Transfers, and the arguments of the kernels that make them.

use super::forms::open_enum;
use super::handles::DeviceAddress;
use super::signals::{SignalTarget, Watch};

open_enum!(
    /// Method of a transfer.
    MethodCode {
        /// The planner chooses by direction and size.
        AUTOMATIC = 0,
        /// The copy engine, which occupies no compute unit.
        COPY_ENGINE = 1,
        /// A kernel of unrolled 16-byte loads and stores.
        VECTOR = 2,
        /// A kernel of bulk asynchronous copies through shared memory.
        BULK = 3,
        /// A kernel of four warps that move a quarter each, with 4-byte loads unrolled by four: TileScale's published
        /// method.
        UNROLLED = 4,
    }
);

open_enum!(
    /// The remote side of a transfer.
    DirectionCode {
        /// The destination: stores to the peer.
        PUT = 0,
        /// The source: loads from the peer.
        GET = 1,
        /// Neither: both are this rank's device or host memory.
        LOCAL = 2,
    }
);

/// A row of a transfer table: the choice for transfers of at most `bytes`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferRow {
    /// Largest transfer, in bytes.
    pub bytes: u64,
    /// Method of the transfer.
    pub method: MethodCode,
    /// Blocks of the grid.
    pub blocks: u32,
    /// Threads per block.
    pub threads: u32,
    /// Bulk copies in flight per block ([`MethodCode::BULK`]).
    pub stages: u32,
    /// Size of each bulk copy in bytes, a multiple of 16 ([`MethodCode::BULK`]).
    pub stage_bytes: u32,
    /// Zero.
    pub reserved: u32,
}

/// A transfer between two addresses, ordered on a stream.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Transfer {
    /// First byte written.
    pub destination: DeviceAddress,
    /// First byte read.
    pub source: DeviceAddress,
    /// Bytes; may be 0.
    pub bytes: u64,
    /// The signal to give once every byte is visible to the peer; `word` is 0 for none.
    pub signal: SignalTarget,
    /// The remote side.
    pub direction: DirectionCode,
    /// Method, grid and bulk copies; never [`MethodCode::AUTOMATIC`].
    pub row: TransferRow,
}

impl Transfer {
    /// Returns a copy of `bytes` by the copy engine, without a signal, between two addresses of this rank that the
    /// device can reach. For a peer's address, change the direction.
    pub fn by_engine(destination: DeviceAddress, source: DeviceAddress, bytes: u64) -> Self {
        Self {
            destination,
            source,
            bytes,
            direction: DirectionCode::LOCAL,
            row: TransferRow {
                bytes,
                method: MethodCode::COPY_ENGINE,
                ..TransferRow::default()
            },
            ..Self::default()
        }
    }
}

/// A copy of a matrix of bytes that may change the stride between its rows.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowsCopy {
    /// First byte written.
    pub destination: DeviceAddress,
    /// Bytes from one row of the destination to the next; at least `bytes`.
    pub destination_stride: u64,
    /// First byte read.
    pub source: DeviceAddress,
    /// Bytes from one row of the source to the next; at least `bytes`.
    pub source_stride: u64,
    /// Bytes of a row; may be 0.
    pub bytes: u64,
    /// Rows; may be 0.
    pub rows: u64,
    /// The remote side, if there is one.
    pub direction: DirectionCode,
    /// Zero.
    pub reserved: u32,
}

/// Arguments of the copy kernels: the device's part of a [`Transfer`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct TransferArguments {
    /// First byte written.
    pub destination: DeviceAddress,
    /// First byte read.
    pub source: DeviceAddress,
    /// Bytes; may be 0.
    pub bytes: u64,
    /// The signal to give; `word` is 0 for none.
    pub signal: SignalTarget,
    /// Bulk copies in flight per block.
    pub stages: u32,
    /// Bytes of each bulk copy.
    pub stage_bytes: u32,
}

/// Arguments of the benchmark's ping-pong kernels (`symmem_latency_packet`, `symmem_latency_signal`), which make
/// `rounds` round trips between two ranks in one kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct LatencyArguments {
    /// This rank's inbox, aligned to 16 bytes: the flag at its start, then two payload slots from
    /// [`SIGNAL_STRIDE`](super::SIGNAL_STRIDE) on.
    pub local: DeviceAddress,
    /// The peer's inbox.
    pub remote: DeviceAddress,
    /// Payload put before each signal, in bytes, a multiple of 8.
    pub bytes: u64,
    /// Address that the time of all rounds is written to, in nanoseconds (64 bits); all ones if a wait gave up.
    pub result: DeviceAddress,
    /// Abort word, record and deadline.
    pub watch: Watch,
    /// Number of round trips.
    pub rounds: u32,
    /// The flag's value before the first round.
    pub base: u32,
    /// 1 at the rank that sends first.
    pub first: u32,
    /// The other rank, for the record.
    pub peer: u32,
}
