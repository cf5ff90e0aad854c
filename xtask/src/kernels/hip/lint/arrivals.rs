//! Checks what one thread does for a whole block: flags that it publishes, and arrivals that it counts.

use super::super::isa::{Access, Instruction};
use super::super::registers::{effect, returns};
use super::{Code, Complaint, Step, UNRELEASED, begins, carries_flags};
use crate::kernels::flow;

/// Kernels in which a wave publishes its own stores, and its pair of waves has no other thread that stores for the flag;
/// and the one in which a thread stores its own count before it confirms.
const FOR_ITSELF: [&str; 3] = [
    "symmem_move_pieces",
    "symmem_reduce_push_",
    "symmem_exchange",
];
/// Kernels that wait by `handle.h`, where the thread that waits counts its block's departure, in which other threads have
/// no part.
const EXAMPLES: &str = "symmem_example_";
/// The kernel in which one thread adds to a word for the host.
const FOR_THE_HOST: &str = "symmem_word_update";

// Facts that may hold before an instruction.

/// Data was stored since the last block barrier.
const UNMET_STORES: u8 = 1;
/// There was no block barrier.
const UNMET: u8 = 2;

impl Code<'_> {
    /// Checks that a block barrier stands between the stores of a block and a flag that one thread publishes for it. The
    /// flag of a wait's record, which only the thread that claimed the record publishes, says nothing of others' stores.
    pub(super) fn whole_blocks(&self, publications: &[u64]) -> Vec<Complaint> {
        if begins(&self.function.name, &FOR_ITSELF) {
            return Vec::new();
        }
        let facts = flow::facts(self.successors.len(), UNMET, |index, facts| {
            let instruction = &self.function.instructions[index];
            let after = match instruction.mnemonic.as_str() {
                "s_barrier" => 0,
                "global_atomic_cmpswap" => facts & !UNMET_STORES,
                _ if self.stores_data(instruction) => facts | UNMET_STORES,
                _ => facts,
            };
            (after, self.successors[index].clone())
        });
        let departs = self.function.name.starts_with(EXAMPLES);
        let mut found = Vec::new();
        for ((index, instruction), facts) in self.instructions().zip(facts) {
            let facts = facts.unwrap_or(0);
            if publications.contains(&instruction.address) && facts & UNMET_STORES != 0 {
                found.push((
                    index,
                    "a flag is published without a block barrier behind the block's stores",
                ));
            }
            if self.arrives(instruction) && !departs && facts & UNMET != 0 {
                found.push((
                    index,
                    "an arrival for a block without a block barrier before it",
                ));
            }
        }
        found
    }

    /// Returns whether an instruction stores data, as far as that can be told from flags: these have system scope. Without
    /// such scopes, only stores of 16 bytes are certainly data.
    fn stores_data(&self, instruction: &Instruction) -> bool {
        instruction.access() == Some(Access::Store)
            && if self.single_cache_bits {
                instruction.mnemonic == "global_store_dwordx4"
            } else {
                !(instruction.has("sc0") && instruction.has("sc1"))
            }
    }

    /// Returns whether an instruction counts an arrival: an addition whose previous value is used.
    fn arrives(&self, instruction: &Instruction) -> bool {
        instruction.mnemonic == "global_atomic_add"
            && returns(instruction)
            && self.function.name != FOR_THE_HOST
    }

    /// Checks that the previous value of an atomic is waited for, that a write-back comes before an arrival, and an
    /// invalidation behind it, before anything that only the last one may do. The blocks of kernels whose packets carry
    /// their flags count only that they have loaded, which needs neither.
    pub(super) fn arrivals(&self) -> Vec<Complaint> {
        let mut found = Vec::new();
        let facts = self.facts();
        for (index, instruction) in self.instructions() {
            if instruction.access() == Some(Access::Atomic)
                && returns(instruction)
                && self.uses_early(index)
            {
                found.push((
                    index,
                    "the value of an atomic is used before it is waited for",
                ));
            }
            if !self.arrives(instruction) || carries_flags(&self.function.name) {
                continue;
            }
            if facts[index].unwrap_or(0) & UNRELEASED != 0 {
                found.push((index, "an arrival without a write-back directly before"));
            }
            if self.acts_early(index) {
                found.push((index, "no invalidation behind an arrival"));
            }
        }
        found
    }

    /// Returns whether a path uses an atomic's value before it waits for it.
    fn uses_early(&self, index: usize) -> bool {
        let value = effect(&self.function.instructions[index]).writes;
        self.reaches(index, |each| {
            let instruction = &self.function.instructions[each];
            let effect = effect(instruction);
            if instruction.drains() {
                Step::Stop
            } else if effect.reads.meets(value) {
                Step::Found
            } else if effect.writes.contains(value) {
                Step::Stop
            } else {
                Step::On
            }
        })
    }

    /// Returns whether a path from an arrival comes to a store, an ordinary load, a block barrier or the end before an
    /// invalidation.
    fn acts_early(&self, index: usize) -> bool {
        self.reaches(index, |each| {
            let instruction = &self.function.instructions[each];
            let acts = match instruction.access() {
                Some(Access::Load) => !self.is_flag_load(instruction),
                Some(Access::Store | Access::Atomic) => true,
                None => matches!(instruction.mnemonic.as_str(), "s_barrier" | "s_endpgm"),
            };
            if self.is_invalidation(each) {
                Step::Stop
            } else if acts {
                Step::Found
            } else {
                Step::On
            }
        })
    }
}
