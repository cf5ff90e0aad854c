//! The model of the source: files, scopes, declared names, and the paths that the source uses.

use std::collections::{HashMap, HashSet};

/// Index into [`Model::files`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub usize);

/// Index into [`Model::scopes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScopeId(pub usize);

/// Index into [`Model::items`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ItemId(pub usize);

/// The model of all shipped crates.
#[derive(Default)]
pub struct Model {
    pub files: Vec<File>,
    pub scopes: Vec<Scope>,
    pub items: Vec<Item>,
    pub impls: Vec<Impl>,
    pub references: Vec<Reference>,
    /// The root scope of each library, by the name that other crates use for it.
    pub libraries: HashMap<String, ScopeId>,
}

/// A source file.
pub struct File {
    /// Path, relative to the repository's root.
    pub path: String,
    /// Index of its crate in the workspace.
    pub member: usize,
}

/// A module, or a block that declares items.
pub struct Scope {
    pub file: FileId,
    pub parent: Option<ScopeId>,
    /// The root module of its target.
    pub root: ScopeId,
    pub is_block: bool,
    /// Child modules under `#[macro_use]`.
    pub macro_use: Vec<ScopeId>,
    pub names: HashMap<String, Vec<Entry>>,
    pub globs: Vec<Glob>,
    /// Identifiers inside macro calls that are items; such a call may declare any of them.
    pub generated: HashSet<String>,
}

/// One meaning of a name in a scope.
pub struct Entry {
    pub exported: bool,
    pub declared: Declared,
}

pub enum Declared {
    Item(ItemId),
    Module(ScopeId),
    Import {
        path: Segments,
        /// Whether this is `use a::{self}`, which imports only the module.
        types_only: bool,
    },
}

/// `use path::*`.
pub struct Glob {
    pub exported: bool,
    pub path: Segments,
}

/// A path without its generic arguments.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Segments {
    /// Whether the path begins with `::`, so that the first segment is a crate.
    pub leading: bool,
    pub names: Vec<String>,
}

/// A set of Rust's namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Namespaces(u8);

impl Namespaces {
    pub const TYPE: Self = Self(1);
    pub const VALUE: Self = Self(2);
    pub const MACRO: Self = Self(4);
    pub const ALL: Self = Self(7);

    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// A named item other than a module.
pub struct Item {
    pub name: String,
    pub file: FileId,
    pub namespaces: Namespaces,
    /// The variants of an enum.
    pub variants: HashSet<String>,
    /// The target of a type alias.
    pub alias: Option<(ScopeId, Segments)>,
}

/// An `impl` block.
pub struct Impl {
    pub scope: ScopeId,
    pub file: FileId,
    /// The implementing type, if it is a plain path.
    pub of: Option<Segments>,
    /// Functions and constants of an inherent `impl`; empty for an `impl` of a trait.
    pub associated: Vec<String>,
}

/// A path as written in a file.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Reference {
    pub file: FileId,
    pub scope: ScopeId,
    pub path: Segments,
    pub kind: Kind,
    /// Index of the `impl` around it, for `Self`.
    pub within: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A private `use`.
    Use,
    /// A `use` with a visibility, which forms no edge.
    Reexport,
    /// Any other path, with the namespaces to look up its last segment in.
    Path(Namespaces),
}

impl Model {
    /// Returns the module that contains a scope.
    pub fn module(&self, mut scope: ScopeId) -> ScopeId {
        while self.scopes[scope.0].is_block {
            match self.scopes[scope.0].parent {
                Some(parent) => scope = parent,
                None => break,
            }
        }
        scope
    }

    /// Returns whether `inner` is `outer` or lies in it.
    pub fn contains(&self, outer: ScopeId, inner: ScopeId) -> bool {
        std::iter::successors(Some(inner), |scope| self.scopes[scope.0].parent)
            .any(|scope| scope == outer)
    }

    pub fn add_scope(&mut self, file: FileId, parent: Option<ScopeId>, is_block: bool) -> ScopeId {
        let id = ScopeId(self.scopes.len());
        self.scopes.push(Scope {
            file,
            parent,
            root: parent.map_or(id, |parent| self.scopes[parent.0].root),
            is_block,
            macro_use: Vec::new(),
            names: HashMap::new(),
            globs: Vec::new(),
            generated: HashSet::new(),
        });
        id
    }

    pub fn declare(&mut self, scope: ScopeId, name: String, exported: bool, declared: Declared) {
        let names = &mut self.scopes[scope.0].names;
        names
            .entry(name)
            .or_default()
            .push(Entry { exported, declared });
    }
}
