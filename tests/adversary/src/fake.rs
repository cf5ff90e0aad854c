//! The fake driver's own report: rules that were broken, and what was not released.

use libloading::Library;
use std::path::Path;

type Report = unsafe extern "C" fn(*mut u8, usize) -> usize;

/// A fake driver that this process has loaded.
pub struct Fake {
    library: Library,
}

impl Fake {
    /// Loads a fake driver, as the library will.
    ///
    /// # Errors
    /// The loader's message.
    pub fn load(file: &Path) -> Result<Self, String> {
        // SAFETY: a fake driver's initializers only start its bookkeeping.
        let library = unsafe { Library::new(file) };
        let library = library.map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(Self { library })
    }

    /// Returns each broken rule, and each kind of thing that is still live; then forgets the rules.
    ///
    /// `beside`: work may be enqueued beside a call that frees memory, by another thread or for another communicator. Then
    /// a free that waits for such work is no fault: symmem cannot keep others from enqueueing, and the vendors' drivers
    /// only wait. If such a wait never ends, the program fails by a deadline.
    pub fn wrong(&self, beside: bool) -> Vec<String> {
        // SAFETY: the fake drivers define it with this type.
        let report = unsafe { self.library.get::<Report>(b"fake_device_report\0") };
        let Ok(report) = report else {
            return vec!["the driver has no fake_device_report".into()];
        };
        // SAFETY: a null buffer only asks for the length.
        let length = unsafe { report(std::ptr::null_mut(), 0) };
        let mut bytes = vec![0; length];
        // SAFETY: the buffer has this many bytes.
        let length = unsafe { report(bytes.as_mut_ptr(), bytes.len()) }.min(bytes.len());
        let text = String::from_utf8_lossy(&bytes[..length]);
        // SAFETY: the fake drivers define it with this type.
        let clear = unsafe {
            self.library
                .get::<extern "C" fn()>(b"fake_device_clear_violations\0")
        };
        clear.iter().for_each(|clear| clear());
        let lines = text.lines().filter(|line| !(beside && is_wait(line)));
        lines.map(|line| format!("fake driver: {line}")).collect()
    }
}

/// Whether a line of the report says that a call waits for work. The line about a launch that waits ends otherwise.
fn is_wait(line: &str) -> bool {
    line.ends_with(", which can wait for a peer")
}
