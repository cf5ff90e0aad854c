//! Records who launches kernels. `FAKE_DEVICE_CALLERS` names a file; while the file exists, each launch appends the
//! stack of the calling thread. A test creates the file right before the call whose path it wants to see.

use std::backtrace::Backtrace;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::LazyLock;

static PLACE: LazyLock<Option<PathBuf>> =
    LazyLock::new(|| std::env::var_os("FAKE_DEVICE_CALLERS").map(PathBuf::from));

/// Appends this thread's stack to the file, if the file exists.
pub fn record() {
    let Some(place) = &*PLACE else { return };
    let Ok(mut file) = OpenOptions::new().append(true).open(place) else {
        return;
    };
    let stack = Backtrace::force_capture();
    // A failure to write shows in the test, which then finds no stack.
    let _ = writeln!(file, "launch\n{stack}");
}
