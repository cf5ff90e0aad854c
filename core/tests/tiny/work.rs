//! The work that a stream of the tiny backend runs at once, and the kernels that it lacks.

use super::{Tiny, give, refuse, word};
use std::ptr::{copy_nonoverlapping, null, with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::atomic::Ordering;
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, CollectiveKernels, Failure, Gemm, RemoteAccess, Signals};

impl RemoteAccess for Tiny {
    unsafe fn transfer_rows(&self, _copy: &RowsCopy, _stream: RawStream) -> CallResult<()> {
        refuse("transfer_rows")
    }

    unsafe fn transfer(&self, transfer: &Transfer, _stream: RawStream) -> CallResult<()> {
        let source = match transfer.bytes {
            0 => null(),
            _ => with_exposed_provenance::<u8>(transfer.source.0 as usize),
        };
        if !source.is_null() {
            let destination = with_exposed_provenance_mut(transfer.destination.0 as usize);
            // SAFETY: the caller passes live ranges that do not overlap.
            unsafe { copy_nonoverlapping(source, destination, transfer.bytes as usize) };
        }
        // SAFETY: the caller passes live words.
        unsafe { give(&transfer.signal) };
        Ok(())
    }
}

impl Signals for Tiny {
    unsafe fn signal_give(
        &self,
        target: &SignalTarget,
        _placement: SignalPlacementCode,
        _stream: RawStream,
    ) -> CallResult<()> {
        // SAFETY: the caller passes live words.
        unsafe { give(target) };
        Ok(())
    }
    unsafe fn signal_wait(
        &self,
        wait: &SignalWait,
        _placement: SignalPlacementCode,
        _stream: RawStream,
    ) -> CallResult<()> {
        // SAFETY: the caller passes a live word.
        match unsafe { word(wait.word) }.load(Ordering::Acquire) {
            seen if seen >= wait.value => Ok(()),
            seen => Err(Failure::new(
                Status::CALL_FAILED,
                "tiny_wait",
                format!("saw {seen}"),
            )),
        }
    }
    unsafe fn signal_step(
        &self,
        _target: &SignalTarget,
        _wait: &SignalWait,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("signal_step")
    }

    unsafe fn word_update(&self, _operation: &WordOperation, _stream: RawStream) -> CallResult<()> {
        refuse("word_update")
    }

    unsafe fn word_wait(&self, _wait: &WordWait, _stream: RawStream) -> CallResult<()> {
        refuse("word_wait")
    }
}

impl CollectiveKernels for Tiny {
    unsafe fn barrier(&self, barrier: &Barrier, _stream: RawStream) -> CallResult<()> {
        match barrier.world {
            1 => Ok(()),
            _ => refuse("barrier"),
        }
    }
    fn collective_row(&self, _index: u32) -> CallResult<Option<CollectiveRow>> {
        Ok(None)
    }

    fn resident_blocks(
        &self,
        _kernel: CollectiveKernel,
        _element: ElementTypeCode,
        _threads: u32,
    ) -> CallResult<u32> {
        Ok(0)
    }

    unsafe fn collective_move(
        &self,
        _arguments: &MoveArguments,
        _geometry: &Geometry,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("collective_move")
    }

    unsafe fn collective_swap(
        &self,
        _arguments: &MoveArguments,
        _geometry: &Geometry,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("collective_swap")
    }

    unsafe fn collective_packets(
        &self,
        _arguments: &PacketArguments,
        _geometry: &Geometry,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("collective_packets")
    }

    unsafe fn collective_reduce(
        &self,
        _arguments: &ReduceArguments,
        _geometry: &Geometry,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("collective_reduce")
    }

    unsafe fn collective_reduce_push(
        &self,
        _arguments: &ReducePushArguments,
        _geometry: &Geometry,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("collective_reduce_push")
    }

    unsafe fn collective_multicast(
        &self,
        _arguments: &MulticastArguments,
        _geometry: &Geometry,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("collective_multicast")
    }

    unsafe fn collective_pieces(
        &self,
        _arguments: &PieceArguments,
        _geometry: &Geometry,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("collective_pieces")
    }

    unsafe fn collective_reduce_packets(
        &self,
        _arguments: &ReducePacketArguments,
        _geometry: &Geometry,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("collective_reduce_packets")
    }

    unsafe fn collective_reduce_lamport(
        &self,
        _arguments: &ReduceLamportArguments,
        _geometry: &Geometry,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("collective_reduce_lamport")
    }

    unsafe fn collective_move_lamport(
        &self,
        _arguments: &MoveLamportArguments,
        _geometry: &Geometry,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("collective_move_lamport")
    }

    unsafe fn collective_reduce_norm(
        &self,
        _arguments: &ReduceNormArguments,
        _geometry: &Geometry,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("collective_reduce_norm")
    }

    unsafe fn collective_exchange(
        &self,
        _arguments: &ExchangeArguments,
        _geometry: &Geometry,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("collective_exchange")
    }
}

impl Gemm for Tiny {
    fn gemm_library(&self) -> CallResult<LibraryDescription> {
        refuse("gemm_library")
    }

    fn gemm_prepare(&self, _shape: &GemmLayout) -> CallResult<RawGemm> {
        refuse("gemm_prepare")
    }

    unsafe fn gemm_candidates(&self, _gemm: RawGemm) -> CallResult<u32> {
        refuse("gemm_candidates")
    }

    unsafe fn gemm(
        &self,
        _gemm: RawGemm,
        _candidate: u32,
        _operands: &GemmOperands,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("gemm")
    }

    unsafe fn gemm_release(&self, _gemm: RawGemm) -> CallResult<()> {
        refuse("gemm_release")
    }

    fn gathered_gemm_limits(
        &self,
        _shape: &GemmLayout,
        _sharding: ShardingCode,
        _shard: u64,
    ) -> CallResult<Option<GatheredLimits>> {
        Ok(None)
    }

    unsafe fn gathered_gemm(
        &self,
        _arguments: &GatheredGemmArguments,
        _geometry: &Geometry,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("gathered_gemm")
    }

    unsafe fn gathered_arrive(
        &self,
        _word: DeviceAddress,
        _epoch: DeviceAddress,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("gathered_arrive")
    }

    fn reduced_gemm_limits(
        &self,
        _shape: &GemmLayout,
        _problem: &ReducedProblem,
    ) -> CallResult<Option<ReducedLimits>> {
        Ok(None)
    }

    unsafe fn reduced_gemm(
        &self,
        _arguments: &ReducedGemmArguments,
        _geometry: &Geometry,
        _stream: RawStream,
    ) -> CallResult<()> {
        refuse("reduced_gemm")
    }
}
