//! What the live test does, in words, for somebody who decides whether it may run.

use std::fmt;
use symmem::multicast_bytes;
use symmem_bench::Effort;
use symmem_bench::report::Collective;
use symmem_cuda::{MULTICAST_SLOTS, multicast_failures};

/// Room for all conformance cases. They keep from case to case, of each of 14 element types and for two calls at
/// once, a source and a destination in the next power of two above 16 MiB: 1.75 GiB, beside the slots of collectives.
const FULL_BYTES: u64 = 4 << 30;

/// The longest line of what is printed.
const WIDTH: usize = 112;

/// The test that would run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps {
    /// How many ranks, each with a device.
    pub ranks: u32,
    /// Bytes that an object is asked for.
    pub bytes: u64,
    /// How often a communicator is made and given up.
    pub comings: u32,
    /// What is measured.
    pub operations: Vec<Collective>,
    /// Bytes of the largest collective that is measured.
    pub largest: u64,
}

impl Steps {
    /// The size that `SYMMEM_MULTICAST_BYTES` asks for, or the usual one; more where a part of the test needs more.
    ///
    /// # Errors
    /// As [`multicast_bytes`].
    pub fn bytes(effort: Effort, largest: u64) -> Result<u64, String> {
        let checked = match effort {
            Effort::Full => FULL_BYTES,
            Effort::Quick | Effort::Standard => 0,
        };
        // Source and destination with their guards, in units that may be half of that.
        let measured = largest.saturating_mul(4);
        Ok(multicast_bytes()?.max(checked).max(measured))
    }

    /// How often a communicator is made and given up.
    pub fn comings(effort: Effort) -> u32 {
        match effort {
            Effort::Quick => 2,
            Effort::Standard => 8,
            // One more than a switch can hold would do.
            Effort::Full => MULTICAST_SLOTS + 2,
        }
    }
}

/// What can go wrong, a paragraph for each number of the driver's.
fn failures() -> String {
    let told = multicast_failures().map(|failure| {
        let (name, code, advice) = (failure.name, failure.code, failure.advice);
        wrapped(&format!("{name} ({code}): {advice}."))
    });
    told.concat()
}

/// A paragraph, indented, whose lines after the first are indented more.
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

/// Names in a sentence.
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
        let (ranks, comings) = (self.ranks, self.comings);
        let (bytes, largest) = (mib(self.bytes), mib(self.largest));
        let (operations, failures) = (named(&self.operations), failures());
        write!(
            to,
            "\
What the live test does, with {ranks} ranks on as many devices, which should be idle

  1. One communicator is set up and given back, each rank telling each step before and after it:
       all       read the attribute, look up five cuMulticast functions
       rank 0    cuMulticastGetGranularity, minimum and recommended
                 cuMulticastCreate, for {ranks} devices, {bytes} rounded up to the recommended granularity
                 cuMemExportToShareableHandle, as a file descriptor that the others get
       others    cuMemImportFromShareableHandle
       all       cuMulticastAddDevice                           all agree, or all undo it
       all       cuMulticastBindMem, memory of collectives      all agree, or all undo it
       all       cuMemAddressReserve, cuMemMap, cuMemSetAccess  all agree, or all undo it
       all       cuMulticastBindMem, two buffers; an all_reduce by the switch, every element checked
       all       cuMulticastUnbind of the buffers, cuMemUnmap, cuMulticastUnbind, cuMemRelease
     Each call that may block has a deadline. A call that never returns is left behind on its thread.
  2. The conformance cases of both algorithms by multicast, in one communicator.
  3. Set-up and giving back {comings} times in the same processes: the slots come back.
  4. {operations} up to {largest}:
     by multicast, by our peer-to-peer algorithms and by NCCL, which may use multicast by itself in these
     processes (NCCL_NVLS_ENABLE=2, or what you set it to).
The first thing that goes wrong ends the test, and nothing is set up after it.

It takes 1 of the switch's {MULTICAST_SLOTS} slots at a time; in the fourth part NCCL takes more, for its own objects.
Variables are set for the ranks alone: SYMMEM_MULTICAST=1, SYMMEM_MULTICAST_BYTES, in the first part SYMMEM_LOG and
in the fourth NCCL's. Nothing else of the machine is changed.

What can go wrong
{failures}  A set-up that fails or is killed half-way can leave the fabric so that later jobs of this machine fail, with
  multicast or without, until it is put right.

How to recover, as root, with no process on the GPUs
  systemctl status nvidia-fabricmanager        is it up? (and nvidia-imex, where there is one)
  systemctl stop nvidia-fabricmanager
  nvidia-smi --gpu-reset                       all GPUs of the switch together; where that fails, reboot
  systemctl start nvidia-fabricmanager
  nvidia-smi -q | grep -A3 Fabric              until the state is completed

To run it, on a machine that is yours to put out of service
  symmem doctor multicast --i-own-this-machine
    --quick    fewer cases, sizes and repeats
    --full     all cases, sizes up to 1 GiB, more repeats than the switch has slots
    --json F   everything that was found out
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
            comings: 4,
            operations: vec![Collective::AllReduce, Collective::Broadcast],
            largest: 64 << 20,
        }
    }

    #[test]
    fn the_steps_have_the_numbers_of_the_test_that_would_run() {
        let text = steps().to_string();
        for part in [
            "for 8 devices, 1024 MiB",
            "giving back 4 times",
            "4. all_reduce and broadcast up to 64 MiB:\n",
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
