//! Rebuild over nodes.

use crate::base::error::{Error, Result};
use crate::world::rebuild::attempt::Previous;
use crate::world::setup::Established;

/// Without TCP no world spans nodes, but for tests.
#[cfg(not(feature = "tcp"))]
pub fn rebuild(old: &Previous<'_>) -> Result<Established> {
    Err(unsupported(old))
}

/// Makes a new communicator of the survivors. A rank that dies meanwhile is left out as well.
#[cfg(feature = "tcp")]
pub fn rebuild(old: &Previous<'_>) -> Result<Established> {
    use crate::base::deadline::after;
    use crate::base::error_kind::ErrorKind;
    use crate::bootstrap::{BootstrapError, Survey};
    use crate::world::rebuild::attempt::{attempt, await_end};
    use std::time::Instant;

    let shared = old.world;
    let Some(reunion) = shared.agreement.bootstrap().reunion() else {
        return Err(unsupported(old));
    };
    let mut gone = shared.health.dead_elsewhere();
    loop {
        let survey = Survey {
            placement: &shared.placement,
            is_lost: &|rank| shared.health.is_lost(rank),
            silence: shared.health.silence(),
            until: after(Instant::now(), shared.deadlines.setup),
        };
        let agreed = reunion.agree(gone, &survey).map_err(|error| match error {
            BootstrapError::CalledOff { .. } => shared.invalid(
                "rebuild",
                "another survivor considers this rank gone, since it was not heard from for too long; raise SYMMEM_SILENCE",
            ),
            error => error.into(),
        })?;
        gone = agreed.gone;
        await_end(shared, gone)?;
        let here = shared.placement.node_members(shared.rank);
        let lost = || {
            here.iter()
                .any(|&rank| !gone.contains(rank) && shared.health.is_lost(rank))
        };
        let launch = launch(old, &agreed);
        let error = match attempt(old, launch, &|| !lost()) {
            Ok(new) => return Ok(new),
            Err(error) => error,
        };
        // The new job numbers its ranks anew.
        let survivors = (0..shared.world).filter(|&rank| !gone.contains(rank));
        let dead = (error.kind() == ErrorKind::PeerDied)
            .then(|| error.peer())
            .flatten();
        match dead.and_then(|dead| survivors.clone().nth(dead)) {
            Some(dead) => gone = gone.with(dead),
            None if lost() => {}
            None => return Err(error),
        }
        tracing::info!(rank = shared.rank, %error, "a rank died during a rebuild");
    }
}

/// Returns the launch environment of the survivors, who meet where the lowest of them listens.
#[cfg(feature = "tcp")]
fn launch(
    old: &Previous<'_>,
    agreed: &crate::bootstrap::Agreed,
) -> crate::bootstrap::LaunchEnvironment {
    let shared = old.world;
    let survives = |rank: &usize| !agreed.gone.contains(*rank);
    let numbers = |ranks: &mut dyn Iterator<Item = usize>| {
        let ranks: Vec<usize> = ranks.filter(survives).collect();
        let before = ranks.iter().filter(|&&rank| rank < shared.rank).count();
        (before as u32, ranks.len() as u32)
    };
    let (rank, world) = numbers(&mut (0..shared.world));
    let here = shared.placement.node_members(shared.rank);
    let (local_rank, local_world) = numbers(&mut here.iter().copied());
    let launch = &old.configuration.launch;
    crate::bootstrap::LaunchEnvironment {
        rank,
        world,
        local_rank,
        local_world,
        address: Some(agreed.address.clone()),
        // Also if all survivors are on one node.
        node: Some(
            shared.agreement.bootstrap().peers()[shared.rank]
                .node
                .clone(),
        ),
        generation: launch.generation + 1,
        ..launch.clone()
    }
}

fn unsupported(old: &Previous<'_>) -> Error {
    Error::Unsupported {
        rank: old.world.rank,
        operation: "rebuild",
        message: "the ranks may be on several nodes and did not meet by TCP; set SYMMEM_RENDEZVOUS and SYMMEM_SECRET, or \
            start the job again with SYMMEM_GENERATION raised by 1"
            .into(),
    }
}
