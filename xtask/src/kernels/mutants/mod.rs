//! `cargo xtask kernels mutate`: plants faults in the sources of AMD's kernels, one at a time, and checks that each is
//! found. It measures what the lint and the interpreter are worth.

mod equivalent;
mod generate;
mod judge;
mod report;
mod slices;
mod source;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::hip::compile::TARGETS;
use crate::error::{Error, Result};
use crate::tools::{Scratch, side_by_side};
use equivalent::Equivalent;
use generate::Mutant;
use judge::{Judge, Judgement, Verdict};
use slices::{Parts, SLICES, Slice};

/// A mutant is judged in this many of its families, unless all are asked for or one is named.
const MOST_FAMILIES: usize = 3;

/// What survives without a proof is judged by so many times the schedules, where these take seconds.
const MORE: u64 = 6;

/// The command's options.
#[derive(clap::Args)]
pub struct Options {
    /// Judge a sample of this many cases.
    #[arg(long)]
    sample: Option<usize>,
    /// Which sample.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Only kernels of this module or slice of one, such as `reduce_push` or `collective/swap`.
    #[arg(long)]
    family: Option<String>,
    /// Only this target.
    #[arg(long, value_parser = TARGETS)]
    target: Option<String>,
    /// Only mutants whose description contains this, such as `group.h` or `:drop`.
    #[arg(long)]
    only: Option<String>,
    /// Judge every mutant in every family for every target. Without it, each is judged in up to three families, which
    /// take turns, and in each for one target, which take turns too.
    #[arg(long)]
    all: bool,
    /// Schedules of the interpreter for each scenario.
    #[arg(long, default_value_t = 24)]
    schedules: u64,
    /// Judge no further cases after this many minutes. Cases are then in an order that the seed draws.
    #[arg(long)]
    minutes: Option<u64>,
    /// Print the mutants and judge none.
    #[arg(long)]
    list: bool,
    /// Go on from a file that --json wrote: what was caught there is not judged again, survivors are.
    #[arg(long)]
    resume: Option<PathBuf>,
    /// Only cases that were caught in a file that --json wrote: none may survive now. Those whose line has changed are left
    /// out.
    #[arg(long)]
    caught: Option<PathBuf>,
    /// Write all verdicts into this file.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// A mutant in kernels of one family, for one target.
pub struct Case<'a> {
    pub mutant: &'a Mutant,
    pub slice: &'static Slice,
    pub target: &'static str,
}

/// Runs the command; blocks until all is judged.
pub fn run(options: &Options) -> Result<()> {
    let start = Instant::now();
    let parts = all_parts()?;
    let mutants = all_mutants(&parts)?;
    let listed = equivalent::read()?;
    let mut wrong = unknown(&listed, &mutants);
    let before = options.caught.as_deref().map(report::known).transpose()?;
    let cases = chosen(options, &parts, &mutants, before.as_ref());
    if options.list {
        for mutant in &mutants {
            println!("{mutant}");
        }
        println!("{} mutants, {} cases", mutants.len(), cases.len());
        return verdict(wrong);
    }

    let scratch = Scratch::new("kernels-mutate")?;
    let slices: Vec<&'static Slice> = SLICES
        .iter()
        .filter(|slice| cases.iter().any(|case| case.slice.name == slice.name))
        // Without time, nothing is judged: only what an earlier run found is told anew.
        .filter(|_| options.minutes != Some(0))
        .collect();
    let targets: Vec<&'static str> = TARGETS
        .into_iter()
        .filter(|target| cases.iter().any(|case| case.target == *target))
        .collect();
    let judge = Judge::new(&slices, &targets, options.schedules, scratch.path())?;
    let known = match &options.resume {
        Some(path) => report::known(path)?,
        None => HashMap::new(),
    };
    let numbered: Vec<(usize, &Case)> = cases.iter().enumerate().collect();
    let end = options
        .minutes
        .map(|minutes| start + Duration::from_secs(60 * minutes));
    let judgements = side_by_side(&numbered, |(number, case)| {
        let verdict = known.get(&report::name_of(case)).copied();
        let late = end.is_some_and(|end| Instant::now() > end);
        if late || verdict.is_some_and(|verdict| verdict != Verdict::Survived) {
            return Ok(verdict.map(Judgement::before));
        }
        let mut judgement = judge.judge(case, *number, options.schedules)?;
        let is_cheap = !case.slice.name.contains("gemm");
        if judgement.verdict == Verdict::Survived && is_cheap && !is_proved(&listed, case) {
            judgement = judge.judge(case, *number, MORE * options.schedules)?;
        }
        if judgement.verdict == Verdict::Survived && row(&listed, case).is_none() {
            println!(
                "survived in {} for {}: {} ({})",
                case.slice.name, case.target, case.mutant, judgement.what
            );
        }
        Ok(Some(judgement))
    })?;
    let all: Vec<(&Case, &Judgement)> = cases
        .iter()
        .zip(&judgements)
        .filter_map(|(case, judgement)| Some((case, judgement.as_ref()?)))
        .collect();
    println!("{} of {} cases judged", all.len(), cases.len());
    wrong.extend(complaints(&listed, &all));
    let summary = report::Summary::of(&all, &listed, start.elapsed());
    summary.print();
    if let Some(path) = &options.json {
        report::write(path, &summary, &all, &listed)?;
    }
    verdict(wrong)
}

fn verdict(wrong: Vec<String>) -> Result<()> {
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(Error::Mutants(wrong))
    }
}

/// Returns each slice, and what it is compiled from.
fn all_parts() -> Result<Vec<(&'static Slice, Parts)>> {
    SLICES
        .iter()
        .map(|slice| Ok((slice, slice.parts()?)))
        .collect()
}

/// Returns the mutants of all sources.
fn all_mutants(parts: &[(&'static Slice, Parts)]) -> Result<Vec<Mutant>> {
    let files: BTreeSet<&String> = parts.iter().flat_map(|(_, parts)| parts.files()).collect();
    let mut mutants = Vec::new();
    for file in files {
        mutants.extend(generate::mutants(file, &slices::read(file)?));
    }
    Ok(mutants)
}

/// Returns the cases that the options ask for.
fn chosen<'a>(
    options: &Options,
    parts: &[(&'static Slice, Parts)],
    mutants: &'a [Mutant],
    before: Option<&HashMap<String, Verdict>>,
) -> Vec<Case<'a>> {
    let mut cases = Vec::new();
    for (number, mutant) in mutants.iter().enumerate() {
        let slices: Vec<&'static Slice> = parts
            .iter()
            .filter(|(_, parts)| parts.has(&mutant.file, &mutant.function))
            .map(|(slice, _)| *slice)
            .collect();
        // With steps of a third, the families differ, and each has its turn.
        let step = slices.len().div_ceil(MOST_FAMILIES).max(1);
        for (place, slice) in slices.iter().enumerate() {
            let family_in_turn = place % step == number % step;
            for (index, target) in TARGETS.into_iter().enumerate() {
                let turn = number / step + place / step;
                let target_in_turn = turn % TARGETS.len() == index;
                let named = options.family.is_some() || family_in_turn;
                let named = named && (options.target.is_some() || target_in_turn);
                if options.all || named {
                    cases.push(Case {
                        mutant,
                        slice,
                        target,
                    });
                }
            }
        }
    }
    let named = |given: &Option<String>, names: [&str; 2]| {
        given
            .as_ref()
            .is_none_or(|given| names.contains(&given.as_str()))
    };
    cases.retain(|case| {
        let verdict = before.map(|before| before.get(&report::name_of(case)));
        let caught = [Verdict::Lint, Verdict::Interpreter];
        verdict.is_none_or(|verdict| verdict.is_some_and(|verdict| caught.contains(verdict)))
            && named(&options.family, [case.slice.name, case.slice.module])
            && named(&options.target, [case.target; 2])
            && options
                .only
                .as_ref()
                .is_none_or(|only| case.mutant.to_string().contains(only))
    });
    if options.sample.is_some() || options.minutes.is_some() {
        draw(
            &mut cases,
            options.sample.unwrap_or(usize::MAX),
            options.seed,
        );
    }
    cases
}

/// Keeps `most` of a list, and puts them in an order that is drawn by a seed.
fn draw<T>(list: &mut Vec<T>, most: usize, seed: u64) {
    // SplitMix64.
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    };
    for place in 0..most.min(list.len()) {
        let left = (list.len() - place) as u64;
        list.swap(place, place + (next() % left) as usize);
    }
    list.truncate(most);
}

/// Returns the row of the list for a case: one with a proof, if there is one.
fn row<'a>(listed: &'a [Equivalent], case: &Case) -> Option<&'a Equivalent> {
    let rows = listed
        .iter()
        .filter(|each| each.names(case.mutant) && each.covers(case.slice, case.target));
    rows.max_by_key(|each| each.is_proved())
}

/// Whether the list proves that a case is no fault.
fn is_proved(listed: &[Equivalent], case: &Case) -> bool {
    row(listed, case).is_some_and(Equivalent::is_proved)
}

/// Returns the rows of the list that name no mutant.
fn unknown(listed: &[Equivalent], mutants: &[Mutant]) -> Vec<String> {
    listed
        .iter()
        .filter(|each| !mutants.iter().any(|mutant| each.names(mutant)))
        .map(|each| {
            format!(
                "the list of equivalents names no mutant by {}:{} ({}): `{}`",
                each.file, each.operator, each.function, each.text
            )
        })
        .collect()
}

/// Returns the survivors without a proof, and the proofs that are refuted.
fn complaints(listed: &[Equivalent], all: &[(&Case, &Judgement)]) -> Vec<String> {
    let mut found = BTreeSet::new();
    for (case, judgement) in all {
        let what = match judgement.verdict {
            Verdict::Survived if row(listed, case).is_none() => "survives and is not listed",
            Verdict::Lint | Verdict::Interpreter if is_proved(listed, case) => {
                "is listed as equivalent and is caught"
            }
            _ => continue,
        };
        found.insert(format!(
            "{} in {} for {} {what}: {}",
            case.mutant, case.slice.name, case.target, judgement.what
        ));
    }
    found.into_iter().collect()
}
