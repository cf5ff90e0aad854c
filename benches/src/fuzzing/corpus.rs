//! Runs the checks over the fuzzers' corpus and over random changes of it, without a fuzzer.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use proptest::sample::Index;
use rstest::rstest;

use super::{reports, shapes};

type Check = fn(&[u8]);

/// Returns the inputs of a target: each file of its corpus.
fn inputs(target: &str) -> Vec<Vec<u8>> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    let folder = corpus.join(target);
    let files =
        fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} is empty", folder.display());
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

#[rstest]
#[case("reports", reports::check)]
#[case("shapes", shapes::check)]
fn readers_keep_their_rules_for_the_corpus_and_changes_of_it(
    #[case] target: &str,
    #[case] check: Check,
) {
    let inputs = inputs(target);
    inputs.iter().for_each(|input| check(input));
    let changed = (
        any::<Index>(),
        prop::collection::vec(any::<(Index, u8)>(), 1..4),
    );
    let configuration = ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(configuration, |((which, changes) in changed)| {
        let mut input = which.get(&inputs).clone();
        for (at, byte) in &changes {
            if !input.is_empty() {
                let at = at.index(input.len());
                input[at] = *byte;
            }
        }
        check(&input);
    });
}

#[test]
fn a_report_of_changed_numbers_is_read_and_drawn() {
    // Nothing is changed, each number is 0 in turn, or all are.
    reports::check(&[0xff]);
    let zero = |index: u16| [&index.to_le_bytes()[..], &[0; 9]].concat();
    for first in (0..600).step_by(60) {
        let edits: Vec<u8> = (first..first + 60).flat_map(zero).collect();
        reports::check(&[&[0xff][..], &edits].concat());
    }
}
