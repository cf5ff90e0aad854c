//! Measures the decompression of the kernels that a device needs when it is opened, for each architecture:
//! `cargo run --release -p xtask --example decompression`.
//!
//! Prints three times, each the fastest of many runs, since other programs can only slow a run: all images on one
//! thread; all images in parallel, as the backends do it, on the free cores of this machine; and the slowest image
//! alone, which is the parallel time with one core per image.

use std::hint::black_box;
use std::time::Instant;

use symmem_kernels_hip::Target;
use symmem_kernels_ptx::{CompressedImage, Multicast, decompress_all};

/// Number of runs, of which the fastest counts.
const RUNS: usize = 200;

fn main() {
    println!(
        "device             images    KiB  one thread, ms  side by side, ms  slowest image, ms"
    );
    for architecture in [80, 90, 100, 120] {
        for (name, multicast) in [
            ("no multicast", Multicast::None),
            ("NVLS", Multicast::Hardware),
            ("emulated", Multicast::Emulated),
        ] {
            let images = cuda(architecture, multicast);
            measure(&format!("sm_{architecture} {name}"), &images);
        }
    }
    for target in Target::ALL {
        let modules = symmem_kernels_hip::modules().iter();
        let images: Vec<_> = modules.map(|module| module.object(target)).collect();
        measure(target.name(), &images);
    }
}

/// Returns the images that the CUDA backend loads.
fn cuda(architecture: u32, multicast: Multicast) -> Vec<CompressedImage> {
    symmem_kernels_ptx::modules()
        .iter()
        .filter(|module| [Multicast::None, multicast].contains(&module.multicast))
        .filter_map(|module| module.choose(architecture))
        .map(|image| image.compressed())
        .collect()
}

fn measure(device: &str, images: &[CompressedImage]) {
    let bytes: usize = decompress_all(images)
        .into_iter()
        .map(|image| image.expect("the repository's images are whole").len())
        .sum();
    let each = images
        .iter()
        .map(|image| fastest(|| drop(black_box(image.decompress()))));
    let each: Vec<f64> = each.collect();
    let one_thread: f64 = each.iter().sum();
    let slowest = each.iter().copied().fold(0.0, f64::max);
    let side_by_side = fastest(|| drop(black_box(decompress_all(images))));
    println!(
        "{device:18} {:6} {:6}  {one_thread:14.2}  {side_by_side:16.2}  {slowest:17.2}",
        images.len(),
        bytes / 1024,
    );
}

/// Returns the milliseconds of the fastest run.
fn fastest(run: impl Fn()) -> f64 {
    let time = |_| {
        let began = Instant::now();
        run();
        began.elapsed().as_secs_f64() * 1e3
    };
    (0..RUNS).map(time).fold(f64::INFINITY, f64::min)
}
