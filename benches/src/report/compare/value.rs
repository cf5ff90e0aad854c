//! One measured value of a run.

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Value {
    pub bytes: u64,
    /// GB/s; busbw for a collective.
    pub gbps: f64,
    /// Time of one transfer or call.
    pub ns: f64,
    /// Number of wrong bytes or elements; if not 0, the tables show nothing else.
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
