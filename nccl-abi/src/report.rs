//! What is told on stderr.

/// Prints a line on stderr. A closed stderr loses it.
pub fn line(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "symmem-nccl: {text}");
}
