//! Numbers that count something: ranks, channels, lengths.

use crate::failure::{Result, invalid};
use pyo3::prelude::*;

/// A number from 0 on. Others are [`crate::failure::Failure::Argument`], where pyo3 would raise `OverflowError`.
#[derive(Clone, Copy)]
pub struct Number<T = usize>(pub T);

impl<'py, T: TryFrom<u64>> FromPyObject<'_, 'py> for Number<T> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let index = object.call_method0("__index__");
        let index = index.map_err(|_| {
            let of = object.get_type();
            pyo3::exceptions::PyTypeError::new_err(format!("an integer is needed, not a {of}"))
        })?;
        let number = index.extract::<u64>().ok();
        let number = number.and_then(|number| T::try_from(number).ok());
        let wrong = || invalid(format!("{index} is out of range: pass a number from 0 on"));
        Ok(Self(number.ok_or_else(wrong)?))
    }
}

/// Returns a shape: of one dimension if the object is a number.
///
/// # Errors
/// If it is neither a number nor a sequence of numbers from 0 on.
pub fn shape(object: &Bound<'_, PyAny>) -> Result<Vec<usize>> {
    if object.hasattr("__index__")? {
        return Ok(vec![object.extract::<Number>()?.0]);
    }
    let lengths = object.extract::<Vec<Number>>()?;
    Ok(lengths.into_iter().map(|length| length.0).collect())
}

/// Returns the bytes of a shape.
///
/// # Errors
/// If they, or those of the shape without lengths of 0, are more than an address can count.
pub fn bytes(shape: &[usize], element_bytes: usize) -> Result<usize> {
    let full = shape
        .iter()
        .try_fold(element_bytes, |all, length| {
            all.checked_mul((*length).max(1))
        })
        .filter(|all| isize::try_from(*all).is_ok());
    match full {
        Some(_) if shape.contains(&0) => Ok(0),
        Some(all) => Ok(all),
        None => Err(invalid(format!("there is no memory of shape {shape:?}"))),
    }
}
