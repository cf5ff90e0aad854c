//! Runs compiled kernels for AMD GPUs, waves of several blocks on several ranks, under a memory model that is
//! as weak as the instruction set allows, with an adversary for a scheduler: what a kernel gets right only by
//! luck goes wrong here.
//!
//! The code is the disassembly of the artefacts of `symmem-kernels-hip`; an instruction that is not modelled is
//! an error that names it. [`memory`] says what the model is, [`machine`] what the adversary does and what is
//! reported. It proves that a protocol holds under every completion order that the model allows and the seeds
//! reach; it says nothing of real caches and links.

#![allow(missing_docs)] // Of fields whose name says it.

mod access;
pub mod decode;
pub mod machine;
pub mod memory;
pub mod operation;
pub mod pending;
pub mod program;
pub mod random;
mod scalar;
mod vector;
pub mod wave;

/// Why a run, or what comes before it, ended badly.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// llvm-objdump is missing or failed.
    #[error("no disassembly: {0}")]
    Tool(String),
    /// The code object has not what is asked of it.
    #[error("code object: {0}")]
    CodeObject(String),
    /// An instruction that is not modelled.
    #[error("{kernel}+{offset:#x}: {text}: this instruction is not modelled")]
    Instruction {
        kernel: String,
        offset: u64,
        text: String,
    },
    /// A rule of the memory model is broken: what was seen, by whom, and where the newer store is.
    #[error("{0}")]
    Violation(String),
    /// No end in sight.
    #[error("not ended after {steps} steps: {waves}")]
    Hang { steps: u64, waves: String },
}
