//! `cargo xtask kernels check`.

use std::collections::BTreeMap;

use super::family::Family;
use super::manifest::{self, Manifest};
use crate::error::{Error, Result};
use crate::tools::Scratch;

/// Sources and artefacts must be those of the manifest; with the manifest's compilers, compiling must give
/// the same bytes. With others it must still compile and pass the lint.
pub fn run(family: Family) -> Result<()> {
    let committed = Manifest::read(family)?;
    let mut stale = differences("source", &committed.sources, &manifest::sources(family)?);
    let present = manifest::committed(family)?;
    stale.extend(differences("artefact", &committed.artefacts, &present));
    verdict(stale)?;

    let scratch = Scratch::new("kernels-check")?;
    let compilers = family.make(scratch.path())?;
    let made = Manifest::of(family, compilers, scratch.path())?;
    if made.compilers != committed.compilers {
        println!(
            "not compared: compiled and linted with {}; the artefacts are from {}",
            made.compilers.join(", "),
            committed.compilers.join(", ")
        );
        return Ok(());
    }
    verdict(differences(
        "rebuilt artefact",
        &committed.artefacts,
        &made.artefacts,
    ))?;
    println!(
        "{} artefacts rebuilt with {}: the same bytes",
        made.artefacts.len(),
        made.compilers.join(", ")
    );
    Ok(())
}

fn verdict(stale: Vec<String>) -> Result<()> {
    if stale.is_empty() {
        Ok(())
    } else {
        Err(Error::Stale(stale))
    }
}

/// What differs between digests as recorded and as found, a line each.
pub(super) fn differences(
    kind: &str,
    recorded: &BTreeMap<String, String>,
    found: &BTreeMap<String, String>,
) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, digest) in recorded {
        match found.get(name) {
            None => lines.push(format!("{kind} {name} is missing")),
            Some(other) if other != digest => lines.push(format!("{kind} {name} differs")),
            Some(_) => {}
        }
    }
    for name in found.keys().filter(|name| !recorded.contains_key(*name)) {
        lines.push(format!("{kind} {name} is not in the manifest"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_what_is_missing_different_or_new() {
        let map = |pairs: &[(&str, &str)]| {
            pairs
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect()
        };
        let recorded = map(&[("a", "1"), ("b", "2"), ("c", "3")]);
        let found = map(&[("a", "1"), ("b", "0"), ("d", "4")]);
        assert_eq!(
            differences("source", &recorded, &found),
            [
                "source b differs",
                "source c is missing",
                "source d is not in the manifest"
            ]
        );
        assert!(differences("source", &recorded, &recorded).is_empty());
    }
}
