//! Runs the checks over the fuzzers' corpus and over random changes of it, without a fuzzer.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use proptest::sample::Index;
use rstest::rstest;

use super::{environment, messages, payloads, store, tuning};

type Check = fn(&[u8]);

/// Returns the inputs of a target: each file of its corpus.
fn inputs(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target);
    let files =
        fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
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

#[rstest]
#[case("environment", environment::check)]
#[case("messages", messages::check)]
#[case("payloads", payloads::check)]
#[case("store", store::check)]
#[case("tuning", tuning::check)]
fn parsers_keep_their_rules_for_the_corpus_and_changes_of_it(
    #[case] target: &str,
    #[case] check: Check,
) {
    let inputs = inputs(target);
    inputs.iter().for_each(|input| check(input));
    let changed = (any::<Index>(), prop::collection::vec(change(), 1..6));
    let configuration = ProptestConfig {
        cases: 512,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(configuration, |((which, changes) in changed)| {
        let mut input = which.get(&inputs).clone();
        changes.iter().for_each(|change| apply(change, &mut input));
        check(&input);
    });
}
