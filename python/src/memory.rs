//! What a program passes as source or destination.

use crate::arrays;
use crate::buffer::Buffer;
use crate::element;
use crate::failure::{Result, invalid};
use crate::number::Number;
use crate::operand::Memory;
use crate::peer_buffer::PeerBuffer;
use crate::rank::Rank;
use crate::stream::Library;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};
use symmem::ElementType;

/// Memory of this rank's device at an address, with as many elements, for calls that cost as little as they can.
///
/// The memory must stay until the stream has passed the work.
#[pyclass(frozen, module = "symmem")]
pub struct At {
    address: u64,
    count: usize,
    element: ElementType,
    /// 1 more than the number of the rank that has asked the driver about the memory; 0 before.
    asked: AtomicU64,
}

impl At {
    /// Returns the memory. The driver is asked once whether it is there, which takes as long as a tenth of a call.
    fn memory(&self, rank: &Rank) -> Result<Memory> {
        if self.asked.load(Ordering::Relaxed) != rank.number + 1 {
            let memory = Memory::at(self.address, self.count, self.element);
            // SAFETY: the slice is not used.
            unsafe { memory.operand::<u8>(rank) }?;
            self.asked.store(rank.number + 1, Ordering::Relaxed);
        }
        Ok(Memory::known(self.address, self.count, self.element))
    }
}

#[pymethods]
impl At {
    #[new]
    fn new(address: Number<u64>, count: Number, dtype: &Bound<'_, PyAny>) -> Result<Self> {
        Ok(Self {
            address: address.0,
            count: count.0,
            element: element::of_object(dtype)?,
            asked: AtomicU64::new(0),
        })
    }
}

/// Finds the memory of what a program passes as `name`.
///
/// # Errors
/// For anything but contiguous memory of this rank's device, of a type that symmem has.
pub fn find<'a, 'py>(
    rank: &Rank,
    object: &'a Bound<'py, PyAny>,
    name: &str,
    is_written: bool,
) -> Result<(Memory, Library<'a, 'py>)> {
    let python = object.py();
    if let Ok(buffer) = object.cast::<Buffer>() {
        return Ok((buffer.get().memory(rank)?, Library::Other(python)));
    }
    if let Ok(at) = object.cast::<At>() {
        return Ok((at.get().memory(rank)?, Library::Other(python)));
    }
    if object.cast::<PeerBuffer>().is_ok() {
        return Err(invalid(format!(
            "{name} is a peer's memory: collectives take this rank's; put and get transfer between ranks"
        )));
    }
    if let Some(found) = arrays::find(rank, object, name, is_written)? {
        return Ok(found);
    }
    let of = object.get_type().name()?;
    Err(invalid(format!(
        "{name} is a {of}; pass a symmem.Buffer, a tensor of PyTorch, CuPy, JAX or NumPy, or symmem.At"
    )))
}
