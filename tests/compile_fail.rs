//! No safe call yields a reference to memory that peers write, and nothing outlives its buffer: the
//! programs in `compile_fail/` must not compile, each for the reason beside it.

#[test]
fn programs_that_would_be_unsound_do_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
