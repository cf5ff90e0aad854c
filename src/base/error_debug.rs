//! Formats of an error for users (`{:?}`) and for debugging (`{:#?}`).

use crate::base::error::Error;
use std::error::Error as _;
use std::fmt;

/// Writes the variant that matches, with its fields, as a derived `Debug` would.
macro_rules! write_fields {
    ($formatter:ident, $value:expr, { $($variant:ident { $($field:ident),* })* } ( $($tuple:ident)* )) => {
        match $value {
            $(Error::$variant { $($field),* } => $formatter
                .debug_struct(stringify!($variant))
                $(.field(stringify!($field), $field))*
                .finish(),)*
            $(Error::$tuple(inner) => $formatter
                .debug_tuple(stringify!($tuple))
                .field(inner)
                .finish(),)*
        }
    };
}

/// An error as its variant and fields.
struct Fields<'a>(&'a Error);

impl fmt::Debug for Fields<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_fields!(formatter, self.0, {
            Backend { rank, peer, bytes, operation, failure }
            OutOfMemory { rank, bytes, operation, failure }
            Mismatch { rank, peer, operation, what, mine, theirs }
            Timeout { rank, peer, operation, channel, expected, seen, waited }
            WordTimeout { rank, index, expected, seen, waited }
            HostTimeout { rank, operation, waited }
            ShareTimeout { rank, operation, bytes, waited, failure }
            PeerDied { rank, peer }
            PeerFailed { rank, peer, reason }
            Aborted { rank }
            Forked { rank, owner }
            OutOfRange { rank, offset, count, length }
            InvalidArgument { rank, operation, message }
            Unsupported { rank, operation, message }
            HandleVersion { rank, kernel, found, expected }
            ArgumentSize { rank, kernel, given, expected }
            NotShareable { rank, address, bytes, reason }
            PeerUnreachable { rank, peer, reason }
            Network { rank, peer, node, bytes, operation, failure }
            NoSuchDevice { rank, message }
            System { rank, call, reason }
        } (NoBackend BadSelection BadVariable Plugin Bootstrap))
    }
}

/// `{:?}` prints the message, and those of its causes that the message does not contain. `{:#?}` prints the
/// fields.
impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if formatter.alternate() {
            // `{:?}` of the fields keeps them on one line.
            return write!(formatter, "{:?}", Fields(self));
        }
        let mut told = self.to_string();
        formatter.write_str(&told)?;
        let mut cause = self.source();
        while let Some(error) = cause {
            let text = error.to_string();
            if !told.contains(&text) {
                write!(formatter, ", caused by {text}")?;
                told.push_str(&text);
            }
            cause = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Failure;
    use crate::backend::abi::Status;
    use crate::base::bootstrap_error::BootstrapError;

    /// An error whose text does not contain its cause's.
    #[derive(Debug, thiserror::Error)]
    #[error("the socket is closed")]
    struct Closed(#[source] fmt::Error);

    fn backend() -> Error {
        let failure = Failure::of_call(Status::CALL_FAILED, "cuMemMap", 719, "reset the device");
        Error::backend(1, "put", failure).about(Some(3), 64)
    }

    #[test]
    fn debug_prints_a_sentence_and_each_cause_once() {
        let error = backend();
        assert_eq!(format!("{error:?}"), error.to_string());
        assert_eq!(
            error.source().expect("the failed call").to_string(),
            "cuMemMap failed with error 719: reset the device"
        );
        let failed = |source| {
            let (rank, call) = (2, "poll");
            Error::from(BootstrapError::System { rank, call, source })
        };
        let refused = failed(std::io::Error::other("no memory"));
        assert_eq!(format!("{refused:?}"), "rank 2: poll failed: no memory");
        let refused = failed(std::io::Error::other(Closed(fmt::Error)));
        assert_eq!(
            format!("{refused:?}"),
            format!("{refused}, caused by {}", fmt::Error)
        );
    }

    #[test]
    fn alternate_debug_prints_the_variant_and_its_fields_on_one_line() {
        let error = Error::Aborted { rank: 4 };
        assert_eq!(format!("{error:#?}"), "Aborted { rank: 4 }");
        let fields = format!("{:#?}", backend());
        assert!(
            fields.starts_with("Backend { rank: 1, peer: Some(3), bytes: Some(64)"),
            "{fields}"
        );
        assert!(!fields.contains('\n'), "{fields}");
        let lost = Error::NoBackend("none".into());
        assert_eq!(format!("{lost:#?}"), "NoBackend(\"none\")");
    }
}
