//! Wrong use of every command, and output that cannot be written: one line, an exit code, no process left.

use super::*;
use rstest::rstest;
use std::fs::{File, OpenOptions};
use std::os::fd::OwnedFd;
use std::process::Stdio;

/// A command with arguments with which it succeeds quickly, on the host if it takes a backend.
#[derive(Clone, Copy, Debug)]
struct Use {
    /// The command's name or names; options follow them.
    command: &'static [&'static str],
    arguments: &'static [&'static str],
    /// The arguments that make the command read broken.json; empty if it reads no file.
    reads: &'static [&'static str],
}

const EVERYTHING: Use = Use {
    command: &[],
    arguments: &["--backend", "host", "--quick"],
    reads: &[],
};
const INFO: Use = Use {
    command: &["info"],
    arguments: &["--backend", "host"],
    reads: &[],
};
const RUN: Use = Use {
    command: &["run"],
    arguments: &["--backend", "host", "-n", "2", "--", "echo", "a rank"],
    reads: &[],
};
const P2P: Use = Use {
    command: &["bench", "p2p"],
    arguments: &["--backend", "host", "--quick"],
    reads: &[],
};
const COLLECTIVES: Use = Use {
    command: &["bench", "collectives"],
    arguments: &[
        "--backend",
        "host",
        "--op",
        "broadcast",
        "--max-bytes",
        "1K",
        "--rounds",
        "1",
        "--baseline",
        "none",
    ],
    reads: &[],
};
const AG_GEMM: Use = Use {
    command: &["bench", "ag-gemm"],
    arguments: &[
        "--backend",
        "host",
        "--config",
        "shapes.json",
        "--rounds",
        "1",
        "--algorithm",
        "baseline",
    ],
    reads: &["--config", "broken.json"],
};
const GEMM_AR: Use = Use {
    command: &["bench", "gemm-ar"],
    arguments: &[
        "--backend",
        "host",
        "--config",
        "shapes.json",
        "--rounds",
        "1",
        "--algorithm",
        "baseline",
    ],
    reads: &["--config", "broken.json"],
};
const ENQUEUE: Use = Use {
    command: &["bench", "enqueue"],
    arguments: &["--backend", "host", "--quick"],
    reads: &[],
};
const RMS_NORM: Use = Use {
    command: &["bench", "rms-norm"],
    arguments: &["--backend", "host", "--quick", "--rows", "1"],
    reads: &[],
};
const TUNE: Use = Use {
    command: &["tune"],
    arguments: &[
        "--backend",
        "host",
        "--quick",
        "--op",
        "broadcast",
        "--max-bytes",
        "1K",
    ],
    reads: &["--out", "broken.json"],
};
const COMPARE: Use = Use {
    command: &["compare"],
    arguments: &["a.json", "a.json"],
    reads: &["broken.json"],
};
const SELFTEST: Use = Use {
    command: &["selftest"],
    arguments: &["--backend", "host", "-n", "1", "--quick", "--share", "1/90"],
    reads: &[],
};
const DOCTOR: Use = Use {
    command: &["doctor", "multicast"],
    arguments: &[],
    reads: &[],
};

const COMPLETIONS: Use = Use {
    command: &["completions"],
    arguments: &["bash"],
    reads: &[],
};

/// The kinds of wrong use.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    UnknownOption,
    NoRanks,
    ThousandRanks,
    UnknownBackend,
    BrokenJson,
    JsonInADirectory,
    JsonWhereNothingCanBeMade,
    PageOverADirectory,
    JsonOverAFile,
    PageOverAFile,
}

use Wrong::*;

/// Returns the arguments of the wrong use, and the expected words in the error, with alternatives separated by `|`.
/// `None` if the command reads no file.
fn wrong_words(of: Use, wrong: Wrong) -> Option<(Vec<&'static str>, &'static str)> {
    Some(match wrong {
        UnknownOption => (vec!["--no-such-option"], "--no-such-option"),
        NoRanks => (vec!["--ranks", "0"], "--ranks"),
        ThousandRanks => (vec!["--ranks", "1000"], "--ranks"),
        UnknownBackend => (
            vec!["--backend", "tpu"],
            "tpu' found|no backend `tpu`|--backend",
        ),
        BrokenJson if of.reads.is_empty() => return None,
        BrokenJson => (of.reads.into(), "broken.json"),
        JsonInADirectory => (
            vec!["--json", "no/such/directory/x.json"],
            "--json|a directory",
        ),
        JsonWhereNothingCanBeMade => (vec!["--json", "/proc/x.json"], "--json|/proc/x.json"),
        JsonOverAFile => (vec!["--json", "broken.json"], "--json|broken.json exists"),
        PageOverAFile => (vec!["--html", "broken.json"], "--html|broken.json exists"),
        PageOverADirectory => (vec!["--html", "."], "--html|. cannot be written"),
    })
}

/// Returns the command, and creates the files that its arguments name.
fn used(directory: &Path, of: Use, more: &[&str]) -> Command {
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../benches/results/2026-11-21-copy-engine-2xh200.json");
    std::fs::copy(recorded, directory.join("a.json")).unwrap();
    let shapes = r#"[{"m": 8, "n": 8, "k": 8, "dtype": "bfloat16"}]"#;
    std::fs::write(directory.join("shapes.json"), shapes).unwrap();
    std::fs::write(directory.join("broken.json"), "{\"schema\": ").unwrap();
    let mut command = symmem(directory, &[of.command, more, of.arguments].concat());
    // Finds no driver of this machine.
    command.env("SYMMEM_LIBRARY_PATH", directory);
    command
}

/// Returns the write end of a pipe without a reader.
fn closed_pipe() -> OwnedFd {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

fn full_disk() -> File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

/// Asserts that the command exits with `code` and prints one line that contains `words`.
#[track_caller]
fn says_one_line(command: &mut Command, code: i32, words: &[&str]) {
    let output = command.output().unwrap();
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{command:?}: {error}");
    assert_eq!(error.lines().count(), 1, "{command:?}: {error}");
    assert!(error.starts_with("symmem"), "{command:?}: {error}");
    for word in words {
        assert!(
            word.split('|').any(|word| error.contains(word)),
            "{command:?}: {word:?} is missing in {error}"
        );
    }
}

#[rstest]
fn wrong_use_is_one_line_that_says_what_and_what_to_do(
    #[values(
        EVERYTHING,
        INFO,
        RUN,
        P2P,
        COLLECTIVES,
        AG_GEMM,
        GEMM_AR,
        RMS_NORM,
        ENQUEUE,
        TUNE,
        COMPARE,
        SELFTEST,
        DOCTOR,
        COMPLETIONS
    )]
    of: Use,
    #[values(
        UnknownOption,
        NoRanks,
        ThousandRanks,
        UnknownBackend,
        BrokenJson,
        JsonInADirectory,
        JsonWhereNothingCanBeMade,
        PageOverADirectory,
        JsonOverAFile,
        PageOverAFile
    )]
    wrong: Wrong,
) {
    let directory = directory(&format!("wrong-{}-{wrong:?}", of.command.join("-")));
    let Some((words, said)) = wrong_words(of, wrong) else {
        return;
    };
    // Giving an option twice would be a different error.
    let given = |word: &str| words.contains(&word) || words.contains(&"--ranks") && word == "-n";
    let mut arguments = of.arguments.to_vec();
    if let Some(at) = arguments.iter().position(|word| given(word)) {
        arguments.drain(at..at + 2);
    }
    let of = Use {
        arguments: &arguments.leak()[..],
        ..of
    };
    let mut command = used(&directory, of, &words);
    // The error comes before anything is measured or started.
    let start = std::time::Instant::now();
    says_one_line(&mut command, 2, &[said]);
    assert!(start.elapsed().as_secs() < 30, "{command:?}");
    assert!(!directory.join("x.json").exists());
}

#[rstest]
fn output_that_cannot_be_written_is_one_line_and_a_closed_pipe_is_none(
    #[values(
        EVERYTHING,
        INFO,
        RUN,
        P2P,
        COLLECTIVES,
        AG_GEMM,
        GEMM_AR,
        RMS_NORM,
        ENQUEUE,
        TUNE,
        COMPARE,
        SELFTEST,
        DOCTOR
    )]
    of: Use,
) {
    let directory = directory(&format!("unwritable-{}", of.command.join("-")));
    let mut command = used(&directory, of, &[]);
    command.stdout(full_disk());
    says_one_line(&mut command, 2, &["standard output", "No space left"]);
    command.stdout(closed_pipe());
    let output = command.output().unwrap();
    let error = text(&output.stderr);
    assert_eq!(
        (output.status.code(), &*error),
        (Some(0), ""),
        "{command:?}"
    );
}

#[rstest]
fn a_word_that_is_not_unicode_is_one_line(
    #[values(EVERYTHING, INFO, P2P, AG_GEMM, ENQUEUE, COMPARE, SELFTEST)] of: Use,
) {
    use std::os::unix::ffi::OsStrExt;
    let directory = directory(&format!("no-unicode-{}", of.command.join("-")));
    let mut command = used(&directory, of, &[]);
    let name = std::ffi::OsStr::from_bytes(b"--html=\xff/x.html");
    command.arg(name);
    says_one_line(&mut command, 2, &["--html|cannot be written"]);
    if of.command.first() == Some(&"bench") || of.command.is_empty() {
        let mut command = used(&directory, of, &[]);
        // Ranks get their task as JSON, which has no such names.
        command
            .arg("--json")
            .arg(std::ffi::OsStr::from_bytes(b"\xff.json"));
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        assert_eq!(text(&output.stderr).lines().count(), 1);
    }
}

#[test]
fn ranks_that_write_for_ever_end_with_the_pipe_that_they_write_to() {
    for plain in [&[][..], &["--plain"]] {
        let directory = directory("endless");
        let arguments = [&["run", "-n", "2"][..], plain, &["--", "sh", "-c", ENDLESS]].concat();
        let mut command = symmem(&directory, &arguments);
        command.stdout(closed_pipe()).stderr(Stdio::piped());
        let start = std::time::Instant::now();
        let output = command.output().unwrap();
        assert!(start.elapsed().as_secs() < 10);
        assert_eq!(
            (output.status.code(), &*text(&output.stderr)),
            (Some(0), "")
        );
        let pids = std::fs::read_to_string(directory.join("pids")).unwrap();
        assert!(pids.lines().count() <= 2);
        for pid in pids.lines() {
            assert!(!Path::new("/proc").join(pid).exists(), "{pid} still runs");
        }
    }
}

const ENDLESS: &str = "echo $$ >> pids; exec yes";
