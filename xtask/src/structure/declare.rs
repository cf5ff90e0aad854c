//! Declares a file's items in its scopes, and opens a scope per module.

use std::collections::HashSet;
use std::path::PathBuf;

use syn::{
    Attribute, Expr, Fields, ForeignItem, ImplItem, Item as Syntax, Lit, Meta, UseTree, Visibility,
};

use super::model::*;
use super::tokens::{identifiers, segments, unraw};

/// A module whose file is still to be read.
pub struct Pending {
    pub scope: ScopeId,
    pub name: String,
    /// The folder to search for its file.
    pub folder: PathBuf,
    /// The file that `#[path]` names.
    pub path: Option<PathBuf>,
}

/// Returns the item's attributes.
pub fn attributes(item: &Syntax) -> &[Attribute] {
    match item {
        Syntax::Const(it) => &it.attrs,
        Syntax::Enum(it) => &it.attrs,
        Syntax::ExternCrate(it) => &it.attrs,
        Syntax::Fn(it) => &it.attrs,
        Syntax::ForeignMod(it) => &it.attrs,
        Syntax::Impl(it) => &it.attrs,
        Syntax::Macro(it) => &it.attrs,
        Syntax::Mod(it) => &it.attrs,
        Syntax::Static(it) => &it.attrs,
        Syntax::Struct(it) => &it.attrs,
        Syntax::Trait(it) => &it.attrs,
        Syntax::TraitAlias(it) => &it.attrs,
        Syntax::Type(it) => &it.attrs,
        Syntax::Union(it) => &it.attrs,
        Syntax::Use(it) => &it.attrs,
        _ => &[],
    }
}

/// Adds the names that the item declares to `scope`, except for modules and imports.
pub fn declare(model: &mut Model, scope: ScopeId, item: &Syntax) {
    let types = Namespaces::TYPE;
    let values = Namespaces::VALUE;
    let (ident, visibility, namespaces) = match item {
        Syntax::Const(it) => (&it.ident, &it.vis, values),
        Syntax::Static(it) => (&it.ident, &it.vis, values),
        Syntax::Fn(it) => (&it.sig.ident, &it.vis, values),
        Syntax::Struct(it) if matches!(it.fields, Fields::Named(_)) => (&it.ident, &it.vis, types),
        // The name is also a constructor.
        Syntax::Struct(it) => (&it.ident, &it.vis, types.and(values)),
        Syntax::Union(it) => (&it.ident, &it.vis, types),
        Syntax::Trait(it) => (&it.ident, &it.vis, types),
        Syntax::TraitAlias(it) => (&it.ident, &it.vis, types),
        Syntax::Enum(it) => (&it.ident, &it.vis, types),
        Syntax::Type(it) => (&it.ident, &it.vis, types),
        _ => return declare_others(model, scope, item),
    };
    let id = add(model, scope, ident, is_exported(visibility), namespaces);
    let declared = &mut model.items[id.0];
    match item {
        Syntax::Enum(it) => {
            let variants = it.variants.iter().map(|variant| unraw(&variant.ident));
            declared.variants = variants.collect();
        }
        Syntax::Type(it) => declared.alias = plain_path(&it.ty).map(|path| (scope, path)),
        _ => {}
    }
}

/// Items that do not have exactly one name of their own.
fn declare_others(model: &mut Model, scope: ScopeId, item: &Syntax) {
    match item {
        Syntax::ForeignMod(it) => {
            for item in &it.items {
                let (ident, visibility, namespaces) = match item {
                    ForeignItem::Fn(it) => (&it.sig.ident, &it.vis, Namespaces::VALUE),
                    ForeignItem::Static(it) => (&it.ident, &it.vis, Namespaces::VALUE),
                    ForeignItem::Type(it) => (&it.ident, &it.vis, Namespaces::TYPE),
                    _ => continue,
                };
                add(model, scope, ident, is_exported(visibility), namespaces);
            }
        }
        Syntax::ExternCrate(it) => {
            let declared = Declared::Import {
                path: Segments {
                    leading: true,
                    names: vec![unraw(&it.ident)],
                },
                types_only: true,
            };
            let name = it.rename.as_ref().map_or(&it.ident, |(_, name)| name);
            model.declare(scope, unraw(name), is_exported(&it.vis), declared);
        }
        Syntax::Macro(it) => match &it.ident {
            Some(ident) => declare_macro(model, scope, ident, &it.attrs),
            None => {
                let identifiers = identifiers(it.mac.tokens.clone());
                model.scopes[scope.0].generated.extend(identifiers);
            }
        },
        Syntax::Impl(it) => {
            let associated = it.items.iter().filter_map(|item| match item {
                ImplItem::Fn(it) => Some(unraw(&it.sig.ident)),
                ImplItem::Const(it) => Some(unraw(&it.ident)),
                _ => None,
            });
            let inherent = it.trait_.is_none();
            model.impls.push(Impl {
                scope,
                file: model.scopes[scope.0].file,
                of: plain_path(&it.self_ty),
                associated: associated.filter(|_| inherent).collect(),
            });
        }
        _ => {}
    }
}

fn add(
    model: &mut Model,
    scope: ScopeId,
    ident: &syn::Ident,
    exported: bool,
    namespaces: Namespaces,
) -> ItemId {
    let id = ItemId(model.items.len());
    let name = unraw(ident);
    model.items.push(Item {
        name: name.clone(),
        file: model.scopes[scope.0].file,
        namespaces,
        variants: HashSet::new(),
        alias: None,
    });
    model.declare(scope, name, exported, Declared::Item(id));
    id
}

/// Declares a macro in its scope and, with `#[macro_export]`, in the crate's root.
fn declare_macro(model: &mut Model, scope: ScopeId, ident: &syn::Ident, attributes: &[Attribute]) {
    let id = add(model, scope, ident, false, Namespaces::MACRO);
    let root = model.scopes[scope.0].root;
    if attributes
        .iter()
        .any(|it| it.path().is_ident("macro_export"))
    {
        model.declare(root, unraw(ident), true, Declared::Item(id));
    }
}

/// Opens the scope of a module.
pub fn declare_module(model: &mut Model, parent: ScopeId, module: &syn::ItemMod) -> ScopeId {
    let scope = model.add_scope(model.scopes[parent.0].file, Some(parent), false);
    let exported = is_exported(&module.vis);
    model.declare(
        parent,
        unraw(&module.ident),
        exported,
        Declared::Module(scope),
    );
    if module
        .attrs
        .iter()
        .any(|it| it.path().is_ident("macro_use"))
    {
        model.scopes[parent.0].macro_use.push(scope);
    }
    scope
}

/// Returns the file that `#[path = "…"]` names.
pub fn path_attribute(attributes: &[Attribute]) -> Option<PathBuf> {
    attributes.iter().find_map(|attribute| {
        let Meta::NameValue(pair) = &attribute.meta else {
            return None;
        };
        match &pair.value {
            Expr::Lit(literal) if pair.path.is_ident("path") => match &literal.lit {
                Lit::Str(text) => Some(text.value().into()),
                _ => None,
            },
            _ => None,
        }
    })
}

/// Adds the names that a `use` imports to `scope`. Returns the imported paths.
pub fn import(model: &mut Model, scope: ScopeId, item: &syn::ItemUse) -> Vec<Segments> {
    let mut leaves = Vec::new();
    let prefix = Segments {
        leading: item.leading_colon.is_some(),
        names: Vec::new(),
    };
    flatten(&item.tree, prefix, &mut leaves);
    let exported = is_exported(&item.vis);
    let mut paths = Vec::new();
    for leaf in leaves {
        paths.push(leaf.path.clone());
        let Leaf { path, name } = leaf;
        match name {
            Imported::All => model.scopes[scope.0].globs.push(Glob { exported, path }),
            Imported::Nameless => {}
            Imported::As { name, types_only } => {
                let declared = Declared::Import { path, types_only };
                model.declare(scope, name, exported, declared);
            }
        }
    }
    paths
}

/// One path of a `use` tree.
struct Leaf {
    path: Segments,
    name: Imported,
}

enum Imported {
    /// `path::*`
    All,
    /// `path as _`
    Nameless,
    As {
        name: String,
        types_only: bool,
    },
}

fn flatten(tree: &UseTree, prefix: Segments, leaves: &mut Vec<Leaf>) {
    let extended = |ident: &syn::Ident| {
        let mut path = prefix.clone();
        path.names.push(unraw(ident));
        path
    };
    let mut leaf = |ident: &syn::Ident, rename: &syn::Ident| {
        // `a::{self}` is `a`.
        let is_self = ident == "self" && !prefix.names.is_empty();
        let path = if is_self {
            prefix.clone()
        } else {
            extended(ident)
        };
        let own_name = ident == rename;
        let name = match path.names.last() {
            Some(last) if own_name => last.clone(),
            _ => unraw(rename),
        };
        let name = if name == "_" {
            Imported::Nameless
        } else {
            Imported::As {
                name,
                types_only: is_self,
            }
        };
        leaves.push(Leaf { path, name });
    };
    match tree {
        UseTree::Path(it) => flatten(&it.tree, extended(&it.ident), leaves),
        UseTree::Name(it) => leaf(&it.ident, &it.ident),
        UseTree::Rename(it) => leaf(&it.ident, &it.rename),
        UseTree::Glob(_) => leaves.push(Leaf {
            path: prefix,
            name: Imported::All,
        }),
        UseTree::Group(it) => {
            for tree in &it.items {
                flatten(tree, prefix.clone(), leaves);
            }
        }
    }
}

/// Returns whether other modules may see the name. Does not evaluate the reach of `pub(super)` and the like.
pub fn is_exported(visibility: &Visibility) -> bool {
    match visibility {
        Visibility::Public(_) => true,
        Visibility::Restricted(it) => !it.path.is_ident("self"),
        _ => false,
    }
}

fn plain_path(ty: &syn::Type) -> Option<Segments> {
    match ty {
        syn::Type::Path(it) if it.qself.is_none() => Some(segments(&it.path)),
        syn::Type::Group(it) => plain_path(&it.elem),
        syn::Type::Paren(it) => plain_path(&it.elem),
        _ => None,
    }
}
