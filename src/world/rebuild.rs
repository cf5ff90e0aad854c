//! Rebuild: a new communicator among the survivors of a poisoned one.
//!
//! Rank 0, which held the store, may be dead, so the survivors agree through the control page that all ranks
//! map. Each posts the set of ranks that it knows to be gone and adds what the others post; it is done once all
//! remaining ranks have posted the same set. Then they meet at a name derived from that set. Sets only grow: if
//! another rank dies meanwhile, any rank that sees it posts a larger set, the rendezvous is called off, and all
//! start over with the larger set.
//!
//! Ranks on several nodes have no page in common, and agree at a [reunion](crate::bootstrap) by TCP instead: see `nodes`.
//!
//! No rank continues alone: the last step of the setup is an exchange among all, which completes on every
//! living rank or on none.

use crate::base::error::{Error, Result};
use crate::base::rank_set::RankSet;
use crate::bootstrap::{BootstrapError, LaunchEnvironment};
use crate::world::setup::Established;
use crate::world::world::World;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

mod attempt;
mod nodes;

pub(crate) use attempt::Previous;
use attempt::{attempt, await_end};

/// Interval at which a rank reads what the others have posted. There is no notification: the rank that would
/// send it may be dead.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// See [`crate::Communicator::rebuild`].
pub(crate) fn rebuild(old: &Previous<'_>) -> Result<Established> {
    let rebuilt = rebuild_from(old);
    if let Err(Error::Bootstrap(error)) = &rebuilt
        && matches!(**error, BootstrapError::Timeout { .. })
    {
        // The old communicator is dropped now. Its teardown must not wait for the missing rank once more.
        old.world.waited_enough.store(true, Ordering::Release);
    }
    rebuilt
}

fn rebuild_from(old: &Previous<'_>) -> Result<Established> {
    let shared = old.world;
    shared.health.check_process()?;
    shared.health.watch_once();
    if shared.health.check().is_ok() {
        // This rank had not been told yet. No rank waits for its old work any more.
        shared.health.poison(Error::Aborted { rank: shared.rank });
    }
    shared.drain_after_poison()?;
    if shared.agreement.bootstrap().has_pulse() {
        return nodes::rebuild(old);
    }
    let mut gone = RankSet::default();
    loop {
        gone = agree(shared, gone)?;
        await_end(shared, gone)?;
        let wanted = || what_happened(shared, gone).is_none();
        match attempt(
            old,
            launch(&old.configuration.launch, shared, gone),
            &wanted,
        ) {
            Ok(new) => return Ok(new),
            Err(error) => match what_happened(shared, gone) {
                Some(Change::Died) => {
                    tracing::info!(rank = shared.rank, %error, "a rank died during a rebuild");
                }
                Some(Change::Left(peer)) => {
                    let reason = "it gave up during the rebuild";
                    return Err(Error::PeerFailed {
                        rank: shared.rank,
                        peer,
                        reason: reason.into(),
                    });
                }
                None => return Err(error),
            },
        }
    }
}

/// Agrees with all remaining ranks on the set of ranks that are gone. `gone` is the set that this rank knew
/// before.
fn agree(shared: &World, mut gone: RankSet) -> Result<RankSet> {
    let (start, rank, world) = (Instant::now(), shared.rank, shared.world);
    let control = shared.health.control();
    loop {
        for peer in (0..world).filter(|&peer| peer != rank) {
            if shared.health.is_lost(peer) {
                gone = gone.with(peer);
            } else if let Some(known) = control.gone(peer) {
                gone = gone.union(known);
            }
        }
        if gone.contains(rank) {
            return Err(Error::InvalidArgument {
                rank,
                operation: "rebuild",
                message: "another survivor considers this rank gone; run all ranks in one PID namespace and with \
                    /proc mounted"
                    .into(),
            });
        }
        control.post_gone(rank, gone);
        let missing: Vec<u32> = (0..world)
            .filter(|&peer| !gone.contains(peer) && control.gone(peer) != Some(gone))
            .map(|peer| peer as u32)
            .collect();
        if missing.is_empty() {
            return Ok(gone);
        }
        let elapsed = start.elapsed();
        if elapsed > shared.deadlines.setup {
            let rank = rank as u32;
            let awaited = "all survivors to call rebuild".into();
            let timeout = BootstrapError::Timeout {
                rank,
                awaited,
                missing,
                elapsed,
                source: None,
            };
            return Err(timeout.into());
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// A change since the survivors agreed.
enum Change {
    /// Another rank died, or became known to be gone.
    Died,
    /// A rank that had agreed gave its communicator up.
    Left(usize),
}

fn what_happened(shared: &World, gone: RankSet) -> Option<Change> {
    let control = shared.health.control();
    let others = || {
        let survivors = (0..shared.world).filter(|&peer| !gone.contains(peer));
        survivors.filter(|&peer| peer != shared.rank)
    };
    if others().any(|peer| shared.health.is_dead(peer) || control.gone(peer) != Some(gone)) {
        return Some(Change::Died);
    }
    let left = others().find(|&peer| shared.health.is_lost(peer));
    left.map(Change::Left)
}

/// Returns the launch environment of the survivors. Its job name depends on `gone`, so ranks with different
/// sets never meet.
fn launch(old: &LaunchEnvironment, shared: &World, gone: RankSet) -> LaunchEnvironment {
    let survivors = (0..shared.world).filter(|&rank| !gone.contains(rank));
    let world = survivors.clone().count() as u32;
    let rank = survivors.filter(|&rank| rank < shared.rank).count() as u32;
    let job = old.job.as_deref().unwrap_or_default();
    LaunchEnvironment {
        rank,
        world,
        local_rank: rank,
        local_world: world,
        // All ranks are on one host: the Unix socket, which needs no port, is enough.
        address: None,
        job: Some(format!("{job}/{}", gone.text())),
        generation: old.generation + 1,
        ..old.clone()
    }
}
