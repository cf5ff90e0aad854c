//! Finds circles of files: files that reach each other along edges.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::edges::Edges;
use super::model::{FileId, Model};

/// Files that all reach each other, sorted by path.
#[derive(Debug, PartialEq, Eq)]
pub struct Circle(pub Vec<FileId>);

/// Returns the circles, sorted by the paths of their first files.
pub fn find(model: &Model, edges: &Edges) -> Vec<Circle> {
    let mut targets = vec![Vec::new(); model.files.len()];
    for (from, to) in edges.between.keys() {
        targets[from.0].push(to.0);
    }
    let path = |file: &FileId| &model.files[file.0].path;
    let mut circles: Vec<Circle> = components(&targets)
        .into_iter()
        .filter(|component| component.len() > 1)
        .map(|component| {
            let mut files: Vec<FileId> = component.into_iter().map(FileId).collect();
            files.sort_by(|one, other| path(one).cmp(path(other)));
            Circle(files)
        })
        .collect();
    circles.sort_by(|one, other| path(&one.0[0]).cmp(path(&other.0[0])));
    circles
}

/// Describes a circle: its files, then each edge with the imported names.
pub fn describe(circle: &Circle, krate: &str, model: &Model, edges: &Edges) -> String {
    let mut text = format!("{krate}: circle of {} files", circle.0.len());
    let path = |file: &FileId| model.files[file.0].path.as_str();
    for file in &circle.0 {
        // Writing to a string does not fail.
        let _ = write!(text, "\n  {}", path(file));
    }
    let inside: BTreeSet<FileId> = circle.0.iter().copied().collect();
    let sorted: BTreeMap<(&str, &str), _> = edges
        .between
        .iter()
        .filter(|((from, to), _)| inside.contains(from) && inside.contains(to))
        .map(|((from, to), names)| ((path(from), path(to)), names))
        .collect();
    for ((from, to), names) in sorted {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let _ = write!(text, "\n    {from} -> {to}: {}", names.join(", "));
    }
    text
}

/// Returns the strongly connected components of a graph (Tarjan, SIAM J. Comput. 1(2), 1972).
fn components(targets: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut search = Search {
        targets,
        index: vec![None; targets.len()],
        low: vec![0; targets.len()],
        on_stack: vec![false; targets.len()],
        stack: Vec::new(),
        next: 0,
        found: Vec::new(),
    };
    for node in 0..targets.len() {
        if search.index[node].is_none() {
            search.visit(node);
        }
    }
    search.found
}

struct Search<'g> {
    targets: &'g [Vec<usize>],
    index: Vec<Option<usize>>,
    low: Vec<usize>,
    on_stack: Vec<bool>,
    stack: Vec<usize>,
    next: usize,
    found: Vec<Vec<usize>>,
}

impl Search<'_> {
    fn visit(&mut self, node: usize) {
        let index = self.next;
        self.next += 1;
        self.index[node] = Some(index);
        self.low[node] = index;
        self.stack.push(node);
        self.on_stack[node] = true;
        for &target in &self.targets[node] {
            match self.index[target] {
                None => {
                    self.visit(target);
                    self.low[node] = self.low[node].min(self.low[target]);
                }
                Some(seen) if self.on_stack[target] => self.low[node] = self.low[node].min(seen),
                Some(_) => {}
            }
        }
        if self.low[node] == index {
            let mut component = Vec::new();
            while let Some(member) = self.stack.pop() {
                self.on_stack[member] = false;
                component.push(member);
                if member == node {
                    break;
                }
            }
            self.found.push(component);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::components;

    fn sorted(targets: &[Vec<usize>]) -> Vec<Vec<usize>> {
        let mut found = components(targets);
        found
            .iter_mut()
            .for_each(|component| component.sort_unstable());
        found.retain(|component| component.len() > 1);
        found.sort();
        found
    }

    #[test]
    fn files_that_reach_each_other_are_one_circle() {
        // 0 → 1 → 2 → 0, 3 hangs on it, 4 ⇄ 5, 6 names itself.
        let targets = [
            vec![1],
            vec![2],
            vec![0, 4],
            vec![0],
            vec![5],
            vec![4],
            vec![6],
        ];
        assert_eq!(sorted(&targets), [vec![0, 1, 2], vec![4, 5]]);
    }

    #[test]
    fn a_diamond_is_no_circle() {
        let found = sorted(&[vec![1, 2], vec![3], vec![3], vec![]]);
        assert!(found.is_empty(), "{found:?}");
    }
}
