//! Memory that peers can address.

mod shared;
mod sharing;
mod span;
mod symmetric;

pub use shared::{SharedMemory, whole_blocks};
pub use sharing::{Content, Sharing};
pub use span::{Span, not_shareable};
