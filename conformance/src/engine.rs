//! The transfer method and launch geometry of a case.

use serde::{Deserialize, Serialize};
use std::fmt;
use symmem::backend::abi::{CAPABILITY_BULK, CAPABILITY_COPY_ENGINE, Capabilities};
use symmem::{Method, TransferOptions};

/// [`Method`] as data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs, reason = "documented at `Method`")]
pub enum MethodName {
    Automatic,
    CopyEngine,
    Vector,
    Bulk,
    Unrolled,
}

impl MethodName {
    /// All methods.
    pub const ALL: [Self; 5] = [
        Self::Automatic,
        Self::CopyEngine,
        Self::Vector,
        Self::Bulk,
        Self::Unrolled,
    ];
}

impl From<MethodName> for Option<Method> {
    fn from(name: MethodName) -> Self {
        match name {
            MethodName::Automatic => None,
            MethodName::CopyEngine => Some(Method::CopyEngine),
            MethodName::Vector => Some(Method::Vector),
            MethodName::Bulk => Some(Method::Bulk),
            MethodName::Unrolled => Some(Method::Unrolled),
        }
    }
}

/// Transfer method and launch geometry; the planner chooses every value that is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Engine {
    /// The method.
    pub method: MethodName,
    /// Blocks per grid.
    pub blocks: u32,
    /// Threads per block.
    pub threads: u32,
    /// Bulk copies in flight per block.
    pub stages: u32,
    /// Size of each bulk copy, in bytes.
    pub stage_bytes: u32,
}

impl Engine {
    /// The planner chooses everything.
    pub const AUTOMATIC: Self = Self::of(MethodName::Automatic);

    /// All engines that the plans use.
    pub const ALL: [Self; 14] = [
        Self::AUTOMATIC,
        Self::of(MethodName::CopyEngine),
        Self::of(MethodName::Vector),
        Self::grid(1, 32),
        Self::grid(1, 128),
        Self::grid(4, 256),
        Self::grid(16, 1024),
        Self::of(MethodName::Bulk),
        Self::ring(2),
        Self::ring(4),
        Self::ring(8),
        Self::rings(4, 2, 2 << 10),
        Self::rings(16, 8, 1 << 10),
        Self::of(MethodName::Unrolled),
    ];

    const fn of(method: MethodName) -> Self {
        Self {
            method,
            blocks: 0,
            threads: 0,
            stages: 0,
            stage_bytes: 0,
        }
    }

    const fn grid(blocks: u32, threads: u32) -> Self {
        Self {
            blocks,
            threads,
            ..Self::of(MethodName::Vector)
        }
    }

    pub(super) const fn ring(stages: u32) -> Self {
        Self::rings(1, stages, 16 << 10)
    }

    /// One ring per block; the last block to finish signals.
    const fn rings(blocks: u32, stages: u32, stage_bytes: u32) -> Self {
        Self {
            blocks,
            threads: 128,
            stages,
            stage_bytes,
            ..Self::of(MethodName::Bulk)
        }
    }

    /// Returns the options to pass to a call.
    pub fn options(&self) -> TransferOptions {
        TransferOptions::new()
            .method(self.method)
            .geometry(self.blocks, self.threads)
            .in_flight(self.stages, self.stage_bytes)
    }

    /// Returns why a device with these capabilities cannot run this engine; `None` if it can.
    pub fn missing(&self, capabilities: &Capabilities) -> Option<&'static str> {
        let has = |flag| capabilities.flags & flag != 0;
        // The planner reserves 1 KiB for the ring's barriers.
        let room = capabilities.shared_memory_per_block.saturating_sub(1024);
        match self.method {
            MethodName::CopyEngine if !has(CAPABILITY_COPY_ENGINE) => {
                Some("the device has no copy engine")
            }
            MethodName::Bulk if !has(CAPABILITY_BULK) => Some("the device has no bulk copies"),
            MethodName::Bulk if self.stages * self.stage_bytes > room => {
                Some("the ring of bulk copies does not fit into a block's shared memory")
            }
            _ => None,
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}", self.method)?;
        if self.blocks != 0 {
            write!(formatter, ".{}x{}", self.blocks, self.threads)?;
        }
        if self.stages != 0 {
            write!(formatter, ".ring{}x{}", self.stages, self.stage_bytes)?;
        }
        Ok(())
    }
}
