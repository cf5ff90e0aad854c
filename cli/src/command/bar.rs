//! The progress bar of a benchmark.

use crate::output::Stream;
use indicatif::{ProgressBar, ProgressStyle};
use symmem::Communicator;
use symmem_bench::BenchError;
use symmem_bench::p2p::Progress;

/// Runs a benchmark, with a progress bar on rank 0 if standard error is a terminal.
pub(super) fn with_bar<T>(
    communicator: &Communicator,
    benchmark: impl FnOnce(&mut dyn FnMut(Progress)) -> std::result::Result<T, BenchError>,
) -> std::result::Result<T, BenchError> {
    let bar = if communicator.rank() == 0 && Stream::Error.is_terminal() {
        ProgressBar::new(0).with_style(style())
    } else {
        ProgressBar::hidden()
    };
    let result = benchmark(&mut |progress| {
        bar.set_length(progress.total as u64);
        bar.set_position(progress.done as u64);
        bar.set_message(progress.what);
    });
    bar.finish_and_clear();
    result
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}
