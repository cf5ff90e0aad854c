//! An all-reduce of rows with a residual and a norm, as a case.

use crate::dtype::Dtype;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;
use symmem::backend::abi::LAMPORT_BUFFERS;

/// The norm, as data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NormName {
    /// [`symmem::RowNorm::none`].
    None,
    /// [`symmem::RowNorm::root_mean_square`].
    RootMeanSquare,
    /// [`symmem::RowNorm::layer`].
    Layer,
}

impl NormName {
    /// All norms.
    pub const ALL: [Self; 3] = [Self::None, Self::RootMeanSquare, Self::Layer];
}

/// The type of the results, and their scales.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum NormOutput {
    /// The type of the rows.
    Same,
    /// 8 bits with one scale, which is given.
    Tensor,
    /// 8 bits with a scale for each row.
    Rows,
    /// 8 bits with a scale for each 128 elements of a row.
    Groups,
}

impl NormOutput {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Same, Self::Tensor, Self::Rows, Self::Groups];
    /// Elements of a group of [`NormOutput::Groups`].
    pub const GROUP: usize = 128;

    /// Returns the number of elements that share a scale, for a matrix of `rows` rows of `hidden` elements.
    pub(super) fn width(self, rows: usize, hidden: usize) -> usize {
        match self {
            Self::Same | Self::Tensor => rows * hidden,
            Self::Rows => hidden,
            Self::Groups => Self::GROUP,
        }
    }
}

/// Whether a residual is added, and where the sum with it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ResidualUse {
    /// No residual.
    Absent,
    /// The sum goes to memory of its own.
    Apart,
    /// The sum replaces the residual.
    InPlace,
}

impl ResidualUse {
    /// All uses.
    pub const ALL: [Self; 3] = [Self::Absent, Self::Apart, Self::InPlace];
}

/// One all-reduce of rows with a norm, called several times.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NormCase {
    /// Type of the rows: bf16, f16 or f32.
    pub dtype: Dtype,
    /// The norm.
    pub norm: NormName,
    /// The type of the results, and their scales.
    pub output: NormOutput,
    /// The residual.
    pub residual: ResidualUse,
    /// Whether each rank has its own rows of the residual only. Results of 8 bits do not allow it.
    #[serde(default)]
    pub sharded: bool,
    /// Whether the results replace the source. Results of 8 bits never do.
    pub in_place: bool,
    /// Number of rows.
    pub rows: usize,
    /// Elements of a row.
    pub hidden: usize,
    /// Distance of each matrix from a 256-byte boundary, in elements.
    pub offset: usize,
    /// Whether all memory is memory that only its rank knows ([`symmem::DeviceSlice`]).
    pub own: bool,
    /// Whether weights are stored as differences from 1.
    pub from_one: bool,
    /// Blocks of the grid; 0 for the library's choice.
    pub blocks: u32,
    /// Threads of a block; 0 for the library's choice.
    pub threads: u32,
    /// Whether the call is captured and replayed.
    pub captured: bool,
    /// Seeds the data.
    pub seed: u64,
}

impl NormCase {
    /// Returns a call of the given type and size with default options.
    pub(super) fn plain(dtype: Dtype, (rows, hidden): (usize, usize), seed: u64) -> Self {
        Self {
            dtype,
            norm: NormName::RootMeanSquare,
            output: NormOutput::Same,
            residual: ResidualUse::InPlace,
            sharded: false,
            in_place: true,
            rows,
            hidden,
            offset: 0,
            own: false,
            from_one: false,
            blocks: 0,
            threads: 0,
            captured: false,
            seed,
        }
    }

    /// Returns the number of elements of a matrix.
    pub(super) fn elements(&self) -> usize {
        self.rows * self.hidden
    }

    /// Returns the elements of the residual that a rank of `world` has.
    pub(super) fn residual_of(&self, rank: usize, world: usize) -> Range<usize> {
        if !self.sharded {
            return 0..self.elements();
        }
        let each = self.rows.div_ceil(world);
        let [first, end] = [rank, rank + 1].map(|rank| (rank * each).min(self.rows));
        first * self.hidden..end * self.hidden
    }

    /// Returns the number of scales; 0 for results of the rows' type.
    pub(super) fn scales(&self) -> usize {
        match self.output {
            NormOutput::Same => 0,
            output => self.elements() / output.width(self.rows, self.hidden),
        }
    }

    /// Returns why some backend's inboxes may be too small for a row in a group of `world` ranks; `None` if none are.
    pub(crate) fn missing(&self, world: usize) -> Option<String> {
        /// An inbox of the host backend, which has the smallest.
        const INBOX_BYTES: usize = 1 << 20;
        let bytes = (self.hidden * self.dtype.size()).next_multiple_of(16);
        let parts = LAMPORT_BUFFERS as usize * world.saturating_sub(1);
        // Parts begin at multiples of 128 bytes.
        // Two-shot, a part has the row and its result.
        let taken = if self.sharded { 2 * bytes } else { bytes };
        (parts * (taken + 128) > INBOX_BYTES).then(|| {
            format!("a row of {bytes} bytes may be longer than an inbox in a group of {world}")
        })
    }
}

impl fmt::Display for NormCase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, hidden, .. } = self;
        let (norm, output, dtype) = (self.norm, self.output, self.dtype);
        write!(
            formatter,
            "Norm/{norm:?}/{output:?}/{dtype:?}/{rows}x{hidden}"
        )?;
        if self.residual != ResidualUse::Absent {
            write!(formatter, "/residual-{:?}", self.residual)?;
        }
        for (is, what) in [
            (self.sharded, "sharded"),
            (self.in_place, "in-place"),
            (self.own, "own"),
            (self.from_one, "from-1"),
            (self.captured, "graph"),
        ] {
            if is {
                write!(formatter, "/{what}")?;
            }
        }
        write!(
            formatter,
            "/+{}/{}x{}",
            self.offset, self.blocks, self.threads
        )
    }
}
