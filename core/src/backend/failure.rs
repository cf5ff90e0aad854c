//! The failure of a backend's call.

use super::abi::{FailureRecord, Status};
use std::fmt;

/// Result of a backend's call.
pub type CallResult<T> = Result<T, Failure>;

/// A failed call: its name, the vendor's error number, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The kind of failure.
    pub status: Status,
    /// The vendor's error number, 0 if there is none.
    pub vendor_code: i32,
    /// Name of the failed call: the vendor's, or the contract's method.
    pub call: String,
    /// What the call reported, and what to do about it.
    pub message: String,
}

impl Failure {
    /// Creates a failure that no vendor call caused.
    pub fn new(status: Status, call: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            status,
            vendor_code: 0,
            call: call.into(),
            message: message.into(),
        }
    }

    /// Creates the failure of a vendor call that returned `vendor_code`.
    pub fn of_call(
        status: Status,
        call: impl Into<String>,
        vendor_code: i32,
        message: impl Into<String>,
    ) -> Self {
        Self {
            status,
            vendor_code,
            call: call.into(),
            message: message.into(),
        }
    }

    /// Converts to the form that crosses the table. Text longer than its field is cut at a character boundary.
    pub fn to_record(&self) -> FailureRecord {
        let mut record = FailureRecord {
            status: self.status,
            vendor_code: self.vendor_code,
            call: [0; 64],
            message: [0; 952],
        };
        write_text(&mut record.call, &self.call);
        write_text(&mut record.message, &self.message);
        record
    }

    /// Converts from the form that crosses the table; accepts any bytes.
    pub fn from_record(record: &FailureRecord) -> Self {
        Self {
            status: record.status,
            vendor_code: record.vendor_code,
            call: read_text(&record.call),
            message: read_text(&record.message),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} failed", self.call)?;
        if self.vendor_code != 0 {
            write!(formatter, " with error {}", self.vendor_code)?;
        }
        write!(formatter, ": {}", self.message)
    }
}

impl std::error::Error for Failure {}

/// Copies `text` into a zero-padded field, cut at a character boundary.
pub fn write_text(field: &mut [u8], text: &str) {
    let mut length = text.len().min(field.len());
    while !text.is_char_boundary(length) {
        length -= 1;
    }
    field[..length].copy_from_slice(&text.as_bytes()[..length]);
    field[length..].fill(0);
}

/// Reads a zero-padded field; invalid UTF-8 is replaced.
pub fn read_text(field: &[u8]) -> String {
    let end = field
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_survives_the_table_and_is_cut_at_a_character() {
        let failure = Failure::of_call(Status::CALL_FAILED, "cuMemCreate", 2, "é".repeat(600));
        let read = Failure::from_record(&failure.to_record());
        assert_eq!((read.status, read.vendor_code), (failure.status, 2));
        assert_eq!(read.call, "cuMemCreate");
        assert_eq!(read.message, "é".repeat(476));
    }
}
