//! Findings of checks, and the faults that tests plant to prove that checks find them.

/// A fault that a test plants to make a check fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A byte of the data changes after its arrival.
    WrongByte,
    /// A guard element next to the data changes.
    Guard,
    /// An element of the source changes.
    Source,
    /// Data arrives without its signal.
    MissingSignal,
    /// Data is put after the barrier that should follow it.
    Late,
    /// A collective accumulates from the last rank to the first; a repeated GEMM rounds differently.
    WrongOrder,
    /// The last eight bytes of a collective's result have not arrived.
    MissingPacket,
    /// A rank does not make the call.
    Absent,
    /// The sum with a residual is not stored.
    OldResidual,
    /// Scales are a little too large for the results.
    WrongScale,
    /// A result is within its bound, but differs from the other ranks'.
    OtherBits,
    /// A result is within its bound, but differs when the call is repeated.
    OtherRepeat,
    /// A block of the result is of the call before.
    StaleBlock,
    /// The result has the rows of the next rank.
    WrongOwner,
    /// A sum lacks the part of one rank.
    MissingPart,
}

/// Descriptions of everything that this rank found wrong.
pub(super) type Findings = Vec<String>;
