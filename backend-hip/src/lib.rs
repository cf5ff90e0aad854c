//! The HIP backend of symmem: AMD's runtime, opened at run time.

pub mod runtime;
