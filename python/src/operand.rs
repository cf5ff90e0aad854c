//! Operands: the memory that a call reads or writes.

use crate::element;
use crate::failure::{Result, invalid};
use crate::rank::Rank;
use std::sync::Arc;
use symmem::{DeviceAddress, Element, ElementType, Operand, Slice, SymmetricBuffer};

/// An operand.
pub struct Memory {
    place: Place,
    pub elements: usize,
    pub element: ElementType,
}

enum Place {
    /// Part of a symmetric buffer, from this byte on.
    Part(Arc<SymmetricBuffer<u8>>, usize),
    /// Memory that no peer knows.
    At(u64),
    /// The same, which is known to be on the rank's device.
    Known(u64),
}

impl Memory {
    /// Returns the memory of part of a symmetric buffer.
    pub fn part(
        buffer: Arc<SymmetricBuffer<u8>>,
        begin: usize,
        elements: usize,
        element: ElementType,
    ) -> Self {
        Self {
            place: Place::Part(buffer, begin),
            elements,
            element,
        }
    }

    /// Returns the memory at an address.
    pub fn at(address: u64, elements: usize, element: ElementType) -> Self {
        Self {
            place: Place::At(address),
            elements,
            element,
        }
    }

    /// Returns the memory at an address that is known to be on the rank's device.
    pub fn known(address: u64, elements: usize, element: ElementType) -> Self {
        Self {
            place: Place::Known(address),
            elements,
            element,
        }
    }

    /// Returns its bytes.
    ///
    /// # Errors
    /// If there are more than can be counted.
    pub fn bytes(&self) -> Result<usize> {
        let bytes = self.elements.checked_mul(element::bytes_of(self.element));
        bytes.ok_or_else(|| invalid(format!("there is no memory of {} elements", self.elements)))
    }

    /// Returns it as an operand of elements of `T`: the element type, or bytes.
    ///
    /// # Errors
    /// If the buffer has no such part, or the device no such memory.
    ///
    /// # Safety
    /// The memory has as many elements, until the stream has passed the work.
    pub unsafe fn operand<'a, T: Element>(&'a self, rank: &'a Rank) -> Result<Operand<'a, T>> {
        let bytes = self.bytes()?;
        match &self.place {
            Place::Part(buffer, begin) => {
                let part = buffer.slice(*begin..begin.saturating_add(bytes))?;
                Ok(part.cast::<T>()?.into())
            }
            Place::At(address) => {
                let address = DeviceAddress(*address);
                let length = bytes / size_of::<T>();
                // SAFETY: guaranteed by the caller.
                let slice = unsafe { rank.communicator.device_slice::<T>(address, length) };
                Ok(slice?.into())
            }
            Place::Known(address) => {
                let address = DeviceAddress(*address);
                let length = bytes / size_of::<T>();
                // SAFETY: guaranteed by the caller.
                let slice = unsafe { rank.communicator.known_slice::<T>(address, length) };
                Ok(slice?.into())
            }
        }
    }

    /// Returns it as bytes of a symmetric buffer.
    ///
    /// # Errors
    /// If it is memory at an address.
    pub fn slice(&self) -> Result<Slice<'_, u8>> {
        match &self.place {
            Place::Part(buffer, begin) => {
                let bytes = self.bytes()?;
                Ok(buffer.slice(*begin..begin.saturating_add(bytes))?)
            }
            Place::At(_) | Place::Known(_) => Err(invalid("transfers take symmetric buffers")),
        }
    }

    /// Returns the address of its first element.
    ///
    /// # Errors
    /// If the buffer has no such part.
    pub fn first(&self) -> Result<u64> {
        match &self.place {
            Place::Part(buffer, begin) => Ok(buffer.local().address().0 + *begin as u64),
            Place::At(address) | Place::Known(address) => Ok(*address),
        }
    }

    /// Returns it as memory at an address.
    ///
    /// # Errors
    /// If it is part of a symmetric buffer.
    pub fn address(&self) -> Result<u64> {
        match &self.place {
            Place::At(address) | Place::Known(address) => Ok(*address),
            Place::Part(..) => Err(invalid("pass a tensor; this is a symmetric buffer already")),
        }
    }
}
