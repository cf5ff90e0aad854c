//! Buffers that a session keeps from case to case.

use std::any::Any;
use symmem::{Element, Result, SymmetricBuffer};

/// Destination and source of one type.
pub(super) struct Buffers<T: Element> {
    pub destination: SymmetricBuffer<T>,
    pub source: SymmetricBuffer<T>,
}

impl<T: Element> Buffers<T> {
    /// Whether one of them cannot be reached by multicast.
    pub(super) fn is_unbound(&self) -> bool {
        !(self.destination.is_in_multicast() && self.source.is_in_multicast())
    }
}

/// [`Buffers`] of any type.
pub(super) trait AnyBuffers: Any {
    fn free(self: Box<Self>) -> Result<()>;
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
    fn as_any(&self) -> &dyn Any;
}

impl<T: Element> AnyBuffers for Buffers<T> {
    fn free(self: Box<Self>) -> Result<()> {
        self.destination.free()?;
        self.source.free()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
