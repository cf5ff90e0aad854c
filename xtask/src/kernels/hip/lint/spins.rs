//! Checks loops that wait for another device: what they poll, what they do with both halves of a packet, and what comes
//! after them.

use super::super::isa::{Access, Instruction};
use super::super::registers::{Registers, effect, operands};
use super::decisions::{Decision, Decisions};
use super::{Code, Complaint, Step, begins, carries_flags};

impl Code<'_> {
    pub(super) fn spins(&self) -> Vec<Complaint> {
        let decisions = self.decisions();
        let mut found = self.plain_spins(&decisions);
        found.extend(self.acquires(&decisions));
        found.extend(self.halves(&decisions));
        found
    }

    /// Checks that a loop which is left by a value, and reads it again in every turn, reads it past the caches.
    fn plain_spins(&self, decisions: &Decisions) -> Vec<Complaint> {
        let repeats = |load: &&Decision| {
            let mut loops = load.of.iter();
            loops.any(|&number| self.repeats(decisions, number, load.index))
        };
        decisions
            .loads
            .iter()
            .filter(|load| !self.is_flag_load(&self.function.instructions[load.index]))
            .filter(repeats)
            .map(|load| {
                let what = "a loop waits for a value that it loads below system scope";
                (load.index, what)
            })
            .collect()
    }

    /// Checks that on every path from a wait to the next block barrier, the next ordinary load or the end an invalidation
    /// comes first. A packet needs none: it is the data.
    fn acquires(&self, decisions: &Decisions) -> Vec<Complaint> {
        let packets = carries_flags(&self.function.name);
        decisions
            .loads
            .iter()
            .filter(|load| {
                let instruction = &self.function.instructions[load.index];
                self.is_flag_load(instruction)
                    && !(packets && instruction.mnemonic == "global_load_dwordx2")
                    && !self.asks_whether_to_give_up(decisions, load)
            })
            .filter(|load| self.misses_invalidation(decisions, load))
            .map(|load| {
                (
                    load.index,
                    "no invalidation after a loop that waits for a flag",
                )
            })
            .collect()
    }

    /// Returns whether the load is of a word by which a wait gives up: it comes after the clock in every turn.
    fn asks_whether_to_give_up(&self, decisions: &Decisions, load: &Decision) -> bool {
        let Some(&number) = load.of.last() else {
            return false;
        };
        let within = &decisions.loops[number];
        let clock = |index: usize| self.function.instructions[index].mnemonic == "s_memrealtime";
        let mut seen = vec![false; self.successors.len()];
        // Forward from the loop's entries without passing the clock.
        let mut work: Vec<usize> = (0..self.successors.len())
            .filter(|&before| !within.contains(before))
            .flat_map(|before| self.successors[before].iter().copied())
            .filter(|&entry| within.contains(entry))
            .collect();
        if within.contains(0) {
            work.push(0);
        }
        while let Some(index) = work.pop() {
            if index == load.index {
                return false;
            }
            if !within.contains(index) || clock(index) || std::mem::replace(&mut seen[index], true)
            {
                continue;
            }
            work.extend(&self.successors[index]);
        }
        true
    }

    /// Returns whether a path from the load leaves its loop, without a look at the clock, and comes to a block barrier, an
    /// ordinary load or the end before an invalidation. (A wait that gives up looks at the clock after its last load.)
    fn misses_invalidation(&self, decisions: &Decisions, load: &Decision) -> bool {
        let Some(&number) = load.of.last() else {
            return false;
        };
        let within = &decisions.loops[number];
        self.reaches(load.index, |each| {
            let instruction = &self.function.instructions[each];
            let ordinary =
                instruction.access() == Some(Access::Load) && !self.is_flag_load(instruction);
            if self.is_invalidation(each) || instruction.mnemonic == "s_memrealtime" {
                Step::Stop
            } else if matches!(instruction.mnemonic.as_str(), "s_barrier" | "s_endpgm")
                || (ordinary && !within.contains(each))
            {
                Step::Found
            } else if self.skips_invalidation(each) {
                Step::Fall
            } else {
                Step::On
            }
        })
    }

    /// Returns whether a branch skips an invalidation because no lane is active that has waited with success: those that
    /// have are active in the code behind the branch.
    fn skips_invalidation(&self, index: usize) -> bool {
        let instructions = &self.function.instructions;
        let is_branch =
            |each: usize| begins(&instructions[each].mnemonic, &["s_branch", "s_cbranch"]);
        instructions[index].mnemonic == "s_cbranch_execz"
            && (index + 1..instructions.len())
                .take_while(|&each| !is_branch(each) && !self.is_flag_load(&instructions[each]))
                .any(|each| self.is_invalidation(each))
    }

    /// Checks that the values of both halves of a packet decide whether its loop is left.
    fn halves(&self, decisions: &Decisions) -> Vec<Complaint> {
        if !carries_flags(&self.function.name) {
            return Vec::new();
        }
        let decides = |index: usize| decisions.loads.iter().any(|load| load.index == index);
        let in_spin = |index: usize| {
            decisions
                .loads
                .iter()
                .filter(|load| load.index.abs_diff(index) < NEAR)
                .any(|load| {
                    load.of
                        .last()
                        .is_some_and(|&of| decisions.loops[of].contains(index))
                })
        };
        self.instructions()
            .filter_map(|(index, _)| Some((index, self.other_half(index)?)))
            .filter(|(first, second)| in_spin(*first) || in_spin(*second))
            .flat_map(|(first, second)| [first, second])
            .filter(|&half| !decides(half))
            .map(|half| (half, "a loop waits for a packet without this half of it"))
            .collect()
    }

    /// Returns the load of the half behind this one, if this is a load of a packet's first half.
    fn other_half(&self, index: usize) -> Option<usize> {
        let instructions = &self.function.instructions;
        let (address, offset) = self.half(&instructions[index])?;
        for (other, instruction) in instructions.iter().enumerate().skip(index + 1).take(NEAR) {
            if self.half(instruction) == Some((address, offset + 8)) {
                return Some(other);
            }
            let writes = effect(instruction).writes;
            if address
                .iter()
                .any(|each| writes.meets(Registers::parse(each)))
            {
                return None;
            }
        }
        None
    }

    /// Returns address and offset of a load of half a packet.
    fn half<'i>(&self, instruction: &'i Instruction) -> Option<([&'i str; 2], i64)> {
        if instruction.mnemonic != "global_load_dwordx2" || !self.is_flag_load(instruction) {
            return None;
        }
        let [_, address, base] = operands(instruction)[..] else {
            return None;
        };
        let mut modifiers = instruction.operands.split(' ');
        let offset = modifiers.find_map(|each| each.strip_prefix("offset:"));
        Some((
            [address, base],
            offset.map_or(Some(0), |offset| offset.parse().ok())?,
        ))
    }
}

/// The most instructions between the loads of a packet's halves.
const NEAR: usize = 24;
