//! The selector's choices for calls among the ranks of one node.

use crate::backend::abi::*;
use crate::base::error::Result;
use crate::collectives::options::CollectiveOptions;
use crate::collectives::plan::PartLayout;
use crate::collectives::request::Request;
use crate::collectives::select::{Asked, Near, choose};
use crate::group::choice::{Choice, Query};
use crate::world::world::World;

/// The name of barriers in errors.
pub const BARRIER: &str = "group_barrier";

/// A checked call, and the selector's choice for it.
pub struct Chosen<'r> {
    pub query: Query,
    pub choice: Choice,
    /// NCCL's communicator, if it could do the call.
    pub library: Option<RawNccl>,
    pub in_place: bool,
    pub parts: PartLayout<'r>,
}

/// Checks a call among as many ranks of one node as the first number of `place` says, of which the caller has the second, and
/// returns the selector's choice; `None` if it is not needed, since the call has no bytes or the group has one rank.
///
/// # Errors
/// [`crate::Error::InvalidArgument`] if the arguments or the options are not possible.
pub fn chosen<'r>(
    world: &World,
    request: &Request<'r>,
    options: &CollectiveOptions<'_>,
    (near, place): (&Near, (usize, usize)),
) -> Result<Option<Chosen<'r>>> {
    let (parts, in_place) = request
        .validate(world.rank, place)
        .map_err(|message| world.invalid(request.name, message))?;
    let bytes = request.counted_bytes(place.0);
    if bytes == 0 || place.0 == 1 {
        return Ok(None);
    }
    let asked = Asked {
        operation: request.operation,
        element: request.element,
        reduce: request.reduce,
        bytes,
        in_place,
        aligned: request.starts_at_vectors(in_place, &parts),
        own_memory: request.source.is_own(),
        in_multicast: request.destination.is_in_multicast() && request.source.is_in_multicast(),
    };
    let (query, library) = asked.question(&world.collectives, near, options);
    let choice = choose(world, request.name, &query, options)?;
    Ok(Some(Chosen {
        query,
        choice,
        library,
        in_place,
        parts,
    }))
}

/// Returns the selector's query for sends and receives among `members` ranks.
pub fn exchange_query(operation: CollectiveOperationCode, members: usize, nccl: bool) -> Query {
    Query {
        own_memory: false,
        push_channels: 0,
        lamport_bytes: 0,
        multicast: false,
        operation,
        element: ElementTypeCode::U8,
        reduce: ReduceOpCode::default(),
        world: members as u32,
        // Ranks do not know each other's sizes, and all must choose alike.
        bytes: u64::MAX,
        in_place: false,
        nccl,
    }
}

/// Returns the blocks of an exchange among `members` ranks, and how many of them receive from each member.
///
/// # Errors
/// [`crate::Error::InvalidArgument`] if they cannot be co-resident.
pub fn exchange_blocks(
    world: &World,
    name: &'static str,
    choice: Choice,
    members: usize,
) -> Result<(u32, u32)> {
    let members = members as u32;
    // One block announces the sends. The others are divided evenly among the members to receive from.
    let per_peer = (choice.blocks.saturating_sub(1) / members).max(1);
    let blocks = members * per_peer + 1;
    let threads = choice.threads;
    let selector = &world.collectives.selector;
    let most = selector.most_resident(CollectiveKernel::EXCHANGE, ElementTypeCode::U8, threads);
    if selector.has_grids() && blocks > most {
        return Err(world.invalid(
            name,
            format!(
                "an exchange of {members} ranks needs {blocks} blocks of {threads} threads, but only {most} can be \
                 co-resident on this device{}; use fewer threads",
                selector.residency().because_shared()
            ),
        ));
    }
    Ok((blocks, per_peer))
}

/// Returns the selector's choice for a barrier of the members on a node: multicast if the options name it or a switch is
/// there, else [`AlgorithmCode::PUSH`], which has one block.
///
/// # Errors
/// [`crate::Error::InvalidArgument`] if the options name multicast and there is none.
pub fn barrier_choice(
    world: &World,
    options: &CollectiveOptions<'_>,
    near: &Near,
) -> Result<Choice> {
    let mut options = *options;
    let unnamed = options.algorithm == AlgorithmCode::AUTOMATIC;
    let selector = &world.collectives.selector;
    if unnamed && near.in_multicast && selector.prefers_multicast() {
        options.algorithm = AlgorithmCode::MULTICAST;
    }
    if !options.algorithm.is_multicast() {
        return Ok(Choice {
            algorithm: AlgorithmCode::PUSH,
            blocks: 1,
            threads: 1,
            concurrent: 0,
        });
    }
    choose(world, BARRIER, &barrier_query(near), &options)
}

/// Returns the selector's query for a barrier of the members on a node.
pub fn barrier_query(near: &Near) -> Query {
    Query {
        push_channels: 0,
        lamport_bytes: 0,
        multicast: near.in_multicast,
        operation: CollectiveOperationCode::BARRIER,
        element: ElementTypeCode::U8,
        reduce: ReduceOpCode::default(),
        world: near.members as u32,
        bytes: 0,
        in_place: false,
        own_memory: false,
        nccl: false,
    }
}
