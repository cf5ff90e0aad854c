#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| symmem_bench::fuzzing::reports::check(bytes));
