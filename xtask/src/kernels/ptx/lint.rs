//! `cargo xtask kernels lint` for PTX: rules that the sources keep and a compiler could break.
//!
//! - No load uses the non-coherent cache.
//! - Accesses that other devices may see have system scope. Exceptions carry a tag in the source; see [`ALLOWED`].
//! - A proxy fence stands between a generic access and a bulk copy of the same memory. A kernel's start counts as an
//!   acquire, since the stream's previous kernel may have been a wait.
//! - A kernel that waits for its launch's prerequisites accesses no global memory before, and waits on every path.
//!   Otherwise its successor could overtake the kernels that it did not wait for.
//! - A kernel lets its dependents start only after it has waited for its own prerequisites and after all threads of the
//!   block have ended their last wait for a peer. A dependent grid occupies multiprocessors from its start on, and until
//!   this grid ends: if that depended on a peer, a grid of another stream could lack the multiprocessors with which it
//!   would answer that peer. (The lint takes it that threads branch alike on the result of a vote.) Tagged as answered,
//!   they may start while threads wait, but after a wait for a peer: the sources prove that all peers' blocks are
//!   resident then.
//! - Warps come to the block's barriers whole: right after a barrier of the warp, and to the aligned form. Blocks whose
//!   warps came in parts went on without a thread that still polled; see `arch_ptx.h`.
//! - Bulk stores are complete, not only read, before a release and before the end.
//! - A flag that covers stores stands right behind a fence of the system.
//! - A flag that says only that a kernel has entered is stored without a fence, so the kernel has stored nothing before.
//! - A multicast access is strong and at system scope. A release raises flags at all members, after an alias proxy
//!   fence, since the members' own addresses access the same memory.
//! - No local memory, and none of the assembler's C75xx warnings (serialized asynchronous instructions).

use std::path::Path;

use super::compile::{MODULES, assemble};
use super::text::{self, Function, Item, Statement};
use super::waits::{self, Waits};
use crate::error::{Result, at};
use crate::kernels::family::Family;
use crate::kernels::{flow, manifest, verdict};
use crate::tools::{self, Scratch, side_by_side};

/// Tags in the sources, and the operations that a tag allows below system scope.
const ALLOWED: [(&str, &[&str]); 1] = [
    // A counter of one grid's blocks, which no other device sees (arch::arrive).
    ("arrivals", &["atom", "fence"]),
];

/// The tag of dependents that start once every peer's block has answered (arch::start_dependents_of_answered).
const ANSWERED: &str = "answered";

/// The tag of flags raised at all members that cover only stores to this device's memory, for which a release at device
/// scope is enough (arch::multicast_raise).
const OWN_MEMORY: &str = "own_memory";

/// The tag of flags that cover what was stored before (arch::publish_flag).
const PUBLISHED: &str = "published";

/// The tag of flags that cover only what earlier kernels stored (arch::publish_entered).
const ENTERED: &str = "entered";

/// Lints one file, or the committed artefacts.
pub fn run(file: Option<&Path>) -> Result<()> {
    let scratch = Scratch::new("kernels-lint")?;
    let mut files = Vec::new();
    if let Some(path) = file {
        files.push((path.to_owned(), None));
    } else {
        manifest::unpack(Family::Ptx, scratch.path())?;
        for module in &MODULES {
            let path = scratch.path().join(format!("{}.ptx", module.name));
            files.push((path, Some(module.cubins)));
        }
    }
    let mut found = Vec::new();
    let mut assemblies = Vec::new();
    for (path, architectures) in files {
        let text = at(&path, std::fs::read_to_string(&path))?;
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        found.extend(ptx(&name, &text));
        let own = [target(&text)];
        for architecture in architectures.unwrap_or(&own) {
            assemblies.push((path.clone(), name.clone(), architecture.to_string()));
        }
    }
    verdict(found)?;
    let assembler_path = tools::ptxas()?;
    let found = side_by_side(&assemblies, |(path, name, architecture)| {
        let cubin = scratch.path().join(format!("{name}.{architecture}.cubin"));
        let said = assemble(&assembler_path, path, architecture, &cubin)?;
        Ok(assembler(name, &said))
    })?;
    verdict(found.concat())?;
    println!("lint: nothing found");
    Ok(())
}

/// Returns the architecture of a PTX file, or 90 if it names none.
fn target(text: &str) -> &str {
    text.lines()
        .find_map(|line| line.trim().strip_prefix(".target sm_"))
        .and_then(|rest| rest.split(|c: char| !c.is_ascii_alphanumeric()).next())
        .unwrap_or("90")
}

/// Returns the violations in a module's PTX, one line each.
pub fn ptx(name: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for function in text::parse(text) {
        let waits = Waits::of(&function);
        let facts = flow::facts(
            function.items.len(),
            entry_facts(&function, &waits),
            |index, facts| {
                function.step(index, facts, |statement, facts| {
                    dependents_transfer(statement, waits.follow(index), transfer(statement, facts))
                })
            },
        );
        for (index, (item, facts)) in function.items.iter().zip(facts).enumerate() {
            let Item::Statement(statement) = item else {
                continue;
            };
            let before = &function.items[..index];
            let complaints = [
                scope(statement),
                whole_warps(statement, before.last()),
                published(statement, before),
                facts.and_then(|facts| order(statement, facts)),
                facts.and_then(|facts| dependents(statement, waits.at(index), facts)),
                facts.and_then(|facts| answered(statement, waits.precede(index), facts)),
            ];
            found.extend(
                complaints
                    .into_iter()
                    .flatten()
                    .map(|complaint| describe(name, &function, statement, complaint)),
            );
        }
    }
    found
}

fn describe(name: &str, function: &Function, statement: &Statement, complaint: &str) -> String {
    format!(
        "{name}:{} {}: {}: {complaint}",
        statement.line, function.name, statement.mnemonic
    )
}

/// Checks one instruction by itself.
fn scope(statement: &Statement) -> Option<&'static str> {
    let operation = statement.operation();
    if operation == "ld" && statement.has("nc") {
        return Some(
            "a load through the non-coherent cache may return what a peer has overwritten",
        );
    }
    if matches!(operation, "ld" | "st") && statement.has("local") {
        return Some("local memory: a spill, or an array that is not in registers");
    }
    if operation == "multimem" {
        return multicast(statement);
    }
    if statement.is_shared() || statement.has("sys") || allowed(statement) {
        return None;
    }
    match operation {
        "atom" | "red" => Some("an atomic below system scope; a peer may not see it"),
        "st" if is_strong(statement) => {
            Some("a flag is stored below system scope; a peer may not see it")
        }
        "ld" if is_strong(statement) => {
            Some("a flag is loaded below system scope; it may be stale")
        }
        "membar" => Some("a fence below system scope"),
        "fence" if !statement.has("proxy") && !statement.has("mbarrier_init") => {
            Some("a fence below system scope")
        }
        _ => None,
    }
}

/// Checks a barrier of a block's threads by the item in front of it.
fn whole_warps(statement: &Statement, before: Option<&Item>) -> Option<&'static str> {
    let is_barrier = matches!(statement.operation(), "barrier" | "bar")
        && ["sync", "red", "arrive"]
            .iter()
            .any(|kind| statement.has(kind))
        && !statement.has("warp")
        && !statement.has("cluster");
    let meets = |item: &Item| {
        matches!(item, Item::Statement(each) if each.mnemonic == "bar.warp.sync"
            && each.operands == "0xffffffff" && !each.predicated)
    };
    let is_aligned = statement.operation() == "bar" || statement.has("aligned");
    if !is_barrier || (is_aligned && !statement.predicated && before.is_some_and(meets)) {
        return None;
    }
    Some(
        "a warp may come to the barrier in parts: use the aligned form, right after bar.warp.sync 0xffffffff",
    )
}

/// Checks a flag that covers stores by the items in front of it: up to a fence of the system, there may be only
/// computations.
fn published(statement: &Statement, before: &[Item]) -> Option<&'static str> {
    if statement.tag.as_deref() != Some(PUBLISHED) {
        return None;
    }
    let last = before.iter().rev().find(|item| match item {
        Item::Label(_) => true,
        Item::Statement(each) => !is_computation(each),
    });
    let fenced = matches!(last, Some(Item::Statement(each)) if each.operation() == "fence"
        && each.has("acq_rel") && each.has("sys") && !each.predicated);
    (!fenced)
        .then_some("a flag that covers stores, and no fence of the system right in front of it")
}

/// Returns whether an instruction changes registers only, and goes to the next one.
fn is_computation(statement: &Statement) -> bool {
    let operation = statement.operation();
    !matches!(
        operation,
        "ld" | "st"
            | "atom"
            | "red"
            | "multimem"
            | "fence"
            | "membar"
            | "barrier"
            | "bar"
            | "bra"
            | "brx"
            | "call"
            | "ret"
            | "exit"
            | "trap"
            | "griddepcontrol"
            | "mbarrier"
    ) && !operation.starts_with("cp")
}

/// Checks one access to a multicast address by itself.
fn multicast(statement: &Statement) -> Option<&'static str> {
    let raises = statement.has("red");
    let tagged = raises && statement.tag.as_deref() == Some(OWN_MEMORY);
    if !is_strong(statement) {
        return Some("a multicast access without order and scope");
    }
    if !statement.has("sys") && !tagged {
        return Some("a multicast access below system scope, which reaches other devices");
    }
    if raises && !statement.has("release") {
        return Some("a flag is raised at all members without a release");
    }
    None
}

fn is_strong(statement: &Statement) -> bool {
    ["relaxed", "acquire", "release", "volatile", "mmio"]
        .iter()
        .any(|order| statement.has(order))
}

fn allowed(statement: &Statement) -> bool {
    ALLOWED.iter().any(|(tag, operations)| {
        statement.tag.as_deref() == Some(*tag) && operations.contains(&statement.operation())
    })
}

// Facts that may hold before an instruction.

/// An acquire has made global memory visible; no proxy fence since.
const GLOBAL_UNFENCED: u8 = 1;
/// Ordinary accesses have written shared memory; no proxy fence since.
const SHARED_UNFENCED: u8 = 2;
/// Bulk stores may be incomplete.
const STORES_INCOMPLETE: u8 = 4;

/// The stream's previous kernels may still run.
const PREREQUISITES_PENDING: u8 = 8;

/// Global memory was accessed; no alias proxy fence since.
const ALIASES_UNFENCED: u8 = 16;

/// Dependents may have started.
const DEPENDENTS_STARTED: u8 = 32;
/// Another thread of the block may be waiting for a peer.
const PEERS_AWAITED: u8 = 64;
/// The kernel may have stored in global memory, other than flags that say that it has entered.
const STORED: u8 = 128;

fn entry_facts(function: &Function, peers: &Waits) -> u8 {
    let waits = function
        .items
        .iter()
        .any(|item| matches!(item, Item::Statement(statement) if is_prerequisite_wait(statement)));
    let prerequisites = if waits { PREREQUISITES_PENDING } else { 0 };
    let awaited = if peers.at_entry() { PEERS_AWAITED } else { 0 };
    GLOBAL_UNFENCED | ALIASES_UNFENCED | prerequisites | awaited
}

fn is_prerequisite_wait(statement: &Statement) -> bool {
    statement.mnemonic == "griddepcontrol.wait"
}

fn touches_global(statement: &Statement) -> bool {
    match statement.operation() {
        "ld" | "st" | "atom" | "red" | "multimem" => {
            !statement.is_shared() && !statement.has("param") && !statement.has("local")
        }
        _ => is_bulk_load(statement) || is_bulk_store(statement),
    }
}

fn is_bulk(statement: &Statement) -> bool {
    statement.mnemonic.starts_with("cp.async.bulk.")
        || statement.mnemonic.starts_with("cp.reduce.async.bulk.")
}

fn is_bulk_load(statement: &Statement) -> bool {
    is_bulk(statement) && statement.has("mbarrier::complete_tx::bytes")
}

fn is_bulk_store(statement: &Statement) -> bool {
    is_bulk(statement) && statement.has("bulk_group")
}

fn is_completion(statement: &Statement) -> bool {
    statement.mnemonic == "cp.async.bulk.wait_group" && statement.operands == "0"
}

fn is_release_or_acquire(statement: &Statement) -> bool {
    match statement.operation() {
        "fence" => ["acq_rel", "sc", "acquire", "release"]
            .iter()
            .any(|order| statement.has(order)),
        "membar" => true,
        "ld" | "st" | "atom" | "red" | "multimem" => {
            !statement.is_shared()
                && ["acquire", "release", "acq_rel"]
                    .iter()
                    .any(|order| statement.has(order))
        }
        _ => false,
    }
}

fn transfer(statement: &Statement, mut facts: u8) -> u8 {
    if is_release_or_acquire(statement) {
        facts |= GLOBAL_UNFENCED;
    }
    if statement.mnemonic.starts_with("mbarrier.init")
        || (statement.operation() == "st" && statement.is_shared())
    {
        facts |= SHARED_UNFENCED;
    }
    if is_bulk_store(statement) {
        facts |= STORES_INCOMPLETE;
    }
    if touches_global(statement) {
        facts |= ALIASES_UNFENCED;
        if statement.operation() != "ld" && !has_entered(statement) {
            facts |= STORED;
        }
    }
    if statement.predicated {
        return facts; // a predicated instruction may not execute, so it clears nothing
    }
    if statement.mnemonic.starts_with("fence.proxy.async") {
        if !statement.is_shared() {
            facts &= !GLOBAL_UNFENCED;
        }
        if !statement.has("global") {
            facts &= !SHARED_UNFENCED;
        }
    }
    if statement.mnemonic == "fence.proxy.alias" {
        facts &= !ALIASES_UNFENCED;
    }
    if is_prerequisite_wait(statement) {
        facts &= !PREREQUISITES_PENDING;
    }
    if is_completion(statement) {
        facts &= !STORES_INCOMPLETE;
    }
    facts
}

fn has_entered(statement: &Statement) -> bool {
    statement.tag.as_deref() == Some(ENTERED)
}

fn starts_dependents(statement: &Statement) -> bool {
    statement.mnemonic == "griddepcontrol.launch_dependents" && !is_answered(statement)
}

fn is_answered(statement: &Statement) -> bool {
    statement.tag.as_deref() == Some(ANSWERED)
}

/// Checks a start of dependents that is tagged as answered; `heard` says that a wait for a peer may come before it.
fn answered(statement: &Statement, heard: bool, facts: u8) -> Option<&'static str> {
    if !is_answered(statement) {
        return None;
    }
    if facts & PREREQUISITES_PENDING != 0 {
        return Some("dependents start before griddepcontrol.wait");
    }
    (!heard).then_some("dependents start as answered, before any wait for a peer")
}

/// Changes the facts about dependents; `awaits_next` says that a wait for a peer may follow before the next barrier.
fn dependents_transfer(statement: &Statement, awaits_next: bool, mut facts: u8) -> u8 {
    if starts_dependents(statement) {
        facts |= DEPENDENTS_STARTED;
    }
    if waits::is_block_barrier(statement) {
        if awaits_next && !waits::is_vote(statement) {
            facts |= PEERS_AWAITED;
        } else {
            facts &= !PEERS_AWAITED;
        }
    }
    facts
}

/// Checks the start of dependents against the waits for peers.
fn dependents(statement: &Statement, awaits: bool, facts: u8) -> Option<&'static str> {
    if awaits && facts & DEPENDENTS_STARTED != 0 {
        return Some("a wait for a peer after dependents may have started");
    }
    if !starts_dependents(statement) {
        return None;
    }
    if facts & PREREQUISITES_PENDING != 0 {
        return Some("dependents start before griddepcontrol.wait");
    }
    (facts & PEERS_AWAITED != 0)
        .then_some("dependents start while a thread of the block may wait for a peer")
}

/// Checks one instruction against the facts that may hold before it.
fn order(statement: &Statement, facts: u8) -> Option<&'static str> {
    if touches_global(statement) && facts & PREREQUISITES_PENDING != 0 {
        return Some("global memory is accessed before griddepcontrol.wait");
    }
    if is_bulk_load(statement) && facts & GLOBAL_UNFENCED != 0 {
        return Some("a bulk load after an acquire, without fence.proxy.async between them");
    }
    if (is_bulk_load(statement) || is_bulk_store(statement)) && facts & SHARED_UNFENCED != 0 {
        return Some(
            "a bulk copy after ordinary writes to shared memory, without fence.proxy.async between them",
        );
    }
    if statement.mnemonic.starts_with("multimem.red") && facts & ALIASES_UNFENCED != 0 {
        return Some("flags are raised at all members without fence.proxy.alias in front");
    }
    if has_entered(statement) && facts & STORED != 0 {
        return Some("a flag without a fence, in a kernel that may have stored before");
    }
    let ends = matches!(statement.operation(), "ret" | "exit");
    if ends && facts & PREREQUISITES_PENDING != 0 {
        return Some("a path to the end without griddepcontrol.wait");
    }
    let publishes =
        is_release_or_acquire(statement) || (statement.operation() == "st" && is_strong(statement));
    if (ends || publishes) && facts & STORES_INCOMPLETE != 0 {
        return Some(
            "bulk stores may not be complete; put cp.async.bulk.wait_group 0 (not .read) before it",
        );
    }
    None
}

/// Returns the assembler's warnings, C75xx and others, and spills.
pub fn assembler(name: &str, said: &str) -> Vec<String> {
    let spills = |line: &str| {
        line.contains("spill")
            && line
                .split(", ")
                .any(|part| !part.trim().starts_with("0 bytes") && part.contains("bytes"))
    };
    said.lines()
        .filter(|line| line.contains("(C75") || line.contains("warning") || spills(line))
        .map(|line| format!("{name}: ptxas: {}", line.trim()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(body: &str) -> String {
        format!(".version 8.0\n.target sm_90\n.visible .entry kernel(\n)\n{{\n{body}\nret;\n}}\n")
    }

    fn complaints(body: &str) -> Vec<String> {
        ptx("module", &module(body))
    }

    #[track_caller]
    fn catches(body: &str, word: &str) {
        let found = complaints(body);
        assert!(
            found.len() == 1 && found[0].contains(word),
            "expected one complaint of {word:?}: {found:?}"
        );
    }

    const LOAD: &str = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], %r2, [%r3];\n";
    const STORE: &str = "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], %r2;\n";

    #[test]
    fn catches_a_signal_stored_at_device_scope() {
        catches("st.relaxed.gpu.global.b32 [%rd1], %r1;", "flag is stored");
        catches("st.release.gpu.global.b32 [%rd1], %r1;", "flag is stored");
        assert!(complaints("st.relaxed.sys.global.b32 [%rd1], %r1;").is_empty());
    }

    #[test]
    fn catches_a_flag_loaded_at_device_scope() {
        catches("ld.acquire.gpu.global.b32 %r1, [%rd1];", "flag is loaded");
        catches("ld.volatile.global.b32 %r1, [%rd1];", "flag is loaded");
        assert!(complaints("ld.relaxed.sys.global.b32 %r1, [%rd1];").is_empty());
    }

    #[test]
    fn catches_atomics_below_system_scope_unless_they_are_tagged() {
        catches("atom.relaxed.gpu.global.add.u32 %r1, [%rd1], 1;", "atomic");
        catches("red.global.add.u32 [%rd1], 1;", "atomic");
        catches(
            "atom.relaxed.gpu.global.add.u32 %r1, [%rd1], 1; /* unknown */",
            "atomic",
        );
        catches(
            "st.relaxed.gpu.global.b32 [%rd1], %r1; /* arrivals */",
            "flag is stored",
        );
        assert!(
            complaints("atom.relaxed.gpu.global.add.u32 %r1, [%rd1], 1; /* arrivals */").is_empty()
        );
        assert!(complaints("atom.shared.add.u32 %r1, [%r2], 1;").is_empty());
    }

    #[test]
    fn catches_a_flag_without_a_fence_in_a_kernel_that_has_stored() {
        let flag = "st.relaxed.sys.global.u32 [%rd1], %r1; /* entered */\n";
        let store = "st.global.b32 [%rd2], %r1;\n";
        catches(&format!("{store}{flag}"), "without a fence");
        catches(&format!("@%p1 {store}{flag}"), "without a fence");
        catches(
            &format!("red.relaxed.sys.global.add.u32 [%rd2], 1;\n{flag}"),
            "without a fence",
        );
        // Flags for several peers, and stores after them, are right.
        assert!(complaints(&format!("{flag}{flag}{store}")).is_empty());
        assert!(complaints(&format!("ld.global.b32 %r1, [%rd2];\n{flag}")).is_empty());
    }

    #[test]
    fn catches_a_flag_of_stores_without_a_fence_right_in_front_of_it() {
        let flag = "st.relaxed.sys.global.b32 [%rd1], %r1; /* published */\n";
        let fence = "fence.acq_rel.sys;\n";
        let why = "no fence of the system right in front";
        catches(flag, why);
        catches(&format!("{flag}{fence}"), why);
        catches(&format!("@%p1 {fence}{flag}"), why);
        catches(&format!("{fence}st.global.b32 [%rd2], %r1;\n{flag}"), why);
        catches(&format!("{fence}$L1:\n{flag}@%p1 bra $L1;"), why);
        assert!(complaints(&format!("{fence}{flag}")).is_empty());
        assert!(complaints(&format!("{fence}add.s64 %rd1, %rd2, 4;\n{flag}")).is_empty());
    }

    #[test]
    fn catches_non_coherent_loads_and_local_memory() {
        catches("ld.global.nc.b32 %r1, [%rd1];", "non-coherent");
        catches(
            "ld.global.nc.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1];",
            "non-coherent",
        );
        catches("st.local.b32 [%rd1], %r1;", "local memory");
    }

    #[test]
    fn catches_a_missing_proxy_fence_before_a_bulk_load() {
        catches(LOAD, "bulk load after an acquire");
        catches(
            &format!("fence.proxy.async;\nfence.acq_rel.sys;\n{LOAD}"),
            "bulk load after an acquire",
        );
        catches(
            &format!("fence.proxy.async.shared::cta;\n{LOAD}"),
            "bulk load after an acquire",
        );
        assert!(complaints(&format!("fence.proxy.async;\n{LOAD}")).is_empty());
    }

    #[test]
    fn follows_branches_and_loops() {
        // The acquire at the loop's end reaches the load at its start.
        catches(
            &format!("fence.proxy.async;\n$L1:\n{LOAD}fence.acq_rel.sys;\n@%p1 bra $L1;"),
            "bulk load after an acquire",
        );
        // A fence on only one of two paths does not count.
        catches(
            &format!("@%p1 bra $L1;\nfence.proxy.async;\n$L1:\n{LOAD}"),
            "bulk load after an acquire",
        );
        // Unreachable code is not checked.
        assert!(complaints(&format!("ret;\n{LOAD}")).is_empty());
    }

    #[test]
    fn catches_shared_memory_written_before_a_bulk_copy() {
        let done = "cp.async.bulk.wait_group 0;\n";
        catches(
            &format!("st.shared.b32 [%r1], %r2;\n{STORE}{done}"),
            "ordinary writes to shared",
        );
        catches(
            &format!("fence.proxy.async;\nmbarrier.init.shared::cta.b64 [%r1], 1;\n{LOAD}"),
            "ordinary writes to shared",
        );
    }

    #[test]
    fn catches_a_release_before_bulk_stores_are_complete() {
        let read = "cp.async.bulk.wait_group.read 0;\n";
        let done = "cp.async.bulk.wait_group 0;\n";
        catches(
            &format!("{STORE}{read}fence.acq_rel.sys;\n{done}"),
            "may not be complete",
        );
        catches(&format!("{STORE}{read}"), "may not be complete");
        assert!(complaints(&format!("{STORE}{done}fence.acq_rel.sys;")).is_empty());
    }

    #[test]
    fn catches_memory_touched_before_the_prerequisites_are_complete() {
        catches(
            "ld.global.b32 %r1, [%rd1];\ngriddepcontrol.wait;",
            "before griddepcontrol.wait",
        );
        catches(
            "@%p1 bra $L1;\ngriddepcontrol.wait;\n$L1:\nst.global.b32 [%rd1], %r1;\ngriddepcontrol.wait;",
            "before griddepcontrol.wait",
        );
        catches(
            "@%p1 bra $L1;\ngriddepcontrol.wait;\n$L1:",
            "without griddepcontrol.wait",
        );
        assert!(complaints("ld.param.b64 %rd1, [kernel_param_0];\ngriddepcontrol.wait;\nst.global.b32 [%rd1], %r1;").is_empty());
    }

    /// A loop of one thread that waits for a peer's flag.
    const POLL: &str = "@%p9 bra $OVER;\n$POLL:\nld.relaxed.sys.global.b32 %r9, [%rd9];\n@%p8 bra $POLL;\n$OVER:\n";
    const START: &str = "griddepcontrol.launch_dependents;\n";
    const VOTE: &str = "bar.warp.sync 0xffffffff;\nbarrier.red.and.pred.aligned q, 0, p;\n";
    const BARRIER: &str = "bar.warp.sync 0xffffffff;\nbarrier.sync.aligned 0;\n";

    #[test]
    fn catches_barriers_to_which_a_warp_may_come_in_parts() {
        assert!(complaints(&format!("{VOTE}{BARRIER}")).is_empty());
        let in_parts = "a warp may come to the barrier in parts";
        catches("bar.warp.sync 0xffffffff;\nbarrier.sync 0;", in_parts);
        catches(&VOTE.replace(".aligned", ""), in_parts);
        catches("barrier.sync.aligned 0;", in_parts);
        catches("bar.warp.sync 1;\nbar.sync 0;", in_parts);
        catches("bar.warp.sync 0xffffffff;\n$L1:\nbar.sync 0;", in_parts);
        catches("bar.warp.sync 0xffffffff;\n@%p1 bar.sync 0;", in_parts);
        assert!(complaints("barrier.cluster.wait.acquire.aligned;").is_empty());
    }

    #[test]
    fn catches_dependents_that_start_before_a_wait_for_a_peer() {
        let after = "a wait for a peer after dependents";
        catches(&format!("{VOTE}{START}{POLL}"), after);
        catches(&format!("{START}{VOTE}{POLL}"), after);
        // On one of two paths.
        catches(
            &format!("{VOTE}@%p1 bra $L1;\n{START}$L1:\n{VOTE}{POLL}"),
            after,
        );
        assert!(complaints(&format!("{POLL}{VOTE}{START}")).is_empty());
        // A word that is read once is no wait.
        assert!(complaints(&format!("{START}ld.relaxed.sys.global.b32 %r1, [%rd1];")).is_empty());
        // Nor is a loop over shared memory.
        assert!(complaints(&format!("{START}{}", POLL.replace("global", "shared"))).is_empty());
    }

    #[test]
    fn takes_it_that_peers_have_answered_only_after_a_wait_for_one() {
        let answered = "griddepcontrol.launch_dependents; /* answered */\n";
        assert!(complaints(&format!("{POLL}{answered}{VOTE}{POLL}")).is_empty());
        catches(
            &format!("{answered}{VOTE}{POLL}"),
            "as answered, before any wait",
        );
    }

    #[test]
    fn catches_dependents_that_start_while_another_thread_waits_for_a_peer() {
        let waiting = "while a thread of the block may wait";
        catches(&format!("{POLL}{START}"), waiting);
        catches(&format!("{BARRIER}{POLL}{START}"), waiting);
        catches(
            &format!("{POLL}bar.warp.sync 0xffffffff;\nbar.sync 1, 256;\n{START}"),
            waiting,
        );
        assert!(complaints(&format!("{POLL}{BARRIER}{START}")).is_empty());
        assert!(
            complaints(&format!(
                "{POLL}barrier.cluster.wait.acquire.aligned;\n{START}"
            ))
            .is_empty()
        );
        // All threads branch alike on the result of a vote: here to the next wait, or to the end.
        assert!(
            complaints(&format!(
                "{POLL}{VOTE}@%q bra $END;\n{}{VOTE}$END:\n{START}",
                POLL.replace("$POLL", "$AGAIN").replace("$OVER", "$DONE")
            ))
            .is_empty()
        );
    }

    #[test]
    fn catches_dependents_that_start_before_the_prerequisites_are_complete() {
        catches(
            &format!("{START}griddepcontrol.wait;"),
            "before griddepcontrol.wait",
        );
        assert!(complaints(&format!("griddepcontrol.wait;\n{START}")).is_empty());
    }

    const RAISE: &str = "multimem.red.release.sys.global.add.u32 [%rd1], 1;\n";

    #[test]
    fn catches_multicast_accesses_that_are_weak_or_below_system_scope() {
        let loads = |order: &str| format!("multimem.ld_reduce{order}.global.add.f64 %fd1, [%rd1];");
        catches(&loads(""), "without order and scope");
        catches(&loads(".weak"), "without order and scope");
        catches(&loads(".relaxed.gpu"), "below system scope");
        assert!(complaints(&loads(".relaxed.sys")).is_empty());
        catches(
            "multimem.st.relaxed.gpu.global.b32 [%rd1], %r1; /* own_memory */",
            "below system scope",
        );
        assert!(complaints("multimem.st.relaxed.sys.global.b32 [%rd1], %r1;").is_empty());
    }

    #[test]
    fn catches_flags_raised_at_all_members_without_a_release_or_a_proxy_fence() {
        let fence = "fence.proxy.alias;\n";
        let raise = |order: &str| format!("{fence}multimem.red{order}.global.add.u32 [%rd1], 1;");
        catches(&raise(""), "without order and scope");
        catches(&raise(".relaxed.sys"), "without a release");
        catches(&raise(".release.gpu"), "below system scope");
        catches(
            &(raise(".relaxed.gpu") + " /* own_memory */"),
            "without a release",
        );
        assert!(complaints(&(raise(".release.gpu") + " /* own_memory */")).is_empty());
        assert!(complaints(&raise(".release.sys")).is_empty());
        catches(RAISE, "without fence.proxy.alias");
        catches(
            &format!("{fence}st.global.b32 [%rd1], %r1;\n{RAISE}"),
            "without fence.proxy.alias",
        );
        catches(
            &format!("@%p1 bra $L1;\n{fence}$L1:\n{RAISE}"),
            "without fence.proxy.alias",
        );
    }

    #[test]
    fn catches_multicast_accesses_before_the_prerequisites_are_complete() {
        catches(
            "multimem.st.relaxed.sys.global.b32 [%rd1], %r1;\ngriddepcontrol.wait;",
            "before griddepcontrol.wait",
        );
    }

    #[test]
    fn catches_spills_and_warnings_of_the_assembler() {
        let clean = "ptxas info    : Used 28 registers\n    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads";
        assert!(assembler("module", clean).is_empty());
        assert_eq!(
            assembler(
                "module",
                "    8 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads"
            )
            .len(),
            1
        );
        let warning = "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized";
        assert_eq!(assembler("module", warning).len(), 1);
    }

    #[test]
    fn reads_the_target() {
        assert_eq!(target(".version 8.0\n.target sm_80\n"), "80");
        assert_eq!(target(".target sm_90a, debug\n"), "90a");
    }
}
