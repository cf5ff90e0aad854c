//! Operations and calls that must fail on every rank alike and leave the communicator working.

use super::case::{GemmReduceCase, GemmReduceVariant, ReductionName};
use super::check::{GemmReduceCheck, check as check_case};
use super::memory::{Memory, operation};
use super::refusal_case::GemmReduceRefusalCase;
use crate::findings::{Fault, Findings};
use crate::gemm_float::GemmFloat;
use std::time::Duration;
use symmem::{
    Communicator, Error, GemmPartials, GemmReduceAlgorithm, GemmReduceOperands, GemmReduceOptions,
    GemmReduceShape, GemmTransport, Matrix, MatrixOrder, Result, Stream,
};

/// Columns of `A`; `B` has as many, so that a part of `A` can stand for `C`.
const WIDTH: usize = 8;

/// Makes each operation and call, and checks its error; then makes a call that must succeed.
///
/// # Errors
/// Any error of the memory, or of what must succeed.
pub fn check(
    communicator: &Communicator,
    stream: &Stream,
    case: &GemmReduceRefusalCase,
    deadline: Duration,
    fault: Option<Fault>,
) -> Result<Findings> {
    let good = GemmReduceCase {
        reduction: case.reduction,
        variant: GemmReduceVariant::PipelinePut,
        half: case.half,
        rows: 2 * communicator.world_size(),
        n: WIDTH,
        k: WIDTH,
        a_gap: 0,
        b_gap: 0,
        b_by_columns: false,
        bias: false,
        symmetric: true,
        streams: 2,
        chunks: 2,
        captured: false,
        seed: case.seed,
    };
    let refusals = Refusals {
        communicator,
        stream,
        case: &good,
        deadline,
    };
    let mut findings = match case.half {
        true => refusals.all::<half::f16>()?,
        false => refusals.all::<half::bf16>()?,
    };
    findings.extend(check_case(&GemmReduceCheck {
        communicator,
        stream,
        case: &good,
        deadline,
        fault,
    })?);
    Ok(findings)
}

struct Refusals<'a> {
    communicator: &'a Communicator,
    stream: &'a Stream,
    /// A case that is not refused.
    case: &'a GemmReduceCase,
    deadline: Duration,
}

/// Adds a finding unless the call was refused as an invalid argument.
fn expect<T>(findings: &mut Findings, call: &str, outcome: Result<T>) {
    match outcome {
        Err(Error::InvalidArgument { .. }) => {}
        Ok(_) => findings.push(format!("{call} was not refused")),
        Err(error) => findings.push(format!("{call} was refused for another reason: {error}")),
    }
}

impl Refusals<'_> {
    fn all<T: GemmFloat>(&self) -> Result<Findings> {
        let memory = Memory::<T>::new(self.communicator, self.case, self.deadline)?;
        let mut findings = Findings::new();
        self.operations::<T>(&mut findings);
        self.calls(&memory, &mut findings)?;
        memory.free()?;
        Ok(findings)
    }

    fn operations<T: GemmFloat>(&self, findings: &mut Findings) {
        let world = self.communicator.world_size();
        let (shape, options) = (self.case.shape(world), self.case.options(self.deadline));
        let mut refused = |what: &str, shape: GemmReduceShape, options: GemmReduceOptions| {
            let reduction = self.case.reduction.named();
            let made = operation::<T>(self.communicator, reduction, &shape, &options);
            expect(findings, &format!("an operation with {what}"), made);
        };
        if self.case.reduction == ReductionName::Scatter && world > 1 {
            let m = shape.m + 1;
            refused(
                "a remainder of rows",
                GemmReduceShape { m, ..shape },
                options,
            );
        }
        for (what, shape) in [
            ("no rows", GemmReduceShape { m: 0, ..shape }),
            ("no columns", GemmReduceShape { n: 0, ..shape }),
            ("no products", GemmReduceShape { k: 0, ..shape }),
        ] {
            refused(what, shape, options);
        }
        let a_stride = Some(WIDTH - 1);
        refused(
            "overlapping rows of A",
            GemmReduceShape { a_stride, ..shape },
            options,
        );
        let b_stride = Some(WIDTH - 1);
        refused(
            "overlapping rows of B",
            GemmReduceShape { b_stride, ..shape },
            options,
        );
        let baseline = GemmReduceAlgorithm::Baseline;
        for (what, options) in [
            (
                "no streams",
                GemmReduceOptions {
                    streams: 0,
                    ..options
                },
            ),
            (
                "no chunks",
                GemmReduceOptions {
                    chunks: Some(0),
                    ..options
                },
            ),
            (
                "an unknown channel",
                GemmReduceOptions {
                    channel: 99,
                    ..options
                },
            ),
            (
                "a transport that no pipeline has",
                GemmReduceOptions {
                    transport: GemmTransport::Nccl,
                    ..options
                },
            ),
            (
                "a baseline that has a transport",
                GemmReduceOptions {
                    algorithm: baseline,
                    ..options
                },
            ),
            (
                "a pipeline of parts in f32",
                GemmReduceOptions {
                    partials: GemmPartials::F32,
                    ..options
                },
            ),
        ] {
            refused(what, shape, options);
        }
    }

    fn calls<T: GemmFloat>(&self, memory: &Memory<T>, findings: &mut Findings) -> Result<()> {
        let good = memory.operands(self.case)?;
        let (a, b, c) = (memory.a.slice()?, memory.b.slice()?, memory.c.slice()?);
        let (m, rows) = (memory.operation.shape().m, c.len() / WIDTH);
        let mut refused = |what: &str, operands: GemmReduceOperands<'_, T>| {
            let outcome = self.stream.gemm_reduce(&memory.operation, &operands);
            expect(findings, &format!("a call with {what}"), outcome);
        };
        let short = Matrix::of(a, m - 1, WIDTH)?;
        refused("too few rows of A", GemmReduceOperands { a: short, ..good });
        let narrow = Matrix::strided(b, WIDTH, WIDTH - 1, WIDTH, MatrixOrder::Rows)?;
        refused(
            "too few columns of B",
            GemmReduceOperands { b: narrow, ..good },
        );
        let other = Matrix::strided(b, WIDTH, WIDTH, WIDTH, MatrixOrder::Columns)?;
        refused(
            "a B of another order",
            GemmReduceOperands { b: other, ..good },
        );
        let short = Matrix::of(c, rows - 1, WIDTH)?;
        refused("too few rows of C", GemmReduceOperands { c: short, ..good });
        let onto = Matrix::of(a, rows, WIDTH)?;
        refused("a C in A", GemmReduceOperands { c: onto, ..good });
        let bias = Some(Matrix::of(memory.bias.slice()?, 1, WIDTH)?);
        refused("a bias", GemmReduceOperands { bias, ..good });
        // SAFETY: the memory is live, and the call is refused.
        let own =
            unsafe { Matrix::from_raw(memory.c.address(), rows, WIDTH, WIDTH, MatrixOrder::Rows) };
        refused(
            "a C that only this rank knows",
            GemmReduceOperands { c: own, ..good },
        );
        Ok(())
    }
}
