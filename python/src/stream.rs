//! Streams: those of the program's array library, and symmem's own.

use crate::failure::{Failure, Result, invalid};
use crate::rank::{Keeper, Keeps, Rank, Where};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The array library that a call's operands are of.
pub enum Library<'a, 'py> {
    Torch(Python<'py>),
    Cupy(&'a Bound<'py, PyAny>),
    /// One that shows arrays by CUDA's array interface, which may name a stream.
    Interface(Python<'py>, Option<u64>),
    Other(Python<'py>),
}

/// A stream of symmem's: work that runs in order.
#[pyclass(frozen, module = "symmem")]
pub struct Stream {
    rank: Weak<Rank>,
    raw: u64,
}

impl Stream {
    /// Makes a stream.
    ///
    /// # Errors
    /// The backend's.
    pub fn new(rank: &Arc<Rank>) -> Result<Self> {
        Ok(Self {
            raw: rank.make_stream()?,
            rank: Arc::downgrade(rank),
        })
    }

    fn rank(&self) -> Result<Arc<Rank>> {
        let gone =
            || invalid("the stream is of a communicator that was finalized, left or rebuilt");
        self.rank.upgrade().ok_or_else(gone)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(rank) = self.rank.upgrade() {
            // Another thread may be in a call, with the streams locked.
            Python::attach(|python| python.detach(|| rank.forget(self.raw)));
        }
    }
}

#[pymethods]
impl Stream {
    /// The stream's number in the driver's API, under the name that PyTorch's streams have.
    #[getter]
    fn cuda_stream(&self) -> Result<u64> {
        self.rank().map(|_| self.raw)
    }

    fn __cuda_stream__(&self) -> Result<(u32, u64)> {
        self.rank().map(|_| (0, self.raw))
    }

    #[pyo3(signature = (timeout=None))]
    fn synchronize(&self, python: Python<'_>, timeout: Option<f64>) -> Result<()> {
        let rank = self.rank()?;
        let timeout = timeout.map(seconds).transpose()?;
        // SAFETY: the stream was made by this rank, and lives.
        python.detach(|| unsafe { rank.synchronize(self.raw, timeout) })
    }
}

/// Returns a duration of this many seconds.
///
/// # Errors
/// If it is none.
pub fn seconds(seconds: f64) -> Result<Duration> {
    let duration = Duration::try_from_secs_f64(seconds);
    duration.map_err(|_| invalid(format!("{seconds} seconds are no duration")))
}

/// Returns where a call on these operands is enqueued: on the stream that the program passes, else on the current one of the
/// array library that the operands are of.
///
/// # Errors
/// If an argument is not a stream.
pub fn place(
    rank: &Rank,
    stream: Option<&Bound<'_, PyAny>>,
    library: Library<'_, '_>,
    operands: &[&Bound<'_, PyAny>],
) -> Result<Where> {
    let operands = match rank.is_host() {
        true => operands.iter().map(|one| (*one).clone().unbind()).collect(),
        false => Vec::new(),
    };
    if let Some(stream) = stream {
        let (raw, keeper) = passed(rank, stream)?;
        let keeps = Keeps {
            stream: Some(keeper),
            operands,
        };
        return Ok(Where::On(raw, keeps));
    }
    if rank.is_host() {
        return Ok(Where::AtOnce(operands));
    }
    let ordinal = rank.communicator.device().ordinal;
    let on = |raw| Where::On(raw, Keeps::default());
    match library {
        Library::Torch(python) => of_torch(python, ordinal).map(on),
        Library::Cupy(array) => {
            let cuda = array.py().import("cupy")?.getattr("cuda")?;
            let current = cuda.call_method0("get_current_stream")?;
            let raw = number(&current)?;
            let keeps = Keeps {
                stream: Some(Keeper::Object(current.unbind())),
                operands: Vec::new(),
            };
            Ok(Where::On(raw, keeps))
        }
        Library::Interface(_, Some(raw)) => Ok(on(raw)),
        Library::Interface(python, None) | Library::Other(python) => {
            let modules = python.import("sys")?.getattr("modules")?;
            match modules.contains("torch")? {
                true => of_torch(python, ordinal).map(on),
                false => Ok(on(0)),
            }
        }
    }
}

/// Returns the number of a stream that a program passes, and what keeps the stream.
fn passed(rank: &Rank, stream: &Bound<'_, PyAny>) -> Result<(u64, Keeper)> {
    let python = stream.py();
    if let Ok(ours) = stream.cast::<Stream>() {
        let ours = ours.get();
        let of = ours.rank()?;
        if std::ptr::eq(&*of, rank) {
            return Ok((ours.raw, Keeper::Object(stream.clone().unbind())));
        }
        let devices = [rank, &*of].map(|rank| rank.communicator.device().uuid);
        let kept = python.detach(|| of.stream(ours.raw));
        return match kept {
            Some(kept) if devices[0] == devices[1] => Ok((ours.raw, Keeper::Stream(kept))),
            _ => Err(invalid("the stream is of a communicator on another device")),
        };
    }
    let raw = number(stream)?;
    let is_wrong = rank.is_host() && python.detach(|| rank.stream(raw).is_none());
    match is_wrong {
        false => Ok((raw, Keeper::Object(stream.clone().unbind()))),
        true => Err(invalid(format!(
            "{raw} is no stream of this communicator's: over the host backend pass what its stream() returned"
        ))),
    }
}

/// Returns a stream's number in the driver's API.
fn number(stream: &Bound<'_, PyAny>) -> Result<u64> {
    let python = stream.py();
    if let Ok(raw) = stream.extract::<u64>() {
        return Ok(raw);
    }
    // PyTorch's and symmem's, CuPy's, and the protocol of cuda.core.
    for name in [intern!(python, "cuda_stream"), intern!(python, "ptr")] {
        if let Ok(raw) = stream.getattr(name) {
            return raw.extract().map_err(Failure::from);
        }
    }
    if let Ok(pair) = stream.call_method0(intern!(python, "__cuda_stream__")) {
        return Ok(pair.extract::<(u32, u64)>()?.1);
    }
    Err(invalid(
        "stream: pass a stream of PyTorch, CuPy or symmem, or its number",
    ))
}

/// Returns PyTorch's current stream.
fn of_torch(python: Python<'_>, ordinal: u32) -> Result<u64> {
    static CURRENT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let current = CURRENT.get_or_try_init(python, || {
        // What Triton's launcher calls, too: `torch.cuda.current_stream` makes an object of Python's each time.
        let native = python.import("torch._C")?;
        let current = native.getattr("_cuda_getCurrentRawStream")?;
        Ok::<_, PyErr>(current.unbind())
    })?;
    Ok(current.call1(python, (ordinal,))?.extract(python)?)
}
