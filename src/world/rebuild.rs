//! Rebuild: a new communicator among the survivors of a poisoned one.
//!
//! Rank 0, which held the store, may be dead, so the survivors agree through the control page that all ranks
//! map. Each posts the set of ranks that it knows to be gone and adds what the others post; it is done once all
//! remaining ranks have posted the same set. Then they meet at a name derived from that set. Sets only grow: if
//! another rank dies meanwhile, any rank that sees it posts a larger set, the rendezvous is called off, and all
//! start over with the larger set.
//!
//! No rank continues alone: the last step of the setup is an exchange among all, which completes on every
//! living rank or on none.

use crate::base::deadline::after;
use crate::base::error::{Error, Result};
use crate::bootstrap::{Bootstrap, BootstrapError, LaunchEnvironment};
use crate::health::control::RankSet;
use crate::world::configuration::{Configuration, DeviceChoice};
use crate::world::setup::{self, BackendBuild, Established, OpenDevice};
use crate::world::world::World;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Interval at which a rank reads what the others have posted. There is no notification: the rank that would
/// send it may be dead.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// The communicator that is rebuilt.
pub(crate) struct Previous<'a> {
    pub world: &'a Arc<World>,
    pub configuration: &'a Configuration,
    pub backend: &'a BackendBuild,
    pub device_open_time: Duration,
}

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
    shared.check_one_node(
        "rebuild",
        "start the job again with SYMMEM_GENERATION raised by 1",
    )?;
    shared.health.watch_once();
    if shared.health.check().is_ok() {
        // This rank had not been told yet. No rank waits for its old work any more.
        shared.health.poison(Error::Aborted { rank: shared.rank });
    }
    shared.drain_after_poison()?;
    let mut gone = RankSet::default();
    loop {
        gone = agree(shared, gone)?;
        await_end(shared, gone)?;
        match attempt(old, gone) {
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
            };
            return Err(timeout.into());
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

/// Waits until the processes of dead ranks have ended and cannot write to memory any more.
fn await_end(shared: &World, gone: RankSet) -> Result<()> {
    let rank = shared.rank;
    let until = after(Instant::now(), shared.deadlines.setup);
    // A rank that left in good order, or as a thread of a living process, no longer uses any memory.
    let dead = gone.members(shared.world);
    for peer in dead.filter(|&peer| shared.health.is_dead(peer)) {
        let process = shared.agreement.bootstrap().peers()[peer].process;
        match process.wait_end(until) {
            Ok(true) => {}
            Ok(false) => {
                return Err(Error::PeerFailed {
                    rank,
                    peer,
                    reason: format!(
                        "it died, but process {} has not released its memory within {:?}; check the kernel log for \
                         its device",
                        process.pid, shared.deadlines.setup
                    ),
                });
            }
            Err(error) => {
                return Err(Error::System {
                    rank,
                    call: "waiting for the end of a dead rank's process",
                    reason: error.to_string(),
                });
            }
        }
    }
    Ok(())
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

/// Sets the new communicator up among all ranks that are not `gone`.
fn attempt(old: &Previous<'_>, gone: RankSet) -> Result<Established> {
    let shared = old.world;
    let launch = launch(&old.configuration.launch, shared, gone);
    tracing::info!(
        old_rank = shared.rank,
        rank = launch.rank,
        world = launch.world,
        "rebuilding"
    );
    let wanted = || what_happened(shared, gone).is_none();
    let bootstrap = Bootstrap::connect_while(launch.clone(), shared.deadlines.setup, &wanted)?;
    let device = OpenDevice {
        backend: (*shared.backend).clone(),
        build: old.backend.clone(),
        capabilities: shared.capabilities,
        description: shared.description,
        open_time: old.device_open_time,
    };
    let configuration = Configuration {
        launch,
        device: DeviceChoice::Ordinal(shared.description.ordinal),
        ..old.configuration.clone()
    };
    setup::establish(bootstrap, Ok(device), configuration)
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
