//! The secret of a job, and other random bytes.

use std::fmt;
use std::io;

/// Bytes of a secret.
pub(super) const SECRET_BYTES: usize = 32;

/// The secret of a job, known to its ranks only: 32 bytes.
///
/// Over a Unix socket a rank shows it to rank 0, after the kernel has confirmed that rank 0 runs as the same
/// user. Over TCP it never travels: it is the pre-shared key of a [Noise] handshake, whose keys authenticate and
/// encrypt all that follows.
///
/// [Noise]: https://noiseprotocol.org/noise.html
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; SECRET_BYTES]);

impl Secret {
    /// Makes a secret from the kernel's random source.
    ///
    /// # Errors
    /// The operating system's, if `getrandom` fails.
    pub fn random() -> io::Result<Self> {
        random_bytes().map(Self)
    }

    /// Parses 64 hexadecimal digits; `None` if `text` is anything else.
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 2 * SECRET_BYTES {
            return None;
        }
        let mut bytes = [0; SECRET_BYTES];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let high = char::from(pair[0]).to_digit(16)?;
            let low = char::from(pair[1]).to_digit(16)?;
            *byte = (high << 4 | low) as u8;
        }
        Some(Self(bytes))
    }

    /// Returns the secret as 64 hexadecimal digits, to be passed to a child through its environment.
    pub fn to_hex(&self) -> String {
        hex(&self.0)
    }

    /// Returns the 32 bytes.
    pub(super) fn bytes(&self) -> &[u8; SECRET_BYTES] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(hidden)")
    }
}

/// Returns random bytes for names and secrets.
pub(super) fn random_bytes() -> io::Result<[u8; SECRET_BYTES]> {
    let mut bytes = [0; SECRET_BYTES];
    fill_random(&mut bytes)?;
    Ok(bytes)
}

/// Fills `bytes` from the kernel's random source.
pub(super) fn fill_random(bytes: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        let rest = &mut bytes[filled..];
        filled += rustix::io::retry_on_intr(|| {
            rustix::rand::getrandom(&mut *rest, rustix::rand::GetRandomFlags::empty())
        })?;
    }
    Ok(())
}

/// Returns `bytes` as lower-case hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_survives_being_written_and_read() {
        let secret = Secret::random().unwrap();
        assert_eq!(Secret::from_hex(&secret.to_hex()), Some(secret));
    }

    #[test]
    fn anything_but_64_digits_is_no_secret() {
        let digits = Secret::random().unwrap().to_hex();
        for text in [
            "",
            &digits[1..],
            &format!("{digits}0"),
            &digits.replace(&digits[..1], "g"),
            &"é".repeat(32),
        ] {
            assert_eq!(Secret::from_hex(text), None, "{text}");
        }
    }

    #[test]
    fn debug_output_does_not_show_it() {
        let secret = Secret::random().unwrap();
        assert!(!format!("{secret:?}").contains(&secret.to_hex()[..8]));
    }
}
