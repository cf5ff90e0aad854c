//! Virtual memory management: memory and addresses separately, and memory shared by file descriptor.

use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, IntoRawFd};
use std::sync::Arc;

use rustix::io::fcntl_dupfd_cloexec;

use crate::allocations::new_identity;
use crate::call::{delayed, put};
use crate::contexts;
use crate::devices::{device, machine, ordinal_of, physical, reaches};
use crate::driver::{Driver, Kind, dangling, driver, new_handle};
use crate::error::{Code, Result};
use crate::handles::{Handle, Held};
use crate::memory::{Backing, Range};
use crate::multicast::{self, Object};
use crate::physical::{Physical, Use, fresh_addresses};
use crate::report::violation;
use crate::streams;

/// The granularity in bytes at which memory is created and mapped: a large page of the GPU.
pub const GRANULARITY: u64 = 2 << 20;

pub(crate) const POSIX_FILE_DESCRIPTOR: u32 = 1;

/// Returns what is mapped at an address.
fn mapped(driver: &Driver, address: u64) -> Result<Held> {
    match driver.memory.find(address).map(|range| &range.backing) {
        Some(Backing::Mapping { memory, .. }) => Ok(Held::Memory(memory.clone())),
        Some(Backing::Multicast { object, .. }) => Ok(Held::Multicast(object.clone())),
        _ => Err(Code::INVALID_VALUE),
    }
}

/// Returns the memory of a handle.
fn memory(driver: &Driver, handle: u64) -> Result<&Arc<Physical>> {
    let handle = driver
        .handles
        .get(&handle)
        .ok_or_else(|| dangling(Kind::AllocationHandle, handle))?;
    match &handle.held {
        Held::Memory(memory) => Ok(memory),
        Held::Multicast(_) => Err(Code::INVALID_VALUE),
    }
}

/// Where memory is, in C layout.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Location {
    /// 1 for a device.
    pub kind: u32,
    /// The device's ordinal.
    pub id: i32,
}

/// The properties of memory, in C layout.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Properties {
    /// 1 for pinned memory.
    pub kind: u32,
    /// Bits of the handle types wanted; 1 is a POSIX file descriptor.
    pub handle_types: u32,
    /// Where the memory is to be.
    pub location: Location,
    /// Null on Linux.
    pub win32: u64,
    /// Compression, GPUDirect and usage flags.
    pub flags: [u8; 8],
}

/// The access of one location, in C layout.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Access {
    /// Which device gets access.
    pub location: Location,
    /// 0 none, 1 read, 3 read and write.
    pub flags: u32,
}

/// Returns the device in the properties, and whether the memory is to be uncached. Fails for memory that the fakes
/// cannot make.
fn check(properties: Option<&Properties>) -> Result<(usize, bool)> {
    let properties = properties.ok_or(Code::INVALID_VALUE)?;
    let uncached = machine()?.uncached_type == Some(properties.kind);
    if properties.kind != 1 && !uncached {
        return Err(Code::INVALID_VALUE);
    }
    if properties.location.kind != 1 || properties.handle_types & !POSIX_FILE_DESCRIPTOR != 0 {
        // Host memory and fabric handles exist in the driver, but not on this fake machine.
        return Err(Code::NOT_SUPPORTED);
    }
    Ok((device(properties.location.id)?, uncached))
}

/// Returns the mappings that make up exactly these addresses.
fn mappings(driver: &Driver, base: u64, bytes: u64) -> Result<Vec<u64>> {
    let mut at = base;
    let mut found = Vec::new();
    while at < base.saturating_add(bytes) {
        match driver.memory.ranges.get(&at) {
            Some(range) if range.kind() == Kind::Mapping && at + range.bytes <= base + bytes => {
                found.push(at);
                at += range.bytes;
            }
            _ => {
                violation(format!(
                    "{bytes} bytes at {base:#x} are not whole mappings (see {at:#x})"
                ));
                return Err(Code::INVALID_VALUE);
            }
        }
    }
    if found.is_empty() {
        Err(Code::INVALID_VALUE)
    } else {
        Ok(found)
    }
}

fn multiple(bytes: u64) -> bool {
    bytes > 0 && bytes.is_multiple_of(GRANULARITY)
}

/// Returns the granularity at which memory is created and mapped.
pub fn granularity(
    out: Option<&mut usize>,
    properties: Option<&Properties>,
    option: u32,
) -> Result {
    check(properties)?;
    if option > 1 {
        return Err(Code::INVALID_VALUE);
    }
    put(out, GRANULARITY as usize)
}

/// Creates memory without addresses.
pub fn create(
    out: Option<&mut u64>,
    bytes: usize,
    properties: Option<&Properties>,
    flags: u64,
) -> Result {
    let (device, uncached) = check(properties)?;
    let mut driver = driver()?;
    if flags != 0 || out.is_none() {
        return Err(Code::INVALID_VALUE);
    }
    if !multiple(bytes as u64) {
        violation(format!(
            "{bytes} bytes are not a multiple of the granularity {GRANULARITY}"
        ));
        return Err(Code::INVALID_VALUE);
    }
    let exportable = properties.is_some_and(|p| p.handle_types & POSIX_FILE_DESCRIPTOR != 0);
    let made_for = if exportable {
        Use::Exportable
    } else {
        Use::Private
    };
    let memory = Physical::create(physical(device), bytes, made_for, uncached)?;
    let handle = new_handle(Kind::AllocationHandle);
    driver
        .handles
        .insert(handle, Handle::new(Held::Memory(memory)));
    put(out, handle)
}

/// Releases a handle.
pub fn release(handle: u64) -> Result {
    let mut driver = driver()?;
    let held = driver
        .handles
        .get_mut(&handle)
        .ok_or_else(|| dangling(Kind::AllocationHandle, handle))?;
    held.references -= 1;
    if held.references == 0
        && let Some(gone) = driver.handles.remove(&handle)
    {
        gone.held.report_gone(&driver);
    }
    Ok(())
}

/// Returns the handle of what is mapped at an address, and adds a reference to it.
pub fn retain(out: Option<&mut u64>, address: u64) -> Result {
    let mut driver = driver()?;
    let mapped = mapped(&driver, address)?;
    let mut handles = driver.handles.iter_mut();
    let handle = match handles.find(|(_, handle)| handle.held.is(&mapped)) {
        Some((&handle, held)) => {
            held.references += 1;
            handle
        }
        None => {
            let handle = new_handle(Kind::AllocationHandle);
            driver.handles.insert(handle, Handle::new(mapped));
            handle
        }
    };
    put(out, handle)
}

/// Like [`retain`] without a new reference: fails if no handle exists.
pub fn find(out: Option<&mut u64>, address: u64) -> Result {
    let driver = driver()?;
    let mapped = mapped(&driver, address)?;
    let mut handles = driver.handles.iter();
    let found = handles.find(|(_, handle)| handle.held.is(&mapped));
    put(out, *found.ok_or(Code::INVALID_VALUE)?.0)
}

/// Whether memory is mapped at an address.
pub fn is_mapped(address: u64) -> bool {
    driver().is_ok_and(|driver| {
        let range = driver.memory.find(address);
        range.is_some_and(|range| range.kind() == Kind::Mapping)
    })
}

/// Returns the properties that memory was created with.
pub fn properties(out: Option<&mut Properties>, handle: u64) -> Result {
    let driver = driver()?;
    let memory = memory(&driver, handle)?;
    let id = ordinal_of(memory.device).map_or(-1, |ordinal| ordinal as i32);
    let handle_types = u32::from(memory.made_for == Use::Exportable);
    put(
        out,
        Properties {
            kind: 1,
            handle_types,
            location: Location { kind: 1, id },
            ..Default::default()
        },
    )
}

/// Returns a file descriptor of memory.
pub fn export(out: Option<&mut i32>, handle: u64, kind: u32, flags: u64) -> Result {
    let driver = driver()?;
    let held = driver
        .handles
        .get(&handle)
        .ok_or_else(|| dangling(Kind::AllocationHandle, handle))?;
    if kind != POSIX_FILE_DESCRIPTOR || flags != 0 || out.is_none() {
        return Err(Code::INVALID_VALUE);
    }
    let memory = match &held.held {
        Held::Memory(memory) => memory,
        Held::Multicast(object) => return multicast::export(out, object),
    };
    if memory.made_for != Use::Exportable {
        violation("the memory was created without this handle type".into());
        return Err(Code::INVALID_VALUE);
    }
    let copy = fcntl_dupfd_cloexec(memory.file(), 3).map_err(|_| Code::OPERATING_SYSTEM)?;
    put(out, copy.into_raw_fd())
}

/// Reserves addresses without memory.
pub fn reserve(
    out: Option<&mut u64>,
    bytes: usize,
    alignment: usize,
    _hint: u64,
    flags: u64,
) -> Result {
    let mut driver = driver()?;
    let bytes = bytes as u64;
    let good = alignment == 0 || alignment.is_power_of_two();
    if !multiple(bytes) || !good || flags != 0 || out.is_none() {
        return Err(Code::INVALID_VALUE);
    }
    let base = fresh_addresses(bytes, GRANULARITY.max(alignment as u64))?;
    driver.memory.reservations.insert(base, bytes);
    put(out, base)
}

/// Frees the addresses that [`reserve`] returned.
pub fn free_addresses(base: u64, bytes: usize) -> Result {
    let mut driver = driver()?;
    if driver.memory.reservations.get(&base) != Some(&(bytes as u64)) {
        violation(format!(
            "{bytes} bytes at {base:#x} are not a whole reservation"
        ));
        return Err(Code::INVALID_VALUE);
    }
    if driver.memory.overlaps(base, bytes as u64) {
        violation(format!("the reservation at {base:#x} still has mappings"));
        return Err(Code::INVALID_VALUE);
    }
    driver.memory.reservations.remove(&base);
    Ok(())
}

/// Maps memory at reserved addresses, or a multicast object, which blocks until all its devices were added.
pub fn map(base: u64, bytes: usize, offset: usize, handle: u64, flags: u64) -> Result {
    let driver = driver()?;
    let (bytes, offset) = (bytes as u64, offset as u64);
    let held = driver
        .handles
        .get(&handle)
        .map(|handle| handle.held.clone())
        .ok_or_else(|| dangling(Kind::AllocationHandle, handle))?;
    let (unit, length) = match &held {
        Held::Memory(memory) => (GRANULARITY, memory.bytes as u64),
        Held::Multicast(object) => (multicast::unit()?, object.bytes()),
    };
    let multiples = bytes.is_multiple_of(unit) && base.is_multiple_of(unit);
    // The driver maps a handle from its start only.
    if bytes == 0 || !multiples || offset != 0 || flags != 0 {
        return Err(Code::INVALID_VALUE);
    }
    if bytes > length {
        violation(format!(
            "{bytes} bytes are more than the {length} of the handle"
        ));
        return Err(Code::INVALID_VALUE);
    }
    let _under_way = match &held {
        Held::Multicast(object) => Some(object.begin(None)),
        Held::Memory(_) => None,
    };
    drop(driver);
    delayed();
    if let Held::Multicast(object) = &held {
        multicast::wait_to_map(object, handle)?;
    }
    let mut driver = self::driver()?;
    let reserved = driver.memory.reservations.range(..=base).next_back();
    if reserved.is_none_or(|(start, length)| base + bytes > start + length) {
        violation(format!("{bytes} bytes at {base:#x} are not reserved"));
        return Err(Code::INVALID_VALUE);
    }
    if driver.memory.overlaps(base, bytes) {
        violation(format!("{bytes} bytes at {base:#x} are mapped already"));
        return Err(Code::ALREADY_MAPPED);
    }
    if machine()?.maps_nothing {
        return Ok(());
    }
    let access = BTreeMap::new();
    let backing = match held {
        Held::Memory(memory) => Backing::Mapping {
            memory,
            offset,
            access,
        },
        Held::Multicast(object) => Backing::Multicast { object, access },
    };
    let range = Range {
        base,
        bytes,
        context: contexts::top(),
        identity: new_identity(),
        backing,
    };
    driver.memory.ranges.insert(base, range);
    Ok(())
}

/// Undoes [`map`].
pub fn unmap(base: u64, bytes: usize) -> Result {
    let mut driver = driver()?;
    let found = mappings(&driver, base, bytes as u64)?;
    streams::report_use(&driver, base, bytes as u64, "unmapped");
    for base in &found {
        // The real call may wait for the devices that can access the object.
        if let Some(Backing::Multicast { access, .. }) =
            driver.memory.find(*base).map(|range| &range.backing)
        {
            (access.keys()).for_each(|&ordinal| multicast::report_waits(&driver, ordinal));
        }
    }
    for base in found {
        let held = mapped(&driver, base)?;
        driver.memory.ranges.remove(&base);
        held.report_gone(&driver);
    }
    Ok(())
}

/// Imports memory from a file descriptor, which the caller keeps.
///
/// # Safety
/// Host pointers and arrays are valid for the lengths that go with them.
pub unsafe fn import(out: Option<&mut u64>, descriptor: i32, kind: u32) -> Result {
    let mut driver = driver()?;
    if descriptor < 0 || kind != POSIX_FILE_DESCRIPTOR || out.is_none() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller owns the descriptor and keeps it open during the call.
    let file = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let held = match Object::open(file)? {
        Some(object) => Held::Multicast(object),
        None => Held::Memory(Physical::open(file, &[Use::Exportable]).inspect_err(|_| {
            violation(format!(
                "descriptor {descriptor} does not refer to exported memory"
            ));
        })?),
    };
    let handle = new_handle(Kind::AllocationHandle);
    driver.handles.insert(handle, Handle::new(held));
    put(out, handle)
}

/// Lets devices access what is mapped.
///
/// # Safety
/// Host pointers and arrays are valid for the lengths that go with them.
pub unsafe fn set_access(
    base: u64,
    bytes: usize,
    descriptors: *const Access,
    count: usize,
) -> Result {
    if descriptors.is_null() || count == 0 {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller promises `count` descriptors; every bit pattern is a valid one.
    let descriptors = unsafe { std::slice::from_raw_parts(descriptors, count) };
    let mut wanted = Vec::new();
    for descriptor in descriptors {
        if descriptor.location.kind != 1 || !matches!(descriptor.flags, 0 | 1 | 3) {
            return Err(Code::INVALID_VALUE);
        }
        wanted.push((device(descriptor.location.id)?, descriptor.flags));
    }
    let mut driver = driver()?;
    let first = driver.memory.reservations.contains_key(&base);
    if machine()?.maps_nothing {
        return Ok(());
    }
    if machine()?.access_from_start && !first {
        violation(format!(
            "access is set from {base:#x}, inside a reservation: that fails at times, so map and set \
             access once for each"
        ));
        return Err(Code::INVALID_VALUE);
    }
    for at in mappings(&driver, base, bytes as u64)? {
        let range = driver
            .memory
            .ranges
            .get_mut(&at)
            .ok_or(Code::INVALID_VALUE)?;
        let (access, reachable): (_, Box<dyn Fn(usize) -> Result<bool>>) = match &mut range.backing
        {
            // A device that is not visible here has no ordinal to check peer access with.
            Backing::Mapping { memory, access, .. } => {
                let owner = ordinal_of(memory.device);
                let reached = move |device| Ok(owner.is_none_or(|owner| reaches(device, owner)));
                (access, Box::new(reached))
            }
            Backing::Multicast { object, access } => (
                access,
                Box::new(|device| object.has_member(physical(device))),
            ),
            _ => return Err(Code::INVALID_VALUE),
        };
        for &(device, flags) in &wanted {
            if !reachable(device)? {
                return Err(Code::INVALID_DEVICE);
            }
            access.insert(device, flags);
            if flags == 0 {
                access.remove(&device);
            }
        }
    }
    Ok(())
}

/// Returns what a device may do at an address.
pub fn access(flags: Option<&mut u64>, location: Option<&Location>, address: u64) -> Result {
    let location = *location.ok_or(Code::INVALID_VALUE)?;
    let device = device(location.id)?;
    let driver = driver()?;
    match driver.memory.find(address).map(|range| &range.backing) {
        Some(Backing::Mapping { access, .. } | Backing::Multicast { access, .. }) => {
            put(flags, access.get(&device).copied().unwrap_or(0).into())
        }
        _ => Err(Code::INVALID_VALUE),
    }
}
