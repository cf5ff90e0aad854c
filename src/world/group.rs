//! Groups: subsets of a communicator's ranks.

use crate::backend::abi::HostMemory;
use crate::base::error::{Error, Result};
use crate::group::far::{Far, STAGING};
use crate::group::lanes::Lanes;
use crate::group::membership::Membership;
use crate::group::slots::{Layout, Slots};
use crate::group::span::Span;
use crate::memory::sharing::{self, Origin};
use crate::network::network::Network;
use crate::network::registration;
use crate::rank::agreement::Round;
use crate::rank::allocation::Allocation;
use crate::world::communicator::Communicator;
use crate::world::world::World;
use std::sync::Arc;

/// A subset of a communicator's ranks, with collective calls of its own ([`crate::CollectiveOptions::group`]).
/// Its members are numbered from 0 without gaps. Made by [`crate::Communicator::split`].
///
/// Its collectives do not use multicast, whatever algorithm is named: the communicator's only multicast object
/// has all ranks. The equivalent algorithm over the members' own addresses takes its place.
///
/// Dropping it gives up this rank's use, as with a [`crate::SymmetricBuffer`].
pub struct Group {
    shared: Arc<World>,
    /// `None` only during the drop.
    membership: Option<Membership>,
}

impl Group {
    /// Returns this rank's number in the group.
    pub fn rank(&self) -> usize {
        self.membership().span.rank
    }

    /// Returns the number of ranks in the group.
    pub fn world_size(&self) -> usize {
        self.membership().span.members.len()
    }

    /// Returns the communicator's rank of each member.
    pub fn members(&self) -> &[usize] {
        &self.membership().span.members
    }

    pub(crate) fn membership(&self) -> &Membership {
        self.membership
            .as_ref()
            .expect("taken only by `drop`, which ends the value")
    }

    pub(crate) fn world(&self) -> &Arc<World> {
        &self.shared
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(membership) = self.membership.take() {
            if self.shared.health.is_fork() {
                // Its parent's; the lists below may be locked by a thread that is not there.
                std::mem::forget(membership);
                return;
            }
            let allocation = membership.slots.allocation().clone();
            for side in membership.lanes.closing() {
                self.shared.released.push(side);
            }
            for sequence in &membership.sequences {
                self.shared.released.push(sequence.clone());
            }
            let staging = membership.far.as_ref().map(|far| far.staging.clone());
            drop(membership);
            self.shared.give_up(allocation);
            if let Some(staging) = staging {
                self.shared.give_up(staging);
            }
        }
    }
}

impl std::fmt::Debug for Group {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Group")
            .field("members", &self.members())
            .field("rank", &self.rank())
            .finish_non_exhaustive()
    }
}

impl Communicator {
    /// Divides the ranks into groups, one for each `color`, ordered by `key` and then by rank. A rank that
    /// passes `None` joins no group and gets `None`. Collective over all ranks; blocks for at most the setup
    /// deadline in each step. Each rank allocates memory (29 to 46 MiB on a GPU), whether it joins a group or not;
    /// the memory is released when all ranks have dropped their groups.
    ///
    /// ```
    /// # use symmem::CollectiveOptions;
    /// # fn main() -> symmem::Result<()> {
    /// # let communicator = symmem::init()?;
    /// # let stream = communicator.stream()?;
    /// # let x = communicator.allocate::<f32>(&[64])?;
    /// # let y = communicator.allocate::<f32>(&[64])?;
    /// let parity = communicator.rank() as u32 % 2;
    /// let group = communicator.split(Some(parity), 0)?; // even and odd ranks
    /// let options = CollectiveOptions::new().group(group.as_ref());
    /// stream.with(&options).broadcast(0, &y, &x)?; // root 0 is the group's first rank
    /// stream.synchronize()?;
    /// # communicator.finalize().map(drop)
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of any collective call.
    pub fn split(&self, color: Option<u32>, key: u32) -> Result<Option<Group>> {
        let shared = self.world();
        shared.reclaim();
        let mut round = shared.agreement.begin("split");
        let answers = round.exchange(&encode(color, key))?;
        let colors: Option<Vec<_>> = answers.iter().map(|answer| decode(answer)).collect();
        let colors = colors.ok_or_else(|| Error::InvalidArgument {
            rank: shared.rank,
            operation: "split",
            message: "a rank sent its color in an unknown format; run the same build of symmem on all ranks".into(),
        })?;
        let span = members_of(&colors, shared.rank)
            .map(|(members, rank)| Span::new(members, rank, &shared.placement));
        let here = span.as_ref().map(Span::here);
        let lanes = Lanes::open(
            shared,
            &shared.released,
            here.as_ref().map_or(0, |(members, _)| members.len()),
        );
        let vote = round.vote(lanes.as_ref().map(drop).map_err(Error::clone));
        let selector = &shared.collectives.selector;
        let most = shared.placement.node_members(shared.rank).len();
        let layout = Layout::of_groups(selector, most, 1..=most);
        let allocated = vote.and_then(|()| {
            let kinds = [shared.kind];
            sharing::allocate(
                shared.allocator(),
                &mut round,
                &kinds,
                layout.bytes(),
                Origin::Signals,
            )
        });
        let staging = match (&allocated, &shared.network) {
            (Ok(_), Some(network)) => allocate_staging(shared, network, &mut round).map(Some),
            _ => Ok(None),
        };
        drop(round);
        let allocated = match staging {
            Ok(_) => allocated,
            Err(ref error) => allocated.and_then(|(allocation, _)| {
                shared.give_up(allocation);
                Err(error.clone())
            }),
        };
        let (allocation, _) = allocated.inspect_err(|_| {
            for side in lanes.iter().flat_map(Lanes::closing) {
                shared.released.push(side);
            }
        })?;
        let (Some(span), Some((members, rank)), lanes) = (span, here, lanes?) else {
            shared.give_up(allocation);
            if let Some((staging, _)) = staging.ok().flatten() {
                shared.give_up(staging);
            }
            return Ok(None);
        };
        let whole = members.len() == shared.world && members.is_sorted();
        let slots = Slots::new(allocation, layout, (&members, rank), &shared.placement);
        let mut membership = Membership::new(span, whole, slots, lanes);
        membership.far = staging
            .ok()
            .flatten()
            .map(|staging| Far::new(staging, &membership.span));
        Ok(Some(Group {
            shared: shared.clone(),
            membership: Some(membership),
        }))
    }
}

/// Allocates the memory for a group's legs, and lets ranks of other nodes reach it.
fn allocate_staging(
    world: &World,
    network: &Arc<Network>,
    round: &mut Round<'_>,
) -> Result<(Arc<Allocation>, Option<HostMemory>)> {
    let staging = world.allocate(round, STAGING, Origin::Backend)?;
    match registration::register_mirrored(network, round, world, &staging) {
        Ok(mirror) => Ok((staging, mirror)),
        Err(error) => {
            world.give_up(staging);
            Err(error)
        }
    }
}

/// A rank's arguments of [`Communicator::split`]: color and key.
pub(crate) type SplitArguments = (Option<u32>, u32);

pub(crate) fn encode(color: Option<u32>, key: u32) -> [u8; 9] {
    let mut bytes = [0; 9];
    bytes[0] = color.is_some().into();
    bytes[1..5].copy_from_slice(&color.unwrap_or(0).to_le_bytes());
    bytes[5..].copy_from_slice(&key.to_le_bytes());
    bytes
}

pub(crate) fn decode(bytes: &[u8]) -> Option<SplitArguments> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let color = (*bytes.first()? != 0).then_some(word(1)?);
    Some((color, word(5)?))
}

/// Returns the members of `rank`'s group by the colors of all ranks, and its number there.
pub(crate) fn members_of(colors: &[SplitArguments], rank: usize) -> Option<(Vec<usize>, usize)> {
    let color = colors[rank].0?;
    let mut members: Vec<usize> = (0..colors.len())
        .filter(|&member| colors[member].0 == Some(color))
        .collect();
    // A stable sort: ranks of the same key stay in order.
    members.sort_by_key(|&member| colors[member].1);
    let number = members.iter().position(|&member| member == rank)?;
    Some((members, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_ordered_by_key_and_then_by_rank() {
        let colors = [
            (Some(1), 5),
            (Some(0), 0),
            (Some(1), 2),
            (None, 0),
            (Some(1), 2),
        ];
        assert_eq!(members_of(&colors, 0), Some((vec![2, 4, 0], 2)));
        assert_eq!(members_of(&colors, 4), Some((vec![2, 4, 0], 1)));
        assert_eq!(members_of(&colors, 1), Some((vec![1], 0)));
        assert_eq!(members_of(&colors, 3), None);
    }

    #[test]
    fn a_wish_survives_its_way_and_a_short_one_is_refused() {
        for wish in [(None, 7), (Some(0), 0), (Some(u32::MAX), u32::MAX)] {
            assert_eq!(decode(&encode(wish.0, wish.1)), Some(wish));
        }
        assert_eq!(decode(&[1, 2, 3]), None);
    }
}
