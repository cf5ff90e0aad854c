//! Logging to standard error.

use crate::output::Stream;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Sends log lines to standard error: warnings, or the filter in `SYMMEM_LOG`, which is a list of levels and
/// `target=level` separated by commas (`debug`, `warn,symmem=trace`, …). Warns of an invalid filter and then logs
/// warnings.
pub fn logging() {
    let text = std::env::var("SYMMEM_LOG").unwrap_or_default();
    let parsed = match text.trim() {
        "" => Ok(Targets::new().with_default(LevelFilter::WARN)),
        // Targets that the filter does not name log warnings.
        named => format!("warn,{named}").parse::<Targets>(),
    };
    let (targets, wrong) = match parsed {
        Ok(targets) => (targets, None),
        Err(error) => (Targets::new().with_default(LevelFilter::WARN), Some(error)),
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        // The layer would report a failed write with `eprintln!`, which panics on a full disk.
        .log_internal_errors(false)
        .with_ansi(Stream::Error.has_color());
    tracing_subscriber::registry()
        .with(lines)
        .with(targets)
        .init();
    if let Some(error) = wrong {
        tracing::warn!(SYMMEM_LOG = text, %error, "invalid log filter; write debug, or symmem=trace");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn a_level_or_a_target_can_be_asked_for_and_the_rest_stays_with_warnings() {
        let all: Targets = "warn,debug".parse().unwrap();
        assert!(all.would_enable("anything", &Level::DEBUG));
        let one: Targets = "warn,symmem=trace".parse().unwrap();
        assert!(one.would_enable("symmem::rank", &Level::TRACE));
        assert!(!one.would_enable("other", &Level::INFO));
        assert!("warn,symmem=loud".parse::<Targets>().is_err());
    }
}
