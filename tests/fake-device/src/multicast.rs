//! Multicast objects: one address behind which the same range of several devices' memory lies.
//!
//! The switch reduces what is loaded from such an address, and broadcasts what is stored there. Rules and errors are
//! those that the driver's header gives for `cuMulticast*`; the fake refuses what the header leaves open. No call holds
//! the driver's lock while it waits for devices, so a thread that waits for ever blocks nothing but its own call.

mod object;
mod state;

use std::ffi::c_int;
use std::os::fd::IntoRawFd;
use std::sync::Arc;

use crate::call::{delayed, put};
use crate::devices::{Switch, device, machine, physical};
use crate::driver::{Driver, Kind, dangling, driver, new_handle};
use crate::error::{Code, Result};
use crate::handles::{Handle, Held};
use crate::memory::Backing;
use crate::physical::Physical;
use crate::report::violation;
use crate::streams;
use crate::vmm::POSIX_FILE_DESCRIPTOR;

use object::UnderWay;
pub(crate) use object::{Accessing, Object};

/// The properties of an object, in C layout.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ObjectProperties {
    /// How many devices take part.
    pub devices: u32,
    /// Bytes that can be bound of each device.
    pub bytes: usize,
    /// Bits of the handle types wanted; 1 is a POSIX file descriptor.
    pub handle_types: u64,
    /// Must be 0.
    pub flags: u64,
}

fn switch() -> Result<Switch> {
    machine()?.switch.ok_or(Code::NOT_SUPPORTED)
}

fn check(properties: Option<&ObjectProperties>) -> Result<ObjectProperties> {
    let properties = *properties.ok_or(Code::INVALID_VALUE)?;
    let devices = 1..=crate::devices::configuration().devices;
    if !devices.contains(&(properties.devices as usize)) || properties.flags != 0 {
        return Err(Code::INVALID_VALUE);
    }
    if properties.handle_types & !u64::from(POSIX_FILE_DESCRIPTOR) != 0 {
        // Fabric handles exist in the driver, but not on this fake machine.
        return Err(Code::NOT_SUPPORTED);
    }
    Ok(properties)
}

/// Checks that numbers are multiples of the multicast granularity; reports a violation if not.
fn check_multiples(numbers: &[(&str, u64)]) -> Result {
    let unit = switch()?.minimum;
    for (what, number) in numbers {
        if !number.is_multiple_of(unit) {
            violation(format!(
                "{what} of {number} is not a multiple of a multicast object's granularity {unit}"
            ));
            return Err(Code::INVALID_VALUE);
        }
    }
    Ok(())
}

/// Returns the object of a handle.
fn object(driver: &Driver, handle: u64) -> Result<Arc<Object>> {
    match driver.handles.get(&handle).map(|handle| &handle.held) {
        Some(Held::Multicast(object)) => Ok(object.clone()),
        Some(Held::Memory(_)) => {
            violation(format!("{handle:#x} is memory, not a multicast object"));
            Err(Code::INVALID_VALUE)
        }
        None => Err(dangling(Kind::AllocationHandle, handle)),
    }
}

/// Returns the granularity of an object's size, offsets and bindings.
pub fn granularity(
    out: Option<&mut usize>,
    properties: Option<&ObjectProperties>,
    option: u32,
) -> Result {
    let switch = switch()?;
    check(properties)?;
    let bytes = match option {
        0 => switch.minimum,
        1 => switch.recommended,
        _ => return Err(Code::INVALID_VALUE),
    };
    put(out, bytes as usize)
}

/// Creates an object without devices.
pub fn create(out: Option<&mut u64>, properties: Option<&ObjectProperties>) -> Result {
    switch()?;
    let properties = check(properties)?;
    let bytes = properties.bytes as u64;
    check_multiples(&[("a size", bytes)])?;
    if bytes == 0 || out.is_none() {
        return Err(Code::INVALID_VALUE);
    }
    let object = Object::create(
        properties.devices as usize,
        bytes,
        properties.handle_types != 0,
    )?;
    let handle = new_handle(Kind::AllocationHandle);
    let held = Handle::new(Held::Multicast(object));
    driver()?.handles.insert(handle, held);
    put(out, handle)
}

/// Adds a device to an object for the object's lifetime.
pub fn add_device(handle: u64, ordinal: c_int) -> Result {
    switch()?;
    let device = physical(device(ordinal)?);
    let call = object(&*driver()?, handle)?.begin(None);
    delayed();
    call.object.add_member(device)
}

/// Returns the granularity of addresses and sizes of mappings.
pub(crate) fn unit() -> Result<u64> {
    Ok(switch()?.minimum)
}

/// Waits until an object can be mapped.
pub(crate) fn wait_to_map(object: &Object, handle: u64) -> Result {
    if !object.has_own_member()? {
        violation(
            "a multicast object is mapped before this process has added a device to it".into(),
        );
        return Err(Code::INVALID_VALUE);
    }
    complete(object, handle)
}

/// Waits, without the driver's lock, until all devices were added. Fails if the handle is gone by then.
fn complete(object: &Object, handle: u64) -> Result {
    object.wait_for_members()?;
    self::object(&*driver()?, handle).map(drop)
}

/// Binds memory of a handle. Blocks until all devices were added.
pub fn bind(
    handle: u64,
    offset: usize,
    memory: u64,
    memory_offset: usize,
    bytes: usize,
    flags: u64,
) -> Result {
    switch()?;
    let call = {
        let driver = driver()?;
        let held = driver.handles.get(&memory).map(|handle| &handle.held);
        let found = match held.ok_or_else(|| dangling(Kind::AllocationHandle, memory))? {
            Held::Memory(memory) => memory.clone(),
            Held::Multicast(_) => {
                violation(format!("{memory:#x} is a multicast object, not memory"));
                return Err(Code::INVALID_VALUE);
            }
        };
        object(&driver, handle)?.begin(Some(found))
    };
    bind_memory(
        handle,
        offset as u64,
        &call,
        memory_offset as u64,
        bytes as u64,
        flags,
    )
}

/// Binds mapped memory. Blocks until all devices were added.
pub fn bind_address(handle: u64, offset: usize, address: u64, bytes: usize, flags: u64) -> Result {
    switch()?;
    let (call, memory_offset) = {
        let driver = driver()?;
        let range = driver.memory.find(address);
        let (memory, offset) = match range.map(|range| (&range.backing, address - range.base)) {
            Some((Backing::Mapping { memory, offset, .. }, inside)) => {
                (memory.clone(), offset + inside)
            }
            _ => {
                violation(format!(
                    "{address:#x} is not memory that was mapped at reserved addresses"
                ));
                return Err(Code::INVALID_VALUE);
            }
        };
        (object(&driver, handle)?.begin(Some(memory)), offset)
    };
    bind_memory(
        handle,
        offset as u64,
        &call,
        memory_offset,
        bytes as u64,
        flags,
    )
}

fn bind_memory(
    handle: u64,
    offset: u64,
    call: &UnderWay,
    memory_offset: u64,
    bytes: u64,
    flags: u64,
) -> Result {
    let (object, memory) = (&call.object, call.memory()?);
    delayed();
    if flags != 0 || bytes == 0 {
        return Err(Code::INVALID_VALUE);
    }
    check_multiples(&[
        ("an offset", offset),
        ("an offset in memory", memory_offset),
        ("a size", bytes),
    ])?;
    for (what, offset, all) in [
        ("object", offset, object.bytes()),
        ("memory", memory_offset, memory.bytes as u64),
    ] {
        if offset.checked_add(bytes).is_none_or(|end| end > all) {
            violation(format!(
                "{bytes} bytes at {offset} do not lie in the {what} of {all} bytes"
            ));
            return Err(Code::INVALID_VALUE);
        }
    }
    if !object.has_member(memory.device)? {
        violation(format!(
            "memory of device {} is bound before that device was added",
            memory.device
        ));
        return Err(Code::INVALID_DEVICE);
    }
    complete(object, handle)?;
    object.bind(offset, memory, memory_offset, bytes)
}

/// Undoes [`bind`] for exactly its offset and size.
pub fn unbind(handle: u64, ordinal: c_int, offset: usize, bytes: usize) -> Result {
    switch()?;
    let ordinal = device(ordinal)?;
    let device = physical(ordinal);
    let driver = driver()?;
    let object = object(&driver, handle)?;
    // The real call may wait for the device.
    report_waits(&driver, ordinal);
    let (offset, bytes) = (offset as u64, bytes as u64);
    object.unbind(device, offset, bytes)?;
    for range in driver.memory.ranges.values() {
        match &range.backing {
            Backing::Multicast { object: other, .. } if Arc::ptr_eq(&object, other) => {
                let inside = range.bytes.saturating_sub(offset).min(bytes);
                if inside > 0 {
                    streams::report_use(&driver, range.base + offset, inside, "unbound");
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Reports a call that may wait for a device while work on that device can wait for a peer.
pub(crate) fn report_waits(driver: &Driver, ordinal: usize) {
    if let Some(&context) = driver.primary.get(&ordinal) {
        streams::report_waits(driver, context);
    }
}

/// Returns a descriptor of an object.
pub(crate) fn export(out: Option<&mut i32>, object: &Object) -> Result {
    put(out, object.export()?.into_raw_fd())
}

/// Returns how many ranges of this process are bound.
pub(crate) fn bound() -> usize {
    object::known().iter().map(|object| object.bound()).sum()
}

/// Reports memory that this process has just released while it is bound.
pub(crate) fn report_freed(driver: &Driver, memory: &Arc<Physical>) {
    let handles = driver.handles.values().map(|handle| &handle.held);
    let mut handles =
        handles.filter(|held| matches!(held, Held::Memory(m) if Arc::ptr_eq(m, memory)));
    let mut ranges = driver
        .memory
        .ranges
        .values()
        .filter_map(|range| range.physical());
    if handles.next().is_some() || ranges.any(|other| Arc::ptr_eq(other, memory)) {
        return;
    }
    for object in object::known() {
        if object.binds(memory) {
            violation(
                "memory is freed while a call binds it to a multicast object: wait for that call first"
                    .into(),
            );
        }
        if let Some(offset) = object.offset_of(memory) {
            violation(format!(
                "memory is freed while it is bound at {offset} of a multicast object: unbind it first"
            ));
        }
    }
}

/// Reports an object that this process has just released while it was still in use.
pub(crate) fn report_gone(driver: &Driver, object: &Arc<Object>) {
    let handle_left = driver
        .handles
        .values()
        .any(|handle| matches!(&handle.held, Held::Multicast(o) if Arc::ptr_eq(o, object)));
    if !handle_left && object.is_in_use() {
        violation(
            "the multicast object's handle is released while a call on it is under way".into(),
        );
    }
    let mapping_left = driver.memory.ranges.values().any(
        |range| matches!(&range.backing, Backing::Multicast { object: o, .. } if Arc::ptr_eq(o, object)),
    );
    if !handle_left && !mapping_left && object.bound() > 0 {
        violation(format!(
            "the multicast object is released while {} ranges of this process are bound: unbind them first",
            object.bound()
        ));
    }
}
