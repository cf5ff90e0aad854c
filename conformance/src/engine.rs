//! How data of a case moves.

use serde::{Deserialize, Serialize};
use std::fmt;
use symmem::backend::abi::{CAPABILITY_BULK, CAPABILITY_COPY_ENGINE, Capabilities};
use symmem::{Method, TransferOptions};

/// How bytes are moved: [`Method`] as data.
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
    /// All of them.
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

/// Method and geometry; zeros leave the choice to the backend's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Engine {
    /// The method.
    pub method: MethodName,
    /// Blocks of the grid.
    pub blocks: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Bulk copies in flight per block.
    pub stages: u32,
    /// Bytes of each bulk copy.
    pub stage_bytes: u32,
}

impl Engine {
    /// Everything the tables choose.
    pub const AUTOMATIC: Self = Self::of(MethodName::Automatic);

    /// The engines that cases are run with.
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

    /// A ring in each of several blocks, of which the last one signals.
    const fn rings(blocks: u32, stages: u32, stage_bytes: u32) -> Self {
        Self {
            blocks,
            threads: 128,
            stages,
            stage_bytes,
            ..Self::of(MethodName::Bulk)
        }
    }

    /// What a call is given.
    pub fn options(&self) -> TransferOptions {
        TransferOptions::new()
            .method(self.method)
            .geometry(self.blocks, self.threads)
            .in_flight(self.stages, self.stage_bytes)
    }

    /// What a device lacks to run this; `None` if nothing.
    pub fn missing(&self, capabilities: &Capabilities) -> Option<&'static str> {
        let has = |flag| capabilities.flags & flag != 0;
        // The planner keeps a kilobyte for the ring's barriers.
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
