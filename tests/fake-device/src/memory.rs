//! The map of addresses: what lies where, and which devices may access it.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rustix::mm::{Advice, madvise};
use rustix::param::page_size;

use crate::driver::{Driver, Kind};
use crate::multicast::Object;
use crate::physical::{Pages, Physical, is_device_address};

/// What backs a range of addresses.
pub(crate) enum Backing {
    /// An allocation.
    Allocation(Arc<Physical>),
    /// Part of a memory handle mapped at reserved addresses, with the access set for each device.
    Mapping {
        memory: Arc<Physical>,
        offset: u64,
        access: BTreeMap<usize, u32>,
    },
    /// A multicast object mapped from its start at reserved addresses, with the access set for each device.
    Multicast {
        object: Arc<Object>,
        access: BTreeMap<usize, u32>,
    },
    /// Another process's allocation, with the number of times it was opened.
    Ipc {
        memory: Arc<Physical>,
        references: u32,
    },
    /// Pinned host memory.
    HostAllocation(Arc<Pages>),
    /// Pages that the program owns, pinned.
    HostRegistration,
}

/// A range of addresses that are in use.
pub(crate) struct Range {
    pub base: u64,
    pub bytes: u64,
    /// The context it was made in.
    pub context: u64,
    /// A number that no other range of this process has had.
    pub identity: u64,
    pub backing: Backing,
}

impl Range {
    pub fn kind(&self) -> Kind {
        match self.backing {
            Backing::Allocation(_) => Kind::Allocation,
            Backing::Mapping { .. } | Backing::Multicast { .. } => Kind::Mapping,
            Backing::Ipc { .. } => Kind::IpcMapping,
            Backing::HostAllocation(_) => Kind::HostAllocation,
            Backing::HostRegistration => Kind::HostRegistration,
        }
    }

    /// Returns the memory behind the range, if one device holds it.
    pub fn physical(&self) -> Option<&Arc<Physical>> {
        match &self.backing {
            Backing::Allocation(memory)
            | Backing::Ipc { memory, .. }
            | Backing::Mapping { memory, .. } => Some(memory),
            Backing::Multicast { .. } | Backing::HostAllocation(_) | Backing::HostRegistration => {
                None
            }
        }
    }

    pub fn is_host(&self) -> bool {
        matches!(
            self.backing,
            Backing::HostAllocation(_) | Backing::HostRegistration
        )
    }

    fn end(&self) -> u64 {
        self.base + self.bytes
    }
}

/// All ranges, by base address.
#[derive(Default)]
pub(crate) struct Memory {
    pub ranges: BTreeMap<u64, Range>,
    /// Bytes of each reservation of addresses, by base address.
    pub reservations: BTreeMap<u64, u64>,
}

impl Memory {
    /// Returns the range that contains `address`.
    pub fn find(&self, address: u64) -> Option<&Range> {
        self.ranges
            .range(..=address)
            .next_back()
            .map(|(_, range)| range)
            .filter(|r| address < r.end())
    }

    /// Whether any range overlaps these addresses.
    pub fn overlaps(&self, base: u64, bytes: u64) -> bool {
        self.ranges
            .range(..base.saturating_add(bytes))
            .next_back()
            .is_some_and(|(_, r)| r.end() > base)
    }
}

/// Who accesses memory, which decides the rules.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    /// A kernel or a stream memory operation, which needs a mapping in its own context.
    Kernel,
    /// A copy. The driver can copy between any two allocations, but not to or from a mapping that the copying device
    /// has no access to. Any host memory of the process is allowed.
    Copy,
}

/// Consecutive bytes, and what keeps them mapped.
pub(crate) struct Piece {
    pub pointer: *mut u8,
    pub bytes: usize,
    keep: Option<Arc<dyn Any + Send + Sync>>,
}

impl Piece {
    /// Returns a piece of `memory`.
    pub fn of(memory: Arc<Physical>, at: usize, bytes: usize) -> Self {
        Self {
            pointer: memory.at(at),
            bytes,
            keep: Some(memory),
        }
    }

    /// Drops the whole pages at the start of a piece of at least 1 MiB. They then read as zeros and cost neither time
    /// nor memory until they are written again. Returns the number of bytes dropped, which may be 0.
    pub fn drop_pages(&self) -> usize {
        const LARGE: usize = 1 << 20;
        let page = page_size();
        let whole = self.bytes - self.bytes % page;
        if self.keep.is_none() || whole < LARGE || !self.pointer.addr().is_multiple_of(page) {
            return 0;
        }
        // SAFETY: these are whole pages of memory that the piece keeps mapped, and the caller wants them to read as
        // zeros. The call fails for memory that is not a shared file.
        let dropped = unsafe { madvise(self.pointer.cast(), whole, Advice::LinuxRemove) };
        dropped.map_or(0, |()| whole)
    }
}

impl Driver {
    /// Returns the memory behind `bytes` from `address`, if `engine` may access it from `context`; otherwise why it may
    /// not.
    pub fn resolve(
        &self,
        address: u64,
        bytes: u64,
        context: u64,
        engine: Engine,
    ) -> Result<Vec<Piece>, String> {
        let Some(toucher) = self.contexts.get(&context) else {
            return Err("its context is gone".into());
        };
        let mut pieces = Vec::new();
        let mut at = address;
        let end = address
            .checked_add(bytes)
            .ok_or_else(|| format!("{address:#x}+{bytes} wraps"))?;
        while at < end {
            let Some(range) = self.memory.find(at) else {
                if engine == Engine::Copy && pieces.is_empty() && !is_device_address(at) && at != 0
                {
                    // Pageable memory of the program, whose bounds only the program knows.
                    pieces.push(Piece {
                        pointer: at as *mut u8,
                        bytes: bytes as usize,
                        keep: None,
                    });
                    return Ok(pieces);
                }
                return Err(self.describe_hole(at, address, bytes));
            };
            may_touch(range, toucher.device, context, &toucher.peers, engine)
                .map_err(|why| format!("{bytes} bytes at {address:#x}: {why}"))?;
            let inside = at - range.base;
            let length = (range.end().min(end) - at) as usize;
            let (pointer, keep): (*mut u8, Option<Arc<dyn Any + Send + Sync>>) =
                match &range.backing {
                    Backing::Allocation(memory) | Backing::Ipc { memory, .. } => {
                        (memory.at(inside as usize), Some(memory.clone()))
                    }
                    Backing::Mapping { memory, offset, .. } => {
                        (memory.at((offset + inside) as usize), Some(memory.clone()))
                    }
                    Backing::HostAllocation(pages) => (
                        pages.pointer.wrapping_add(inside as usize),
                        Some(pages.clone()),
                    ),
                    Backing::HostRegistration => (at as *mut u8, None),
                    // `may_touch` refused this.
                    Backing::Multicast { .. } => return Err(MULTICAST_ONLY.into()),
                };
            pieces.push(Piece {
                pointer,
                bytes: length,
                keep,
            });
            at += length as u64;
        }
        Ok(pieces)
    }

    /// Returns the multicast object, and the offset in it, that a multimem operation of a context finds at a multicast
    /// address; otherwise why the access is illegal.
    pub fn multicast(
        &self,
        address: u64,
        bytes: u64,
        context: u64,
    ) -> Result<(Arc<Object>, u64), String> {
        let device = self.contexts.get(&context).map(|toucher| toucher.device);
        let device = device.ok_or("its context is gone")?;
        let Some(range) = self.memory.find(address) else {
            return Err(self.describe_hole(address, address, bytes));
        };
        let Backing::Multicast { object, access } = &range.backing else {
            return Err(format!("{address:#x} is not a multicast address"));
        };
        if access.get(&device) != Some(&3) {
            return Err(format!(
                "{bytes} bytes at {address:#x}: no access has been set for device {device}"
            ));
        }
        if address
            .checked_add(bytes)
            .is_none_or(|end| end > range.end())
        {
            return Err(self.describe_hole(range.end(), address, bytes));
        }
        Ok((object.clone(), address - range.base))
    }

    fn describe_hole(&self, at: u64, address: u64, bytes: u64) -> String {
        let what = if at > address {
            format!("runs out of its memory after {} bytes", at - address)
        } else if at == 0 {
            "is the null pointer".into()
        } else if self
            .memory
            .reservations
            .range(..=at)
            .next_back()
            .is_some_and(|(b, n)| at < b + n)
        {
            "is reserved and not mapped".into()
        } else if is_device_address(at) {
            "was freed, or is between allocations".into()
        } else {
            "is not memory that the driver knows".into()
        };
        format!("{bytes} bytes at {address:#x}: the address {what}")
    }
}

/// Why plain accesses to a multicast address are refused: the PTX ISA leaves them undefined.
const MULTICAST_ONLY: &str = "it is a multicast address, which only multimem operations may access";

fn may_touch(
    range: &Range,
    device: usize,
    context: u64,
    peers: &BTreeSet<usize>,
    engine: Engine,
) -> Result<(), String> {
    let owner = |memory: &Physical| crate::devices::ordinal_of(memory.device);
    match &range.backing {
        Backing::Mapping { access, .. } => match access.get(&device) {
            Some(3) => Ok(()),
            Some(_) => Err(format!("device {device} may only read there")),
            None => Err(format!("no access has been set for device {device}")),
        },
        Backing::Multicast { .. } => Err(MULTICAST_ONLY.into()),
        Backing::Allocation(memory) if engine == Engine::Kernel => match owner(memory) {
            Some(owner) if owner == device || peers.contains(&owner) => Ok(()),
            owner => Err(format!(
                "it is on device {owner:?}, and device {device} has not enabled access to that peer"
            )),
        },
        Backing::Ipc { memory, .. } if engine == Engine::Kernel => match owner(memory) {
            _ if range.context == context => Ok(()),
            Some(owner) if owner == device || peers.contains(&owner) => Ok(()),
            _ => Err("the IPC handle was opened in another device's context".into()),
        },
        _ => Ok(()),
    }
}

/// Unmaps the pinned host memory that was allocated in `context`.
pub(crate) fn drop_host_allocations(driver: &mut Driver, context: u64) {
    crate::driver::take(&mut driver.memory.ranges, |range| {
        range.context == context && range.kind() == Kind::HostAllocation
    });
}

/// Removes the memory that was made in `context`, which is being released, and returns what there was.
pub(crate) fn drop_context(driver: &mut Driver, context: u64) -> Vec<(Kind, usize)> {
    // Mappings at reserved addresses belong to the process, not to a context.
    let gone = crate::driver::take(&mut driver.memory.ranges, |range| {
        range.context == context && range.kind() != Kind::Mapping
    });
    let kinds = [
        Kind::Allocation,
        Kind::IpcMapping,
        Kind::HostAllocation,
        Kind::HostRegistration,
    ];
    kinds
        .map(|kind| {
            (
                kind,
                gone.iter().filter(|range| range.kind() == kind).count(),
            )
        })
        .to_vec()
}
