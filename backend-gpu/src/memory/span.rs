//! Ranges within allocations of a vendor's runtime.

use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, Failure};

/// Returns `UNSUPPORTED` for memory that cannot be shared, with the reason.
pub fn not_shareable(address: DeviceAddress, reason: &str) -> Failure {
    Failure::new(
        Status::UNSUPPORTED,
        "register",
        format!("memory at {:#x} cannot be shared: {reason}", address.0),
    )
}

/// A caller's range within the runtime's allocation that contains it.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Address of the allocation's first byte.
    pub base: u64,
    /// Size of the allocation in bytes.
    pub bytes: u64,
    /// Offset of the range in the allocation, in bytes.
    pub offset: u64,
}

impl Span {
    /// Locates `bytes` bytes at `address` in the allocation of `size` bytes at `base`.
    ///
    /// # Errors
    /// `UNSUPPORTED` if the range is not within the allocation.
    pub fn new(address: DeviceAddress, bytes: u64, base: u64, size: u64) -> CallResult<Self> {
        let offset = address.0.checked_sub(base);
        let room = offset.and_then(|offset| size.checked_sub(offset));
        let (Some(offset), Some(room)) = (offset, room) else {
            let reason =
                format!("the runtime reports for it an allocation of {size} bytes at {base:#x}");
            return Err(not_shareable(address, &reason));
        };
        if bytes > room {
            return Err(not_shareable(
                address,
                &format!(
                    "{bytes} bytes from there exceed its allocation, which has {room} left; register each \
                     allocation by itself"
                ),
            ));
        }
        Ok(Self {
            base,
            bytes: size,
            offset,
        })
    }

    /// Returns a handle without the vendor-specific fields.
    pub fn handle(&self, kind: ShareKindCode, ordinal: u32) -> ExportedHandle {
        ExportedHandle {
            kind,
            device: ordinal,
            offset: self.offset,
            bytes: self.bytes,
            address: self.base + self.offset,
            opaque: [0; 64],
            descriptor: -1,
            reserved: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_knows_its_object_and_does_not_leave_it() {
        let span = Span::new(DeviceAddress(96), 32, 64, 64).unwrap();
        let handle = span.handle(ShareKindCode::LEGACY_IPC, 3);
        assert_eq!((handle.offset, handle.bytes, handle.address), (32, 64, 96));
        assert_eq!((handle.device, handle.descriptor), (3, -1));
        let failure = Span::new(DeviceAddress(96), 33, 64, 64).unwrap_err();
        assert!(failure.message.contains("32 left"), "{failure}");
        for outside in [63, 129] {
            let failure = Span::new(DeviceAddress(outside), 0, 64, 64).unwrap_err();
            assert!(failure.message.contains("64 bytes at 0x40"), "{failure}");
        }
    }
}
