//! The ranks' side of the live test.

use super::part::Part;
use crate::command::bar::with_bar;
use crate::command::error::{CommandError, Result};
use crate::command::files::Target;
use crate::command::task::{DEADLINE, Task};
use crate::doctor::bring_up_and_down;
use crate::output;
use serde::Serialize;
use std::process::ExitCode;
use std::time::Duration;
use symmem::Builder;
use symmem::backends::{self as select, Selection};
use symmem_bench::report::table;
use symmem_bench::{collectives, environment};

/// Deadline of every step of a setup.
const SETUP_DEADLINE: Duration = Duration::from_secs(60);

/// Does this rank's part. Rank 0 writes its findings so far to the task's file.
pub fn rank(task: &Task, part: &Part) -> Result<ExitCode> {
    let selection = Selection::parse(&task.backend)?;
    let left = match part {
        Part::BringUps(count) => come(task, selection, *count)?,
        Part::Bench(options) => measure(task, selection, options)?,
    };
    if left > 0 {
        output::last_words(format_args!(
            "{left} buffers were still held at the end of this rank"
        ));
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// Sets up and finalizes communicators. Returns the number of buffers that were still held.
fn come(task: &Task, selection: Selection, count: u32) -> Result<u64> {
    let first = std::env::var("SYMMEM_RANK").is_ok_and(|rank| rank == "0");
    let mut kept = Ok(());
    let all = bring_up_and_down(&selection, SETUP_DEADLINE, count, &mut |all| {
        if let (true, Some(bring_up)) = (first, all.last()) {
            let line = format!(
                "  communicator {} of {count}: {}, set up in {:.0} ms, finalized in {:.0} ms\n",
                all.len(),
                bring_up
                    .failure()
                    .unwrap_or_else(|| "multicast works".into()),
                bring_up.up_ms,
                bring_up.down_ms
            );
            kept = keep(task, all).and_then(|()| Ok(output::text(line)?));
        }
    })?;
    kept?;
    Ok(all.iter().map(|bring_up| bring_up.left).sum())
}

/// Measures in one communicator. Returns the number of buffers that were still held.
fn measure(task: &Task, selection: Selection, options: &collectives::Options) -> Result<u64> {
    let chosen = select::choose(&selection)?;
    let communicator = Builder::new()
        .backend(selection)
        .deadline(DEADLINE)
        .setup_deadline(SETUP_DEADLINE)
        .build()?;
    let first = communicator.rank() == 0;
    let environment = match first {
        true => environment::collect(&chosen, task.command.clone()),
        false => Default::default(),
    };
    let report = with_bar(&communicator, |progress| {
        collectives::run(&communicator, options, environment, progress)
    })?;
    if first {
        keep(task, &report)?;
        output::text(table::terminal(&report))?;
    }
    Ok(communicator.finalize()?.count() as u64)
}

/// Writes the findings so far to the task's file, atomically: the file is complete whenever this rank ends.
fn keep(task: &Task, found: &(impl Serialize + ?Sized)) -> Result<()> {
    let Some(Target::File(file)) = &task.json else {
        return Ok(());
    };
    let found = serde_json::to_string(found)
        .map_err(|error| CommandError::Said(format!("result: {error}")))?;
    let unfinished = file.with_extension("unfinished");
    let written = std::fs::write(&unfinished, found);
    written
        .and_then(|()| std::fs::rename(&unfinished, file))
        .map_err(|error| CommandError::System {
            what: format!("writing {}", file.display()),
            error,
        })
}
