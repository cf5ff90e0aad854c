//! Resolves paths: follows imports, re-exports and globs to the item.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};

use super::model::*;

/// The target of the leading segments of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    Module(ScopeId),
    Item(ItemId),
    /// An item that a macro call in this scope declares.
    Generated(ScopeId),
    /// An item of a crate outside of the workspace.
    External,
}

/// A target, and the number of path segments that led to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub target: Target,
    pub segments: usize,
}

/// Resolves paths in a model.
pub struct Resolver<'m> {
    model: &'m Model,
    /// Files with an inherent function or constant, by its type and name.
    associated: HashMap<(ItemId, &'m str), BTreeSet<FileId>>,
    /// The type of each `impl`.
    types: Vec<Option<ItemId>>,
    /// Lookups in progress; a repeated lookup is a circle of imports.
    open: RefCell<Vec<(ScopeId, String, Namespaces)>>,
}

impl<'m> Resolver<'m> {
    pub fn new(model: &'m Model) -> Self {
        let mut resolver = Self {
            model,
            associated: HashMap::new(),
            types: Vec::new(),
            open: RefCell::default(),
        };
        for block in &model.impls {
            let of = block.of.as_ref();
            let of = of.and_then(|path| resolver.type_of(block.scope, path));
            resolver.types.push(of);
            for name in &block.associated {
                if let Some(of) = of {
                    let files = resolver.associated.entry((of, name.as_str())).or_default();
                    files.insert(block.file);
                }
            }
        }
        resolver
    }

    /// Returns the type of the `impl` with this index.
    pub fn implemented(&self, block: usize) -> Option<ItemId> {
        self.types[block]
    }

    /// Returns the file with the inherent function or constant `name` of a type, if only one file has it.
    pub fn associated(&self, of: ItemId, name: &str) -> Option<FileId> {
        let files = self.associated.get(&(self.unaliased(of), name))?;
        (files.len() == 1).then(|| files.first().copied())?
    }

    fn type_of(&self, scope: ScopeId, path: &Segments) -> Option<ItemId> {
        let found = self.resolve(scope, path, Namespaces::TYPE);
        found.iter().find_map(|found| match found.target {
            Target::Item(item) if found.segments == path.names.len() => Some(self.unaliased(item)),
            _ => None,
        })
    }

    /// Returns the target of a type alias, or the item itself.
    fn unaliased(&self, item: ItemId) -> ItemId {
        let alias = self.model.items[item.0].alias.as_ref();
        let target = alias.and_then(|(scope, path)| {
            let found = self.resolve(*scope, path, Namespaces::TYPE);
            found.iter().find_map(|found| match found.target {
                Target::Item(other) if other != item => Some(other),
                _ => None,
            })
        });
        target.unwrap_or(item)
    }

    /// Returns everything that `path` may name in `scope`, or nothing if the scope does not know its first segment.
    ///
    /// The last segment is looked up in `namespaces`. The search ends at an item, as at `Type` in `Type::new`,
    /// and at a module that lacks the next name.
    pub fn resolve(&self, scope: ScopeId, path: &Segments, namespaces: Namespaces) -> Vec<Found> {
        let names = &path.names;
        let wanted = |at: usize| {
            if at + 1 < names.len() {
                Namespaces::TYPE
            } else {
                namespaces
            }
        };
        let mut at = 1;
        let mut targets = match names.first().map(String::as_str) {
            None => return Vec::new(),
            Some("crate") => vec![Target::Module(self.model.scopes[scope.0].root)],
            Some("self") if names.len() > 1 => vec![Target::Module(self.model.module(scope))],
            Some("super") => self.parent(self.model.module(scope)),
            Some(name) if path.leading => self.library(name),
            Some(name) => self.unqualified(scope, name, wanted(0)),
        };
        while at < names.len() {
            // There are several if `cfg` chooses between modules with the same name.
            let next: Vec<Target> = targets
                .iter()
                .flat_map(|target| match (target, names[at].as_str()) {
                    (Target::Module(module), "super") => self.parent(*module),
                    (Target::Module(module), name) => self.member(*module, name, wanted(at), scope),
                    _ => Vec::new(),
                })
                .collect();
            if next.is_empty() {
                break;
            }
            targets = next;
            at += 1;
        }
        let segments = at;
        let found = targets.into_iter();
        found.map(|target| Found { target, segments }).collect()
    }

    fn parent(&self, module: ScopeId) -> Vec<Target> {
        let parent = self.model.scopes[module.0].parent;
        let parent = parent.map(|parent| Target::Module(self.model.module(parent)));
        parent.into_iter().collect()
    }

    fn library(&self, name: &str) -> Vec<Target> {
        let library = self.model.libraries.get(name);
        vec![library.map_or(Target::External, |root| Target::Module(*root))]
    }

    /// Returns the meanings of a path's first segment in the blocks around it, its module, and the crates.
    fn unqualified(&self, scope: ScopeId, name: &str, namespaces: Namespaces) -> Vec<Target> {
        let mut current = scope;
        loop {
            let found = self.declared(current, name, namespaces, scope);
            if !found.is_empty() {
                return found;
            }
            match self.model.scopes[current.0] {
                Scope {
                    is_block: true,
                    parent: Some(parent),
                    ..
                } => current = parent,
                _ => break,
            }
        }
        if namespaces.meets(Namespaces::TYPE) && self.model.libraries.contains_key(name) {
            return self.library(name);
        }
        let textual = self.textual_macro(current, name, namespaces);
        if !textual.is_empty() {
            return textual;
        }
        self.generated(current, name, scope)
    }

    /// Returns a macro that is in scope because it is defined earlier, in this module or one around it.
    fn textual_macro(&self, module: ScopeId, name: &str, namespaces: Namespaces) -> Vec<Target> {
        if !namespaces.meets(Namespaces::MACRO) {
            return Vec::new();
        }
        let around = std::iter::successors(Some(module), |scope| self.model.scopes[scope.0].parent);
        let found = around.flat_map(|scope| {
            let lent = self.model.scopes[scope.0].macro_use.iter();
            std::iter::once(scope).chain(lent.copied())
        });
        let items = found.flat_map(|scope| self.model.scopes[scope.0].names.get(name));
        let items = items.flatten().filter_map(|entry| match entry.declared {
            Declared::Item(item) => Some(item),
            _ => None,
        });
        items
            .filter(|item| self.model.items[item.0].namespaces == Namespaces::MACRO)
            .map(Target::Item)
            .take(1)
            .collect()
    }

    /// Returns the meanings of `module::name`, looked up from `from`.
    fn member(
        &self,
        module: ScopeId,
        name: &str,
        namespaces: Namespaces,
        from: ScopeId,
    ) -> Vec<Target> {
        for namespaces in [namespaces, Namespaces::ALL] {
            let found = self.declared(module, name, namespaces, from);
            if !found.is_empty() {
                return found;
            }
        }
        let generated = self.generated(module, name, from);
        if !generated.is_empty() {
            generated
        } else if self.opens_outside(module, from) {
            vec![Target::External]
        } else if self.model.scopes[module.0].generated.is_empty() {
            Vec::new()
        } else {
            // A name that occurs only in the macro's definition.
            vec![Target::Generated(module)]
        }
    }

    /// Returns whether a glob of the module imports from a crate outside of the workspace.
    fn opens_outside(&self, module: ScopeId, from: ScopeId) -> bool {
        let globs = self.model.scopes[module.0].globs.iter();
        let mut visible = globs.filter(|glob| glob.exported || self.model.contains(module, from));
        visible.any(|glob| {
            let found = self.resolve(module, &glob.path, Namespaces::TYPE);
            found.is_empty() || found.iter().any(|found| found.target == Target::External)
        })
    }

    /// Returns what a scope declares, imports or re-exports as `name`, otherwise what its globs import.
    fn declared(
        &self,
        scope: ScopeId,
        name: &str,
        namespaces: Namespaces,
        from: ScopeId,
    ) -> Vec<Target> {
        self.once(scope, name, namespaces, || {
            let mut found = Vec::new();
            let mut outside = false;
            let entries = self.model.scopes[scope.0].names.get(name);
            for entry in entries.into_iter().flatten() {
                if entry.exported || self.model.contains(scope, from) {
                    for target in self.meanings(scope, entry, namespaces) {
                        outside |= target == Target::External;
                        if target != Target::External && !found.contains(&target) {
                            found.push(target);
                        }
                    }
                }
            }
            if found.is_empty() && outside {
                found.push(Target::External);
            }
            if found.is_empty() {
                found = self.through_globs(scope, from, |module, from| {
                    self.declared(module, name, namespaces, from)
                });
            }
            if found.is_empty() {
                found = self.variant(scope, name, from);
            }
            found
        })
    }

    /// Returns the targets of one entry in `namespaces`.
    fn meanings(&self, scope: ScopeId, entry: &Entry, namespaces: Namespaces) -> Vec<Target> {
        let (path, types_only) = match &entry.declared {
            Declared::Module(module) => {
                let target = Target::Module(*module);
                let wanted = namespaces.meets(Namespaces::TYPE);
                return wanted.then_some(target).into_iter().collect();
            }
            Declared::Item(item) => {
                let wanted = self.model.items[item.0].namespaces.meets(namespaces);
                return wanted.then_some(Target::Item(*item)).into_iter().collect();
            }
            Declared::Import { path, types_only } => (path, *types_only),
        };
        if types_only && !namespaces.meets(Namespaces::TYPE) {
            return Vec::new();
        }
        let found = self.resolve(scope, path, namespaces);
        if found.is_empty() {
            // A name that is not in the workspace belongs to another crate.
            return vec![Target::External];
        }
        let meaning = |found: Found| {
            let complete = found.segments == path.names.len();
            match found.target {
                Target::Module(_) if !complete => Some(Target::External),
                Target::Module(_) => namespaces.meets(Namespaces::TYPE).then_some(found.target),
                Target::Item(item) if complete => {
                    let wanted = self.model.items[item.0].namespaces.meets(namespaces);
                    wanted.then_some(found.target)
                }
                // A variant, which is a type and a value; or unknown.
                Target::Item(_) | Target::Generated(_) | Target::External => Some(found.target),
            }
        };
        found.into_iter().filter_map(meaning).collect()
    }

    /// Follows the globs of `scope` that are visible from `from`.
    fn through_globs(
        &self,
        scope: ScopeId,
        from: ScopeId,
        ask: impl Fn(ScopeId, ScopeId) -> Vec<Target>,
    ) -> Vec<Target> {
        let mut found = Vec::new();
        for module in self.glob_targets(scope, from) {
            if let Target::Module(module) = module {
                for target in ask(module, scope) {
                    if !found.contains(&target) {
                        found.push(target);
                    }
                }
            }
        }
        found
    }

    fn glob_targets(&self, scope: ScopeId, from: ScopeId) -> Vec<Target> {
        let globs = self.model.scopes[scope.0].globs.iter();
        let visible = globs.filter(|glob| glob.exported || self.model.contains(scope, from));
        visible
            .flat_map(|glob| {
                let found = self.resolve(scope, &glob.path, Namespaces::TYPE);
                let complete = move |found: &Found| found.segments == glob.path.names.len();
                found.into_iter().filter(complete).map(|found| found.target)
            })
            .collect()
    }

    /// Returns the enum that a glob imports from and that has a variant with this name.
    fn variant(&self, scope: ScopeId, name: &str, from: ScopeId) -> Vec<Target> {
        let mut targets = self.glob_targets(scope, from);
        targets.retain(|target| match target {
            Target::Item(item) => self.model.items[item.0].variants.contains(name),
            _ => false,
        });
        targets
    }

    /// Returns the scopes whose macro calls mention `name`, also through globs.
    fn generated(&self, scope: ScopeId, name: &str, from: ScopeId) -> Vec<Target> {
        self.once(scope, name, Namespaces::ALL, || {
            if self.model.scopes[scope.0].generated.contains(name) {
                return vec![Target::Generated(scope)];
            }
            self.through_globs(scope, from, |module, from| {
                self.generated(module, name, from)
            })
        })
    }

    /// Looks up `name`, unless the same lookup is in progress.
    fn once(
        &self,
        scope: ScopeId,
        name: &str,
        namespaces: Namespaces,
        look_up: impl FnOnce() -> Vec<Target>,
    ) -> Vec<Target> {
        let key = (scope, name.to_owned(), namespaces);
        if self.open.borrow().contains(&key) {
            return Vec::new();
        }
        self.open.borrow_mut().push(key);
        let found = look_up();
        self.open.borrow_mut().pop();
        found
    }
}
