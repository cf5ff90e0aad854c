//! GEMM, and GEMMs that communicate, on a stream of the host backend.

use crate::backend::abi::*;
use crate::backend::{CallResult, Gemm, write_text};
use crate::host::backend::HostBackend;
use crate::host::gemm::{
    GemmCall, check, check_gathered, check_reduced, check_scale, reduced, refuse,
};
use crate::host::handle;
use crate::host::stream::Operation;

/// Rows of a chunk are a multiple of this: the rows that the GEMM computes at a time.
const CHUNK_ALIGNMENT: u32 = 16;

/// Maximum rows of `A` for `PUSH_AT_ONCE`.
const AT_ONCE_ROWS: u64 = 64;

impl Gemm for HostBackend {
    fn gemm_library(&self) -> CallResult<LibraryDescription> {
        let mut description = LibraryDescription {
            name: [0; 16],
            file: [0; 256],
            version: 1,
            flags: 0,
        };
        write_text(&mut description.name, "host");
        write_text(&mut description.file, "(built in)");
        Ok(description)
    }

    fn gemm_prepare(&self, shape: &GemmLayout) -> CallResult<RawGemm> {
        check(shape, "gemm_prepare")?;
        Ok(RawGemm(handle::give(Box::new(*shape))))
    }

    unsafe fn gemm_candidates(&self, _gemm: RawGemm) -> CallResult<u32> {
        Ok(1)
    }

    unsafe fn gemm(
        &self,
        gemm: RawGemm,
        candidate: u32,
        operands: &GemmOperands,
        stream: RawStream,
    ) -> CallResult<()> {
        // SAFETY: the caller passes a live GEMM.
        let shape = *unsafe { handle::borrow::<GemmLayout>(gemm.0, "gemm") }?;
        if candidate != 0 {
            return refuse(
                "gemm",
                format!(
                    "candidate {candidate} does not exist; use 0, the only one of the host backend"
                ),
            );
        }
        // SAFETY: the caller passes a live stream.
        let stream = unsafe { self.stream(stream, "gemm")? };
        let operands = *operands;
        check_scale(&shape, operands.scale, "gemm")?;
        if (shape.addend != 0) != (operands.addend != DeviceAddress::NULL) {
            let (is, passed) = match shape.addend {
                0 => ("without", "one"),
                _ => ("with", "none"),
            };
            return refuse(
                "gemm",
                format!("the GEMM was prepared {is} an addend, but the call passes {passed}"),
            );
        }
        // SAFETY: the caller keeps the memory live until the stream has passed this point.
        unsafe { stream.submit(Operation::Multiply(GemmCall { shape, operands })) }
    }

    unsafe fn gemm_release(&self, gemm: RawGemm) -> CallResult<()> {
        // SAFETY: the caller gives up a GEMM that `gemm_prepare` returned.
        unsafe { handle::take::<GemmLayout>(gemm.0, "gemm_release") }.map(drop)
    }

    fn gathered_gemm_limits(
        &self,
        shape: &GemmLayout,
        _sharding: ShardingCode,
        _shard: u64,
    ) -> CallResult<Option<GatheredLimits>> {
        if check(shape, "gathered_gemm_limits").is_err() {
            return Ok(None);
        }
        // Not for every `m`, so that on the host, too, there are other modes to compare with.
        let at_once = match shape.m {
            ..=AT_ONCE_ROWS => GatherMode::PUSH_AT_ONCE.bit(),
            _ => 0,
        };
        Ok(Some(GatheredLimits {
            blocks: 1,
            threads: 1,
            tile_m: CHUNK_ALIGNMENT,
            tile_n: 1,
            chunk_alignment: CHUNK_ALIGNMENT,
            movers: 0,
            modes: GatherMode::WAIT.bit()
                | GatherMode::PULL.bit()
                | GatherMode::PUSH.bit()
                | at_once,
            alignment: 1,
            at_once_blocks: u32::from(at_once != 0),
            ..GatheredLimits::default()
        }))
    }

    unsafe fn gathered_gemm(
        &self,
        arguments: &GatheredGemmArguments,
        _geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()> {
        check_gathered(arguments)?;
        // SAFETY: the caller passes a live stream.
        let stream = unsafe { self.stream(stream, "gathered_gemm")? };
        // SAFETY: the caller keeps the memory live until the stream has passed this point.
        unsafe { stream.submit(Operation::GatheredGemm(*arguments)) }
    }

    unsafe fn gathered_arrive(
        &self,
        word: DeviceAddress,
        epoch: DeviceAddress,
        stream: RawStream,
    ) -> CallResult<()> {
        // SAFETY: the caller passes a live stream.
        let stream = unsafe { self.stream(stream, "gathered_arrive")? };
        // SAFETY: the caller keeps the words live until the stream has passed this point.
        unsafe { stream.submit(Operation::Arrive { word, epoch }) }
    }

    fn reduced_gemm_limits(
        &self,
        shape: &GemmLayout,
        problem: &ReducedProblem,
    ) -> CallResult<Option<ReducedLimits>> {
        Ok(reduced::limits(shape, problem))
    }

    unsafe fn reduced_gemm(
        &self,
        arguments: &ReducedGemmArguments,
        _geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()> {
        check_reduced(arguments)?;
        // SAFETY: the caller passes a live stream.
        let stream = unsafe { self.stream(stream, "reduced_gemm")? };
        // SAFETY: the caller keeps the memory live until the stream has passed this point.
        unsafe { stream.submit(Operation::ReducedGemm(*arguments)) }
    }
}
