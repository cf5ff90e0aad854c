//! Finds the loop of a kernel that does its work, and the path through it that aligned data takes.
//!
//! Loops are those of [`loops`] with one entry. The path is the one with the most matrix instructions, then the most
//! accesses of 16 bytes to global memory, then the fewest narrower ones, then the fewest instructions: a kernel has other
//! paths for edges and for data that is not aligned.

use std::collections::{BTreeMap, BTreeSet};

use super::super::isa::{Function, Instruction};
use super::super::loops::loops;

/// A loop.
#[derive(Debug, PartialEq, Eq)]
pub struct Loop {
    /// The instructions of one iteration, in order.
    pub path: Vec<usize>,
    /// Whether some waves pass one more barrier than others before the loop, so that two groups of waves take turns.
    pub staggered: bool,
}

/// What makes a path the one to look at; greater is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Worth {
    matrix: i64,
    wide: i64,
    narrow: i64,
    instructions: i64,
}

impl Worth {
    fn of(instruction: &Instruction) -> Self {
        let name = instruction.mnemonic.as_str();
        let global = ["global_", "buffer_load", "buffer_store"];
        let is_access = global.iter().any(|prefix| name.starts_with(prefix));
        let wide = is_access && name.contains("dwordx4");
        let narrow = is_access && ["byte", "short"].iter().any(|size| name.contains(size));
        Self {
            matrix: name.starts_with("v_mfma").into(),
            wide: wide.into(),
            narrow: -i64::from(narrow),
            instructions: -1,
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            matrix: self.matrix + other.matrix,
            wide: self.wide + other.wide,
            narrow: self.narrow + other.narrow,
            instructions: self.instructions + other.instructions,
        }
    }
}

/// The flow graph of a function, whose nodes are instructions.
struct Graph {
    next: Vec<Vec<usize>>,
    /// The place of each reachable instruction in reverse postorder.
    place: Vec<usize>,
    /// The instructions of each loop with one entry, by that entry.
    loops: BTreeMap<usize, BTreeSet<usize>>,
}

impl Graph {
    fn of(function: &Function) -> Self {
        let next = function.successors();
        let mut place = vec![usize::MAX; next.len()];
        for (at, node) in reverse_postorder(&next).into_iter().enumerate() {
            place[node] = at;
        }
        let loops = loops(&next)
            .into_iter()
            .filter_map(|found| Some((found.entry(&next)?, found.body.into_iter().collect())))
            .collect();
        Self { next, place, loops }
    }

    fn is_back(&self, from: usize, to: usize) -> bool {
        self.loops.get(&to).is_some_and(|body| body.contains(&from))
    }

    /// Returns the worthiest path from `head` back to it. Loops inside are passed once.
    fn path(&self, head: usize, body: &BTreeSet<usize>, worth: &[Worth]) -> (Worth, Vec<usize>) {
        let mut nodes: Vec<usize> = body.iter().copied().collect();
        nodes.sort_by_key(|&node| self.place[node]);
        let mut best: BTreeMap<usize, (Worth, Option<usize>)> = BTreeMap::new();
        best.insert(head, (worth[head], None));
        let mut last: Option<(Worth, usize)> = None;
        for &node in &nodes {
            let Some(&(reached, _)) = best.get(&node) else {
                continue;
            };
            for &to in &self.next[node] {
                if to == head {
                    if last.is_none_or(|(known, _)| reached > known) {
                        last = Some((reached, node));
                    }
                } else if body.contains(&to) && !self.is_back(node, to) {
                    let candidate = reached.plus(worth[to]);
                    let known = best.get(&to);
                    if known.is_none_or(|(known, _)| candidate > *known) {
                        best.insert(to, (candidate, Some(node)));
                    }
                }
            }
        }
        let Some((worth, mut node)) = last else {
            return (Worth::default(), Vec::new());
        };
        let mut path = vec![node];
        while let Some(&(_, Some(before))) = best.get(&node) {
            path.push(before);
            node = before;
        }
        path.reverse();
        (worth, path)
    }
}

fn reverse_postorder(next: &[Vec<usize>]) -> Vec<usize> {
    let mut order = Vec::new();
    if next.is_empty() {
        return order;
    }
    let mut seen = vec![false; next.len()];
    seen[0] = true;
    let mut stack = vec![(0, 0)];
    while let Some((node, tried)) = stack.last_mut() {
        if let Some(&to) = next[*node].get(*tried) {
            *tried += 1;
            if !seen[to] {
                seen[to] = true;
                stack.push((to, 0));
            }
        } else {
            order.push(*node);
            stack.pop();
        }
    }
    order.reverse();
    order
}

/// Returns the loop that does a kernel's work: of the loops with matrix instructions in no loop inside them, the one with
/// the most; without any, the same with loads and stores of 16 bytes.
pub fn hottest(function: &Function) -> Option<Loop> {
    let graph = Graph::of(function);
    let worth: Vec<Worth> = function.instructions.iter().map(Worth::of).collect();
    let found: Vec<(usize, &BTreeSet<usize>, Worth, Vec<usize>)> = graph
        .loops
        .iter()
        .map(|(&head, body)| {
            let (worth, path) = graph.path(head, body, &worth);
            (head, body, worth, path)
        })
        .collect();
    let matrix = found.iter().any(|(_, _, worth, _)| worth.matrix > 0);
    let amount = |worth: &Worth| if matrix { worth.matrix } else { worth.wide };
    let innermost = found.iter().filter(|(head, body, worth, _)| {
        let inside = |(other, _, inner, _): &&(usize, &BTreeSet<usize>, Worth, Vec<usize>)| {
            other != head && body.contains(other) && amount(inner) > 0
        };
        amount(worth) > 0 && !found.iter().any(|other| inside(&other))
    });
    let (head, _, _, path) = innermost.max_by_key(|(_, _, worth, _)| *worth)?;
    Some(Loop {
        path: path.clone(),
        staggered: is_staggered(&function.instructions[..=*head]),
    })
}

/// Whether a branch skips exactly a barrier.
fn is_staggered(before: &[Instruction]) -> bool {
    before.windows(3).any(|window| {
        window[0].mnemonic.starts_with("s_cbranch")
            && window[1].mnemonic == "s_barrier"
            && window[0].target == Some(window[2].address)
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::isa;
    use super::*;

    /// Makes a function from lines of code, with the line to which a branch goes behind `->`.
    fn function(lines: &[&str]) -> Function {
        let mut text = String::from("0000000000001000 <kernel>:\n");
        for (at, line) in lines.iter().enumerate() {
            let (code, target) = line.split_once(" -> ").unwrap_or((line, ""));
            let label = match target.parse::<usize>() {
                Ok(target) => format!(" <kernel+{:#x}>", 4 * target),
                Err(_) => String::new(),
            };
            text += &format!("\t{code} // {:012x}: 00000000{label}\n", 0x1000 + 4 * at);
        }
        isa::parse(&text).remove(0)
    }

    #[test]
    fn the_path_takes_the_wide_loads_and_leaves_out_the_narrow_ones() {
        let code = function(&[
            "s_mov_b32 s0, 0",
            "s_cbranch_execz 0 -> 4", // the loop
            "global_load_ushort v1, v[2:3], off",
            "s_branch 0 -> 5",
            "global_load_dwordx4 v[4:7], v[2:3], off",
            "s_cbranch_scc1 0 -> 1",
            "s_endpgm",
        ]);
        let found = hottest(&code).unwrap();
        assert_eq!(found.path, [1, 4, 5]);
        assert!(!found.staggered);
    }

    #[test]
    fn the_loop_inside_is_taken_and_not_the_loop_around_it() {
        let code = function(&[
            "global_load_dwordx4 v[4:7], v[2:3], off", // around
            "v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], v[0:3]", // inside
            "s_cbranch_scc1 0 -> 1",
            "global_load_dwordx4 v[4:7], v[2:3], off",
            "s_cbranch_scc1 0 -> 0",
            "s_endpgm",
        ]);
        assert_eq!(hottest(&code).unwrap().path, [1, 2]);
    }

    #[test]
    fn the_loop_with_more_accesses_is_taken() {
        let code = function(&[
            "global_load_dwordx4 v[4:7], v[2:3], off",
            "s_cbranch_scc1 0 -> 0",
            "global_load_dwordx4 v[4:7], v[2:3], off",
            "global_load_dwordx4 v[8:11], v[2:3], off offset:16",
            "s_cbranch_scc1 0 -> 2",
            "s_endpgm",
        ]);
        assert_eq!(hottest(&code).unwrap().path, [2, 3, 4]);
    }

    #[test]
    fn a_barrier_that_some_waves_skip_staggers_them() {
        let code = function(&[
            "s_cbranch_execz 0 -> 2",
            "s_barrier",
            "v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], v[0:3]",
            "s_cbranch_scc1 0 -> 2",
            "s_endpgm",
        ]);
        assert!(hottest(&code).unwrap().staggered);
    }

    #[test]
    fn a_kernel_without_such_a_loop_has_none() {
        assert_eq!(hottest(&function(&["s_nop 0", "s_endpgm"])), None);
        assert_eq!(
            hottest(&function(&["s_nop 0", "s_cbranch_scc1 0 -> 0", "s_endpgm"])),
            None
        );
    }
}
