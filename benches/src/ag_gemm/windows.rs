//! The all-gather by NCCL or RCCL between symmetric windows, then the GEMM by cuBLASLt or hipBLASLt, as in a
//! program that registers its buffers.

use super::reference::part;
use super::session::Session;
use crate::gemm::element::MatrixFloat;
use crate::gemm::library::Library;
use crate::outcome::{Outcome, agree, no_vendor_here};
use crate::report::ag_gemm::{GemmProblem, Sharding};
use crate::{BenchError, Result};
use symmem::backend::RemoteAccess;
use symmem::backend::abi::{DeviceAddress, DirectionCode, RawStream, RowsCopy};
use symmem::{CollectiveOptions, Provider, Queue, SymmetricBuffer};

/// The prepared GEMM, and the destination of the gather.
pub(super) struct Windows<'a, T: MatrixFloat> {
    library: Library<'a>,
    /// Destination of column shards, which are then copied into the gathered A. Row shards need no copy.
    blocks: Option<SymmetricBuffer<T>>,
}

impl<'a, T: MatrixFloat> Windows<'a, T> {
    /// Registers a session's buffers as windows; returns the reason if that is not supported. Collective.
    pub(super) fn new(session: &Session<'a, T>, library: Library<'a>) -> Result<Outcome<Self>> {
        let communicator = session.communicator;
        let opened = communicator.open_nccl(true).map_err(Into::into);
        if let Err(reason) = agree(communicator, no_vendor_here(opened)?)? {
            return Ok(Err(reason));
        }
        let all = session.a.len() * communicator.world_size();
        let blocks = match session.problem.sharding {
            Sharding::Rows => None,
            Sharding::Columns => Some(communicator.allocate(&[all])?),
        };
        let to = blocks.as_ref().unwrap_or(&session.whole);
        let windows = session.a.register_with_nccl();
        let windows = windows.and_then(|()| to.register_with_nccl());
        let windows = agree(communicator, no_vendor_here(windows.map_err(Into::into))?)?;
        Ok(windows.map(|()| Self { library, blocks }))
    }

    /// Enqueues a call.
    pub(super) fn enqueue(&self, session: &Session<'_, T>, on: &Queue) -> Result<()> {
        let world = session.communicator.world_size();
        let options = CollectiveOptions::new().provider(Provider::NcclWindows);
        let to = self.blocks.as_ref().unwrap_or(&session.whole);
        let to = to.slice(..session.a.len() * world)?;
        on.with(&options).all_gather(to, &session.a)?;
        if let Some(blocks) = &self.blocks {
            (0..world).try_for_each(|shard| spread(session, blocks, shard, on))?;
        }
        session.multiply(on, &self.library)
    }
}

/// Copies a shard of columns into the gathered A.
fn spread<T: MatrixFloat>(
    session: &Session<'_, T>,
    blocks: &SymmetricBuffer<T>,
    shard: usize,
    on: &Queue,
) -> Result<()> {
    let GemmProblem { m, k, .. } = session.problem;
    let columns = part(k, shard, session.communicator.world_size());
    let at = |buffer: &SymmetricBuffer<T>, element: usize| {
        DeviceAddress(buffer.local().address().0 + (element * size_of::<T>()) as u64)
    };
    let bytes = (columns.len() * size_of::<T>()) as u64;
    let copy = RowsCopy {
        destination: at(&session.whole, columns.start),
        destination_stride: (k * size_of::<T>()) as u64,
        source: at(blocks, shard * session.a.len()),
        source_stride: bytes,
        bytes,
        rows: m as u64,
        direction: DirectionCode::LOCAL,
        reserved: 0,
    };
    // SAFETY: `blocks` has room for all shards, and the gathered A for all rows; both live until the streams that use
    // them are idle and the graphs gone.
    let enqueued = unsafe {
        let backend = session.communicator.backend();
        backend.transfer_rows(&copy, RawStream(on.raw()))
    };
    enqueued.map_err(|failure| BenchError::Backend {
        rank: session.communicator.rank(),
        operation: "copying columns into the gathered A",
        failure,
    })
}
