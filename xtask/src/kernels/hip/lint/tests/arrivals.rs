//! Tests the rules of what one thread does for a block.

use super::*;

const ARRIVAL: &str = "global_atomic_add v1, v6, v7, s[8:9] sc0 sc1";
const ACQUIRE: &str = "buffer_inv sc0 sc1";

/// The last of several blocks publishes: stores, a barrier, an arrival of one thread, and the flag.
const SIGNAL: [&str; 14] = [
    STORE,
    WRITE_BACK,
    DRAIN,
    "s_barrier",
    WRITE_BACK,
    DRAIN,
    ARRIVAL,
    DRAIN,
    "v_readfirstlane_b32 s4, v1",
    ACQUIRE,
    WRITE_BACK,
    DRAIN,
    FLAG,
    "s_endpgm",
];

fn signal_without(index: usize) -> Vec<String> {
    let mut code = SIGNAL;
    code[index] = "s_nop 0";
    complaints_of("kernel", "gfx942", &code, &[12 * 8])
}

#[test]
fn a_signal_by_the_last_block_passes() {
    assert_eq!(
        complaints_of("kernel", "gfx942", &SIGNAL, &[12 * 8]),
        [""; 0]
    );
}

#[test]
fn a_flag_for_a_block_without_its_barrier_is_caught() {
    let publishes = |name, barrier, target| {
        let code = [
            "global_store_dwordx4 v[0:1], v[2:5], off",
            WRITE_BACK,
            DRAIN,
            barrier,
            WRITE_BACK,
            DRAIN,
            if target == "gfx90a" {
                "global_store_dword v[0:1], v2, off"
            } else {
                FLAG
            },
            "s_endpgm",
        ];
        complaints_of(name, target, &code, &[6 * 8])
            .into_iter()
            .filter(|each| each.contains("block barrier"))
            .collect::<Vec<_>>()
    };
    for target in ["gfx90a", "gfx942", "gfx950"] {
        assert_eq!(publishes("kernel", "s_barrier", target), [""; 0]);
        one(
            publishes("kernel", "s_nop 0", target),
            "without a block barrier",
        );
        // There a wave publishes what it has stored itself.
        assert_eq!(publishes("symmem_move_pieces", "s_nop 0", target), [""; 0]);
    }
}

#[test]
fn an_arrival_without_the_blocks_barrier_is_caught() {
    let found = signal_without(3);
    assert!(
        found
            .iter()
            .any(|each| each.contains("an arrival for a block")),
        "{found:?}"
    );
}

#[test]
fn an_arrival_without_a_write_back_is_caught() {
    one(signal_without(4), "an arrival without a write-back");
}

#[test]
fn an_arrival_that_is_not_waited_for_is_caught() {
    let found = signal_without(7);
    assert!(
        found
            .iter()
            .any(|each| each.contains("before it is waited for")),
        "{found:?}"
    );
}

#[test]
fn an_arrival_without_an_invalidation_is_caught() {
    one(signal_without(9), "no invalidation behind an arrival");
}
