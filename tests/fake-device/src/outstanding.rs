//! Counts copies under way, so that a test can see how many ran at once.
//!
//! A copy is outstanding from when its stream reaches it until it is done. The fake's copies take almost no time, so
//! `FAKE_DEVICE_COPY_US` sets how long each lasts at least. `FAKE_DEVICE_COPIES` names a trace file of copies.

use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use crate::call::lock;
use crate::devices::number;

static FILE: LazyLock<Option<Mutex<File>>> = LazyLock::new(|| {
    let path = std::env::var_os("FAKE_DEVICE_COPIES")?;
    let file = File::options().create(true).append(true).open(path).ok()?;
    Some(Mutex::new(file))
});

/// How long a copy takes at least.
static TIME: LazyLock<Duration> =
    LazyLock::new(|| Duration::from_micros(number("FAKE_DEVICE_COPY_US", 0)));

static NOW: AtomicU64 = AtomicU64::new(0);
static MOST: AtomicU64 = AtomicU64::new(0);

/// A copy, as the trace describes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy {
    pub stream: u64,
    /// The graph branch, if the stream runs a graph.
    pub branch: usize,
    /// Physical devices from and to; `None` is the host.
    pub devices: [Option<usize>; 2],
    pub bytes: u64,
}

/// Runs a copy, which counts as outstanding meanwhile.
pub(crate) fn during<T>(copy: Copy, work: impl FnOnce() -> T) -> T {
    let outstanding = NOW.fetch_add(1, Ordering::AcqRel) + 1;
    MOST.fetch_max(outstanding, Ordering::AcqRel);
    write("begin", copy, outstanding);
    std::thread::sleep(*TIME);
    let result = work();
    let outstanding = NOW.fetch_sub(1, Ordering::AcqRel) - 1;
    write("end", copy, outstanding);
    result
}

fn write(what: &str, copy: Copy, outstanding: u64) {
    let Some(file) = FILE.as_ref() else { return };
    let name = |device: Option<usize>| device.map_or("host".into(), |device| device.to_string());
    let [from, to] = copy.devices.map(name);
    let (stream, branch) = (copy.stream, copy.branch);
    let process = std::process::id();
    let bytes = copy.bytes;
    let line = format!(
        "{process} {stream:#x}.{branch} {what} {from}>{to} {bytes} outstanding {outstanding}\n"
    );
    // A trace that cannot be written must not change what the traced program sees.
    let _ = lock(file).write_all(line.as_bytes());
}

/// Returns the most copies that were outstanding at once in this process since the previous call of this function.
#[unsafe(no_mangle)]
pub extern "C" fn fake_device_most_copies() -> u64 {
    MOST.swap(NOW.load(Ordering::Acquire), Ordering::AcqRel)
}
