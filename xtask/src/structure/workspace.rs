//! Asks Cargo for the workspace's shipped crates.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::error::{Error, Result};
use crate::tools;

/// Folders whose crates are not shipped.
const NOT_SHIPPED: [&str; 2] = ["tests", "xtask"];

/// A shipped crate.
pub struct Member {
    pub name: String,
    /// Folder, relative to the repository's root; empty for the root package.
    pub folder: PathBuf,
    /// The targets, library first, then programs.
    pub targets: Vec<Target>,
    pub dependencies: Vec<Dependency>,
}

pub struct Target {
    /// The crate name in paths.
    pub name: String,
    pub is_library: bool,
    /// The root file, relative to the repository's root.
    pub file: PathBuf,
}

/// A dependency on a workspace crate, except for tests.
pub struct Dependency {
    pub name: String,
    pub is_renamed: bool,
}

/// Asks Cargo for the workspace's crates, except those in `tests` and `xtask`.
pub fn members(root: &Path) -> Result<Vec<Member>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = root.join("Cargo.toml");
    let mut command = Command::new(cargo);
    command.args([
        "metadata",
        "--no-deps",
        "--format-version",
        "1",
        "--offline",
    ]);
    command.arg("--manifest-path").arg(&manifest);
    let text = tools::output(&mut command)?;
    // Cargo may print warnings on the lines around the object.
    let object = text.lines().find(|line| line.starts_with('{'));
    let metadata: Metadata =
        serde_json::from_str(object.unwrap_or(&text)).map_err(|source| Error::Manifest {
            path: manifest,
            source,
        })?;
    let names: Vec<String> = metadata.packages.iter().map(|it| it.name.clone()).collect();
    let root = PathBuf::from(&metadata.workspace_root);
    let members = metadata.packages.into_iter();
    let mut members: Vec<Member> = members
        .map(|package| package.member(&root, &names))
        .filter(|member| {
            !NOT_SHIPPED
                .iter()
                .any(|folder| member.folder.starts_with(folder))
        })
        .collect();
    members.sort_by(|one, other| one.folder.cmp(&other.folder));
    Ok(members)
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_root: String,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
    targets: Vec<PackageTarget>,
    dependencies: Vec<PackageDependency>,
}

#[derive(Deserialize)]
struct PackageTarget {
    name: String,
    kind: Vec<String>,
    src_path: PathBuf,
}

#[derive(Deserialize)]
struct PackageDependency {
    name: String,
    kind: Option<String>,
    rename: Option<String>,
}

impl Package {
    fn member(self, root: &Path, names: &[String]) -> Member {
        let inside = |path: &Path| path.strip_prefix(root).unwrap_or(path).to_owned();
        let folder = self.manifest_path.parent().map(inside).unwrap_or_default();
        let mut targets = Vec::new();
        for target in self.targets {
            let is_program = target.kind.iter().any(|kind| kind == "bin");
            let others = ["example", "test", "bench", "custom-build"];
            if target
                .kind
                .iter()
                .any(|kind| others.contains(&kind.as_str()))
            {
                continue;
            }
            targets.push(Target {
                name: target.name.replace('-', "_"),
                is_library: !is_program,
                file: inside(&target.src_path),
            });
        }
        targets.sort_by_key(|target| !target.is_library);
        let dependencies = self.dependencies.into_iter();
        let dependencies = dependencies
            .filter(|it| it.kind.as_deref() != Some("dev") && names.contains(&it.name))
            .map(|it| Dependency {
                is_renamed: it.rename.is_some(),
                name: it.name,
            });
        Member {
            name: self.name,
            folder,
            targets,
            dependencies: dependencies.collect(),
        }
    }
}
