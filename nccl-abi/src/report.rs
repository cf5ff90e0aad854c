//! What is told on stderr.

use std::sync::OnceLock;

/// Set to 1, it asks for the number of calls of each communicator when it ends.
const VARIABLE: &str = "SYMMEM_NCCL_REPORT";

/// Returns whether the user asks for the number of calls.
pub fn is_asked() -> bool {
    static ASKED: OnceLock<bool> = OnceLock::new();
    *ASKED.get_or_init(|| std::env::var(VARIABLE).is_ok_and(|value| value == "1"))
}

/// Prints a line on stderr, in one write, since all ranks may share a terminal. A closed stderr loses it.
pub fn line(text: &str) {
    use std::io::Write;
    let _ = std::io::stderr().write_all(format!("symmem-nccl: {text}\n").as_bytes());
}
