//! The steps of a rebuild once the survivors have agreed: wait for the end of the dead, and set the new communicator up.

use crate::base::deadline::after;
use crate::base::error::{Error, Result};
use crate::base::rank_set::RankSet;
use crate::bootstrap::{Bootstrap, LaunchEnvironment};
use crate::world::configuration::{Configuration, DeviceChoice};
use crate::world::setup::{self, BackendBuild, Established, Met, OpenDevice};
use crate::world::world::World;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The communicator that is rebuilt.
pub(crate) struct Previous<'a> {
    pub world: &'a Arc<World>,
    pub configuration: &'a Configuration,
    pub backend: &'a BackendBuild,
    pub device_open_time: Duration,
}

/// Waits until the processes of dead ranks have ended and cannot write to memory any more.
pub fn await_end(shared: &World, gone: RankSet) -> Result<()> {
    let rank = shared.rank;
    let until = after(Instant::now(), shared.deadlines.setup);
    // A rank that left in good order, or as a thread of a living process, no longer uses any memory.
    let dead = gone.members(shared.world);
    let here = |&peer: &usize| shared.placement.share_node(peer, shared.rank);
    for peer in dead
        .filter(here)
        .filter(|&peer| shared.health.is_dead(peer))
    {
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

/// Sets the new communicator up among the survivors, as long as it is `wanted`.
pub fn attempt(
    old: &Previous<'_>,
    launch: LaunchEnvironment,
    wanted: &(dyn Fn() -> bool + Sync),
) -> Result<Established> {
    let shared = old.world;
    tracing::info!(
        old_rank = shared.rank,
        rank = launch.rank,
        world = launch.world,
        "rebuilding"
    );
    let bootstrap = Bootstrap::connect_while(launch.clone(), shared.deadlines.setup, wanted)?;
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
    let met = Met::new(bootstrap, &configuration)?;
    setup::establish(met, Ok(device), configuration)
}
