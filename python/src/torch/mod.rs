//! PyTorch's operators in the namespace `symmem`, registered through PyTorch's stable C ABI.
//!
//! Nothing here needs PyTorch's headers or links PyTorch: [`symbols`] looks the C functions up in the copy that Python has
//! loaded, so that one build serves PyTorch 2.10 and later.

mod arguments;
mod call;
mod error;
mod norm;
mod operators;
mod products;
mod raise;
mod reduced_products;
mod registration;
mod rows;
mod symbols;
mod tensor;

pub use products::Products;

use crate::failure::Failure;
use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;

/// Registers the operators. `cpu` and `gpu` are the files of PyTorch's libraries, which the process has loaded.
#[pyfunction]
pub fn register_operators(cpu: &str, gpu: Option<&str>) -> PyResult<()> {
    let registered = registration::register(cpu, gpu);
    registered.map_err(|error| PyImportError::new_err(error.to_string()))
}

/// Returns the exception that an operator could not raise itself, if this thread's last call of one failed: PyTorch makes a
/// RuntimeError of every error.
#[pyfunction]
pub fn take_exception(python: Python<'_>) -> Option<Py<PyAny>> {
    let failure: Failure = raise::take()?;
    Some(PyErr::from(failure).into_value(python).into_any())
}
