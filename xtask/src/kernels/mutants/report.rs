//! Counts of verdicts, for people and as JSON.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::equivalent::Equivalent;
use super::judge::{Judgement, Verdict};
use super::{Case, is_proved, row};
use crate::error::{Error, Result, at};
use crate::kernels::hip::compile::Compiler;
use crate::tools;

/// Verdicts counted.
#[derive(Serialize, Default, Clone, Copy)]
struct Counts {
    lint: usize,
    interpreter: usize,
    /// Survived, with a proof that it is no fault.
    equivalent: usize,
    /// Survived without a proof.
    survived: usize,
    /// Neither counts: the machine code is the same, or the compiler refuses the source.
    same_code: usize,
    /// Counted as equivalent: the compiler makes no use of the fault.
    same_order: usize,
    not_compiled: usize,
}

impl Counts {
    fn add(&mut self, verdict: Verdict, proved: bool) {
        let count = match verdict {
            Verdict::Lint => &mut self.lint,
            Verdict::Interpreter => &mut self.interpreter,
            Verdict::Survived if proved => &mut self.equivalent,
            Verdict::Survived => &mut self.survived,
            Verdict::SameCode => &mut self.same_code,
            Verdict::SameOrder => &mut self.same_order,
            Verdict::NotCompiled => &mut self.not_compiled,
        };
        *count += 1;
    }

    /// The cases whose machine code differs.
    fn counted(&self) -> usize {
        self.lint + self.interpreter + self.equivalent + self.same_order + self.survived
    }

    fn row(&self, name: &str) {
        println!(
            "{name:22} {:8} {:8} {:12} {:11} {:10} {:9} {:10} {:9}",
            self.counted(),
            self.lint,
            self.interpreter,
            self.equivalent,
            self.same_order,
            self.survived,
            self.same_code,
            self.not_compiled
        );
    }
}

/// All counts of a run. A mutant is one change of the sources, a case is a mutant in one family for one target.
#[derive(Serialize)]
pub struct Summary {
    cases: Counts,
    /// A mutant counts where its worst case does: survived, equivalent, then caught.
    mutants: Counts,
    by_family: BTreeMap<String, Counts>,
    by_target: BTreeMap<String, Counts>,
    by_operator: BTreeMap<String, Counts>,
    seconds: f64,
}

impl Summary {
    pub fn of(all: &[(&Case, &Judgement)], listed: &[Equivalent], time: Duration) -> Self {
        let mut summary = Self {
            cases: Counts::default(),
            mutants: Counts::default(),
            by_family: BTreeMap::new(),
            by_target: BTreeMap::new(),
            by_operator: BTreeMap::new(),
            seconds: time.as_secs_f64(),
        };
        let mut worst: BTreeMap<*const super::Mutant, (u8, Verdict, bool)> = BTreeMap::new();
        for (case, judgement) in all {
            let proved = is_proved(listed, case);
            let verdict = judgement.verdict;
            let groups = [
                (&mut summary.by_family, case.slice.name),
                (&mut summary.by_target, case.target),
                (&mut summary.by_operator, case.mutant.operator),
            ];
            for (group, name) in groups {
                let counts = group.entry(name.to_owned()).or_default();
                counts.add(verdict, proved);
            }
            summary.cases.add(verdict, proved);
            let weight = match verdict {
                Verdict::NotCompiled => 0,
                Verdict::SameCode => 1,
                Verdict::Lint => 2,
                Verdict::Interpreter => 3,
                Verdict::SameOrder => 4,
                Verdict::Survived if proved => 5,
                Verdict::Survived => 6,
            };
            let entry = worst
                .entry(case.mutant)
                .or_insert((weight, verdict, proved));
            if weight > entry.0 {
                *entry = (weight, verdict, proved);
            }
        }
        for (_, verdict, proved) in worst.into_values() {
            summary.mutants.add(verdict, proved);
        }
        summary
    }

    pub fn print(&self) {
        println!(
            "{:22} {:>8} {:>8} {:>12} {:>11} {:>10} {:>9} {:>10} {:>9}",
            "",
            "counted",
            "lint",
            "interpreter",
            "equivalent",
            "same order",
            "survived",
            "same code",
            "refused"
        );
        for group in [&self.by_family, &self.by_target, &self.by_operator] {
            for (name, counts) in group {
                counts.row(name);
            }
            println!();
        }
        self.cases.row("all cases");
        self.mutants.row("all mutants");
        println!("{:.0} s", self.seconds);
    }
}

#[derive(Serialize)]
struct Row<'a> {
    mutant: String,
    line: usize,
    family: &'a str,
    target: &'a str,
    verdict: &'a str,
    what: &'a str,
    proof: Option<&'a str>,
    missing: Option<&'a str>,
    seconds: f64,
}

#[derive(Serialize)]
struct Report<'a> {
    commit: String,
    date: String,
    clang: String,
    #[serde(flatten)]
    summary: &'a Summary,
    /// Cases that were not caught.
    survivors: Vec<Row<'a>>,
    /// How each mutant was caught: families by verdict.
    caught: BTreeMap<String, BTreeMap<&'a str, BTreeSet<String>>>,
}

/// Returns the verdicts of a report by [`name_of`].
pub fn known(path: &Path) -> Result<HashMap<String, Verdict>> {
    let text = at(path, std::fs::read_to_string(path))?;
    let report: Known = serde_json::from_str(&text).map_err(|source| Error::Manifest {
        path: path.to_owned(),
        source,
    })?;
    let mut known = HashMap::new();
    for (mutant, verdicts) in report.caught {
        for (name, places) in verdicts {
            let Some(verdict) = VERDICTS.into_iter().find(|each| word(*each) == name) else {
                continue;
            };
            for place in places {
                known.insert(format!("{mutant} in {place}"), verdict);
            }
        }
    }
    for survivor in report.survivors {
        let Survivor {
            mutant,
            family,
            target,
        } = survivor;
        known.insert(format!("{mutant} in {family} {target}"), Verdict::Survived);
    }
    Ok(known)
}

/// Returns the name of a case in [`known`].
pub fn name_of(case: &Case) -> String {
    format!(
        "{} in {} {}",
        case.mutant.name(),
        case.slice.name,
        case.target
    )
}

/// The part of a report that [`known`] reads.
#[derive(Deserialize)]
struct Known {
    caught: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
    survivors: Vec<Survivor>,
}

#[derive(Deserialize)]
struct Survivor {
    mutant: String,
    family: String,
    target: String,
}

const VERDICTS: [Verdict; 5] = [
    Verdict::Lint,
    Verdict::Interpreter,
    Verdict::SameCode,
    Verdict::SameOrder,
    Verdict::NotCompiled,
];

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Lint => "lint",
        Verdict::Interpreter => "interpreter",
        Verdict::Survived => "survived",
        Verdict::SameCode => "same code",
        Verdict::SameOrder => "same order",
        Verdict::NotCompiled => "refused",
    }
}

/// Writes counts, survivors, and who caught each mutant.
pub fn write(
    path: &Path,
    summary: &Summary,
    all: &[(&Case, &Judgement)],
    listed: &[Equivalent],
) -> Result<()> {
    let said = |program: &str, arguments: &[&str]| {
        let mut command = std::process::Command::new(program);
        command.current_dir(tools::root()).args(arguments);
        tools::output(&mut command).map(|text| text.trim().to_owned())
    };
    let mut report = Report {
        commit: said("git", &["rev-parse", "HEAD"])?,
        date: said("date", &["--utc", "+%Y-%m-%dT%H:%M:%SZ"])?,
        clang: tools::version(&Compiler::find()?.clang)?,
        summary,
        survivors: Vec::new(),
        caught: BTreeMap::new(),
    };
    for (case, judgement) in all {
        let verdict = word(judgement.verdict);
        if judgement.verdict == Verdict::Survived {
            report.survivors.push(Row {
                mutant: case.mutant.name(),
                line: case.mutant.line,
                family: case.slice.name,
                target: case.target,
                verdict,
                what: &judgement.what,
                proof: row(listed, case).map(|each| each.proof.as_str()),
                missing: row(listed, case).map(|each| each.missing.as_str()),
                seconds: judgement.seconds,
            });
        } else {
            let mutant = report.caught.entry(case.mutant.name()).or_default();
            let place = format!("{} {}", case.slice.name, case.target);
            mutant.entry(verdict).or_default().insert(place);
        }
    }
    let text = serde_json::to_string_pretty(&report).map_err(|source| Error::Manifest {
        path: path.to_owned(),
        source,
    })?;
    at(path, std::fs::write(path, text + "\n"))
}
