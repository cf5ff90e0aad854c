//! The GEMM alone by symmem's kernel of pull and push, with nothing to gather. For small M, push has another kernel,
//! which cannot run without its gather; this is then the kernel of pull only.
//!
//! The kernel runs with a world of one rank whose shard is all of A: the tiles and their order are those of a shard,
//! and there is no chunk to wait for.

use super::session::raw_shape;
use crate::gemm::element::MatrixFloat;
use crate::outcome::{Outcome, agree};
use crate::report::ag_gemm::GemmProblem;
use crate::{BenchError, Result};
use symmem::backend::abi::{
    CollectiveGroup, CollectiveOperationCode, DependentsCode, DeviceAddress, GatherMode,
    GatheredGemmArguments, Geometry, MAX_RANKS, RawStream, ShardingCode,
};
use symmem::backend::{Backend, Gemm};
use symmem::{Communicator, Queue, SymmetricBuffer};

/// The kernel for one shape.
pub(super) struct Kernel<'a> {
    backend: &'a Backend,
    rank: usize,
    arguments: GatheredGemmArguments,
    /// Whether push has another kernel for this shape.
    pull_only: bool,
    grid: Geometry,
    /// The epoch word that the arguments refer to.
    _epoch: SymmetricBuffer<u32>,
    _partials: Option<SymmetricBuffer<u8>>,
}

impl<'a> Kernel<'a> {
    /// Returns the kernel, or the reason if there is none for this shape. Collective.
    pub(super) fn new<T: MatrixFloat>(
        communicator: &'a Communicator,
        problem: &GemmProblem,
    ) -> Result<Outcome<Self>> {
        // SAFETY: the backend only enqueues the kernel, in `enqueue`, whose callers promise that the matrices outlive
        // it.
        let backend = unsafe { communicator.backend() };
        let rank = communicator.rank();
        let shape = raw_shape::<T>(problem);
        let limits = backend.gathered_gemm_limits(&shape, ShardingCode::ROWS, shape.m);
        let limits = limits
            .ok()
            .flatten()
            .filter(|limits| limits.modes & GatherMode::WAIT.bit() != 0);
        let none = || "symmem has no GEMM kernel for this shape on this device".to_owned();
        let limits = limits.ok_or_else(none);
        let limits = match agree(communicator, limits)? {
            Ok(limits) => limits,
            Err(reason) => return Ok(Err(reason)),
        };
        let epoch = communicator.allocate::<u32>(&[1])?;
        let partials = match limits.partial_bytes {
            0 => None,
            bytes => Some(communicator.allocate::<u8>(&[bytes as usize])?),
        };
        let arguments = GatheredGemmArguments {
            group: CollectiveGroup {
                watch: communicator.watch(communicator.deadline()),
                slots: [DeviceAddress::NULL; MAX_RANKS],
                packet_bytes: 0,
                dependents: DependentsCode::ANSWERED,
                rank: 0,
                world: 1,
                slot: 0,
                operation: CollectiveOperationCode::ALL_GATHER_GEMM,
                members: [0; MAX_RANKS],
            },
            sources: [DeviceAddress::NULL; MAX_RANKS],
            gathered: [DeviceAddress::NULL; MAX_RANKS],
            // Never read, since all chunks are local.
            arrivals: [DeviceAddress::NULL; MAX_RANKS],
            epoch: epoch.local().address(),
            b: DeviceAddress::NULL,
            c: DeviceAddress::NULL,
            bias: DeviceAddress::NULL,
            shape,
            shard: shape.m,
            chunk: shape.m,
            chunks: 1,
            sharding: ShardingCode::ROWS,
            mode: GatherMode::WAIT,
            movers: 0,
            keep: 0,
            tile: 0,
            partials: partials
                .as_ref()
                .map_or(DeviceAddress::NULL, |memory| memory.local().address()),
            partial_bytes: limits.partial_bytes,
            quota: 0,
            reserved: 0,
            scale: DeviceAddress::NULL,
        };
        Ok(Ok(Self {
            backend,
            rank,
            arguments,
            pull_only: limits.modes & GatherMode::PUSH_AT_ONCE.bit() != 0,
            grid: Geometry {
                blocks: [limits.blocks, 1, 1],
                threads: [limits.threads, 1, 1],
                shared_memory: 0,
            },
            _epoch: epoch,
            _partials: partials,
        }))
    }

    /// Describes the grid, and says if the kernel is that of pull only.
    pub(super) fn how(&self) -> String {
        let only = if self.pull_only { ", pull only" } else { "" };
        format!("{} blocks{only}", self.grid.blocks[0])
    }

    /// Enqueues the GEMM of `A` and `B` into `C`.
    ///
    /// # Safety
    /// The matrices must be valid and without padding until the stream has passed this point and all graphs that
    /// captured it are gone.
    pub(super) unsafe fn enqueue(
        &self,
        [a, b, c]: [DeviceAddress; 3],
        bias: Option<DeviceAddress>,
        on: &Queue,
    ) -> Result<()> {
        let mut arguments = self.arguments;
        arguments.sources[0] = a;
        arguments.gathered[0] = a;
        (arguments.b, arguments.c) = (b, c);
        arguments.bias = bias.unwrap_or(DeviceAddress::NULL);
        // SAFETY: the caller promises valid matrices; the epoch word lives as long as `self`; a group of one rank
        // needs no peer's call.
        let enqueued = unsafe {
            self.backend
                .gathered_gemm(&arguments, &self.grid, RawStream(on.raw()))
        };
        enqueued.map_err(|failure| BenchError::Backend {
            rank: self.rank,
            operation: "GEMM by symmem's kernel",
            failure,
        })
    }
}
