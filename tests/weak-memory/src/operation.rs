//! What an instruction does: operands, and the function of an arithmetic one. Decoded once, by
//! [`crate::decode`].
//!
//! The instructions are those that symmem's kernels are compiled to. Sources: AMD's "CDNA3 Instruction Set
//! Architecture" and, for gfx90a, "CDNA2 Instruction Set Architecture".

use crate::scalar::ScalarFunction;
use crate::vector::VectorFunction;

/// Where `vcc` and `exec` lie among the scalar registers.
pub const VCC: usize = 106;
/// See [`VCC`].
pub const EXEC: usize = 126;

/// What an instruction reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// Scalar registers from this one on.
    Scalar(usize),
    /// Vector registers from this one on.
    Vector(usize),
    /// A constant; 64-bit operations sign-extend it.
    Constant(i64),
}

/// How far an access reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modifiers {
    /// Added to the address.
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

/// An instruction.
#[derive(Clone, Debug)]
pub enum Operation {
    Nothing,
    Sleep,
    End,
    Barrier,
    /// How many accesses may remain: of global memory, and of scalar and shared.
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
        /// Which byte of each source alone counts.
        bytes: [Option<u8>; 2],
    },
    Compare {
        function: fn(u64, u64) -> bool,
        wide: bool,
        signed: bool,
        destination: usize,
        sources: [Operand; 2],
    },
    ReadFirstLane {
        destination: usize,
        source: usize,
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
    Store {
        source: usize,
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
    /// Words of shared memory, each by its offset from the address, into registers that follow each other.
    SharedLoad {
        destination: usize,
        address: usize,
        offsets: Vec<usize>,
    },
    /// Registers, each with its offset.
    SharedStore {
        address: usize,
        words: Vec<(usize, usize)>,
    },
    /// Adds a product of f16 matrices of 16 by 16 to one of f32, by all lanes of the wave, active or not: lane
    /// `l` has four elements of row `l % 16` of `a` from column `4 * (l / 16)` on, so of a column of `b`, and of
    /// column `l % 16` of the result.
    MatrixMultiply {
        destination: usize,
        a: usize,
        b: usize,
        c: usize,
    },
    /// `system`: to what peers see.
    WriteBack {
        system: bool,
    },
    Invalidate {
        level1: bool,
        level2: bool,
    },
    /// Floating point that is not modelled: an error where a wave comes to it.
    Unmodelled,
}
