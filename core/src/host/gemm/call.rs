//! A GEMM as a stream receives it, and the checks of its arguments.

use super::product::{Panel, known, product};
use crate::backend::abi::*;
use crate::backend::{CallResult, Failure};

/// A GEMM with its matrices.
#[derive(Clone, Copy)]
pub(crate) struct GemmCall {
    pub(crate) shape: GemmLayout,
    pub(crate) operands: GemmOperands,
}

impl GemmCall {
    /// Checks the shape and returns the GEMM.
    pub(crate) fn new(shape: GemmLayout, operands: GemmOperands) -> CallResult<Self> {
        check(&shape, "gemm")?;
        Ok(Self { shape, operands })
    }

    /// # Safety
    /// All matrices are live and have the shape's sizes.
    pub(crate) unsafe fn run(&self) {
        let Self { shape, operands } = self;
        let whole = Panel {
            address: operands.a,
            stride: shape.a_stride,
            first: 0,
            columns: shape.k,
        };
        // SAFETY: the matrices are live and have the shape's sizes, and the shape was checked.
        unsafe { product(shape, &[whole], operands, 0..shape.m) };
    }
}

/// Fails with `INVALID_ARGUMENT` and a reason.
pub(crate) fn refuse<T>(call: &'static str, why: String) -> CallResult<T> {
    Err(Failure::new(Status::INVALID_ARGUMENT, call, why))
}

/// Checks that the host backend can multiply this shape.
pub(crate) fn check(shape: &GemmLayout, call: &'static str) -> CallResult<()> {
    if !known(shape.element) {
        let (name, number) = (shape.element.name(), shape.element.0);
        return Err(Failure::new(
            Status::UNSUPPORTED,
            call,
            format!(
                "matrices of {name} ({number}) cannot be multiplied; use F16, BF16, F32 or F8_E4M3"
            ),
        ));
    }
    let b_least = match shape.b_order {
        MatrixOrderCode::ROWS => shape.n,
        MatrixOrderCode::COLUMNS => shape.k,
        other => {
            return refuse(
                call,
                format!("matrix order {} is unknown; use ROWS or COLUMNS", other.0),
            );
        }
    };
    if shape.a_stride < shape.k || shape.b_stride < b_least || shape.c_stride < shape.n {
        return refuse(
            call,
            format!(
                "a stride is shorter than the row or column that it spans; use longer strides: {shape:?}"
            ),
        );
    }
    Ok(())
}

/// Refuses a scale for matrices that take none.
pub(crate) fn check_scale(
    shape: &GemmLayout,
    scale: DeviceAddress,
    call: &'static str,
) -> CallResult<()> {
    if scale == DeviceAddress::NULL || shape.takes_scale() {
        return Ok(());
    }
    let name = shape.element.name();
    refuse(
        call,
        format!("a scale for matrices of {name}; only those of F8_E4M3 take one"),
    )
}

/// Checks that all numbers are in range.
pub(crate) fn check_gathered(arguments: &GatheredGemmArguments) -> CallResult<()> {
    const CALL: &str = "gathered_gemm";
    check(&arguments.shape, CALL)?;
    check_scale(&arguments.shape, arguments.scale, CALL)?;
    let (rank, world) = (arguments.group.rank, arguments.group.world);
    if world == 0 || world as usize > MAX_RANKS || rank >= world {
        return refuse(
            CALL,
            format!(
                "rank {rank} is not in a group of {world} ranks; a group has 1 to {MAX_RANKS} ranks, numbered from 0"
            ),
        );
    }
    let rows = match arguments.sharding {
        ShardingCode::ROWS => arguments.shard,
        ShardingCode::COLUMNS => arguments.shape.m,
        other => {
            return refuse(
                CALL,
                format!("sharding {} is unknown; use ROWS or COLUMNS", other.0),
            );
        }
    };
    if arguments.chunk == 0 || u64::from(arguments.chunks) != rows.div_ceil(arguments.chunk) {
        return refuse(
            CALL,
            format!(
                "{} chunks of {} rows do not cover the {rows} rows of a shard exactly; pass rows divided by chunk, \
                 rounded up",
                arguments.chunks, arguments.chunk
            ),
        );
    }
    if !(GatherMode::WAIT..=GatherMode::PUSH_AT_ONCE).contains(&arguments.mode) {
        return refuse(
            CALL,
            format!(
                "gather mode {} is unknown; use one of this version",
                arguments.mode.0
            ),
        );
    }
    Ok(())
}
