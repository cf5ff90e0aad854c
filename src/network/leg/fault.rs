//! Why a leg failed.

/// The failure of a leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LegFault<F> {
    /// A connection failed.
    Wire(F),
    /// A member sent another number of bytes than this rank expects.
    Length {
        /// The member.
        member: usize,
        /// Bytes expected.
        expected: u64,
        /// Bytes sent.
        seen: u64,
    },
}

impl<F> From<F> for LegFault<F> {
    fn from(fault: F) -> Self {
        Self::Wire(fault)
    }
}
