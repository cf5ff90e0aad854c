//! Compares the edges between crates, and the files that name a crate, with the list.

use super::edges::Edges;
use super::list::List;
use super::model::Model;
use super::workspace::Member;

const LIST: &str = "xtask/structure.toml";

/// Compares the crates' dependencies with the list. Returns one line per difference.
pub fn check(list: &List, members: &[Member]) -> Vec<String> {
    let mut found = Vec::new();
    for member in members {
        let name = &member.name;
        let Some(allowed) = list.crates.get(name) else {
            found.push(format!(
                "crate {name} is not in the list: add it to [crates] in {LIST} with the crates that it may use"
            ));
            continue;
        };
        for dependency in &member.dependencies {
            let used = &dependency.name;
            if !allowed.contains(used) {
                found.push(format!(
                    "crate {name} may not depend on {used}: [crates] in {LIST} does not allow it"
                ));
            }
            if dependency.is_renamed {
                found.push(format!(
                    "crate {name} renames its dependency {used}: use the crate's own name, by which this check knows it"
                ));
            }
        }
    }
    let absent = |name: &&String| !members.iter().any(|member| member.name == **name);
    for name in list.crates.keys().filter(absent) {
        found.push(format!(
            "crate {name} is in [crates] of {LIST}, but not in the workspace"
        ));
    }
    found
}

/// Compares the files that name a crate with the list. Returns one line per difference.
pub fn check_only(list: &List, model: &Model, edges: &Edges) -> Vec<String> {
    let mut found = Vec::new();
    for (library, places) in &list.only {
        if !model.libraries.contains_key(library) {
            found.push(format!(
                "crate {library} is in [only] of {LIST}, but not in the workspace"
            ));
        }
        let mut used = vec![false; places.len()];
        for (file, libraries) in &edges.libraries {
            if !libraries.contains(library) {
                continue;
            }
            let path = &model.files[file.0].path;
            match places.iter().position(|place| covers(place, path)) {
                Some(index) => used[index] = true,
                None => found.push(format!(
                    "{path} names {library}: only {} may ([only] in {LIST})",
                    places.join(", ")
                )),
            }
        }
        for (place, used) in places.iter().zip(used) {
            if !used {
                found.push(format!(
                    "{place} does not name {library}: remove it from [only] in {LIST}"
                ));
            }
        }
    }
    found.sort();
    found
}

/// Returns whether `place` is the file or a folder that contains it.
fn covers(place: &str, path: &str) -> bool {
    std::path::Path::new(path).starts_with(place)
}
