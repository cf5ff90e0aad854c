//! The store of one node: through it ranks that share a node pass each other file descriptors, if the job's store is on
//! another node for some.
//!
//! Its ranks are numbered within the node, and its errors name ranks of the world.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::base::bootstrap_error::BootstrapError;
use crate::base::placement::Placement;
use crate::bootstrap::environment::{LaunchEnvironment, random_job};
use crate::bootstrap::meeting::Meeting;
use crate::bootstrap::store::Store;

/// Tag of the step in which ranks tell the names under which nodes meet.
const NAMES: &str = "nodes/names";

/// A rank's connection to the store of its node.
#[derive(Debug)]
pub(super) struct NodeStore {
    store: Store,
    /// The world's rank of each rank of the node.
    members: Vec<u32>,
}

impl NodeStore {
    /// Meets the other ranks of this rank's node. Collective over all ranks of the `world`.
    pub(super) fn meet(
        world: &Store,
        environment: &LaunchEnvironment,
        placement: &Placement,
        deadline: Duration,
    ) -> Result<Self, BootstrapError> {
        let rank = environment.rank as usize;
        // A name that nobody can guess, and that no other job has: the node's lowest rank chooses it.
        let name = random_job(environment.rank)?;
        let names = world.all_gather(NAMES, name.as_bytes(), deadline)?;
        let members = placement.node_members(rank);
        let name = String::from_utf8_lossy(&names[members[0]]).into_owned();
        let local = LaunchEnvironment {
            rank: placement.local_rank(rank) as u32,
            world: members.len() as u32,
            local_rank: placement.local_rank(rank) as u32,
            local_world: members.len() as u32,
            address: None,
            node: None,
            job: Some(name),
            ..environment.clone()
        };
        let members: Vec<u32> = members.iter().map(|&member| member as u32).collect();
        let wanted = || world.check().is_ok();
        let met = Meeting::of(&local, deadline, Some(&wanted)).and_then(|meeting| meeting.meet());
        match met {
            Ok((store, _)) => Ok(Self { store, members }),
            Err(error) => Err(cause(world, error, &members)),
        }
    }

    /// Gathers the descriptors of the node's ranks, by the world's rank. Ends if the job has failed: then another rank of
    /// the node may have learned so in the step before, in the store of the `world`, and does not come.
    pub(super) fn gather(
        &self,
        world: &Store,
        tag: &str,
        descriptor: Option<BorrowedFd<'_>>,
        deadline: Duration,
    ) -> Result<Vec<(usize, Option<OwnedFd>)>, BootstrapError> {
        let wanted = || world.check().is_ok();
        let gathered = (self.store)
            .gather_while(tag, &[], descriptor, deadline, &wanted)
            .map_err(|error| cause(world, error, &self.members))?;
        let members = self.members.iter().map(|&member| member as usize);
        Ok(members
            .zip(gathered.into_iter().map(|part| part.descriptor))
            .collect())
    }
}

/// Returns why a step among the `members` of a node failed: the job's failure, if that called it off.
fn cause(world: &Store, error: BootstrapError, members: &[u32]) -> BootstrapError {
    match (error, world.check()) {
        (BootstrapError::CalledOff { .. }, Err(cause)) => cause,
        (error, _) => error.among(members),
    }
}
