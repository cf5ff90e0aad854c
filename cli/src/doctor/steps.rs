//! The description of the live test, for the person who decides whether it may run.

use std::fmt;
use symmem::multicast_bytes;
use symmem_bench::Effort;
use symmem_bench::report::Collective;
use symmem_cuda::{MULTICAST_SLOTS, multicast_failures};

/// Bytes of the multicast object that all conformance cases need. The cases keep buffers: for each of 14 element types
/// and two concurrent calls, a source and a destination in the next power of two above 16 MiB. These are 1.75 GiB, and
/// the slots of collectives come on top.
const FULL_BYTES: u64 = 4 << 30;

/// Columns of the longest printed line.
const WIDTH: usize = 112;

/// The parameters of the live test; displays as a description of the test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps {
    /// Number of ranks, one device each.
    pub ranks: u32,
    /// Bytes of the multicast object, before rounding up.
    pub bytes: u64,
    /// Number of communicators that are set up and finalized.
    pub bring_ups: u32,
    /// The collectives that are measured.
    pub operations: Vec<Collective>,
    /// Bytes of the largest collective that is measured.
    pub largest: u64,
}

impl Steps {
    /// Returns the bytes of the multicast object: [`multicast_bytes`], or more if a part of the test needs more.
    ///
    /// # Errors
    /// The error of [`multicast_bytes`].
    pub fn bytes(effort: Effort, largest: u64) -> Result<u64, String> {
        let checked = match effort {
            Effort::Full => FULL_BYTES,
            Effort::Quick | Effort::Overview | Effort::Standard => 0,
        };
        // Source and destination with guards; rounding up to allocation units may double each.
        let measured = largest.saturating_mul(4);
        Ok(multicast_bytes()?.max(checked).max(measured))
    }

    /// Returns the number of communicators that are set up and finalized.
    pub fn bring_ups(effort: Effort) -> u32 {
        match effort {
            Effort::Quick => 2,
            Effort::Overview | Effort::Standard => 8,
            // More than the switch has slots, so that a leaked slot shows.
            Effort::Full => MULTICAST_SLOTS + 2,
        }
    }
}

/// Returns what can go wrong, one paragraph per error code of the driver.
fn failures() -> String {
    let told = multicast_failures().map(|failure| {
        let (name, code, advice) = (failure.name, failure.code, failure.advice);
        wrapped(&format!("{name} ({code}): {advice}."))
    });
    told.concat()
}

/// Wraps a paragraph to [`WIDTH`] with a hanging indent.
fn wrapped(text: &str) -> String {
    let mut line = " ".to_owned();
    let mut lines = String::new();
    for word in text.split(' ') {
        if line.len() + 1 + word.len() > WIDTH {
            lines += &(line + "\n");
            line = "   ".to_owned();
        }
        line += " ";
        line += word;
    }
    lines + &line + "\n"
}

/// Lists the operations' names as part of a sentence.
fn named(operations: &[Collective]) -> String {
    let names: Vec<&str> = operations.iter().map(|one| one.name()).collect();
    match names.split_last() {
        Some((last, names)) if !names.is_empty() => format!("{} and {last}", names.join(", ")),
        _ => names.concat(),
    }
}

fn mib(bytes: u64) -> String {
    match bytes >> 20 {
        0 => format!("{} KiB", bytes >> 10),
        mib => format!("{mib} MiB"),
    }
}

impl fmt::Display for Steps {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ranks, bring_ups) = (self.ranks, self.bring_ups);
        let (bytes, largest) = (mib(self.bytes), mib(self.largest));
        let (operations, failures) = (named(&self.operations), failures());
        write!(
            to,
            "\
The live test, with {ranks} ranks on {ranks} devices, which should be idle

  1. Sets up and finalizes one communicator. Each rank logs each step before and after it:
       all       read the attribute, look up five cuMulticast functions
       rank 0    cuMulticastGetGranularity, minimum and recommended
                 cuMulticastCreate, for {ranks} devices, {bytes} rounded up to the recommended granularity
                 cuMemExportToShareableHandle, as a file descriptor, which the others receive
       others    cuMemImportFromShareableHandle
       all       cuMulticastAddDevice                           all agree, or all undo it
       all       cuMulticastBindMem, memory of collectives      all agree, or all undo it
       all       cuMemAddressReserve, cuMemMap, cuMemSetAccess  all agree, or all undo it
       all       cuMulticastBindMem, two buffers; one all_reduce by the switch, every element checked
       all       cuMulticastUnbind of the buffers, cuMemUnmap, cuMulticastUnbind, cuMemRelease
     Each call that may block has a deadline. A call that never returns keeps its thread; the rank goes on.
  2. Runs the conformance cases of both multicast algorithms in one communicator.
  3. Sets up and finalizes {bring_ups} communicators in the same processes, to check that their slots are freed.
  4. Measures {operations} up to {largest}:
     by multicast, by symmem's peer-to-peer algorithms and by NCCL, which may use multicast in these
     processes (NCCL_NVLS_ENABLE=2, or your value).
The first failure ends the test; nothing is set up after it.

symmem uses 1 of the switch's {MULTICAST_SLOTS} slots at a time; in part 4 NCCL uses more for its own objects.
Only the ranks' environment is changed: SYMMEM_MULTICAST=1, SYMMEM_MULTICAST_BYTES, in part 1 SYMMEM_LOG and in
part 4 NCCL_NVLS_ENABLE. Nothing else on the machine is changed.

What can go wrong
{failures}  A setup that fails or is killed halfway can leave the NVLink fabric in a state in which later jobs on this
  machine fail, with or without multicast, until you recover it.

How to recover, as root, with no process on the GPUs
  systemctl status nvidia-fabricmanager        must be active (and nvidia-imex, if installed)
  systemctl stop nvidia-fabricmanager
  nvidia-smi --gpu-reset                       all GPUs of the switch together; if that fails, reboot
  systemctl start nvidia-fabricmanager
  nvidia-smi -q | grep -A3 Fabric              repeat until the state is Completed

To run the test, on a machine that you may put out of service
  symmem doctor multicast --i-own-this-machine
    --quick    fewer cases, sizes and communicators
    --full     all cases, sizes up to 1 GiB, more communicators than the switch has slots
    --json F   writes all findings
"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps() -> Steps {
        Steps {
            ranks: 8,
            bytes: 1 << 30,
            bring_ups: 4,
            operations: vec![Collective::AllReduce, Collective::Broadcast],
            largest: 64 << 20,
        }
    }

    #[test]
    fn the_steps_have_the_numbers_of_the_test_that_would_run() {
        let text = steps().to_string();
        for part in [
            "for 8 devices, 1024 MiB",
            "finalizes 4 communicators",
            "4. Measures all_reduce and broadcast up to 64 MiB:\n",
            "128 slots",
            "--i-own-this-machine",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.lines().all(|line| line.len() <= 120), "{text}");
        let small = Steps {
            largest: 1024,
            ..steps()
        };
        assert_eq!(small.to_string().matches("1 KiB").count(), 1);
    }

    #[test]
    fn what_can_go_wrong_is_what_a_failure_would_say() {
        let text = steps().to_string().replace("\n    ", " ");
        for failure in multicast_failures() {
            let (name, code, advice) = (failure.name, failure.code, failure.advice);
            let line = format!("\n  {name} ({code}): {advice}.\n");
            assert!(text.contains(&line), "{line}: {text}");
        }
    }

    #[test]
    fn operations_are_named_in_a_sentence() {
        let all = Collective::ALL;
        assert_eq!(named(&all[..1]), "all_reduce");
        assert_eq!(
            named(&all[..3]),
            "all_reduce, all_gather and reduce_scatter"
        );
    }

    #[test]
    fn an_object_has_room_for_every_part_of_the_test() {
        let asked = multicast_bytes().unwrap();
        let (small, large) = (1 << 10, 1 << 40);
        assert_eq!(Steps::bytes(Effort::Quick, small), Ok(asked));
        assert_eq!(Steps::bytes(Effort::Quick, large), Ok(4 << 40));
        assert_eq!(Steps::bytes(Effort::Full, small), Ok(asked.max(4 << 30)));
        assert_eq!(Steps::bytes(Effort::Full, large), Ok(4 << 40));
    }
}
