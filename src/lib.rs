//! symmem

pub mod report;
