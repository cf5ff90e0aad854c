//! Lengths and offsets of cases.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A number of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Length {
    /// Exactly this number.
    Elements(usize),
    /// As many elements as fit into `bytes`, plus `delta`.
    Around {
        /// Size in bytes, a multiple of every element size.
        bytes: usize,
        /// Elements to add, or to subtract if negative.
        delta: isize,
    },
    /// As many elements as fit into one rank's share of `bytes`, rounded down to 16-byte vectors, plus `delta`.
    Shared {
        /// Size of all ranks' shares together, in bytes.
        bytes: usize,
        /// Elements to add, or to subtract if negative.
        delta: isize,
    },
}

impl Length {
    /// Lengths around the sizes at which kernels change their behavior: a 16-byte vector, one vector
    /// per thread of a warp and of a block, a page, a few stages of bulk copies, and an odd megabyte.
    pub const ALL: [Self; 20] = [
        Self::Elements(0),
        Self::Elements(1),
        Self::Elements(2),
        Self::Elements(3),
        Self::Elements(7),
        Self::Elements(15),
        Self::Elements(16),
        Self::Elements(17),
        Self::Elements(31),
        Self::Elements(33),
        Self::Elements(127),
        Self::Elements(129),
        Self::Elements(1000),
        Self::around(4 << 10, -1),
        Self::around(4 << 10, 0),
        Self::around(4 << 10, 1),
        Self::around(64 << 10, -1),
        Self::around(64 << 10, 0),
        Self::around(64 << 10, 1),
        Self::around(1 << 20, 3),
    ];

    const fn around(bytes: usize, delta: isize) -> Self {
        Self::Around { bytes, delta }
    }

    /// Returns the number of elements of `size` bytes in a world of one rank.
    pub fn elements(self, size: usize) -> usize {
        self.elements_among(1, size)
    }

    /// Returns the number of elements of `size` bytes in a world of `world` ranks.
    pub fn elements_among(self, world: usize, size: usize) -> usize {
        let (bytes, delta) = match self {
            Self::Elements(count) => return count,
            Self::Around { bytes, delta } => (bytes, delta),
            Self::Shared { bytes, delta } => (bytes / world / 16 * 16, delta),
        };
        (bytes / size).saturating_add_signed(delta)
    }
}

impl fmt::Display for Length {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Elements(count) => write!(formatter, "{count}"),
            Self::Around { bytes, delta } => write!(formatter, "{bytes}B{delta:+}"),
            Self::Shared { bytes, delta } => write!(formatter, "{bytes}B/world{delta:+}"),
        }
    }
}

/// Offsets from a 256-byte boundary, in elements.
pub const OFFSETS: [usize; 7] = [0, 1, 2, 3, 5, 8, 15];
