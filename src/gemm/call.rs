//! A call, and the checks of its matrices.

use crate::backend::abi::*;
use crate::base::error::{Error, Result};
use crate::base::gemm_names::{GemmAlgorithm, GemmTransport};
use crate::base::names::MatrixOrder;
use crate::buffer::slice::Slice;
use crate::collectives::options::CollectiveOptions;
use crate::gemm::check::{Stride, check_matrix};
use crate::gemm::matrix::{GemmElement, Operands};
use crate::gemm::operation::AllGatherGemm;
use crate::gemm::options::NAME;
use crate::group::provider::Provider;
use crate::rank::memory_range::MemoryRange;
use crate::rank::submit::Submit;
use crate::stream::queue::Queue;

/// A call of an operation.
pub(super) struct Call<'a, T: GemmElement> {
    pub(super) queue: &'a Queue,
    pub(super) operation: &'a AllGatherGemm<T>,
    pub(super) operands: &'a Operands<'a, T>,
    /// The symmetric range of this rank's shard and its peers'.
    pub(super) a: MemoryRange<'a>,
    /// The gathered `A`; this rank's shard if nothing is gathered.
    pub(super) gathered: MemoryRange<'a>,
}

impl<'a, T: GemmElement> Call<'a, T> {
    /// Bytes per element.
    pub(super) const ELEMENT: u64 = size_of::<T>() as u64;

    /// Checks the matrices of a call. In debug mode also compares the call with those of the other ranks; if
    /// this rank's matrices are refused, the others learn it that way.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`], which names what differs from the operation's shape; in debug mode
    /// [`crate::Error::Mismatch`] if ranks differ.
    pub(super) fn new(
        queue: &'a Queue,
        operation: &'a AllGatherGemm<T>,
        operands: &'a Operands<'a, T>,
    ) -> Result<Self> {
        let validated = Self::validate(queue, operation, operands);
        if operation.problem.world == 1 || !queue.world().collectives.check_calls {
            return validated;
        }
        let compared = compare(queue, operation, operands, validated.as_ref().err());
        // This rank's own error is more precise than the comparison's.
        let call = validated?;
        compared.map(|()| call)
    }

    fn validate(
        queue: &'a Queue,
        operation: &'a AllGatherGemm<T>,
        operands: &'a Operands<'a, T>,
    ) -> Result<Self> {
        let shape = &operation.shape;
        let invalid = |message: String| Err(queue.invalid(NAME, message));
        let place = |range: Slice<'a, T>, what: &str, expected: usize| {
            queue.check_same(range.world(), NAME)?;
            if range.len() != expected {
                let found = range.len();
                let message = format!("{what} has {found} elements; this shape needs {expected}");
                return Err(queue.invalid(NAME, message));
            }
            Ok(range.memory())
        };
        let world = operation.problem.world;
        let a = place(operands.a, "the shard of A", shape.shard_elements(world))?;
        let gathered = match (operands.gathered, operation.options.gathered) {
            (Some(range), true) => place(range, "the gathered A", shape.gathered_elements())?,
            (None, false) => match &operation.workspace().gathered {
                Some(allocation) => MemoryRange::new(allocation, 0, allocation.bytes()),
                None => a,
            },
            (given, _) => {
                let (given, expected) = match given {
                    Some(_) => ("a", "without"),
                    None => ("no", "with"),
                };
                return invalid(format!(
                    "the call passes {given} buffer for the gathered A, but the operation was made {expected} one \
                     (`GemmOptions::gathered`)"
                ));
            }
        };
        let b = (shape.k, shape.n, shape.b_stride.into(), shape.b_order);
        check_matrix((queue, NAME), "B", Some(&operands.b), Some(b))?;
        for (what, matrix, expected) in [
            (
                "C",
                Some(&operands.c),
                Some((shape.m, shape.n, shape.c_stride.into(), MatrixOrder::Rows)),
            ),
            (
                "the bias",
                operands.bias.as_ref(),
                shape
                    .bias
                    .then_some((1, shape.n, Stride::OfOneLine, MatrixOrder::Rows)),
            ),
        ] {
            check_matrix((queue, NAME), what, matrix, expected)?;
        }
        if let Some(scale) = &operands.scale {
            if !operation.layout().takes_scale() {
                let name = T::TYPE.name();
                return invalid(format!(
                    "a scale was passed, but matrices of {name} take none; leave it out"
                ));
            }
            let one = (1, 1, Stride::OfOneLine, MatrixOrder::Rows);
            check_matrix((queue, NAME), "the scale", Some(scale), Some(one))?;
        }
        let call = Self {
            queue,
            operation,
            operands,
            a,
            gathered,
        };
        call.check_overlap()?;
        call.check_alignment()?;
        Ok(call)
    }

    /// Refuses matrices whose alignment the gathering kernel cannot load, or the GEMM library if they are of 8-bit floats, before
    /// this rank has begun the call.
    fn check_alignment(&self) -> Result<()> {
        /// Bytes at whose multiples cuBLASLt takes 8-bit floats.
        const OF_F8: u64 = 16;
        let (operation, rank) = (self.operation, self.operation.problem.rank);
        let by_kernel = operation.problem.world > 1
            && matches!(
                operation.problem.algorithm,
                GemmAlgorithm::Pull | GemmAlgorithm::Push
            );
        let selector = &self.queue.world().collectives.selector;
        let (needs, alignment) = match by_kernel {
            true => ("the fused kernel", operation.limits.alignment.into()),
            false if operation.layout().takes_scale() && selector.has_grids() => {
                ("the GEMM library", OF_F8)
            }
            false => return Ok(()),
        };
        let Operands { b, c, bias, .. } = self.operands;
        let loaded = [
            ("the shard of A", self.a.start(rank)),
            ("the gathered A", self.gathered.start(rank)),
            ("B", b.start()),
        ];
        let of_output = [
            ("C", Some(c.start())),
            ("the bias", bias.as_ref().map(|bias| bias.start())),
        ];
        let of_output = of_output.into_iter().filter(|_| !by_kernel);
        let of_output = of_output.filter_map(|(what, start)| Some((what, start?)));
        for (what, address) in loaded.into_iter().chain(of_output) {
            if alignment > 1 && !address.is_multiple_of(alignment) {
                let message = format!(
                    "{what} starts at {address:#x}; {needs} needs it at a multiple of {alignment} bytes"
                );
                return Err(self.queue.invalid(NAME, message));
            }
        }
        Ok(())
    }

    /// Refuses written ranges that overlap another operand.
    fn check_overlap(&self) -> Result<()> {
        let (rank, operands) = (self.operation.problem.rank, self.operands);
        let of = |place: MemoryRange<'_>, elements: usize| {
            let start = place.start(rank);
            start..start + elements as u64 * Self::ELEMENT
        };
        let a = of(self.a, operands.a.len());
        let gathered = operands
            .gathered
            .map(|range| of(self.gathered, range.len()));
        let b = operands.b.extent();
        let bias = operands.bias.map(|bias| bias.extent());
        let scale = operands.scale.map(|scale| scale.extent());
        let c = operands.c.extent();
        let written = [("C", Some(&c)), ("the gathered A", gathered.as_ref())];
        let all = [
            ("the shard of A", Some(&a)),
            ("B", Some(&b)),
            ("the bias", bias.as_ref()),
            ("the scale", scale.as_ref()),
            ("the gathered A", gathered.as_ref()),
        ];
        for (written, one) in written {
            for (what, other) in all {
                let (Some(one), Some(other)) = (one, other) else {
                    continue;
                };
                if written != what && one.start < other.end && other.start < one.end {
                    let message = format!(
                        "{written}, which is written, overlaps {what}; pass disjoint ranges"
                    );
                    return Err(self.queue.invalid(NAME, message));
                }
            }
        }
        Ok(())
    }

    /// Makes the recorded graph, if there is one, hold the resources of the call.
    pub(super) fn hold(&self, submit: &Submit<'_>) {
        submit.hold(self.operation.workspace());
        let Operands {
            b, c, bias, scale, ..
        } = self.operands;
        b.address(submit);
        for matrix in [Some(c), bias.as_ref()].into_iter().flatten() {
            matrix.address(submit);
        }
        if let Some(scale) = scale {
            scale.address(submit);
        }
        for memory in [&self.a, &self.gathered] {
            submit.address(memory, submit.rank());
        }
    }

    /// Gathers all shards by a collective.
    pub(super) fn gather(&self) -> Result<()> {
        let problem = &self.operation.problem;
        let mut counts = [0; MAX_RANKS];
        for (rank, count) in counts.iter_mut().enumerate().take(problem.world) {
            *count = problem.division.elements(rank) as usize;
        }
        let counts = &counts[..problem.world];
        let bytes = |elements: usize| elements as u64 * Self::ELEMENT;
        let total = bytes(counts.iter().sum());
        let destination = match &self.operation.workspace().staging {
            Some(staging) => MemoryRange::new(staging, 0, total),
            None => self.gathered.part(0, total),
        };
        let source = self.a.part(0, bytes(counts[problem.rank]));
        let options = collective_options(self.operation);
        let counted = (counts, Self::ELEMENT);
        self.queue
            .gather_shards(destination, source, counted, &options)
    }
}

/// Returns the options of a call's comparison and gather.
fn collective_options<T: GemmElement>(operation: &AllGatherGemm<T>) -> CollectiveOptions<'static> {
    let nccl = operation.problem.transport == GemmTransport::Nccl
        && operation.problem.algorithm == GemmAlgorithm::Baseline;
    CollectiveOptions {
        provider: if nccl {
            Provider::Nccl
        } else {
            Provider::Symmem
        },
        channel: operation.options.channel,
        deadline: operation.options.deadline,
        ..CollectiveOptions::default()
    }
}

/// Compares a call with those of the other ranks. `refusal` is the error in this rank's matrices, if there is
/// one; no rank goes on then.
fn compare<T: GemmElement>(
    queue: &Queue,
    operation: &AllGatherGemm<T>,
    operands: &Operands<'_, T>,
    refusal: Option<&Error>,
) -> Result<()> {
    let whose = |range: Slice<'_, T>| {
        let (offset, number) = (range.memory().offset(), range.number());
        format!("byte {offset} of buffer {number}")
    };
    let shape = operation.shape;
    queue.compare_call(
        NAME,
        &collective_options(operation),
        &[
            (
                "the matrices",
                refusal.map_or_else(|| "valid".into(), Error::to_string),
            ),
            ("the shape", format!("{shape:?}")),
            ("the shard of A", whose(operands.a)),
            (
                "the gathered A",
                operands
                    .gathered
                    .map_or_else(|| "the operation's own".into(), whose),
            ),
        ],
    )
}
