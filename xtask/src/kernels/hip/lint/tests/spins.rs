//! Tests the rules of waiting loops.

use super::*;

const PLAIN: &str = "global_load_dword v2, v[0:1], off";
const ACQUIRE: &str = "buffer_inv sc0 sc1";
const NOTHING: &str = "s_nop 0";

/// A wait of one thread, then a block barrier.
fn wait(load: &'static str, acquire: &'static str) -> [&'static str; 7] {
    [
        load,
        DRAIN,
        "v_cmp_eq_u32_e32 vcc, v2, v3",
        "s_cbranch_vccz 1 @0",
        acquire,
        "s_barrier",
        "s_endpgm",
    ]
}

#[test]
fn catches_a_wait_that_does_not_invalidate() {
    assert_eq!(complaints(&wait(SPIN, ACQUIRE)), [""; 0]);
    one(complaints(&wait(SPIN, NOTHING)), "no invalidation");
    // Too late: other waves have continued after the barrier.
    let mut late = wait(SPIN, "s_barrier");
    late[5] = ACQUIRE;
    one(complaints(&late), "no invalidation");
    let old = |acquire| {
        let code = [
            "global_load_dword v2, v[0:1], off glc",
            DRAIN,
            "v_cmp_eq_u32_e32 vcc, v2, v3",
            "s_cbranch_vccz 1 @0",
            "buffer_invl2",
            acquire,
            "s_endpgm",
        ];
        complaints_of("kernel", "gfx90a", &code, &[])
    };
    assert_eq!(old("buffer_wbinvl1_vol"), [""; 0]);
    one(old(NOTHING), "no invalidation");
}

#[test]
fn packets_carry_their_flags_but_words_do_not() {
    let half = "global_load_dwordx2 v[2:3], v[0:1], off sc0 sc1";
    let packets = |load| complaints_of("symmem_move_lamport", "gfx942", &wait(load, NOTHING), &[]);
    let about = |found: Vec<String>| -> Vec<String> {
        found
            .into_iter()
            .filter(|each| each.contains("invalidation"))
            .collect()
    };
    assert_eq!(about(packets(half)), [""; 0]);
    one(about(packets(SPIN)), "no invalidation");
}

#[test]
fn an_invalidation_on_one_of_two_paths_is_not_enough() {
    let code = |acquire| {
        [
            SPIN,
            DRAIN,
            "v_cmp_eq_u32_e32 vcc, v2, v3",
            "s_cbranch_vccz 1 @0",
            "s_cbranch_scc1 1 @7",
            ACQUIRE,
            "s_branch 1 @8",
            acquire,
            "s_barrier",
            "s_endpgm",
        ]
    };
    assert_eq!(complaints(&code(ACQUIRE)), [""; 0]);
    one(complaints(&code(NOTHING)), "no invalidation");
}

#[test]
fn an_ordinary_load_before_the_invalidation_is_caught() {
    let mut code = wait(SPIN, "global_load_dword v4, v[6:7], off");
    code[5] = ACQUIRE;
    one(complaints(&code), "no invalidation");
}

#[test]
fn a_wait_that_gives_up_needs_no_invalidation() {
    // The lanes that have waited with success invalidate; if there are none, the branch skips it.
    let code = |clock| {
        [
            SPIN,
            DRAIN,
            "v_cmp_eq_u32_e64 s[4:5], v2, v3",
            "s_and_b64 vcc, exec, s[4:5]",
            "s_cbranch_vccnz 1 @8",
            clock,
            "s_cmp_lt_u32 s6, s8",
            "s_cbranch_scc1 1 @0",
            "s_and_saveexec_b64 s[6:7], s[4:5]",
            "s_cbranch_execz 1 @11",
            ACQUIRE,
            "s_or_b64 exec, exec, s[6:7]",
            "s_barrier",
            "s_endpgm",
        ]
    };
    assert_eq!(complaints(&code("s_memrealtime s[6:7]")), [""; 0]);
    let mut always = code("s_memrealtime s[6:7]");
    (always[8], always[9]) = (NOTHING, "s_branch 1 @12");
    one(complaints(&always), "no invalidation");
}

#[test]
fn a_spin_on_a_plain_load_is_caught() {
    one(complaints(&wait(PLAIN, ACQUIRE)), "below system scope");
    let spin = |load: &str, compare: &[&str]| {
        let code = [&[load, DRAIN], compare, &[ACQUIRE, "s_endpgm"]].concat();
        complaints(&code)
    };
    for (load, compare) in [
        // By one lane's value, of a word of 32 bits or of 64.
        (
            "global_load_dword v2, v4, s[2:3]",
            &[
                "v_readfirstlane_b32 s4, v2",
                "s_cmp_lg_u32 s4, s5",
                "s_cbranch_scc1 1 @0",
            ][..],
        ),
        (
            "global_load_dwordx2 v[2:3], v[0:1], off",
            &[
                "v_cmp_ne_u64_e32 vcc, v[2:3], v[4:5]",
                "s_cbranch_vccnz 1 @0",
            ],
        ),
        // By a mask of lanes that have not seen it yet.
        (
            "global_load_dword v2, v[0:1], off",
            &[
                "v_cmp_eq_u32_e32 vcc, v2, v3",
                "s_or_b64 s[2:3], vcc, s[2:3]",
                "s_andn2_b64 exec, exec, s[2:3]",
                "s_cbranch_execnz 1 @0",
            ],
        ),
        // By a constant that a branch on the value chooses.
        (
            "global_load_dword v2, v[0:1], off",
            &[
                "v_cmp_eq_u32_e32 vcc, v2, v3",
                "s_mov_b64 s[2:3], -1",
                "s_cbranch_vccz 1 @6",
                "s_mov_b64 s[2:3], 0",
                "s_and_b64 vcc, exec, s[2:3]",
                "s_cbranch_vccnz 1 @0",
            ],
        ),
    ] {
        one(spin(load, compare), "below system scope");
        assert_eq!(spin(&format!("{load} sc0 sc1"), compare), [""; 0], "{load}");
    }
    let nontemporal = |load| {
        let mut code = wait(load, "buffer_wbinvl1_vol");
        code[5] = NOTHING;
        let code = [&code[..4], &["buffer_invl2"], &code[4..]].concat();
        complaints_of("kernel", "gfx90a", &code, &[])
    };
    assert_eq!(
        nontemporal("global_load_dword v2, v[0:1], off glc"),
        [""; 0]
    );
    one(
        nontemporal("global_load_dword v2, v[0:1], off glc slc"),
        "below system scope",
    );
}

#[test]
fn loops_over_data_are_no_spins() {
    // It ends at a value, but reads another address in each turn.
    let search = [
        PLAIN,
        DRAIN,
        "v_add_co_u32_e32 v0, vcc, 4, v0",
        "v_cmp_eq_u32_e32 vcc, v2, v3",
        "s_cbranch_vccz 1 @0",
        "s_endpgm",
    ];
    assert_eq!(complaints(&search), [""; 0]);
    // It reads the same address, but ends at a count.
    let count = [
        PLAIN,
        DRAIN,
        "s_add_i32 s4, s4, 1",
        "s_cmp_lt_u32 s4, s5",
        "s_cbranch_scc1 1 @0",
        "s_endpgm",
    ];
    assert_eq!(complaints(&count), [""; 0]);
}

#[test]
fn a_packet_of_which_only_one_half_is_waited_for_is_caught() {
    let receive = |second: &'static str| {
        let code = [
            "global_load_dwordx2 v[2:3], v[0:1], off sc0 sc1",
            "global_load_dwordx2 v[4:5], v[0:1], off offset:8 sc0 sc1",
            DRAIN,
            "v_cmp_eq_u32_e32 vcc, v3, v6",
            second,
            "s_and_b64 vcc, vcc, s[2:3]",
            "s_cbranch_vccz 1 @0",
            "s_endpgm",
        ];
        complaints_of("symmem_latency_packet", "gfx942", &code, &[])
            .into_iter()
            .filter(|each| each.contains("half"))
            .collect::<Vec<_>>()
    };
    assert_eq!(receive("v_cmp_eq_u32_e64 s[2:3], v5, v6"), [""; 0]);
    let found = receive("v_cmp_eq_u32_e64 s[2:3], v3, v6");
    assert!(
        found.len() == 1 && found[0].contains("offset:8"),
        "the second half: {found:?}"
    );
}
