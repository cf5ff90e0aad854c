//! Products of matrices on the host.

use super::HostBackend;
use crate::backend::abi::*;
use crate::backend::{CallResult, Failure, Gemm};

fn none<T>(call: &'static str) -> CallResult<T> {
    Err(Failure::new(
        Status::UNSUPPORTED,
        call,
        "the host backend multiplies no matrices",
    ))
}

impl Gemm for HostBackend {
    fn gemm_library(&self) -> CallResult<VendorDescription> {
        none("gemm_library")
    }

    fn gemm_prepare(&self, _shape: &GemmShape) -> CallResult<RawGemm> {
        none("gemm_prepare")
    }

    unsafe fn gemm_candidates(&self, _gemm: RawGemm) -> CallResult<u32> {
        none("gemm_candidates")
    }

    unsafe fn gemm(
        &self,
        _gemm: RawGemm,
        _candidate: u32,
        _operands: &GemmOperands,
        _stream: RawStream,
    ) -> CallResult<()> {
        none("gemm")
    }

    unsafe fn gemm_release(&self, _gemm: RawGemm) -> CallResult<()> {
        none("gemm_release")
    }

    fn gathered_gemm_limits(
        &self,
        _shape: &GemmShape,
        _sharding: Sharding,
        _shard: u64,
    ) -> CallResult<GatheredLimits> {
        Ok(GatheredLimits::default())
    }

    unsafe fn gathered_gemm(
        &self,
        _arguments: &GatheredGemmArguments,
        _geometry: &Geometry,
        _stream: RawStream,
    ) -> CallResult<()> {
        none("gathered_gemm")
    }

    unsafe fn gathered_arrive(
        &self,
        _word: DeviceAddress,
        _epoch: DeviceAddress,
        _stream: RawStream,
    ) -> CallResult<()> {
        none("gathered_arrive")
    }
}
