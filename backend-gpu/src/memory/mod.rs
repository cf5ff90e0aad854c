//! Memory that peers can address.

mod place;
mod shared;
mod sharing;
mod span;
mod symmetric;

pub use place::{Place, check_place};
pub use shared::{SharedMemory, whole_blocks};
pub use sharing::{Content, Sharing};
pub use span::{Span, not_shareable};
