//! One rank of a benchmark: joins the world, measures, and as rank 0 prints and writes.

use super::bar::with_bar;
use super::error::{CommandError, Result};
use super::output;
use super::task::{DEADLINE, Files, Kind, Measurement, Task};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;
use symmem::Builder;
use symmem::backends::{self as select, Chosen, Selection};
use symmem::tuning::ProductRow;
use symmem_bench::report::{self, Environment, Report, page, summary, table};
use symmem_bench::{
    BenchError, Effort, ag_gemm, bring_up, collectives, enqueue, environment, p2p, tune,
};

/// Does this rank's part.
pub fn rank(task: &str) -> Result<ExitCode> {
    let task: Task = serde_json::from_str(task).map_err(|error| {
        CommandError::Said(format!(
            "`symmem rank` is for symmem itself; its task cannot be read: {error}"
        ))
    })?;
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
        Measurement::AllGatherGemm(_, files) => files.tune.as_deref(),
        Measurement::Tune(options) => Some(options.out.as_path()),
        _ => None,
    };
    if to_write.is_some_and(is_yet_to_be_made) {
        builder = builder.tuning(&[]).gemm_tuning(&[]);
    }
    if let Measurement::AllGatherGemm(_, Files { tune: Some(_), .. }) = measurement {
        // What is to be found out is not to be known before.
        builder = builder.gemm_tuning(&[]);
    }
    let communicator = builder.build()?;
    let up = bring_up::note(&communicator, probe, start.elapsed())?;
    let first = communicator.rank() == 0;
    let environment = match first {
        true => environment::collect(&chosen, task.command.clone()),
        false => Environment::default(),
    };
    let report = |report: std::result::Result<Report, BenchError>| {
        let mut report = report?;
        report.notes.push(up);
        match first {
            true => tell(task, &report),
            false => Ok(ExitCode::SUCCESS),
        }
    };
    let code = match measurement {
        Measurement::PeerToPeer(options) => report(with_bar(&communicator, |progress| {
            p2p::run(&communicator, options, environment, progress)
        }))?,
        Measurement::Collectives(options) => report(with_bar(&communicator, |progress| {
            collectives::run(&communicator, options, environment, progress)
        }))?,
        Measurement::Everything(pairs, options, products) => {
            report(with_bar(&communicator, |progress| {
                let mut report = p2p::run(&communicator, pairs, environment, progress)?;
                collectives::add(&communicator, options, &mut report, progress)?;
                ag_gemm::add(&communicator, products, &mut report, progress)?;
                Ok(report)
            }))?
        }
        Measurement::AllGatherGemm(options, files) => {
            let mut told = ag_gemm::Told::default();
            let measured = with_bar(&communicator, |progress| {
                let mut report = Report::new(environment);
                told = ag_gemm::add(&communicator, options, &mut report, progress)?;
                Ok(report)
            });
            if first {
                told.plans.iter().for_each(|plan| println!("{plan}"));
                if let Ok(report) = &measured {
                    super::ag_gemm::write(&files.out, report)?;
                }
            }
            let right = (measured.as_ref()).is_ok_and(|report| !report.is_wrong());
            // First what was measured: the table may not be writable.
            let code = report(measured)?;
            match &files.tune {
                Some(file) if first && right => tell_products(file, told.rows)?,
                Some(file) if first => eprintln!(
                    "symmem: nothing is stored in {}, since results were wrong",
                    file.display()
                ),
                _ => {}
            }
            code
        }
        Measurement::Tune(options) => {
            let table = with_bar(&communicator, |progress| {
                tune::run(&communicator, options, progress)
            })?;
            if first {
                tell_table(options, &table)?;
            }
            ExitCode::SUCCESS
        }
        Measurement::Enqueue(effort) => {
            // Some ten thousand calls of each way.
            let batches = if *effort == Effort::Quick { 7 } else { 51 };
            let result = enqueue::run(&communicator, batches, environment)?;
            if first {
                tell_enqueue(task, &chosen, &result)?;
            }
            ExitCode::SUCCESS
        }
    };
    communicator.finalize()?;
    Ok(code)
}

/// Prints and writes; a failure if bytes were wrong.
fn tell(task: &Task, report: &Report) -> Result<ExitCode> {
    match &task.summary {
        Some(circumstances) => print!("{}", summary::summary(report, circumstances)),
        None => print!("{}", table::terminal(report)),
    }
    let unwritable = |error: &dyn std::fmt::Display| CommandError::Said(format!("report: {error}"));
    if let Some(file) = &task.json {
        output::write(file, &report.to_json().map_err(|error| unwritable(&error))?)?;
    }
    if let Some(file) = &task.html {
        output::write(
            file,
            &page::html(report).map_err(|error| unwritable(&error))?,
        )?;
    }
    if !report.is_wrong() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!(
        "symmem: results were wrong; the report says where and whose. Do not trust this machine with data"
    );
    Ok(ExitCode::FAILURE)
}

/// Writes the rows of products, beside what the file has; prints them.
fn tell_products(file: &Path, products: Vec<ProductRow>) -> Result<()> {
    let table = tune::Table {
        products,
        ..tune::Table::default()
    };
    print!("{}", report::tuning::terminal(&table));
    write_over(file, table).map(drop)
}

/// Writes the table, merged with what the file has; prints it.
fn tell_table(options: &tune::Options, table: &tune::Table) -> Result<()> {
    let table = write_over(&options.out, table.clone())?;
    match options.rust {
        true => print!("{}", table.to_rust()),
        false => print!("{}", report::tuning::terminal(&table)),
    }
    Ok(())
}

/// Whether `SYMMEM_TUNING` names this file, which is to be written, and there is none yet.
fn is_yet_to_be_made(file: &Path) -> bool {
    let named = std::env::var_os("SYMMEM_TUNING").filter(|named| !named.is_empty());
    let whole = |path: &Path| std::path::absolute(path).ok();
    named.is_some_and(|named| whole(Path::new(&named)) == whole(file)) && !file.exists()
}

/// Writes a table over what the file has: the whole.
fn write_over(file: &Path, table: tune::Table) -> Result<tune::Table> {
    let table = table.over(output::read_table(file)?);
    let text = table.to_json();
    let text = text.map_err(|error| CommandError::Said(format!("table: {error}")))?;
    output::write(file, &text).map(|()| table)
}

fn tell_enqueue(task: &Task, chosen: &Chosen, result: &enqueue::Enqueue) -> Result<()> {
    println!("backend {}", chosen.name);
    print!("{}", result.to_text());
    if let Some(file) = &task.json {
        let text = result.to_json();
        let text = text.map_err(|error| CommandError::Said(format!("result: {error}")))?;
        output::write(file, &text)?;
    }
    if task.html.is_some() {
        eprintln!("symmem: `bench enqueue` makes no page; --html is not used");
    }
    Ok(())
}
