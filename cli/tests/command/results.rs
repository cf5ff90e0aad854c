//! The files that commands write: where, under which names, and never over another one in silence.

use super::*;
use std::time::Instant;

const QUICK: [&str; 3] = ["--backend", "host", "--quick"];

#[test]
fn results_that_nobody_named_have_the_command_and_the_time_in_their_names() {
    let directory = directory("named-by-time");
    succeed(symmem(&directory, &QUICK));
    let name = only_result(&directory, ".json");
    let name = name.file_stem().unwrap().to_str().unwrap().to_owned();
    let time = name.strip_prefix("symmem-").unwrap();
    let shape: String = time
        .chars()
        .map(|letter| if letter.is_ascii_digit() { '0' } else { letter })
        .collect();
    assert_eq!(shape, "0000-00-00T000000Z");
    assert!(
        only_result(&directory, ".html")
            .to_str()
            .unwrap()
            .contains(&name)
    );
    // The next run replaces nothing.
    succeed(symmem(&directory, &QUICK));
    let files = std::fs::read_dir(directory.join("symmem-results")).unwrap();
    assert_eq!(files.count(), 4);
}

#[test]
fn a_named_file_that_exists_is_replaced_only_by_force() {
    let directory = directory("replaced");
    std::fs::write(directory.join("x.json"), "mine").unwrap();
    let mut arguments = ["bench", "enqueue", "--json", "x.json"].to_vec();
    arguments.extend(QUICK);
    let output = symmem(&directory, &arguments).output().unwrap();
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(
        error.contains("x.json exists") && error.contains("--force"),
        "{error}"
    );
    let content = || std::fs::read_to_string(directory.join("x.json")).unwrap();
    assert_eq!(content(), "mine");
    arguments.push("--force");
    succeed(symmem(&directory, &arguments));
    assert!(content().starts_with('{'));
}

#[test]
fn a_place_that_takes_no_files_is_an_error_before_anything_is_measured() {
    let directory = directory("no-place");
    std::fs::write(directory.join("symmem-results"), "a file").unwrap();
    let shape = [
        "bench",
        "ag-gemm",
        "-m",
        "8",
        "-n",
        "8",
        "-k",
        "8",
        "--backend",
        "host",
    ];
    for (arguments, place) in [
        (&QUICK[..], &*directory),
        (&QUICK, Path::new("/proc")),
        (&shape, &*directory),
        (&shape, Path::new("/proc")),
    ] {
        let start = Instant::now();
        let output = symmem(place, arguments).output().unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(error.contains("symmem-results"), "{error}");
        assert!(output.stdout.is_empty() && start.elapsed().as_secs() < 10);
    }
}

#[test]
fn a_result_that_cannot_be_written_is_an_error_of_one_line_behind_the_tables() {
    let directory = directory("full");
    let mut arguments = ["bench", "enqueue", "--json", "/dev/full"].to_vec();
    arguments.extend(QUICK);
    let output = symmem(&directory, &arguments).output().unwrap();
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(
        error.contains("/dev/full") && error.contains("No space left"),
        "{error}"
    );
    assert!(text(&output.stdout).contains("Queue::put"));
}

#[test]
fn more_ranks_than_processors_are_warned_of() {
    let directory = directory("crowded");
    let processors = std::thread::available_parallelism().unwrap().get();
    let ranks = (processors + 1).max(2);
    if ranks > 8 {
        // Still more ranks than processors, without starting too many.
        return support::skipped("this machine has too many processors");
    }
    let ranks = ranks.to_string();
    let arguments = [&QUICK[..], &["--ranks", &ranks]].concat();
    let screen = text(&succeed(symmem(&directory, &arguments)).stdout);
    let warning = format!("warning: {ranks} ranks share {processors} processors");
    assert!(screen.contains(&warning), "{screen}");
}
