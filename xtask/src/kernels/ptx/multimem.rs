//! `cargo xtask kernels multimem`: checks which multicast instructions assemble, and for which targets.
//!
//! These checks need no device. Each form in the artefacts must assemble with CI's oldest assembler for a target (12.4,
//! which builds the artefacts, or the first that knows the target) and with the newest. The forms that symmem assumes to
//! be missing must be rejected. The modules that are embedded as PTX only must assemble without spills and warnings, as
//! the driver will do it.

use std::path::{Path, PathBuf};

use super::committed;
use super::compile::{MODULES, Module, assemble};
use super::lint;
use super::text::{self, Item, Statement};
use crate::error::{Error, Result, at};
use crate::kernels::family::Family;
use crate::kernels::{manifest, verdict};
use crate::tools::{self, Scratch, side_by_side};

/// Targets, and the first release to test each with.
const TARGETS: [(&str, Release); 4] = [
    ("90", (12, 4)),
    ("90a", (12, 4)),
    ("100", (12, 8)),
    ("100a", (12, 8)),
];

/// The newest tested release must be at least this.
const NEWEST: Release = (13, 0);

/// The only target in [`TARGETS`] with multicast sums of fp8.
const FLOATS_OF_8_BITS: &str = "100a";

/// Forms that the instruction set does not have, each with a form that it has and that differs in one word, so that only
/// this word can be the reason for the rejection.
const REFUSED: [(&str, &str); 16] = [
    (
        "ld_reduce.relaxed.sys.global.min.f32",
        "ld_reduce.relaxed.sys.global.add.f32",
    ),
    (
        "ld_reduce.relaxed.sys.global.max.f32",
        "ld_reduce.relaxed.sys.global.add.f32",
    ),
    (
        "ld_reduce.relaxed.sys.global.min.f64",
        "ld_reduce.relaxed.sys.global.add.f64",
    ),
    (
        "ld_reduce.relaxed.sys.global.max.f64",
        "ld_reduce.relaxed.sys.global.add.f64",
    ),
    (
        "ld_reduce.relaxed.sys.global.add.s64",
        "ld_reduce.relaxed.sys.global.add.u64",
    ),
    (
        "ld_reduce.relaxed.sys.global.mul.u32",
        "ld_reduce.relaxed.sys.global.add.u32",
    ),
    (
        "ld_reduce.relaxed.sys.global.add.u16",
        "ld_reduce.relaxed.sys.global.add.u32",
    ),
    (
        "ld_reduce.relaxed.sys.global.add.v2.u32",
        "ld_reduce.relaxed.sys.global.add.v2.f32",
    ),
    (
        "ld_reduce.relaxed.sys.global.add.v4.s32",
        "ld_reduce.relaxed.sys.global.add.v4.f32",
    ),
    (
        "ld_reduce.relaxed.sys.global.add.v2.u64",
        "ld_reduce.relaxed.sys.global.add.v2.f32",
    ),
    (
        "ld_reduce.relaxed.sys.global.add.v2.f64",
        "ld_reduce.relaxed.sys.global.add.v2.f32",
    ),
    (
        "ld_reduce.relaxed.global.add.u32",
        "ld_reduce.relaxed.sys.global.add.u32",
    ),
    (
        "st.relaxed.sys.global.v4.b32",
        "st.relaxed.sys.global.v4.f32",
    ),
    (
        "st.relaxed.sys.global.v2.b64",
        "st.relaxed.sys.global.v2.f32",
    ),
    (
        "red.release.sys.global.add.s64",
        "red.release.sys.global.add.u64",
    ),
    (
        "red.acq_rel.sys.global.add.u32",
        "red.release.sys.global.add.u32",
    ),
];

/// A toolkit's release, 12.4 as (12, 4).
type Release = (u32, u32);

/// An assembler.
struct Assembler {
    path: PathBuf,
    release: Release,
}

/// Tests every form with every assembler for every target.
pub fn run() -> Result<()> {
    let assemblers = assemblers()?;
    let forms = emitted()?;
    let mut pairs = Vec::new();
    for (target, first) in TARGETS {
        let knows = |assembler: &&Assembler| assembler.release >= first;
        pairs.extend(assemblers.iter().filter(knows).map(|one| (target, one)));
        let has = |wanted: fn(Release, Release) -> bool| {
            assemblers.iter().any(|one| wanted(one.release, first))
        };
        if !has(|release, first| release == first) {
            println!(
                "skipped: multimem on sm_{target}: no ptxas {}.{}",
                first.0, first.1
            );
        }
        if !has(|release, _| release >= NEWEST) {
            println!("skipped: multimem on sm_{target}: no ptxas {}", NEWEST.0);
        }
    }
    let scratch = Scratch::new("multimem")?;
    manifest::unpack(Family::Ptx, scratch.path())?;
    let found = side_by_side(&pairs, |(target, assembler)| {
        let folder = scratch.path().join(format!(
            "{target}-{}.{}",
            assembler.release.0, assembler.release.1
        ));
        at(&folder, std::fs::create_dir_all(&folder))?;
        let mut found = assembler.tries(target, &forms, &REFUSED, &folder)?;
        for module in embedded_as_ptx(target) {
            let path = scratch.path().join(format!("{}.ptx", module.name));
            found.extend(assembler.whole(target, &path, &folder)?);
        }
        Ok(found)
    })?;
    verdict(found.concat())?;
    let (narrow, all) = (
        forms.iter().filter(|form| !is_of_8_bits(form)).count(),
        forms.len(),
    );
    for (target, Assembler { release, .. }) in &pairs {
        let taken = if *target == FLOATS_OF_8_BITS {
            all
        } else {
            narrow
        };
        let whole: Vec<&str> = embedded_as_ptx(target).map(|module| module.name).collect();
        println!(
            "multimem on sm_{target} by ptxas {}.{}: {taken} forms accepted, {} rejected; whole modules: {}",
            release.0,
            release.1,
            REFUSED.len() + all - taken,
            whole.join(", ")
        );
    }
    Ok(())
}

/// Returns the modules embedded as PTX only that the target can run.
fn embedded_as_ptx(target: &str) -> impl Iterator<Item = &'static Module> {
    let as_ptx = MODULES.iter().filter(|module| module.cubins.is_empty());
    as_ptx.filter(move |module| module.runs_on(target))
}

/// Returns the named assemblers, sorted by release.
fn assemblers() -> Result<Vec<Assembler>> {
    let mut all = Vec::new();
    for path in tools::all_ptxas()? {
        let version = tools::version(&path)?;
        let release = release(&version).ok_or_else(|| Error::ToolFailed {
            command: format!("{} --version", path.display()),
            output: format!("no release in {version:?}"),
        })?;
        all.push(Assembler { path, release });
    }
    all.sort_by_key(|one| one.release);
    Ok(all)
}

/// Returns the release in "Cuda compilation tools, release 12.4, V12.4.131".
fn release(version: &str) -> Option<Release> {
    let (_, rest) = version.split_once("release ")?;
    let (major, minor) = rest.split(',').next()?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Returns every distinct multicast instruction in the committed artefacts.
fn emitted() -> Result<Vec<String>> {
    let mut all = Vec::new();
    for module in &MODULES {
        for item in text::parse(&committed(module.name)?)
            .into_iter()
            .flat_map(|function| function.items)
        {
            if let Item::Statement(statement @ Statement { .. }) = item
                && let Some(form) = statement.mnemonic.strip_prefix("multimem.")
            {
                all.push(form.to_owned());
            }
        }
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

fn is_of_8_bits(form: &str) -> bool {
    form.contains(".e4m3") || form.contains(".e5m2")
}

impl Assembler {
    /// Tests the forms for a target. Returns violations, one line each.
    fn tries(
        &self,
        target: &str,
        forms: &[String],
        refused: &[(&str, &str)],
        folder: &Path,
    ) -> Result<Vec<String>> {
        let (elsewhere, taken): (Vec<&str>, Vec<&str>) = forms
            .iter()
            .map(String::as_str)
            .partition(|form| is_of_8_bits(form) && target != FLOATS_OF_8_BITS);
        let neighbors = refused.iter().map(|(_, neighbor)| *neighbor);
        let mut found = Vec::new();
        let wrong = |what: &str, said: &str| {
            let (major, minor) = self.release;
            format!("multimem on sm_{target} by ptxas {major}.{minor}: {what}: {said}")
        };
        let all: Vec<&str> = taken.into_iter().chain(neighbors).collect();
        if let Err(said) = self.assemble(target, &all, folder)? {
            found.push(wrong("rejected", &said));
        }
        for form in elsewhere
            .into_iter()
            .chain(refused.iter().map(|(form, _)| *form))
        {
            if self.assemble(target, &[form], folder)?.is_ok() {
                found.push(wrong("accepted", form));
            }
        }
        Ok(found)
    }

    /// Assembles a PTX file for a target. Returns violations, one line each.
    fn whole(&self, target: &str, ptx: &Path, folder: &Path) -> Result<Vec<String>> {
        let (major, minor) = self.release;
        let name = ptx.file_name().unwrap_or_default().to_string_lossy();
        let name = format!("{name} on sm_{target} by ptxas {major}.{minor}");
        match assemble(&self.path, ptx, target, &folder.join("whole.cubin")) {
            Ok(said) => Ok(lint::assembler(&name, &said)),
            Err(Error::ToolFailed { output, .. }) => Ok(vec![format!("{name}: {output}")]),
            Err(other) => Err(other),
        }
    }

    /// Assembles a kernel with these forms. Returns the assembler's output if it fails.
    fn assemble(
        &self,
        target: &str,
        forms: &[&str],
        folder: &Path,
    ) -> Result<std::result::Result<(), String>> {
        // 8.6 has all forms; older assemblers get the version of the artefacts.
        let version = if self.release >= (12, 8) {
            "8.6"
        } else {
            "8.2"
        };
        let source = folder.join("forms.ptx");
        at(
            &source,
            std::fs::write(&source, kernel(version, target, forms)),
        )?;
        match assemble(&self.path, &source, target, &folder.join("forms.cubin")) {
            Ok(_) => Ok(Ok(())),
            Err(Error::ToolFailed { output, .. }) => Ok(Err(output)),
            Err(other) => Err(other),
        }
    }
}

/// Returns PTX with each of the forms once.
fn kernel(version: &str, target: &str, forms: &[&str]) -> String {
    let body: String = forms.iter().map(|form| instruction(form)).collect();
    format!(
        ".version {version}\n.target sm_{target}\n.address_size 64\n.visible .entry kernel(.param .b64 address)\n{{\n\
         .reg .b16 %h<9>;\n.reg .b32 %r<9>;\n.reg .b64 %d<9>;\n.reg .b64 %a;\nld.param.b64 %a, [address];\n{body}ret;\n}}\n"
    )
}

/// Returns the form with operands: registers of its type, as many as its vector has.
fn instruction(form: &str) -> String {
    let words: Vec<&str> = form.split('.').collect();
    let kind = words.last().copied().unwrap_or_default();
    let register = match kind {
        "f64" | "b64" | "u64" | "s64" => 'd',
        "f16" | "bf16" | "u16" | "e4m3x2" | "e5m2x2" => 'h',
        _ => 'r',
    };
    let vector = words
        .iter()
        .find_map(|word| word.strip_prefix('v')?.parse::<usize>().ok());
    let value = match vector {
        Some(count) => {
            let all: Vec<String> = (0..count)
                .map(|index| format!("%{register}{index}"))
                .collect();
            format!("{{{}}}", all.join(", "))
        }
        None => format!("%{register}0"),
    };
    if words[0] == "ld_reduce" {
        format!("multimem.{form} {value}, [%a];\n")
    } else {
        format!("multimem.{form} [%a], {value};\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// Returns the items, without labels, of the innermost loops of a kernel in a committed module.
    fn loops(module: &str, kernel: &str) -> Vec<Vec<Statement>> {
        let functions = text::parse(&committed(module).unwrap());
        let function = functions
            .into_iter()
            .find(|one| one.name == kernel)
            .unwrap();
        let mut found = Vec::new();
        let mut body: Option<(String, Vec<Statement>)> = None;
        for item in function.items {
            match item {
                Item::Label(label) => body = Some((label, Vec::new())),
                Item::Statement(statement) => {
                    let Some((label, statements)) = &mut body else {
                        continue;
                    };
                    let ends = statement.operation() == "bra" && statement.operands == *label;
                    statements.push(statement);
                    if ends {
                        found.extend(body.take().map(|(_, statements)| statements));
                    }
                }
            }
        }
        found
    }

    /// Returns the memory accesses, in order, of each loop with multicast loads and stores.
    fn two_shot_loops(kernel: &str) -> Vec<Vec<String>> {
        let is_access = |one: &Statement| {
            matches!(
                one.operation(),
                "ld" | "st" | "atom" | "red" | "cp" | "multimem"
            ) && !one.has("param")
        };
        let all = loops("multicast", kernel)
            .into_iter()
            .map(|mut statements| {
                statements.retain(is_access);
                let names = statements.into_iter().map(|one| one.mnemonic);
                names.collect::<Vec<_>>()
            });
        let has = |names: &[String], start: &str| names.iter().any(|one| one.starts_with(start));
        all.filter(|names| has(names, "multimem.ld_reduce") && has(names, "multimem.st"))
            .collect()
    }

    #[test]
    fn the_two_shot_loop_of_bf16_is_16_bytes_from_the_switch_and_16_to_it_several_times() {
        let mut loops = two_shot_loops("symmem_multicast_reduce_bf16");
        loops.sort_by_key(Vec::len);
        assert_eq!(loops.len(), 2, "an average's and a sum's");
        for (accesses, unrolled) in loops.into_iter().zip([2, 8]) {
            let load = "multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.bf16x2";
            let store = "multimem.st.relaxed.sys.global.v4.f32";
            // All loads are in flight before the first store waits for one.
            assert_eq!(
                accesses,
                [vec![load; unrolled], vec![store; unrolled]].concat()
            );
        }
    }

    #[test]
    fn behind_the_last_words_that_a_kernel_raises_at_all_stands_a_fence_for_aliases() {
        for module in ["multicast", "multicast_f8"] {
            for function in text::parse(&committed(module).unwrap()) {
                let last = |start: &str| {
                    function.items.iter().rposition(|item| {
                        matches!(item, Item::Statement(one) if one.mnemonic.starts_with(start))
                    })
                };
                let raised = last("multimem.red");
                let name = &function.name;
                assert!(
                    raised.is_some() && last("fence.proxy.alias") > raised,
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn what_is_emulated_has_no_multicast_instruction() {
        for module in ["multicast_emulated", "multicast_emulated_sm_80"] {
            assert!(!committed(module).unwrap().contains("multimem"));
        }
    }

    #[test]
    fn a_form_is_written_with_registers_of_its_type() {
        assert_eq!(
            instruction("st.global.b64"),
            "multimem.st.global.b64 [%a], %d0;\n"
        );
        assert_eq!(
            instruction("ld_reduce.global.add.acc::f32.v2.f16x2"),
            "multimem.ld_reduce.global.add.acc::f32.v2.f16x2 {%r0, %r1}, [%a];\n"
        );
    }

    #[test]
    fn reads_an_assemblers_release() {
        let said = "Cuda compilation tools, release 12.4, V12.4.131";
        assert_eq!(release(said), Some((12, 4)));
        assert_eq!(release("another tool"), None);
    }

    #[test]
    fn what_is_embedded_as_ptx_is_assembled_for_every_target_that_can_have_it() {
        let names = |target| -> Vec<&str> { embedded_as_ptx(target).map(|one| one.name).collect() };
        assert_eq!(names("90"), ["multicast"]);
        assert_eq!(names("100"), ["multicast"]);
        assert_eq!(names("100a"), ["multicast", "multicast_f8"]);
        assert_eq!(names("80"), [""; 0]);
    }

    #[test]
    fn a_form_that_is_taken_or_refused_against_the_table_is_found() {
        let Ok(all) = assemblers() else {
            // Written directly, since the harness hides the output of passing tests.
            let _ = writeln!(std::io::stderr(), "skipped: multimem: no ptxas");
            return;
        };
        let scratch = Scratch::new("multimem-faults").unwrap();
        let emitted = emitted().unwrap();
        let tries = |forms: &[String], refused: &[(&str, &str)]| {
            all[0].tries("90", forms, refused, scratch.path()).unwrap()
        };
        assert_eq!(tries(&emitted, &REFUSED), [""; 0]);
        let more = [
            &emitted[..],
            &["ld_reduce.relaxed.sys.global.min.f64".into()],
        ]
        .concat();
        let found = tries(&more, &REFUSED);
        assert!(
            found.len() == 1 && found[0].contains(": rejected: "),
            "{found:?}"
        );
        let there = "st.relaxed.sys.global.b32";
        let found = tries(&emitted, &[(there, there)]);
        assert!(
            found.len() == 1 && found[0].contains(": accepted: "),
            "{found:?}"
        );
        // A module with an instruction that its target does not have.
        let source = scratch.path().join("whole.ptx");
        std::fs::write(&source, kernel("8.2", "80", &[there])).unwrap();
        let found = all[0].whole("90", &source, scratch.path()).unwrap();
        assert!(
            found.len() == 1 && found[0].starts_with("whole.ptx on sm_90"),
            "{found:?}"
        );
    }
}
