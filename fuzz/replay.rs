//! Runs a check over a target's corpus and over random changes of it, without a fuzzer. Included by the tests of each
//! crate that has checks.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use proptest::sample::Index;

pub type Check = fn(&[u8]);

/// Returns the inputs in `folder`: each of its files.
fn inputs(folder: &Path) -> Vec<Vec<u8>> {
    let files =
        fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} is empty", folder.display());
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// A change of an input.
#[derive(Clone, Debug)]
enum Change {
    Set(Index, u8),
    Insert(Index, Vec<u8>),
    Cut(Index, Index),
}

fn change() -> impl Strategy<Value = Change> {
    let few = prop::collection::vec(any::<u8>(), 1..9);
    prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        (any::<Index>(), few).prop_map(|(at, bytes)| Change::Insert(at, bytes)),
        (any::<Index>(), any::<Index>()).prop_map(|(from, to)| Change::Cut(from, to)),
    ]
}

fn apply(change: &Change, input: &mut Vec<u8>) {
    let length = input.len();
    match change {
        Change::Set(at, byte) if length > 0 => input[at.index(length)] = *byte,
        Change::Set(..) => {}
        Change::Insert(at, bytes) => {
            let at = at.index(length + 1);
            input.splice(at..at, bytes.iter().copied());
        }
        Change::Cut(from, to) => {
            let (from, to) = (from.index(length + 1), to.index(length + 1));
            input.drain(from.min(to)..from.max(to));
        }
    }
}

/// Runs `check` over the files in `folder`, and over `cases` random changes of them.
pub fn replay(folder: &Path, check: Check, cases: u32) {
    let inputs = inputs(folder);
    inputs.iter().for_each(|input| check(input));
    let changed = (any::<Index>(), prop::collection::vec(change(), 1..6));
    let configuration = ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(configuration, |((which, changes) in changed)| {
        let mut input = which.get(&inputs).clone();
        changes.iter().for_each(|change| apply(change, &mut input));
        check(&input);
    });
}
