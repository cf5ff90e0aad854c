//! Ordinary memory: `cuMemAlloc`, pinned and registered host memory, what a pointer is.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MsyncFlags, msync};

use crate::call::{put, put_optional};
use crate::capture;
use crate::devices::{configuration, ordinal_of, physical};
use crate::driver::{Driver, Kind, driver};
use crate::error::{Code, Result};
use crate::ledger;
use crate::memory::{Backing, Range};
use crate::physical::{Pages, Physical, Use, fresh_addresses};
use crate::report::violation;
use crate::streams;

const PAGE: u64 = 4096;

/// A number for a new range.
pub(crate) fn new_identity() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn insert(driver: &mut Driver, base: u64, bytes: u64, context: u64, backing: Backing) {
    let range = Range {
        base,
        bytes,
        context,
        identity: new_identity(),
        backing,
    };
    driver.memory.ranges.insert(base, range);
}

/// Take a range out of the map, as the calls that free memory do: they wait for all work of its
/// context first, so a program that frees while something waits for a peer may hang.
fn free(base: u64, kind: Kind) -> Result {
    let mut locked = driver()?;
    locked.current()?;
    capture::forbid(&mut locked)?;
    let wrong = match locked.memory.find(base) {
        Some(range) if range.base == base && range.kind() == kind => None,
        Some(range) if range.kind() == kind => Some(format!(
            "{base:#x} is {} bytes inside an allocation",
            base - range.base
        )),
        Some(range) => Some(format!("{base:#x} is one of the {}", range.kind().name())),
        None => Some(format!(
            "{base:#x} is not, or no longer, one of the {}",
            kind.name()
        )),
    };
    if let Some(wrong) = wrong {
        violation(wrong);
        return Err(match kind {
            Kind::HostRegistration => Code::HOST_MEMORY_NOT_REGISTERED,
            _ => Code::INVALID_VALUE,
        });
    }
    let range = &locked.memory.ranges[&base];
    let (bytes, context) = (range.bytes, range.context);
    streams::report_use(&locked, base, bytes, "freed");
    streams::report_waits(&locked, context);
    let pending = streams::pending(&locked, context);
    drop(locked);
    pending.iter().for_each(|work| work.wait());
    let mut locked = driver()?;
    let result = locked.current().map(drop);
    locked.memory.ranges.remove(&base);
    result
}

/// The value of a pointer attribute, as bytes.
fn pointer_attribute(driver: &Driver, attribute: u32, address: u64) -> Option<Vec<u8>> {
    let range = driver.memory.find(address);
    let known = range.is_some();
    let host = range.is_some_and(Range::is_host);
    let memory = range.and_then(Range::physical);
    let number = |value: u64| Some(value.to_ne_bytes().to_vec());
    let integer = |value: c_int| Some(value.to_ne_bytes().to_vec());
    // One byte: what the driver writes for a boolean, and what no caller's variable is too small for.
    let boolean = |value: bool| Some(vec![u8::from(value)]);
    match attribute {
        1 => number(range.map_or(0, |range| range.context)),
        2 => integer(if !known {
            0
        } else if host {
            1
        } else {
            2
        }),
        3 => number(if known { address } else { 0 }),
        4 => number(if host { address } else { 0 }),
        6 => boolean(false),
        7 => number(range.map_or(0, |range| range.identity)),
        8 => boolean(false),
        9 => {
            let device = match memory {
                Some(memory) => ordinal_of(memory.device),
                None => range
                    .and_then(|r| driver.contexts.get(&r.context))
                    .map(|c| c.device),
            };
            integer(device.map_or(-2, |device| device as c_int))
        }
        10 => boolean(range.is_some_and(|range| range.kind() == Kind::Allocation)),
        11 => number(range.map_or(0, |range| range.base)),
        12 => number(range.map_or(0, |range| range.bytes)),
        13 => boolean(known),
        14 => number(u64::from(
            memory.is_some_and(|memory| memory.made_for == Use::Exportable),
        )),
        15 => boolean(memory.is_some()),
        16 => integer(if known { 3 } else { 0 }),
        18 => number(range.map_or(0, |range| range.bytes)),
        19 => number(range.map_or(0, |range| range.base)),
        20 => number(memory.map_or(0, |memory| memory.inode)),
        _ => None,
    }
}

/// Free and total bytes of the current device.
pub fn info(free: Option<&mut usize>, total: Option<&mut usize>) -> Result {
    let driver = driver()?;
    let context = driver.current()?;
    let device = physical(driver.healthy(context)?.device);
    let all = configuration().memory_bytes;
    put(free, all.saturating_sub(ledger::taken(device)) as usize)?;
    put(total, all as usize)
}

/// Memory of the current device.
pub fn allocate(out: Option<&mut u64>, bytes: usize) -> Result {
    allocate_as(out, bytes, false)
}

/// Memory of the current device that no device caches.
pub fn allocate_uncached(out: Option<&mut u64>, bytes: usize) -> Result {
    allocate_as(out, bytes, true)
}

fn allocate_as(out: Option<&mut u64>, bytes: usize, uncached: bool) -> Result {
    let mut driver = driver()?;
    let context = driver.current()?;
    capture::forbid(&mut driver)?;
    if bytes == 0 || out.is_none() {
        return Err(Code::INVALID_VALUE);
    }
    let device = physical(driver.healthy(context)?.device);
    let memory = Physical::create(device, bytes, Use::Allocation, uncached)?;
    // 512 bytes is the alignment the driver really gives; more would hide mistakes.
    let base = fresh_addresses(bytes as u64, 512)?;
    insert(
        &mut driver,
        base,
        bytes as u64,
        context,
        Backing::Allocation(memory),
    );
    put(out, base)
}

/// Give back what [`allocate`] made.
pub fn free_device(address: u64) -> Result {
    free(address, Kind::Allocation)
}

/// Pinned host memory.
pub fn allocate_host(out: Option<&mut u64>, bytes: usize, flags: u32) -> Result {
    let mut driver = driver()?;
    let context = driver.current()?;
    capture::forbid(&mut driver)?;
    if bytes == 0 || flags & !7 != 0 || out.is_none() {
        return Err(Code::INVALID_VALUE);
    }
    let pages = Pages::create(bytes)?;
    let base = pages.pointer as u64;
    debug_assert_eq!(pages.bytes, bytes);
    insert(
        &mut driver,
        base,
        bytes as u64,
        context,
        Backing::HostAllocation(pages),
    );
    put(out, base)
}

/// Give back what [`allocate_host`] made.
pub fn free_host(address: u64) -> Result {
    free(address, Kind::HostAllocation)
}

/// Where the device finds host memory: at its own address.
pub fn host_device_pointer(out: Option<&mut u64>, address: u64, flags: u32) -> Result {
    let driver = driver()?;
    driver.current()?;
    if flags != 0 || !driver.memory.find(address).is_some_and(Range::is_host) {
        return Err(Code::INVALID_VALUE);
    }
    put(out, address)
}

/// With which flags host memory was made.
pub fn host_flags(flags: Option<&mut u32>, address: u64) -> Result {
    let driver = driver()?;
    driver.current()?;
    if !driver.memory.find(address).is_some_and(Range::is_host) {
        return Err(Code::INVALID_VALUE);
    }
    put(flags, 3)
}

/// Undo [`register_host`].
pub fn unregister_host(address: u64) -> Result {
    free(address, Kind::HostRegistration)
}

/// Base and length of the allocation that an address lies in.
pub fn address_range(base: Option<&mut u64>, bytes: Option<&mut usize>, address: u64) -> Result {
    let driver = driver()?;
    driver.current()?;
    let range = driver.memory.find(address).ok_or(Code::NOT_FOUND)?;
    put_optional(base, range.base);
    put_optional(bytes, range.bytes as usize);
    Ok(())
}

/// Pin host memory of the program's own.
///
/// # Safety
/// Host pointers and arrays are valid for the lengths that go with them.
pub unsafe fn register_host(pointer: *mut c_void, bytes: usize, flags: u32) -> Result {
    let mut driver = driver()?;
    let context = driver.current()?;
    capture::forbid(&mut driver)?;
    let base = pointer as u64;
    if pointer.is_null() || bytes == 0 || flags & !15 != 0 {
        return Err(Code::INVALID_VALUE);
    }
    if driver.memory.overlaps(base, bytes as u64) {
        return Err(Code::HOST_MEMORY_ALREADY_REGISTERED);
    }
    // The driver pins whole pages, so the pages have to be there.
    let first = base / PAGE * PAGE;
    let length = (base + bytes as u64).next_multiple_of(PAGE) - first;
    // SAFETY: msync with ASYNC changes nothing; it says whether the pages are mapped.
    if unsafe { msync(first as *mut c_void, length as usize, MsyncFlags::ASYNC) }.is_err() {
        violation(format!(
            "{bytes} bytes at {base:#x} are not mapped in this process"
        ));
        return Err(Code::INVALID_VALUE);
    }
    insert(
        &mut driver,
        base,
        bytes as u64,
        context,
        Backing::HostRegistration,
    );
    Ok(())
}

/// One attribute of a pointer.
///
/// # Safety
/// Host pointers and arrays are valid for the lengths that go with them.
pub unsafe fn attribute(out: *mut u8, attribute: u32, address: u64) -> Result {
    let driver = driver()?;
    if out.is_null() || driver.memory.find(address).is_none() {
        return Err(Code::INVALID_VALUE);
    }
    let value = pointer_attribute(&driver, attribute, address).ok_or(Code::INVALID_VALUE)?;
    // SAFETY: the caller's variable has the attribute's type, which is as long as the value.
    unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), out, value.len()) };
    Ok(())
}

/// Several attributes of a pointer.
///
/// # Safety
/// Host pointers and arrays are valid for the lengths that go with them.
pub unsafe fn attributes(
    count: u32,
    attributes: *const u32,
    out: *const *mut u8,
    address: u64,
) -> Result {
    let driver = driver()?;
    if attributes.is_null() || out.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    for index in 0..count as usize {
        // SAFETY: the caller promises `count` attributes and as many places for them.
        let (attribute, out) = unsafe { (attributes.add(index).read(), out.add(index).read()) };
        let value = pointer_attribute(&driver, attribute, address).ok_or(Code::INVALID_VALUE)?;
        // SAFETY: the place has the attribute's type, which is as long as the value.
        unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), out, value.len()) };
    }
    Ok(())
}
