//! Tests the count of waits within sends.

use super::*;

/// Returns the waits that the rule finds.
fn waits(name: &str, code: &[&str]) -> Vec<usize> {
    let functions = function(name, code);
    let code = Code {
        function: &functions[0],
        successors: functions[0].successors(),
        single_cache_bits: false,
        matrix_instruction: matrix_instruction("gfx942", name),
    };
    let waits = code.sends();
    waits.into_iter().map(|(index, _)| index).collect()
}

/// A send to two peers: the address of the second is read after the packet to the first has left.
const SEND: [&str; 8] = [
    "global_store_dwordx2 v[0:1], v[2:3], off sc0 sc1",
    "global_store_dwordx2 v[0:1], v[4:5], off offset:8 sc0 sc1",
    "global_load_dwordx2 v[0:1], v[6:7], off offset:40",
    DRAIN,
    "global_store_dwordx2 v[0:1], v[2:3], off sc0 sc1",
    "global_store_dwordx2 v[0:1], v[4:5], off offset:8 sc0 sc1",
    "s_cbranch_scc1 1 @0",
    "s_endpgm",
];

#[test]
fn a_wait_between_packets_to_two_peers_is_caught() {
    for name in ["symmem_move_packets", "symmem_reduce_packets_f32"] {
        assert_eq!(waits(name, &SEND), [3], "{name}");
    }
    assert_eq!(waits("symmem_move", &SEND), [0; 0]);
}

#[test]
fn a_wait_before_the_first_packet_of_a_send_passes() {
    let mut code = SEND;
    code.swap(0, 2);
    code.swap(1, 3);
    assert_eq!(waits("symmem_move_packets", &code), [0; 0]);
    // A scalar load leaves the stores under way.
    let mut code = SEND;
    (code[2], code[3]) = (
        "s_load_dwordx2 s[4:5], s[6:7], 0x28",
        "s_waitcnt lgkmcnt(0)",
    );
    assert_eq!(waits("symmem_move_packets", &code), [0; 0]);
}

#[test]
fn a_wait_behind_a_poll_or_in_a_loop_of_its_own_passes() {
    let mut code = SEND;
    code[2] = "global_load_dwordx2 v[8:9], v[6:7], off sc0 sc1";
    assert_eq!(waits("symmem_move_packets", &code), [0; 0]);
    // What is no whole unit is loaded byte by byte and sent in another loop.
    let mut code = SEND;
    code[6] = "s_cbranch_scc1 1 @2";
    assert_eq!(waits("symmem_move_packets", &code), [0; 0]);
}
