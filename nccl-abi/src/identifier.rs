//! The identifier by which ranks find each other: NCCL's own, with symmem's in the part that NCCL leaves at zero.

use crate::abi::{self, UniqueId};
use crate::failure::Failure;
use std::io::Read;
use symmem::LaunchEnvironment;

/// Bytes that NCCL's part has: an address and a few numbers, 44 bytes in 2.28. Checked when an identifier is made.
const OURS: usize = 64;
/// Begins symmem's part; the last byte counts versions of it.
const MAGIC: [u8; 8] = *b"symmem\0\x01";
const HOST: usize = OURS + 8;
const SECRET: usize = HOST + 16;

/// Returns an identifier with symmem's part in it, or `nccl`'s if there is no room.
///
/// # Errors
/// If the kernel gives no random bytes, or does not say which boot of which host this is.
pub fn marked(nccl: UniqueId) -> Result<UniqueId, Failure> {
    let mut bytes = nccl.0;
    if bytes[OURS..].iter().any(|byte| *byte != 0) {
        return Ok(nccl);
    }
    bytes[OURS..HOST].copy_from_slice(&MAGIC);
    bytes[HOST..SECRET].copy_from_slice(&host()?);
    let random = std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes[SECRET..SECRET + 32]));
    random.map_err(|error| unread("/dev/urandom", &error))?;
    Ok(UniqueId(bytes))
}

/// Returns where ranks that have this identifier meet.
///
/// # Errors
/// If the identifier has no part of symmem's or comes from another host, or the numbers are wrong.
pub fn meeting(id: &UniqueId, rank: u32, world: u32) -> Result<LaunchEnvironment, Failure> {
    let usage = |message: &str| Failure::new(abi::INVALID_USAGE, message);
    if id.0[OURS..HOST] != MAGIC {
        return Err(usage("rank 0 made the identifier without symmem"));
    }
    if id.0[HOST..SECRET] != host()? {
        return Err(usage("rank 0 is on another host"));
    }
    let hex: String = (id.0[SECRET..SECRET + 32].iter())
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let mut meeting = LaunchEnvironment::local(rank, world, "nccl")
        .map_err(|error| Failure::new(abi::INVALID_ARGUMENT, error.to_string()))?;
    meeting.secret = symmem::bootstrap::Secret::from_hex(&hex);
    meeting.source = "ncclCommInitRank";
    Ok(meeting)
}

/// Returns a number that differs between hosts and between boots of a host.
fn host() -> Result<[u8; 16], Failure> {
    const FILE: &str = "/proc/sys/kernel/random/boot_id";
    let text = std::fs::read_to_string(FILE).map_err(|error| unread(FILE, &error))?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let number = u128::from_str_radix(&digits, 16);
    let number = number
        .map_err(|error| Failure::new(abi::SYSTEM_ERROR, format!("{FILE}: {text:?}: {error}")))?;
    Ok(number.to_be_bytes())
}

fn unread(file: &str, error: &std::io::Error) -> Failure {
    Failure::new(abi::SYSTEM_ERROR, format!("reading {file}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_have_the_identifier_meet_under_its_secret_and_no_other() {
        let secrets: Vec<_> = (0..2)
            .map(|_| marked(UniqueId([0; 128])).expect("a host with random bytes"))
            .map(|id| [0, 1].map(|rank| meeting(&id, rank, 2).expect("same host").secret))
            .map(|both| both.map(|secret| secret.expect("32 bytes").to_hex()))
            .collect();
        assert_eq!(secrets[0][0], secrets[0][1]);
        assert_ne!(secrets[0][0], secrets[1][0]);
    }

    #[test]
    fn an_identifier_of_another_host_or_without_symmem_is_refused() {
        let mut id = marked(UniqueId([0; 128])).expect("a host with random bytes");
        id.0[HOST] ^= 1;
        let refused = |id: &UniqueId| meeting(id, 0, 2).expect_err("refused").message;
        assert!(refused(&id).contains("another host"));
        assert!(refused(&UniqueId([0; 128])).contains("without symmem"));
    }

    #[test]
    fn an_identifier_whose_tail_is_in_use_stays_as_it_is() {
        let full = UniqueId([7; 128]);
        assert_eq!(marked(full).expect("no failure").0, full.0);
    }
}
