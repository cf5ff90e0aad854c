//! The loops of a function: strongly connected components of its flow graph, and those within them.

use std::collections::BTreeSet;

/// A loop, by its instructions.
pub struct Loop {
    /// In order of address.
    pub body: Vec<usize>,
    contains: Vec<bool>,
}

impl Loop {
    pub fn contains(&self, index: usize) -> bool {
        self.contains[index]
    }

    /// Returns the instruction at which the loop is entered, unless it is entered at several.
    pub fn entry(&self, successors: &[Vec<usize>]) -> Option<usize> {
        let outside = (0..successors.len()).filter(|&before| !self.contains[before]);
        let entered: BTreeSet<usize> = outside
            .flat_map(|before| &successors[before])
            .copied()
            .filter(|&each| self.contains[each])
            // A function's first instruction is entered from outside.
            .chain(self.contains[0].then_some(0))
            .collect();
        match Vec::from_iter(entered)[..] {
            [entry] => Some(entry),
            _ => None,
        }
    }
}

/// Returns the loops, outer ones before those within them. A loop within another is what remains connected without the
/// instructions at which the outer one is entered.
pub fn loops(successors: &[Vec<usize>]) -> Vec<Loop> {
    let count = successors.len();
    let mut predecessors = vec![Vec::new(); count];
    for (index, next) in successors.iter().enumerate() {
        for &each in next {
            predecessors[each].push(index);
        }
    }
    let mut found = Vec::new();
    let mut work = vec![vec![true; count]];
    while let Some(within) = work.pop() {
        for body in components(successors, &predecessors, &within) {
            let mut contains = vec![false; count];
            for &index in &body {
                contains[index] = true;
            }
            let mut inner = contains.clone();
            for &index in &body {
                let entered = predecessors[index].iter().any(|&before| !contains[before]);
                // A function's first instruction is entered from outside.
                if entered || index == 0 {
                    inner[index] = false;
                }
            }
            if inner != contains {
                work.push(inner);
            }
            found.push(Loop { body, contains });
        }
    }
    found
}

/// Returns the components with a cycle in the part of the graph that is `within`, by Kosaraju's algorithm.
fn components(
    successors: &[Vec<usize>],
    predecessors: &[Vec<usize>],
    within: &[bool],
) -> Vec<Vec<usize>> {
    let count = successors.len();
    let mut order = Vec::new();
    let mut seen = vec![false; count];
    for start in (0..count).filter(|&start| within[start]) {
        if std::mem::replace(&mut seen[start], true) {
            continue;
        }
        let mut stack = vec![(start, 0)];
        while let Some((index, next)) = stack.pop() {
            match successors[index].get(next) {
                None => order.push(index),
                Some(&each) => {
                    stack.push((index, next + 1));
                    if within[each] && !std::mem::replace(&mut seen[each], true) {
                        stack.push((each, 0));
                    }
                }
            }
        }
    }
    let mut left = within.to_vec();
    let mut found = Vec::new();
    for &start in order.iter().rev() {
        if !std::mem::replace(&mut left[start], false) {
            continue;
        }
        let mut body = Vec::new();
        let mut work = vec![start];
        while let Some(index) = work.pop() {
            body.push(index);
            for &each in &predecessors[index] {
                if std::mem::replace(&mut left[each], false) {
                    work.push(each);
                }
            }
        }
        if body.len() > 1 || successors[start].contains(&start) {
            body.sort_unstable();
            found.push(body);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_loop_within_a_loop_and_its_exits() {
        // 0 -> 1 <-> 2 within 1..=3, which 3 leaves; 4 is no loop, 5 is one of its own.
        let successors = [
            vec![1],
            vec![2],
            vec![2, 3],
            vec![1, 4],
            vec![5],
            vec![5, 6],
            vec![],
        ];
        let mut found: Vec<Vec<usize>> = loops(&successors)
            .into_iter()
            .map(|each| each.body)
            .collect();
        found.sort();
        assert_eq!(found, [vec![1, 2, 3], vec![2], vec![5]]);
    }
}
