//! Environment variables: the launchers' and our own.
//!
//! The input is a list of lines. The first byte of a line selects a variable of [`VARIABLES`], the rest is its value.

use std::collections::HashMap;

use crate::backend::abi::MAX_RANKS;
use crate::backends::Selection;
use crate::base::env;
use crate::base::limits::MAX_WORLD;
use crate::base::variables::VARIABLES;
use crate::bootstrap::{BootstrapError, LaunchEnvironment, Secret};

/// Checks `bytes` as an environment, and each line as the value of every variable with a grammar.
pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let mut variables = HashMap::new();
    for line in text.lines() {
        let mut rest = line.chars();
        if let Some(selector) = rest.next() {
            let name = VARIABLES[selector as usize % VARIABLES.len()].name;
            variables.insert(name, rest.as_str());
        }
        values(line);
    }
    let lookup = |name: &str| variables.get(name).map(|value| (*value).to_owned());
    match LaunchEnvironment::from_variables(lookup) {
        Ok(None) => {}
        Ok(Some(launch)) => {
            assert!(launch.rank < launch.world && launch.world as usize <= MAX_WORLD);
            assert!(launch.local_rank < launch.local_world);
            assert!(launch.local_world as usize <= MAX_RANKS);
            assert!(launch.local_world >= launch.world || launch.address.is_some());
        }
        Err(error) => says(&error),
    }
}

/// Checks that an error names a variable with its value, or the numbers that do not fit.
fn says(error: &BootstrapError) {
    let text = error.to_string();
    match error {
        BootstrapError::BadVariable {
            name,
            value,
            expected,
        } => {
            assert!(text.contains(name) && text.contains(expected), "{text}");
            assert!(text.contains(&format!("{value:?}")), "{text}");
            // A secret must not reach a log.
            assert!(*name != "SYMMEM_SECRET" || value.ends_with(" characters>"));
        }
        BootstrapError::MissingVariable { missing, present } => {
            assert!(text.contains(missing) && text.contains(present), "{text}");
        }
        BootstrapError::RankOutsideWorld { rank, world, .. } => {
            assert!(text.contains(&rank.to_string()), "{text}");
            assert!(text.contains(&world.to_string()), "{text}");
        }
        BootstrapError::SeveralHosts { world, local_world } => {
            assert!(text.contains(&world.to_string()), "{text}");
            assert!(text.contains(&local_world.to_string()), "{text}");
        }
        other => panic!("{other:?} is not an error of variables"),
    }
}

/// Checks that the value of a variable is the same after it is written and read.
fn values(text: &str) {
    if let Ok(on) = env::switch(text) {
        assert_eq!(text, if on { "1" } else { "0" });
    }
    match env::share_kinds(text) {
        Ok(kinds) => {
            let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
            assert_eq!(env::share_kinds(&names.join(",")), Ok(kinds));
        }
        Err(reason) => assert!(reason.contains('`'), "{reason}"),
    }
    match Selection::parse(text) {
        Ok(selection) => {
            let shown = selection.to_string();
            assert_eq!(Selection::parse(&shown).unwrap(), selection);
        }
        Err(error) => assert!(error.to_string().contains(text), "{error}"),
    }
    if let Some(secret) = Secret::from_hex(text) {
        assert_eq!(secret.to_hex(), text.to_ascii_lowercase());
    }
}
