//! The symmem command.
fn main() {}
