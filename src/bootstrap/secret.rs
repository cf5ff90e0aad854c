//! The secret of a job, and proofs of knowing it.

use std::fmt;
use std::io;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// Bytes of a secret, of a nonce and of a proof.
pub(super) const SECRET_BYTES: usize = 32;

/// What the ranks of one job know and nobody else: 32 bytes.
///
/// It never travels between ranks: they prove that they know it ([HMAC-SHA-256 of fresh nonces]).
///
/// [HMAC-SHA-256 of fresh nonces]: https://www.rfc-editor.org/rfc/rfc2104
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; SECRET_BYTES]);

impl Secret {
    /// A fresh secret from the kernel's random source.
    ///
    /// # Errors
    /// The kernel has no random source to offer (`getrandom` failed).
    pub fn random() -> io::Result<Self> {
        random_bytes().map(Self)
    }

    /// The secret written as 64 hexadecimal digits, or `None` if `text` is anything else.
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

    /// The secret as 64 hexadecimal digits, to be handed to a child through its environment.
    pub fn to_hex(&self) -> String {
        hex(&self.0)
    }

    /// A key that tells jobs of one user apart where no launcher handed out a secret.
    ///
    /// It can be guessed, so it is only good on sockets where the kernel vouches for the peer's
    /// user; what it adds there is that a stray rank of another job is turned away.
    pub(super) fn of_job(job: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"symmem job\0");
        hash.update(job.as_bytes());
        Self(hash.finalize().into())
    }

    /// HMAC-SHA-256 of `role` and `parts` under this secret. The role keeps a proof given in one
    /// direction from being played back in the other.
    pub(super) fn prove(&self, role: &str, parts: &[&[u8]]) -> [u8; SECRET_BYTES] {
        self.authenticator(role, parts)
            .finalize()
            .into_bytes()
            .into()
    }

    /// Whether `proof` is [`Secret::prove`] of the same; takes the same time wherever it differs.
    pub(super) fn verify(&self, role: &str, parts: &[&[u8]], proof: &[u8]) -> bool {
        self.authenticator(role, parts).verify_slice(proof).is_ok()
    }

    fn authenticator(&self, role: &str, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes a key of any length");
        mac.update(role.as_bytes());
        mac.update(&[0]);
        for part in parts {
            // The length keeps neighbouring parts from being divided in another way.
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        mac
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(hidden)")
    }
}

/// Fresh random bytes: nonces, names, secrets.
pub(super) fn random_bytes() -> io::Result<[u8; SECRET_BYTES]> {
    let mut bytes = [0; SECRET_BYTES];
    let mut filled = 0;
    while filled < bytes.len() {
        let rest = &mut bytes[filled..];
        filled += rustix::io::retry_on_intr(|| {
            rustix::rand::getrandom(&mut *rest, rustix::rand::GetRandomFlags::empty())
        })?;
    }
    Ok(bytes)
}

/// `bytes` as lower-case hexadecimal digits.
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

    #[test]
    fn a_proof_holds_for_its_secret_role_and_parts_only() {
        let secret = Secret::random().unwrap();
        let proof = secret.prove("client", &[b"one", b"two"]);
        assert!(secret.verify("client", &[b"one", b"two"], &proof));
        assert!(!secret.verify("server", &[b"one", b"two"], &proof));
        assert!(!secret.verify("client", &[b"onet", b"wo"], &proof));
        assert!(!secret.verify("client", &[b"one", b"two"], &proof[..31]));
        assert!(
            !Secret::random()
                .unwrap()
                .verify("client", &[b"one", b"two"], &proof)
        );
    }
}
