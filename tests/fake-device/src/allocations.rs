//! Ordinary memory (`cuMemAlloc`), pinned and registered host memory, and pointer attributes.

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

/// Returns a number that identifies a new range.
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

/// Takes a range out of the map. Real calls that free memory first wait for all work of the context, so a program that
/// frees memory while a kernel waits for a peer may hang: that is a violation.
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

/// Returns the value of a pointer attribute, as bytes.
fn pointer_attribute(driver: &Driver, attribute: u32, address: u64) -> Option<Vec<u8>> {
    let range = driver.memory.find(address);
    let known = range.is_some();
    let host = range.is_some_and(Range::is_host);
    let memory = range.and_then(Range::physical);
    let number = |value: u64| Some(value.to_ne_bytes().to_vec());
    let integer = |value: c_int| Some(value.to_ne_bytes().to_vec());
    // The driver writes one byte for a boolean; every caller's variable has room for that.
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

/// Returns the free and total bytes of the current device.
pub fn info(free: Option<&mut usize>, total: Option<&mut usize>) -> Result {
    let driver = driver()?;
    let context = driver.current()?;
    let device = physical(driver.healthy(context)?.device);
    let all = configuration().memory_bytes;
    put(free, all.saturating_sub(ledger::taken(device)) as usize)?;
    put(total, all as usize)
}

/// Allocates memory on the current device.
pub fn allocate(out: Option<&mut u64>, bytes: usize) -> Result {
    allocate_as(out, bytes, false)
}

/// Allocates memory on the current device that no device caches.
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
    // The real driver aligns to 512 bytes; a larger alignment would hide mistakes.
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

/// Frees what [`allocate`] made.
pub fn free_device(address: u64) -> Result {
    free(address, Kind::Allocation)
}

/// Allocates pinned host memory.
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

/// Frees what [`allocate_host`] made.
pub fn free_host(address: u64) -> Result {
    free(address, Kind::HostAllocation)
}

/// Returns the device address of host memory, which is its host address.
pub fn host_device_pointer(out: Option<&mut u64>, address: u64, flags: u32) -> Result {
    let driver = driver()?;
    driver.current()?;
    if flags != 0 || !driver.memory.find(address).is_some_and(Range::is_host) {
        return Err(Code::INVALID_VALUE);
    }
    put(out, address)
}

/// Returns the flags that host memory was allocated with.
pub fn host_flags(flags: Option<&mut u32>, address: u64) -> Result {
    let driver = driver()?;
    driver.current()?;
    if !driver.memory.find(address).is_some_and(Range::is_host) {
        return Err(Code::INVALID_VALUE);
    }
    put(flags, 3)
}

/// Undoes [`register_host`].
pub fn unregister_host(address: u64) -> Result {
    free(address, Kind::HostRegistration)
}

/// Returns base and length of the allocation that contains an address.
pub fn address_range(base: Option<&mut u64>, bytes: Option<&mut usize>, address: u64) -> Result {
    let driver = driver()?;
    driver.current()?;
    let range = driver.memory.find(address).ok_or(Code::NOT_FOUND)?;
    put_optional(base, range.base);
    put_optional(bytes, range.bytes as usize);
    Ok(())
}

/// Pins host memory that the program owns.
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
    // The driver pins whole pages, so the pages must be mapped.
    let first = base / PAGE * PAGE;
    let length = (base + bytes as u64).next_multiple_of(PAGE) - first;
    // SAFETY: msync with ASYNC changes nothing; it only reports whether the pages are mapped.
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

/// Returns one attribute of a pointer.
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

/// Returns several attributes of a pointer.
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
        // SAFETY: the caller promises `count` attributes and as many output pointers.
        let (attribute, out) = unsafe { (attributes.add(index).read(), out.add(index).read()) };
        // As the driver has it, an address that it does not know is no error here.
        let Some(value) = pointer_attribute(&driver, attribute, address) else {
            continue;
        };
        // SAFETY: the output has the attribute's type, which is as long as the value.
        unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), out, value.len()) };
    }
    Ok(())
}
