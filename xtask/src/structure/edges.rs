//! Finds the edges between files, and the files that name a crate.

use std::collections::{BTreeMap, BTreeSet};

use super::model::*;
use super::resolve::{Found, Resolver, Target};

/// The resolved references of a model.
#[derive(Default)]
pub struct Edges {
    /// For each pair of a file and another that it uses, the used names.
    pub between: BTreeMap<(FileId, FileId), BTreeSet<String>>,
    /// The workspace libraries that a file names, by their names in paths.
    pub libraries: BTreeMap<FileId, BTreeSet<String>>,
    /// Files and their paths into a workspace module that lacks the name.
    pub unresolved: BTreeSet<(FileId, String)>,
}

/// Resolves all references.
pub fn find(model: &Model) -> Edges {
    let resolver = Resolver::new(model);
    let mut finder = Finder {
        model,
        resolver,
        edges: Edges::default(),
    };
    for reference in &model.references {
        finder.library(reference);
        if reference.kind != Kind::Reexport {
            finder.follow(reference);
        }
    }
    finder.edges
}

struct Finder<'m> {
    model: &'m Model,
    resolver: Resolver<'m>,
    edges: Edges,
}

impl Finder<'_> {
    fn library(&mut self, reference: &Reference) {
        let name = &reference.path.names[0];
        let Some(&root) = self.model.libraries.get(name) else {
            return;
        };
        let first = Segments {
            leading: reference.path.leading,
            names: vec![name.clone()],
        };
        let found = self
            .resolver
            .resolve(reference.scope, &first, Namespaces::TYPE);
        if found
            .iter()
            .any(|found| found.target == Target::Module(root))
        {
            let named = self.edges.libraries.entry(reference.file).or_default();
            named.insert(name.clone());
        }
    }

    fn follow(&mut self, reference: &Reference) {
        let path = &reference.path;
        if path.names[0] == "Self" {
            let of = reference
                .within
                .and_then(|block| self.resolver.implemented(block));
            if let (Some(of), Some(name)) = (of, path.names.get(1)) {
                self.associated(reference.file, of, name);
            }
            return;
        }
        let namespaces = match reference.kind {
            Kind::Path(namespaces) => namespaces,
            Kind::Use | Kind::Reexport => Namespaces::ALL,
        };
        let found = self.resolver.resolve(reference.scope, path, namespaces);
        let is_module = |found: &Found| matches!(found.target, Target::Module(_));
        if let Some(found) = found.iter().find(|found| is_module(found)) {
            if found.segments < path.names.len() {
                let whole = path.names.join("::");
                self.edges.unresolved.insert((reference.file, whole));
            }
            // An imported module forms no edge; the paths through it do.
            return;
        }
        for found in found {
            match found.target {
                Target::Item(item) => {
                    let Item { name, file, .. } = &self.model.items[item.0];
                    self.add(reference.file, *file, name.clone());
                    if let Some(rest) = path.names.get(found.segments) {
                        self.associated(reference.file, item, rest);
                    }
                }
                Target::Generated(scope) => {
                    let file = self.model.scopes[scope.0].file;
                    let name = path.names[found.segments - 1].clone();
                    self.add(reference.file, file, name);
                }
                Target::Module(_) | Target::External => {}
            }
        }
    }

    fn associated(&mut self, file: FileId, of: ItemId, name: &str) {
        if let Some(target) = self.resolver.associated(of, name) {
            let of = &self.model.items[of.0].name;
            self.add(file, target, format!("{of}::{name}"));
        }
    }

    fn add(&mut self, from: FileId, to: FileId, name: String) {
        if from != to {
            self.edges
                .between
                .entry((from, to))
                .or_default()
                .insert(name);
        }
    }
}
