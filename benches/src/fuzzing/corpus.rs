//! Runs the checks over the fuzzers' corpus and over random changes of it, without a fuzzer.

use std::path::Path;

use rstest::rstest;

use super::replay::{Check, replay};
use super::{reports, shapes};

#[rstest]
#[case("reports", reports::check)]
#[case("shapes", shapes::check)]
fn readers_keep_their_rules_for_the_corpus_and_changes_of_it(
    #[case] target: &str,
    #[case] check: Check,
) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    replay(&corpus.join(target), check, 64);
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
