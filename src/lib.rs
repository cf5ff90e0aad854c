//! symmem

pub mod launch;
