//! A product by our own kernel alone: that of pull and push, with nothing to gather. For few rows push has
//! another kernel, which cannot be had without its gather: this is then that of pull only.
//!
//! It is given a world of one rank, whose shard is all of A: the same tiles, in the order that they have in a
//! shard, and no chunk to wait for.

use super::element::Real;
use super::library::raw_shape;
use crate::outcome::{Outcome, agree};
use crate::report::ag_gemm::Product;
use crate::{BenchError, Result};
use symmem::backend::abi::{
    CollectiveGroup, CollectiveOperation, DeviceAddress, GatherMode, GatheredGemmArguments,
    Geometry, MAX_RANKS, RawStream, Sharding,
};
use symmem::backend::{Backend, Gemm};
use symmem::{Communicator, Queue, SymmetricBuffer};

/// The kernel for one product.
pub(super) struct Kernel<'a> {
    backend: &'a Backend,
    rank: usize,
    arguments: GatheredGemmArguments,
    /// Whether push has another one for this product.
    pull_only: bool,
    grid: Geometry,
    /// What arrival words would reach; the arguments name it.
    _epoch: SymmetricBuffer<u32>,
}

impl<'a> Kernel<'a> {
    /// The kernel, or why there is none for this product. Collective.
    pub(super) fn new<T: Real>(
        communicator: &'a Communicator,
        product: &Product,
    ) -> Result<Outcome<Self>> {
        // SAFETY: it has the kernel enqueued, by those who promise that the matrices outlive it.
        let backend = unsafe { communicator.backend() };
        let rank = communicator.rank();
        let shape = raw_shape::<T>(product);
        let limits = backend.gathered_gemm_limits(&shape, Sharding::ROWS, shape.m);
        let limits = limits
            .ok()
            .flatten()
            .filter(|limits| limits.modes & GatherMode::WAIT.bit() != 0);
        let none = || "this device has no kernel of ours for this product".to_owned();
        let limits = limits.ok_or_else(none);
        let limits = match agree(communicator, limits)? {
            Ok(limits) => limits,
            Err(reason) => return Ok(Err(reason)),
        };
        let epoch = communicator.allocate::<u32>(&[1])?;
        let arguments = GatheredGemmArguments {
            group: CollectiveGroup {
                watch: communicator.watch(communicator.deadline()),
                slots: [DeviceAddress::NULL; MAX_RANKS],
                packet_bytes: 0,
                rank: 0,
                world: 1,
                slot: 0,
                operation: CollectiveOperation::ALL_GATHER_GEMM,
                members: [0; MAX_RANKS],
            },
            sources: [DeviceAddress::NULL; MAX_RANKS],
            gathered: [DeviceAddress::NULL; MAX_RANKS],
            // Read by nobody, since all chunks are own ones.
            arrivals: [DeviceAddress::NULL; MAX_RANKS],
            epoch: epoch.local().address(),
            b: DeviceAddress::NULL,
            c: DeviceAddress::NULL,
            bias: DeviceAddress::NULL,
            shape,
            shard: shape.m,
            chunk: shape.m,
            chunks: 1,
            sharding: Sharding::ROWS,
            mode: GatherMode::WAIT,
            movers: 0,
            keep: 0,
            reserved: 0,
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
        }))
    }

    /// How many blocks it has, and whether it is that of pull only.
    pub(super) fn how(&self) -> String {
        let only = if self.pull_only { ", not of push" } else { "" };
        format!("{} blocks{only}", self.grid.blocks[0])
    }

    /// Enqueues the product of `A` and `B` into `C`.
    ///
    /// # Safety
    /// The matrices are there, without gaps, until the stream has passed this point and graphs that have
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
        // SAFETY: the matrices are the caller's word; the epoch's word lives as long as this; a group of one
        // makes the call alone.
        let enqueued = unsafe {
            self.backend
                .gathered_gemm(&arguments, &self.grid, RawStream(on.raw()))
        };
        enqueued.map_err(|failure| BenchError::Backend {
            rank: self.rank,
            operation: "a product by our own kernel",
            failure,
        })
    }
}
