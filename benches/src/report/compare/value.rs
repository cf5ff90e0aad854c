//! One figure of a run.

/// One figure of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Value {
    pub bytes: u64,
    /// GB/s; of a collective busbw.
    pub gbps: f64,
    /// Of one transfer or call.
    pub ns: f64,
    /// Bytes or elements that were wrong: then nothing else is shown.
    pub wrong: u64,
}

impl Value {
    pub fn right(bytes: u64, gbps: f64, ns: f64) -> Self {
        Self {
            bytes,
            gbps,
            ns,
            wrong: 0,
        }
    }

    pub fn wrong(bytes: u64, wrong: u64) -> Self {
        Self {
            wrong,
            ..Self::right(bytes, 0.0, 0.0)
        }
    }
}
