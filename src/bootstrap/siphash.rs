//! SipHash-2-4, a short keyed hash: hashes reveal neither the key nor other hashes under it.
//!
//! Written out here, since the one of the standard library is deprecated and that of its maps may change. From
//! [Aumasson and Bernstein](https://www.aumasson.jp/siphash/siphash.pdf), section 2.

/// Returns the hash of `message` under `key`; the same on every machine.
pub(super) fn siphash(key: &[u8; 16], message: &[u8]) -> u64 {
    let key = u128::from_le_bytes(*key);
    let (low, high) = (key as u64, (key >> 64) as u64);
    let mut state = [
        low ^ 0x736f_6d65_7073_6575,
        high ^ 0x646f_7261_6e64_6f6d,
        low ^ 0x6c79_6765_6e65_7261,
        high ^ 0x7465_6462_7974_6573,
    ];
    let (words, rest) = message.as_chunks::<8>();
    for word in words {
        absorb(&mut state, u64::from_le_bytes(*word));
    }
    // The last word has the message's length in its last byte.
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    last[7] = message.len() as u8;
    absorb(&mut state, u64::from_le_bytes(last));
    state[2] ^= 0xff;
    for _ in 0..4 {
        round(&mut state);
    }
    state.iter().fold(0, |hash, word| hash ^ word)
}

fn absorb(state: &mut [u64; 4], word: u64) {
    state[3] ^= word;
    round(state);
    round(state);
    state[0] ^= word;
}

fn round([a, b, c, d]: &mut [u64; 4]) {
    *a = a.wrapping_add(*b);
    *b = b.rotate_left(13) ^ *a;
    *a = a.rotate_left(32);
    *c = c.wrapping_add(*d);
    *d = d.rotate_left(16) ^ *c;
    *a = a.wrapping_add(*d);
    *d = d.rotate_left(21) ^ *a;
    *c = c.wrapping_add(*b);
    *b = b.rotate_left(17) ^ *c;
    *c = c.rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counting<const N: usize>() -> [u8; N] {
        std::array::from_fn(|index| index as u8)
    }

    #[test]
    fn the_example_of_the_paper_comes_out() {
        assert_eq!(
            siphash(&counting(), &counting::<15>()),
            0xa129_ca61_49be_45e5
        );
    }

    #[test]
    #[allow(
        deprecated,
        reason = "the standard library's SipHash-2-4 is what to compare with"
    )]
    fn every_length_hashes_as_in_the_standard_library() {
        use std::hash::Hasher;
        let key = counting();
        let (low, high) = (0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
        for length in 0..=300 {
            let message = vec![length as u8; length];
            let mut theirs = std::hash::SipHasher::new_with_keys(low, high);
            theirs.write(&message);
            assert_eq!(siphash(&key, &message), theirs.finish(), "{length}");
        }
    }
}
