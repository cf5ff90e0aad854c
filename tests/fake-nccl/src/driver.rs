//! The functions of the fake driver that this library uses, and violations reported to it.

use crate::Code;
use fake_library::{Refused, Vendor};

pub use fake_library::{Runner, current_context, is_virtual_memory, set_context, submit};

impl From<Refused> for Code {
    fn from(_: Refused) -> Self {
        Self::CUDA_ERROR
    }
}

/// Whether this library is NCCL or RCCL, which spell some names differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// NVIDIA's.
    Nccl,
    /// AMD's.
    Rccl,
}

/// Returns whether this library is NCCL or RCCL.
pub fn spelling() -> Spelling {
    match fake_library::vendor() {
        Vendor::Nvidia => Spelling::Nccl,
        Vendor::Amd => Spelling::Rccl,
    }
}

/// Reports that the program under test broke a rule.
pub fn violation(text: &str) {
    fake_library::violation(&format!("{:?}: {text}", spelling()));
}
