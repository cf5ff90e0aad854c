//! AMD's runtime, opened at run time.

pub mod compiler;
pub mod structs;
pub mod table;
