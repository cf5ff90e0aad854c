//! Symmetric buffers.

use crate::arrays;
use crate::dlpack::{self, Showing};
use crate::element;
use crate::failure::{Failure, Result, invalid};
use crate::interrupt;
use crate::number::{self, Number};
use crate::operand::Memory;
use crate::peer_buffer::{PeerBuffer, refuse_copies};
use crate::rank::{Rank, Where};
use crate::shared::{PAD_BYTES, Shared};
use crate::stream::{self, Library};
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PySlice, PyTuple};
use std::sync::{Arc, Mutex, PoisonError};
use symmem::{ElementType, SymmetricBuffer};

/// Memory that every rank has, and can reach at every other: a buffer, or a part of one.
#[pyclass(frozen, weakref, module = "symmem")]
pub struct Buffer {
    /// `None` once it was freed.
    shared: Mutex<Option<Arc<Shared>>>,
    /// Bytes from the begin of the buffer.
    begin: usize,
    shape: Vec<usize>,
    element: ElementType,
    is_whole: bool,
}

impl Buffer {
    /// Returns a whole buffer.
    pub fn whole(shared: Shared, shape: Vec<usize>, element: ElementType) -> Self {
        Self {
            shared: Mutex::new(Some(Arc::new(shared))),
            begin: 0,
            shape,
            element,
            is_whole: true,
        }
    }

    fn shared(&self) -> Result<Arc<Shared>> {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared
            .clone()
            .ok_or_else(|| invalid("the buffer was freed"))
    }

    fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns it as an operand.
    ///
    /// # Errors
    /// If it was freed, or is of another communicator.
    pub fn memory(&self, rank: &Rank) -> Result<Memory> {
        let shared = self.shared()?;
        if !std::ptr::eq(shared.rank.as_ptr(), rank) {
            return Err(invalid("the buffer is of another communicator"));
        }
        let elements = Arc::clone(&shared.elements);
        Ok(Memory::part(
            elements,
            self.begin,
            self.elements(),
            self.element,
        ))
    }
}

#[pymethods]
impl Buffer {
    #[getter]
    fn shape<'py>(&self, python: Python<'py>) -> Result<Bound<'py, PyTuple>> {
        Ok(PyTuple::new(python, &self.shape)?)
    }

    #[getter]
    fn dtype(&self) -> &'static str {
        element::name_of(self.element)
    }

    #[getter]
    fn nbytes(&self) -> usize {
        self.elements() * element::bytes_of(self.element)
    }

    #[getter]
    fn address(&self) -> Result<u64> {
        let shared = self.shared()?;
        Ok(shared.elements.local().address().0 + self.begin as u64)
    }

    #[getter]
    fn rank(&self) -> Result<usize> {
        Ok(self.shared()?.rank()?.communicator.rank())
    }

    #[getter]
    fn world_size(&self) -> Result<usize> {
        Ok(self.shared()?.rank()?.communicator.world_size())
    }

    fn __len__(&self) -> Result<usize> {
        let first = self.shape.first().copied();
        first.ok_or_else(|| wrong_type("a buffer of no dimension has no length"))
    }

    fn __repr__(&self) -> String {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let freed = if shared.is_some() { "" } else { ", freed" };
        format!(
            "symmem.Buffer(shape={:?}, dtype={}{freed})",
            self.shape,
            self.dtype()
        )
    }

    /// Returns the part of some rows: of elements, of a buffer of one dimension.
    fn __getitem__(&self, rows: &Bound<'_, PyAny>) -> Result<Self> {
        let rows = rows.cast::<PySlice>();
        let rows = rows.map_err(|_| wrong_type("a part of a buffer is buffer[begin:end]"))?;
        let length = self.__len__()?;
        let rows = rows.indices(length as isize)?;
        if rows.step != 1 {
            return Err(invalid("a part of a buffer has a step of 1"));
        }
        let (begin, count) = (rows.start as usize, rows.slicelength);
        // What cannot be counted has no rows, or rows of no element.
        let row = element::bytes_of(self.element);
        let row = number::bytes(&self.shape[1..], row).unwrap_or(0);
        let mut shape = self.shape.clone();
        shape[0] = count;
        Ok(Self {
            shared: Mutex::new(Some(self.shared()?)),
            begin: self.begin + begin * row,
            shape,
            element: self.element,
            is_whole: false,
        })
    }

    fn __dlpack_device__(&self) -> Result<(i32, i32)> {
        let device = self.shared()?.device;
        Ok((device.kind, device.ordinal))
    }

    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        python: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<&Bound<'py, PyTuple>>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> Result<Bound<'py, PyAny>> {
        // Work on symmetric memory is ordered by the program, by streams and signals.
        let _ = stream;
        let shared = self.shared()?;
        refuse_copies(shared.device, dl_device, copy)?;
        let showing = Showing {
            address: self.address()?,
            device: shared.device,
            element: element::dlpack_of(self.element),
            shape: self.shape.iter().map(|length| *length as i64).collect(),
            keeps: shared,
        };
        dlpack::capsule(python, showing, dlpack::understands_versions(max_version))
    }

    /// NumPy's array of the same memory, over the host backend.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        slf: &Bound<'py, Self>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> Result<Bound<'py, PyAny>> {
        let array = slf
            .py()
            .import("numpy")?
            .call_method1("from_dlpack", (slf,))?;
        let numpy = slf.py().import("numpy")?;
        let theirs = array.getattr("dtype")?;
        let asked = match dtype {
            Some(dtype) => numpy.call_method1("dtype", (dtype,))?,
            None => theirs.clone(),
        };
        let is_same = asked.eq(&theirs)?;
        match (copy, is_same) {
            (Some(true), _) | (None, false) => Ok(array.call_method1("astype", (asked,))?),
            (_, true) => Ok(array),
            (Some(false), false) => {
                let message = format!("a buffer of {theirs} is no array of {asked} without a copy");
                Err(Failure::Python(PyValueError::new_err(message)))
            }
        }
    }

    /// Copies an array of the host's into this rank's copy. Blocks until the bytes are there.
    #[pyo3(signature = (array, stream=None))]
    fn write(&self, array: &Bound<'_, PyAny>, stream: Option<&Bound<'_, PyAny>>) -> Result<()> {
        self.copy(array, stream, true)
    }

    /// Copies this rank's copy into an array of the host's. Blocks until the bytes are there.
    #[pyo3(signature = (array, stream=None))]
    fn read(&self, array: &Bound<'_, PyAny>, stream: Option<&Bound<'_, PyAny>>) -> Result<()> {
        self.copy(array, stream, false)
    }

    /// Frees the buffer at all ranks. Collective; blocks until all ranks have called it.
    fn free(&self, python: Python<'_>) -> Result<()> {
        let rank = self.shared()?.rank.upgrade();
        if !self.is_whole {
            return Err(invalid(
                "this is a part of a buffer: free the buffer itself",
            ));
        }
        let lock = || self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = lock().take();
        let shared = taken.ok_or_else(|| invalid("the buffer was freed"))?;
        let shared = Arc::try_unwrap(shared).map_err(|shared| {
            *lock() = Some(shared);
            let message = "arrays or parts of the buffer still exist: delete them first";
            Failure::Python(PyBufferError::new_err(message))
        })?;
        let abort = || rank.iter().for_each(|rank| rank.communicator.abort());
        interrupt::call(python, abort, move || {
            let pad = shared.pad.and_then(Arc::into_inner);
            // A call that holds it ends with the buffer given up, as if dropped.
            let elements = Arc::into_inner(shared.elements);
            let mut freed = [elements, pad].into_iter().flatten();
            Ok(freed.try_for_each(SymmetricBuffer::free)?)
        })
    }

    /// The addresses of all ranks' copies, as this rank's device reaches them.
    #[getter]
    fn buffer_ptrs(&self) -> Result<Vec<u64>> {
        let shared = self.shared()?;
        let rank = shared.rank()?;
        let addresses = shared.addresses(&rank)?.into_iter();
        Ok(addresses.map(|one| one + self.begin as u64).collect())
    }

    /// The addresses of all ranks' signal pads.
    #[getter]
    fn signal_pad_ptrs(&self) -> Result<Vec<u64>> {
        let shared = self.shared()?;
        shared.pads(&*shared.rank()?)
    }

    /// The address, in device memory, of the addresses of all ranks' whole buffers.
    #[getter]
    fn buffer_ptrs_dev(&self) -> Result<u64> {
        let shared = self.shared()?;
        Ok(shared.holder().local().address().0 + shared.tail.tables as u64)
    }

    /// The address, in device memory, of the addresses of all ranks' signal pads.
    #[getter]
    fn signal_pad_ptrs_dev(&self) -> Result<u64> {
        let table = 8 * self.world_size()? as u64;
        Ok(self.buffer_ptrs_dev()? + table)
    }

    #[getter]
    fn signal_pad_size(&self) -> usize {
        PAD_BYTES
    }

    /// Returns a rank's copy, or a part of it, as something that array libraries take by DLPack.
    #[pyo3(signature = (rank, sizes=None, dtype=None, storage_offset=Number(0)))]
    fn get_buffer(
        &self,
        rank: Number,
        sizes: Option<&Bound<'_, PyAny>>,
        dtype: Option<&Bound<'_, PyAny>>,
        storage_offset: Number,
    ) -> Result<PeerBuffer> {
        let storage_offset = storage_offset.0;
        let shared = self.shared()?;
        let element = dtype.map_or(Ok(self.element), element::of_object)?;
        let shape = sizes.map_or_else(|| Ok(self.shape.clone()), number::shape)?;
        let bytes = element::bytes_of(element);
        let begin = storage_offset.checked_mul(bytes);
        let length = number::bytes(&shape, bytes)?;
        let end = begin.and_then(|begin| begin.checked_add(length));
        if end.is_none_or(|end| end > self.nbytes()) {
            return Err(invalid(format!(
                "{shape:?} elements of {bytes} bytes from element {storage_offset} on do not fit into {} bytes",
                self.nbytes()
            )));
        }
        let begin = self.begin + storage_offset * bytes;
        Ok(PeerBuffer {
            address: shared.elements.peer(rank.0)?.address().0 + begin as u64,
            shape,
            element,
            shared,
        })
    }

    /// Returns a rank's signal pad as 32-bit words.
    fn get_signal_pad(&self, rank: Number) -> Result<PeerBuffer> {
        let shared = self.shared()?;
        Ok(PeerBuffer {
            address: shared.holder().peer(rank.0)?.address().0 + shared.tail.pad as u64,
            shape: vec![PAD_BYTES / 4],
            element: ElementType::U32,
            shared,
        })
    }
}

/// Returns Python's failure of an object of a type that has no such operation.
fn wrong_type(message: &'static str) -> Failure {
    Failure::Python(PyTypeError::new_err(message))
}

impl Buffer {
    fn copy(
        &self,
        array: &Bound<'_, PyAny>,
        stream: Option<&Bound<'_, PyAny>>,
        writes: bool,
    ) -> Result<()> {
        let shared = self.shared()?;
        let rank = shared.rank()?;
        let host = arrays::on_the_host(array, "array", !writes)?;
        let bytes = self.nbytes();
        if host.bytes != bytes || host.element != self.element {
            return Err(invalid(format!(
                "the array has {} bytes of {}, the buffer {bytes} of {}",
                host.bytes,
                element::name_of(host.element),
                self.dtype()
            )));
        }
        if bytes == 0 {
            return Ok(());
        }
        let python = array.py();
        let place = stream::place(&rank, stream, Library::Other(python), &[])?;
        let part = shared.elements.slice(self.begin..self.begin + bytes)?;
        python.detach(|| {
            let pointer = std::ptr::with_exposed_provenance_mut::<u8>(host.address as usize);
            let copy = |stream: &symmem::Stream| {
                // SAFETY: the array has as many bytes, which its object keeps during the call; a program that writes them on
                // another thread meanwhile gets some of both, as with any copy of NumPy's.
                unsafe {
                    match writes {
                        true => stream.write(part, std::slice::from_raw_parts(pointer, bytes)),
                        false => stream.read(part, std::slice::from_raw_parts_mut(pointer, bytes)),
                    }
                }
            };
            match place {
                // SAFETY: the program's stream, of this rank's device.
                Where::On(raw, _) => unsafe { rank.with_stream(raw, copy) },
                // Behind nothing.
                Where::AtOnce(_) => Ok(copy(&rank.communicator.stream()?)?),
            }
        })
    }
}
