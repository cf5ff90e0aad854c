//! `cargo xtask kernels check`.

use std::collections::BTreeMap;

use super::family::Family;
use super::manifest::{self, Manifest};
use crate::error::{Error, Result};
use crate::tools::Scratch;

/// Checks that options, sources and artefacts are those of the manifest, and that compiling gives the same bytes. With
/// other compilers than the manifest's, checks only that the sources compile to the same files and pass the lint.
pub fn run(family: Family) -> Result<()> {
    let committed = Manifest::read(family)?;
    let mut stale = changed_options(&committed.options, &family.options());
    stale.extend(differences(
        "source",
        &committed.sources,
        &manifest::sources(family)?,
    ));
    let present = manifest::committed(family)?;
    stale.extend(differences("artefact", &committed.artefacts, &present));
    verdict(stale)?;

    let scratch = Scratch::new("kernels-check")?;
    let compilers = family.make(scratch.path())?;
    let made = Manifest::of(family, compilers, scratch.path())?;
    if made.compilers != committed.compilers {
        verdict(differences(
            "rebuilt artefact",
            &names(&committed.artefacts),
            &names(&made.artefacts),
        ))?;
        println!(
            "compiled and linted with {}; bytes not compared, since the artefacts are from {}",
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
        "{} artefacts rebuilt with {}: same bytes",
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

/// Returns the differences between the recorded and the current options, one line each.
fn changed_options(recorded: &[String], given: &[String]) -> Vec<String> {
    let gone = recorded.iter().filter(|option| !given.contains(option));
    let new = given.iter().filter(|option| !recorded.contains(option));
    let mut lines: Vec<String> = gone
        .map(|option| format!("option {option} is only in the manifest"))
        .chain(new.map(|option| format!("option {option} is not in the manifest")))
        .collect();
    if lines.is_empty() && recorded != given {
        lines.push("the options differ in order or repetition".into());
    }
    lines
}

/// Returns the artefacts without their digests.
fn names(artefacts: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let names = artefacts.keys().cloned();
    names.map(|name| (name, String::new())).collect()
}

/// Returns the differences between recorded and found digests, one line each.
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

    #[test]
    fn options_are_compared_whoever_compiles() {
        let list = |options: &[&str]| -> Vec<String> {
            options.iter().map(|&option| option.to_owned()).collect()
        };
        let recorded = list(&["-x", "hip", "-O3"]);
        assert_eq!(changed_options(&recorded, &recorded), [""; 0]);
        assert_eq!(
            changed_options(&recorded, &list(&["-x", "hip", "-O2"])),
            [
                "option -O3 is only in the manifest",
                "option -O2 is not in the manifest"
            ]
        );
        assert_eq!(
            changed_options(&recorded, &list(&["-O3", "-x", "hip"])).len(),
            1
        );
    }

    #[test]
    fn without_digests_only_names_are_compared() {
        let one: BTreeMap<_, _> = [("a".to_owned(), "1".to_owned())].into();
        let other: BTreeMap<_, _> = [("a".to_owned(), "2".to_owned())].into();
        assert_eq!(differences("artefact", &one, &other).len(), 1);
        assert_eq!(
            differences("artefact", &names(&one), &names(&other)),
            [""; 0]
        );
    }
}
