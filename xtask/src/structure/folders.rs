//! Compares the edges between the folders of a crate with their order in the list.

use std::collections::BTreeSet;
use std::path::{Component, Path};

use super::edges::Edges;
use super::list::List;
use super::model::{FileId, Model};
use super::workspace::Member;

const LIST: &str = "xtask/structure.toml";

/// Checks that files import only from their own folder and from folders before it in the list. Returns one line per
/// upward edge, folder without a row, and row without a folder.
///
/// Roots such as `lib.rs` are above all rows: they may import everything, and no file may import from them.
pub fn check(list: &List, members: &[Member], model: &Model, edges: &Edges) -> Vec<String> {
    let mut found = Vec::new();
    for (name, rows) in &list.folders {
        let Some(index) = members.iter().position(|member| member.name == *name) else {
            found.push(format!(
                "crate {name} is in [folders] of {LIST}, but not in the workspace"
            ));
            continue;
        };
        let order = Order {
            member: &members[index],
            rows,
        };
        found.extend(order.folders(index, model));
        found.extend(order.edges(index, model, edges));
    }
    found
}

/// The rows of one crate.
struct Order<'l> {
    member: &'l Member,
    rows: &'l [String],
}

impl Order<'_> {
    /// Returns the folder or top-level module of a file; `None` for a root.
    fn folder(&self, path: &str) -> Option<String> {
        let path = Path::new(path);
        if self.member.targets.iter().any(|target| target.file == path) {
            return None;
        }
        let root = self.member.targets.first()?.file.parent()?;
        let inside = path.strip_prefix(root).unwrap_or(path);
        let first = inside.components().next().map(Component::as_os_str)?;
        let name = first.to_string_lossy();
        Some(name.strip_suffix(".rs").unwrap_or(&name).to_owned())
    }

    fn row(&self, folder: &str) -> Option<usize> {
        self.rows.iter().position(|row| row == folder)
    }

    fn folders(&self, index: usize, model: &Model) -> Vec<String> {
        let files = model.files.iter().filter(|file| file.member == index);
        let present: BTreeSet<String> = files.filter_map(|file| self.folder(&file.path)).collect();
        let rows: BTreeSet<String> = self.rows.iter().cloned().collect();
        let name = &self.member.name;
        let missing = present.difference(&rows).map(|folder| {
            format!("{name}: {folder} has no row: add it to [folders] in {LIST}, after everything that it imports")
        });
        let absent = rows.difference(&present).map(|row| {
            format!("{name}: {row} is a row of [folders] in {LIST}, but no folder or module has its name")
        });
        missing.chain(absent).collect()
    }

    fn edges(&self, index: usize, model: &Model, edges: &Edges) -> Vec<String> {
        let own = |file: &FileId| model.files[file.0].member == index;
        let mut found = Vec::new();
        for ((from, to), names) in &edges.between {
            if !own(from) || !own(to) {
                continue;
            }
            let [from, to] = [from, to].map(|file| model.files[file.0].path.as_str());
            let Some(lower) = self.folder(from) else {
                continue;
            };
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let names = names.join(", ");
            let Some(upper) = self.folder(to) else {
                found.push(format!(
                    "{from} -> {to}: {names}: the root of a crate declares modules and re-exports; move these below"
                ));
                continue;
            };
            // `folders` reports folders without a row.
            if let (Some(one), Some(other)) = (self.row(&lower), self.row(&upper))
                && one < other
            {
                found.push(format!(
                    "{from} -> {to}: {names}: {lower} may not import from {upper}, which is above it in [folders] of {LIST}"
                ));
            }
        }
        found.sort();
        found
    }
}
