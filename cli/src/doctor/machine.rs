//! What is known about a machine without an operation that a site may forbid.

use serde::{Deserialize, Serialize};
use std::fmt;
use symmem::BackendSource;
use symmem::backend::read_text;
use symmem::backends::Chosen;
use symmem_bench::environment;

/// The first driver version with multicast functions (release notes of the CUDA toolkit).
const FIRST_DRIVER: (u32, u32) = (12, 1);

/// What matters for multicast on a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Why CUDA cannot start; all other fields except `switches` are then empty. `None` if it can.
    pub absent: Option<String>,
    /// Version of the driver.
    pub driver: String,
    /// The devices.
    pub devices: Vec<Device>,
    /// Pairs of devices without peer access.
    pub apart: Vec<(u32, u32)>,
    /// Every variable that can forbid multicast.
    pub switches: Vec<Switch>,
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// The device's ordinal.
    pub ordinal: u32,
    /// The device's name.
    pub name: String,
    /// Compute capability as one number, such as 90.
    pub architecture: u32,
    /// The value of its multicast attribute, or why it was not read.
    pub multicast: String,
}

/// A variable that can forbid multicast.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switch {
    /// The variable's name.
    pub name: String,
    /// The variable's value, if it is set.
    pub value: Option<String>,
    /// Whether the value forbids multicast.
    pub forbids: bool,
}

impl Machine {
    /// Reads the variables that can forbid multicast. Does not touch the driver.
    pub fn switches() -> Vec<Switch> {
        let switches = symmem_cuda::multicast_switches();
        let said = switches.into_iter().map(|switch| Switch {
            name: switch.name.into(),
            value: switch.value,
            forbids: switch.forbids,
        });
        said.collect()
    }

    /// Returns a machine on which CUDA cannot start, with the reason.
    pub fn without_cuda(why: String) -> Self {
        Self {
            absent: Some(why),
            switches: Self::switches(),
            ..Self::default()
        }
    }

    /// Describes the machine through its CUDA backend, without opening a device.
    pub fn look(chosen: &Chosen) -> Self {
        let mut lines = environment::libraries(chosen);
        let apart = |from: u32| {
            let lines = &lines;
            let others = (0..chosen.devices).filter(move |&to| to > from);
            others.filter_map(move |to| {
                let link = lines.get(&format!("link_{from}_{to}"))?;
                (link == "no").then_some((from, to))
            })
        };
        let apart = (0..chosen.devices).flat_map(apart).collect();
        let device = |ordinal| {
            let described = match &chosen.source {
                BackendSource::Tables(tables) => tables.describe_device(ordinal).ok(),
                BackendSource::Host => None,
            };
            Device {
                ordinal,
                name: described.map_or("cannot be described".into(), |device| {
                    read_text(&device.name)
                }),
                architecture: described.map_or(0, |device| device.architecture),
                multicast: lines
                    .remove(&format!("device_{ordinal}_multicast"))
                    .unwrap_or_else(|| "unknown".into()),
            }
        };
        let devices = (0..chosen.devices).map(device).collect();
        Self {
            absent: None,
            driver: lines.remove("driver_version").unwrap_or_default(),
            devices,
            apart,
            switches: Self::switches(),
        }
    }

    /// Returns the variables that forbid multicast, as `NAME=value`.
    pub fn forbidding(switches: &[Switch]) -> Vec<String> {
        let forbids = switches.iter().filter(|switch| switch.forbids);
        forbids.map(ToString::to_string).collect()
    }

    /// Returns whether the driver's version is new enough for multicast functions.
    fn has_functions(&self) -> bool {
        let (major, minor) = self.driver.split_once('.').unwrap_or((&self.driver, "0"));
        let number = |text: &str| text.parse::<u32>().unwrap_or(0);
        (number(major), number(minor)) >= FIRST_DRIVER
    }
}

impl fmt::Display for Switch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(formatter, "{}={value}", self.name),
            None => write!(formatter, "{} is not set", self.name),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = &self.absent {
            writeln!(
                formatter,
                "CUDA cannot start on this machine, so there is no multicast:\n{why}"
            )?;
        } else {
            let (major, minor) = FIRST_DRIVER;
            let has = if self.has_functions() {
                "has"
            } else {
                "has no"
            };
            writeln!(
                formatter,
                "driver: {}, which {has} multicast functions (from {major}.{minor} on; judged by the version, no \
                 function was looked up)",
                self.driver
            )?;
        }
        for device in &self.devices {
            writeln!(
                formatter,
                "device {}: {}, architecture {}, multicast {}",
                device.ordinal, device.name, device.architecture, device.multicast
            )?;
        }
        for (one, other) in &self.apart {
            writeln!(
                formatter,
                "devices {one} and {other} have no peer access to each other"
            )?;
        }
        for switch in &self.switches {
            let forbids = match switch.forbids {
                true => {
                    ": forbids multicast and reading the attribute; the live test refuses to run"
                }
                false => "",
            };
            writeln!(formatter, "{switch}{forbids}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_in_a_driver_by_its_version() {
        let of = |driver: &str| {
            let machine = Machine {
                driver: driver.into(),
                ..Machine::default()
            };
            machine.has_functions()
        };
        assert!(of("12.1") && of("12.8") && of("13.0"));
        assert!(!of("12.0") && !of("11.8") && !of(""));
    }

    #[test]
    fn a_switch_that_forbids_is_named_with_what_it_says() {
        let switch = |name: &str, value: Option<&str>, forbids| Switch {
            name: name.into(),
            value: value.map(str::to_owned),
            forbids,
        };
        let machine = Machine {
            absent: Some("no driver".into()),
            switches: vec![switch("A", None, false), switch("B", Some("0"), true)],
            ..Machine::default()
        };
        assert_eq!(Machine::forbidding(&machine.switches), ["B=0"]);
        let text = machine.to_string();
        assert!(text.contains("no driver") && text.contains("A is not set\n"));
        assert!(text.contains("B=0: forbids multicast"), "{text}");
    }
}
