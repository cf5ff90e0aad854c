//! Runs the checks over the fuzzers' corpus and over random changes of it, without a fuzzer.

use std::path::Path;

use rstest::rstest;

use super::replay::{Check, replay};
use super::{environment, messages, payloads, store, tuning};

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
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    replay(&corpus.join(target), check, 512);
}
