//! The key that makes a process a rank of one job and no other, and the socket's name derived from it.

use std::borrow::Cow;
use std::hint::black_box;

use crate::bootstrap::secret::{SECRET_BYTES, Secret, hex};
use crate::bootstrap::siphash::siphash;

/// Most bytes of the job's name, if ranks meet without a secret of the job's own.
pub(super) const MAX_JOB: usize = 4096;

/// Most bytes of a key, as it is shown.
pub(super) const MAX_KEY: usize = SECRET_BYTES + MAX_JOB;

/// The key of a job, which all its ranks have.
#[derive(Clone, Debug)]
pub(super) enum Key {
    /// The job's secret, from its launcher.
    Secret(Secret),
    /// The secret in the user's secret file, and the job's name, which tells the user's jobs apart.
    User { secret: Secret, job: String },
    /// The job's name, if there is neither. It can be guessed, so it is valid only on sockets where the
    /// kernel vouches for the peer's user: it turns away a stray rank of another job.
    Job(String),
}

impl Key {
    /// Returns the kind of key, as the byte before its length in a greeting.
    pub(super) fn kind(&self) -> u8 {
        match self {
            Self::Secret(_) => 1,
            Self::Job(_) => 2,
            Self::User { .. } => 3,
        }
    }

    /// Returns the bytes to show to a peer that may see them.
    pub(super) fn bytes(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Secret(secret) => Cow::Borrowed(secret.bytes()),
            Self::User { secret, job } => [secret.bytes(), job.as_bytes()].concat().into(),
            Self::Job(job) => Cow::Borrowed(job.as_bytes()),
        }
    }

    /// Returns whether a key of `kind` with the bytes `shown` is this one. Takes constant time for keys of one
    /// length.
    pub(super) fn is(&self, kind: u8, shown: &[u8]) -> bool {
        let own = self.bytes();
        if (kind, shown.len()) != (self.kind(), own.len()) {
            return false;
        }
        // The compiler cannot optimize across the black box, so it cannot stop at the first difference.
        let pairs = own.iter().zip(shown);
        pairs.fold(0, |different, (own, shown)| {
            black_box(different | (own ^ shown))
        }) == 0
    }

    /// Returns the job's secret, which every connection over TCP must prove to know.
    #[cfg(feature = "tcp")]
    pub(super) fn secret(&self) -> Option<&Secret> {
        match self {
            Self::Secret(secret) => Some(secret),
            Self::User { .. } | Self::Job(_) => None,
        }
    }

    /// Returns the name of the abstract Unix socket on which the ranks of `job` meet.
    ///
    /// Every process of the host can list these names (`/proc/net/unix`). With a secret, the job's or the user's, the
    /// name is a hash keyed with it: it reveals nothing of the secret, and no process without the secret can take the
    /// name first. If the names of two jobs collide, the greeting tells them apart, since it compares the keys
    /// themselves.
    pub(super) fn socket_name(&self, uid: u32, job: &str, generation: u64) -> String {
        let (low, high) = match self {
            Self::Secret(secret) | Self::User { secret, .. } => halves(secret.bytes()),
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

/// Splits a secret into two keys of 128 bits.
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

    fn user(digit: &str, job: &str) -> Key {
        let (secret, job) = (Secret::from_hex(&digit.repeat(64)).unwrap(), job.into());
        Key::User { secret, job }
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
            user("a", "a"),
            user("a", "ab"),
            user("b", "a"),
            user("a", ""),
        ];
        for (index, one) in keys.iter().enumerate() {
            for (other, shown) in keys.iter().enumerate() {
                assert_eq!(one.is(shown.kind(), &shown.bytes()), index == other);
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
        assert!(!secret("a").is(user("a", "").kind(), &user("a", "").bytes()));
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
            user("d", "job").socket_name(0, "job", 0),
            user("e", "job").socket_name(0, "job", 0),
            user("d", "jobs").socket_name(0, "jobs", 0),
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
