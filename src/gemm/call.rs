//! A call: its matrices, checked.

use crate::backend::abi::*;
use crate::base::error::{Error, Result};
use crate::buffer::symmetric::BufferRange;
use crate::collectives::call::CollectiveOptions;
use crate::collectives::launch::{GatherCall, keep};
use crate::gemm::matrix::{GemmElement, Matrix, Operands};
use crate::gemm::operation::{AllGatherGemm, NAME};
use crate::gemm::options::{GemmAlgorithm, GemmTransport};
use crate::group::provider::Provider;
use crate::rank::allocation::Allocation;
use crate::rank::context::Kept;
use crate::stream::transfers::Stream;
use std::sync::Arc;

/// Where something symmetric lies: the same offset at all ranks.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) allocation: &'a Arc<Allocation>,
    pub(super) offset: u64,
}

impl Place<'_> {
    /// A rank's byte of it.
    pub(super) fn at(&self, rank: usize, bytes: u64) -> DeviceAddress {
        self.allocation.at(rank, self.offset + bytes)
    }
}

/// A call of an operation.
pub(super) struct Call<'a, T: GemmElement> {
    pub(super) stream: &'a Stream,
    pub(super) operation: &'a AllGatherGemm<T>,
    pub(super) operands: &'a Operands<'a, T>,
    /// This rank's shard, and its peers'.
    pub(super) a: Place<'a>,
    /// The gathered `A`; this rank's shard where nothing is gathered.
    pub(super) gathered: Place<'a>,
}

impl<'a, T: GemmElement> Call<'a, T> {
    /// Bytes of an element.
    pub(super) const ELEMENT: u64 = size_of::<T>() as u64;

    /// Checks the matrices of a call; in debug mode compares it with those of the other ranks, which hear of it
    /// so if this rank's matrices are refused.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] names what is not as the operation was made for; in debug mode
    /// [`crate::Error::Mismatch`] where ranks differ.
    pub(super) fn new(
        stream: &'a Stream,
        operation: &'a AllGatherGemm<T>,
        operands: &'a Operands<'a, T>,
    ) -> Result<Self> {
        let judged = Self::judge(stream, operation, operands);
        if operation.problem.world == 1 || !stream.shared().collectives().check_calls {
            return judged;
        }
        let compared = compare(stream, operation, operands, judged.as_ref().err());
        // This rank knows best what it got wrong itself.
        let call = judged?;
        compared.map(|()| call)
    }

    fn judge(
        stream: &'a Stream,
        operation: &'a AllGatherGemm<T>,
        operands: &'a Operands<'a, T>,
    ) -> Result<Self> {
        let shape = &operation.shape;
        let invalid = |message: String| Err(stream.invalid(NAME, message));
        let place = |range: BufferRange<'a, T>, what: &str, expected: usize| {
            stream.check_same(range.buffer().shared(), NAME)?;
            if range.len() != expected {
                let found = range.len();
                let message = format!("{what} has {found} elements; this shape takes {expected}");
                return Err(stream.invalid(NAME, message));
            }
            Ok(Place {
                allocation: range.buffer().allocation(),
                offset: range.byte_offset(),
            })
        };
        let world = operation.problem.world;
        let a = place(operands.a, "the shard of A", shape.shard_elements(world))?;
        let gathered = match (operands.gathered, operation.options.gathered) {
            (Some(range), true) => place(range, "the gathered A", shape.gathered_elements())?,
            (None, false) => match &operation.workspace().gathered {
                Some(allocation) => Place {
                    allocation,
                    offset: 0,
                },
                None => a,
            },
            (given, _) => {
                let (given, expected) = match given {
                    Some(_) => ("is", "made without"),
                    None => ("is no", "made for"),
                };
                return invalid(format!(
                    "there {given} buffer for the gathered A; the operation was {expected} one"
                ));
            }
        };
        for (what, matrix, expected) in [
            (
                "B",
                Some(&operands.b),
                Some((shape.k, shape.n, shape.b_stride, shape.b_order)),
            ),
            (
                "C",
                Some(&operands.c),
                Some((shape.m, shape.n, shape.c_stride, MatrixOrder::ROWS)),
            ),
            (
                "the bias",
                operands.bias.as_ref(),
                shape.bias.then_some((1, shape.n, None, MatrixOrder::ROWS)),
            ),
        ] {
            check_matrix(stream, what, matrix, expected)?;
        }
        let call = Self {
            stream,
            operation,
            operands,
            a,
            gathered,
        };
        call.check_overlap()?;
        call.check_alignment()?;
        Ok(call)
    }

    /// Refuses matrices that the kernel that gathers cannot fetch, before this rank has begun with the call.
    fn check_alignment(&self) -> Result<()> {
        let problem = &self.operation.problem;
        let kernel = matches!(problem.algorithm, GemmAlgorithm::Pull | GemmAlgorithm::Push);
        let alignment = u64::from(self.operation.limits.alignment).max(1);
        for (what, address) in [
            ("the shard of A", self.a.at(problem.rank, 0)),
            ("the gathered A", self.gathered.at(problem.rank, 0)),
            ("B", self.operands.b.address),
        ] {
            if kernel && problem.world > 1 && !address.0.is_multiple_of(alignment) {
                let message = format!(
                    "{what} begins at {:#x}; for the kernel that gathers it has to begin at a multiple of \
                     {alignment} bytes",
                    address.0
                );
                return Err(self.stream.invalid(NAME, message));
            }
        }
        Ok(())
    }

    /// Refuses what is written where something else is.
    fn check_overlap(&self) -> Result<()> {
        let (rank, operands) = (self.operation.problem.rank, self.operands);
        let of = |place: Place<'_>, elements: usize| {
            let start = place.at(rank, 0).0;
            start..start + elements as u64 * Self::ELEMENT
        };
        let a = of(self.a, operands.a.len());
        let gathered = operands
            .gathered
            .map(|range| of(self.gathered, range.len()));
        let b = operands.b.extent();
        let bias = operands.bias.map(|bias| bias.extent());
        let c = operands.c.extent();
        let written = [("C", Some(&c)), ("the gathered A", gathered.as_ref())];
        let all = [
            ("the shard of A", Some(&a)),
            ("B", Some(&b)),
            ("the bias", bias.as_ref()),
            ("the gathered A", gathered.as_ref()),
        ];
        for (written, one) in written {
            for (what, other) in all {
                let (Some(one), Some(other)) = (one, other) else {
                    continue;
                };
                if written != what && one.start < other.end && other.start < one.end {
                    let message = format!("{written}, which is written, overlaps {what}");
                    return Err(self.stream.invalid(NAME, message));
                }
            }
        }
        Ok(())
    }

    /// What a graph has to keep.
    pub(super) fn uses(&self) -> Vec<Kept> {
        let mut uses = keep(&[self.a.allocation, self.gathered.allocation]);
        uses.push(self.operation.workspace().clone());
        let Operands { b, c, bias, .. } = self.operands;
        let matrices = [Some(b), Some(c), bias.as_ref()].into_iter().flatten();
        let buffers = matrices.filter_map(|matrix| matrix.buffer);
        uses.extend(buffers.map(|(_, allocation)| allocation.clone() as Kept));
        uses
    }

    /// Gathers all shards by a collective.
    pub(super) fn gather(&self) -> Result<()> {
        let problem = &self.operation.problem;
        let mut counts = [0; MAX_RANKS];
        for (rank, count) in counts.iter_mut().enumerate().take(problem.world) {
            *count = problem.division.elements(rank) as usize;
        }
        let staging = self.operation.workspace().staging.as_ref();
        let (allocation, offset) = match staging {
            Some(staging) => (staging, 0),
            None => (self.gathered.allocation, self.gathered.offset),
        };
        self.stream.gather_shards(&GatherCall {
            destination: (allocation, offset),
            source: (self.a.allocation, self.a.offset),
            counts: &counts[..problem.world],
            element_bytes: Self::ELEMENT,
            options: &collective_options(self.operation),
        })
    }
}

/// What a call's comparison and its gather are done with.
fn collective_options<T: GemmElement>(operation: &AllGatherGemm<T>) -> CollectiveOptions<'static> {
    let vendor = operation.problem.transport == GemmTransport::Vendor
        && operation.problem.algorithm == GemmAlgorithm::Baseline;
    CollectiveOptions {
        provider: if vendor {
            Provider::Vendor
        } else {
            Provider::Own
        },
        channel: operation.options.channel,
        deadline: operation.options.deadline,
        ..CollectiveOptions::default()
    }
}

/// Compares a call with those of the other ranks. `refusal` is why this rank's matrices are refused, if they
/// are: no rank goes on then.
fn compare<T: GemmElement>(
    stream: &Stream,
    operation: &AllGatherGemm<T>,
    operands: &Operands<'_, T>,
    refusal: Option<&Error>,
) -> Result<()> {
    let whose = |range: BufferRange<'_, T>| {
        let (offset, number) = (range.byte_offset(), range.buffer().allocation().number);
        format!("byte {offset} of buffer {number}")
    };
    let shape = operation.shape;
    stream.compare_call(
        NAME,
        &collective_options(operation),
        &[
            (
                "the matrices",
                refusal.map_or_else(|| "in order".into(), Error::to_string),
            ),
            ("the shape", format!("{shape:?}")),
            ("the shard of A", whose(operands.a)),
            (
                "the gathered A",
                operands
                    .gathered
                    .map_or_else(|| "the operation's".into(), whose),
            ),
        ],
    )
}

fn check_matrix<T: GemmElement>(
    stream: &Stream,
    what: &str,
    matrix: Option<&Matrix<'_, T>>,
    expected: Option<(usize, usize, Option<usize>, MatrixOrder)>,
) -> Result<()> {
    let invalid = |message: String| Err(stream.invalid(NAME, message));
    let (matrix, (rows, columns, stride, order)) = match (matrix, expected) {
        (Some(matrix), Some(expected)) => (matrix, expected),
        (None, None) => return Ok(()),
        (Some(_), None) => return invalid(format!("the operation was made without {what}")),
        (None, Some(_)) => return invalid(format!("the operation was made with {what}")),
    };
    if let Some((shared, _)) = matrix.buffer {
        stream.check_same(shared, NAME)?;
    }
    let width = match order {
        MatrixOrder::COLUMNS => rows,
        _ => columns,
    };
    let stride = stride.unwrap_or(width);
    // The stride of one line means nothing; but in columns a bias is as many lines as it has elements.
    let single = matrix.order == MatrixOrder::ROWS || matrix.stride == 1 || columns == 1;
    let alike = (matrix.rows, matrix.columns) == (rows, columns)
        && match what {
            "the bias" => single,
            _ => (matrix.order, matrix.stride) == (order, stride),
        };
    if !alike {
        return invalid(format!(
            "{what} is {matrix:?}; the operation was made for {rows} x {columns}, {}, stride {stride}",
            order.name()
        ));
    }
    if !matrix.address.0.is_multiple_of(size_of::<T>() as u64) {
        return invalid(format!("{what} is not aligned to its elements"));
    }
    Ok(())
}
