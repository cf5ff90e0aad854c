//! What a rank opens before it meets the others: UCX, and what GPU memory is staged with.

use super::copies::Copies;
use super::delivery::{Delivery, HostDelivery};
use super::message::Header;
use super::pinned::{self, Pinned, Pools};
use super::slots::{Slot, Slots};
use super::staged_delivery::StagedDelivery;
use super::staging::Staging;
use super::status::NetworkStatus;
use crate::backend::Device;
use crate::backend::abi::RawStream;
use crate::base::error::{Error, Result};
use crate::base::placement::Placement;
use crate::memory::pad::SignalPad;
use crate::rank::context::Context;
use crate::rank::driver::Driver;
use crate::rank::streams::KnownStream;
use std::sync::Arc;
use symmem_ucx::{Config, Library, Memory, Worker};

/// What a set-up round of the network carries.
pub struct Hello {
    /// A part of the session's number.
    pub session: u64,
    /// Address of the pinned memory that GPU memory is staged in, and its key; empty if there is none.
    pub pinned: u64,
    pub key: Vec<u8>,
    /// UCX's version.
    pub version: String,
    /// The worker's address.
    pub address: Vec<u8>,
}

impl Hello {
    /// Writes it.
    pub fn encode(&self) -> Vec<u8> {
        [
            &self.session.to_le_bytes()[..],
            &self.pinned.to_le_bytes(),
            &(self.key.len() as u64).to_le_bytes(),
            &self.key,
            &(self.version.len() as u64).to_le_bytes(),
            self.version.as_bytes(),
            &self.address,
        ]
        .concat()
    }

    /// Reads what [`Hello::encode`] wrote.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (session, rest) = bytes.split_first_chunk()?;
        let (pinned, rest) = rest.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (key, rest) = rest.split_at_checked(u64::from_le_bytes(*length) as usize)?;
        let (length, rest) = rest.split_first_chunk()?;
        let (version, address) = rest.split_at_checked(u64::from_le_bytes(*length) as usize)?;
        Some(Self {
            session: u64::from_le_bytes(*session),
            pinned: u64::from_le_bytes(*pinned),
            key: key.to_vec(),
            version: String::from_utf8(version.to_vec()).ok()?,
            address: address.to_vec(),
        })
    }
}

/// What a rank has opened before it meets the others.
pub struct Opened {
    pub status: NetworkStatus,
    pub context: symmem_ucx::Context,
    pub worker: Worker,
    /// The words of queues and of the copies.
    pub slots: Slots,
    /// What GPU memory is staged with.
    pub pinned: Option<OpenedPinned>,
}

/// Pinned memory, its key, and the streams and words of the copies that this rank begins, and of those for its peers.
pub struct OpenedPinned {
    pub pinned: Pinned,
    pub memory: Memory,
    pub key: Vec<u8>,
    pub streams: [(RawStream, Slot); 2],
}

/// Opens UCX, a worker and the words in pinned memory.
pub fn open_worker(context: &Context, placement: &Placement) -> Result<Opened> {
    const NAME: &str = "open";
    let rank = context.rank;
    let unsupported = |message: String| Error::Unsupported {
        rank,
        operation: NAME,
        message,
    };
    let nodes = placement.nodes();
    let library = Library::open().map_err(|error| {
        unsupported(format!(
            "a world of {nodes} nodes needs UCX (capability `ucx`): {error}"
        ))
    })?;
    let failed = |failure: symmem_ucx::Failure| Error::Network {
        rank,
        peer: rank,
        node: placement.node(rank),
        bytes: None,
        operation: NAME,
        failure: Arc::new(failure),
    };
    let neighbors = placement.node_members(rank).len();
    let config = Config {
        peers: Some(placement.world() - neighbors),
        ..Config::default()
    };
    let ucx = symmem_ucx::Context::new(&library, &config).map_err(failed)?;
    let worker = Worker::new(&ucx).map_err(failed)?;
    if worker.max_header() < size_of::<Header>() {
        return Err(unsupported(format!(
            "UCX's transports take headers of at most {} bytes, and {} are needed; choose others with UCX_TLS",
            worker.max_header(),
            size_of::<Header>()
        )));
    }
    let slots = Slots::new(&context.backend)
        .map_err(|failure| Error::backend(rank, "host_allocate", failure))?;
    let pinned = match reaches_memory(context) {
        true => None,
        false => Some(open_pinned(context, &ucx, &slots, failed)?),
    };
    Ok(Opened {
        status: NetworkStatus::of(&library),
        context: ucx,
        worker,
        slots,
        pinned,
    })
}

/// Allocates pinned memory, registers it with UCX, and makes the streams of the copies.
pub fn open_pinned(
    driver: &Driver,
    ucx: &symmem_ucx::Context,
    slots: &Slots,
    failed: impl Fn(symmem_ucx::Failure) -> Error,
) -> Result<OpenedPinned> {
    let call = |call| move |failure| Error::backend(driver.rank, call, failure);
    let backend = &driver.backend;
    let pinned = slots.allocate(backend, pinned::BYTES);
    let pinned = Pinned::new(pinned.map_err(call("host_allocate"))?);
    let address = std::ptr::with_exposed_provenance_mut(pinned.host(0) as usize);
    // SAFETY: the registration ends before the slots' memory is freed.
    let memory = unsafe { ucx.register(address, pinned::BYTES as usize) }.map_err(&failed)?;
    let key = memory.packed_key().map_err(&failed)?;
    let stream = || {
        // Queues that wait for this very stream must not hold it up.
        let raw = backend
            .stream_create_urgent()
            .map_err(call("stream_create_urgent"))?;
        // Nothing that the copies use is released while they have work.
        driver.add_stream(KnownStream {
            raw,
            owned: true,
            event: None,
            admitted: 0,
        });
        let slot = slots.take(backend).map_err(call("host_allocate"))?;
        Ok::<_, Error>((raw, slot))
    };
    Ok(OpenedPinned {
        pinned,
        memory,
        key,
        streams: [stream()?, stream()?],
    })
}

/// Divides the pinned memory between what this rank begins and what it delivers for its peers.
pub fn stage(
    driver: &Driver,
    opened: &OpenedPinned,
    pad: &Arc<SignalPad>,
) -> (Box<dyn Delivery>, Staging) {
    let pools = Pools::new();
    let copies = |(stream, slot)| Copies::new(Arc::clone(&driver.backend), stream, slot);
    let [own, peers] = opened.streams.map(copies);
    let (words, placement) = (pad.clone(), pad.placement());
    let word = move |channel, source| words.arrival(channel, source);
    let received = (pools.small_received, pools.receiving);
    // SAFETY: the pad and the slots outlive the streams' work: both are released once the streams are idle.
    let delivery = unsafe { StagedDelivery::new(peers, opened.pinned, received, word, placement) };
    let staging = Staging {
        copies: own,
        pinned: opened.pinned,
        small: pools.small,
        sending: pools.sending,
        getting: pools.getting,
    };
    (Box::new(delivery), staging)
}

/// Returns whether UCX and the processor address this device's memory as the device does. Only the host backend has no
/// architecture.
pub fn reaches_memory(driver: &Driver) -> bool {
    driver.description.architecture == 0
}

pub fn host_delivery(pad: &Arc<SignalPad>) -> Box<dyn Delivery> {
    let pad = pad.clone();
    // SAFETY: the pad outlives the network, which is closed before allocations are freed.
    Box::new(unsafe { HostDelivery::new(move |channel, source| pad.arrival(channel, source)) })
}

pub fn random() -> rustix::io::Result<u64> {
    let mut bytes = [0_u8; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_le_bytes(bytes))
}
