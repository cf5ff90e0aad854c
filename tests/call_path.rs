//! Counts the source files that a call passes from the public method to the driver's launch, in the stack that the fake
//! driver records. A reader who follows a call must open these files, and none of them twice.

#![cfg(feature = "cuda")]

#[allow(dead_code, reason = "these tests use the fake driver only")]
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Barrier;
use std::time::Duration;
use symmem::backends::Selection;
use symmem::{Builder, Communicator, LaunchEnvironment, ReduceOp, Result};

const RANKS: u32 = 2;
const CALLERS: &str = "FAKE_DEVICE_CALLERS";

/// The operations, and the most files that each may pass.
const MOST: [(&str, usize); 2] = [("put", 10), ("all_reduce", 12)];

#[test]
fn a_call_passes_few_files_and_none_twice() {
    let callers = std::env::temp_dir().join(support::job("symmem-callers"));
    let libraries = support::fake_driver();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["ranks", "--exact", "--ignored", "--nocapture"])
        .env("SYMMEM_LIBRARY_PATH", libraries)
        .env("LD_LIBRARY_PATH", libraries)
        .env("FAKE_DEVICE_COUNT", RANKS.to_string())
        .env(CALLERS, &callers)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    for (verb, most) in MOST {
        let stack = String::from_utf8_lossy(&output.stdout);
        let stack = between(&stack, &format!("<{verb}>"), &format!("</{verb}>"));
        let launches = stack.lines().filter(|line| *line == "launch").count();
        assert_eq!(launches, 1, "one launch: {stack}");
        let files = files_of(stack);
        println!("{verb}: {files:#?}");
        assert!(
            files.iter().any(|file| file.starts_with("src/"))
                && files.iter().any(|file| file.starts_with("backend-cuda/")),
            "{verb}: from the library to the driver: {files:#?}\n{stack}"
        );
        assert!(
            files.len() <= most,
            "{verb}: {} files: {files:#?}",
            files.len()
        );
        assert_eq!(twice(&files), None, "{verb} returns to a file: {files:#?}");
    }
}

#[test]
fn a_file_that_a_call_comes_back_to_is_found() {
    let stack = "launch\n   0: fake\n             at ./tests/fake-device/src/callers.rs:1:1\n   \
                 1: run\n             at ./src/rank/submit.rs:9:1\n   \
                 2: closure\n             at ./src/stream/transfers.rs:9:1\n   \
                 3: run\n             at ./src/rank/submit.rs:9:1\n   \
                 4: put\n             at ./src/stream/transfers.rs:1:1\n   \
                 5: put\n             at ./src/stream/transfers.rs:2:1\n   \
                 6: test\n             at ./tests/call_path.rs:1:1\n";
    let files = files_of(stack);
    assert_eq!(
        files.len(),
        4,
        "a file that calls itself counts once: {files:?}"
    );
    assert!(twice(&files).is_some());
}

/// Runs ranks as threads of a child process, because an environment variable selects the fake driver.
#[test]
#[ignore = "run by a_call_passes_few_files_and_none_twice"]
fn ranks() {
    let together = Barrier::new(RANKS as usize);
    let job = support::job("call-path");
    std::thread::scope(|scope| {
        for rank in 0..RANKS {
            let (job, together) = (job.clone(), &together);
            scope.spawn(move || {
                let communicator = Builder::new()
                    .launch(LaunchEnvironment::local(rank, RANKS, job).unwrap())
                    .backend(Selection::Named("cuda".into()))
                    .deadline(Duration::from_secs(60))
                    .build()
                    .unwrap();
                calls(&communicator, together).unwrap();
                communicator.finalize().unwrap();
            });
        }
    });
}

fn calls(communicator: &Communicator, together: &Barrier) -> Result<()> {
    let stream = communicator.stream()?;
    let inbox = communicator.allocate::<f32>(&[1024])?;
    let outbox = communicator.allocate::<f32>(&[1024])?;
    let verbs: [&dyn Fn() -> Result<()>; 2] = [
        &|| stream.put(1 - communicator.rank(), &inbox, &outbox),
        &|| stream.all_reduce(&inbox, &outbox, ReduceOp::Sum),
    ];
    for (call, (verb, _)) in verbs.into_iter().zip(MOST) {
        // Only rank 0's second call is recorded, which loads no kernel any more.
        call()?;
        stream.synchronize()?;
        together.wait();
        if communicator.rank() == 0 {
            let callers = PathBuf::from(std::env::var_os(CALLERS).expect("set by the test"));
            std::fs::write(&callers, "").expect("a temporary file");
            let called = call();
            let stack = std::fs::read_to_string(&callers).expect("written by the fake driver");
            std::fs::remove_file(&callers).expect("just read");
            called?;
            println!("<{verb}>\n{stack}</{verb}>");
        }
        together.wait();
        if communicator.rank() == 1 {
            call()?;
        }
        stream.synchronize()?;
    }
    inbox.free()?;
    outbox.free()
}

fn between<'t>(text: &'t str, start: &str, end: &str) -> &'t str {
    let from = text.find(start).expect("rank 0 has written it") + start.len();
    let length = text[from..].find(end).expect("rank 0 has written it");
    &text[from..from + length]
}

/// Returns this repository's files on a stack between the fake driver and the test, the innermost first. Consecutive
/// frames of one file count once.
fn files_of(stack: &str) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<String> = Vec::new();
    for line in stack.lines() {
        let Some(place) = line.trim().strip_prefix("at ") else {
            continue;
        };
        let path = place.rsplitn(3, ':').last().unwrap_or(place);
        let path = path.strip_prefix("./").unwrap_or(path);
        let path = Path::new(path)
            .strip_prefix(root)
            .unwrap_or(Path::new(path));
        // Skip the sources of the standard library and the C library.
        if path.starts_with("tests") || !root.join(path).is_file() || path.is_absolute() {
            continue;
        }
        let path = path.display().to_string();
        if files.last() != Some(&path) {
            files.push(path);
        }
    }
    files
}

/// Returns a file that occurs twice.
fn twice(files: &[String]) -> Option<&String> {
    let mut seen = std::collections::HashSet::new();
    files.iter().find(|file| !seen.insert(*file))
}
