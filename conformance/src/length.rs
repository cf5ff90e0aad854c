//! How many elements a case has, and where they begin.

use serde::{Deserialize, Serialize};
use std::fmt;

/// How many elements move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Length {
    /// This many.
    Elements(usize),
    /// As many as `bytes` holds, and `delta` more.
    Around {
        /// Bytes, a multiple of every element's size.
        bytes: usize,
        /// Elements more, or fewer.
        delta: isize,
    },
    /// As many as a rank's share of `bytes` holds, in whole vectors of 16 bytes, and `delta` more.
    Shared {
        /// Bytes.
        bytes: usize,
        /// Elements more, or fewer.
        delta: isize,
    },
}

impl Length {
    /// Around the sizes at which kernels change what they do: a 16-byte vector, a warp's and a
    /// block's worth of them, a page, a few stages of bulk copies, and an odd megabyte.
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

    /// Elements of `size` bytes, among one rank.
    pub fn elements(self, size: usize) -> usize {
        self.elements_among(1, size)
    }

    /// Elements of `size` bytes, among `world` ranks.
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
