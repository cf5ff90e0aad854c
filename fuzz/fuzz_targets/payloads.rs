#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| symmem::fuzzing::payloads::check(bytes));
