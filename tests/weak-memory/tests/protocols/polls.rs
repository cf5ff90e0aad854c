//! Faults in polls: what is polled short of the system may never be seen.

use symmem_weak_memory::operation::Operation;
use symmem_weak_memory::program::Instruction;

use crate::scenarios::Scenario;
use crate::{PACKETS, ROWS, STEPS, WORDS, finds_changed};

/// Returns a load for the system as an ordinary load.
fn short_of_the_system(code: &[Instruction], index: usize) -> Option<Operation> {
    let mut operation = code[index].operation.clone();
    let Operation::Load { modifiers, .. } = &mut operation else {
        return None;
    };
    let polls = modifiers.sc1 || modifiers.glc;
    (modifiers.sc0, modifiers.sc1, modifiers.glc) = (false, false, false);
    polls.then_some(operation)
}

fn finds_short(scenario: &Scenario, kernel: &str, memory: &str) {
    finds_changed(scenario, kernel, short_of_the_system, &[memory]);
}

#[test]
fn rows_whose_packets_are_polled_short_of_the_system_are_found() {
    finds_short(ROWS, "symmem_reduce_norm_f32", "inbox");
}

#[test]
fn words_that_are_polled_short_of_the_system_are_found() {
    finds_short(WORDS, "symmem_word_wait", "words");
}

#[test]
fn a_step_whose_signal_is_polled_short_of_the_system_is_found() {
    finds_short(STEPS, "symmem_step", "signals");
}

#[test]
fn round_trips_whose_packets_are_polled_short_of_the_system_are_found() {
    finds_short(PACKETS, "symmem_latency_packet", "inbox");
}
