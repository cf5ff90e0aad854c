//! Allocation and registration of symmetric buffers.

use crate::backend::abi::DeviceAddress;
use crate::base::element::Element;
use crate::base::error::{Error, Result};
use crate::buffer::symmetric::SymmetricBuffer;
use crate::memory::kinds::{common_kinds, listed_kinds};
use crate::memory::sharing::{self, Origin};
use crate::rank::allocation::Allocation;
use crate::world::communicator::Communicator;
use std::alloc::Layout;
use std::sync::Arc;

/// Size, alignment and name of an element type.
struct ElementLayout {
    name: &'static str,
    layout: Layout,
}

impl Communicator {
    /// Allocates a zeroed symmetric buffer on every rank; its length is the product of `shape`, in elements.
    /// Collective. Blocks until all ranks are done, for at most the setup deadline in each step.
    ///
    /// # Errors
    /// [`Error::Mismatch`] on every rank if shapes or element types differ; [`Error::InvalidArgument`] if the
    /// size in bytes overflows; [`Error::OutOfMemory`] on a rank without enough memory and
    /// [`Error::PeerFailed`] on the others; [`Error::PeerUnreachable`] if a peer's copy cannot be mapped, or
    /// if the ranks read different bytes through the mapping. After an error, no memory stays allocated.
    pub fn allocate<T: Element>(&self, shape: &[usize]) -> Result<SymmetricBuffer<T>> {
        self.buffer::<T>("allocate", shape, Origin::Backend)
    }

    /// Makes memory that the caller owns symmetric: as many elements as the product of `shape`, at `address` on
    /// this device. The address may differ between ranks. The contents stay; nothing may write the first 64 bytes
    /// meanwhile, which the ranks compare. Collective; blocks as [`Communicator::allocate`] does.
    ///
    /// # Errors
    /// [`Error::NotShareable`] with the reason, if peers cannot map this kind of memory (managed memory, memory
    /// from a pool, memory of another device): use [`Communicator::stage`] instead. [`Error::InvalidArgument`]
    /// if `address` is not aligned to the element, or the shape has no elements. Also the errors of
    /// [`Communicator::allocate`].
    ///
    /// # Safety
    /// The memory stays allocated until the buffer is freed, or dropped by every rank. Until then, nothing on
    /// the host refers to it.
    pub unsafe fn register<T: Element>(
        &self,
        address: DeviceAddress,
        shape: &[usize],
    ) -> Result<SymmetricBuffer<T>> {
        self.buffer("register", shape, Origin::Caller(address))
    }

    pub(crate) fn buffer<T: Element>(
        &self,
        operation: &'static str,
        shape: &[usize],
        origin: Origin,
    ) -> Result<SymmetricBuffer<T>> {
        self.buffer_in(operation, shape, origin, u64::MAX)
    }

    /// The same in memory of the caller that has `room` bytes, as far as is known.
    pub(super) fn buffer_in<T: Element>(
        &self,
        operation: &'static str,
        shape: &[usize],
        origin: Origin,
        room: u64,
    ) -> Result<SymmetricBuffer<T>> {
        let element = ElementLayout {
            name: std::any::type_name::<T>(),
            layout: Layout::new::<T>(),
        };
        let (allocation, length) =
            self.symmetric_memory(operation, shape, element, (origin, room))?;
        Ok(SymmetricBuffer::new(
            self.world().clone(),
            allocation,
            length,
            shape.to_vec(),
        ))
    }

    /// Makes an allocation for `shape`. Returns it with its number of elements.
    fn symmetric_memory(
        &self,
        operation: &'static str,
        shape: &[usize],
        element: ElementLayout,
        (origin, room): (Origin, u64),
    ) -> Result<(Arc<Allocation>, usize)> {
        let (size, align) = (element.layout.size(), element.layout.align());
        let shared = self.world();
        shared.reclaim();
        let length = shape
            .iter()
            .try_fold(1usize, |product, &side| product.checked_mul(side));
        let bytes = length.and_then(|length| length.checked_mul(size));
        let mut round = shared.agreement.begin(operation);
        // Compare before the checks, so that a rank with a bad shape does not leave the others waiting.
        round.compare(&[
            ("the shape", format!("{shape:?}")),
            ("the element type", element.name.into()),
            ("the element size", size.to_string()),
        ])?;
        let (Some(length), Some(bytes)) = (length, bytes) else {
            return Err(Error::InvalidArgument {
                rank: shared.rank,
                operation,
                message: format!(
                    "the shape {shape:?} of {size}-byte elements exceeds the address space"
                ),
            });
        };
        let kinds = match origin {
            Origin::Backend | Origin::Signals => vec![shared.kind],
            Origin::Caller(address) => {
                let aligned = address.0.is_multiple_of(align as u64);
                let misaligned = || Error::InvalidArgument {
                    rank: shared.rank,
                    operation,
                    message: format!(
                        "the address {:#x} is not aligned to {align} bytes, as its elements need",
                        address.0
                    ),
                };
                let too_small = || Error::InvalidArgument {
                    rank: shared.rank,
                    operation,
                    message: format!(
                        "the shape {shape:?} of {size}-byte elements has {bytes} bytes, but only {room} are left in \
                         the memory from the offset on"
                    ),
                };
                let empty = || Error::InvalidArgument {
                    rank: shared.rank,
                    operation,
                    message: format!("the shape {shape:?} has no elements; register at least one"),
                };
                let fits = (bytes as u64 <= room).then_some(()).ok_or_else(too_small);
                let fits = fits.and((bytes > 0).then_some(()).ok_or_else(empty));
                round.vote(aligned.then_some(()).ok_or_else(misaligned).and(fits))?;
                // The caller's allocator chose the kind: try all kinds that every rank has.
                common_kinds(&mut round, &listed_kinds(&shared.capabilities))?
            }
        };
        let multicast = &shared.multicast;
        let bytes = match origin {
            Origin::Caller(_) => bytes as u64,
            // An empty buffer has an allocation of one byte (before padding), so that all buffers are handled
            // alike.
            Origin::Backend | Origin::Signals => multicast.padded(bytes.max(1) as u64),
        };
        let (allocation, _) =
            sharing::allocate(shared.allocator(), &mut round, &kinds, bytes, origin)?;
        if !matches!(origin, Origin::Caller(_))
            && let Err(error) = multicast.bind(shared, &mut round, &allocation)
        {
            shared.give_up(allocation);
            return Err(error);
        }
        if let Err(error) = shared.register(&mut round, &allocation) {
            shared.give_up(allocation);
            return Err(error);
        }
        Ok((allocation, length))
    }
}
