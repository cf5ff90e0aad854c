//! What is wrong with an image that does not decompress.

use std::error::Error;
use std::fmt;

/// Decompressed bytes that no image exceeds; the largest has 1.3 MB. A damaged header that announces more is an
/// error, not an allocation.
pub(crate) const MAXIMUM_BYTES: u64 = 64 << 20;

/// Why an image does not decompress. The file or the program that has it is damaged.
#[derive(Debug)]
#[non_exhaustive]
pub enum CorruptImage {
    /// The bytes are no whole zstd frame; the decoder's error says where they stop being one.
    Frame(Box<dyn Error + Send + Sync>),
    /// The header announces no size, or more bytes than any image has.
    Announced {
        /// The bytes that it announces; 0 if it announces none.
        bytes: u64,
    },
    /// The frame has fewer bytes than its header announces.
    TooShort {
        /// The bytes that it has.
        bytes: usize,
        /// The bytes that its header announces.
        announced: usize,
    },
    /// The bytes are not those that were compressed.
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
            Self::Frame(cause) => write!(formatter, "not a whole zstd frame: {cause}"),
            Self::Announced { bytes } => {
                write!(
                    formatter,
                    "its header announces {bytes} bytes; an image has 1 to {MAXIMUM_BYTES}"
                )
            }
            Self::TooShort { bytes, announced } => write!(
                formatter,
                "{bytes} bytes, but its header announces {announced}"
            ),
            Self::Checksum => {
                formatter.write_str("the checksum of its bytes is not the recorded one")
            }
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
