//! Rung 2: checks the machine code for rules that the sources keep and a compiler could break.
//!
//! - R1: no wave reaches a block barrier with stores in flight. `s_barrier` does not wait for stores, so a flag that
//!   another wave publishes after it could overtake them.
//! - R2: a wave waits for a write-back before its next store, barrier or end. LLVM up to 22 can drop that wait
//!   (llvm-project's pull request 178316).
//! - Where the sources publish a flag (marked in the code object), a system write-back and its wait come directly before,
//!   and the flag's store has system scope. No marked place is missing.
//! - Accesses beyond the wave's own cache have system scope, as have write-backs, invalidations and atomics.
//! - A loop that waits for a value loads it with system scope ([`spins`], by the data flow in [`decisions`]).
//! - On every path from such a loop to the next barrier, ordinary load or end, the caches are invalidated, unless flag and
//!   data are one packet or the wait gave up.
//! - A loop that waits for a packet looks at both halves.
//! - A block barrier stands between a block's stores and a flag that one thread publishes for them, and before an arrival
//!   that it counts ([`arrivals`]). The value of an atomic is waited for; a write-back comes before an arrival and an
//!   invalidation behind it.
//! - A send of packets to several peers does not wait between them ([`sends`]).
//! - The loops of copies and reductions load and store 16 bytes at a time.
//! - Atomic operations on words release before and acquire behind.
//! - GEMM kernels use matrix instructions in a loop.
//! - No scratch memory, no flat accesses (which show a lost address space), and no calls, which the analysis does not
//!   follow.
//!
//! Source for the instructions: LLVM's "User Guide for AMDGPU Backend", memory models of gfx90a and gfx942.

mod arrivals;
mod decisions;
mod sends;
mod spins;
mod words;

use super::isa::{Access, Function, Instruction};
use crate::kernels::flow;

/// Kernels whose packets carry their flags, which order no other accesses.
const PACKETS: [&str; 6] = [
    "symmem_latency_packet",
    "symmem_move_packets",
    "symmem_move_lamport",
    "symmem_reduce_packets_",
    "symmem_reduce_lamport_",
    "symmem_reduce_norm_",
];

/// Kernels that copy or reduce in vectors.
const VECTORS: [&str; 7] = [
    "symmem_copy_vector",
    "symmem_move",
    "symmem_swap",
    "symmem_exchange",
    "symmem_reduce_",
    GATHERED,
    REDUCED,
];

/// All-gather + GEMM, and GEMM + reduce.
const GATHERED: &str = "symmem_gathered_gemm_";
const REDUCED: &str = "symmem_reduced_gemm_";

/// GEMM kernels.
const PRODUCTS: [&str; 2] = [GATHERED, REDUCED];

/// The least number of publications in a kernel, by prefix of its name, longer prefixes first. A wait has two for its
/// record, at the deadline and at an abort.
const PUBLICATIONS: [(&str, usize); 23] = [
    ("symmem_copy_vector", 1),
    ("symmem_copy_unrolled", 2),
    ("symmem_latency_packet", 2),
    ("symmem_latency_signal", 3),
    ("symmem_signal", 1),
    ("symmem_wait", 2),
    ("symmem_step", 3),
    ("symmem_word_update", 2),
    ("symmem_word_wait", 8),
    ("symmem_barrier", 3),
    ("symmem_move_packets", 8),
    ("symmem_move_lamport", 2),
    ("symmem_move_pieces", 7),
    ("symmem_move", 6),
    ("symmem_swap", 6),
    ("symmem_exchange", 8),
    ("symmem_reduce_packets_", 10),
    ("symmem_reduce_lamport_", 2),
    ("symmem_reduce_norm_", 2),
    ("symmem_reduce_push_", 13),
    ("symmem_reduce_", 6),
    (GATHERED, 3),
    (REDUCED, 9),
];

/// Returns how the names of the matrix instructions begin that a GEMM kernel uses: those of full rate, but of 8-bit floats on
/// gfx950 those of half the rate, which take no more of a line than gfx942's.
pub(super) fn matrix_instruction(target: &str, kernel: &str) -> &'static str {
    match target {
        _ if kernel.contains("_f8_") => "v_mfma_f32_16x16x32_fp8_fp8",
        "gfx950" => "v_mfma_f32_16x16x32",
        _ => "v_mfma_f32_16x16x16",
    }
}

fn begins(name: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| name.starts_with(prefix))
}

fn carries_flags(name: &str) -> bool {
    begins(name, &PACKETS)
}

/// Returns the least number of publications in a kernel, if it is known.
pub(super) fn least_publications(kernel: &str) -> Option<usize> {
    let known = PUBLICATIONS
        .iter()
        .find(|(prefix, _)| kernel.starts_with(prefix));
    known.map(|(_, least)| *least)
}

/// Returns the kernels without any parsed instruction, one line each, since the lint would find nothing in them.
pub fn unread<'a>(
    name: &str,
    kernels: impl Iterator<Item = &'a str>,
    functions: &[Function],
) -> Vec<String> {
    let read = |kernel: &&str| {
        let mut named = functions.iter().filter(|function| function.name == *kernel);
        named.any(|function| !function.instructions.is_empty())
    };
    kernels
        .filter(|kernel| !read(kernel))
        .map(|kernel| format!("{name}: {kernel}: no machine code was parsed"))
        .collect()
}

/// Returns the violations in the functions of a code object, one line each. `publications` are the addresses that the
/// sources marked.
pub fn lint(name: &str, target: &str, functions: &[Function], publications: &[u64]) -> Vec<String> {
    let mut found = Vec::new();
    for function in functions {
        let code = Code {
            function,
            successors: function.successors(),
            single_cache_bits: target == "gfx90a",
            matrix_instruction: matrix_instruction(target, &function.name),
        };
        let complaints = code
            .forms()
            .into_iter()
            .chain(code.order(publications))
            .chain(code.spins())
            .chain(code.whole_blocks(publications))
            .chain(code.arrivals())
            .chain(code.sends())
            .chain(code.vectors())
            .chain(code.products())
            .chain(code.words())
            .chain(code.published(publications));
        found.extend(complaints.map(|(index, what)| {
            let Some(instruction) = function.instructions.get(index) else {
                return format!("{name}: {}: {what}", function.name);
            };
            format!(
                "{name}: {}+{:#x}: {} {}: {what}",
                function.name,
                instruction.address - function.instructions[0].address,
                instruction.mnemonic,
                instruction.operands
            )
        }));
    }
    found
}

/// A violation by the instruction's index; an index past the end stands for the whole function.
type Complaint = (usize, &'static str);

struct Code<'a> {
    function: &'a Function,
    successors: Vec<Vec<usize>>,
    /// Whether the target is gfx90a, where only loads have a scope, of one bit (`glc`).
    single_cache_bits: bool,
    /// How the names of the matrix instructions begin that GEMM kernels use.
    matrix_instruction: &'static str,
}

// Facts that may hold before an instruction.

/// Stores of this wave may be in flight.
const UNDRAINED: u8 = 1;
/// A write-back may be in flight.
const WRITING_BACK: u8 = 2;
/// No write-back since this wave's last store or barrier.
const UNRELEASED: u8 = 4;

impl Code<'_> {
    fn instructions(&self) -> impl Iterator<Item = (usize, &Instruction)> {
        self.function.instructions.iter().enumerate()
    }

    /// Returns whether the instruction is a load that bypasses the caches of this wave's compute unit.
    fn is_flag_load(&self, instruction: &Instruction) -> bool {
        instruction.access() == Some(Access::Load)
            && if self.single_cache_bits {
                instruction.has("glc") && !instruction.has("slc")
            } else {
                instruction.has("sc0") && instruction.has("sc1")
            }
    }

    fn is_invalidation(&self, index: usize) -> bool {
        let mnemonic = |index: usize| {
            self.function
                .instructions
                .get(index)
                .map(|each| each.mnemonic.as_str())
        };
        if self.single_cache_bits {
            mnemonic(index) == Some("buffer_wbinvl1_vol")
        } else {
            mnemonic(index) == Some("buffer_inv")
        }
    }

    /// Returns instructions that are wrong in any place.
    fn forms(&self) -> Vec<Complaint> {
        self.instructions()
            .filter_map(|(index, instruction)| Some((index, self.form(index, instruction)?)))
            .collect()
    }

    fn form(&self, index: usize, instruction: &Instruction) -> Option<&'static str> {
        let mnemonic = instruction.mnemonic.as_str();
        let (sc0, sc1) = (instruction.has("sc0"), instruction.has("sc1"));
        let system = sc0 && sc1;
        if mnemonic.starts_with("scratch_")
            || begins(mnemonic, &["buffer_load", "buffer_store", "buffer_atomic"])
        {
            return Some("scratch memory: a spill, or an array that is not in registers");
        }
        if mnemonic.starts_with("flat_") {
            return Some("a flat access: the address is not known to be global");
        }
        if matches!(mnemonic, "s_setpc_b64" | "s_swappc_b64" | "s_call_b64") {
            return Some("a call or an indirect branch, which this check cannot follow");
        }
        if begins(mnemonic, &["s_branch", "s_cbranch"]) && instruction.target.is_none() {
            return Some("a branch out of the function");
        }
        if self.single_cache_bits {
            let before = index
                .checked_sub(1)
                .map(|before| &self.function.instructions[before]);
            return (mnemonic == "buffer_wbinvl1_vol"
                && before.is_none_or(|before| before.mnemonic != "buffer_invl2"))
            .then_some("an invalidation without buffer_invl2, which leaves the L2 stale");
        }
        match (instruction.access(), mnemonic) {
            (Some(Access::Load | Access::Store), _) if sc0 != sc1 => {
                Some("a flag below system scope; a peer does not see it")
            }
            (Some(Access::Atomic), _) if !sc1 => Some("an atomic below system scope"),
            (None, "buffer_wbl2") if !system => Some("a write-back that does not reach peers"),
            (None, "buffer_inv") if !system => {
                Some("an invalidation that leaves peers' data in the cache")
            }
            _ => None,
        }
    }

    fn facts(&self) -> Vec<Option<u8>> {
        flow::facts(self.successors.len(), UNRELEASED, |index, facts| {
            let instruction = &self.function.instructions[index];
            (transfer(instruction, facts), self.successors[index].clone())
        })
    }

    /// Checks R1, R2 and the instructions before a publication.
    fn order(&self, publications: &[u64]) -> Vec<Complaint> {
        let mut found = Vec::new();
        for ((index, instruction), facts) in self.instructions().zip(self.facts()) {
            let Some(facts) = facts else { continue };
            let barrier = instruction.mnemonic == "s_barrier";
            let stores = matches!(instruction.access(), Some(Access::Store | Access::Atomic));
            if barrier && facts & UNDRAINED != 0 {
                found.push((index, "R1: stores may be in flight at a block barrier"));
            }
            if (barrier || stores || instruction.mnemonic == "s_endpgm")
                && facts & WRITING_BACK != 0
            {
                found.push((index, "R2: no wait for a write-back"));
            }
            if publications.contains(&instruction.address) {
                if facts & UNRELEASED != 0 {
                    found.push((
                        index,
                        "a flag is published without a write-back directly before",
                    ));
                }
                if facts & WRITING_BACK != 0 {
                    found.push((
                        index,
                        "a flag is published while the write-back is in flight",
                    ));
                }
                if !self.stores_flag(index) {
                    found.push((
                        index,
                        "no store of a flag at system scope where one is published",
                    ));
                }
            }
        }
        found
    }

    /// Returns whether the next access on every path is a store that a peer sees.
    fn stores_flag(&self, index: usize) -> bool {
        let is_flag_store = |each: usize| {
            let instruction = &self.function.instructions[each];
            instruction.access() == Some(Access::Store)
                && (self.single_cache_bits || (instruction.has("sc0") && instruction.has("sc1")))
        };
        let misses = |each: usize| {
            let instruction = &self.function.instructions[each];
            if is_flag_store(each) {
                Step::Stop
            } else if instruction.access().is_some()
                || matches!(instruction.mnemonic.as_str(), "s_barrier" | "s_endpgm")
            {
                Step::Found
            } else {
                Step::On
            }
        };
        is_flag_store(index) || !self.reaches(index, misses)
    }

    /// Checks that GEMM kernels multiply in a loop, with the matrix instructions of the target's full rate.
    fn products(&self) -> Option<Complaint> {
        let multiplies = |(index, instruction): (usize, &Instruction)| {
            instruction.mnemonic.starts_with(self.matrix_instruction) && self.is_in_loop(index)
        };
        let found = !begins(&self.function.name, &PRODUCTS) || self.instructions().any(multiplies);
        (!found).then_some((self.successors.len(), "no loop has a matrix instruction"))
    }

    /// Checks the access width in loops of copies and reductions.
    fn vectors(&self) -> Vec<Complaint> {
        let name = &self.function.name;
        if !begins(name, &VECTORS) || carries_flags(name) {
            return Vec::new();
        }
        let has = |mnemonic: &str| {
            self.instructions().any(|(index, instruction)| {
                instruction.mnemonic == mnemonic && self.is_in_loop(index)
            })
        };
        let whole = self.successors.len();
        let mut found = Vec::new();
        if !has("global_load_dwordx4") {
            found.push((whole, "no loop loads 16 bytes at a time"));
        }
        if !has("global_store_dwordx4") {
            found.push((whole, "no loop stores 16 bytes at a time"));
        }
        found
    }

    /// Checks that no publication of the sources is missing.
    fn published(&self, publications: &[u64]) -> Option<Complaint> {
        let least = least_publications(&self.function.name)?;
        let count = self
            .instructions()
            .filter(|(_, instruction)| publications.contains(&instruction.address))
            .count();
        (count < least).then_some((
            self.successors.len(),
            "publishes fewer flags than its source",
        ))
    }

    fn is_in_loop(&self, index: usize) -> bool {
        self.reaches(
            index,
            |each| if each == index { Step::Found } else { Step::On },
        )
    }

    /// Returns whether `step` finds something on a path that begins after an instruction.
    fn reaches(&self, index: usize, step: impl Fn(usize) -> Step) -> bool {
        let mut seen = vec![false; self.successors.len()];
        let mut work = self.successors[index].clone();
        while let Some(each) = work.pop() {
            if std::mem::replace(&mut seen[each], true) {
                continue;
            }
            match step(each) {
                Step::Found => return true,
                Step::Stop => {}
                Step::On => work.extend(&self.successors[each]),
                Step::Fall => work.push(each + 1),
            }
        }
        false
    }
}

enum Step {
    Found,
    Stop,
    On,
    /// Only to the next instruction, not to a branch's target.
    Fall,
}

fn transfer(instruction: &Instruction, mut facts: u8) -> u8 {
    match instruction.mnemonic.as_str() {
        "buffer_wbl2" => {
            facts |= WRITING_BACK;
            facts &= !UNRELEASED;
        }
        "s_barrier" => facts |= UNRELEASED,
        _ if instruction.drains() => facts &= !(UNDRAINED | WRITING_BACK),
        _ if matches!(instruction.access(), Some(Access::Store | Access::Atomic)) => {
            facts |= UNDRAINED | UNRELEASED;
        }
        _ => {}
    }
    facts
}

#[cfg(test)]
mod tests;
