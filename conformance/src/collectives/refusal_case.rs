//! Calls that must be refused, as a case.

use super::case::{CollectiveCase, Way};
use crate::dtype::Dtype;
use serde::{Deserialize, Serialize};

/// Calls that must be refused, with elements of one type.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RefusalCase {
    /// The type.
    pub dtype: Dtype,
    /// Seeds the data of the call after.
    pub seed: u64,
}

impl std::fmt::Display for RefusalCase {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "CollectiveRefusals/{:?}", self.dtype)
    }
}

impl RefusalCase {
    /// A plain case of the given way.
    pub fn case(&self, way: Way, in_place: bool) -> CollectiveCase {
        CollectiveCase {
            in_place,
            ..CollectiveCase::plain(way, self.dtype, self.seed)
        }
    }
}
