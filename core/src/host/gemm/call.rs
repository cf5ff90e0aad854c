//! A product as a stream is asked for it, and what is refused.

use super::product::{Panel, known, product};
use crate::backend::abi::*;
use crate::backend::{CallResult, Failure};

/// A product, with its matrices.
#[derive(Clone, Copy)]
pub(crate) struct Product {
    pub(crate) shape: GemmShape,
    pub(crate) operands: GemmOperands,
}

impl Product {
    /// A product, if there is one of this shape.
    pub(crate) fn new(shape: GemmShape, operands: GemmOperands) -> CallResult<Self> {
        check(&shape, "gemm")?;
        Ok(Self { shape, operands })
    }

    /// # Safety
    /// All matrices are live, with the shape's sizes.
    pub(crate) unsafe fn run(&self) {
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

/// Refuses an argument, and says why.
pub(crate) fn refuse<T>(call: &'static str, why: String) -> CallResult<T> {
    Err(Failure::new(Status::INVALID_ARGUMENT, call, why))
}

/// Refuses a shape that there is no product of.
pub(crate) fn check(shape: &GemmShape, call: &'static str) -> CallResult<()> {
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
pub(crate) fn check_gathered(arguments: &GatheredGemmArguments) -> CallResult<()> {
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
