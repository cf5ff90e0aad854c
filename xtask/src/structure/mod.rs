//! `cargo xtask structure`: checks which crate, folder and file uses which.
//!
//! Compares crates, folders and the files that name a backend with the list in `xtask/structure.toml`, counts the
//! packages that a crate brings into a program, and checks that files form no circles and that the two GPU backends
//! share little text.

mod circles;
mod collect;
mod conditions;
mod crates;
mod declare;
mod edges;
mod folders;
mod list;
mod model;
mod overlap;
mod packages;
mod resolve;
#[cfg(test)]
mod tests;
mod tokens;
mod tree;
mod workspace;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::tools;
use edges::Edges;
use list::List;
use model::Model;
use workspace::Member;

/// The command's options.
#[derive(clap::Args)]
pub struct Options {
    /// The repository to check [default: the one that this command was built in]
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Check only for circles of files
    #[arg(long)]
    circles_only: bool,
}

/// Runs all checks.
///
/// # Errors
/// [`Error::Structure`] with the violations.
pub fn run(options: &Options) -> Result<()> {
    let root = options.root.clone().unwrap_or_else(tools::root);
    let source = Source::read(&root)?;
    println!("{}", source.summary());
    let mut found = Vec::new();
    if !options.circles_only {
        let list = List::read(&root)?;
        found.extend(source.compare(&list));
        found.extend(packages::check(&root, &list)?);
        let overlap = overlap::measure(&root)?;
        println!("{overlap}");
        found.extend(overlap.complaint());
    }
    found.extend(source.unresolved());
    found.extend(source.circles());
    if found.is_empty() {
        Ok(())
    } else {
        Err(Error::Structure(found))
    }
}

/// The shipped crates, read and resolved.
struct Source {
    members: Vec<Member>,
    model: Model,
    edges: Edges,
}

impl Source {
    fn read(root: &Path) -> Result<Self> {
        let members = workspace::members(root)?;
        let model = tree::read(root, &members)?;
        let edges = edges::find(&model);
        Ok(Self {
            members,
            model,
            edges,
        })
    }

    /// Returns the differences from the list, one line each.
    fn compare(&self, list: &List) -> Vec<String> {
        let mut found = crates::check(list, &self.members);
        found.extend(crates::check_only(list, &self.model, &self.edges));
        found.extend(folders::check(
            list,
            &self.members,
            &self.model,
            &self.edges,
        ));
        found
    }

    /// Returns the unresolved paths, one line each. They are errors because a missed edge could close a circle.
    fn unresolved(&self) -> Vec<String> {
        let unresolved = self.edges.unresolved.iter();
        let mut found: Vec<String> = unresolved
            .map(|(file, path)| {
                let file = &self.model.files[file.0].path;
                format!("{file}: cannot find the definition of {path}")
            })
            .collect();
        found.sort();
        found
    }

    /// Returns the circles, one text each.
    fn circles(&self) -> Vec<String> {
        let circles = circles::find(&self.model, &self.edges);
        circles
            .iter()
            .map(|circle| {
                let member = self.model.files[circle.0[0].0].member;
                let name = &self.members[member].name;
                circles::describe(circle, name, &self.model, &self.edges)
            })
            .collect()
    }

    fn summary(&self) -> String {
        let mut by_crate: BTreeMap<&str, usize> = BTreeMap::new();
        for circle in circles::find(&self.model, &self.edges) {
            let member = self.model.files[circle.0[0].0].member;
            *by_crate.entry(&self.members[member].name).or_default() += 1;
        }
        let counts: Vec<String> = by_crate
            .iter()
            .map(|(name, count)| format!("{name}: {count}"))
            .collect();
        let total: usize = by_crate.values().sum();
        let counts = if counts.is_empty() {
            String::new()
        } else {
            format!(" ({})", counts.join(", "))
        };
        format!(
            "crates: {}, files: {}, edges: {}, circles: {total}{counts}",
            self.members.len(),
            self.model.files.len(),
            self.edges.between.len()
        )
    }
}
