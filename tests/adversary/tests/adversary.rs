//! Generated programs pass on the host backend, and a fault in the model is found and shrunk.

use std::process::{Command, Output, Stdio};

fn adversary(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_symmem-adversary"));
    command.args(arguments).stdin(Stdio::null());
    command.output().expect("the adversary starts")
}

fn text(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    format!("{}\n{errors}", String::from_utf8_lossy(&output.stdout))
}

#[test]
fn generated_programs_pass_and_are_counted() {
    let output = adversary(&["--seed", "1", "--seconds", "3"]);
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    let counts = text.lines().find_map(|line| line.strip_prefix("counts: "));
    let counts = counts.unwrap_or_else(|| panic!("no counts in {text}"));
    for name in ["programs=", "action.", "call.", "checks=", "bytes="] {
        assert!(counts.contains(name), "no {name} in {counts}");
    }
}

/// Plants a broadcast that omits the last element in the model. How small the program gets depends on the machine's
/// load, so a test of `shrink.rs` sees to that.
#[test]
fn a_wrong_byte_is_found_and_the_program_is_shrunk() {
    let output = adversary(&["--wrong-model", "--seed", "1", "--seconds", "120"]);
    let found = text(&output);
    assert_eq!(output.status.code(), Some(1), "{found}");
    assert!(found.contains("wrong bytes"), "{found}");
    let seed = found
        .lines()
        .find_map(|line| line.strip_prefix("failed: seed "));
    let seed = seed.unwrap_or_else(|| panic!("no seed in {found}"));
    let mut arguments = vec!["--wrong-model", "--shrink", "--seed", seed];
    arguments.extend(["--shrink-seconds", "10"]);
    let shrunk = text(&adversary(&arguments));
    for words in ["shrunk in", "Broadcast", "wrong bytes"] {
        assert!(shrunk.contains(words), "no {words:?} in {shrunk}");
    }
}

#[test]
fn a_misspelled_option_is_refused() {
    let output = adversary(&["--sed", "1"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains("no option --sed"));
}
