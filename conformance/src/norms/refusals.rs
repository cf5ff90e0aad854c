//! Calls that must fail on every rank alike and leave the communicator working; and calls without rows, which must succeed.

use super::case::NormCase;
use super::check::{NormCheck, check as check_case};
use super::refusal_case::NormRefusalCase;
use super::seen::NormFloat;
use crate::dtype::Dtype;
use crate::findings::{Fault, Findings};
use std::time::Duration;
use symmem::{
    CollectiveOptions, Communicator, Error, F8E4M3, Result, RowNorm, Scales, Slice, Stream,
    SymmetricBuffer,
};

/// Elements of a row of the refused calls, and of their matrices.
const HIDDEN: usize = 64;
const ELEMENTS: usize = 4 * HIDDEN;
/// Bytes of a row that no inbox holds.
const TOO_LONG: usize = 16 << 20;

/// Makes each call and checks its error; then makes one that must succeed.
///
/// # Errors
/// Any error of the memory, or of the calls that must succeed.
pub fn check(
    communicator: &Communicator,
    stream: &Stream,
    case: &NormRefusalCase,
    deadline: Duration,
    fault: Option<Fault>,
) -> Result<Findings> {
    let refusals = Refusals {
        communicator,
        stream,
        options: CollectiveOptions::new().deadline(deadline),
    };
    let mut findings = match case.dtype {
        Dtype::F16 => refusals.all::<half::f16>()?,
        Dtype::Bf16 => refusals.all::<half::bf16>()?,
        _ => refusals.all::<f32>()?,
    };
    findings.extend(check_case(&NormCheck {
        communicator,
        stream,
        case: &NormCase::plain(case.dtype, (3, HIDDEN), case.seed),
        deadline,
        fault,
    })?);
    Ok(findings)
}

struct Refusals<'a> {
    communicator: &'a Communicator,
    stream: &'a Stream,
    options: CollectiveOptions<'a>,
}

/// The memory of the refused calls.
struct Memory<T: NormFloat> {
    x: SymmetricBuffer<T>,
    y: SymmetricBuffer<T>,
    residual: SymmetricBuffer<T>,
    weight: SymmetricBuffer<T>,
    bytes: SymmetricBuffer<F8E4M3>,
    scales: SymmetricBuffer<f32>,
}

/// Adds a finding unless the call was refused as an invalid argument.
fn expect(findings: &mut Findings, call: &str, outcome: Result<()>) {
    match outcome {
        Err(Error::InvalidArgument { .. }) => {}
        Ok(()) => findings.push(format!("{call} was not refused")),
        Err(error) => findings.push(format!("{call} was refused for another reason: {error}")),
    }
}

impl Refusals<'_> {
    fn all<T: NormFloat>(&self) -> Result<Findings> {
        let communicator = self.communicator;
        let rows = || communicator.allocate::<T>(&[ELEMENTS]);
        let memory = Memory::<T> {
            x: rows()?,
            y: rows()?,
            residual: rows()?,
            weight: communicator.allocate(&[HIDDEN])?,
            bytes: communicator.allocate(&[ELEMENTS])?,
            scales: communicator.allocate(&[ELEMENTS])?,
        };
        let mut findings = Findings::new();
        self.lengths(&memory, &mut findings)?;
        self.overlaps(&memory, &mut findings)?;
        self.numbers(&memory, &mut findings);
        self.scales(&memory, &mut findings)?;
        self.inboxes::<T>(&memory, &mut findings)?;
        let none = memory.x.slice(..0)?;
        let norm = RowNorm::root_mean_square(&memory.weight, 1e-5);
        let calls = self.stream.with(&self.options);
        calls.all_reduce_norm(none, none, HIDDEN, &norm)?;
        self.stream.synchronize()?;
        memory.free()?;
        Ok(findings)
    }

    fn lengths<T: NormFloat>(&self, memory: &Memory<T>, findings: &mut Findings) -> Result<()> {
        let Memory { x, y, weight, .. } = memory;
        let calls = self.stream.with(&self.options);
        let norm = RowNorm::root_mean_square(weight, 1e-5);
        let short = memory.residual.slice(..ELEMENTS - HIDDEN)?;
        let mut refused = |call: &str, outcome| expect(findings, call, outcome);
        refused(
            "a norm of rows without elements",
            calls.all_reduce_norm(y, x, 0, &norm),
        );
        refused(
            "a norm of a part of a row",
            calls.all_reduce_norm(y, x, HIDDEN - 1, &norm),
        );
        refused(
            "a norm with weights longer than a row",
            calls.all_reduce_norm(y, x, HIDDEN / 2, &norm),
        );
        refused(
            "a norm into too little",
            calls.all_reduce_norm(short, x, HIDDEN, &norm),
        );
        refused(
            "a norm with too short a residual",
            calls.all_reduce_norm(y, x, HIDDEN, &norm.residual(short, &memory.residual)),
        );
        // Of four rows each rank owns at least one less than all, but in a group of one.
        if self.communicator.world_size() > 1 {
            let all = norm.residual_shard(&memory.residual, &memory.residual);
            refused(
                "a norm with all rows for a shard of the residual",
                calls.all_reduce_norm(y, x, HIDDEN, &all),
            );
        }
        let bias = memory.residual.slice(..HIDDEN + 1)?;
        let layer = RowNorm::layer(weight, bias, 1e-5);
        refused(
            "a norm with a bias longer than a row",
            calls.all_reduce_norm(y, x, HIDDEN, &layer),
        );
        Ok(())
    }

    fn overlaps<T: NormFloat>(&self, memory: &Memory<T>, findings: &mut Findings) -> Result<()> {
        let Memory {
            x,
            y,
            residual,
            weight,
            ..
        } = memory;
        let calls = self.stream.with(&self.options);
        let norm = RowNorm::root_mean_square(weight, 1e-5);
        let (low, high) = (x.slice(..2 * HIDDEN)?, x.slice(HIDDEN..3 * HIDDEN)?);
        let mut refused = |call: &str, outcome| expect(findings, call, outcome);
        refused(
            "a norm onto half of its source",
            calls.all_reduce_norm(high, low, HIDDEN, &norm),
        );
        for (call, to) in [
            ("sums in the source of a norm", x),
            ("sums in the destination of a norm", y),
        ] {
            let norm = norm.residual(residual, to);
            refused(call, calls.all_reduce_norm(y, x, HIDDEN, &norm));
        }
        let norm = norm.residual(y, residual);
        refused(
            "a norm onto its residual",
            calls.all_reduce_norm(y, x, HIDDEN, &norm),
        );
        Ok(())
    }

    fn numbers<T: NormFloat>(&self, memory: &Memory<T>, findings: &mut Findings) {
        let Memory { x, y, weight, .. } = memory;
        let calls = self.stream.with(&self.options);
        for epsilon in [-1.0, f32::NAN, f32::INFINITY] {
            let norm = RowNorm::root_mean_square(weight, epsilon);
            let outcome = calls.all_reduce_norm(y, x, HIDDEN, &norm);
            expect(
                findings,
                &format!("a norm with an epsilon of {epsilon}"),
                outcome,
            );
        }
        let norm = RowNorm::root_mean_square(weight, 1e-5).weight_offset(f32::NAN);
        let outcome = calls.all_reduce_norm(y, x, HIDDEN, &norm);
        expect(
            findings,
            "a norm with weights that are no numbers apart",
            outcome,
        );
    }

    fn scales<T: NormFloat>(&self, memory: &Memory<T>, findings: &mut Findings) -> Result<()> {
        let Memory {
            x,
            bytes,
            scales,
            weight,
            ..
        } = memory;
        let calls = self.stream.with(&self.options);
        let norm = RowNorm::root_mean_square(weight, 1e-5);
        let few = ELEMENTS / HIDDEN - 1;
        let own = memory.own_rows(self.communicator)?;
        let sharded = norm.residual_shard(own, own);
        let one = Scales::Tensor(scales.slice(..1)?.into());
        let outcome = calls.all_reduce_norm_f8(bytes, one, x, HIDDEN, &sharded);
        expect(
            findings,
            "results of 8 bits with a shard of the residual",
            outcome,
        );
        for (call, scales) in [
            (
                "a norm with too few scales of rows",
                Scales::Rows(scales.slice(..few)?.into()),
            ),
            (
                "a norm with two scales for all",
                Scales::Tensor(scales.slice(..2)?.into()),
            ),
            (
                "a norm of rows without a whole group of 128",
                Scales::Groups(scales.into()),
            ),
        ] {
            let outcome = calls.all_reduce_norm_f8(bytes, scales, x, HIDDEN, &norm);
            expect(findings, call, outcome);
        }
        Ok(())
    }

    /// Makes calls that the inboxes do not carry, which a group of one does not use.
    fn inboxes<T: NormFloat>(&self, memory: &Memory<T>, findings: &mut Findings) -> Result<()> {
        if self.communicator.world_size() == 1 {
            return Ok(());
        }
        let long = self
            .communicator
            .allocate::<T>(&[TOO_LONG / size_of::<T>()])?;
        let calls = self.stream.with(&self.options);
        let outcome = calls.all_reduce_norm(&long, &long, long.len(), &RowNorm::none());
        expect(findings, "a norm of a row longer than an inbox", outcome);
        let other = self.options.channel(1);
        let calls = self.stream.with(&other);
        let outcome = calls.all_reduce_norm(&memory.y, &memory.x, HIDDEN, &RowNorm::none());
        expect(findings, "a norm on a channel without inboxes", outcome);
        long.free()
    }
}

impl<T: NormFloat> Memory<T> {
    /// Returns the rows of the residual that this rank owns.
    fn own_rows(&self, communicator: &Communicator) -> Result<Slice<'_, T>> {
        let rows = ELEMENTS / HIDDEN;
        let each = rows.div_ceil(communicator.world_size());
        let [first, end] = [0, 1].map(|more| ((communicator.rank() + more) * each).min(rows));
        self.residual.slice(first * HIDDEN..end * HIDDEN)
    }

    /// Frees all memory. Collective.
    fn free(self) -> Result<()> {
        for rows in [self.x, self.y, self.residual, self.weight] {
            rows.free()?;
        }
        self.bytes.free()?;
        self.scales.free()
    }
}
