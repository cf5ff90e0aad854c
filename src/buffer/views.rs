//! Raw addresses of a buffer's copies, for kernels.
//!
//! Peers may write a buffer's memory at any time, so no safe function returns a reference to it: a view is a
//! pointer and a length.

use crate::backend::abi::DeviceAddress;
use crate::base::element::Element;
use std::marker::PhantomData;

/// One rank's copy of a buffer, as this rank's device addresses it. Borrows the buffer.
///
/// Holds no reference to the elements, since peers may be writing them.
///
/// ```
/// # fn main() -> symmem::Result<()> {
/// # let communicator = symmem::init()?;
/// let buffer = communicator.allocate::<u32>(&[100])?;
/// for rank in 0..communicator.world_size() {
///     let view = buffer.peer(rank)?; // for a kernel on this rank's device
///     println!("rank {rank}: {} elements at {:#x}", view.len(), view.address().0);
/// }
/// # communicator.finalize().map(drop)
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RawView<'a, T: Element> {
    address: DeviceAddress,
    length: usize,
    buffer: PhantomData<&'a T>,
}

/// The NVLS multicast address of all ranks' copies of a buffer. Borrows the buffer.
///
/// Only multicast instructions may use the address: a load reduces all copies, a store goes to all. A load
/// needs every rank's earlier stores to be visible, by a barrier for example. No other rank may give the buffer
/// up before the last access.
#[derive(Clone, Copy, Debug)]
pub struct MulticastView<'a, T: Element> {
    address: DeviceAddress,
    length: usize,
    buffer: PhantomData<&'a T>,
}

impl<T: Element> RawView<'_, T> {
    pub(crate) fn new(address: DeviceAddress, length: usize) -> Self {
        Self {
            address,
            length,
            buffer: PhantomData,
        }
    }

    /// Returns the address of the first byte, for kernels on this rank's device.
    pub fn address(&self) -> DeviceAddress {
        self.address
    }

    /// Returns the address as a pointer. The host may dereference it only with the host backend, and only by
    /// volatile or atomic access while peers may write.
    pub fn as_ptr(&self) -> *mut T {
        self.address.0 as *mut T
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns whether the copy has no elements.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the elements as a slice.
    ///
    /// # Safety
    /// The memory is the host's (host backend). No rank writes any of these elements while the slice lives:
    /// every peer has passed a barrier after its last put, and puts again only after the next barrier.
    pub unsafe fn as_slice(&self) -> &[T] {
        // SAFETY: the caller guarantees that no rank writes; address and length are an allocation's.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.length) }
    }
}

impl<T: Element> MulticastView<'_, T> {
    pub(crate) fn new(address: DeviceAddress, length: usize) -> Self {
        Self {
            address,
            length,
            buffer: PhantomData,
        }
    }

    /// Returns the address of the first element.
    pub fn address(&self) -> DeviceAddress {
        self.address
    }

    /// Returns the address of an element; `None` past the last one.
    pub fn at(&self, element: usize) -> Option<DeviceAddress> {
        let inside = element < self.length;
        inside.then(|| DeviceAddress(self.address.0 + (element * size_of::<T>()) as u64))
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns whether the copy has no elements.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Runs under Miri, which would report a reference to memory that another thread writes.
    #[test]
    fn a_view_can_be_held_and_read_while_a_peer_writes() {
        let memory: Vec<AtomicU32> = (0..8).map(AtomicU32::new).collect();
        let view = RawView::<u32> {
            address: DeviceAddress(memory.as_ptr().expose_provenance() as u64),
            length: memory.len(),
            buffer: PhantomData,
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                memory
                    .iter()
                    .for_each(|word| word.store(7, Ordering::Release))
            });
            let copy = view;
            for index in 0..copy.len() {
                // SAFETY: inside the memory, which outlives the view and is only accessed atomically.
                let word = unsafe { AtomicU32::from_ptr(copy.as_ptr().add(index)) };
                let seen = word.load(Ordering::Acquire);
                assert!(seen == 7 || seen == index as u32);
            }
        });
        // SAFETY: the only writer has ended.
        let settled = unsafe { view.as_slice() };
        assert_eq!(settled, [7; 8]);
    }

    #[test]
    fn a_multicast_view_has_an_address_for_each_element_and_for_no_other() {
        let view = MulticastView::<u64> {
            address: DeviceAddress(0x1000),
            length: 3,
            buffer: PhantomData,
        };
        assert_eq!((view.len(), view.is_empty()), (3, false));
        assert_eq!(view.at(0), Some(view.address()));
        assert_eq!(view.at(2), Some(DeviceAddress(0x1010)));
        assert_eq!(view.at(3), None);
        // Its byte offset would overflow.
        assert_eq!(view.at(usize::MAX), None);
    }

    #[test]
    fn a_view_itself_touches_no_memory() {
        let view = RawView::<u64> {
            address: DeviceAddress(0x1000),
            length: 3,
            buffer: PhantomData,
        };
        assert_eq!(
            (view.address().0, view.len(), view.is_empty()),
            (0x1000, 3, false)
        );
        assert_eq!(view.as_ptr() as u64, 0x1000);
        assert!(format!("{view:?}").contains("4096"));
    }
}
