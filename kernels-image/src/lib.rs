//! Kernel images as programs embed them: zstd frames, each decompressed when a device needs it.
//!
//! `cargo xtask kernels build` compresses them on a maintainer's machine. This crate decompresses in pure Rust,
//! so that building symmem needs no C compiler.

mod aligned;
mod error;

use std::panic::resume_unwind;
use std::thread;

use ruzstd::decoding::FrameDecoder;

pub use aligned::AlignedBytes;
pub use error::CorruptImage;
use error::MAXIMUM_BYTES;

/// A compressed kernel image: one zstd frame that announces its decompressed size and ends with a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompressedImage {
    frame: &'static [u8],
    terminated: bool,
}

impl CompressedImage {
    /// Creates an image of machine code, which a loader takes as it is.
    pub const fn machine_code(frame: &'static [u8]) -> Self {
        Self {
            frame,
            terminated: false,
        }
    }

    /// Creates an image of text, to which decompressing appends the zero byte that a loader needs. The frame
    /// does not contain that byte.
    pub const fn text(frame: &'static [u8]) -> Self {
        Self {
            frame,
            terminated: true,
        }
    }

    /// Decompresses the image. The result for text ends with one zero byte.
    ///
    /// # Errors
    /// [`CorruptImage`] if the frame is truncated or any of its bytes has changed.
    pub fn decompress(&self) -> Result<AlignedBytes, CorruptImage> {
        decompress_and_append(self.frame, usize::from(self.terminated))
    }
}

/// Decompresses images in parallel, each on its own thread, and blocks until all are done. One thread would take up to
/// 10 ms for a device's images, while the device is being opened. The results are in the order of `images`.
pub fn decompress_all(images: &[CompressedImage]) -> Vec<Result<AlignedBytes, CorruptImage>> {
    thread::scope(|scope| {
        let started: Vec<_> = images
            .iter()
            .map(|image| thread::Builder::new().spawn_scoped(scope, || image.decompress()))
            .collect();
        let finished = started.into_iter().zip(images);
        finished
            .map(|(thread, image)| match thread {
                Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
                // Without another thread, decompress on this one.
                Err(_) => image.decompress(),
            })
            .collect()
    })
}

/// Decompresses a frame that was read from a file. Appends no zero byte.
///
/// # Errors
/// As [`CompressedImage::decompress`].
pub fn decompress(frame: &[u8]) -> Result<AlignedBytes, CorruptImage> {
    decompress_and_append(frame, 0)
}

/// Decompresses a frame and appends `zeros` zero bytes.
fn decompress_and_append(frame: &[u8], zeros: usize) -> Result<AlignedBytes, CorruptImage> {
    let mut decoder = FrameDecoder::new();
    decoder.set_max_window_size(MAXIMUM_BYTES);
    decoder.init(frame).map_err(CorruptImage::frame)?;
    let announced = decoder.content_size();
    let length = usize::try_from(announced)
        .ok()
        .filter(|_| (1..=MAXIMUM_BYTES).contains(&announced))
        .ok_or(CorruptImage::Announced { bytes: announced })?;

    let mut bytes = AlignedBytes::zeroed(length + zeros);
    let decompressed = decoder
        .decode_all(frame, &mut bytes[..length])
        .map_err(CorruptImage::frame)?;
    if decompressed != length {
        return Err(CorruptImage::TooShort {
            bytes: decompressed,
            announced: length,
        });
    }
    let recorded = decoder.get_checksum_from_data();
    if recorded.is_none() || recorded != decoder.get_calculated_checksum() {
        return Err(CorruptImage::Checksum);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
