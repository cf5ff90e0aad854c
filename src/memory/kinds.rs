//! The strategies of sharing memory that all ranks have.

use crate::backend::abi::{Capabilities, ShareKindCode};
use crate::base::error::Result;
use crate::base::names;
use crate::rank::agreement::Round;

/// Returns the strategies that a backend lists.
pub(crate) fn listed_kinds(capabilities: &Capabilities) -> Vec<ShareKindCode> {
    capabilities
        .share_kinds
        .iter()
        .copied()
        // A newer backend may list kinds that this version does not know.
        .filter(|&kind| names::ShareKind::of(kind).is_some())
        .collect()
}

/// Returns the strategies that every rank lists, in rank 0's order, so that all try the same one at a time.
pub(crate) fn common_kinds(
    round: &mut Round<'_>,
    mine: &[ShareKindCode],
) -> Result<Vec<ShareKindCode>> {
    let payload: Vec<u8> = mine.iter().map(|kind| kind.0 as u8).collect();
    let answers = round.exchange(&payload)?;
    Ok(answers[0]
        .iter()
        .filter(|kind| answers.iter().all(|answer| answer.contains(kind)))
        .map(|&kind| ShareKindCode(u32::from(kind)))
        .collect())
}
