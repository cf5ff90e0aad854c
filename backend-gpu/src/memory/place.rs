//! Where memory is that the caller allocated.

use symmem_core::backend::abi::{DeviceAddress, Status};
use symmem_core::backend::{CallResult, Failure};

/// Where the runtime says that an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Memory of the device of this ordinal.
    Device(u32),
    /// Managed memory, which every device may use.
    Managed,
    /// The host's memory, or none that the runtime knows.
    Elsewhere,
}

/// Checks that kernels of the device `own` may use `bytes` bytes at `address`. `place` tells where an address is.
///
/// # Errors
/// `INVALID_ARGUMENT`, with what is there instead; the failures of `place`.
pub fn check_place(
    own: u32,
    address: DeviceAddress,
    bytes: u64,
    place: impl Fn(DeviceAddress) -> CallResult<Place>,
) -> CallResult<()> {
    if bytes == 0 {
        return Ok(());
    }
    let wrong = |message| {
        Err(Failure::new(
            Status::INVALID_ARGUMENT,
            "check_memory",
            message,
        ))
    };
    let last = DeviceAddress(address.0.saturating_add(bytes - 1));
    for (at, which) in [(address, "begin"), (last, "end")] {
        match place(at)? {
            Place::Managed => {}
            Place::Device(ordinal) if ordinal == own => {}
            Place::Device(ordinal) => {
                return wrong(format!(
                    "the {bytes} bytes at {:#x} {which} in memory of device {ordinal}, and this rank's is {own}: copy \
                     them there, or call from the rank of that device",
                    address.0
                ));
            }
            Place::Elsewhere => {
                return wrong(format!(
                    "the {bytes} bytes at {:#x} {which} where the driver knows no memory of a device: it is the host's, \
                     was freed, or ends before; copy them to the device",
                    address.0
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Addresses below 100 are this device's, those below 200 another's, those below 300 managed.
    fn checked(address: u64, bytes: u64) -> Result<(), String> {
        let place = |at: DeviceAddress| {
            Ok(match at.0 {
                0..100 => Place::Device(3),
                100..200 => Place::Device(1),
                200..300 => Place::Managed,
                _ => Place::Elsewhere,
            })
        };
        check_place(3, DeviceAddress(address), bytes, place).map_err(|failure| failure.message)
    }

    #[test]
    fn memory_of_this_device_and_managed_memory_are_taken() {
        assert_eq!(checked(10, 90), Ok(()));
        assert_eq!(checked(250, 50), Ok(()));
        assert_eq!(checked(400, 0), Ok(()));
    }

    #[test]
    fn other_memory_is_refused_at_its_beginning_and_at_its_end() {
        assert!(
            checked(100, 4)
                .unwrap_err()
                .contains("begin in memory of device 1")
        );
        assert!(
            checked(10, 91)
                .unwrap_err()
                .contains("end in memory of device 1")
        );
        assert!(
            checked(400, 4)
                .unwrap_err()
                .contains("begin where the driver knows")
        );
        assert!(
            checked(290, 20)
                .unwrap_err()
                .contains("end where the driver knows")
        );
        assert!(checked(10, u64::MAX).unwrap_err().contains("end where"));
    }
}
