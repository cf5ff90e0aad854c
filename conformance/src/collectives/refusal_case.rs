//! Collective calls that must fail, as a case.

use super::case::{CollectiveCase, CollectiveVariant};
use crate::dtype::Dtype;
use serde::{Deserialize, Serialize};

/// Collective calls that must fail with [`symmem::Error::InvalidArgument`], with one element type.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RefusalCase {
    /// Element type.
    pub dtype: Dtype,
    /// Seed of the data of the call that follows the refused ones.
    pub seed: u64,
}

impl std::fmt::Display for RefusalCase {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "CollectiveRefusals/{:?}", self.dtype)
    }
}

impl RefusalCase {
    /// Returns a simple case with the given operation and algorithm.
    pub fn case(&self, variant: CollectiveVariant, in_place: bool) -> CollectiveCase {
        CollectiveCase {
            in_place,
            ..CollectiveCase::plain(variant, self.dtype, self.seed)
        }
    }
}
