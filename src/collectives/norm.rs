//! All-reduce of rows with a residual and a norm: what a program asks for.

use crate::backend::abi::{NormCode, QuantizationCode};
use crate::base::element::{Element, F8E4M3};
use crate::base::error::Result;
use crate::base::reducible::Reducible;
use crate::buffer::operand::Operand;
use crate::buffer::slice::UntypedSlice;
use crate::collectives::api::Collectives;
use crate::collectives::options::CollectiveOptions;
use crate::collectives::run::norm::NormRequest;
use crate::rank::memory_range::MemoryRange;
use crate::stream::queue::Queue;

/// An element type of rows that are normalised: `half::bf16`, `half::f16` and `f32`.
pub trait NormElement: Reducible {}

impl NormElement for half::bf16 {}
impl NormElement for half::f16 {}
impl NormElement for f32 {}

/// What [`Collectives::all_reduce_norm`] does with a sum of rows: it adds a residual, and normalises each row.
///
/// ```no_run
/// # use symmem::*;
/// # type T = half::bf16;
/// # fn f(stream: &Stream, x: &SymmetricBuffer<T>, residual: &SymmetricBuffer<T>, weight: &SymmetricBuffer<T>) -> Result<()> {
/// // `residual` becomes the sum of all ranks' `x` and of `residual`, and `x` its norm.
/// let norm = RowNorm::root_mean_square(weight, 1e-5).residual(residual, residual);
/// stream.all_reduce_norm(x, x, weight.len(), &norm)
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RowNorm<'a, T: Element> {
    norm: NormCode,
    weight: Option<Operand<'a, T>>,
    bias: Option<Operand<'a, T>>,
    epsilon: f32,
    weight_offset: f32,
    residual: Option<[Operand<'a, T>; 2]>,
    sharded: bool,
}

impl<'a, T: NormElement> RowNorm<'a, T> {
    /// No norm: the sum is left as it is, with a residual if there is one.
    pub fn none() -> Self {
        Self {
            norm: NormCode::NONE,
            weight: None,
            bias: None,
            epsilon: 0.0,
            weight_offset: 0.0,
            residual: None,
            sharded: false,
        }
    }

    /// RMSNorm: `y · weight / √(mean of y² + epsilon)`, over the elements of a row. `weight` has a row's elements.
    pub fn root_mean_square(weight: impl Into<Operand<'a, T>>, epsilon: f32) -> Self {
        Self {
            norm: NormCode::ROOT_MEAN_SQUARE,
            weight: Some(weight.into()),
            epsilon,
            ..Self::none()
        }
    }

    /// LayerNorm: `(y - mean) · weight / √(variance + epsilon) + bias`, over the elements of a row. `weight` and `bias` have a
    /// row's elements.
    pub fn layer(
        weight: impl Into<Operand<'a, T>>,
        bias: impl Into<Operand<'a, T>>,
        epsilon: f32,
    ) -> Self {
        Self {
            norm: NormCode::LAYER,
            weight: Some(weight.into()),
            bias: Some(bias.into()),
            epsilon,
            ..Self::none()
        }
    }

    /// Adds `offset` to each weight: 1 where weights are stored as differences from 1.
    pub fn weight_offset(mut self, offset: f32) -> Self {
        self.weight_offset = offset;
        self
    }

    /// Adds `source`, which has all rows and the same elements at all ranks, to the sum, and stores the result in `destination`
    /// too, which may be `source`. The norm is of the stored, rounded result.
    pub fn residual(
        mut self,
        source: impl Into<Operand<'a, T>>,
        destination: impl Into<Operand<'a, T>>,
    ) -> Self {
        self.residual = Some([source.into(), destination.into()]);
        self.sharded = false;
        self
    }

    /// The same with a residual of which each rank has the rows that it owns only: `rows.div_ceil(ranks)` rows of `hidden` elements
    /// from number rank · `rows.div_ceil(ranks)` on, as far as there are so many, as a reduce-scatter would divide them. A rank may
    /// own fewer, or none, and then passes so many.
    ///
    /// The owner of a row adds the residual, normalises, and sends the result to all. So a residual is read and written once, and
    /// of 16 MiB on a group of two saves a fifth of the time and more. With few rows, a residual of all rows is faster: the rows
    /// then cross the links once.
    pub fn residual_shard(
        self,
        source: impl Into<Operand<'a, T>>,
        destination: impl Into<Operand<'a, T>>,
    ) -> Self {
        Self {
            sharded: true,
            ..self.residual(source, destination)
        }
    }
}

impl<'a, T: NormElement> RowNorm<'a, T> {
    /// Returns the request of a call of `name`, whose results have the rows' type.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] for a buffer of another communicator.
    pub(crate) fn request(
        &self,
        queue: &Queue,
        name: &'static str,
        (destination, source): (MemoryRange<'a>, MemoryRange<'a>),
        hidden: usize,
    ) -> Result<NormRequest<'a>> {
        let [weight, bias] = [self.weight, self.bias].map(|one| one.map(|one| one.untyped()));
        let residual = self.residual.map(|both| both.map(|one| one.untyped()));
        for slice in [weight, bias]
            .into_iter()
            .chain(residual.map_or([None; 2], |both| both.map(Some)))
        {
            slice.map_or(Ok(()), |slice| queue.check_same(slice.world, name))?;
        }
        Ok(NormRequest {
            name,
            element: T::TYPE.into(),
            hidden: hidden as u64,
            destination,
            source,
            residual: residual.map(|both| both.map(|one| one.memory)),
            sharded: self.sharded,
            weight: weight.map(|one| one.memory),
            bias: bias.map(|one| one.memory),
            norm: self.norm,
            epsilon: self.epsilon,
            weight_offset: self.weight_offset,
            quantization: QuantizationCode::NONE,
            scales: None,
        })
    }
}

/// The scales with which results become 8-bit numbers: a result is multiplied by its scale's inverse, and rounded to the nearest number of the
/// type; what is too large becomes the largest number, 448.
#[derive(Clone, Copy, Debug)]
pub enum Scales<'a> {
    /// One scale for all, which is read.
    Tensor(Operand<'a, f32>),
    /// A scale for each row, which is written: the row's largest magnitude, at least 1e-10, divided by 448.
    Rows(Operand<'a, f32>),
    /// The same for each 128 adjacent elements of a row.
    Groups(Operand<'a, f32>),
}

impl<'a> Scales<'a> {
    fn parts(&self) -> (QuantizationCode, UntypedSlice<'a>) {
        match self {
            Self::Tensor(scales) => (QuantizationCode::TENSOR, scales.untyped()),
            Self::Rows(scales) => (QuantizationCode::ROW, scales.untyped()),
            Self::Groups(scales) => (QuantizationCode::GROUP, scales.untyped()),
        }
    }
}

impl Collectives<'_> {
    /// Sums `source` of all ranks, adds a residual and normalises each row of `hidden` elements into `destination`, at all
    /// ranks, in one kernel: what ends each half of a tensor-parallel transformer's layer.
    ///
    /// All matrices are row-major without gaps, and each may be symmetric memory or a [`DeviceSlice`](crate::DeviceSlice), at any
    /// address. `destination` may be `source`, and the residual's destination its source; nothing else that is written may
    /// overlap. Sums are in f32; the sum with the residual is rounded once, and the norm of the rounded sum once. All ranks get
    /// the same bits if their residuals and weights are the same.
    ///
    /// The sum travels in Lamport packets, in as many kernels as their inboxes need. Only channel 0 has such inboxes. With a
    /// residual that is divided ([`RowNorm::residual_shard`]), and without any for 1 MiB or more between more than two ranks, it is
    /// two-shot: each rank sums and normalises its own rows only, and sends them to all. Otherwise it is one-shot. Of the options, `algorithm`, `provider` and `concurrent` have no meaning here.
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] if lengths do not fit together, ranges overlap, a number is not finite, a row is longer
    /// than an inbox, or the options cannot be met; otherwise as [`Collectives::all_reduce`].
    pub fn all_reduce_norm<'a, T: NormElement>(
        &self,
        destination: impl Into<Operand<'a, T>>,
        source: impl Into<Operand<'a, T>>,
        hidden: usize,
        norm: &RowNorm<'a, T>,
    ) -> Result<()> {
        let slices = (destination.into().untyped(), source.into().untyped());
        self.run_norm("all_reduce_norm", slices, hidden, norm, None)
    }

    /// [`Collectives::all_reduce_norm`] with results of 8 bits.
    ///
    /// # Errors
    /// As [`Collectives::all_reduce_norm`]; [`crate::Error::InvalidArgument`] also if there are not as many scales as needed,
    /// rows are no multiple of 128 with [`Scales::Groups`], or the residual is divided ([`RowNorm::residual_shard`]).
    pub fn all_reduce_norm_f8<'a, T: NormElement>(
        &self,
        destination: impl Into<Operand<'a, F8E4M3>>,
        scales: Scales<'a>,
        source: impl Into<Operand<'a, T>>,
        hidden: usize,
        norm: &RowNorm<'a, T>,
    ) -> Result<()> {
        let slices = (destination.into().untyped(), source.into().untyped());
        self.run_norm("all_reduce_norm_f8", slices, hidden, norm, Some(&scales))
    }

    fn run_norm<'a, T: NormElement>(
        &self,
        name: &'static str,
        (destination, source): (UntypedSlice<'a>, UntypedSlice<'a>),
        hidden: usize,
        norm: &RowNorm<'a, T>,
        scales: Option<&Scales<'a>>,
    ) -> Result<()> {
        let queue = self.queue;
        let scales = scales.map(Scales::parts);
        for slice in [
            Some(destination),
            Some(source),
            scales.map(|(_, slice)| slice),
        ] {
            slice.map_or(Ok(()), |slice| queue.check_same(slice.world, name))?;
        }
        let memory = (destination.memory, source.memory);
        let request = norm.request(queue, name, memory, hidden)?;
        queue.all_reduce_norm_of(
            &NormRequest {
                quantization: scales.map_or(QuantizationCode::NONE, |(kind, _)| kind),
                scales: scales.map(|(_, slice)| slice.memory),
                ..request
            },
            self.options,
        )
    }
}

impl Queue {
    /// [`Collectives::all_reduce_norm`] with default options.
    ///
    /// # Errors
    /// As [`Collectives::all_reduce_norm`].
    pub fn all_reduce_norm<'a, T: NormElement>(
        &self,
        destination: impl Into<Operand<'a, T>>,
        source: impl Into<Operand<'a, T>>,
        hidden: usize,
        norm: &RowNorm<'a, T>,
    ) -> Result<()> {
        self.with(&CollectiveOptions::default())
            .all_reduce_norm(destination, source, hidden, norm)
    }

    /// [`Collectives::all_reduce_norm_f8`] with default options.
    ///
    /// # Errors
    /// As [`Collectives::all_reduce_norm_f8`].
    pub fn all_reduce_norm_f8<'a, T: NormElement>(
        &self,
        destination: impl Into<Operand<'a, F8E4M3>>,
        scales: Scales<'a>,
        source: impl Into<Operand<'a, T>>,
        hidden: usize,
        norm: &RowNorm<'a, T>,
    ) -> Result<()> {
        self.with(&CollectiveOptions::default()).all_reduce_norm_f8(
            destination,
            scales,
            source,
            hidden,
            norm,
        )
    }
}
