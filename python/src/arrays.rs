//! Arrays and tensors of other libraries: PyTorch's, those with an array interface (NumPy, CuPy), and those of DLPack (JAX).

use crate::dlpack::{self, Device};
use crate::element;
use crate::failure::{Result, invalid};
use crate::operand::Memory;
use crate::rank::Rank;
use crate::stream::Library;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::{Mutex, PoisonError};
use symmem::ElementType;

/// Returns the memory of an array that a program passes as `name`, and its library; `None` if it is no array.
///
/// # Errors
/// For anything but contiguous memory of this rank's device, of a type that symmem has.
pub fn find<'a, 'py>(
    rank: &Rank,
    object: &'a Bound<'py, PyAny>,
    name: &str,
    is_written: bool,
) -> Result<Option<(Memory, Library<'a, 'py>)>> {
    let python = object.py();
    if let Ok(pointer) = object.getattr(intern!(python, "data_ptr")) {
        return Ok(Some((
            tensor(rank, object, &pointer, name)?,
            Library::Torch(python),
        )));
    }
    if is_of(object, "jax")? {
        return Ok(Some((
            immutable(rank, object, name, is_written)?,
            Library::Other(python),
        )));
    }
    if let Ok(interface) = object.getattr(intern!(python, "__cuda_array_interface__")) {
        on_device(rank, name)?;
        let memory = interface_of(object, &interface, name, is_written)?;
        let library = match is_of(object, "cupy")? {
            true => Library::Cupy(object),
            false => Library::Interface(python, stream_of(&interface)?),
        };
        return Ok(Some((memory, library)));
    }
    if let Ok(interface) = object.getattr(intern!(python, "__array_interface__")) {
        on_host(rank, name)?;
        let memory = interface_of(object, &interface, name, is_written)?;
        return Ok(Some((memory, Library::Other(python))));
    }
    if object.hasattr(intern!(python, "__dlpack__"))? {
        return Ok(Some((
            shown(rank, object, name, is_written)?,
            Library::Other(python),
        )));
    }
    Ok(None)
}

/// Returns whether an object's type is of a library.
fn is_of(object: &Bound<'_, PyAny>, library: &str) -> Result<bool> {
    let module = object.get_type().module()?;
    let module = module.to_str()?;
    Ok(module.strip_prefix(library).is_some_and(|rest| {
        // JAX's arrays are of jaxlib.
        rest.is_empty() || rest.starts_with('.') || rest.starts_with("lib.")
    }))
}

/// Returns the memory of an array of JAX's, once it has its elements. JAX tells nobody its streams, and writes no array.
fn immutable(
    rank: &Rank,
    object: &Bound<'_, PyAny>,
    name: &str,
    is_written: bool,
) -> Result<Memory> {
    if is_written {
        return Err(invalid(format!(
            "{name} is an array of JAX's, which are immutable: pass a buffer, which jax.dlpack.from_dlpack shows as an array"
        )));
    }
    object.call_method0(intern!(object.py(), "block_until_ready"))?;
    shown(rank, object, name, is_written)
}

/// Returns the stream on which an array of CUDA's array interface is ready, if it names one:
/// <https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html>. 1 and 2 are the driver's numbers of its default
/// streams.
fn stream_of(interface: &Bound<'_, PyAny>) -> Result<Option<u64>> {
    let interface = interface.cast::<PyDict>().map_err(PyErr::from)?;
    match interface.get_item("stream")? {
        Some(stream) => Ok(stream.extract()?),
        None => Ok(None),
    }
}

fn on_device(rank: &Rank, name: &str) -> Result<()> {
    match rank.is_host() {
        false => Ok(()),
        true => Err(invalid(format!(
            "{name} is on a GPU, and the communicator on the host: it was joined with backend=\"host\", or found no GPU"
        ))),
    }
}

/// Checks that the communicator takes memory of the host.
///
/// # Errors
/// If it is on a GPU.
pub fn on_host(rank: &Rank, name: &str) -> Result<()> {
    match rank.is_host() {
        true => Ok(()),
        false => {
            let ordinal = rank.communicator.device().ordinal;
            Err(invalid(format!(
                "{name} is in the host's memory, and the communicator on device {ordinal}: move it there first"
            )))
        }
    }
}

/// Checks that the communicator takes memory of this GPU.
///
/// # Errors
/// If it is on another one, or on the host.
pub fn on_ordinal(rank: &Rank, name: &str, ordinal: i64) -> Result<()> {
    on_device(rank, name)?;
    let own = rank.communicator.device().ordinal;
    match i64::from(own) == ordinal {
        true => Ok(()),
        false => Err(invalid(format!(
            "{name} is on device {ordinal}, and the communicator on device {own}: move it there first"
        ))),
    }
}

fn contiguous(name: &str, is_contiguous: bool) -> Result<()> {
    match is_contiguous {
        true => Ok(()),
        false => Err(invalid(format!(
            "{name} is not contiguous: make a contiguous copy first"
        ))),
    }
}

fn writable(name: &str, is_read_only: bool) -> Result<()> {
    match is_read_only {
        false => Ok(()),
        true => Err(invalid(format!("{name} is read-only"))),
    }
}

/// Returns the memory of a tensor of PyTorch's.
fn tensor(
    rank: &Rank,
    object: &Bound<'_, PyAny>,
    pointer: &Bound<'_, PyAny>,
    name: &str,
) -> Result<Memory> {
    let python = object.py();
    let ordinal: i64 = object
        .call_method0(intern!(python, "get_device"))?
        .extract()?;
    match ordinal {
        // Tensors of no GPU: the host's.
        ..0 => on_host(rank, name)?,
        _ => on_ordinal(rank, name, ordinal)?,
    }
    let is_contiguous = object.call_method0(intern!(python, "is_contiguous"))?;
    contiguous(name, is_contiguous.is_truthy()?)?;
    // PyTorch negates such a tensor when it is read.
    if object
        .call_method0(intern!(python, "is_neg"))?
        .is_truthy()?
    {
        return Err(invalid(format!(
            "{name} is the negative of its memory: pass what its resolve_neg() returns"
        )));
    }
    let elements = object.call_method0(intern!(python, "numel"))?.extract()?;
    let dtype = object.getattr(intern!(python, "dtype"))?;
    Ok(Memory::known(
        pointer.call0()?.extract()?,
        elements,
        torch_type(&dtype)?,
    ))
}

/// Returns the element type of a type of PyTorch's, of which there is one object each.
fn torch_type(dtype: &Bound<'_, PyAny>) -> Result<ElementType> {
    /// The objects that were seen. They are kept, so that no other gets the address of one.
    static KNOWN: Mutex<Vec<(Py<PyAny>, ElementType)>> = Mutex::new(Vec::new());
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let seen = known()
        .iter()
        .find(|(seen, _)| seen.is(dtype))
        .map(|(_, element)| *element);
    if let Some(element) = seen {
        return Ok(element);
    }
    let element = element::of_object(dtype)?;
    known().push((dtype.clone().unbind(), element));
    Ok(element)
}

/// Reads an array interface of NumPy's, version 3, or CUDA's, which is the same for what is read here:
/// <https://numpy.org/doc/stable/reference/arrays.interface.html>.
fn interface_of(
    object: &Bound<'_, PyAny>,
    interface: &Bound<'_, PyAny>,
    name: &str,
    is_written: bool,
) -> Result<Memory> {
    let interface = interface.cast::<PyDict>().map_err(PyErr::from)?;
    let item = |key: &str| -> Result<Bound<'_, PyAny>> {
        let missing = || invalid(format!("the array interface of {name} has no {key:?}"));
        interface.get_item(key)?.ok_or_else(missing)
    };
    let shape: Vec<i64> = item("shape")?.extract()?;
    let (address, is_read_only): (u64, bool) = item("data")?.extract()?;
    let typestr: String = item("typestr")?.extract()?;
    let element = match object.getattr(intern!(object.py(), "dtype")) {
        // A type of the other byte order has the same name.
        Ok(dtype) if !typestr.starts_with('>') => element::of_object(&dtype)?,
        _ => element::of_typestr(&typestr).ok_or_else(|| element::unknown(&typestr))?,
    };
    let elements = dlpack::count(&shape)?;
    let bytes = element::bytes_of(element) as i64;
    if typestr.trim_start_matches(|one: char| !one.is_ascii_digit()) != bytes.to_string() {
        let (said, is) = (element::name_of(element), typestr);
        return Err(invalid(format!(
            "{name} says that its elements are {said}, and its array interface that they are {is:?}"
        )));
    }
    if let Some(strides) = interface.get_item("strides")?
        && !strides.is_none()
        && elements > 0
    {
        let strides: Vec<i64> = strides.extract()?;
        // Fields of a packed structure are no whole number of elements apart. The stride of a length of 1 is any.
        let wholes = shape.iter().zip(&strides);
        let mut wholes = wholes.filter(|(length, _)| **length != 1);
        contiguous(name, wholes.all(|(_, stride)| stride % bytes == 0))?;
        let strides: Vec<i64> = strides.iter().map(|stride| stride / bytes).collect();
        contiguous(name, dlpack::is_contiguous(&shape, &strides))?;
    }
    if is_written {
        writable(name, is_read_only)?;
    }
    Ok(Memory::at(address, elements, element))
}

/// Returns the memory of a tensor that an object shows by DLPack.
fn shown(rank: &Rank, object: &Bound<'_, PyAny>, name: &str, is_written: bool) -> Result<Memory> {
    let shown = dlpack::show(object)?;
    match shown.device.kind {
        Device::CPU | Device::CUDA_HOST | Device::ROCM_HOST => on_host(rank, name)?,
        Device::CUDA | Device::ROCM | Device::CUDA_MANAGED => {
            on_ordinal(rank, name, i64::from(shown.device.ordinal))?;
        }
        kind => {
            let message = format!(
                "{name} is on a device of DLPack's kind {kind}, which is no GPU of symmem's"
            );
            return Err(invalid(message));
        }
    }
    read(&shown, name, is_written)
}

/// Returns the memory of a tensor of DLPack's.
fn read(shown: &dlpack::Shown, name: &str, is_written: bool) -> Result<Memory> {
    contiguous(name, shown.is_contiguous)?;
    if is_written {
        writable(name, shown.is_read_only)?;
    }
    let element = element::of_dlpack(shown.element).ok_or_else(|| {
        let (code, bits) = (shown.element.code, shown.element.bits);
        element::unknown(&format!("of DLPack's code {code} with {bits} bits"))
    })?;
    Ok(Memory::at(shown.address, shown.elements, element))
}

/// An array in the host's memory.
pub struct HostArray {
    pub address: u64,
    pub bytes: usize,
    pub element: ElementType,
}

/// Finds an array in the host's memory.
///
/// # Errors
/// For anything but a contiguous array there, of a type that symmem has.
pub fn on_the_host(object: &Bound<'_, PyAny>, name: &str, is_written: bool) -> Result<HostArray> {
    let python = object.py();
    let memory = match object.getattr(intern!(python, "__array_interface__")) {
        Ok(interface) => interface_of(object, &interface, name, is_written)?,
        Err(_) if object.hasattr(intern!(python, "__dlpack__"))? => {
            let shown = dlpack::show(object)?;
            if !matches!(
                shown.device.kind,
                Device::CPU | Device::CUDA_HOST | Device::ROCM_HOST
            ) {
                return Err(invalid(format!("{name} is not in the host's memory")));
            }
            read(&shown, name, is_written)?
        }
        Err(_) => {
            let of = object.get_type().name()?;
            return Err(invalid(format!(
                "{name} is a {of}, not an array in the host's memory; numpy.frombuffer makes one of bytes"
            )));
        }
    };
    Ok(HostArray {
        address: memory.address()?,
        bytes: memory.bytes()?,
        element: memory.element,
    })
}
