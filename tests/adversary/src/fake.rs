//! The fake driver's own report: rules that were broken, and what was not released.

use libloading::Library;
use std::path::Path;

type Report = unsafe extern "C" fn(*mut u8, usize) -> usize;

/// A fake driver that this process has loaded.
pub struct Fake {
    library: Library,
    /// What the driver holds after the first communicator, whatever follows.
    kept: Vec<String>,
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
        Ok(Self {
            library,
            kept: Vec::new(),
        })
    }

    /// Returns each broken rule, and each kind of thing that is still live.
    pub fn wrong(&self) -> Vec<String> {
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
        let lines = text
            .lines()
            .filter(|line| !self.kept.iter().any(|kept| kept == line));
        lines.map(|line| format!("fake driver: {line}")).collect()
    }
}
