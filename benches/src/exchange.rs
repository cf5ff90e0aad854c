//! Exchange of values among all ranks.

use super::{BenchError, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use symmem::Communicator;

/// Returns the values of all ranks, in rank order. Collective; blocks.
pub(super) fn all_gather<T: Serialize + DeserializeOwned>(
    communicator: &Communicator,
    value: &T,
) -> Result<Vec<T>> {
    let rank = communicator.rank();
    let failed = |peer, reason: serde_json::Error| BenchError::Exchange {
        rank,
        peer,
        reason: reason.to_string(),
    };
    let payload = serde_json::to_vec(value).map_err(|reason| failed(rank, reason))?;
    communicator
        .host_all_gather(&payload)?
        .iter()
        .enumerate()
        .map(|(peer, bytes)| serde_json::from_slice(bytes).map_err(|reason| failed(peer, reason)))
        .collect()
}
