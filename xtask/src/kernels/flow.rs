//! What may be true before each instruction, over all paths through a function: a forward dataflow analysis
//! whose facts are bits that paths join by "or".

use std::collections::HashMap;

use super::ptx::{Function, Item, Statement};

/// The facts before each item; `None` where control never comes.
///
/// `transfer` gives the facts after a statement from those before it.
pub fn facts(
    function: &Function,
    entry: u8,
    transfer: impl Fn(&Statement, u8) -> u8,
) -> Vec<Option<u8>> {
    let items = &function.items;
    let labels: HashMap<&str, usize> = items
        .iter()
        .enumerate()
        .filter_map(|(index, item)| match item {
            Item::Label(label) => Some((label.as_str(), index)),
            Item::Statement(_) => None,
        })
        .collect();
    let mut before = vec![None; items.len()];
    let mut work = vec![(0, entry)];
    while let Some((index, facts)) = work.pop() {
        if index >= items.len() {
            continue;
        }
        let joined = before[index].unwrap_or(0) | facts;
        if before[index] == Some(joined) {
            continue;
        }
        before[index] = Some(joined);
        let Item::Statement(statement) = &items[index] else {
            work.push((index + 1, joined));
            continue;
        };
        let after = transfer(statement, joined);
        match statement.operation() {
            "bra" => {
                if let Some(target) = labels.get(statement.operands.as_str()) {
                    work.push((*target, after));
                }
            }
            // An indirect branch may go to any label.
            "brx" => work.extend(labels.values().map(|target| (*target, after))),
            _ => {}
        }
        let leaves = matches!(
            statement.operation(),
            "bra" | "brx" | "ret" | "exit" | "trap"
        );
        if !leaves || statement.predicated {
            work.push((index + 1, after));
        }
    }
    before
}
