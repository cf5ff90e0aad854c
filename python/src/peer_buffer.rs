//! Peers' copies of symmetric buffers.

use crate::dlpack::{self, Device, Showing};
use crate::element;
use crate::failure::{Failure, Result};
use crate::shared::Shared;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::sync::Arc;
use symmem::ElementType;

/// A rank's copy of a buffer, or a part of it, for array libraries.
#[pyclass(frozen, module = "symmem")]
pub struct PeerBuffer {
    pub shared: Arc<Shared>,
    #[pyo3(get)]
    pub address: u64,
    pub shape: Vec<usize>,
    pub element: ElementType,
}

#[pymethods]
impl PeerBuffer {
    #[getter]
    fn shape<'py>(&self, python: Python<'py>) -> Result<Bound<'py, PyTuple>> {
        Ok(PyTuple::new(python, &self.shape)?)
    }

    #[getter]
    fn dtype(&self) -> &'static str {
        element::name_of(self.element)
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        (self.shared.device.kind, self.shared.device.ordinal)
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
        let _ = stream;
        refuse_copies(self.shared.device, dl_device, copy)?;
        let showing = Showing {
            address: self.address,
            device: self.shared.device,
            element: element::dlpack_of(self.element),
            shape: self.shape.iter().map(|length| *length as i64).collect(),
            keeps: Arc::clone(&self.shared),
        };
        dlpack::capsule(python, showing, dlpack::understands_versions(max_version))
    }
}

/// Refuses what DLPack lets a consumer ask for: another device, or a copy.
pub fn refuse_copies(device: Device, asked: Option<(i32, i32)>, copy: Option<bool>) -> Result<()> {
    let is_other = asked.is_some_and(|asked| asked != (device.kind, device.ordinal));
    match is_other || copy == Some(true) {
        false => Ok(()),
        true => {
            let message = "symmetric memory is shown where it is, without a copy";
            Err(Failure::Python(PyBufferError::new_err(message)))
        }
    }
}
