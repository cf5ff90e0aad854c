//! Tests each rule with instructions that break it and with others that do not.

use super::super::isa;
use super::*;

/// Returns a function of these instructions, 8 bytes each, from address 0 on. `@` precedes the index of a branch's
/// target.
fn function(name: &str, code: &[&str]) -> Vec<Function> {
    let mut text = format!("0000000000000000 <{name}>:\n");
    for (index, line) in code.iter().enumerate() {
        let (code, target) = line.split_once('@').unwrap_or((line, ""));
        let target = target.parse::<usize>().map_or(String::new(), |target| {
            format!(" <{name}+{:#x}>", target * 8)
        });
        text += &format!("\t{code} // {:012X}: BF800000{target}\n", index * 8);
    }
    isa::parse(&text)
}

pub(super) fn complaints_of(
    name: &str,
    target: &str,
    code: &[&str],
    publications: &[u64],
) -> Vec<String> {
    lint("module", target, &function(name, code), publications)
}

fn complaints(code: &[&str]) -> Vec<String> {
    complaints_of("kernel", "gfx942", code, &[])
}

#[track_caller]
fn one(found: Vec<String>, word: &str) {
    assert!(
        found.len() == 1 && found[0].contains(word),
        "expected one complaint of {word:?}: {found:?}"
    );
}

const STORE: &str = "global_store_dwordx4 v[0:1], v[2:5], off";
const FLAG: &str = "global_store_dword v[0:1], v2, off sc0 sc1";
const WRITE_BACK: &str = "buffer_wbl2 sc0 sc1";
const DRAIN: &str = "s_waitcnt vmcnt(0)";
const SPIN: &str = "global_load_dword v2, v[0:1], off sc0 sc1";

/// A put: stores, each wave's release, a barrier, and one wave's publication.
const PUT: [&str; 10] = [
    STORE,
    WRITE_BACK,
    DRAIN,
    "s_barrier",
    WRITE_BACK,
    DRAIN,
    "v_mov_b32_e32 v2, 1",
    FLAG,
    DRAIN,
    "s_endpgm",
];
const PUBLISHED: [u64; 1] = [6 * 8];

fn put_without(index: usize) -> Vec<String> {
    let mut code = PUT;
    code[index] = "s_nop 0";
    complaints_of("kernel", "gfx942", &code, &PUBLISHED)
}

#[test]
fn a_put_and_its_signal_pass() {
    assert_eq!(complaints_of("kernel", "gfx942", &PUT, &PUBLISHED), [""; 0]);
}

#[test]
fn r1_catches_stores_under_way_at_a_block_barrier() {
    let without_release: Vec<_> = [&PUT[..1], &PUT[3..]].concat();
    one(complaints(&without_release), "R1");
    // A store on one of two paths is enough.
    one(
        complaints(&[STORE, "s_cbranch_vccz 1 @3", DRAIN, "s_barrier", "s_endpgm"]),
        "R1",
    );
    one(
        complaints(&[
            "global_atomic_add v[0:1], v2, off sc1",
            "s_barrier",
            "s_endpgm",
        ]),
        "R1",
    );
}

#[test]
fn r2_catches_a_write_back_that_is_not_waited_for() {
    let found = put_without(5);
    assert!(found.iter().any(|each| each.contains("R2")), "{found:?}");
    one(complaints(&[WRITE_BACK, FLAG, DRAIN, "s_endpgm"]), "R2");
    one(
        complaints(&[WRITE_BACK, "s_waitcnt vmcnt(1)", FLAG, DRAIN, "s_endpgm"]),
        "R2",
    );
    one(
        complaints_of(
            "kernel",
            "gfx90a",
            &[
                "buffer_wbl2",
                "global_store_dword v[0:1], v2, off",
                DRAIN,
                "s_endpgm",
            ],
            &[],
        ),
        "R2",
    );
}

#[test]
fn catches_a_publication_that_was_weakened() {
    one(put_without(4), "without a write-back");
    one(put_without(7), "no store of a flag");
    let mut plain = PUT;
    plain[7] = "global_store_dword v[0:1], v2, off";
    one(
        complaints_of("kernel", "gfx942", &plain, &PUBLISHED),
        "no store of a flag",
    );
    // The write-back does not cover a store between it and the flag.
    let mut late = PUT;
    late[5] = STORE;
    let found = complaints_of("kernel", "gfx942", &late, &PUBLISHED);
    assert!(
        found
            .iter()
            .any(|each| each.contains("without a write-back")),
        "{found:?}"
    );
}

#[test]
fn catches_a_publication_that_is_gone() {
    one(
        complaints_of("symmem_copy_vector", "gfx942", &COPY, &[]),
        "fewer flags",
    );
}

const COPY: [&str; 5] = [
    "global_load_dwordx4 v[2:5], v[0:1], off nt",
    DRAIN,
    "global_store_dwordx4 v[0:1], v[2:5], off nt",
    "s_cbranch_scc1 1 @0",
    "s_endpgm",
];

#[test]
fn catches_loops_that_move_less_than_16_bytes() {
    let complaints = |change: fn(&mut [&str; 5])| {
        let mut code = COPY;
        change(&mut code);
        complaints_of("symmem_reduce_f32", "gfx942", &code, &[])
            .into_iter()
            .filter(|each| each.contains("16 bytes"))
            .collect::<Vec<_>>()
    };
    assert_eq!(complaints(|_| {}), [""; 0]);
    one(
        complaints(|code| code[0] = "global_load_dwordx2 v[2:3], v[0:1], off nt"),
        "no loop loads",
    );
    one(
        complaints(|code| code[2] = "global_store_dword v[0:1], v2, off nt"),
        "no loop stores",
    );
    assert_eq!(
        complaints(|code| code[3] = "s_nop 0").len(),
        2,
        "once is no loop"
    );
}

#[test]
fn catches_products_without_matrix_instructions() {
    let complaints_on = |target, name, instruction, branch| {
        let code = [instruction, branch, "s_endpgm"];
        complaints_of(name, target, &code, &[])
            .into_iter()
            .filter(|each| each.contains("matrix instruction"))
            .collect::<Vec<_>>()
    };
    let complaints = |name, instruction, branch| complaints_on("gfx942", name, instruction, branch);
    let (product, matrix, again) = (
        "symmem_gathered_gemm_f16_rows_256x256",
        "v_mfma_f32_16x16x16_f16 v[62:65], v[128:129], v[132:133], v[62:65]",
        "s_cbranch_scc1 1 @0",
    );
    assert_eq!(complaints(product, matrix, again), [""; 0]);
    one(
        complaints(product, "v_fmac_f32_e32 v1, v2, v3", again),
        "no loop",
    );
    one(complaints(product, matrix, "s_nop 0"), "no loop");
    one(complaints_on("gfx950", product, matrix, again), "no loop");
    let twice = "v_mfma_f32_16x16x32_f16 v[62:65], v[128:131], v[132:135], v[62:65]";
    assert_eq!(complaints_on("gfx950", product, twice, again), [""; 0]);
    assert_eq!(complaints("symmem_move", "s_nop 0", again), [""; 0]);
    let of_f8 = "symmem_gathered_gemm_f8_e4m3_columns_256x256";
    let on_f8 = "v_mfma_f32_16x16x32_fp8_fp8 v[62:65], v[128:129], v[132:133], v[62:65]";
    assert_eq!(complaints(of_f8, on_f8, again), [""; 0]);
    one(complaints(of_f8, matrix, again), "no loop");
}

#[test]
fn catches_accesses_below_system_scope() {
    one(
        complaints(&["global_load_dword v2, v[0:1], off sc1", "s_endpgm"]),
        "flag below system scope",
    );
    one(
        complaints(&["global_store_dword v[0:1], v2, off sc1", "s_endpgm"]),
        "flag below system scope",
    );
    one(
        complaints(&["global_atomic_add v[0:1], v2, off", "s_endpgm"]),
        "atomic below",
    );
    one(
        complaints(&["buffer_wbl2 sc1", DRAIN, "s_endpgm"]),
        "does not reach peers",
    );
    one(
        complaints(&["buffer_inv sc1", "s_endpgm"]),
        "leaves peers' data",
    );
    one(
        complaints_of(
            "kernel",
            "gfx90a",
            &["s_nop 0", "buffer_wbinvl1_vol", "s_endpgm"],
            &[],
        ),
        "leaves the L2",
    );
    assert_eq!(
        complaints_of(
            "kernel",
            "gfx90a",
            &["buffer_invl2", "buffer_wbinvl1_vol", "s_endpgm"],
            &[]
        ),
        [""; 0]
    );
}

#[test]
fn catches_scratch_memory_flat_accesses_and_calls() {
    one(
        complaints(&["scratch_load_dword v1, off, s0", "s_endpgm"]),
        "scratch memory",
    );
    one(
        complaints(&["buffer_store_dword v1, off, s[0:3], 0 offset:4", "s_endpgm"]),
        "scratch memory",
    );
    one(
        complaints(&["flat_load_dword v1, v[2:3]", "s_endpgm"]),
        "flat access",
    );
    one(
        complaints(&["s_swappc_b64 s[30:31], s[4:5]", "s_endpgm"]),
        "cannot follow",
    );
    one(complaints(&["s_branch 7", "s_endpgm"]), "branch out of");
}

#[test]
fn catches_a_kernel_of_which_nothing_was_read() {
    let functions = function("kernel", &["s_endpgm"]);
    let unread = |kernels: &[&str]| unread("module", kernels.iter().copied(), &functions);
    assert_eq!(unread(&["kernel"]), [""; 0]);
    one(unread(&["kernel", "other"]), "other: no machine code");
    // A name without instructions, as if the disassembler had changed its format.
    let functions = function("kernel", &[]);
    one(
        super::unread("module", ["kernel"].into_iter(), &functions),
        "no machine code",
    );
}

mod arrivals;
mod sends;
mod spins;
