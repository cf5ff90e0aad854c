//! Log lines of the command.

use std::io::IsTerminal;

/// Sends log lines to standard error: warnings, or what `SYMMEM_LOG` asks for (`debug`,
/// `symmem_core=trace`, …).
pub fn logging() {
    use tracing_subscriber::EnvFilter;
    let filter = std::env::var("SYMMEM_LOG").unwrap_or_default();
    let filter = EnvFilter::builder()
        .with_default_directive(tracing_subscriber::filter::LevelFilter::WARN.into())
        .parse_lossy(filter);
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}
