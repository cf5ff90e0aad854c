//! Log lines of the command.

use crate::output::Stream;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Sends log lines to standard error: warnings, or what `SYMMEM_LOG` asks for, levels and `target=level` separated
/// by commas (`debug`, `warn,symmem=trace`, …). Text that is neither is named, and warnings are logged.
pub fn logging() {
    let text = std::env::var("SYMMEM_LOG").unwrap_or_default();
    let parsed = match text.trim() {
        "" => Ok(Targets::new().with_default(LevelFilter::WARN)),
        // What is not named keeps to warnings.
        named => format!("warn,{named}").parse::<Targets>(),
    };
    let (targets, wrong) = match parsed {
        Ok(targets) => (targets, None),
        Err(error) => (Targets::new().with_default(LevelFilter::WARN), Some(error)),
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        // It would report a full disk by a macro that panics on it.
        .log_internal_errors(false)
        .with_ansi(Stream::Error.has_color());
    tracing_subscriber::registry()
        .with(lines)
        .with(targets)
        .init();
    if let Some(error) = wrong {
        tracing::warn!(SYMMEM_LOG = text, %error, "not a filter of log lines; write debug, or symmem=trace");
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
