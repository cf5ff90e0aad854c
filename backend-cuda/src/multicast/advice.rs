//! Meaning of failed multicast calls, from reports of users: the driver's codes say little.

use crate::driver::constants::result::*;
use symmem_core::backend::Failure;

/// Multicast objects that a switch can hold, from reports of users. Each object takes one slot, whatever its size.
pub const SLOTS: u32 = 128;

/// Meaning of a driver code that a multicast call returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorAdvice {
    /// Driver code.
    pub code: u32,
    /// Its meaning in the driver's documentation.
    pub name: &'static str,
    /// Most likely cause, and what to do.
    pub advice: String,
}

/// Returns every driver code with a special meaning for multicast calls.
pub fn meanings() -> [ErrorAdvice; 6] {
    let slots = format!(
        "the switch has no slot left: it holds {SLOTS} multicast objects, one per communicator; end other \
         communicators and other jobs on this host that use multicast"
    );
    [
        (OUT_OF_MEMORY, "out of memory with memory free", &*slots),
        (
            INVALID_VALUE,
            "invalid value",
            "the fabric manager may have been restarted without a reset of the GPUs, or the container lacks \
             the device nodes of the fabric (/dev/nvidia-caps); reset the GPUs, or pass the nodes in",
        ),
        (
            ILLEGAL_STATE,
            "illegal state",
            "the fabric manager is down or has failed, or the IMEX service or its channel is missing; start \
             nvidia-fabricmanager (nvidia-imex), which may take a reset of the GPUs",
        ),
        (
            NOT_PERMITTED,
            "not permitted",
            "the system does not permit it: GPUs in confidential-computing mode have no multicast, and a \
             virtual machine or container may lack the permission",
        ),
        (
            NOT_SUPPORTED,
            "not supported",
            "these devices have no multicast together: they are in confidential-computing mode, MIG instances or \
             virtual GPUs, or no third-generation NVSwitch connects all of them",
        ),
        (
            SYSTEM_NOT_READY,
            "system not ready",
            "the fabric manager is not ready yet; wait until `nvidia-smi -q` shows the fabric state \
             Completed, then start all ranks again",
        ),
    ]
    .map(|(code, name, advice)| ErrorAdvice {
        code,
        name,
        advice: advice.into(),
    })
}

/// Adds to a multicast failure what to do. `memory_free` is the device's free memory in bytes, if known;
/// `bytes` is the size that the call was about.
pub fn advise(mut failure: Failure, bytes: u64, memory_free: Option<u64>) -> Failure {
    if let Some(advice) = advice(failure.vendor_code as u32, bytes, memory_free) {
        // Replace the general advice, which is about other calls.
        let meaning = failure.message.split("; ").next().unwrap_or_default();
        failure.message = format!("{meaning}; {advice}");
    }
    failure
}

fn advice(code: u32, bytes: u64, memory_free: Option<u64>) -> Option<String> {
    let found = meanings()
        .into_iter()
        .find(|meaning| meaning.code == code)?;
    let advice = found.advice;
    Some(match (code, memory_free) {
        (OUT_OF_MEMORY, Some(free)) if free < bytes => format!(
            "{free} bytes are free on this device: free memory, or make the object smaller \
             (SYMMEM_MULTICAST_BYTES)"
        ),
        (OUT_OF_MEMORY, Some(free)) => format!("with {free} bytes free on this device {advice}"),
        (OUT_OF_MEMORY, None) => format!("most likely {advice}"),
        _ => advice,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use symmem_core::backend::abi::Status;

    fn message(code: u32, free: Option<u64>) -> String {
        let failure = Failure::of_call(
            Status::CALL_FAILED,
            "cuMulticastBindMem",
            code as i32,
            "NAME (meaning); general advice",
        );
        advise(failure, 1 << 20, free).message
    }

    #[test]
    fn each_way_to_fail_has_its_own_message_behind_the_drivers_word() {
        let codes = [
            (OUT_OF_MEMORY, "128 multicast objects"),
            (INVALID_VALUE, "without a reset"),
            (ILLEGAL_STATE, "nvidia-fabricmanager"),
            (SYSTEM_NOT_READY, "not ready yet"),
            (NOT_PERMITTED, "confidential"),
            (NOT_SUPPORTED, "MIG"),
        ];
        let messages: HashSet<String> = codes
            .iter()
            .map(|&(code, words)| {
                let message = message(code, Some(1 << 30));
                assert!(message.starts_with("NAME (meaning); "), "{message}");
                assert!(!message.contains("general advice"), "{message}");
                assert!(message.contains(words), "{message}");
                message
            })
            .collect();
        assert_eq!(messages.len(), codes.len());
        assert_eq!(message(UNKNOWN, None), "NAME (meaning); general advice");
    }

    #[test]
    fn memory_that_is_full_is_told_apart_from_a_switch_that_is() {
        assert!(message(OUT_OF_MEMORY, Some(1 << 10)).contains("1024 bytes are free"));
        assert!(message(OUT_OF_MEMORY, Some(1 << 30)).contains("no slot left"));
        assert!(message(OUT_OF_MEMORY, None).contains("most likely the switch"));
    }
}
