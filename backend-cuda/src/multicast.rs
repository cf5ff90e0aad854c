//! Whether this machine may even be asked about multicast.
//!
//! Multicast is not used. What stands here reports the hardware's ability for `symmem info`, and
//! leaves even that unread where one of the field's switches forbids it.

use crate::driver::constants::device_attribute::MULTICAST_SUPPORTED;
use crate::driver::constants::result::INVALID_VALUE;
use crate::{describe, driver::Driver};
use cudarc::driver::sys::CUdevice;
use symmem_core::backend::CallResult;

/// The switches, and the sense in which each forbids.
const SWITCHES: [(&str, bool); 4] = [
    ("SYMMEM_MULTICAST", false),
    ("NCCL_NVLS_ENABLE", false),
    ("NVSHMEM_DISABLE_NVLS", true),
    ("TORCH_SYMM_MEM_DISABLE_MULTICAST", true),
];

/// The variable that forbids multicast, if one does.
pub fn forbidden_by() -> Option<&'static str> {
    forbidden(|name| std::env::var(name).ok())
}

/// Whether a library of NVIDIA's that uses multicast by itself may be started: it was told not to use
/// it, or multicast was asked for and nothing forbids it. Else the reason.
pub fn permitted_to_nccl() -> Result<(), String> {
    permitted(|name| std::env::var(name).ok())
}

fn permitted(variable: impl Fn(&str) -> Option<String>) -> Result<(), String> {
    let says = |name: &str| variable(name).and_then(|text| truth(&text));
    if says("NCCL_NVLS_ENABLE") == Some(false) {
        return Ok(());
    }
    if let Some(name) = forbidden(&variable) {
        return Err(format!("{name} forbids it"));
    }
    match says("SYMMEM_MULTICAST") {
        Some(true) => Ok(()),
        _ => Err("SYMMEM_MULTICAST=1 does not ask for it".into()),
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
    if let Some(variable) = forbidden_by() {
        return format!("forbidden by {variable}");
    }
    let hardware = match hardware(driver, device) {
        Ok(Some(true)) => "yes",
        Ok(Some(false)) => "no",
        Ok(None) | Err(_) => "unknown",
    };
    format!("hardware: {hardware} (attribute {MULTICAST_SUPPORTED} read only), use: off")
}

fn forbidden(variable: impl Fn(&str) -> Option<String>) -> Option<&'static str> {
    SWITCHES
        .into_iter()
        .find(|&(name, when)| variable(name).and_then(|text| truth(&text)) == Some(when))
        .map(|(name, _)| name)
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
    fn nccl_is_started_only_without_multicast_or_where_it_was_asked_for() {
        let with = |variables: &'static [(&str, &str)]| {
            permitted(move |asked| {
                let found = variables.iter().find(|(name, _)| *name == asked);
                found.map(|(_, text)| (*text).to_owned())
            })
        };
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
