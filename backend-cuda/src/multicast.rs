//! Multicast: whether it may be used, and the objects.
//!
//! A failed set-up can put a host's GPUs out of service. Sites therefore forbid multicast with the switches of
//! NCCL, NVSHMEM or PyTorch, and it is off unless `SYMMEM_MULTICAST=1` asks for it. While it is off, symmem
//! does not even look up the driver's multicast functions. `SYMMEM_MULTICAST=emulate` runs the multicast
//! kernels over the peers' own addresses instead of a switch; none of these variables forbids that.

mod advice;
mod calls;
mod functions;
mod objects;

pub use advice::{ErrorAdvice, SLOTS, meanings};
pub use objects::Objects;

use crate::driver::constants::device_attribute::MULTICAST_SUPPORTED;
use crate::driver::constants::result::INVALID_VALUE;
use crate::{describe, driver::Driver};
use cudarc::driver::sys::CUdevice;
use symmem_core::backend::CallResult;
use symmem_core::backend::abi::{DeviceDescription, MulticastSupportCode, ShareKindCode};

/// A variable, and the function that tells whether its text forbids multicast.
type Rule = (&'static str, fn(&str) -> bool);

/// The variables that can forbid multicast. Text that symmem does not understand forbids it.
const SWITCHES: [Rule; 4] = [
    (OWN_SWITCH, |text| {
        matches!(
            asked(text),
            MulticastRequest::Not | MulticastRequest::NotUnderstood
        )
    }),
    (NCCL_SWITCH, is_zero_to_nccl),
    ("NVSHMEM_DISABLE_NVLS", disables),
    ("TORCH_SYMM_MEM_DISABLE_MULTICAST", disables),
];

/// symmem's own variable, which can also ask for multicast.
const OWN_SWITCH: &str = "SYMMEM_MULTICAST";
/// NCCL's variable. NCCL uses multicast unless it says 0.
const NCCL_SWITCH: &str = "NCCL_NVLS_ENABLE";

/// Why an emulating backend has no multicast objects.
const EMULATED: &str = "SYMMEM_MULTICAST=emulate runs the multicast kernels over peer addresses";

/// First architecture with instructions for multicast addresses (sm_90).
const FIRST_ARCHITECTURE: u32 = 90;

/// A variable that can forbid multicast, with its value in this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switch {
    /// Name.
    pub name: &'static str,
    /// Value; `None` if it is not set.
    pub value: Option<String>,
    /// Whether the value forbids multicast.
    pub forbids: bool,
}

/// Returns every variable that can forbid multicast, with its value in this process.
pub fn switches() -> [Switch; 4] {
    switches_of(variable)
}

/// What `SYMMEM_MULTICAST` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MulticastRequest {
    Nothing,
    Not,
    Hardware,
    Emulation,
    NotUnderstood,
}

/// Returns what forbids multicast, if anything does.
pub fn forbidden_by() -> Option<String> {
    forbidden(variable)
}

/// Returns whether the driver's multicast functions may be looked up; else the reason.
fn permitted() -> Result<(), String> {
    permitted_by(variable)
}

/// Returns whether NCCL, which uses multicast by itself, may be started: it was told not to use multicast, or
/// multicast was asked for and nothing forbids it. Else the reason.
pub fn permitted_to_nccl() -> Result<(), String> {
    permitted_to_nccl_by(variable)
}

/// Returns how collectives can use multicast on a device with these share kinds, and if not, why. Reads one
/// device attribute if multicast is asked for and not forbidden, and looks up no function.
pub fn support(
    driver: &Driver,
    device: CUdevice,
    description: &DeviceDescription,
    kinds: &[ShareKindCode],
) -> (MulticastSupportCode, String) {
    let off = |why: &str| (MulticastSupportCode::NONE, why.to_owned());
    if asked_by(variable) == MulticastRequest::Emulation {
        return (MulticastSupportCode::EMULATED, EMULATED.to_owned());
    }
    if let Err(why) = permitted() {
        return off(&why);
    }
    if description.architecture < FIRST_ARCHITECTURE {
        return off("this device's architecture has no multicast");
    }
    if !kinds.contains(&ShareKindCode::VMM_FILE_DESCRIPTOR) {
        return off("this device cannot share memory by file descriptors, which multicast needs");
    }
    match hardware(driver, device) {
        Ok(Some(true)) => (MulticastSupportCode::HARDWARE, String::new()),
        Ok(Some(false)) => off("the driver reports that this device has no multicast"),
        Ok(None) => off("this driver has no multicast; CUDA 12.1 or newer has it"),
        // Everything else works without multicast, so a failed query is no error.
        Err(failure) => off(&failure.to_string()),
    }
}

/// Returns whether the device has multicast hardware; `None` if a variable forbids multicast, or if the driver,
/// older than 12.1, does not know the attribute.
pub fn hardware(driver: &Driver, device: CUdevice) -> CallResult<Option<bool>> {
    if forbidden_by().is_some() {
        return Ok(None);
    }
    match describe::attribute(driver, device, MULTICAST_SUPPORTED) {
        Err(failure) if failure.vendor_code == INVALID_VALUE as i32 => Ok(None),
        answer => Ok(Some(answer? != 0)),
    }
}

/// Returns the multicast line of `symmem info` for a device.
pub fn line(driver: &Driver, device: CUdevice) -> String {
    let emulated = match asked_by(variable) {
        MulticastRequest::Emulation => format!("; emulated, as {OWN_SWITCH}=emulate asks"),
        _ => String::new(),
    };
    if let Some(what) = forbidden_by() {
        return format!("forbidden by {what}{emulated}");
    }
    let hardware = match hardware(driver, device) {
        Ok(Some(true)) => "yes",
        Ok(Some(false)) => "no",
        Ok(None) | Err(_) => "unknown",
    };
    let used = match asked_by(variable) {
        MulticastRequest::Hardware => format!("asked for by {OWN_SWITCH}=1"),
        _ => "off".into(),
    };
    format!(
        "hardware: {hardware} (attribute {MULTICAST_SUPPORTED} read only), use: {used}{emulated}"
    )
}

fn variable(name: &str) -> Option<String> {
    // Text that is not Unicode gets replacement characters, which no switch understands.
    std::env::var_os(name).map(|text| text.to_string_lossy().into_owned())
}

fn asked_by(variable: impl Fn(&str) -> Option<String>) -> MulticastRequest {
    asked(&variable(OWN_SWITCH).unwrap_or_default())
}

fn asked(text: &str) -> MulticastRequest {
    match text.trim() {
        "" => MulticastRequest::Nothing,
        "0" => MulticastRequest::Not,
        "1" => MulticastRequest::Hardware,
        text if text.eq_ignore_ascii_case("emulate") => MulticastRequest::Emulation,
        _ => MulticastRequest::NotUnderstood,
    }
}

fn permitted_by(variable: impl Fn(&str) -> Option<String>) -> Result<(), String> {
    if let Some(what) = forbidden(&variable) {
        return Err(format!("{what} forbids it"));
    }
    match asked_by(variable) {
        MulticastRequest::Hardware => Ok(()),
        MulticastRequest::Emulation => Err(EMULATED.to_owned()),
        _ => Err(format!(
            "nothing asks for it; set {OWN_SWITCH}=1 on all ranks"
        )),
    }
}

fn permitted_to_nccl_by(variable: impl Fn(&str) -> Option<String>) -> Result<(), String> {
    match variable(NCCL_SWITCH) {
        Some(text) if is_zero_to_nccl(&text) => Ok(()),
        _ => permitted_by(variable),
    }
}

fn forbidden(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let mut switches = switches_of(variable).into_iter();
    let found = switches.find(|one| one.forbids)?;
    let text = found.value.unwrap_or_default();
    Some(match found.name {
        OWN_SWITCH if asked(&text) == MulticastRequest::NotUnderstood => {
            format!("{OWN_SWITCH}={text} (not understood: 1, 0 or emulate)")
        }
        name => name.to_owned(),
    })
}

fn switches_of(variable: impl Fn(&str) -> Option<String>) -> [Switch; 4] {
    SWITCHES.map(|(name, forbids)| {
        let value = variable(name);
        Switch {
            name,
            forbids: value.as_deref().is_some_and(forbids),
            value,
        }
    })
}

/// Returns whether a variable that disables something is set to anything but a "no".
fn disables(text: &str) -> bool {
    let text = text.trim().to_ascii_lowercase();
    !["", "0", "n", "no", "off", "false"].contains(&&*text)
}

/// Returns whether NCCL reads this text as 0. NCCL uses its default for an empty text, and otherwise `strtoll` with
/// base 0, which returns 0 for text that does not begin with a number, such as "on" and "true" (`src/misc/param.cc`).
fn is_zero_to_nccl(text: &str) -> bool {
    let is_space = |letter: char| letter.is_ascii_whitespace() || letter == '\x0b';
    let number = text.trim_start_matches(is_space);
    let number = number.strip_prefix(['+', '-']).unwrap_or(number);
    let (digits, base) = match number.strip_prefix("0x").or(number.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if number.starts_with('0') => (number, 8),
        None => (number, 10),
    };
    let mut digits = digits.chars().map_while(|letter| letter.to_digit(base));
    !text.is_empty() && digits.all(|digit| digit == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &'static str, text: &'static str) -> Option<String> {
        forbidden(|asked| (asked == name).then(|| text.to_owned()))
    }

    /// An environment with these variables only.
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
            assert_eq!(with(name, forbids).as_deref(), Some(name));
            assert_eq!(with(name, allows), None);
            assert_eq!(with(name, ""), None);
        }
        let torch = "TORCH_SYMM_MEM_DISABLE_MULTICAST";
        assert_eq!(with(torch, "true").as_deref(), Some(torch));
    }

    #[test]
    fn what_our_switch_does_not_understand_forbids_and_is_named() {
        for text in ["maybe", "2", "yes", "on", "true", "off", "01"] {
            let what = with(OWN_SWITCH, text).expect(text);
            assert!(what.contains(&format!(
                "{OWN_SWITCH}={text} (not understood: 1, 0 or emulate)"
            )));
        }
        assert_eq!(with(OWN_SWITCH, " 1 "), None);
    }

    /// Expectations follow `strtoll(text, NULL, 0)`.
    #[test]
    fn nccls_switch_is_read_as_nccl_reads_it() {
        for zero in [
            "0", "00", "0x0", "0X00", "-0", "+0", " 0", "0 1", "0x", "0xg", "08", "\x0b0", " ",
            "disabled", "none", "off", "on", "true", "x1",
        ] {
            assert!(is_zero_to_nccl(zero), "{zero:?}");
            assert_eq!(with(NCCL_SWITCH, zero).as_deref(), Some(NCCL_SWITCH));
        }
        for other in [
            "",
            "1",
            "2",
            " 2",
            "\x0b2",
            "-1",
            "01",
            "010",
            "0x1",
            "0x0a",
            "2abc",
            "99999999999999999999",
        ] {
            assert!(!is_zero_to_nccl(other), "{other:?}");
            assert_eq!(with(NCCL_SWITCH, other), None);
        }
    }

    #[test]
    fn functions_are_looked_up_only_where_they_are_asked_for_and_nothing_forbids_them() {
        assert!(permitted_by(of(&[("SYMMEM_MULTICAST", "1")])).is_ok());
        for (other, told) in [
            (
                "",
                "nothing asks for it; set SYMMEM_MULTICAST=1 on all ranks",
            ),
            ("0", "SYMMEM_MULTICAST forbids it"),
            (
                "true",
                "SYMMEM_MULTICAST=true (not understood: 1, 0 or emulate) forbids it",
            ),
            (
                "emulate",
                "SYMMEM_MULTICAST=emulate runs the multicast kernels over peer addresses",
            ),
        ] {
            let only = |name: &str| (name == OWN_SWITCH).then(|| other.to_owned());
            assert_eq!(permitted_by(only).unwrap_err(), told);
        }
        let nobody = permitted_by(of(&[])).unwrap_err();
        assert!(nobody.contains("nothing asks for it"), "{nobody}");
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
        assert_eq!(asked_by(&all), MulticastRequest::Emulation);
        assert!(permitted_to_nccl_by(&all).is_err());
        assert!(permitted_to_nccl_by(of(&[("SYMMEM_MULTICAST", "emulate")])).is_err());
        assert_eq!(with("SYMMEM_MULTICAST", "emulate"), None);
    }

    #[test]
    fn nccl_is_started_only_without_multicast_or_where_it_was_asked_for() {
        let with = |variables| permitted_to_nccl_by(of(variables));
        assert!(with(&[]).unwrap_err().contains("SYMMEM_MULTICAST=1"));
        assert!(with(&[("NCCL_NVLS_ENABLE", "0")]).is_ok());
        assert!(with(&[("NCCL_NVLS_ENABLE", "none")]).is_ok());
        assert!(with(&[("NCCL_NVLS_ENABLE", "2")]).is_err());
        assert!(with(&[("NCCL_NVLS_ENABLE", "")]).is_err());
        assert!(with(&[("SYMMEM_MULTICAST", "1")]).is_ok());
        let forbidden = with(&[("SYMMEM_MULTICAST", "1"), ("NVSHMEM_DISABLE_NVLS", "1")]);
        assert!(forbidden.unwrap_err().contains("NVSHMEM_DISABLE_NVLS"));
        let both = with(&[("SYMMEM_MULTICAST", "0"), ("NCCL_NVLS_ENABLE", "0")]);
        assert!(both.is_ok(), "told not to, whoever else forbids it");
    }
}
