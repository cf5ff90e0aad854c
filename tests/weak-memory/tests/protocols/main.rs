//! The protocols of symmem's kernels for AMD GPUs hold under an adversary, and faults planted in the machine code are
//! found.

#[allow(dead_code, reason = "other test binaries sample in other ways too")]
#[path = "../../../support/amount.rs"]
mod amount;
mod arguments;
mod mutant;
mod polls;
mod scenarios;

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::OnceLock;

use scenarios::{Kernels, SCENARIOS, Scenario, covered, product};
use symmem_kernels_hip::Target;
use symmem_weak_memory::Error;
use symmem_weak_memory::operation::Operation;
use symmem_weak_memory::program::{self, Instruction};

/// Whether llvm-objdump is installed. Without it a test is skipped with a message, and fails in CI.
fn installed() -> bool {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    *INSTALLED.get_or_init(|| {
        let found = program::disassembler().is_some();
        assert!(
            found || std::env::var_os("CI").is_none(),
            "CI installs llvm-22"
        );
        if !found {
            // Write to stderr itself: the harness hides the output of tests that pass.
            let _ = writeln!(
                std::io::stderr(),
                "skipped: protocols under a weak memory model: no llvm-objdump"
            );
        }
        found
    })
}

/// Returns the schedules that a protocol runs under: a sample, or many with `SYMMEM_TESTS=all`. Of a GEMM a commit draws half as many.
fn seeds(scenario: &Scenario) -> std::ops::Range<u64> {
    if amount::amount() == amount::Amount::All {
        0..1000
    } else {
        amount::drawn(24, if scenario.is_gemm() { 6 } else { 3 })
    }
}

fn holds(scenario: &Scenario) {
    if !installed() {
        return;
    }
    for target in scenario.targets() {
        let kernels = Kernels::load(scenario, target).unwrap();
        for seed in seeds(scenario) {
            if let Err(error) = (scenario.run)(&kernels, seed) {
                panic!(
                    "{} on {}, seed {seed}: {error}",
                    scenario.name,
                    target.name()
                );
            }
        }
    }
}

macro_rules! protocols {
    ($($test:ident: $index:literal,)*) => {
        $(#[test]
        fn $test() {
            holds(&SCENARIOS[$index]);
        })*
    };
}

protocols! {
    a_put_with_a_signal_holds: 0,
    a_barrier_holds: 1,
    copies_between_barriers_hold: 2,
    a_two_shot_reduction_holds: 3,
    a_reduction_in_packets_holds: 4,
    an_exchange_holds: 5,
    a_pushed_reduction_holds: 6,
    a_product_of_what_is_gathered_holds: 7,
    a_sum_in_lamport_packets_holds: 8,
    a_move_in_pieces_holds: 9,
    a_move_in_lamport_packets_holds: 10,
    a_two_shot_sum_in_lamport_packets_holds: 11,
    lamport_packets_from_and_to_one_rank_hold: 12,
    rows_with_a_residual_in_lamport_packets_hold: 13,
    updates_of_words_and_waits_for_them_hold: 14,
    steps_between_copy_engines_hold: 15,
    round_trips_of_puts_with_signals_hold: 16,
    round_trips_of_packets_hold: 17,
    an_all_to_all_in_place_holds: 18,
    a_product_that_is_added_up_holds: 19,
    a_product_of_8_bit_floats_holds: 20,
}

/// `cargo xtask kernels cost` reads the clocks from the file that `SYMMEM_SHARED_CLOCKS` names. Without one, a commit draws a third
/// of the kernels.
#[test]
fn accesses_of_products_to_shared_memory_take_at_most_twice_their_clocks() {
    if !installed() {
        return;
    }
    let mut text = String::new();
    let mut slow = Vec::new();
    let gathered = [
        (PRODUCT, product::a_seed_of_each_kernel()),
        (&SCENARIOS[20], product::a_seed_of_each_kernel_of_f8()),
    ];
    let runs = gathered.iter().flat_map(|(scenario, seeds)| {
        let targets = scenario.targets();
        targets.map(move |target| (target, *scenario, seeds))
    });
    let path = std::env::var_os("SYMMEM_SHARED_CLOCKS");
    for (target, scenario, seeds) in runs {
        let kernels = Kernels::load(scenario, target).unwrap();
        let all = seeds.len() as u64;
        let drawn = match path {
            Some(_) => 0..all,
            None => amount::drawn(all, 3),
        };
        let drawn: Vec<_> = drawn.map(|at| seeds[at as usize]).collect();
        for (_, seed) in &drawn {
            (scenario.run)(&kernels, *seed).unwrap();
        }
        for ((kernel, offset), clocks) in kernels.shared_accesses.borrow().iter() {
            let (target, most, least) = (target.name(), clocks.most, clocks.least);
            let _ = writeln!(text, "{target} {kernel} {offset} {most} {least}");
            if kernel.contains("_gemm_") && most > 2 * least {
                slow.push(format!("{target} {kernel}+{offset:#x}: {most} for {least}"));
            }
        }
        for (kernel, _) in drawn {
            let line = format!("{} {kernel} ", target.name());
            assert!(text.contains(&line), "{line}: nothing was counted");
        }
    }
    if let Some(path) = path {
        std::fs::write(path, text).unwrap();
    }
    assert_eq!(slow, [""; 0]);
}

/// Returns what a removed instruction does. A wait for global memory still waits for scalar loads.
fn removed(operation: &Operation) -> Operation {
    match *operation {
        Operation::Wait { scalar, .. } => Operation::Wait {
            vector: None,
            scalar,
        },
        _ => Operation::Nothing,
    }
}

/// Asserts that a violation is reported if the instructions that `fault` selects are removed.
fn finds(
    scenario: &Scenario,
    kernel: &str,
    fault: fn(&[Instruction], usize) -> bool,
    words: &[&str],
) {
    finds_changed(
        scenario,
        kernel,
        |code, index| fault(code, index).then(|| removed(&code[index].operation)),
        words,
    );
}

/// Asserts that a planted fault is found on each target: some seed reports a violation with all `words`.
fn finds_changed(
    scenario: &Scenario,
    kernel: &str,
    fault: impl Fn(&[Instruction], usize) -> Option<Operation>,
    words: &[&str],
) {
    finds_on(&Target::ALL, scenario, kernel, fault, words);
}

/// The same on some targets.
fn finds_on(
    targets: &[Target],
    scenario: &Scenario,
    kernel: &str,
    fault: impl Fn(&[Instruction], usize) -> Option<Operation>,
    words: &[&str],
) {
    if !installed() {
        return;
    }
    for &target in targets {
        let mut kernels = Kernels::load(scenario, target).unwrap();
        let changed = kernels.plant(kernel, &fault);
        assert!(
            changed > 0,
            "{kernel} on {}: nothing to change",
            target.name()
        );
        let mut others = String::new();
        let found = (0..2000).any(|seed| match (scenario.run)(&kernels, seed) {
            Err(Error::Violation(what)) if words.iter().all(|word| what.contains(word)) => {
                println!("{kernel} on {}, seed {seed}: {what}", target.name());
                true
            }
            Err(other) => {
                // Another symptom of the same fault, such as a wrong result.
                let _ = writeln!(others, "seed {seed}: {other}");
                false
            }
            Ok(()) => false,
        });
        assert!(
            found,
            "{kernel} on {}: no {words:?}\n{others}",
            target.name()
        );
    }
}

fn is_write_back(code: &[Instruction], index: usize) -> bool {
    code[index].is("buffer_wbl2")
}

/// Selects the wait between a write-back and the flag (rule R2 of the lint).
fn is_wait_behind_write_back(code: &[Instruction], index: usize) -> bool {
    let waits = |each: &&Instruction| matches!(each.operation, Operation::Wait { .. });
    code[index].drains()
        && code[..index]
            .iter()
            .rev()
            .find(|each| !waits(each))
            .is_some_and(|before| before.is("buffer_wbl2"))
}

/// Selects each wave's release before the block's barrier (rule R1 of the lint).
fn is_release_before_barrier(code: &[Instruction], index: usize) -> bool {
    let orders = |each: &Instruction| each.is("buffer_wbl2") || each.drains();
    let ends = |each: &&Instruction| {
        let mnemonic = each.text.split(' ').next().unwrap_or_default();
        each.is("s_barrier") || mnemonic.starts_with("global_") || mnemonic.contains("branch")
    };
    orders(&code[index])
        && code[index..]
            .iter()
            .find(ends)
            .is_some_and(|end| end.is("s_barrier"))
}

fn is_invalidation(code: &[Instruction], index: usize) -> bool {
    ["buffer_inv", "buffer_invl2", "buffer_wbinvl1_vol"]
        .iter()
        .any(|mnemonic| code[index].is(mnemonic))
}

fn is_wait_for_loads(code: &[Instruction], index: usize) -> bool {
    matches!(
        code[index].operation,
        Operation::Wait {
            vector: Some(_),
            ..
        }
    )
}

const PUT: &Scenario = &SCENARIOS[0];
const MOVE: &Scenario = &SCENARIOS[2];
const REDUCE: &Scenario = &SCENARIOS[3];
const EXCHANGE: &Scenario = &SCENARIOS[5];
const PUSH: &Scenario = &SCENARIOS[6];
const PRODUCT: &Scenario = &SCENARIOS[7];
const SUMS: &Scenario = &SCENARIOS[19];
const PIECES: &Scenario = &SCENARIOS[9];
const ROWS: &Scenario = &SCENARIOS[13];
const WORDS: &Scenario = &SCENARIOS[14];
const STEPS: &Scenario = &SCENARIOS[15];
const SIGNALS: &Scenario = &SCENARIOS[16];
const PACKETS: &Scenario = &SCENARIOS[17];
const SWAP: &Scenario = &SCENARIOS[18];

#[test]
fn a_put_that_does_not_write_back_is_found() {
    finds(
        PUT,
        "symmem_copy_vector",
        is_write_back,
        &["inbox", "store", "not written back", "symmem_copy_vector+"],
    );
}

#[test]
fn a_put_whose_flag_overtakes_the_write_back_is_found() {
    finds(
        PUT,
        "symmem_copy_vector",
        is_wait_behind_write_back,
        &["inbox", "store", "symmem_copy_vector+"],
    );
}

#[test]
fn a_put_whose_waves_do_not_release_before_the_barrier_is_found() {
    finds(
        PUT,
        "symmem_copy_vector",
        is_release_before_barrier,
        &["inbox", "store", "symmem_copy_vector+"],
    );
}

#[test]
fn a_reduction_that_does_not_write_back_is_found() {
    finds(
        REDUCE,
        "symmem_reduce_u32",
        is_write_back,
        &["result", "not written back", "symmem_reduce_u32+"],
    );
}

#[test]
fn a_reduction_whose_flag_overtakes_the_write_back_is_found() {
    finds(
        REDUCE,
        "symmem_reduce_u32",
        is_wait_behind_write_back,
        &["result", "symmem_reduce_u32+"],
    );
}

#[test]
fn copies_without_an_invalidation_behind_the_wait_are_found() {
    finds(
        MOVE,
        "symmem_move",
        is_invalidation,
        &["data", "a cache has an older line", "symmem_move+"],
    );
}

#[test]
fn a_reduction_without_an_invalidation_behind_the_wait_is_found() {
    finds(
        REDUCE,
        "symmem_reduce_u32",
        is_invalidation,
        &["data", "a cache has an older line", "symmem_reduce_u32+"],
    );
}

#[test]
fn an_exchange_without_an_invalidation_behind_the_wait_is_found() {
    finds(
        EXCHANGE,
        "symmem_exchange",
        is_invalidation,
        &["data", "a cache has an older line", "symmem_exchange+"],
    );
}

/// Which of the two is found first is chance: the inbox if it is cached, or the results.
#[test]
fn a_pushed_reduction_that_does_not_write_back_is_found() {
    finds(
        PUSH,
        "symmem_reduce_push_f32",
        is_write_back,
        &["not written back", "symmem_reduce_push_f32+"],
    );
}

#[test]
fn a_pushed_reduction_without_an_invalidation_behind_the_wait_is_found() {
    finds(
        PUSH,
        "symmem_reduce_push_f32",
        is_invalidation,
        &[
            "inbox",
            "a cache has an older line",
            "symmem_reduce_push_f32+",
        ],
    );
}

/// On gfx90a an inbox must lie in uncached memory.
#[test]
fn a_move_in_pieces_that_does_not_write_back_is_found() {
    finds_on(
        &[Target::Gfx942, Target::Gfx950],
        PIECES,
        "symmem_move_pieces",
        |code, index| is_write_back(code, index).then(|| removed(&code[index].operation)),
        &["inbox", "not written back", "symmem_move_pieces+"],
    );
}

#[test]
fn a_move_in_pieces_without_an_invalidation_behind_the_wait_is_found() {
    finds(
        PIECES,
        "symmem_move_pieces",
        is_invalidation,
        &["inbox", "a cache has an older line", "symmem_move_pieces+"],
    );
}

#[test]
fn a_round_trip_whose_puts_do_not_write_back_is_found() {
    finds_on(
        &[Target::Gfx942, Target::Gfx950],
        SIGNALS,
        "symmem_latency_signal",
        |code, index| is_write_back(code, index).then(|| removed(&code[index].operation)),
        &["inbox", "not written back", "symmem_latency_signal+"],
    );
}

#[test]
fn a_round_trip_without_an_invalidation_behind_the_wait_is_found() {
    finds(
        SIGNALS,
        "symmem_latency_signal",
        is_invalidation,
        &["inbox", "a cache has an older line"],
    );
}

#[test]
fn a_swap_without_an_invalidation_behind_the_wait_is_found() {
    finds(
        SWAP,
        "symmem_swap",
        is_invalidation,
        &["data", "a cache has an older line", "symmem_swap+"],
    );
}

#[test]
fn a_swap_that_does_not_write_back_is_found() {
    finds(
        SWAP,
        "symmem_swap",
        is_write_back,
        &["data", "not written back", "symmem_swap+"],
    );
}

#[test]
fn a_barrier_that_does_not_write_back_what_earlier_kernels_stored_is_found() {
    if !installed() {
        return;
    }
    let barrier = &SCENARIOS[1];
    // On the other targets the end of a kernel writes it back.
    let mut kernels = Kernels::load(barrier, Target::Gfx90a).unwrap();
    let changed = kernels.plant("symmem_barrier", |code, index| {
        is_write_back(code, index).then(|| removed(&code[index].operation))
    });
    assert!(changed > 0, "no write-back");
    let is_found = |seed| {
        let found = (barrier.run)(&kernels, seed);
        found.is_err_and(|error| error.to_string().contains("not written back"))
    };
    assert!((0..24).any(is_found));
}

#[test]
fn a_result_of_a_word_that_is_stored_before_it_is_there_is_found() {
    finds(
        WORDS,
        "symmem_word_update",
        is_wait_for_loads,
        &["symmem_word_update+", "before its load was waited for"],
    );
}

#[test]
fn a_product_whose_movers_do_not_write_back_is_found() {
    finds(
        PRODUCT,
        "symmem_gathered_gemm_f16_rows_64x256",
        is_write_back,
        &["gathered", "symmem_gathered_gemm_f16_rows_64x256+"],
    );
}

#[test]
fn a_product_without_an_invalidation_behind_the_wait_is_found() {
    finds(
        PRODUCT,
        "symmem_gathered_gemm_f16_columns_64x256",
        is_invalidation,
        &[
            "gathered",
            "a cache has an older line",
            "symmem_gathered_gemm_f16_columns_64x256+",
        ],
    );
}

fn no_barrier(code: &[Instruction], index: usize) -> Option<Operation> {
    matches!(code[index].operation, Operation::Barrier).then_some(Operation::Nothing)
}

#[test]
fn a_product_without_barriers_around_its_stages_is_found() {
    finds_changed(
        PRODUCT,
        "symmem_gathered_gemm_f16_rows_64x256",
        no_barrier,
        &["shared memory", "races"],
    );
}

#[test]
fn a_sum_whose_parts_are_not_written_back_is_found() {
    finds(
        SUMS,
        "symmem_reduced_gemm_f16_rows_64x256",
        is_write_back,
        &["inbox", "not written back"],
    );
}

#[test]
fn a_sum_without_an_invalidation_behind_the_wait_is_found() {
    finds(
        SUMS,
        "symmem_reduced_gemm_bf16_columns_64x256",
        is_invalidation,
        &["inbox", "a cache has an older line"],
    );
}

#[test]
fn a_sum_that_is_told_of_before_all_waves_have_stored_it_is_found() {
    // The barrier between the stores of 16 bytes and the thread that writes back and publishes.
    let is_barrier = |one: &&Instruction| matches!(one.operation, Operation::Barrier);
    let stands_between = |code: &[Instruction], index: usize| {
        let mut before = code[..index]
            .iter()
            .rev()
            .take_while(|one| !is_barrier(one));
        let mut behind = code[index + 1..].iter().take_while(|one| !is_barrier(one));
        let publishes = before.any(|one| one.is("global_store_dwordx4"))
            && behind.any(|one| one.is("buffer_wbl2"));
        no_barrier(code, index).filter(|_| publishes)
    };
    finds_changed(
        SUMS,
        "symmem_reduced_gemm_f16_columns_256x64",
        stands_between,
        &["inbox", "sees the host's initial value"],
    );
}

#[test]
fn counters_stored_before_all_waves_have_loaded_them_are_found() {
    finds_on(
        &[Target::Gfx942, Target::Gfx950],
        &covered::SCENARIOS[5],
        "symmem_move_packets_few",
        no_barrier,
        &["slots", "races"],
    );
}

#[test]
fn a_value_used_before_it_is_loaded_is_found() {
    finds(
        PUT,
        "symmem_copy_vector",
        is_wait_for_loads,
        &["before its load was waited for"],
    );
}

#[test]
fn a_put_that_writes_back_short_of_the_system_is_found() {
    let short = |code: &[Instruction], index: usize| {
        matches!(code[index].operation, Operation::WriteBack { .. })
            .then_some(Operation::WriteBack { system: false })
    };
    finds_changed(
        PUT,
        "symmem_copy_vector",
        short,
        &["inbox", "not written back"],
    );
}

#[test]
fn a_flag_that_is_stored_plainly_is_found_where_it_is_polled() {
    let plain = |code: &[Instruction], index: usize| {
        let mut operation = code[index].operation.clone();
        let Operation::Store { modifiers, .. } = &mut operation else {
            return None;
        };
        let is_flag = modifiers.sc0 && modifiers.sc1;
        (modifiers.sc0, modifiers.sc1) = (false, false);
        is_flag.then_some(operation)
    };
    finds_on(
        &[Target::Gfx942, Target::Gfx950],
        PIECES,
        "symmem_move_pieces",
        plain,
        &["inbox", "polls", "plain store"],
    );
}

#[test]
fn an_operation_on_a_word_that_does_not_acquire_is_found() {
    finds(
        WORDS,
        "symmem_word_update",
        is_invalidation,
        &["without an invalidation behind an operation on a word"],
    );
}

#[test]
fn an_invalidation_that_leaves_the_level_2_is_found() {
    let leaves = |code: &[Instruction], index: usize| match code[index].operation {
        Operation::Invalidate {
            level1,
            level2: true,
        } => Some(Operation::Invalidate {
            level1,
            level2: false,
        }),
        _ => None,
    };
    finds_changed(
        MOVE,
        "symmem_move",
        leaves,
        &["data", "a cache has an older line"],
    );
}
