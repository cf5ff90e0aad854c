//! What an instruction does: its operands, and the function of an arithmetic instruction. [`crate::decode`] decodes
//! each instruction once.
//!
//! Only the instructions that symmem's kernels compile to are modeled. Sources: AMD's "CDNA3 Instruction Set
//! Architecture" and, for gfx90a, "CDNA2 Instruction Set Architecture".

use half::{bf16, f16};
use symmem_kernels_hip::Target;

use crate::scalar::ScalarFunction;
use crate::vector::VectorFunction;

/// The index of `vcc` among the scalar registers.
pub const VCC: usize = 106;
/// The index of `m0` among the scalar registers.
pub const M0: usize = 124;
/// The index of `exec` among the scalar registers.
pub const EXEC: usize = 126;

/// What an instruction reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A scalar register, or the first of several.
    Scalar(usize),
    /// A vector register, or the first of several.
    Vector(usize),
    /// The magnitude of the f32 in a vector register.
    Magnitude(usize),
    /// A constant; 64-bit operations sign-extend it.
    Constant(i64),
}

/// Modifiers of a memory access: the offset, and the scope bits of either architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modifiers {
    /// Offset added to the address, in bytes.
    pub offset: i64,
    pub sc0: bool,
    pub sc1: bool,
    pub glc: bool,
    pub slc: bool,
}

/// An address in global memory: 64 bits of vector registers, or a scalar base plus 32 bits.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    pub vector: usize,
    pub base: Option<usize>,
}

/// What a read-modify-write does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    Add,
    Swap,
    CompareSwap,
}

/// When a branch is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    Always,
    ScalarCondition(bool),
    ExecZero(bool),
    VccZero(bool),
}

/// An element type of matrix instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatrixElement {
    F16,
    Bf16,
    /// E4M3, in the encoding of the target.
    F8,
}

impl MatrixElement {
    /// Returns the elements in a register.
    pub fn in_register(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::F8 => 4,
        }
    }

    /// Returns the value of an element, whose bits are the lowest.
    pub fn widen(self, bits: u32, target: Target) -> f32 {
        match self {
            Self::F16 => f16::from_bits(bits as u16).to_f32(),
            Self::Bf16 => bf16::from_bits(bits as u16).to_f32(),
            Self::F8 => widen_f8(bits as u8, target == Target::Gfx942),
        }
    }
}

/// Returns the value of an E4M3 number: OCP's, or as `halved` the other encoding of CDNA3, in which the same bits stand for half
/// of the number, and only a sign by itself is NaN.
fn widen_f8(bits: u8, halved: bool) -> f32 {
    let (exponent, mantissa) = (i32::from(bits >> 3 & 15), f32::from(bits & 7));
    let is_nan = match halved {
        true => bits == 0x80,
        false => bits & 0x7f == 0x7f,
    };
    if is_nan {
        return f32::NAN;
    }
    let bias = if halved { 8 } else { 7 };
    let magnitude = match exponent {
        0 => mantissa / 8.0 * 2f32.powi(1 - bias),
        _ => (1.0 + mantissa / 8.0) * 2f32.powi(exponent - bias),
    };
    if bits & 0x80 == 0 {
        magnitude
    } else {
        -magnitude
    }
}

/// An instruction.
#[derive(Clone, Debug)]
pub enum Operation {
    Nothing,
    Sleep,
    End,
    Barrier,
    /// Waits until at most this many accesses remain: of global memory (`vector`), and scalar and shared (`scalar`).
    Wait {
        vector: Option<usize>,
        scalar: Option<usize>,
    },
    Branch {
        condition: Condition,
        target: usize,
    },
    Scalar {
        function: ScalarFunction,
        destination: Option<usize>,
        sources: Vec<Operand>,
    },
    Vector {
        function: VectorFunction,
        destination: usize,
        carry_out: Option<usize>,
        sources: Vec<Operand>,
        /// The byte or the half of each source that is used, if not the whole source: its lowest bit, and its mask.
        parts: [Option<(u32, u64)>; 2],
        /// The byte or the half of the destination that gets the result; the rest becomes zero.
        into: Option<(u32, u64)>,
    },
    Compare {
        function: fn(u64, u64) -> bool,
        wide: bool,
        signed: bool,
        destination: usize,
        sources: [Operand; 2],
    },
    ReadLane {
        destination: usize,
        source: usize,
        /// `None` for the first active lane.
        lane: Option<usize>,
    },
    ScalarLoad {
        destination: usize,
        words: usize,
        base: usize,
        offset: i64,
    },
    Clock {
        destination: usize,
    },
    Load {
        destination: usize,
        bytes: usize,
        signed: bool,
        address: Address,
        modifiers: Modifiers,
    },
    /// Loads from global memory to shared memory: from where `m0` says on, one lane behind the other.
    LoadToShared {
        bytes: usize,
        address: Address,
        modifiers: Modifiers,
    },
    Store {
        source: usize,
        /// Lower bytes of the first register that are not stored.
        skipped: usize,
        bytes: usize,
        address: Address,
        modifiers: Modifiers,
    },
    Atomic {
        update: Update,
        destination: Option<usize>,
        source: usize,
        bytes: usize,
        address: Address,
        modifiers: Modifiers,
    },
    /// Loads words of shared memory, each at its offset from the address, into consecutive registers.
    SharedLoad {
        destination: usize,
        address: usize,
        offsets: Vec<usize>,
    },
    /// Loads four elements of 16 bits from each lane's address, and transposes them in groups of 16 lanes. All lanes take
    /// part. Lanes `4 i` to `4 i + 3` of a group have line `i` of 16 elements; lane `l` gets element `l` of the four lines.
    /// (CDNA4 ISA, "MFMA Transpose Load from LDS"; `load_transposed` in `arch_hip.h` names the sources for the lanes.)
    SharedLoadTransposed {
        destination: usize,
        address: usize,
        offset: usize,
    },
    /// Stores registers, each at its offset.
    SharedStore {
        address: usize,
        words: Vec<(usize, usize)>,
    },
    /// A store of one half of a register to shared memory.
    SharedStoreHalf {
        source: usize,
        high: bool,
        address: usize,
        offset: usize,
    },
    /// Adds a 16x16x16 or 16x16x32 product of matrices to an f32 matrix. All lanes of the wave take part, active or
    /// not. Lane `l` has `elements` (four or eight) of row `l % 16` of `a` from column `elements * (l / 16)` on, the
    /// same of a column of `b`, and of column `l % 16` of the result four rows from `4 * (l / 16)` on.
    MatrixMultiply {
        element: MatrixElement,
        elements: usize,
        destination: usize,
        a: usize,
        b: usize,
        c: usize,
    },
    /// `system`: makes the stores visible to peers.
    WriteBack {
        system: bool,
    },
    Invalidate {
        level1: bool,
        level2: bool,
    },
    /// Exchanges words between the lanes of a wave: each gets the word of the lane that its address names.
    Permute {
        destination: usize,
        address: usize,
        source: usize,
    },
    /// Floating point that is not modeled: an error if a wave executes it, unless its results may be anything.
    Unmodeled {
        /// The first register of the result, if the operand was understood.
        destination: Option<Operand>,
        wide: bool,
    },
}
