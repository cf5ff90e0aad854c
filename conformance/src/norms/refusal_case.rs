//! Calls of an all-reduce with a norm that must fail, as a case.

use crate::dtype::Dtype;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Calls that must fail with [`symmem::Error::InvalidArgument`], with rows of one type, and then a call that must succeed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NormRefusalCase {
    /// Type of the rows: bf16, f16 or f32.
    pub dtype: Dtype,
    /// Seeds the data of the call that follows the refused ones.
    pub seed: u64,
}

impl fmt::Display for NormRefusalCase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "NormRefusals/{:?}", self.dtype)
    }
}
