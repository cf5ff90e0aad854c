//! Every type that crosses the boundary between the library and a backend.
//!
//! Only integers, pointers with lengths, and `repr(C)` structs of those: a backend may be a shared object built by
//! another compiler. Within a major version, only structs that carry their size grow, at their end; all other layouts
//! are fixed, and a snapshot test pins each. Kernels take the `*Arguments` structs by value:
//! `device/include/symmem/abi.h` declares the same layouts, and both sides assert size and offsets.

mod collectives;
mod device;
mod forms;
mod gemm;
mod handles;
mod limits;
mod memory;
mod multicast;
mod nccl;
mod norm;
mod signals;
mod slices;
mod status;
mod transfers;

pub use collectives::*;
pub use device::*;
pub use gemm::*;
pub use handles::*;
pub use limits::*;
pub use memory::*;
pub use multicast::*;
pub use nccl::*;
pub use norm::*;
pub use signals::*;
pub use slices::*;
pub use status::*;
pub use transfers::*;
