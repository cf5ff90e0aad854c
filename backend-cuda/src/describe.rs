//! Describes the devices without opening any.

use crate::driver::constants::device_attribute::*;
use crate::driver::{Driver, call};
use cudarc::driver::sys::{CUdevice, CUuuid};
use std::ffi::c_int;
use symmem_core::backend::abi::{DeviceDescription, Status};
use symmem_core::backend::{CallResult, Failure, read_text};

/// Returns the number of visible devices; `NO_DEVICE` if there is none.
pub fn count(driver: &Driver) -> CallResult<u32> {
    let mut count = 0;
    // SAFETY: the out-pointer is writable.
    unsafe { call!(driver, cuDeviceGetCount(&raw mut count)) }?;
    match u32::try_from(count) {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(Failure::new(
            Status::NO_DEVICE,
            "cuDeviceGetCount",
            "the driver works but shows no device; check CUDA_VISIBLE_DEVICES and nvidia-smi",
        )),
    }
}

/// Returns the device of an ordinal.
pub fn device(driver: &Driver, ordinal: u32) -> CallResult<CUdevice> {
    let count = count(driver)?;
    if ordinal >= count {
        return Err(Failure::new(
            Status::NO_DEVICE,
            "cuDeviceGet",
            format!(
                "there is no device {ordinal}: {count} are visible; choose one below {count}, or add \
                 devices to CUDA_VISIBLE_DEVICES"
            ),
        ));
    }
    let mut device = 0;
    // SAFETY: the out-pointer is writable.
    unsafe { call!(driver, cuDeviceGet(&raw mut device, ordinal as c_int)) }?;
    Ok(device)
}

/// Returns an attribute, one of [`crate::driver::constants::device_attribute`]; 0 for a negative value.
pub fn attribute(driver: &Driver, device: CUdevice, attribute: u32) -> CallResult<u32> {
    let mut value = 0;
    // SAFETY: the out-pointer is writable; the driver checks the rest.
    unsafe {
        call!(
            driver,
            cuDeviceGetAttribute(&raw mut value, attribute, device)
        )
    }?;
    Ok(u32::try_from(value).unwrap_or(0))
}

/// Returns whether a device can address another's memory, as `peer`, `no` or `unknown`. Opens neither.
pub fn link(driver: &Driver, from: u32, to: u32) -> &'static str {
    let can = || {
        let mut can = 0;
        let (from, to) = (device(driver, from)?, device(driver, to)?);
        // SAFETY: the out-pointer is writable.
        unsafe { call!(driver, cuDeviceCanAccessPeer(&raw mut can, from, to)) }?;
        Ok::<_, Failure>(can != 0)
    };
    match can() {
        Ok(true) => "peer",
        Ok(false) => "no",
        Err(_) => "unknown",
    }
}

/// Describes a device.
pub fn describe(driver: &Driver, ordinal: u32) -> CallResult<DeviceDescription> {
    let device = device(driver, ordinal)?;
    let mut description = DeviceDescription {
        ordinal,
        compute_units: attribute(driver, device, MULTIPROCESSOR_COUNT)?,
        architecture: 10 * attribute(driver, device, COMPUTE_CAPABILITY_MAJOR)?
            + attribute(driver, device, COMPUTE_CAPABILITY_MINOR)?,
        partition: 0,
        memory_bytes: 0,
        uuid: [0; 16],
        name: [0; 64],
        bus: [0; 16],
    };
    let (mut bytes, mut uuid) = (0, CUuuid { bytes: [0; 16] });
    // SAFETY: all out-pointers are writable, and the buffers have the lengths passed.
    unsafe {
        let (name, bus) = (&mut description.name, &mut description.bus);
        call!(
            driver,
            cuDeviceGetName(name.as_mut_ptr().cast(), name.len() as c_int, device)
        )?;
        call!(
            driver,
            cuDeviceGetPCIBusId(bus.as_mut_ptr().cast(), bus.len() as c_int, device)
        )?;
        // Version 2 gives a MIG instance another UUID than its parent.
        call!(driver, cuDeviceGetUuid_v2(&raw mut uuid, device))?;
        call!(driver, cuDeviceTotalMem_v2(&raw mut bytes, device))?;
    }
    description.memory_bytes = bytes as u64;
    description.uuid = uuid.bytes.map(|byte| byte as u8);
    description.partition = is_partition(&read_text(&description.name)).into();
    Ok(description)
}

/// Returns whether a device of this name is a MIG instance. The driver writes `… MIG 1g.10gb` and has no
/// attribute for it.
fn is_partition(name: &str) -> bool {
    name.split_whitespace().any(|word| word == "MIG")
}

/// Refuses devices that symmem cannot use: MIG instances, and architectures before sm_80.
pub fn check_usable(description: &DeviceDescription) -> CallResult<()> {
    let name = read_text(&description.name);
    let refuse = |reason: String| Err(Failure::new(Status::UNSUPPORTED, "open", reason));
    if description.partition != 0 {
        return refuse(format!(
            "device {} ({name}) is a MIG instance: instances have no peer access and cannot share \
             memory with each other; use whole devices (nvidia-smi -mig 0)",
            description.ordinal
        ));
    }
    if description.architecture < 80 {
        return refuse(format!(
            "device {} ({name}) is sm_{}; the kernels need sm_80 (Ampere) or newer",
            description.ordinal, description.architecture
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use symmem_core::backend::write_text;

    fn named(name: &str, architecture: u32) -> DeviceDescription {
        let mut description = DeviceDescription {
            ordinal: 3,
            compute_units: 132,
            architecture,
            partition: is_partition(name).into(),
            memory_bytes: 0,
            uuid: [0; 16],
            name: [0; 64],
            bus: [0; 16],
        };
        write_text(&mut description.name, name);
        description
    }

    #[test]
    fn a_mig_instance_is_known_by_its_name_and_refused_with_the_reason() {
        let failure = check_usable(&named("NVIDIA H200 MIG 1g.18gb", 90)).unwrap_err();
        assert_eq!(failure.status, Status::UNSUPPORTED);
        assert!(failure.message.contains("device 3") && failure.message.contains("MIG instance"));
        assert!(check_usable(&named("NVIDIA H200", 90)).is_ok());
        assert!(!is_partition("NVIDIA AMIGA"));
    }

    #[test]
    fn a_device_too_old_for_the_kernels_is_refused_with_both_numbers() {
        let message = check_usable(&named("Tesla V100", 70)).unwrap_err().message;
        assert!(message.contains("sm_70") && message.contains("sm_80"));
    }
}
