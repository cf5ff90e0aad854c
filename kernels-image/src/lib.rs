//! Kernel images as symmem's programs embed them: each one a zstd frame, decompressed when a device needs it.
//!
//! `cargo xtask kernels build` compresses, on a maintainer's machine. This crate decompresses, in pure Rust:
//! whoever builds symmem needs no C compiler.

mod aligned;
mod error;

use std::panic::resume_unwind;
use std::thread;

use ruzstd::decoding::FrameDecoder;

pub use aligned::AlignedBytes;
pub use error::CorruptImage;
use error::MAXIMUM_BYTES;

/// A kernel image: one zstd frame that announces its decompressed size and ends with a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompressedImage {
    frame: &'static [u8],
    terminated: bool,
}

impl CompressedImage {
    /// An image of machine code, which a loader takes as it is.
    pub const fn machine_code(frame: &'static [u8]) -> Self {
        Self {
            frame,
            terminated: false,
        }
    }

    /// An image of text, which a loader wants to end with a zero byte. The frame does not have that byte.
    pub const fn text(frame: &'static [u8]) -> Self {
        Self {
            frame,
            terminated: true,
        }
    }

    /// Decompresses the image; [`AlignedBytes`] of text end with the one zero byte that they have.
    ///
    /// # Errors
    /// [`CorruptImage`] if the frame is truncated or any of its bytes has changed.
    pub fn decompress(&self) -> Result<AlignedBytes, CorruptImage> {
        decompress_and_append(self.frame, usize::from(self.terminated))
    }
}

/// Decompresses images side by side, each on a thread of its own: one thread takes up to 10 ms for what a device
/// needs, and a device's opening waits for it. The results have the order of `images`.
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
                // The process may have no more threads.
                Err(_) => image.decompress(),
            })
            .collect()
    })
}

/// Decompresses a frame that was read from a file, without a zero byte behind it.
///
/// # Errors
/// As [`CompressedImage::decompress`].
pub fn decompress(frame: &[u8]) -> Result<AlignedBytes, CorruptImage> {
    decompress_and_append(frame, 0)
}

/// Decompresses a frame, with `zeros` zero bytes behind it.
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
