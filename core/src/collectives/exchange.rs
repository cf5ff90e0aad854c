//! Sends and receives, done at once.

use crate::buffer::BufferRange;
use crate::element::Element;
use crate::error::Result;
use std::marker::PhantomData;

/// The sends and receives of one [`crate::Stream::exchange`].
pub struct Exchange<'b> {
    buffers: PhantomData<&'b ()>,
}

impl<'b> Exchange<'b> {
    /// Adds a send of `source` to `peer`.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] if there is no such peer.
    pub fn send<T: Element>(&mut self, peer: usize, source: BufferRange<'b, T>) -> Result<()> {
        let _ = (peer, source);
        todo!()
    }

    /// Adds a receipt into `destination` of what `peer` sends.
    ///
    /// # Errors
    /// As [`Exchange::send`].
    pub fn receive<T: Element>(
        &mut self,
        peer: usize,
        destination: BufferRange<'b, T>,
    ) -> Result<()> {
        let _ = (peer, destination);
        todo!()
    }
}
