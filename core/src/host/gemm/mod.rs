//! Products of matrices on the host: plain loops, and the kernel that multiplies what it gathers.

pub(super) mod gathered;
mod product;

use super::HostBackend;
use super::handle;
use super::operation::Operation;
use crate::backend::abi::*;
use crate::backend::{CallResult, Failure, Gemm, write_text};
use product::{Panel, known, product};

/// Rows that core cuts chunks at: as many as are multiplied at a time.
const CHUNK_ALIGNMENT: u32 = 16;

/// Most rows of `A` of a product that is its own barrier.
const AT_ONCE_ROWS: u64 = 64;

/// A product, with its matrices.
#[derive(Clone, Copy)]
pub(super) struct Product {
    shape: GemmShape,
    operands: GemmOperands,
}

impl Product {
    /// A product, if there is one of this shape.
    pub(super) fn new(shape: GemmShape, operands: GemmOperands) -> CallResult<Self> {
        check(&shape, "gemm")?;
        Ok(Self { shape, operands })
    }

    /// # Safety
    /// All matrices are live, with the shape's sizes.
    pub(super) unsafe fn run(&self) {
        let Self { shape, operands } = self;
        let whole = Panel {
            address: operands.a,
            stride: shape.a_stride,
            first: 0,
            columns: shape.k,
        };
        // SAFETY: the caller's word; the shape was checked when it was prepared.
        unsafe { product(shape, &[whole], operands, 0..shape.m) };
    }
}

fn refuse<T>(call: &'static str, why: String) -> CallResult<T> {
    Err(Failure::new(Status::INVALID_ARGUMENT, call, why))
}

/// Refuses a shape that there is no product of.
fn check(shape: &GemmShape, call: &'static str) -> CallResult<()> {
    if !known(shape.element) {
        let (name, number) = (shape.element.name(), shape.element.0);
        return Err(Failure::new(
            Status::UNSUPPORTED,
            call,
            format!("matrices of {name} ({number}); there are products of F16 and BF16"),
        ));
    }
    let b_least = match shape.b_order {
        MatrixOrder::ROWS => shape.n,
        MatrixOrder::COLUMNS => shape.k,
        other => return refuse(call, format!("{} is no order of a matrix", other.0)),
    };
    if shape.a_stride < shape.k || shape.b_stride < b_least || shape.c_stride < shape.n {
        return refuse(
            call,
            format!("strides are at least as long as what they stride over: {shape:?}"),
        );
    }
    Ok(())
}

/// Refuses numbers out of range.
pub(super) fn check_gathered(arguments: &GatheredGemmArguments) -> CallResult<()> {
    const CALL: &str = "gathered_gemm";
    check(&arguments.shape, CALL)?;
    let (rank, world) = (arguments.group.rank, arguments.group.world);
    if world == 0 || world as usize > MAX_RANKS || rank >= world {
        return refuse(CALL, format!("rank {rank} in a group of {world}"));
    }
    let rows = match arguments.sharding {
        Sharding::ROWS => arguments.shard,
        Sharding::COLUMNS => arguments.shape.m,
        other => return refuse(CALL, format!("{} is no way to divide a matrix", other.0)),
    };
    if arguments.chunk == 0 || u64::from(arguments.chunks) != rows.div_ceil(arguments.chunk) {
        return refuse(
            CALL,
            format!(
                "{} chunks of {} rows are not the {rows} rows of a shard",
                arguments.chunks, arguments.chunk
            ),
        );
    }
    if !(GatherMode::WAIT..=GatherMode::PUSH_AT_ONCE).contains(&arguments.mode) {
        return refuse(CALL, format!("mode {} gathers nothing", arguments.mode.0));
    }
    Ok(())
}

impl Gemm for HostBackend {
    fn gemm_library(&self) -> CallResult<VendorDescription> {
        let mut description = VendorDescription {
            name: [0; 16],
            file: [0; 256],
            version: 1,
            flags: 0,
        };
        write_text(&mut description.name, "host");
        write_text(&mut description.file, "(built in)");
        Ok(description)
    }

    fn gemm_prepare(&self, shape: &GemmShape) -> CallResult<RawGemm> {
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
        // SAFETY: the caller names a live product.
        let shape = *unsafe { handle::borrow::<GemmShape>(gemm.0, "gemm") }?;
        if candidate != 0 {
            return refuse("gemm", format!("there is no way {candidate}, but one"));
        }
        // SAFETY: the caller names a live stream.
        let stream = unsafe { self.stream(stream, "gemm")? };
        let operands = *operands;
        // SAFETY: the caller keeps the memory alive until the stream has passed this point.
        unsafe { stream.submit(Operation::Multiply(Product { shape, operands })) }
    }

    unsafe fn gemm_release(&self, gemm: RawGemm) -> CallResult<()> {
        // SAFETY: the caller gives it up.
        unsafe { handle::take::<GemmShape>(gemm.0, "gemm_release") }.map(drop)
    }

    fn gathered_gemm_limits(
        &self,
        shape: &GemmShape,
        _sharding: Sharding,
        _shard: u64,
    ) -> CallResult<GatheredLimits> {
        if check(shape, "gathered_gemm_limits").is_err() {
            return Ok(GatheredLimits::default());
        }
        // Not for all, so that there is something to compare it with here, too.
        let at_once = match shape.m {
            ..=AT_ONCE_ROWS => GatherMode::PUSH_AT_ONCE.bit(),
            _ => 0,
        };
        Ok(GatheredLimits {
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
        })
    }

    unsafe fn gathered_gemm(
        &self,
        arguments: &GatheredGemmArguments,
        _geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()> {
        check_gathered(arguments)?;
        // SAFETY: the caller names a live stream.
        let stream = unsafe { self.stream(stream, "gathered_gemm")? };
        // SAFETY: the caller keeps the memory alive until the stream has passed this point.
        unsafe { stream.submit(Operation::GatheredGemm(*arguments)) }
    }

    unsafe fn gathered_arrive(
        &self,
        word: DeviceAddress,
        epoch: DeviceAddress,
        stream: RawStream,
    ) -> CallResult<()> {
        // SAFETY: the caller names a live stream.
        let stream = unsafe { self.stream(stream, "gathered_arrive")? };
        // SAFETY: the caller keeps the words alive until the stream has passed this point.
        unsafe { stream.submit(Operation::Arrive { word, epoch }) }
    }
}
