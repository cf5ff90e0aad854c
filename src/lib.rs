//! symmem
