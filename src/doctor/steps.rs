//! What the live test does, in words, for somebody who decides whether it may run.

use std::fmt;

/// Multicast objects that a switch can hold, whatever their size, as the field has found out.
pub const SLOTS: u32 = 128;

/// The size of a communicator's object where `SYMMEM_MULTICAST_BYTES` says nothing.
const USUAL_BYTES: u64 = 1 << 30;

/// The test that would run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    /// How many ranks, each with a device.
    pub ranks: u32,
    /// Bytes that an object is asked for.
    pub bytes: u64,
    /// How often a communicator is made and given up.
    pub comings: u32,
    /// Bytes of the largest collective that is measured.
    pub largest: u64,
}

impl Steps {
    /// The size that `SYMMEM_MULTICAST_BYTES` asks for; more where what is measured needs more.
    pub fn bytes(largest: u64) -> u64 {
        let asked = std::env::var("SYMMEM_MULTICAST_BYTES").ok();
        let asked = asked.and_then(|text| text.trim().parse().ok());
        // Source and destination with their guards, in units that may be half of that.
        asked.unwrap_or(USUAL_BYTES).max(largest.saturating_mul(4))
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
  4. all_reduce, reduce_scatter, all_gather and broadcast up to {largest}: by multicast, by our peer-to-peer
     algorithms and by NCCL, which may use multicast by itself in these processes (NCCL_NVLS_ENABLE=2, or
     what you set it to).

It takes 1 of the switch's {SLOTS} slots at a time; in the fourth part NCCL takes more, for objects of its own.
Variables are set for the ranks alone: SYMMEM_MULTICAST=1, and in the fourth part NCCL's. Nothing else of the
machine is changed.

What can go wrong
  Out of memory (2) with memory free: the switch has no slot left. End other jobs that use multicast.
  Illegal state (401): the fabric manager is down, or the IMEX service or its channel is missing.
  System not ready (802): the fabric manager is not ready. Wait for `nvidia-smi -q` to show the fabric's state
    as completed.
  Invalid value (1): the fabric manager was restarted without a reset of the GPUs, or a container lacks the
    device nodes in /dev/nvidia-caps.
  Not permitted (800), not supported (801): confidential computing, MIG, virtual GPUs, or no switch of the third
    generation between all devices.
  A set-up that fails or is killed half-way can leave the fabric so that later jobs of this machine fail, with
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

    #[test]
    fn the_steps_have_the_numbers_of_the_test_that_would_run() {
        let steps = Steps {
            ranks: 8,
            bytes: 1 << 30,
            comings: 4,
            largest: 64 << 20,
        };
        let text = steps.to_string();
        for part in [
            "for 8 devices, 1024 MiB",
            "giving back 4 times",
            "up to 64 MiB",
            "128 slots",
            "--i-own-this-machine",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(
            Steps {
                largest: 1024,
                ..steps
            }
            .to_string()
            .matches("1 KiB")
            .count(),
            1
        );
    }
}
