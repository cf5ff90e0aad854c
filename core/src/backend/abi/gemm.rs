//! Products of matrices: by the vendor's library, and by a kernel that multiplies what it gathers.

use super::collectives::{CollectiveGroup, ElementType};
use super::forms::{handle, open_enum};
use super::handles::DeviceAddress;
use super::limits::MAX_RANKS;

handle!(
    /// A product that is prepared for one shape: the library's plan and its workspace.
    RawGemm
);

open_enum!(
    /// How the elements of a matrix follow each other.
    MatrixOrder {
        /// A row's are neighbours; the stride is from one row to the next.
        ROWS = 1,
        /// A column's are neighbours; the stride is from one column to the next.
        COLUMNS = 2,
    }
);

open_enum!(
    /// How `A` is divided among ranks.
    Sharding {
        /// Each rank has rows of it.
        ROWS = 1,
        /// Each rank has columns of it.
        COLUMNS = 2,
    }
);

open_enum!(
    /// How a shard of `A` comes to where [`GatheredGemmArguments`] multiplies it.
    GatherMode {
        /// Others put it there, and raise an arrival word for each chunk: the kernel only waits.
        WAIT = 1,
        /// Blocks of the kernel load the peers' shards, and raise this rank's own arrival words.
        PULL = 2,
        /// Blocks of the kernel store this rank's shard at every peer, and raise the peers' arrival words.
        PUSH = 3,
        /// As [`GatherMode::PUSH`], and the kernel is the barrier in front of it, too: one launch is the whole
        /// call. For few rows, which a barrier in front would cost a fifth.
        PUSH_AT_ONCE = 4,
    }
);

impl GatherMode {
    /// Its bit in [`GatheredLimits::modes`].
    pub const fn bit(self) -> u32 {
        1 << self.0
    }
}

/// Most blocks that a grid has in [`GatherMode::PUSH_AT_ONCE`].
pub const AT_ONCE_BLOCKS: u32 = 320;
/// Most chunks of a shard there: all threads of a warp look at two each.
pub const AT_ONCE_CHUNKS: u32 = 64;

/// `C[m, n] = A[m, k] · B[k, n]`, plus `bias[n]` to each row where there is one.
///
/// Products are summed in f32 and rounded once. `A` and `C` are row-major.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GemmShape {
    /// Rows of `A` and `C`.
    pub m: u64,
    /// Columns of `B` and `C`.
    pub n: u64,
    /// Columns of `A`, rows of `B`.
    pub k: u64,
    /// Elements from one row of `A` to the next.
    pub a_stride: u64,
    /// Elements from one row of `B` to the next, or from one column where [`MatrixOrder::COLUMNS`].
    pub b_stride: u64,
    /// Elements from one row of `C` to the next.
    pub c_stride: u64,
    /// What all four matrices are made of: [`ElementType::F16`] or [`ElementType::BF16`].
    pub element: ElementType,
    /// How `B` lies.
    pub b_order: MatrixOrder,
    /// 1 if there is a bias.
    pub bias: u32,
    /// Zero.
    pub reserved: u32,
}

/// The matrices of one product. None overlaps `c`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GemmOperands {
    /// `A`.
    pub a: DeviceAddress,
    /// `B`.
    pub b: DeviceAddress,
    /// `C`, written.
    pub c: DeviceAddress,
    /// `n` elements, contiguous; null for none.
    pub bias: DeviceAddress,
}

/// What a backend's kernel can do for a shape.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatheredLimits {
    /// Most blocks that are resident at once if nothing else runs, which is the largest grid; in the table 0
    /// says that there is no kernel for this shape.
    pub blocks: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Rows of `C` that a block computes at a time.
    pub tile_m: u32,
    /// Columns of `C` that a block computes at a time.
    pub tile_n: u32,
    /// Rows of a chunk are a multiple of this, but for a shard's last chunk.
    pub chunk_alignment: u32,
    /// Blocks that move `A` where the caller does not say; 0 where none has to be set aside for that.
    pub movers: u32,
    /// The modes that there are, as [`GatherMode::bit`].
    pub modes: u32,
    /// Bytes that `A`, its shards and `B` begin at a multiple of; 0 and 1 for any.
    pub alignment: u32,
}

/// A product by one kernel that multiplies each chunk of `A` once it has arrived.
///
/// Shard `p` of `A` is rows `p * shard ..` of it, or columns, as [`Sharding`] says: the last shards have
/// fewer, or none. It lies row-major and without gaps at member `p`. In `gathered` it lies where it does
/// in the whole `A`, whose rows are `shape.a_stride` apart. A shard is cut into chunks of `chunk` of its
/// rows, the last with fewer; chunk `c` of shard `p` has arrived at a member once that one's word at
/// `arrivals + (p * chunks + c) *` [`SIGNAL_STRIDE`](super::SIGNAL_STRIDE) has reached the value at `epoch`, compared with
/// wrapping arithmetic. Own chunks are not waited for, nor those without rows or columns.
///
/// All members have reached the call before it is submitted (a barrier on the same stream has just raised
/// `epoch`, alike on all), and their shards stay as they are until a later barrier.
///
/// Not so in [`GatherMode::PUSH_AT_ONCE`]. There the slot of each member is an array of words,
/// [`SIGNAL_STRIDE`](super::SIGNAL_STRIDE) apart, of which each rank raises its own at all others when it comes to a call, and
/// `epoch` is an array of [`AT_ONCE_BLOCKS`] words of 32 bits: each block of the grid raises its own by one in
/// each call, and that is what the other words reach. All of them begin with zero. The grid is the kernel's
/// own, tiles and blocks in the limits are not its. Where `A` is divided by rows `gathered` gets the own
/// shard always, and own chunks are waited for as all others are.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct GatheredGemmArguments {
    /// Who takes part; its slots are used in [`GatherMode::PUSH_AT_ONCE`] only.
    pub group: CollectiveGroup,
    /// Each member's shard of `A`, as this device addresses it: the own entry always, all of them where
    /// the kernel pulls. Own rows are multiplied from there.
    pub sources: [DeviceAddress; MAX_RANKS],
    /// Each member's gathered `A`: the own entry always, all of them where the kernel pushes.
    pub gathered: [DeviceAddress; MAX_RANKS],
    /// Each member's arrival words: the own entry always, all of them where the kernel pushes.
    pub arrivals: [DeviceAddress; MAX_RANKS],
    /// This rank's 32-bit word with the value that arrival words reach in this call; in
    /// [`GatherMode::PUSH_AT_ONCE`] the first of the words that count calls.
    pub epoch: DeviceAddress,
    /// `B`, whole.
    pub b: DeviceAddress,
    /// `C`, whole, written.
    pub c: DeviceAddress,
    /// `n` elements; null for none.
    pub bias: DeviceAddress,
    /// Of the whole product.
    pub shape: GemmShape,
    /// Rows, or columns, of a shard, but for the last ones.
    pub shard: u64,
    /// Rows of a shard that one arrival word speaks for.
    pub chunk: u64,
    /// Chunks of a full shard.
    pub chunks: u32,
    /// How `A` is divided.
    pub sharding: Sharding,
    /// How shards come here.
    pub mode: GatherMode,
    /// Blocks that move `A`, the first of the grid; 0 where [`GatherMode::WAIT`]. In
    /// [`GatherMode::PUSH_AT_ONCE`] at most so many do that, before they multiply.
    pub movers: u32,
    /// 1 if the own shard is copied to the own `gathered` too (not where [`GatherMode::WAIT`]).
    pub keep: u32,
    /// Zero.
    pub reserved: u32,
}

/// Revision of what the library is asked for. A stored way is a place in the list that it answers with, so this
/// is raised with whatever the answer depends on: `WAYS`, `MOST_WORKSPACE`, `ALIGNMENT`, `ELEMENT`, the
/// order of the two questions, and what `ask_with` and an operation's description say.
pub const MATRIX_REQUEST: u32 = 2;
