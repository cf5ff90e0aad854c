//! Maintainers' commands.
fn main() {}
