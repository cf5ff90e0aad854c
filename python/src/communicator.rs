//! Communicators.

use crate::buffer::Buffer;
use crate::calls::{self, Arguments, Collective};
use crate::element;
use crate::failure::{Failure, Result, invalid};
use crate::gemm::{AllGatherGemm, Gemm, Request};
use crate::gemm_reduce::{self, GemmReduce, ReducedGemm};
use crate::interrupt;
use crate::memory;
use crate::number::{self, Number};
use crate::rank::{self, Rank};
use crate::shared::Shared;
use crate::stream::{self, Library, Stream};
use pyo3::exceptions::PyResourceWarning;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::{Arc, Mutex, PoisonError};
use symmem::{Operand, Queue, Reduction, Slice};

/// This rank's membership in a world of ranks.
#[pyclass(frozen, weakref, module = "symmem")]
pub struct Communicator {
    /// `None` once it was left.
    rank: Mutex<Option<Arc<Rank>>>,
}

impl Communicator {
    /// Returns the communicator of a rank that has joined.
    pub fn new(communicator: symmem::Communicator) -> Self {
        Self {
            rank: Mutex::new(Some(Rank::enter(communicator))),
        }
    }

    fn rank_of(&self) -> Result<Arc<Rank>> {
        let rank = self.rank.lock().unwrap_or_else(PoisonError::into_inner);
        rank.clone().ok_or_else(gone)
    }

    /// Prepares a GEMM whose results are added up over the ranks.
    fn reduced_gemm(
        &self,
        python: Python<'_>,
        asked: Request,
        reduction: Reduction,
        options: Option<&Bound<'_, PyDict>>,
    ) -> Result<GemmReduce> {
        let options = gemm_reduce::options(options)?;
        let gemm = self.blocks(python, move |rank| {
            ReducedGemm::prepare(rank, &asked, reduction, &options)
        })?;
        Ok(GemmReduce::new(&self.rank_of()?, asked, gemm))
    }

    /// Makes a call on the rank, whose number its errors name.
    fn on_rank<T>(&self, call: impl FnOnce(&Arc<Rank>) -> Result<T>) -> Result<T> {
        let rank = self.rank_of()?;
        call(&rank).map_err(|failure| failure.of_rank(rank.communicator.rank()))
    }

    /// Makes a call on the rank that blocks and needs nothing of Python. What a handler of Ctrl-C raises aborts the
    /// communicator.
    fn blocks<T: Send + 'static>(
        &self,
        python: Python<'_>,
        call: impl FnOnce(&Arc<Rank>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.on_rank(|rank| {
            let blocked = Arc::clone(rank);
            let abort = || rank.communicator.abort();
            interrupt::call(python, abort, move || call(&blocked))
        })
    }

    /// Takes the communicator out.
    fn take(&self) -> Result<symmem::Communicator> {
        let lock = || self.rank.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = lock().take();
        let rank = taken.ok_or_else(gone)?;
        Rank::leave(rank).map_err(|rank| {
            *lock() = Some(rank);
            invalid("another thread is in a call on the communicator")
        })
    }
}

/// Returns the failure of a call on a communicator that has left.
fn gone() -> Failure {
    invalid("the communicator was finalized or left")
}

impl Drop for Communicator {
    fn drop(&mut self) {
        let rank = self.rank.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(rank) = rank.take() {
            // What is in a call drops it.
            if let Ok(left) = Rank::leave(rank) {
                Python::attach(|python| python.detach(|| drop(left)));
            }
        }
    }
}

#[pymethods]
impl Communicator {
    #[getter]
    fn rank(&self) -> Result<usize> {
        Ok(self.rank_of()?.communicator.rank())
    }

    #[getter]
    fn world_size(&self) -> Result<usize> {
        Ok(self.rank_of()?.communicator.world_size())
    }

    #[getter]
    fn backend(&self) -> Result<String> {
        Ok(self.rank_of()?.communicator.backend_name().into())
    }

    #[getter]
    fn device(&self) -> Result<u32> {
        Ok(self.rank_of()?.communicator.device().ordinal)
    }

    /// The number by which operators of PyTorch know the communicator.
    #[getter]
    fn number(&self) -> Result<u64> {
        Ok(self.rank_of()?.number)
    }

    fn __repr__(&self) -> String {
        match self.rank_of() {
            Ok(rank) => {
                let communicator = &rank.communicator;
                format!(
                    "symmem.Communicator(rank={}, world_size={}, backend={:?}, device={})",
                    communicator.rank(),
                    communicator.world_size(),
                    communicator.backend_name(),
                    communicator.device().ordinal
                )
            }
            Err(_) => "symmem.Communicator(finalized)".into(),
        }
    }

    /// Allocates a zeroed buffer at every rank. Collective.
    fn allocate(
        &self,
        python: Python<'_>,
        shape: &Bound<'_, PyAny>,
        dtype: &Bound<'_, PyAny>,
    ) -> Result<Buffer> {
        let shape = number::shape(shape)?;
        let element = element::of_object(dtype)?;
        let bytes = number::bytes(&shape, element::bytes_of(element))?;
        let call = format!("allocate: {} of shape {shape:?}", element::name_of(element));
        let shared = self.blocks(python, move |rank| {
            agree(rank, &call)?;
            Shared::allocate(rank, bytes)
        })?;
        Ok(Buffer::whole(shared, shape, element))
    }

    /// Makes memory that a tensor has symmetric. Collective. The tensor must stay until the buffer was freed.
    fn register(&self, tensor: &Bound<'_, PyAny>) -> Result<Buffer> {
        let find = |rank: &Arc<Rank>| memory::find(rank, tensor, "the tensor", true);
        let (memory, _) = self.on_rank(find)?;
        let (address, element) = (memory.address()?, memory.element);
        let shape = number::shape(&tensor.getattr("shape")?)?;
        let bytes = memory.bytes()?;
        let keeper = tensor.clone().unbind();
        let call = format!("register: {} of shape {shape:?}", element::name_of(element));
        let shared = self.blocks(tensor.py(), move |rank| {
            agree(rank, &call)?;
            // SAFETY: the tensor keeps its memory.
            unsafe { Shared::register(rank, (address, bytes), keeper) }
        })?;
        Ok(Buffer::whole(shared, shape, element))
    }

    /// Prepares an all-gather + GEMM. Collective.
    #[pyo3(signature = (m, n, k, dtype, *, b_columns=false, bias=false))]
    #[expect(clippy::too_many_arguments, reason = "Python passes them by name")]
    fn all_gather_gemm(
        &self,
        python: Python<'_>,
        m: Number,
        n: Number,
        k: Number,
        dtype: &Bound<'_, PyAny>,
        b_columns: bool,
        bias: bool,
    ) -> Result<AllGatherGemm> {
        let asked = Request::new([m, n, k], dtype, (b_columns, bias))?;
        let (gemm, shard) = self.blocks(python, move |rank| Gemm::prepare(rank, &asked))?;
        AllGatherGemm::new(python, &self.rank_of()?, &asked, gemm, shard)
    }

    /// Prepares a GEMM + reduce-scatter. Collective.
    #[pyo3(signature = (m, n, k, dtype, *, b_columns=false, bias=false, **options))]
    #[expect(clippy::too_many_arguments, reason = "Python passes them by name")]
    fn gemm_reduce_scatter(
        &self,
        python: Python<'_>,
        m: Number,
        n: Number,
        k: Number,
        dtype: &Bound<'_, PyAny>,
        b_columns: bool,
        bias: bool,
        options: Option<&Bound<'_, PyDict>>,
    ) -> Result<GemmReduce> {
        let asked = Request::new([m, n, k], dtype, (b_columns, bias))?;
        self.reduced_gemm(python, asked, Reduction::Scatter, options)
    }

    /// Prepares a GEMM + all-reduce. Collective.
    #[pyo3(signature = (m, n, k, dtype, *, b_columns=false, bias=false, **options))]
    #[expect(clippy::too_many_arguments, reason = "Python passes them by name")]
    fn gemm_all_reduce(
        &self,
        python: Python<'_>,
        m: Number,
        n: Number,
        k: Number,
        dtype: &Bound<'_, PyAny>,
        b_columns: bool,
        bias: bool,
        options: Option<&Bound<'_, PyDict>>,
    ) -> Result<GemmReduce> {
        let asked = Request::new([m, n, k], dtype, (b_columns, bias))?;
        self.reduced_gemm(python, asked, Reduction::All, options)
    }

    /// Makes a stream.
    fn stream(&self) -> Result<Stream> {
        Stream::new(&self.rank_of()?)
    }

    #[pyo3(signature = (destination, source=None, *, op="sum", stream=None))]
    fn all_reduce(
        &self,
        destination: &Bound<'_, PyAny>,
        source: Option<&Bound<'_, PyAny>>,
        op: &str,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> Result<()> {
        let call = Collective::AllReduce(element::reduction(op)?);
        self.collective(call, destination, source, stream)
    }

    #[pyo3(signature = (root, destination, source=None, *, op="sum", stream=None))]
    fn reduce(
        &self,
        root: Number,
        destination: &Bound<'_, PyAny>,
        source: Option<&Bound<'_, PyAny>>,
        op: &str,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> Result<()> {
        let call = Collective::Reduce(root.0, element::reduction(op)?);
        self.collective(call, destination, source, stream)
    }

    #[pyo3(signature = (destination, source, *, op="sum", stream=None))]
    fn reduce_scatter(
        &self,
        destination: &Bound<'_, PyAny>,
        source: &Bound<'_, PyAny>,
        op: &str,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> Result<()> {
        let call = Collective::ReduceScatter(element::reduction(op)?);
        self.collective(call, destination, Some(source), stream)
    }

    #[pyo3(signature = (destination, source, *, stream=None))]
    fn all_gather(
        &self,
        destination: &Bound<'_, PyAny>,
        source: &Bound<'_, PyAny>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> Result<()> {
        self.collective(Collective::AllGather, destination, Some(source), stream)
    }

    #[pyo3(signature = (destination, source, *, stream=None))]
    fn all_to_all(
        &self,
        destination: &Bound<'_, PyAny>,
        source: &Bound<'_, PyAny>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> Result<()> {
        self.collective(Collective::AllToAll, destination, Some(source), stream)
    }

    #[pyo3(signature = (root, destination, source=None, *, stream=None))]
    fn broadcast(
        &self,
        root: Number,
        destination: &Bound<'_, PyAny>,
        source: Option<&Bound<'_, PyAny>>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> Result<()> {
        self.collective(Collective::Broadcast(root.0), destination, source, stream)
    }

    #[pyo3(signature = (root, destination, source, *, stream=None))]
    fn gather(
        &self,
        root: Number,
        destination: &Bound<'_, PyAny>,
        source: &Bound<'_, PyAny>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> Result<()> {
        self.collective(
            Collective::Gather(root.0),
            destination,
            Some(source),
            stream,
        )
    }

    #[pyo3(signature = (root, destination, source, *, stream=None))]
    fn scatter(
        &self,
        root: Number,
        destination: &Bound<'_, PyAny>,
        source: &Bound<'_, PyAny>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> Result<()> {
        self.collective(
            Collective::Scatter(root.0),
            destination,
            Some(source),
            stream,
        )
    }

    #[pyo3(signature = (peer, source, *, stream=None))]
    fn send(
        &self,
        peer: Number,
        source: &Bound<'_, PyAny>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> Result<()> {
        self.message((source, "the source", false), stream, |queue, from| {
            queue.send(peer.0, from)
        })
    }

    #[pyo3(signature = (peer, destination, *, stream=None))]
    fn recv(
        &self,
        peer: Number,
        destination: &Bound<'_, PyAny>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> Result<()> {
        self.message(
            (destination, "the destination", true),
            stream,
            |queue, to| queue.recv(peer.0, to),
        )
    }

    /// Sends and receives several tensors at once, each with the rank that it goes to or comes from.
    #[pyo3(signature = (sends, recvs, *, stream=None))]
    fn exchange(
        &self,
        python: Python<'_>,
        sends: Vec<(Number, Bound<'_, PyAny>)>,
        recvs: Vec<(Number, Bound<'_, PyAny>)>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> Result<()> {
        self.on_rank(|rank| calls::exchange(python, rank, (&sends, &recvs), stream))
    }

    #[pyo3(signature = (peer, destination, source, *, stream=None))]
    fn put(
        &self,
        peer: Number,
        destination: &Buffer,
        source: &Bound<'_, PyAny>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> Result<()> {
        self.transfer(
            (source, "the source", false),
            destination,
            stream,
            |queue, from, to| queue.put(peer.0, to, from),
        )
    }

    #[pyo3(signature = (peer, destination, source, *, stream=None))]
    fn get(
        &self,
        peer: Number,
        destination: &Bound<'_, PyAny>,
        source: &Buffer,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> Result<()> {
        self.transfer(
            (destination, "the destination", true),
            source,
            stream,
            |queue, to, from| queue.get(peer.0, to, from),
        )
    }

    #[pyo3(signature = (peer, destination, source, channel=Number(0), *, stream=None))]
    fn put_signal(
        &self,
        peer: Number,
        destination: &Buffer,
        source: &Bound<'_, PyAny>,
        channel: Number<u32>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> Result<()> {
        self.transfer(
            (source, "the source", false),
            destination,
            stream,
            |queue, from, to| queue.put_signal(peer.0, to, from, channel.0),
        )
    }

    #[pyo3(signature = (peer, channel=Number(0), *, stream=None))]
    fn wait_signal(
        &self,
        python: Python<'_>,
        peer: Number,
        channel: Number<u32>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> Result<()> {
        self.enqueue((python, stream), |queue| {
            queue.wait_signal(peer.0, channel.0)
        })
    }

    #[pyo3(signature = (channel=Number(0), *, stream=None))]
    fn barrier(
        &self,
        python: Python<'_>,
        channel: Number<u32>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> Result<()> {
        let deadline = self.rank_of()?.communicator.deadline();
        self.enqueue((python, stream), |queue| {
            queue.barrier_within(channel.0, deadline)
        })
    }

    /// Blocks until every rank has called it. Does not wait for work of the device.
    fn host_barrier(&self, python: Python<'_>) -> Result<()> {
        self.blocks(python, |rank| Ok(rank.communicator.host_barrier()?))
    }

    /// Raises the error that ended the communicator, if one has. Does not block.
    fn check(&self) -> Result<()> {
        Ok(self.rank_of()?.communicator.check()?)
    }

    /// Ends all waits of all ranks.
    fn abort(&self) -> Result<()> {
        self.rank_of()?.communicator.abort();
        Ok(())
    }

    /// Leaves in good order. Blocks until every rank has called it.
    fn finalize(&self, python: Python<'_>) -> Result<()> {
        let left = self.take()?;
        let finalize = move || left.finalize().map_err(Failure::from);
        let leaks = interrupt::call(python, || {}, finalize)?;
        if leaks.buffers > 0 {
            let warning = python.get_type::<PyResourceWarning>();
            let text = format!(
                "finalized with {} buffers that were not freed",
                leaks.buffers
            );
            let text = std::ffi::CString::new(text).unwrap_or_default();
            PyErr::warn(python, &warning, &text, 1)?;
        }
        Ok(())
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// Leaves in good order after a block that ended well, else at once.
    fn __exit__(
        &self,
        python: Python<'_>,
        raised: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> Result<()> {
        let has_left = self.rank_of().is_err();
        match raised.is_none() {
            _ if has_left => Ok(()),
            true => self.finalize(python),
            false => self.leave(python),
        }
    }

    /// Leaves at once, without waiting for the other ranks.
    fn leave(&self, python: Python<'_>) -> Result<()> {
        let left = self.take()?;
        python.detach(|| drop(left));
        Ok(())
    }

    /// Makes this a communicator of the ranks that are left. Collective over those.
    fn rebuild(&self, python: Python<'_>) -> Result<()> {
        let left = self.take()?;
        let rebuild = move || left.rebuild().map_err(Failure::from);
        let rebuilt = interrupt::call(python, || {}, rebuild)?;
        let mut rank = self.rank.lock().unwrap_or_else(PoisonError::into_inner);
        *rank = Some(Rank::enter(rebuilt));
        Ok(())
    }

    /// Raises the error of any live communicator of this process, if one has ended one.
    #[staticmethod]
    fn check_all() -> Result<()> {
        for rank in rank::all() {
            rank.communicator.check()?;
        }
        Ok(())
    }
}

impl Communicator {
    fn collective(
        &self,
        call: Collective,
        destination: &Bound<'_, PyAny>,
        source: Option<&Bound<'_, PyAny>>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> Result<()> {
        let arguments = Arguments {
            destination,
            source,
            stream,
        };
        self.on_rank(|rank| calls::collective(rank, call, &arguments))
    }

    /// Enqueues what has no operand.
    fn enqueue(
        &self,
        (python, stream): (Python<'_>, Option<&Bound<'_, PyAny>>),
        call: impl FnOnce(&Queue) -> symmem::Result<()> + Send,
    ) -> Result<()> {
        self.on_rank(|rank| {
            let place = stream::place(rank, stream, Library::Other(python), &[])?;
            // SAFETY: the program's stream, or this rank's own.
            python.detach(|| unsafe { rank.enqueue(place, call) })
        })
    }

    /// Enqueues a send or a receive of memory of this rank's, by its name and whether it is written.
    fn message(
        &self,
        (own, name, is_written): (&Bound<'_, PyAny>, &str, bool),
        stream: Option<&Bound<'_, PyAny>>,
        call: impl FnOnce(&Queue, Operand<'_, u8>) -> symmem::Result<()> + Send,
    ) -> Result<()> {
        self.on_rank(|rank| {
            let (memory, library) = memory::find(rank, own, name, is_written)?;
            let place = stream::place(rank, stream, library, &[own])?;
            own.py().detach(|| {
                // SAFETY: as in `calls::collective`.
                unsafe {
                    let own = memory.operand::<u8>(rank)?;
                    rank.enqueue(place, |queue| call(queue, own))
                }
            })
        })
    }

    /// Enqueues a transfer between memory of this rank's, by its name and whether it is written, and a buffer at a peer.
    fn transfer(
        &self,
        own: (&Bound<'_, PyAny>, &str, bool),
        buffer: &Buffer,
        stream: Option<&Bound<'_, PyAny>>,
        call: impl FnOnce(&Queue, Operand<'_, u8>, Slice<'_, u8>) -> symmem::Result<()> + Send,
    ) -> Result<()> {
        let (object, name, is_written) = own;
        let at_peer = self.on_rank(|rank| {
            let at_peer = buffer.memory(rank)?;
            let (memory, _) = memory::find(rank, object, name, is_written)?;
            match memory.element == at_peer.element {
                true => Ok(at_peer),
                false => Err(invalid(format!(
                    "{name} has elements of {}, the buffer at the peer of {}",
                    element::name_of(memory.element),
                    element::name_of(at_peer.element)
                ))),
            }
        })?;
        let at_peer = at_peer.slice()?;
        self.message(own, stream, |queue, own| call(queue, own, at_peer))
    }
}

/// Checks that all ranks make the same call. Collective; blocks.
///
/// # Errors
/// [`Failure::Mismatch`] at all ranks if they differ.
fn agree(rank: &Rank, call: &str) -> Result<()> {
    let calls = rank.communicator.host_all_gather(call.as_bytes())?;
    match calls.iter().position(|other| other != call.as_bytes()) {
        None => Ok(()),
        Some(peer) => Err(Failure::Mismatch {
            rank: rank.communicator.rank(),
            peer,
            message: format!(
                "rank {} called {call}, and rank {peer} {}",
                rank.communicator.rank(),
                String::from_utf8_lossy(&calls[peer])
            ),
        }),
    }
}
