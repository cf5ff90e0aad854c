//! Runs compiled kernels for AMD GPUs, as waves of several blocks on several ranks, under an adversarial scheduler and
//! a memory model as weak as the instruction set allows. A kernel that is only right by luck fails here.
//!
//! The code is the disassembly of the artefacts of `symmem-kernels-hip`; an instruction that is not modeled is an
//! error that names it. [`memory`] describes the memory model, [`machine`] the adversary and what it reports. A passing
//! run shows that a protocol holds under every completion order that the model allows and the seeds reach. It does not
//! model the timing of real caches and links.

#![allow(missing_docs)] // Of fields whose name says it.

mod access;
pub mod banks;
pub mod block;
pub mod decode;
pub mod machine;
pub mod memory;
pub mod operation;
pub mod pending;
pub mod program;
pub mod random;
mod scalar;
mod shared;
mod vector;
pub mod wave;

/// Why a run, or its preparation, failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// llvm-objdump is missing or failed.
    #[error("no disassembly: {0}")]
    Tool(String),
    /// The code object lacks something that was requested.
    #[error("code object: {0}")]
    CodeObject(String),
    /// An instruction that is not modeled.
    #[error("{kernel}+{offset:#x}: {text}: this instruction is not modeled")]
    Instruction {
        kernel: String,
        offset: u64,
        text: String,
    },
    /// A rule of the memory model is broken: the value seen, the reader, and where the newer store is.
    #[error("{0}")]
    Violation(String),
    /// The run does not end.
    #[error("not ended after {steps} steps: {waves}")]
    Hang { steps: u64, waves: String },
}
