//! The order in which machine code accesses memory, to compare two versions of a kernel.

use std::collections::BTreeSet;

use super::isa::{Function, Instruction};

/// Returns what a function does to memory, in order: accesses, waits, fences, barriers and branches, with their modifiers and
/// without their registers. Code that only computes in another order has the same, and so has code that loads arguments, which
/// nothing stores, in other pieces, that waits again before anything could have come in between, or that waits for the same in
/// another order.
pub fn of(function: &Function) -> Vec<String> {
    let instructions = &function.instructions;
    let targets: BTreeSet<u64> = instructions.iter().filter_map(|each| each.target).collect();
    let mut order = Order {
        lines: vec![function.name.clone()],
        ..Order::default()
    };
    for each in instructions {
        if targets.contains(&each.address) {
            order.tell("target".to_owned());
            order.waited.clear();
        }
        order.add(each);
    }
    order.tell("end".to_owned());
    order.lines
}

#[derive(Default)]
struct Order<'a> {
    lines: Vec<String>,
    /// What has been waited for since the last access.
    waited: BTreeSet<&'a str>,
    /// What of it is in no line yet.
    new: BTreeSet<&'a str>,
}

impl<'a> Order<'a> {
    fn tell(&mut self, line: String) {
        let waits = self.new.iter().map(|each| format!("s_waitcnt {each}"));
        self.lines.extend(waits);
        self.new.clear();
        self.lines.push(line);
    }

    fn add(&mut self, each: &'a Instruction) {
        const ORDERS: [&str; 4] = ["s_memrealtime", "buffer_", "ds_", "s_end"];
        if each.mnemonic == "s_waitcnt" {
            for counter in each.operands.split(' ') {
                if self.waited.insert(counter) {
                    self.new.insert(counter);
                }
            }
            return;
        }
        let is_issued =
            each.access().is_some() || ORDERS.iter().any(|begin| each.mnemonic.starts_with(begin));
        // What has been waited for stays so behind a branch and behind a barrier of the block.
        if is_issued || each.target.is_some() || each.mnemonic == "s_barrier" {
            let modifiers = ["sc0", "sc1", "nt", "glc", "slc", "scc"];
            let kept = modifiers.into_iter().filter(|modifier| each.has(modifier));
            let kept = kept.collect::<Vec<_>>().join(" ");
            self.tell(format!("{} {kept}", each.mnemonic));
        }
        if is_issued || each.mnemonic.starts_with("s_load") {
            self.waited.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORE: &str = "global_store_dword v[0:1], v2, off";
    const DRAIN: &str = "s_waitcnt vmcnt(0)";
    const SHARED: &str = "s_waitcnt lgkmcnt(0)";
    const BARRIER: &str = "s_barrier";

    fn order(code: &[&str]) -> Vec<String> {
        let instructions = code.iter().zip(0..).map(|(text, number)| {
            let (mnemonic, operands) = text.split_once(' ').unwrap_or((text, ""));
            Instruction {
                address: 4 * number,
                mnemonic: mnemonic.to_owned(),
                operands: operands.to_owned(),
                target: mnemonic
                    .starts_with("s_branch")
                    .then(|| operands.parse().unwrap()),
            }
        });
        of(&Function {
            name: "kernel".to_owned(),
            instructions: instructions.collect(),
        })
    }

    #[test]
    fn a_wait_that_is_repeated_before_anything_is_issued_changes_nothing() {
        let once = order(&[STORE, DRAIN, BARRIER, STORE]);
        assert_eq!(once.len(), 6);
        assert_eq!(order(&[STORE, DRAIN, DRAIN, BARRIER, STORE]), once);
        assert_eq!(order(&[STORE, DRAIN, BARRIER, DRAIN, STORE]), once);
        assert_ne!(order(&[STORE, BARRIER, DRAIN, STORE]), once);
        assert_ne!(order(&[STORE, DRAIN, BARRIER, STORE, DRAIN]), once);
    }

    #[test]
    fn the_order_of_waits_does_not_matter() {
        let one = order(&[STORE, DRAIN, SHARED, BARRIER]);
        assert_eq!(order(&[STORE, SHARED, DRAIN, BARRIER]), one);
        assert_ne!(order(&[STORE, SHARED, BARRIER, DRAIN]), one);
    }

    #[test]
    fn a_wait_to_which_a_branch_goes_is_no_repetition() {
        let branch = "s_branch 12";
        let with = order(&[STORE, DRAIN, branch, DRAIN, STORE]);
        assert_ne!(order(&[STORE, DRAIN, branch, STORE, STORE]), with);
        assert_ne!(order(&[STORE, branch, DRAIN, DRAIN, STORE]), with);
    }
}
