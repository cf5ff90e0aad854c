//! DLPack, by which array libraries pass tensors to each other without a copy: <https://dmlc.github.io/dlpack/latest/c_api.html>.

use crate::failure::{Failure, Result, invalid};
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::ffi::{CStr, c_void};

/// The version of the structures below.
const VERSION: (u32, u32) = (1, 0);
const CAPSULE: &CStr = c"dltensor";
const VERSIONED_CAPSULE: &CStr = c"dltensor_versioned";
/// What a consumer renames a capsule to; the tensor is its own then.
const USED: &CStr = c"used_dltensor";
const USED_VERSIONED: &CStr = c"used_dltensor_versioned";
/// In the flags: the consumer must not write.
const READ_ONLY: u64 = 1;

/// `DLDevice`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    pub kind: i32,
    pub ordinal: i32,
}

impl Device {
    pub const CPU: i32 = 1;
    pub const CUDA: i32 = 2;
    pub const CUDA_HOST: i32 = 3;
    pub const ROCM: i32 = 10;
    pub const ROCM_HOST: i32 = 11;
    pub const CUDA_MANAGED: i32 = 13;
}

/// `DLDataType`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataType {
    pub code: u8,
    pub bits: u8,
    pub lanes: u16,
}

impl DataType {
    pub const INT: u8 = 0;
    pub const UINT: u8 = 1;
    pub const FLOAT: u8 = 2;
    pub const BFLOAT: u8 = 4;
    pub const FLOAT8_E4M3FN: u8 = 10;
    pub const FLOAT8_E5M2: u8 = 12;
}

/// `DLTensor`.
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: Device,
    dimensions: i32,
    element: DataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
struct Managed {
    tensor: Tensor,
    owner: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Self)>,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
struct Versioned {
    version: (u32, u32),
    owner: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Self)>,
    flags: u64,
    tensor: Tensor,
}

/// A tensor that another library shows.
pub struct Shown {
    pub address: u64,
    pub device: Device,
    pub element: DataType,
    pub elements: usize,
    pub is_contiguous: bool,
    pub is_read_only: bool,
}

/// Asks an object for its tensor. The object keeps the memory.
///
/// # Errors
/// The object's, or if what it returns is no DLPack tensor.
pub fn show(object: &Bound<'_, PyAny>) -> Result<Shown> {
    let python = object.py();
    let method = intern!(python, "__dlpack__");
    let arguments = PyDict::new(python);
    arguments.set_item("max_version", VERSION)?;
    let capsule = match object.call_method(method, (), Some(&arguments)) {
        // Libraries of before DLPack 1.0 do not know the argument.
        Err(error) if error.is_instance_of::<PyTypeError>(python) => object.call_method0(method)?,
        other => other?,
    };
    let pointer = capsule.as_ptr();
    // SAFETY: `pointer` is a live object, of which the name is checked before it is read; a capsule of this name has such a
    // structure, which lives as long as the capsule.
    unsafe {
        if ffi::PyCapsule_IsValid(pointer, VERSIONED_CAPSULE.as_ptr()) == 1 {
            let managed = ffi::PyCapsule_GetPointer(pointer, VERSIONED_CAPSULE.as_ptr());
            let managed = managed.cast::<Versioned>();
            if (*managed).version.0 != VERSION.0 {
                return Err(invalid(format!(
                    "a DLPack tensor of version {}, and this library reads version {}",
                    (*managed).version.0,
                    VERSION.0
                )));
            }
            read(&(*managed).tensor, (*managed).flags)
        } else if ffi::PyCapsule_IsValid(pointer, CAPSULE.as_ptr()) == 1 {
            let managed = ffi::PyCapsule_GetPointer(pointer, CAPSULE.as_ptr());
            read(&(*managed.cast::<Managed>()).tensor, 0)
        } else {
            Err(invalid("__dlpack__ did not return a DLPack capsule"))
        }
    }
}

/// Reads a tensor.
///
/// # Safety
/// Its shape and strides are null or have as many numbers as it has dimensions.
unsafe fn read(tensor: &Tensor, flags: u64) -> Result<Shown> {
    let dimensions = usize::try_from(tensor.dimensions).unwrap_or(0);
    let list = |numbers: *const i64| match numbers.is_null() || dimensions == 0 {
        true => &[][..],
        // SAFETY: guaranteed by the caller.
        false => unsafe { std::slice::from_raw_parts(numbers, dimensions) },
    };
    let (shape, strides) = (list(tensor.shape), list(tensor.strides));
    let elements = count(shape)?;
    Ok(Shown {
        address: (tensor.data.addr() as u64).wrapping_add(tensor.byte_offset),
        device: tensor.device,
        element: tensor.element,
        elements,
        is_contiguous: strides.is_empty() || elements == 0 || is_contiguous(shape, strides),
        is_read_only: flags & READ_ONLY != 0,
    })
}

/// Returns the number of elements of a shape.
///
/// # Errors
/// If a length is negative, or there are more than can be counted.
pub fn count(shape: &[i64]) -> Result<usize> {
    let mut lengths = shape.iter().map(|length| usize::try_from(*length).ok());
    let count = lengths.try_fold(1_usize, |count, length| count.checked_mul(length?));
    count.ok_or_else(|| invalid(format!("there is no tensor of shape {shape:?}")))
}

/// Returns whether elements lie one after the other, in the order of their indices. Strides are in elements.
pub fn is_contiguous(shape: &[i64], strides: &[i64]) -> bool {
    let mut expected = 1;
    for (length, stride) in shape.iter().zip(strides).rev() {
        if *length != 1 && *stride != expected {
            return false;
        }
        expected *= length;
    }
    true
}

/// A tensor to show to another library.
pub struct Showing<T> {
    pub address: u64,
    pub device: Device,
    pub element: DataType,
    pub shape: Vec<i64>,
    /// What keeps the memory.
    pub keeps: T,
}

/// What a tensor that was shown refers to, and keeps.
struct Owner<T> {
    shape: Vec<i64>,
    strides: Vec<i64>,
    _keeps: T,
}

/// Makes a capsule, with a version if the consumer understands one.
///
/// # Errors
/// Python's.
pub fn capsule<'py, T: Send + 'static>(
    python: Python<'py>,
    showing: Showing<T>,
    is_versioned: bool,
) -> Result<Bound<'py, PyAny>> {
    let mut strides = vec![1; showing.shape.len()];
    for dimension in (1..strides.len()).rev() {
        strides[dimension - 1] = strides[dimension] * showing.shape[dimension];
    }
    let mut owner = Box::new(Owner {
        shape: showing.shape,
        strides,
        _keeps: showing.keeps,
    });
    let tensor = Tensor {
        data: std::ptr::with_exposed_provenance_mut(showing.address as usize),
        device: showing.device,
        dimensions: owner.shape.len() as i32,
        element: showing.element,
        shape: owner.shape.as_mut_ptr(),
        strides: owner.strides.as_mut_ptr(),
        byte_offset: 0,
    };
    let owner = Box::into_raw(owner).cast();
    // SAFETY: the structure is what the name says, and goes with the capsule or with the consumer, by its deleter.
    let made = unsafe {
        if is_versioned {
            let managed = Box::into_raw(Box::new(Versioned {
                version: VERSION,
                owner,
                deleter: Some(delete_versioned::<T>),
                flags: 0,
                tensor,
            }));
            let destructor = Some(drop_versioned as ffi::PyCapsule_Destructor);
            ffi::PyCapsule_New(managed.cast(), VERSIONED_CAPSULE.as_ptr(), destructor)
        } else {
            let managed = Box::into_raw(Box::new(Managed {
                tensor,
                owner,
                deleter: Some(delete::<T>),
            }));
            let destructor = Some(drop_unversioned as ffi::PyCapsule_Destructor);
            ffi::PyCapsule_New(managed.cast(), CAPSULE.as_ptr(), destructor)
        }
    };
    // SAFETY: a new reference, or null with an exception.
    unsafe { Bound::from_owned_ptr_or_err(python, made) }.map_err(Failure::from)
}

/// Ends a tensor that was shown.
///
/// # Safety
/// `managed` is of [`capsule`], and is used no more.
unsafe extern "C" fn delete<T>(managed: *mut Managed) {
    // SAFETY: guaranteed by the caller; both were boxes.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.owner.cast::<Owner<T>>()));
    }
}

/// As [`delete`].
///
/// # Safety
/// As [`delete`].
unsafe extern "C" fn delete_versioned<T>(managed: *mut Versioned) {
    // SAFETY: guaranteed by the caller; both were boxes.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.owner.cast::<Owner<T>>()));
    }
}

/// Ends a capsule: with its tensor, unless a consumer took that and renamed the capsule.
///
/// # Safety
/// As Python calls it.
unsafe extern "C" fn drop_unversioned(capsule: *mut ffi::PyObject) {
    // SAFETY: a capsule of the name has such a structure.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, USED.as_ptr()) == 1 {
            return;
        }
        let managed = ffi::PyCapsule_GetPointer(capsule, CAPSULE.as_ptr()).cast::<Managed>();
        if let Some(managed) = managed.as_mut()
            && let Some(deleter) = managed.deleter
        {
            deleter(managed);
        }
    }
}

/// As [`drop_unversioned`].
///
/// # Safety
/// As Python calls it.
unsafe extern "C" fn drop_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: a capsule of the name has such a structure.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, USED_VERSIONED.as_ptr()) == 1 {
            return;
        }
        let managed = ffi::PyCapsule_GetPointer(capsule, VERSIONED_CAPSULE.as_ptr());
        if let Some(managed) = managed.cast::<Versioned>().as_mut()
            && let Some(deleter) = managed.deleter
        {
            deleter(managed);
        }
    }
}

/// Returns whether a consumer that passes `max_version` understands a capsule with a version.
pub fn understands_versions(max_version: Option<&Bound<'_, PyTuple>>) -> bool {
    let major = max_version.and_then(|version| version.get_item(0).ok()?.extract::<u32>().ok());
    major.is_some_and(|major| major >= VERSION.0)
}
