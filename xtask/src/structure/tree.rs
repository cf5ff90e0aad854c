//! Reads every shipped crate, from its roots module by module.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::collect::{self, Folders};
use super::declare::Pending;
use super::model::*;
use super::workspace::Member;
use crate::error::{Error, Result, at};

/// Reads all files of `members` that are compiled outside of tests.
pub fn read(root: &Path, members: &[Member]) -> Result<Model> {
    let mut reader = Reader {
        root,
        model: Model::default(),
        known: HashMap::new(),
    };
    for (index, member) in members.iter().enumerate() {
        for target in &member.targets {
            let file = reader.file(&target.file, index);
            let scope = reader.model.add_scope(file, None, false);
            if target.is_library {
                reader.model.libraries.insert(target.name.clone(), scope);
            }
            reader.tree(scope, target.file.clone(), index)?;
        }
    }
    Ok(reader.model)
}

struct Reader<'r> {
    root: &'r Path,
    model: Model,
    known: HashMap<PathBuf, FileId>,
}

impl Reader<'_> {
    fn file(&mut self, path: &Path, member: usize) -> FileId {
        let files = &mut self.model.files;
        *self.known.entry(path.to_owned()).or_insert_with(|| {
            files.push(File {
                path: path.to_string_lossy().into_owned(),
                member,
            });
            FileId(files.len() - 1)
        })
    }

    /// Reads a target's root file and all modules below it.
    fn tree(&mut self, scope: ScopeId, path: PathBuf, member: usize) -> Result<()> {
        // The files still to read. A root's modules lie beside it, like those of `mod.rs`.
        let mut open = vec![(scope, path, true)];
        while let Some((scope, path, beside)) = open.pop() {
            for module in self.parse(scope, &path, beside)? {
                let scope = module.scope;
                let (path, beside) = self.locate(module, &path)?;
                self.model.scopes[scope.0].file = self.file(&path, member);
                open.push((scope, path, beside));
            }
        }
        Ok(())
    }

    fn parse(&mut self, scope: ScopeId, path: &Path, beside: bool) -> Result<Vec<Pending>> {
        let full = self.root.join(path);
        let text = at(&full, std::fs::read_to_string(&full))?;
        let syntax = syn::parse_file(&text).map_err(|error| Error::Source {
            path: path.to_owned(),
            what: error.to_string(),
        })?;
        let paths = path.parent().map(Path::to_owned).unwrap_or_default();
        let modules = match path.file_stem() {
            Some(stem) if !beside => paths.join(stem),
            _ => paths.clone(),
        };
        let folders = Folders { modules, paths };
        Ok(collect::collect(&mut self.model, scope, folders, &syntax))
    }

    /// Returns the file of a module, and whether its submodules lie beside it.
    fn locate(&self, module: Pending, parent: &Path) -> Result<(PathBuf, bool)> {
        if let Some(path) = module.path {
            return Ok((path, true));
        }
        let flat = module.folder.join(format!("{}.rs", module.name));
        let nested = module.folder.join(&module.name).join("mod.rs");
        if self.root.join(&flat).is_file() {
            Ok((flat, false))
        } else if self.root.join(&nested).is_file() {
            Ok((nested, true))
        } else {
            Err(Error::Source {
                path: parent.to_owned(),
                what: format!(
                    "no file for `mod {}`: add {} or {}",
                    module.name,
                    flat.display(),
                    nested.display()
                ),
            })
        }
    }
}
