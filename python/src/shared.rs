//! The memory of symmetric buffers: elements, signal pads, and tables of addresses for kernels.

use crate::dlpack::Device;
use crate::failure::{Result, invalid};
use crate::rank::Rank;
use crate::segments::SEGMENTS;
use pyo3::prelude::*;
use std::sync::{Arc, Weak};
use symmem::SymmetricBuffer;

/// Bytes of a signal pad: words for kernels of the program's, as many as PyTorch's pads have by default.
pub const PAD_BYTES: usize = 4096;
/// What begins in an allocation at a multiple of this many bytes may be used by any kernel.
const ALIGNMENT: usize = 256;

/// The memory of a buffer, at every rank.
pub struct Shared {
    pub rank: Weak<Rank>,
    /// The elements, and behind them what `tail` describes; or the elements alone, if `pad` has the rest.
    pub elements: Arc<SymmetricBuffer<u8>>,
    /// Memory of the program's has no room for a pad, so that it has one of its own.
    pub pad: Option<Arc<SymmetricBuffer<u8>>>,
    pub tail: Tail,
    pub device: Device,
    /// The tensor whose memory it is.
    _keeper: Option<Py<PyAny>>,
}

/// Where the signal pad and the tables of addresses are: bytes from the begin of the elements, or of their own buffer.
#[derive(Clone, Copy)]
pub struct Tail {
    pub pad: usize,
    /// The addresses of all ranks' elements, then those of their pads.
    pub tables: usize,
    end: usize,
}

impl Tail {
    fn after(bytes: usize, world: usize) -> Option<Self> {
        let pad = bytes.checked_next_multiple_of(ALIGNMENT)?;
        let tables = pad.checked_add(PAD_BYTES)?;
        let end = tables.checked_add(2 * world * size_of::<u64>())?;
        Some(Self { pad, tables, end })
    }
}

impl Shared {
    /// Allocates a buffer of `bytes` bytes, zeroed, at every rank. Collective; blocks.
    ///
    /// # Errors
    /// The library's.
    pub fn allocate(rank: &Arc<Rank>, bytes: usize) -> Result<Self> {
        let world = rank.communicator.world_size();
        let too_large = || invalid(format!("{bytes} bytes are too many"));
        let tail = Tail::after(bytes, world).ok_or_else(too_large)?;
        let elements = rank.communicator.allocate::<u8>(&[tail.end])?;
        Self::new(rank, (elements, None), tail, None)
    }

    /// Makes a buffer of memory of the program's, which `keeper` keeps. Collective; blocks.
    ///
    /// # Errors
    /// The library's.
    ///
    /// # Safety
    /// The memory stays as long as `keeper`, which is kept until this rank has given the buffer up; the program keeps it until
    /// all ranks have.
    pub unsafe fn register(
        rank: &Arc<Rank>,
        (address, bytes): (u64, usize),
        keeper: Py<PyAny>,
    ) -> Result<Self> {
        let communicator = &rank.communicator;
        let address = symmem::DeviceAddress(address);
        let elements = match SEGMENTS.find(address) {
            Some((segment, offset)) => communicator.rendezvous(&segment, offset, &[bytes])?,
            // SAFETY: guaranteed by the caller.
            None => unsafe { communicator.register::<u8>(address, &[bytes]) }?,
        };
        let too_large = || invalid("the world is too large");
        let tail = Tail::after(0, communicator.world_size()).ok_or_else(too_large)?;
        let pad = communicator.allocate::<u8>(&[tail.end])?;
        Self::new(rank, (elements, Some(pad)), tail, Some(keeper))
    }

    fn new(
        rank: &Arc<Rank>,
        (elements, pad): (SymmetricBuffer<u8>, Option<SymmetricBuffer<u8>>),
        tail: Tail,
        keeper: Option<Py<PyAny>>,
    ) -> Result<Self> {
        let kind = match (rank.is_host(), rank.communicator.backend_name()) {
            (true, _) => Device::CPU,
            (false, "hip") => Device::ROCM,
            _ => Device::CUDA,
        };
        let shared = Self {
            rank: Arc::downgrade(rank),
            elements: Arc::new(elements),
            pad: pad.map(Arc::new),
            tail,
            device: Device {
                kind,
                ordinal: match rank.is_host() {
                    true => 0,
                    false => rank.communicator.device().ordinal as i32,
                },
            },
            _keeper: keeper,
        };
        let mut tables = shared.addresses(rank)?;
        tables.extend(shared.pads(rank)?);
        let tables: Vec<u8> = tables.iter().flat_map(|one| one.to_ne_bytes()).collect();
        let stream = rank.communicator.stream()?;
        let holder = shared.holder();
        stream.write(holder.slice(tail.tables..tail.end)?, &tables)?;
        Ok(shared)
    }

    /// Returns the buffer that has the pad and the tables.
    pub fn holder(&self) -> &Arc<SymmetricBuffer<u8>> {
        self.pad.as_ref().unwrap_or(&self.elements)
    }

    /// Returns the addresses of all ranks' elements.
    ///
    /// # Errors
    /// The library's.
    pub fn addresses(&self, rank: &Rank) -> Result<Vec<u64>> {
        let world = 0..rank.communicator.world_size();
        let address = |peer| Ok(self.elements.peer(peer)?.address().0);
        world.map(address).collect()
    }

    /// Returns the addresses of all ranks' pads.
    ///
    /// # Errors
    /// The library's.
    pub fn pads(&self, rank: &Rank) -> Result<Vec<u64>> {
        let world = 0..rank.communicator.world_size();
        let address = |peer| Ok(self.holder().peer(peer)?.address().0 + self.tail.pad as u64);
        world.map(address).collect()
    }

    /// Returns its rank.
    ///
    /// # Errors
    /// If the communicator was finalized.
    pub fn rank(&self) -> Result<Arc<Rank>> {
        let gone = || invalid("the buffer's communicator was finalized, left or rebuilt");
        self.rank.upgrade().ok_or_else(gone)
    }
}
