//! Walks a file: declares its items and collects the paths in it.

use std::collections::HashSet;
use std::path::PathBuf;

use proc_macro2::TokenStream;
use syn::visit::{self, Visit};
use syn::{Attribute, Item as Syntax, Stmt};

use super::conditions::ships;
use super::declare::{self, Pending};
use super::model::*;
use super::tokens::{self, segments, unraw};

/// Attributes whose arguments name no items.
const WITHOUT_PATHS: [&str; 8] = [
    "doc", "cfg", "allow", "expect", "warn", "deny", "must_use", "path",
];

/// Reads one file into its scope. Returns its modules in other files.
pub fn collect(
    model: &mut Model,
    scope: ScopeId,
    folders: Folders,
    syntax: &syn::File,
) -> Vec<Pending> {
    let mut collector = Collector {
        file: model.scopes[scope.0].file,
        model,
        scope,
        folders,
        within: None,
        variables: HashSet::new(),
        seen: HashSet::new(),
        pending: Vec::new(),
    };
    if ships(&syntax.attrs) {
        syntax
            .items
            .iter()
            .for_each(|item| collector.visit_item(item));
    }
    collector.pending
}

/// The folders to search for a file's modules.
pub struct Folders {
    /// The folder of `mod name;`.
    pub modules: PathBuf,
    /// The base folder of `#[path]` outside of inline modules.
    pub paths: PathBuf,
}

struct Collector<'m> {
    model: &'m mut Model,
    file: FileId,
    scope: ScopeId,
    folders: Folders,
    /// The `impl` around the current item.
    within: Option<usize>,
    /// Variables of the function around the current expression.
    variables: HashSet<String>,
    seen: HashSet<Reference>,
    pending: Vec<Pending>,
}

impl Collector<'_> {
    fn refer(&mut self, path: Segments, kind: Kind) {
        let reference = Reference {
            file: self.file,
            scope: self.scope,
            path,
            kind,
            within: self.within,
        };
        if !reference.path.names.is_empty() && self.seen.insert(reference.clone()) {
            self.model.references.push(reference);
        }
    }

    fn path(&mut self, path: &syn::Path, namespaces: Namespaces) {
        self.refer(segments(path), Kind::Path(namespaces));
        // Generic arguments contain paths.
        path.segments
            .iter()
            .for_each(|it| self.visit_path_segment(it));
    }

    /// Visits `<Type as Trait>::name`: the trait is a path, and the rest belongs to it.
    fn qualified(&mut self, qself: &syn::QSelf, path: &syn::Path) {
        self.visit_type(&qself.ty);
        let mut leading = segments(path);
        leading.names.truncate(qself.position);
        self.refer(leading, Kind::Path(Namespaces::TYPE));
        path.segments
            .iter()
            .for_each(|it| self.visit_path_segment(it));
    }

    fn tokens(&mut self, tokens: TokenStream) {
        for found in tokens::paths(tokens) {
            if !self.is_variable(&found.path) {
                self.refer(found.path, Kind::Path(found.namespaces));
            }
        }
    }

    fn is_variable(&self, path: &Segments) -> bool {
        matches!(path.names.as_slice(), [name] if self.variables.contains(name))
    }

    /// Visits a function with its variables in scope.
    fn function(&mut self, variables: Variables, walk: impl FnOnce(&mut Self)) {
        let outer = std::mem::take(&mut self.variables);
        self.variables = variables.0;
        self.variables.extend(outer.iter().cloned());
        walk(self);
        self.variables = outer;
    }

    fn module(&mut self, module: &syn::ItemMod) {
        let scope = declare::declare_module(self.model, self.scope, module);
        let name = unraw(&module.ident);
        let path = declare::path_attribute(&module.attrs);
        let Some((_, items)) = &module.content else {
            self.pending.push(Pending {
                scope,
                name,
                folder: self.folders.modules.clone(),
                path: path.map(|path| self.folders.paths.join(path)),
            });
            return;
        };
        let inner = self.folders.modules.join(path.unwrap_or(name.into()));
        let folders = Folders {
            modules: inner.clone(),
            paths: inner,
        };
        let outer = (
            std::mem::replace(&mut self.scope, scope),
            std::mem::replace(&mut self.folders, folders),
        );
        items.iter().for_each(|item| self.visit_item(item));
        (self.scope, self.folders) = outer;
    }
}

impl<'s> Visit<'s> for Collector<'_> {
    fn visit_item(&mut self, item: &'s Syntax) {
        let attributes = declare::attributes(item);
        if !ships(attributes) {
            return;
        }
        declare::declare(self.model, self.scope, item);
        let outer = self.within;
        match item {
            Syntax::Mod(module) => self.module(module),
            Syntax::Use(it) => {
                let kind = if declare::is_exported(&it.vis) {
                    Kind::Reexport
                } else {
                    Kind::Use
                };
                for path in declare::import(self.model, self.scope, it) {
                    self.refer(path, kind);
                }
            }
            Syntax::ExternCrate(it) => {
                let path = Segments {
                    leading: true,
                    names: vec![unraw(&it.ident)],
                };
                self.refer(path, Kind::Reexport);
            }
            Syntax::Impl(_) => {
                self.within = Some(self.model.impls.len() - 1);
                visit::visit_item(self, item);
            }
            // `Self` in a trait is not a known type.
            Syntax::Trait(_) => {
                self.within = None;
                visit::visit_item(self, item);
            }
            _ => visit::visit_item(self, item),
        }
        self.within = outer;
    }

    fn visit_item_macro(&mut self, item: &'s syn::ItemMacro) {
        if item.ident.is_some() {
            self.tokens(item.mac.tokens.clone());
        } else {
            self.visit_macro(&item.mac);
        }
    }

    fn visit_item_fn(&mut self, item: &'s syn::ItemFn) {
        let mut variables = Variables::default();
        variables.visit_item_fn(item);
        self.function(variables, |this| visit::visit_item_fn(this, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'s syn::ImplItemFn) {
        let mut variables = Variables::default();
        variables.visit_impl_item_fn(item);
        self.function(variables, |this| visit::visit_impl_item_fn(this, item));
    }

    fn visit_trait_item_fn(&mut self, item: &'s syn::TraitItemFn) {
        let mut variables = Variables::default();
        variables.visit_trait_item_fn(item);
        self.function(variables, |this| visit::visit_trait_item_fn(this, item));
    }

    fn visit_impl_item(&mut self, item: &'s syn::ImplItem) {
        let attributes: &[Attribute] = match item {
            syn::ImplItem::Const(it) => &it.attrs,
            syn::ImplItem::Fn(it) => &it.attrs,
            syn::ImplItem::Type(it) => &it.attrs,
            syn::ImplItem::Macro(it) => &it.attrs,
            _ => &[],
        };
        if ships(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_trait_item(&mut self, item: &'s syn::TraitItem) {
        let attributes: &[Attribute] = match item {
            syn::TraitItem::Const(it) => &it.attrs,
            syn::TraitItem::Fn(it) => &it.attrs,
            syn::TraitItem::Type(it) => &it.attrs,
            syn::TraitItem::Macro(it) => &it.attrs,
            _ => &[],
        };
        if ships(attributes) {
            visit::visit_trait_item(self, item);
        }
    }

    fn visit_field(&mut self, field: &'s syn::Field) {
        if ships(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_field_value(&mut self, field: &'s syn::FieldValue) {
        if ships(&field.attrs) {
            visit::visit_field_value(self, field);
        }
    }

    fn visit_variant(&mut self, variant: &'s syn::Variant) {
        if ships(&variant.attrs) {
            visit::visit_variant(self, variant);
        }
    }

    fn visit_arm(&mut self, arm: &'s syn::Arm) {
        if ships(&arm.attrs) {
            visit::visit_arm(self, arm);
        }
    }

    fn visit_stmt(&mut self, statement: &'s Stmt) {
        let attributes: &[Attribute] = match statement {
            Stmt::Local(it) => &it.attrs,
            Stmt::Macro(it) => &it.attrs,
            Stmt::Expr(syn::Expr::Block(it), _) => &it.attrs,
            Stmt::Item(_) | Stmt::Expr(..) => &[],
        };
        if ships(attributes) {
            visit::visit_stmt(self, statement);
        }
    }

    fn visit_block(&mut self, block: &'s syn::Block) {
        let outer = self.scope;
        if block.stmts.iter().any(|it| matches!(it, Stmt::Item(_))) {
            self.scope = self.model.add_scope(self.file, Some(outer), true);
        }
        visit::visit_block(self, block);
        self.scope = outer;
    }

    fn visit_path(&mut self, path: &'s syn::Path) {
        self.path(path, Namespaces::TYPE);
    }

    fn visit_type_path(&mut self, ty: &'s syn::TypePath) {
        match &ty.qself {
            Some(qself) => self.qualified(qself, &ty.path),
            None => self.path(&ty.path, Namespaces::TYPE),
        }
    }

    fn visit_expr_path(&mut self, expression: &'s syn::ExprPath) {
        match &expression.qself {
            Some(qself) => self.qualified(qself, &expression.path),
            None if self.is_variable(&segments(&expression.path)) => {}
            None => self.path(&expression.path, Namespaces::VALUE),
        }
    }

    fn visit_pat_tuple_struct(&mut self, pattern: &'s syn::PatTupleStruct) {
        match &pattern.qself {
            Some(qself) => self.qualified(qself, &pattern.path),
            None => self.path(&pattern.path, Namespaces::VALUE),
        }
        pattern.elems.iter().for_each(|it| self.visit_pat(it));
    }

    fn visit_pat_ident(&mut self, pattern: &'s syn::PatIdent) {
        // A constant or a unit struct; a variable begins with a small letter.
        if is_constant(pattern) {
            let path = Segments {
                leading: false,
                names: vec![unraw(&pattern.ident)],
            };
            self.refer(path, Kind::Path(Namespaces::VALUE));
        }
        visit::visit_pat_ident(self, pattern);
    }

    fn visit_macro(&mut self, call: &'s syn::Macro) {
        self.refer(segments(&call.path), Kind::Path(Namespaces::MACRO));
        self.tokens(call.tokens.clone());
    }

    fn visit_attribute(&mut self, attribute: &'s Attribute) {
        let path = attribute.path();
        if WITHOUT_PATHS.iter().any(|name| path.is_ident(name)) {
            return;
        }
        self.refer(segments(path), Kind::Path(Namespaces::MACRO));
        if let syn::Meta::List(list) = &attribute.meta {
            self.tokens(list.tokens.clone());
            for path in tokens::quoted_paths(list.tokens.clone()) {
                self.refer(path, Kind::Path(Namespaces::VALUE));
            }
        }
    }

    // `pub(in path)` names an enclosing module.
    fn visit_vis_restricted(&mut self, _: &'s syn::VisRestricted) {}
}

fn is_constant(pattern: &syn::PatIdent) -> bool {
    let plain = pattern.by_ref.is_none() && pattern.mutability.is_none();
    let upper = unraw(&pattern.ident).starts_with(|letter: char| letter.is_uppercase());
    plain && upper && pattern.subpat.is_none()
}

/// Returns the variables that the patterns of a function bind.
#[derive(Default)]
struct Variables(HashSet<String>);

impl<'s> Visit<'s> for Variables {
    fn visit_pat_ident(&mut self, pattern: &'s syn::PatIdent) {
        if !is_constant(pattern) {
            self.0.insert(unraw(&pattern.ident));
        }
        visit::visit_pat_ident(self, pattern);
    }
}
