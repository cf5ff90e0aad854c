//! What travels between processes: UCX's addresses and keys with a length and a checksum.
//!
//! UCX reads them without knowing their length. A truncated one, or a key in an address's place, would make it read
//! past the end; here it becomes an error.

/// What the bytes are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Address,
    Key,
}

const HEADER_BYTES: usize = 16;

/// Returns the bytes with a header.
pub fn seal(kind: Kind, content: &[u8]) -> Vec<u8> {
    let mut sealed = Vec::with_capacity(HEADER_BYTES + content.len());
    sealed.extend_from_slice(&(content.len() as u64).to_le_bytes());
    sealed.extend_from_slice(&checksum(kind, content).to_le_bytes());
    sealed.extend_from_slice(content);
    sealed
}

/// Returns the bytes behind the header, or `None` if they are not what was sealed.
pub fn open(kind: Kind, sealed: &[u8]) -> Option<&[u8]> {
    let (length, rest) = sealed.split_first_chunk::<8>()?;
    let (sum, content) = rest.split_first_chunk::<8>()?;
    let whole = u64::from_le_bytes(*length) == content.len() as u64
        && u64::from_le_bytes(*sum) == checksum(kind, content);
    whole.then_some(content)
}

/// FNV-1a, 64 bits. It finds accidents, not attacks: a peer may write this process's memory anyway.
fn checksum(kind: Kind, content: &[u8]) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ u64::from(kind == Kind::Key);
    content.iter().fold(start, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sealed_is_opened_and_nothing_else() {
        let sealed = seal(Kind::Key, b"a key of UCX");
        assert_eq!(open(Kind::Key, &sealed), Some(&b"a key of UCX"[..]));
        assert_eq!(open(Kind::Address, &sealed), None, "another kind");
        for length in 0..sealed.len() {
            assert_eq!(open(Kind::Key, &sealed[..length]), None, "{length} bytes");
        }
        for position in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[position] ^= 4;
            assert_eq!(open(Kind::Key, &damaged), None, "byte {position}");
        }
    }
}
