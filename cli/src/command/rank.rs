//! One rank of a benchmark: it joins the world and measures; rank 0 also prints and writes the result.

use super::bar::with_bar;
use super::error::{CommandError, Result};
use super::files::{self, Written};
use super::task::{DEADLINE, Files, Kind, Measurement, Task};
use crate::output;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;
use symmem::backends::{self as select, Chosen, Selection};
use symmem::{Builder, Communicator};
use symmem_bench::report::{self, Environment, Report, page, summary, table};
use symmem_bench::{
    Effort, ag_gemm, bring_up, collectives, enqueue, environment, gemm_reduce, p2p, rms_norm, tune,
};

/// Does this rank's part of the task, which is JSON.
pub fn rank(task: &str) -> Result<ExitCode> {
    let task: Task = serde_json::from_str(task).map_err(|error| {
        CommandError::Said(format!(
            "`symmem rank` is for symmem itself; its task is invalid: {error}"
        ))
    })?;
    if task.keeps_output_for_data {
        output::keep_for_data();
    }
    match &task.kind {
        Kind::Measure(measurement) => measure(&task, measurement),
        #[cfg(feature = "cuda")]
        Kind::Doctor(part) => super::doctor::rank(&task, part),
    }
}

fn measure(task: &Task, measurement: &Measurement) -> Result<ExitCode> {
    let start = Instant::now();
    let selection = Selection::parse(&task.backend)?;
    let chosen = select::choose(&selection)?;
    let probe = start.elapsed();
    let mut builder = Builder::new()
        .backend(selection)
        .deadline(DEADLINE)
        .setup_deadline(DEADLINE);
    let to_write = match measurement {
        Measurement::AllGatherGemm(_, files) | Measurement::GemmReduce(_, files) => {
            files.tune.as_deref()
        }
        Measurement::Tune(options) => Some(options.out.as_path()),
        _ => None,
    };
    if to_write.is_some_and(is_yet_to_be_made) {
        builder = builder.tuning(&[]).gemm_tuning(&[]).gemm_reduce_tuning(&[]);
    }
    // Stored rows must not influence the measurement that replaces them.
    match measurement {
        Measurement::AllGatherGemm(_, Files { tune: Some(_), .. }) => {
            builder = builder.gemm_tuning(&[]);
        }
        Measurement::GemmReduce(_, Files { tune: Some(_), .. }) => {
            builder = builder.gemm_reduce_tuning(&[]);
        }
        _ => {}
    }
    let communicator = builder.build()?;
    let up = bring_up::note(&communicator, probe, start.elapsed())?;
    let first = communicator.rank() == 0;
    let environment = match first {
        true => environment::collect(&chosen, task.command.clone()),
        false => Environment::default(),
    };
    let run = Run {
        task,
        communicator: &communicator,
        chosen: &chosen,
        environment,
        bring_up: up,
    };
    let told = run.measure(measurement);
    // Finalize even if the result could not be printed or written, so that the peers do not see a failed rank.
    if let Ok(_) | Err(CommandError::Output(_) | CommandError::System { .. }) = &told {
        communicator.finalize()?;
    }
    // An error is printed before the teardown, which can take seconds after a failure: longer than the launcher waits
    // before it stops the survivors of a rank.
    told.or_else(|error| Ok(error.end()))
}

/// A measurement in one communicator.
struct Run<'a> {
    task: &'a Task,
    communicator: &'a Communicator,
    chosen: &'a Chosen,
    environment: Environment,
    bring_up: String,
}

impl Run<'_> {
    fn measure(self, measurement: &Measurement) -> Result<ExitCode> {
        let communicator = self.communicator;
        let environment = self.environment.clone();
        let report = match measurement {
            Measurement::PeerToPeer(options) => with_bar(communicator, |progress| {
                p2p::run(communicator, options, environment, progress)
            }),
            Measurement::Collectives(options) => with_bar(communicator, |progress| {
                collectives::run(communicator, options, environment, progress)
            }),
            Measurement::RmsNorm(options) => with_bar(communicator, |progress| {
                rms_norm::run(communicator, options, environment, progress)
            }),
            Measurement::Everything(pairs, options, products) => {
                with_bar(communicator, |progress| {
                    let mut report = p2p::run(communicator, pairs, environment, progress)?;
                    collectives::add(communicator, options, &mut report, progress)?;
                    ag_gemm::add(communicator, products, &mut report, progress)?;
                    Ok(report)
                })
            }
            Measurement::AllGatherGemm(options, files) => return self.products(options, files),
            Measurement::GemmReduce(options, files) => return self.gemm_reduce(options, files),
            Measurement::Tune(options) => {
                let table = with_bar(communicator, |progress| {
                    tune::run(communicator, options, progress)
                })?;
                if self.is_first() {
                    tell_table(options, &table)?;
                }
                return Ok(ExitCode::SUCCESS);
            }
            Measurement::Enqueue(effort) => {
                // 200 calls each.
                let batches = if *effort == Effort::Quick { 7 } else { 51 };
                let result = enqueue::run(communicator, batches, environment)?;
                if self.is_first() {
                    tell_enqueue(self.task, self.chosen, &result)?;
                }
                return Ok(ExitCode::SUCCESS);
            }
        };
        self.tell(report?, Written::default())
    }

    fn is_first(&self) -> bool {
        self.communicator.rank() == 0
    }

    /// Measures all-gather + GEMM. Rank 0 writes the result files, prints the plans and the report, and then stores
    /// the tuning rows if all results were right.
    fn products(self, options: &ag_gemm::Options, files: &Files) -> Result<ExitCode> {
        let mut told = ag_gemm::UnreportedResults::default();
        let measured = with_bar(self.communicator, |progress| {
            let mut report = Report::new(self.environment.clone());
            told = ag_gemm::add(self.communicator, options, &mut report, progress)?;
            Ok(report)
        });
        let first = self.is_first();
        let mut written = Written::default();
        if first {
            if let Ok(report) = &measured {
                super::ag_gemm::write(files, report, &mut written)?;
            }
            for plan in &told.plans {
                output::text(format_args!("{plan}\n"))?;
            }
        }
        let rows = tune::Table {
            gemm: told.rows,
            ..tune::Table::default()
        };
        self.tell_and_store(measured?, written, files, rows)
    }

    /// Prints the report, and then stores the tuning rows if all results were right: writing the table may fail.
    fn tell_and_store(
        self,
        report: Report,
        written: Written,
        files: &Files,
        rows: tune::Table,
    ) -> Result<ExitCode> {
        let (first, right) = (self.is_first(), !report.is_wrong());
        let code = self.tell(report, written)?;
        match &files.tune {
            Some(file) if first && right => tell_rows(file, rows)?,
            Some(file) if first => output::note(format_args!(
                "symmem: nothing is stored in {}, because results were wrong",
                file.display()
            ))?,
            _ => {}
        }
        Ok(code)
    }

    /// Measures GEMM + reduce-scatter or GEMM + all-reduce. Rank 0 writes the result files, prints the plans and the
    /// report, and then stores the tuning rows if all results were right.
    fn gemm_reduce(self, options: &gemm_reduce::Options, files: &Files) -> Result<ExitCode> {
        let mut told = gemm_reduce::UnreportedReduceResults::default();
        let report = with_bar(self.communicator, |progress| {
            let mut report = Report::new(self.environment.clone());
            told = gemm_reduce::add(self.communicator, options, &mut report, progress)?;
            Ok(report)
        })?;
        let mut written = Written::default();
        if self.is_first() {
            super::gemm_reduce::write(files, &report, &mut written)?;
            for plan in &told.plans {
                output::text(format_args!("{plan}\n"))?;
            }
        }
        let rows = tune::Table {
            gemm_reduce: told.rows,
            ..tune::Table::default()
        };
        self.tell_and_store(report, written, files, rows)
    }

    /// Writes and prints the report on rank 0. Returns a failure if a result was wrong.
    fn tell(self, mut report: Report, mut written: Written) -> Result<ExitCode> {
        if !self.is_first() {
            return Ok(ExitCode::SUCCESS);
        }
        report.notes.push(self.bring_up);
        let unwritable =
            |error: &dyn std::fmt::Display| CommandError::Said(format!("report: {error}"));
        if let Some(file) = &self.task.json {
            written.write_to(file, &report.to_json().map_err(|error| unwritable(&error))?)?;
        }
        if let Some(file) = &self.task.html {
            written.write_to(
                file,
                &page::html(&report).map_err(|error| unwritable(&error))?,
            )?;
        }
        match &self.task.summary {
            Some(run_context) => output::text(summary::summary(&report, run_context))?,
            None => output::text(table::terminal(&report))?,
        }
        written.tell()?;
        if !report.is_wrong() {
            return Ok(ExitCode::SUCCESS);
        }
        output::last_words(
            "results were wrong (the report names them); do not trust this machine with data",
        );
        Ok(ExitCode::FAILURE)
    }
}

/// Merges rows into the file, and prints them.
fn tell_rows(file: &Path, table: tune::Table) -> Result<()> {
    let mut written = Written::default();
    write_over(file, table.clone(), &mut written)?;
    output::text(report::tuning::terminal(&table))?;
    written.tell()
}

/// Merges the table into the file, and prints the result.
fn tell_table(options: &tune::Options, table: &tune::Table) -> Result<()> {
    let mut written = Written::default();
    let table = write_over(&options.out, table.clone(), &mut written)?;
    match options.rust {
        true => output::text(table.to_rust())?,
        false => output::text(report::tuning::terminal(&table))?,
    }
    written.tell()
}

/// Returns whether `SYMMEM_TUNING` names this file and the file does not exist yet.
fn is_yet_to_be_made(file: &Path) -> bool {
    let named = std::env::var_os("SYMMEM_TUNING").filter(|named| !named.is_empty());
    let whole = |path: &Path| std::path::absolute(path).ok();
    named.is_some_and(|named| whole(Path::new(&named)) == whole(file)) && !file.exists()
}

/// Merges a table into the file and returns the result.
fn write_over(file: &Path, table: tune::Table, written: &mut Written) -> Result<tune::Table> {
    let table = table.over(files::read_table(file)?);
    let text = table.to_json();
    let text = text.map_err(|error| CommandError::Said(format!("table: {error}")))?;
    written.replace(file, &text);
    Ok(table)
}

fn tell_enqueue(task: &Task, chosen: &Chosen, result: &enqueue::Enqueue) -> Result<()> {
    let mut written = Written::default();
    if let Some(file) = &task.json {
        let text = result.to_json();
        let text = text.map_err(|error| CommandError::Said(format!("result: {error}")))?;
        written.write_to(file, &text)?;
    }
    output::text(format_args!(
        "backend {}\n{}",
        chosen.name,
        result.to_text()
    ))?;
    written.tell()
}
