//! Device descriptions that need no open device.

use crate::masks;
use crate::runtime::constants::device_attribute::MULTIPROCESSOR_COUNT;
use crate::runtime::constants::result::{INVALID_VALUE, NOT_SUPPORTED};
use crate::runtime::constants::{LINK_XGMI, MEMORY_TYPE_DEVICE, MEMORY_TYPE_DEVICE_BEFORE_6};
use crate::runtime::structs::DeviceProperties;
use crate::runtime::{Runtime, VERSION_6, hip};
use std::ffi::c_int;
use symmem_core::backend::abi::{DeviceDescription, Status};
use symmem_core::backend::{CallResult, Failure, read_text};
use symmem_kernels_hip::Target;

/// Returns `NO_DEVICE` for an ordinal beyond the visible devices.
pub fn check_ordinal(runtime: &Runtime, ordinal: u32) -> CallResult<()> {
    let count = runtime.device_count()?;
    if ordinal < count {
        return Ok(());
    }
    Err(Failure::new(
        Status::NO_DEVICE,
        "hipSetDevice",
        format!(
            "there is no device {ordinal}: {count} are visible; choose one below {count}, or extend \
             HIP_VISIBLE_DEVICES"
        ),
    ))
}

/// Returns an attribute, one of [`crate::runtime::constants::device_attribute`]; 0 if this runtime does not know it.
pub fn attribute(runtime: &Runtime, ordinal: u32, attribute: u32) -> CallResult<u32> {
    let mut value = 0;
    // SAFETY: the out-pointer is writable, and the runtime checks the other arguments.
    let code = unsafe {
        (runtime.table.hipDeviceGetAttribute)(&raw mut value, attribute, ordinal as c_int)
    };
    if code == INVALID_VALUE || code == NOT_SUPPORTED {
        runtime.forget_last_error();
        return Ok(0);
    }
    runtime.check("hipDeviceGetAttribute", code)?;
    Ok(u32::try_from(value).unwrap_or(0))
}

/// Returns the value by which this runtime version marks a pointer as device memory.
pub fn device_memory_type(runtime: &Runtime) -> u32 {
    match runtime.version {
        VERSION_6.. => MEMORY_TYPE_DEVICE,
        _ => MEMORY_TYPE_DEVICE_BEFORE_6,
    }
}

/// Returns the architecture as the compiler names it, with its features: `gfx942:sramecc+:xnack-`.
pub fn architecture_name(runtime: &Runtime, ordinal: u32) -> CallResult<String> {
    let mut properties = DeviceProperties::zeroed();
    let place = (&raw mut properties).cast();
    // SAFETY: the buffer is larger than the struct of any version.
    unsafe { hip!(runtime, hipGetDeviceProperties(place, ordinal as c_int)) }?;
    Ok(read_text(&properties.architecture))
}

/// Returns the architecture as a number: 100 × major + 10 × minor + stepping, with minor and stepping in
/// hexadecimal. So gfx942 is 942 and gfx90a is 910. 0 for a name that is no architecture.
fn architecture_number(name: &str) -> u32 {
    let name = name.split(':').next().unwrap_or_default();
    let digits = name.strip_prefix("gfx").filter(|digits| digits.is_ascii());
    let Some((major, rest)) = digits.and_then(|digits| {
        let last_two = digits.len().checked_sub(2)?;
        Some(digits.split_at(last_two))
    }) else {
        return 0;
    };
    let digit = |at: usize| u32::from_str_radix(&rest[at..=at], 16);
    match (major.parse::<u32>(), digit(0), digit(1)) {
        (Ok(major @ ..100), Ok(minor), Ok(stepping)) => 100 * major + 10 * minor + stepping,
        _ => 0,
    }
}

/// How a device reaches another's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Not at all.
    None,
    /// Over a direct link (xGMI, one hop).
    Direct,
    /// Indirectly: through another device, a switch, or the host's bus.
    Through,
    /// The runtime does not report it.
    Unknown,
}

impl Link {
    /// Returns the text for `symmem info`.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "no",
            Self::Direct => "peer xgmi",
            Self::Through => "peer",
            Self::Unknown => "unknown",
        }
    }
}

/// Returns how device `from` reaches `to`. Opens neither.
pub fn link(runtime: &Runtime, from: u32, to: u32) -> Link {
    let (from, to, mut can) = (from as c_int, to as c_int, 0);
    // SAFETY: the out-pointer is writable, and the runtime checks both devices.
    match unsafe { hip!(runtime, hipDeviceCanAccessPeer(&raw mut can, from, to)) } {
        Ok(()) if can == 0 => return Link::None,
        Ok(()) => {}
        Err(_) => return Link::Unknown,
    }
    let Some(ask) = runtime.table.hipExtGetLinkTypeAndHopCount else {
        return Link::Unknown;
    };
    let (mut kind, mut hops) = (0, 0);
    // SAFETY: both out-pointers are writable, and the runtime checks both devices.
    let code = unsafe { ask(from, to, &raw mut kind, &raw mut hops) };
    match runtime.check("hipExtGetLinkTypeAndHopCount", code) {
        Ok(()) if kind == LINK_XGMI && hops == 1 => Link::Direct,
        Ok(()) => Link::Through,
        Err(_) => Link::Unknown,
    }
}

/// Describes a device.
pub fn describe(runtime: &Runtime, ordinal: u32) -> CallResult<DeviceDescription> {
    check_ordinal(runtime, ordinal)?;
    let mut description = DeviceDescription {
        ordinal,
        compute_units: masks::leave(attribute(runtime, ordinal, MULTIPROCESSOR_COUNT)?),
        architecture: architecture_number(&architecture_name(runtime, ordinal)?),
        // Partitions of an MI300 count as whole devices, since they can share memory with each other.
        partition: 0,
        memory_bytes: 0,
        uuid: [0; 16],
        name: [0; 64],
        bus: [0; 16],
    };
    let (device, mut bytes) = (ordinal as c_int, 0);
    let (name, bus) = (&mut description.name, &mut description.bus);
    let (name_bytes, bus_bytes) = (name.len() as c_int, bus.len() as c_int);
    let (name, bus) = (name.as_mut_ptr().cast(), bus.as_mut_ptr().cast());
    // SAFETY: all buffers are writable and as long as the lengths passed.
    unsafe {
        hip!(runtime, hipDeviceGetName(name, name_bytes, device))?;
        hip!(runtime, hipDeviceGetPCIBusId(bus, bus_bytes, device))?;
        hip!(runtime, hipDeviceGetUuid(&raw mut description.uuid, device))?;
        hip!(runtime, hipDeviceTotalMem(&raw mut bytes, device))?;
    }
    description.memory_bytes = bytes as u64;
    Ok(description)
}

/// Returns the target whose code objects run on an architecture.
///
/// # Errors
/// `UNSUPPORTED` if no kernels exist for it.
pub fn target(architecture: &str, ordinal: u32) -> CallResult<Target> {
    Target::of(architecture).ok_or_else(|| {
        let known = Target::ALL.map(Target::name).join(", ");
        Failure::new(
            Status::UNSUPPORTED,
            "open",
            format!("device {ordinal} is {architecture}; symmem has kernels for {known}"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_architectures_number_has_its_stepping_last_and_a_strange_name_has_none() {
        for (name, number) in [
            ("gfx942:sramecc+:xnack-", 942),
            ("gfx90a:sramecc+:xnack-", 910),
            ("gfx950", 950),
            ("gfx1100", 1100),
            ("gfx", 0),
            ("gfx9", 0),
            ("sm_90", 0),
            ("gfx9é0", 0),
            ("", 0),
        ] {
            assert_eq!(architecture_number(name), number, "{name}");
        }
    }

    #[test]
    fn a_device_without_kernels_is_refused_with_its_architecture_and_the_known_ones() {
        assert_eq!(target("gfx942:sramecc+:xnack-", 0), Ok(Target::Gfx942));
        let failure = target("gfx1100", 3).unwrap_err();
        assert_eq!(failure.status, Status::UNSUPPORTED);
        for word in ["device 3", "gfx1100", "gfx90a, gfx942, gfx950"] {
            assert!(failure.message.contains(word), "{failure}");
        }
    }
}
