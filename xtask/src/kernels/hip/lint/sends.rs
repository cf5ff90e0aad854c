//! Counts the waits between the packets of one send to several peers: with each, the packets to the next peer leave only
//! once those to the one before have arrived.

use super::super::isa::{Access, Instruction};
use super::super::loops::{Loop, loops};
use super::{Code, Complaint, begins};

/// Kernels that send packets to several peers.
const SENDERS: [&str; 2] = ["symmem_reduce_packets_", "symmem_move_packets"];

impl Code<'_> {
    /// Returns the waits for all accesses that stand on a path forward between stores of packets in the same loop.
    pub(super) fn sends(&self) -> Vec<Complaint> {
        if !begins(&self.function.name, &SENDERS) {
            return Vec::new();
        }
        let loops = loops(&self.successors);
        let packets: Vec<usize> = self
            .instructions()
            .filter(|(_, instruction)| self.stores_half(instruction))
            .map(|(index, _)| index)
            .collect();
        let mut waits: Vec<usize> = packets
            .iter()
            .flat_map(|&packet| self.waits_before_next(packet, &packets, &loops))
            .collect();
        waits.sort_unstable();
        waits.dedup();
        waits
            .into_iter()
            .map(|wait| {
                (
                    wait,
                    "a send waits for packets to one peer before those to the next",
                )
            })
            .collect()
    }

    /// Returns the waits between a store of a packet and the next ones, forward and in the same loop.
    fn waits_before_next(&self, packet: usize, packets: &[usize], loops: &[Loop]) -> Vec<usize> {
        let innermost = |index: usize| loops.iter().rposition(|each| each.contains(index));
        let mut found = Vec::new();
        let mut seen = vec![[false; 2]; self.successors.len()];
        let mut work: Vec<(usize, Option<usize>)> = self.successors[packet]
            .iter()
            .map(|&next| (next, None))
            .collect();
        while let Some((index, wait)) = work.pop() {
            let instruction = &self.function.instructions[index];
            if index <= packet
                || std::mem::replace(&mut seen[index][usize::from(wait.is_some())], true)
            {
                continue;
            }
            if packets.contains(&index) {
                let same = innermost(index) == innermost(packet);
                found.extend(wait.filter(|_| same));
                continue;
            }
            if self.is_flag_load(instruction) || instruction.mnemonic == "s_barrier" {
                continue;
            }
            let wait = wait.or(instruction.drains().then_some(index));
            let next = self.successors[index].iter().filter(|&&next| next > index);
            work.extend(next.map(|&next| (next, wait)));
        }
        found
    }

    /// Returns whether an instruction stores half a packet. On targets whose stores have no scope, a store of data looks
    /// alike; therefore the rule is for the others.
    fn stores_half(&self, instruction: &Instruction) -> bool {
        instruction.access() == Some(Access::Store)
            && instruction.mnemonic == "global_store_dwordx2"
            && instruction.has("sc0")
            && instruction.has("sc1")
            // The only other such store is of a record's time.
            && !instruction.has("offset:32")
    }
}
