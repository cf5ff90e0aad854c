//! Compiles a mutant and looks for its fault: first by the lint, then by the interpreter.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Instant;

use object::{Object, ObjectSection, SectionFlags};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::Case;
use super::generate::Mutant;
use super::slices::{self, Slice};
use crate::error::{Error, Result, at};
use crate::kernels::hip::compile::Compiler;
use crate::kernels::hip::{lint_code, order_of};
use crate::tools;

/// How the search for a fault ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The lint reports a violation.
    Lint,
    /// The interpreter reports a violation, or a run that does not end.
    Interpreter,
    /// The loaded bytes are those without the fault.
    SameCode,
    /// The fault changes only in which order accesses may happen, and they happen in the same: the code accesses, waits and
    /// branches as before.
    SameOrder,
    /// The compiler refuses the source.
    NotCompiled,
    /// Neither found anything.
    Survived,
}

/// A verdict, and what was reported.
#[derive(Clone, Debug)]
pub struct Judgement {
    pub verdict: Verdict,
    pub what: String,
    pub seconds: f64,
}

impl Judgement {
    /// A verdict of an earlier run.
    pub fn before(verdict: Verdict) -> Self {
        Self {
            verdict,
            what: "as an earlier run found".to_owned(),
            seconds: 0.0,
        }
    }
}

/// What all judgements use.
pub struct Judge<'a> {
    compiler: Compiler,
    objdump: PathBuf,
    interpreter: PathBuf,
    folder: &'a Path,
    /// The digest of each slice's code without a fault, and its order, by slice and target.
    baseline: HashMap<(&'static str, &'static str), (String, Vec<String>)>,
    /// Verdicts by target and code, since several mutants may compile to the same.
    known: Mutex<HashMap<String, (Verdict, String)>>,
}

impl<'a> Judge<'a> {
    /// Compiles the slices without a fault, of which neither lint nor interpreter may report anything.
    pub fn new(
        slices: &[&'static Slice],
        targets: &[&'static str],
        schedules: u64,
        folder: &'a Path,
    ) -> Result<Self> {
        let mut judge = Self {
            compiler: Compiler::find()?,
            objdump: tools::objdump()?,
            interpreter: interpreter()?,
            folder,
            baseline: HashMap::new(),
            known: Mutex::new(HashMap::new()),
        };
        let pairs: Vec<(&'static Slice, &'static str)> = slices
            .iter()
            .flat_map(|slice| targets.iter().map(|target| (*slice, *target)))
            .collect();
        let baseline = tools::side_by_side(&pairs, |(slice, target)| {
            let place = judge.place(slice, target, "without")?;
            let object = judge.compile(slice, target, None, &place)?;
            // A schedule of each purpose: tests of the interpreter run the committed kernels under more.
            let (verdict, what) = judge.search(&object, target, schedules.min(3))?;
            if verdict != Verdict::Survived {
                return Err(Error::Mutants(vec![format!(
                    "{} for {target} without a fault: {what}",
                    slice.name
                )]));
            }
            let order = order_of(&judge.objdump, &object, target)?;
            Ok(((slice.name, *target), (digest(&object)?, order)))
        })?;
        judge.baseline = baseline.into_iter().collect();
        Ok(judge)
    }

    /// Judges a mutant in a slice, for a target, by this many schedules.
    pub fn judge(&self, case: &Case, number: usize, schedules: u64) -> Result<Judgement> {
        let start = Instant::now();
        let place = self.place(case.slice, case.target, &number.to_string())?;
        let (verdict, what) = self.verdict(case, schedules, &place)?;
        at(&place, std::fs::remove_dir_all(&place))?;
        Ok(Judgement {
            verdict,
            what,
            seconds: start.elapsed().as_secs_f64(),
        })
    }

    fn verdict(&self, case: &Case, schedules: u64, place: &Path) -> Result<(Verdict, String)> {
        let Case {
            mutant,
            slice,
            target,
        } = *case;
        let object = match self.compile(slice, target, Some(mutant), place) {
            Ok(object) => object,
            Err(Error::ToolFailed { output, .. }) => {
                let first = output.lines().find(|line| line.contains("error"));
                return Ok((
                    Verdict::NotCompiled,
                    first.unwrap_or_default().trim().to_owned(),
                ));
            }
            Err(other) => return Err(other),
        };
        let code = digest(&object)?;
        if let Some((same, order)) = self.baseline.get(&(slice.name, target)) {
            if *same == code {
                return Ok((Verdict::SameCode, String::new()));
            }
            if mutant.changes_only_order(target)
                && *order == order_of(&self.objdump, &object, target)?
            {
                return Ok((Verdict::SameOrder, String::new()));
            }
        }
        // The same code in another slice may have other publications, which the lint reads.
        let key = format!("{target} {} {code} {schedules}", slice.name);
        let known = self.known.lock().unwrap_or_else(|fault| fault.into_inner());
        let before = known.get(&key).cloned();
        drop(known);
        if let Some(before) = before {
            return Ok(before);
        }
        let found = self.search(&object, target, schedules)?;
        let mut known = self.known.lock().unwrap_or_else(|fault| fault.into_inner());
        known.insert(key, found.clone());
        Ok(found)
    }

    /// Returns a new folder for a slice and a target.
    fn place(&self, slice: &Slice, target: &str, name: &str) -> Result<PathBuf> {
        let slice = slice.name.replace('/', "-");
        let place = self.folder.join(format!("{slice}-{target}-{name}"));
        at(&place, std::fs::create_dir_all(place.join("symmem")))?;
        Ok(place)
    }

    fn compile(
        &self,
        slice: &Slice,
        target: &str,
        mutant: Option<&Mutant>,
        place: &Path,
    ) -> Result<PathBuf> {
        let changed = |file: &str| -> Result<String> {
            let text = slices::read(file)?;
            Ok(match mutant {
                Some(mutant) if mutant.file == file => mutant.apply(&text),
                _ => text,
            })
        };
        let source = place.join("slice.h");
        let entry = slice.source(&changed(&slice.entry())?);
        at(&source, std::fs::write(&source, entry))?;
        if let Some(header) = mutant.and_then(|mutant| mutant.file.strip_prefix("include/")) {
            let path = place.join(header);
            let text = changed(&format!("include/{header}"))?;
            at(&path, std::fs::write(&path, text))?;
        }
        let object = place.join(format!("slice.{target}.co"));
        self.compiler.changed(&source, place, target, object)
    }

    fn search(&self, object: &Path, target: &str, schedules: u64) -> Result<(Verdict, String)> {
        let found = lint_code(&self.objdump, object, target)?;
        // A fault is not found if it only costs registers.
        let mut found = found.into_iter().filter(|what| !what.contains("a spill"));
        if let Some(what) = found.next() {
            return Ok((Verdict::Lint, what));
        }
        let mut command = Command::new(&self.interpreter);
        command
            .args([
                "mutant::the_named_kernels_are_judged",
                "--exact",
                "--ignored",
                "--nocapture",
            ])
            .env("SYMMEM_TEST_KERNELS", object)
            .env("SYMMEM_TEST_SEEDS", schedules.to_string());
        let said = match tools::output(&mut command) {
            Ok(said) => said,
            // It panicked: an instruction did what the interpreter does not expect.
            Err(Error::ToolFailed { output, .. }) => output,
            Err(other) => return Err(other),
        };
        let line = |begin: &str| said.lines().find_map(|line| line.strip_prefix(begin));
        if let Some(what) = line("found: ") {
            return Ok((Verdict::Interpreter, what.to_owned()));
        }
        let what = match (line("holds: "), line("unknown: ")) {
            (Some(scenarios), _) => format!("{scenarios} scenarios hold"),
            (None, Some(what)) => what.to_owned(),
            (None, None) => said,
        };
        Ok((Verdict::Survived, what))
    }
}

/// Builds the tests of the interpreter and returns their path.
fn interpreter() -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(tools::root()).args([
        "test",
        "--package",
        "symmem-weak-memory",
        "--test",
        "protocols",
        "--no-run",
        "--message-format=json",
    ]);
    let said = tools::output(&mut command)?;
    let executable = said.lines().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        (message["target"]["name"] == "protocols")
            .then(|| message["executable"].as_str().map(PathBuf::from))?
    });
    executable.ok_or(Error::ToolMissing {
        tool: "tests of symmem-weak-memory",
        advice: "see what cargo test -p symmem-weak-memory says",
    })
}

/// Returns the digest of what a code object has at run time.
fn digest(path: &Path) -> Result<String> {
    let wrong = |error: object::Error| Error::CodeObject {
        path: path.to_owned(),
        what: error.to_string(),
    };
    let bytes = at(path, std::fs::read(path))?;
    let file = object::File::parse(&*bytes).map_err(wrong)?;
    let mut digest = Sha256::new();
    for section in file.sections() {
        let SectionFlags::Elf { sh_flags } = section.flags() else {
            continue;
        };
        // The notes are read by the loader; their registers follow from the code.
        let loaded = sh_flags & u64::from(object::elf::SHF_ALLOC) != 0;
        if loaded && matches!(section.name(), Ok(".text" | ".rodata")) {
            digest.update(section.data().map_err(wrong)?);
        }
    }
    let digest = digest.finalize();
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}
