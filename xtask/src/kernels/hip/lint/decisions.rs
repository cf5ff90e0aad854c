//! Which loads decide that a loop is left: a data flow from each branch out of a loop back to the loads whose values
//! reach its condition, through compares, masks and lanes.

use super::super::isa::Access;
use super::super::loops::{Loop, loops};
use super::super::registers::{Effect, Registers, condition, effect};
use super::Code;

/// A load whose value decides that a loop is left.
pub(super) struct Decision {
    /// The load.
    pub index: usize,
    /// The loops that it decides, outer ones first, by their numbers in [`Decisions::loops`].
    pub of: Vec<usize>,
}

/// The loops of a function, and the loads that decide those without a block barrier.
pub(super) struct Decisions {
    pub loops: Vec<Loop>,
    /// In order of address.
    pub loads: Vec<Decision>,
    effects: Vec<Effect>,
}

impl Code<'_> {
    pub(super) fn decisions(&self) -> Decisions {
        let effects: Vec<Effect> = self.function.instructions.iter().map(effect).collect();
        let loops = loops(&self.successors);
        let mut loads: Vec<Decision> = Vec::new();
        for (number, each) in loops.iter().enumerate() {
            if self.has_barrier(each) {
                continue;
            }
            let relevant = self.relevant(each, &effects);
            for (&index, after) in each.body.iter().zip(relevant) {
                if self.function.instructions[index].access() != Some(Access::Load) {
                    continue;
                }
                if !after.meets(effects[index].writes) {
                    continue;
                }
                match loads.iter_mut().find(|load| load.index == index) {
                    Some(load) => load.of.push(number),
                    None => loads.push(Decision {
                        index,
                        of: vec![number],
                    }),
                }
            }
        }
        loads.sort_by_key(|load| load.index);
        Decisions {
            loops,
            loads,
            effects,
        }
    }

    /// Returns whether a loop has a block barrier. It then does work in its turns, and is no wait, though it may contain
    /// some.
    fn has_barrier(&self, within: &Loop) -> bool {
        let mut body = within.body.iter();
        body.any(|&index| self.function.instructions[index].mnemonic == "s_barrier")
    }

    /// Returns for each instruction of a loop the registers that, after it, may still decide that the loop is left: those
    /// of the branches out of it, those from which these are computed, and those of branches that choose between
    /// computations.
    fn relevant(&self, within: &Loop, effects: &[Effect]) -> Vec<Registers> {
        let mut slice = Slice::new(within, &self.successors, effects);
        for (at, &index) in within.body.iter().enumerate() {
            if self.successors[index]
                .iter()
                .any(|&next| !within.contains(next))
            {
                slice.need(at, condition(&self.function.instructions[index].mnemonic));
            }
        }
        loop {
            slice.settle();
            let mut more = false;
            for (at, &index) in within.body.iter().enumerate() {
                let condition = condition(&self.function.instructions[index].mnemonic);
                let mut needs = slice.next[at].iter().map(|&next| slice.before(next));
                let first = needs.next();
                if needs.any(|other| Some(other) != first) && !slice.after[at].contains(condition) {
                    slice.need(at, condition);
                    more = true;
                }
            }
            if !more {
                return slice.after;
            }
        }
    }

    /// Returns whether a load reads the same place in every turn of a loop: no register of its address comes from
    /// another load there, or from its own value a turn before.
    pub(super) fn repeats(&self, decisions: &Decisions, number: usize, load: usize) -> bool {
        let within = &decisions.loops[number];
        let data: Vec<Effect> = decisions
            .effects
            .iter()
            .map(|effect| Effect {
                reads: effect.reads.without(Registers::exec()),
                ..*effect
            })
            .collect();
        let slice_of = |index: usize| {
            let mut slice = Slice::new(within, &self.successors, &data);
            let at = slice.place(index);
            slice.read_by(at);
            slice.settle();
            slice
        };
        let slice = slice_of(load);
        let mut sources = within
            .body
            .iter()
            .enumerate()
            .filter(|(at, index)| slice.after[*at].meets(data[**index].writes));
        sources.all(|(at, &index)| {
            let instruction = &self.function.instructions[index];
            let loads = instruction.access().is_some() || instruction.mnemonic.starts_with("ds_");
            !loads && !slice_of(index).after[at].meets(data[index].writes)
        })
    }
}

/// A data flow back through a loop: the registers that are needed after each instruction.
struct Slice<'a> {
    within: &'a Loop,
    effects: &'a [Effect],
    after: Vec<Registers>,
    /// Within the loop, by place in its body.
    next: Vec<Vec<usize>>,
    previous: Vec<Vec<usize>>,
    work: Vec<usize>,
}

impl<'a> Slice<'a> {
    fn new(within: &'a Loop, successors: &[Vec<usize>], effects: &'a [Effect]) -> Self {
        let count = within.body.len();
        let mut slice = Self {
            within,
            effects,
            after: vec![Registers::NONE; count],
            next: vec![Vec::new(); count],
            previous: vec![Vec::new(); count],
            work: Vec::new(),
        };
        for (at, &index) in within.body.iter().enumerate() {
            for &next in successors[index]
                .iter()
                .filter(|&&next| within.contains(next))
            {
                let next = slice.place(next);
                slice.next[at].push(next);
                slice.previous[next].push(at);
            }
        }
        slice
    }

    /// Returns an instruction's place in the loop's body.
    fn place(&self, index: usize) -> usize {
        self.within.body.partition_point(|&each| each < index)
    }

    fn need(&mut self, at: usize, registers: Registers) {
        if !self.after[at].contains(registers) {
            self.after[at] = self.after[at].with(registers);
            self.work.push(at);
        }
    }

    /// Needs what an instruction reads.
    fn read_by(&mut self, at: usize) {
        let reads = self.effects[self.within.body[at]].reads;
        for index in 0..self.previous[at].len() {
            self.need(self.previous[at][index], reads);
        }
    }

    /// Returns the registers that are needed before an instruction.
    fn before(&self, at: usize) -> Registers {
        let effect = self.effects[self.within.body[at]];
        let after = self.after[at];
        if !after.meets(effect.writes) {
            return after;
        }
        let kept = if effect.keeps {
            after
        } else {
            after.without(effect.writes)
        };
        kept.with(effect.reads)
    }

    fn settle(&mut self) {
        while let Some(at) = self.work.pop() {
            let before = self.before(at);
            for index in 0..self.previous[at].len() {
                self.need(self.previous[at][index], before);
            }
        }
    }
}
