//! The backends that a test runs on.

/// A backend of a started process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// The host backend.
    Host,
    /// CUDA over the fake driver.
    Cuda,
    /// HIP over the fake runtime.
    Hip,
}

impl Backend {
    /// Returns the name by which symmem selects it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Cuda => "cuda",
            Self::Hip => "hip",
        }
    }
}
