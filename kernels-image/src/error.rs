//! The error of decompressing an image.

use std::error::Error;
use std::fmt;

/// Upper limit of an image's decompressed size in bytes; the largest image has 1.3 MB. A damaged header that
/// announces more is an error, not an allocation.
pub(crate) const MAXIMUM_BYTES: u64 = 64 << 20;

/// Reason why an image does not decompress: its file or program is damaged.
#[derive(Debug)]
#[non_exhaustive]
pub enum CorruptImage {
    /// The bytes are not a complete zstd frame; holds the decoder's error.
    Frame(Box<dyn Error + Send + Sync>),
    /// The header announces no size, or more than any image has.
    Announced {
        /// Announced size in bytes; 0 if there is none.
        bytes: u64,
    },
    /// The frame has fewer bytes than its header announces.
    TooShort {
        /// Actual size in bytes.
        bytes: usize,
        /// Announced size in bytes.
        announced: usize,
    },
    /// The checksum does not match.
    Checksum,
}

impl CorruptImage {
    pub(crate) fn frame(cause: impl Error + Send + Sync + 'static) -> Self {
        Self::Frame(Box::new(cause))
    }
}

impl fmt::Display for CorruptImage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("corrupt kernel image: ")?;
        match self {
            Self::Frame(cause) => write!(formatter, "not a complete zstd frame: {cause}"),
            Self::Announced { bytes } => {
                write!(
                    formatter,
                    "its header announces {bytes} bytes, but an image has 1 to {MAXIMUM_BYTES}"
                )
            }
            Self::TooShort { bytes, announced } => write!(
                formatter,
                "{bytes} bytes, but its header announces {announced}"
            ),
            Self::Checksum => formatter.write_str("its checksum does not match its bytes"),
        }
    }
}

impl Error for CorruptImage {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Frame(cause) => Some(&**cause),
            _ => None,
        }
    }
}
