//! The generator, the slices, and what makes a run fail.

use super::equivalent::parse;
use super::*;
use generate::mutants;

const HEADER: &str = "\
// arch::release_wave() in a comment is none.
SYMMEM_DEVICE void publish(uint32* word, uint32 value) {
  arch::release_wave();
  // Between them.
  arch::block_barrier();
  if (arch::thread_index() == 0) arch::publish_flag(word, value);
}

SYMMEM_DEVICE bool wait(const uint32* word, uint32 value) {
  return arch::block_all(waiter_.until_reached(word, value, kind));
}
";

fn names(text: &str) -> Vec<String> {
    let all = mutants("include/symmem/small.h", text);
    all.iter()
        .map(|mutant| {
            let name = mutant.to_string();
            name.strip_prefix("include/symmem/small.h:")
                .unwrap_or(&name)
                .to_owned()
        })
        .collect()
}

#[test]
fn every_fence_barrier_publication_and_wait_is_dropped_weakened_or_moved() {
    assert_eq!(
        names(HEADER),
        [
            "3:swap (publish): `arch::release_wave(); // Between them. arch::block_barrier();` \
             -> `arch::block_barrier(); arch::release_wave();`",
            "3:drop (publish): `arch::release_wave()` -> `static_cast<void>(0)`",
            "5:drop (publish): `arch::block_barrier()` -> `static_cast<void>(0)`",
            "5:weaken (publish): `block_barrier` -> `release_wave`",
            "5:weaken (publish): `block_barrier` -> `warp_barrier`",
            "6:drop (publish): `arch::publish_flag(word, value)` -> `static_cast<void>(0)`",
            "6:weaken (publish): `publish_flag` -> `store`",
            "6:weaken (publish): `publish_flag` -> `store_relaxed`",
            "10:no vote (wait): `arch::block_all(waiter_.until_reached(word, value, kind))` \
             -> `(waiter_.until_reached(word, value, kind))`",
            "10:no wait (wait): `waiter_.until_reached(word, value, kind)` -> `true`",
            "10:one less (wait): `value` -> `(value) - 1`",
        ]
    );
}

#[test]
fn faults_in_order_alone_are_told_from_others() {
    let all = mutants("include/symmem/small.h", HEADER);
    let only_order: Vec<&str> = all
        .iter()
        .filter(|mutant| mutant.changes_only_order("gfx942"))
        .map(|mutant| mutant.operator)
        .collect();
    assert_eq!(only_order, ["swap", "drop", "drop"]);
    let store = mutants("file", "SYMMEM_DEVICE void f() { store_relaxed(a, b); }\n");
    let plain = store.iter().find(|each| each.after == "store").unwrap();
    assert!(plain.changes_only_order("gfx90a"));
    assert!(!plain.changes_only_order("gfx942"), "it loses its scope");
}

#[test]
fn no_two_mutants_have_the_same_name() {
    let text = "SYMMEM_DEVICE void f() {\n  store_relaxed(a, b);\n  store_relaxed(c, d);\n  store_relaxed(c, d);\n}\n";
    let all = mutants("file", text);
    let mut names: Vec<String> = all.iter().map(Mutant::name).collect();
    names.sort();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count, "{names:?}");
}

#[test]
fn scopes_orders_and_halves_are_weakened() {
    let scopes = names(
        "SYMMEM_DEVICE void release() { __builtin_amdgcn_fence(__ATOMIC_RELEASE, \"\"); }\n\
         SYMMEM_DEVICE bool arrived() { if (flag_in(halves[0]) == a && flag_in(halves[1]) == b) missing = 0; }\n\
         SYMMEM_DEVICE void drain() { asm volatile(\"s_waitcnt vmcnt(0)\" ::: \"memory\"); }\n",
    );
    let has = |part: &str| scopes.iter().filter(|each| each.contains(part)).count();
    assert_eq!(has("`\"\"` -> `\"agent\"`"), 1);
    assert_eq!(has("`\"\"` -> `\"workgroup\"`"), 1);
    assert_eq!(has("`__ATOMIC_RELEASE` -> `__ATOMIC_ACQUIRE`"), 1);
    assert_eq!(
        has(":half (arrived): `&& flag_in(halves[1]) == b` -> ``"),
        1
    );
    assert_eq!(has("`vmcnt(0)` -> `vmcnt(1)`"), 1);
    assert_eq!(has(":no clobber (drain)"), 1);
    assert_eq!(has(":drop"), 2);
}

#[test]
fn a_mutant_differs_from_its_source_in_one_place() {
    let all = mutants("include/symmem/small.h", HEADER);
    let dropped = all
        .iter()
        .find(|mutant| mutant.operator == "drop" && mutant.line == 5);
    let changed = dropped.unwrap().apply(HEADER);
    assert_eq!(
        changed,
        HEADER.replace("arch::block_barrier();", "static_cast<void>(0);")
    );
}

#[test]
fn definitions_and_comparisons_are_no_uses() {
    let none = "SYMMEM_DEVICE void block_barrier();\n  if (tells != Tells::stored) return;\n";
    assert_eq!(names(none), [""; 0]);
}

#[test]
fn a_slice_has_few_kernels_of_a_module() {
    let slice = |name: &str| SLICES.iter().find(|slice| slice.name == name).unwrap();
    let source = |name: &str| {
        let slice = slice(name);
        slice.source(&slices::read(&slice.entry()).unwrap())
    };
    let exchange = source("collective/exchange");
    assert!(exchange.contains("symmem_exchange("));
    assert!(!exchange.contains("symmem_swap("));
    assert!(!exchange.contains("symmem/swap.h"));
    assert!(source("reduce").contains("\nSYMMEM_ENTRY(u32)\n"));
    let push = source("reduce_push");
    assert!(push.contains("\nSYMMEM_ENTRY(f32)\n") && !push.contains("\nSYMMEM_ENTRY(f16)\n"));
    assert!(source("reduce_lamport").contains("SYMMEM_ENTRY(pair1_f32"));
}

#[test]
fn every_module_has_a_slice() {
    for module in crate::kernels::hip::compile::MODULES {
        assert!(
            SLICES.iter().any(|slice| slice.module == module),
            "{module}"
        );
    }
}

#[test]
fn a_function_that_no_kernel_of_a_slice_reaches_has_no_case_there() {
    let base = SLICES[0].parts().unwrap();
    assert_eq!(SLICES[0].name, "base");
    assert!(base.has("include/symmem/signal.h", "give_signal"));
    assert!(base.has("include/symmem/arch_hip.h", "fetch_add"));
    assert!(!base.has("include/symmem/arch_hip.h", "fetch_set"));
    assert!(!base.has("include/symmem/group.h", "barrier"));
}

/// A case of the first mutant of [`HEADER`].
fn planted(verdict: Verdict, listed: &[Equivalent]) -> Result<()> {
    let all = mutants("include/symmem/small.h", HEADER);
    let case = Case {
        mutant: &all[1],
        slice: &SLICES[0],
        target: TARGETS[0],
    };
    let judgement = Judgement {
        verdict,
        what: String::new(),
        seconds: 0.0,
    };
    super::verdict(complaints(listed, &[(&case, &judgement)]))
}

fn proved() -> Vec<Equivalent> {
    parse(
        "[[equivalent]]\nfile = \"include/symmem/small.h\"\nfunction = \"publish\"\noperator = \"drop\"\n\
         text = \"arch::release_wave();\"\nslices = [\"base\"]\nproof = \"planted\"\n",
    )
    .unwrap()
}

#[test]
fn a_survivor_without_a_proof_fails_the_run() {
    let error = planted(Verdict::Survived, &[]).unwrap_err().to_string();
    assert!(error.contains("survives and is not listed"), "{error}");
    planted(Verdict::Survived, &proved()).unwrap();
    planted(Verdict::Lint, &[]).unwrap();
}

#[test]
fn a_refuted_proof_fails_the_run() {
    let error = planted(Verdict::Interpreter, &proved()).unwrap_err();
    assert!(error.to_string().contains("is caught"), "{error}");
}

#[test]
fn a_survivor_that_is_known_to_be_missed_needs_no_proof_and_is_not_proved() {
    let mut known = proved();
    known[0].proof.clear();
    known[0].missing = "planted".to_owned();
    planted(Verdict::Survived, &known).unwrap();
    planted(Verdict::Lint, &known).unwrap();
    assert!(!known[0].is_proved());
    let bare = "[[equivalent]]\nfile = \"\"\nfunction = \"\"\noperator = \"\"\ntext = \"\"\n";
    assert!(parse(bare).is_err());
}

#[test]
fn a_proof_of_a_mutant_that_does_not_exist_fails_the_run() {
    let all = mutants("include/symmem/small.h", HEADER);
    assert_eq!(unknown(&proved(), &all), [""; 0]);
    assert_eq!(unknown(&proved(), &all[2..]).len(), 1);
}

#[test]
fn every_listed_proof_names_a_mutant_of_the_sources() {
    let all = all_mutants(&all_parts().unwrap()).unwrap();
    assert_eq!(unknown(&equivalent::read().unwrap(), &all), [""; 0]);
}

#[test]
fn a_sample_is_drawn_by_its_seed() {
    let drawn = |seed| {
        let mut list: Vec<u32> = (0..1000).collect();
        draw(&mut list, 40, seed);
        list
    };
    assert_eq!(drawn(1).len(), 40);
    assert_eq!(drawn(1), drawn(1));
    assert_ne!(drawn(1), drawn(2));
}
