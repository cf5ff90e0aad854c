//! No safe call returns a reference to memory that peers write, and no value outlives its buffer: the programs in
//! `programs/` do not compile, each for the reason in its `.stderr` file.

#[allow(dead_code, reason = "other test binaries sample in other ways too")]
#[path = "../../support/amount.rs"]
mod amount;

#[test]
fn programs_that_would_be_unsound_do_not_compile() {
    if amount::too_long() {
        return;
    }
    trybuild::TestCases::new().compile_fail("programs/*.rs");
}
