//! Setup of a communicator: meet, open, compare, share the control block, make the signal pad.

use crate::backend::abi::{self, Capabilities, DeviceDescription, HostMemory, RawStream};
use crate::backend::{Backend, Device};
use crate::base::error::{Error, Result};
use crate::base::limits::LEAST_SILENCE;
use crate::base::names::SignalPlacement;
use crate::base::placement::Placement;
use crate::bootstrap::{Beating, Bootstrap, PeerInformation};
use crate::group::far::{Far, STAGING};
use crate::group::lanes::Lanes;
use crate::group::selector::Selector;
use crate::group::state::State;
use crate::health::control::{ControlBlock, RankState};
use crate::health::watcher::Health;
use crate::health::words;
use crate::memory::exchange_table::ExchangeTable;
use crate::memory::kinds::{common_kinds, listed_kinds};
use crate::memory::multicast::object::Multicast;
use crate::memory::multicast::setup::BYTES_VARIABLE;
use crate::memory::multicast::wire::RankSupport;
use crate::memory::pad::{HostPad, SignalPad};
use crate::memory::sharing::{self, Allocator, Origin};
use crate::memory::staging::{STAGING_BYTES, Staging};
use crate::network::network::Network;
use crate::network::registration;
use crate::rank::agreement::{Agreement, Round};
use crate::rank::context::{Context, Deadlines};
use crate::rank::driver::Driver;
use crate::rank::streams::KnownStream;
use crate::world::configuration::{BackendSource, Configuration};
use crate::world::opening::open_device_within;
use crate::world::peer::Peer;
use crate::world::start_memory::StartMemory;
use crate::world::world::World;
use rustix::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) fn open(source: &BackendSource, configuration: Configuration) -> Result<Established> {
    if configuration.silence < LEAST_SILENCE {
        return Err(Error::InvalidArgument {
            rank: configuration.launch.rank as usize,
            operation: "open",
            message: format!(
                "a silence of {:?} is too short to tell a slow rank from a dead one; set at least {LEAST_SILENCE:?}",
                configuration.silence
            ),
        });
    }
    let bootstrap = Bootstrap::connect(configuration.launch.clone(), configuration.setup_deadline)?;
    let met = Met::new(bootstrap, &configuration)?;
    let bootstrap = &met.bootstrap;
    let opening = Instant::now();
    let rank = bootstrap.rank() as usize;
    let opened = open_device_within(
        source,
        &configuration,
        (rank, bootstrap.placement().spans_nodes()),
    );
    let device_open_time = opening.elapsed();
    let opened = opened.map(|(backend, capabilities, description)| OpenDevice {
        backend: Arc::new(backend),
        build: BackendBuild::of(source),
        capabilities,
        description,
        open_time: device_open_time,
    });
    establish(met, opened, configuration)
}

/// A rank that has met the others, with its pulse if it has one.
pub(crate) struct Met {
    bootstrap: Arc<Bootstrap>,
    /// Ends when the watcher has the pulse.
    _beating: Option<Beating>,
}

impl Met {
    pub fn new(bootstrap: Bootstrap, configuration: &Configuration) -> Result<Self> {
        let bootstrap = Arc::new(bootstrap);
        Ok(Self {
            _beating: Beating::start(&bootstrap, configuration.silence)?,
            bootstrap,
        })
    }
}

/// A world after its setup, and the values that its communicator keeps.
pub(crate) struct Established {
    pub world: Arc<World>,
    pub peers: Vec<Peer>,
    pub configuration: Configuration,
    pub backend: BackendBuild,
    pub device_open_time: Duration,
}

/// A backend's name and build.
#[derive(Clone)]
pub(crate) struct BackendBuild {
    /// `host`, `cuda`, `hip` or a plugin's.
    pub name: String,
    /// Empty for the host backend.
    build: String,
}

impl BackendBuild {
    fn of(source: &BackendSource) -> Self {
        match source {
            BackendSource::Host => Self {
                name: "host".into(),
                build: String::new(),
            },
            BackendSource::Tables(tables) => Self {
                name: tables.name(),
                build: tables.build(),
            },
        }
    }

    /// Returns both, as ranks compare them.
    fn text(&self) -> String {
        format!("{} {}", self.name, self.build).trim_end().into()
    }
}

/// An open device. A rebuilt communicator takes it over.
pub(crate) struct OpenDevice {
    pub backend: Arc<Backend>,
    pub build: BackendBuild,
    pub capabilities: Capabilities,
    pub description: DeviceDescription,
    /// Time that the backend took to open it.
    pub open_time: Duration,
}

/// Completes the setup after the ranks have met and each has opened its device, or failed to.
pub(crate) fn establish(
    met: Met,
    device: Result<OpenDevice>,
    configuration: Configuration,
) -> Result<Established> {
    let bootstrap = met.bootstrap.clone();
    let agreement = Agreement::new(bootstrap.clone(), configuration.setup_deadline);
    let (rank, world) = (agreement.rank(), agreement.world());
    let mut round = agreement.begin("open");

    let device = round.vote(device)?;
    let (capabilities, description) = (device.capabilities, device.description);
    let rows = &configuration.collective_rows;
    let selector = Selector::read(
        &device.backend,
        (&capabilities, description.compute_units),
        rows,
        rank,
    );
    let mut selector = round.vote(selector)?;
    round.compare(&fields(
        &device.build.text(),
        &configuration,
        &capabilities,
        &selector,
    ))?;
    let kernels = fingerprint(selector.describe_multicast().as_bytes());
    let offer = RankSupport::of(&device.backend, kernels);
    let (peers, offers) = meet(&mut round, &agreement, rank, &description, &offer)?;
    selector.share_device(most_on_one_device(&peers));
    let kinds = negotiate(&mut round, rank, &configuration, &capabilities)?;
    let placement = agreement.bootstrap().placement().clone();
    let control = share_file(&mut round, (rank, &placement), || {
        ControlBlock::create().and_then(|control| rustix::io::dup(control.descriptor()))
    })?;
    let control = ControlBlock::map(control).map_err(|error| Error::System {
        rank,
        call: "mmap of the control block",
        reason: error.to_string(),
    });
    let control = round.vote(control)?;
    let (words, staging) = round.vote(Resources::new(&device.backend, rank))?.keep();
    let number = round.number();
    drop(round);

    let health = Arc::new(Health::new(
        bootstrap,
        control,
        words,
        configuration.silence,
    ));
    health.control().set_state(rank, RankState::Up, None);
    agreement.watch_over(health.clone());
    let processes = agreement.bootstrap().peers();
    let shares_machine = |peer: &&PeerInformation| peer.boot_id == processes[rank].boot_id;
    let neighbors = processes.iter().filter(shares_machine).count();
    let driver = Driver::new(
        (rank, world, neighbors),
        device.backend,
        capabilities,
        description,
        health,
    );
    let deadlines = Deadlines {
        wait: configuration.deadline,
        setup: configuration.setup_deadline,
    };
    let same_process = peers.iter().map(|peer| peer.same_process).collect();
    let context = Context::new(driver, deadlines, agreement, same_process, words);
    let (memory, stream) = staging;
    context.add_stream(KnownStream {
        raw: stream,
        owned: true,
        event: None,
        admitted: 0,
    });
    let staging = Arc::new(Staging::new(memory, stream, configuration.deadline));
    context.on_close(staging.clone());
    tracing::debug!(rank, world, number, "all ranks have met");
    let world = complete(context, staging, &kinds, &configuration, selector, &offers)?;
    Ok(Established {
        world: Arc::new(world),
        peers,
        configuration,
        backend: device.build,
        device_open_time: device.open_time,
    })
}

/// Returns the largest number of ranks that share a device.
fn most_on_one_device(peers: &[Peer]) -> u32 {
    let on = |one: &Peer| {
        let here = |peer: &&Peer| (peer.node, peer.identity()) == (one.node, one.identity());
        peers.iter().filter(here).count()
    };
    peers.iter().map(on).max().unwrap_or(1) as u32
}

/// Makes everything that needs the context: the watcher, side streams, the signal pad, multicast, the slots of
/// collectives. Each is registered with the context, which releases it if a later step fails.
fn complete(
    context: Context,
    staging: Arc<Staging>,
    kinds: &[abi::ShareKindCode],
    configuration: &Configuration,
    selector: Selector,
    offers: &[RankSupport],
) -> Result<World> {
    let rank = context.rank;
    let mut round = context.agreement.begin("signal pad");
    let watcher = context.start_watcher().map_err(|error| Error::System {
        rank,
        call: "spawning the watcher",
        reason: error.to_string(),
    });
    // The side streams end with the communicator, even if a later step fails.
    let here = context.placement.node_members(rank).len();
    let lanes = watcher.and_then(|()| Lanes::open(&context, &context.released, here));
    let lanes = round.vote(lanes)?;
    let memory = StartMemory::new(
        &selector,
        (here, context.world),
        configuration.signal_placement,
    );
    let allocator = Allocator {
        context: &context,
        staging: &staging,
        table: None,
    };
    let (allocation, kind) = sharing::allocate(
        allocator,
        &mut round,
        kinds,
        memory.signal_pad,
        Origin::Signals,
    )?;
    context.keep(allocation.clone());
    let (host, outcome) = match configuration.signal_placement {
        SignalPlacement::Host => host_pad(&context, &mut round),
        SignalPlacement::Device => (None, Ok(())),
    };
    let pad = Arc::new(SignalPad::new(
        rank,
        context.placement.clone(),
        allocation,
        host,
    ));
    context.on_close(pad.clone());
    outcome?;
    let sharers = selector.residency().sharers();
    let multicast = Multicast::join(&context, &mut round, offers, kind, sharers)?;
    let check_calls = configuration.check_calls;
    let mut collectives = State::open(
        allocator,
        &mut round,
        kind,
        &multicast,
        (selector, lanes, memory.slots),
        check_calls,
    )?;
    multicast.bind_and_map(&context, &mut round, collectives.allocation())?;
    collectives.selector.set_multicast(multicast.status());
    let table = ExchangeTable::new(
        collectives.table(),
        context.placement.node_members(rank),
        staging.clone(),
    );
    let network = match context.placement.spans_nodes() {
        true => Some(Network::open(&context, &mut round, &pad)?),
        false => None,
    };
    if let Some(network) = &network {
        // Half of the deadline, within which the others then hear of a failure.
        let greeted = network.greet(rank, context.deadlines.setup / 2);
        round.vote(greeted)?;
        let allocator = Allocator {
            table: Some(&table),
            ..allocator
        };
        let made = sharing::allocate(allocator, &mut round, &[kind], STAGING, Origin::Backend)?;
        context.keep_above(made.0.clone());
        let mirror = registration::register_mirrored(network, &mut round, &context, &made.0)?;
        let far = Far::new((made.0, mirror), &collectives.everyone.span);
        collectives.everyone.far = Some(far);
    }
    drop(round);
    Ok(World {
        context,
        kind,
        pad,
        multicast,
        collectives,
        staging,
        table,
        network,
        memory,
    })
}

/// Makes signal words in host memory. Returns what this rank has made even if another rank failed.
fn host_pad(shared: &Context, round: &mut Round<'_>) -> (Option<HostPad>, Result<()>) {
    let (rank, placement) = (shared.rank, &*shared.placement);
    let create = || HostPad::create_file(placement.node_members(rank).len(), shared.world);
    let made = match share_file(round, (rank, placement), create) {
        Ok(file) => HostPad::new(shared, file),
        // The step failed on all ranks.
        Err(error) => return (None, Err(error)),
    };
    let outcome = round.vote(made.as_ref().map(drop).map_err(Error::clone));
    (made.ok(), outcome)
}

/// Returns the values that must be the same on all ranks for their kernels to work together.
fn fields(
    backend: &str,
    configuration: &Configuration,
    capabilities: &Capabilities,
    selector: &Selector,
) -> Vec<(&'static str, String)> {
    let tables = format!("{:?}{:?}", capabilities.put_rows, capabilities.get_rows);
    let said = |name: &str| match std::env::var_os(name) {
        Some(text) => format!("{name}={}", text.to_string_lossy()),
        None => format!("{name} is not set"),
    };
    let overrides = ["SYMMEM_MULTICAST", BYTES_VARIABLE].map(said);
    vec![
        ("the version of symmem", env!("CARGO_PKG_VERSION").into()),
        ("the backend", backend.into()),
        (
            "the number of peers that a device copies to at once",
            capabilities.fanout.to_string(),
        ),
        (
            "the signal placement",
            configuration.signal_placement.name().into(),
        ),
        (
            "the list of sharing strategies",
            format!("{:?}", configuration.share_kinds),
        ),
        ("the deadline", format!("{:?}", configuration.deadline)),
        (
            "the time of silence after which a rank is dead (SYMMEM_SILENCE)",
            format!("{:?}", configuration.silence),
        ),
        (
            "the transfer tables",
            format!("{:016x}", fingerprint(tables.as_bytes())),
        ),
        (
            "the collectives' table",
            format!("{:016x}", fingerprint(selector.describe().as_bytes())),
        ),
        (
            "whether calls are checked (SYMMEM_CHECK)",
            configuration.check_calls.to_string(),
        ),
        ("the multicast variables", overrides.join(", ")),
    ]
}

/// Returns the 64-bit FNV-1a hash: equal tables have equal hashes. It need not resist an attacker.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Exchanges the descriptions of all ranks' devices and their multicast offers.
fn meet(
    round: &mut Round<'_>,
    agreement: &Agreement,
    rank: usize,
    description: &DeviceDescription,
    offer: &RankSupport,
) -> Result<(Vec<Peer>, Vec<RankSupport>)> {
    let mut payload = description.ordinal.to_le_bytes().to_vec();
    payload.extend_from_slice(&description.uuid);
    payload.extend_from_slice(&description.bus);
    payload.extend_from_slice(&offer.encode());
    let answers = round.exchange(&payload)?;
    let processes = agreement.bootstrap().peers();
    let placement = agreement.bootstrap().placement();
    let me = processes[rank].process;
    answers
        .iter()
        .enumerate()
        .map(|(peer, answer)| {
            let Some(((ordinal, uuid, bus), offer)) = parts(answer) else {
                return Err(Error::InvalidArgument {
                    rank,
                    operation: "open",
                    message: format!("rank {peer} described its device in an unknown format; run the same build of \
                        symmem on all ranks"),
                });
            };
            let is_here = placement.share_node(peer, rank);
            let peer = Peer {
                rank: peer,
                node: placement.node(peer),
                process: processes[peer].process.pid,
                device: u32::from_le_bytes(ordinal),
                uuid,
                bus,
                // Process numbers and devices of two hosts may be equal.
                same_process: is_here && processes[peer].process == me,
                same_device: is_here && (uuid, bus) == (description.uuid, description.bus),
            };
            Ok((peer, offer))
        })
        .collect()
}

/// A device's ordinal, UUID and PCI address.
type DeviceId = ([u8; 4], [u8; 16], [u8; 16]);

/// Splits a rank's message into its device and its offer; `None` if it is too short.
fn parts(answer: &[u8]) -> Option<(DeviceId, RankSupport)> {
    let (ordinal, rest) = answer.split_first_chunk()?;
    let (uuid, rest) = rest.split_first_chunk()?;
    let (bus, rest) = rest.split_first_chunk()?;
    Some(((*ordinal, *uuid, *bus), RankSupport::decode(rest)?))
}

/// Returns the sharing strategies that every rank has, in the order that all agreed on.
fn negotiate(
    round: &mut Round<'_>,
    rank: usize,
    configuration: &Configuration,
    capabilities: &Capabilities,
) -> Result<Vec<abi::ShareKindCode>> {
    let listed = listed_kinds(capabilities);
    let mine: Vec<abi::ShareKindCode> = match configuration.share_kinds.as_slice() {
        [] => listed.clone(),
        forced => forced
            .iter()
            .map(|&kind| abi::ShareKindCode::from(kind))
            .filter(|kind| listed.contains(kind))
            .collect(),
    };
    let common = common_kinds(round, &mine)?;
    if common.is_empty() {
        let names = |kinds: Vec<&str>| kinds.join(", ");
        let forced = configuration.share_kinds.iter();
        return Err(Error::Unsupported {
            rank,
            operation: "share memory",
            message: format!(
                "the ranks have no sharing strategy in common; this device has {}, requested: {}",
                names(listed.iter().map(|kind| kind.name()).collect()),
                if configuration.share_kinds.is_empty() {
                    "any".into()
                } else {
                    names(forced.map(|kind| kind.name()).collect())
                }
            ),
        });
    }
    Ok(common)
}

/// Hands a file descriptor from the lowest rank of each node to the ranks of the node.
fn share_file(
    round: &mut Round<'_>,
    (rank, placement): (usize, &Placement),
    create: impl FnOnce() -> rustix::io::Result<OwnedFd>,
) -> Result<OwnedFd> {
    let lowest = placement.node_members(rank)[0];
    let created = if rank == lowest {
        create().map(Some)
    } else {
        Ok(None)
    };
    let created = created.map_err(|error| Error::System {
        rank,
        call: "memfd_create",
        reason: error.to_string(),
    });
    let created = round.vote(created)?;
    let mut received = round.exchange_with(&[], created.as_ref().map(AsFd::as_fd))?;
    received[lowest]
        .descriptor
        .take()
        .ok_or_else(|| Error::System {
            rank,
            call: "recvmsg",
            reason: format!("rank {lowest} sent no descriptor"),
        })
}

/// Device resources that a communicator needs before it can wait or copy. Released on drop, unless kept.
struct Resources<'a> {
    backend: &'a Backend,
    words: Option<HostMemory>,
    memory: Option<HostMemory>,
    stream: Option<RawStream>,
}

impl<'a> Resources<'a> {
    fn new(backend: &'a Backend, rank: usize) -> Result<Self> {
        let mut resources = Self {
            backend,
            words: None,
            memory: None,
            stream: None,
        };
        let failed =
            |call, bytes| move |failure| Error::backend(rank, call, failure).about(None, bytes);
        let words = words::allocate(backend);
        resources.words = Some(words.map_err(failed("host_register", words::bytes()))?);
        let memory = backend.host_allocate(STAGING_BYTES);
        resources.memory = Some(memory.map_err(failed("host_allocate", STAGING_BYTES))?);
        let stream = backend.stream_create();
        resources.stream =
            Some(stream.map_err(|failure| Error::backend(rank, "stream_create", failure))?);
        Ok(resources)
    }

    fn keep(mut self) -> (HostMemory, (HostMemory, RawStream)) {
        let parts = (self.words.take(), self.memory.take(), self.stream.take());
        let (Some(words), Some(memory), Some(stream)) = parts else {
            unreachable!("`new` returns all three or fails");
        };
        (words, (memory, stream))
    }
}

impl Drop for Resources<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and not used yet. A failure cannot be handled here.
        unsafe {
            if let Some(words) = self.words.take() {
                let _ = words::free(self.backend, words);
            }
            if let Some(memory) = self.memory.take() {
                let _ = self.backend.host_free(memory);
            }
            if let Some(stream) = self.stream.take() {
                let _ = self.backend.stream_destroy(stream);
            }
        }
    }
}
