//! What checks find, and the faults that tests plant to see them find.

/// A fault that a test plants to see a check fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A byte of the data is changed after it arrived.
    WrongByte,
    /// An element beside the data is changed.
    Guard,
    /// An element of the source is changed.
    Source,
    /// Data comes without its signal.
    MissingSignal,
    /// Data is put after the barrier that announces it.
    Late,
    /// A collective's result is accumulated from the last rank to the first; a product that is repeated is
    /// rounded another way.
    WrongOrder,
    /// The last eight bytes of a collective's result have not arrived.
    MissingPacket,
    /// A rank does not make the call.
    Absent,
}

/// What this rank saw that it should not have.
pub(super) type Findings = Vec<String>;
