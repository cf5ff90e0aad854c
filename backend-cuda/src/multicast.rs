//! Multicast: whether it may be used, and the objects.
//!
//! A failed set-up can put a host's GPUs out of service, so sites forbid it by one of the field's switches,
//! and it stays off unless `SYMMEM_MULTICAST=1` asks for it. Where it is off, not one of the driver's
//! functions for it is even looked up. `SYMMEM_MULTICAST=emulate` asks for the kernels without it, which do by
//! the peers' own addresses what the switch would do; no switch forbids that.

mod advice;
mod functions;
mod objects;

pub use objects::Objects;

use crate::driver::constants::device_attribute::MULTICAST_SUPPORTED;
use crate::driver::constants::result::INVALID_VALUE;
use crate::{describe, driver::Driver};
use cudarc::driver::sys::CUdevice;
use symmem_core::backend::CallResult;
use symmem_core::backend::abi::{DeviceDescription, MulticastSupport, ShareKind};

/// The switches, and the sense in which each forbids.
const SWITCHES: [(&str, bool); 4] = [
    (OWN_SWITCH, false),
    ("NCCL_NVLS_ENABLE", false),
    ("NVSHMEM_DISABLE_NVLS", true),
    ("TORCH_SYMM_MEM_DISABLE_MULTICAST", true),
];

/// The switch that can ask, too.
const OWN_SWITCH: &str = "SYMMEM_MULTICAST";

/// The first architecture with instructions for multicast addresses (sm_90).
const FIRST_ARCHITECTURE: u32 = 90;

/// One of the variables that can forbid multicast, as this process has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switch {
    /// Its name.
    pub name: &'static str,
    /// What it says; `None` where it is not set.
    pub value: Option<String>,
    /// Whether that forbids multicast.
    pub forbids: bool,
}

/// Every variable that can forbid multicast, as this process has it.
pub fn switches() -> [Switch; 4] {
    switches_of(variable)
}

/// What our own switch asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Nothing,
    Hardware,
    Emulation,
}

/// The variable that forbids multicast, if one does.
pub fn forbidden_by() -> Option<&'static str> {
    forbidden(variable)
}

/// Whether the driver's functions may be looked up; else the reason.
fn permitted() -> Result<(), String> {
    permitted_by(variable)
}

/// Whether a library of NVIDIA's that uses multicast by itself may be started: it was told not to use
/// it, or multicast was asked for and nothing forbids it. Else the reason.
pub fn permitted_to_nccl() -> Result<(), String> {
    permitted_to_nccl_by(variable)
}

/// Whether collectives can go through multicast on a device that shares memory by these kinds, and why
/// not. Reads an attribute where nothing forbids that, and looks nothing up.
pub fn support(
    driver: &Driver,
    device: CUdevice,
    description: &DeviceDescription,
    kinds: &[ShareKind],
) -> CallResult<(MulticastSupport, String)> {
    let off = |why: &str| Ok((MulticastSupport::NONE, why.to_owned()));
    if asked(variable) == Asked::Emulation {
        let why = format!("{OWN_SWITCH}=emulate asks for its kernels without it");
        return Ok((MulticastSupport::EMULATED, why));
    }
    if let Err(why) = permitted() {
        return off(&why);
    }
    if description.architecture < FIRST_ARCHITECTURE {
        return off("this device's architecture has no multicast");
    }
    if !kinds.contains(&ShareKind::VMM_FILE_DESCRIPTOR) {
        return off("this device cannot share memory by file descriptors, which multicast takes");
    }
    match hardware(driver, device)? {
        Some(true) => Ok((MulticastSupport::HARDWARE, String::new())),
        Some(false) => off("the driver says that this device has no multicast"),
        None => off("this driver, older than 12.1, knows no multicast"),
    }
}

/// Whether the device has the hardware; `None` if asking is forbidden or the driver, older than
/// 12.1, does not know the question.
pub fn hardware(driver: &Driver, device: CUdevice) -> CallResult<Option<bool>> {
    if forbidden_by().is_some() {
        return Ok(None);
    }
    match describe::attribute(driver, device, MULTICAST_SUPPORTED) {
        Err(failure) if failure.vendor_code == INVALID_VALUE as i32 => Ok(None),
        answer => Ok(Some(answer? != 0)),
    }
}

/// What `symmem info` says about a device.
pub fn line(driver: &Driver, device: CUdevice) -> String {
    let emulated = match asked(variable) {
        Asked::Emulation => format!("; emulated, as {OWN_SWITCH}=emulate asks"),
        _ => String::new(),
    };
    if let Some(variable) = forbidden_by() {
        return format!("forbidden by {variable}{emulated}");
    }
    let hardware = match hardware(driver, device) {
        Ok(Some(true)) => "yes",
        Ok(Some(false)) => "no",
        Ok(None) | Err(_) => "unknown",
    };
    let used = match asked(variable) {
        Asked::Hardware => format!("asked for by {OWN_SWITCH}=1"),
        _ => "off".into(),
    };
    format!(
        "hardware: {hardware} (attribute {MULTICAST_SUPPORTED} read only), use: {used}{emulated}"
    )
}

fn variable(name: &str) -> Option<String> {
    // What is no Unicode asks for nothing, and forbids where anything but a no does.
    std::env::var_os(name).map(|text| text.to_string_lossy().into_owned())
}

fn asked(variable: impl Fn(&str) -> Option<String>) -> Asked {
    let text = variable(OWN_SWITCH).unwrap_or_default();
    match text.trim().to_ascii_lowercase().as_str() {
        "emulate" => Asked::Emulation,
        "1" | "y" | "yes" | "on" | "true" => Asked::Hardware,
        _ => Asked::Nothing,
    }
}

fn permitted_by(variable: impl Fn(&str) -> Option<String>) -> Result<(), String> {
    if let Some(name) = forbidden(&variable) {
        return Err(format!("{name} forbids it"));
    }
    match asked(variable) {
        Asked::Hardware => Ok(()),
        Asked::Nothing | Asked::Emulation => Err(format!("{OWN_SWITCH}=1 does not ask for it")),
    }
}

fn permitted_to_nccl_by(variable: impl Fn(&str) -> Option<String>) -> Result<(), String> {
    let told = variable("NCCL_NVLS_ENABLE").and_then(|text| truth(&text));
    match told {
        Some(false) => Ok(()),
        _ => permitted_by(variable),
    }
}

fn forbidden(variable: impl Fn(&str) -> Option<String>) -> Option<&'static str> {
    let mut switches = switches_of(variable).into_iter();
    switches.find(|one| one.forbids).map(|one| one.name)
}

fn switches_of(variable: impl Fn(&str) -> Option<String>) -> [Switch; 4] {
    SWITCHES.map(|(name, when)| {
        let value = variable(name);
        Switch {
            name,
            forbids: value.as_deref().and_then(truth) == Some(when),
            value,
        }
    })
}

/// What a switch's text means; `None` if it was set to nothing.
fn truth(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "" => None,
        "0" | "n" | "no" | "off" | "false" => Some(false),
        _ => Some(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &'static str, text: &'static str) -> Option<&'static str> {
        forbidden(|asked| (asked == name).then(|| text.to_owned()))
    }

    /// The environment, and nothing else in it.
    fn of(variables: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        move |asked| {
            let found = variables.iter().find(|(name, _)| *name == asked);
            found.map(|(_, text)| (*text).to_owned())
        }
    }

    #[test]
    fn each_switch_forbids_in_its_own_sense() {
        for (name, forbids, allows) in [
            ("SYMMEM_MULTICAST", "0", "1"),
            ("NCCL_NVLS_ENABLE", "0", "2"),
            ("NVSHMEM_DISABLE_NVLS", "1", "0"),
            ("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1", "0"),
        ] {
            assert_eq!(with(name, forbids), Some(name));
            assert_eq!(with(name, allows), None);
            assert_eq!(with(name, ""), None);
        }
        assert_eq!(with("SYMMEM_MULTICAST", "off"), Some("SYMMEM_MULTICAST"));
        assert_eq!(
            with("NVSHMEM_DISABLE_NVLS", "true"),
            Some("NVSHMEM_DISABLE_NVLS")
        );
    }

    #[test]
    fn functions_are_looked_up_only_where_they_are_asked_for_and_nothing_forbids_them() {
        assert!(permitted_by(of(&[("SYMMEM_MULTICAST", "1")])).is_ok());
        assert!(permitted_by(of(&[("SYMMEM_MULTICAST", "true")])).is_ok());
        for other in ["", "2", "maybe", "emulate", "0"] {
            let text = other.to_owned();
            let only = move |name: &str| (name == OWN_SWITCH).then(|| text.clone());
            assert!(permitted_by(only).is_err(), "{other}");
        }
        assert!(permitted_by(of(&[])).is_err());
        for forbidding in [
            &[("SYMMEM_MULTICAST", "1"), ("NCCL_NVLS_ENABLE", "0")],
            &[("SYMMEM_MULTICAST", "1"), ("NVSHMEM_DISABLE_NVLS", "1")],
            &[
                ("SYMMEM_MULTICAST", "1"),
                ("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1"),
            ],
        ] {
            let why = permitted_by(of(forbidding)).unwrap_err();
            assert!(why.contains(forbidding[1].0), "{why}");
        }
    }

    #[test]
    fn emulation_is_no_request_for_multicast_and_nothing_forbids_it() {
        let all = of(&[
            ("SYMMEM_MULTICAST", " Emulate "),
            ("NCCL_NVLS_ENABLE", "2"),
            ("NVSHMEM_DISABLE_NVLS", "1"),
        ]);
        assert_eq!(asked(&all), Asked::Emulation);
        assert!(permitted_to_nccl_by(&all).is_err());
        assert!(permitted_to_nccl_by(of(&[("SYMMEM_MULTICAST", "emulate")])).is_err());
        assert_eq!(with("SYMMEM_MULTICAST", "emulate"), None);
    }

    #[test]
    fn nccl_is_started_only_without_multicast_or_where_it_was_asked_for() {
        let with = |variables| permitted_to_nccl_by(of(variables));
        assert!(with(&[]).unwrap_err().contains("SYMMEM_MULTICAST=1"));
        assert!(with(&[("NCCL_NVLS_ENABLE", "0")]).is_ok());
        assert!(with(&[("NCCL_NVLS_ENABLE", "2")]).is_err());
        assert!(with(&[("SYMMEM_MULTICAST", "1")]).is_ok());
        let forbidden = with(&[("SYMMEM_MULTICAST", "1"), ("NVSHMEM_DISABLE_NVLS", "1")]);
        assert!(forbidden.unwrap_err().contains("NVSHMEM_DISABLE_NVLS"));
        let both = with(&[("SYMMEM_MULTICAST", "0"), ("NCCL_NVLS_ENABLE", "0")]);
        assert!(both.is_ok(), "told not to, whoever else forbids it");
    }
}
