//! Symmetric buffers, ranges of them and views.

pub(crate) mod handle;
pub(crate) mod symmetric;
