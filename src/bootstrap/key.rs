//! What makes a process a rank of one job and of no other, and the socket's name that follows from it.

use std::hint::black_box;

use crate::bootstrap::secret::{SECRET_BYTES, Secret, hex};
use crate::bootstrap::siphash::siphash;

/// Most bytes of a job's name that ranks meet under without a secret.
pub(super) const MAX_JOB: usize = 4096;

/// What every rank of a job has.
#[derive(Clone, Debug)]
pub(super) enum Key {
    /// The launcher's secret.
    Secret(Secret),
    /// The job's name, where no launcher gave a secret. It can be guessed, so it is only good on sockets where the
    /// kernel vouches for the peer's user: it turns away a stray rank of another job.
    Job(String),
}

impl Key {
    /// Which kind of key it is, as the byte before its length in a greeting.
    pub(super) fn kind(&self) -> u8 {
        match self {
            Self::Secret(_) => 1,
            Self::Job(_) => 2,
        }
    }

    /// The bytes to show to a peer that may see them.
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Secret(secret) => secret.bytes(),
            Self::Job(job) => job.as_bytes(),
        }
    }

    /// Whether a key of `kind` with the bytes `shown` is this one. Takes the same time wherever bytes differ.
    pub(super) fn is(&self, kind: u8, shown: &[u8]) -> bool {
        let own = self.bytes();
        if (kind, shown.len()) != (self.kind(), own.len()) {
            return false;
        }
        // The compiler cannot see through the box, so it cannot stop at the first difference.
        let pairs = own.iter().zip(shown);
        pairs.fold(0, |different, (own, shown)| {
            black_box(different | (own ^ shown))
        }) == 0
    }

    /// The secret, without which nobody is let in over TCP.
    #[cfg(feature = "tcp")]
    pub(super) fn secret(&self) -> Option<&Secret> {
        match self {
            Self::Secret(secret) => Some(secret),
            Self::Job(_) => None,
        }
    }

    /// The name of the abstract Unix socket on which the ranks of `job` meet.
    ///
    /// Every process of the host can list these names (`/proc/net/unix`). Under a secret the name is a hash keyed
    /// with it: it reveals nothing of the secret, and nobody else can take the name of the next generation first.
    /// Two jobs whose names are the same by chance are told apart by the greeting, which compares the keys
    /// themselves.
    pub(super) fn socket_name(&self, uid: u32, job: &str, generation: u64) -> String {
        let (low, high) = match self {
            Self::Secret(secret) => halves(secret.bytes()),
            Self::Job(_) => ([0; 16], [1; 16]),
        };
        let message = [
            &uid.to_le_bytes()[..],
            &generation.to_le_bytes(),
            job.as_bytes(),
        ]
        .concat();
        let hash = [low, high].map(|key| siphash(&key, &message).to_le_bytes());
        format!("symmem-{}", hex(hash.as_flattened()))
    }
}

/// The two keys of 128 bits that a secret has in it.
fn halves(secret: &[u8; SECRET_BYTES]) -> ([u8; 16], [u8; 16]) {
    let half = |from: usize| std::array::from_fn(|index| secret[from + index]);
    (half(0), half(16))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(digit: &str) -> Key {
        Key::Secret(Secret::from_hex(&digit.repeat(64)).unwrap())
    }

    #[test]
    fn a_key_is_itself_and_no_other() {
        let job = |name: &str| Key::Job(name.into());
        let keys = [
            secret("a"),
            secret("b"),
            job("a"),
            job("b"),
            job("ab"),
            job(""),
        ];
        for (index, one) in keys.iter().enumerate() {
            for (other, shown) in keys.iter().enumerate() {
                assert_eq!(one.is(shown.kind(), shown.bytes()), index == other);
            }
        }
    }

    #[test]
    fn a_name_under_a_secret_is_no_job() {
        let Key::Secret(known) = secret("a") else {
            unreachable!()
        };
        let text = String::from_utf8(vec![b'a'; SECRET_BYTES]).unwrap();
        assert!(!Key::Job(text.clone()).is(secret("a").kind(), text.as_bytes()));
        assert!(!Key::Secret(known).is(Key::Job(text.clone()).kind(), text.as_bytes()));
    }

    #[test]
    fn a_change_of_key_user_job_or_generation_changes_the_socket() {
        let job = |name: &str| Key::Job(name.into());
        let mut names = vec![
            secret("a").socket_name(0, "job", 0),
            secret("b").socket_name(0, "job", 0),
            job("job").socket_name(0, "job", 0),
            job("job").socket_name(1, "job", 0),
            job("job").socket_name(0, "job", 1),
            job("jobs").socket_name(0, "jobs", 0),
            secret("a").socket_name(0, "job", 1),
        ];
        // The first half of a secret is one key, the second half the other.
        for part in [0..32, 32..64] {
            let mut digits = "a".repeat(64);
            digits.replace_range(part, &"c".repeat(32));
            let key = Key::Secret(Secret::from_hex(&digits).unwrap());
            names.push(key.socket_name(0, "job", 0));
        }
        let count = names.len();
        assert!(names.iter().all(|name| name.len() == "symmem-".len() + 32));
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count, "{names:?}");
    }
}
