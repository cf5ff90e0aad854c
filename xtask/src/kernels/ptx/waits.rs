//! Where a kernel waits for peers, for the lint's rules on dependent launches.
//!
//! A wait for a peer is a strong load at system scope that can be reached from itself: nothing else in the sources loads
//! such a word again and again. Waits for this block's own bulk copies use barriers in shared memory.

use super::text::{Function, Item, Statement};

/// The waits of one function.
pub struct Waits {
    /// For each item, whether it waits for a peer.
    at: Vec<bool>,
    /// For each item, whether a wait can be reached from before it without a barrier of the block in between.
    ahead: Vec<bool>,
    /// For each item, the items that may follow it.
    next: Vec<Vec<usize>>,
}

impl Waits {
    pub fn of(function: &Function) -> Self {
        let items = &function.items;
        let next: Vec<Vec<usize>> = (0..items.len())
            .map(|index| {
                let mut next = function.step(index, 0, |_, facts| facts).1;
                next.retain(|&next| next < items.len());
                next
            })
            .collect();
        let at: Vec<bool> = (0..items.len())
            .map(|index| {
                matches!(&items[index], Item::Statement(statement) if polls(statement))
                    && is_on_a_cycle(index, &next)
            })
            .collect();
        let ahead = ahead(items, &at, &next);
        Self { at, ahead, next }
    }

    /// Returns whether an item waits for a peer.
    pub fn at(&self, index: usize) -> bool {
        self.at[index]
    }

    /// Returns whether a thread may have waited for a peer before this item.
    pub fn precede(&self, index: usize) -> bool {
        let mut seen = vec![false; self.next.len()];
        let mut work: Vec<usize> = (0..self.at.len()).filter(|&item| self.at[item]).collect();
        while let Some(item) = work.pop() {
            if item == index {
                return true;
            }
            if !std::mem::replace(&mut seen[item], true) {
                work.extend(&self.next[item]);
            }
        }
        false
    }

    /// Returns whether the function's threads may wait for a peer before its first barrier.
    pub fn at_entry(&self) -> bool {
        self.ahead.first().is_some_and(|&ahead| ahead)
    }

    /// Returns whether a thread may wait for a peer after this item and before the next barrier.
    pub fn follow(&self, index: usize) -> bool {
        self.next[index].iter().any(|&next| self.ahead[next])
    }
}

/// Returns whether all threads of the block meet here. A predicated barrier may not execute.
pub fn is_block_barrier(statement: &Statement) -> bool {
    let whole = match statement.mnemonic.as_str() {
        // Other barriers, and those with a number of threads, are for a part of the block.
        "barrier.sync" | "barrier.sync.aligned" | "bar.sync" => statement.operands == "0",
        mnemonic if mnemonic.starts_with("barrier.cluster.wait") => true,
        _ => is_vote(statement),
    };
    whole && !statement.predicated
}

/// Returns whether all threads of the block learn the same result, so that they branch alike on it.
pub fn is_vote(statement: &Statement) -> bool {
    let red = ["barrier.red.", "bar.red."];
    red.iter().any(|red| statement.mnemonic.starts_with(red)) && !statement.predicated
}

fn polls(statement: &Statement) -> bool {
    let strong = ["relaxed", "acquire", "volatile"];
    statement.operation() == "ld"
        && statement.has("sys")
        && strong.iter().any(|order| statement.has(order))
        && !statement.is_shared()
}

fn is_on_a_cycle(start: usize, next: &[Vec<usize>]) -> bool {
    let mut seen = vec![false; next.len()];
    let mut work = next[start].clone();
    while let Some(index) = work.pop() {
        if index == start {
            return true;
        }
        if !std::mem::replace(&mut seen[index], true) {
            work.extend(&next[index]);
        }
    }
    false
}

/// Goes backwards from the waits, up to the barriers.
fn ahead(items: &[Item], at: &[bool], next: &[Vec<usize>]) -> Vec<bool> {
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); items.len()];
    for (index, next) in next.iter().enumerate() {
        for &next in next {
            before[next].push(index);
        }
    }
    let mut ahead = vec![false; items.len()];
    let mut work: Vec<usize> = (0..items.len()).filter(|&index| at[index]).collect();
    while let Some(index) = work.pop() {
        if std::mem::replace(&mut ahead[index], true) {
            continue;
        }
        let open = |&index: &usize| !matches!(&items[index], Item::Statement(statement) if is_block_barrier(statement));
        work.extend(before[index].iter().filter(|&index| open(index)));
    }
    ahead
}
