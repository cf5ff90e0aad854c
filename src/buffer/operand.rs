//! The operands of collectives.

use crate::base::element::Element;
use crate::buffer::device_slice::DeviceSlice;
use crate::buffer::slice::{Slice, UntypedSlice};
use crate::buffer::symmetric::SymmetricBuffer;
use std::marker::PhantomData;

/// Source or destination of a collective: a [`Slice`] of a symmetric buffer, a whole buffer, or a [`DeviceSlice`].
pub struct Operand<'a, T: Element> {
    slice: UntypedSlice<'a>,
    elements: PhantomData<fn() -> T>,
}

impl<T: Element> Clone for Operand<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Element> Copy for Operand<'_, T> {}

impl<'a, T: Element> Operand<'a, T> {
    pub(crate) fn untyped(&self) -> UntypedSlice<'a> {
        self.slice
    }
}

impl<'a, T: Element> From<&'a SymmetricBuffer<T>> for Operand<'a, T> {
    fn from(buffer: &'a SymmetricBuffer<T>) -> Self {
        Slice::from(buffer).into()
    }
}

impl<'a, T: Element> From<Slice<'a, T>> for Operand<'a, T> {
    fn from(slice: Slice<'a, T>) -> Self {
        Self {
            slice: slice.untyped(),
            elements: PhantomData,
        }
    }
}

impl<'a, T: Element> From<DeviceSlice<'a, T>> for Operand<'a, T> {
    fn from(slice: DeviceSlice<'a, T>) -> Self {
        Self {
            slice: slice.untyped(),
            elements: PhantomData,
        }
    }
}

impl<T: Element> std::fmt::Debug for Operand<'_, T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Operand")
            .field("length", &self.slice.length)
            .field("element", &std::any::type_name::<T>())
            .finish_non_exhaustive()
    }
}
