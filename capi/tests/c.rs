//! C programs that use the library: the example, an allocator's segments and a GEMM between two ranks, and one that calls everything wrongly. They are compiled
//! with plain `cc`, as C11 and as C++, without warnings.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The folder of the repository.
fn root() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().expect("the package is in the repository")
}

/// The folder that has `libsymmem_c.so`: cargo builds it before these tests.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the test's own file");
    let folders = test.ancestors().skip(1);
    let mut with_it = folders.filter(|folder| folder.join("libsymmem_c.so").is_file());
    with_it
        .next()
        .expect("cargo builds the library first")
        .to_owned()
}

/// Compiles a program against the library, and returns its file.
fn compile(compiler: &str, source: &str, name: &str) -> PathBuf {
    let to = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    // Under the name that is in it, by which the loader looks for it.
    let link = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("libsymmem.so.{}", env!("CARGO_PKG_VERSION_MAJOR")));
    let fresh = to.with_extension("link");
    std::os::unix::fs::symlink(library().join("libsymmem_c.so"), &fresh)
        .and_then(|()| std::fs::rename(&fresh, &link))
        .expect("a link to the library");
    let mut command = Command::new(compiler);
    command
        .args(["-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .arg(&to);
    if compiler == "c++" {
        command.args(["-std=c++17", "-Wno-missing-field-initializers", "-x", "c++"]);
    } else {
        command.arg("-std=c11");
    }
    command
        .arg("-I")
        .arg(root().join("capi/include"))
        .arg(root().join(source));
    command.args(["-x", "none"]).arg(&link);
    command.arg(format!("-Wl,-rpath,{}", env!("CARGO_TARGET_TMPDIR")));
    let output = command.output().expect("a C compiler");
    assert!(
        output.status.success(),
        "{compiler} {source}: {}",
        text(&output)
    );
    to
}

fn text(output: &Output) -> String {
    let both = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    both.concat()
}

/// Runs a program as each of two ranks on the host backend.
fn as_two_ranks(program: &Path, job: &str) -> Vec<Output> {
    let ranks = ["0", "1"].map(|rank| {
        let mut command = Command::new(program);
        command
            .env("SYMMEM_BACKEND", "host")
            .env("SYMMEM_RANK", rank)
            .env("SYMMEM_WORLD", "2")
            .env("SYMMEM_JOB", format!("{job}-{}", std::process::id()))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().expect("the program starts")
    });
    let ends = ranks
        .into_iter()
        .map(|rank| rank.wait_with_output().expect("the program's end"));
    ends.collect()
}

#[test]
fn the_example_runs_between_two_ranks() {
    let program = compile("cc", "examples/c/ring.c", "ring");
    for (rank, output) in as_two_ranks(&program, "ring").iter().enumerate() {
        assert!(output.status.success(), "rank {rank}: {}", text(output));
        let line = format!("rank {rank} of 2: received from rank {}\n", 1 - rank);
        assert_eq!(text(output), line);
    }
}

#[test]
fn parts_of_segments_that_ranks_allocated_alone_become_symmetric() {
    let program = compile("cc", "capi/tests/segments.c", "segments");
    for (rank, output) in as_two_ranks(&program, "segments").iter().enumerate() {
        assert!(output.status.success(), "rank {rank}: {}", text(output));
        let line = format!("rank {rank} shared a part of its segment\n");
        assert_eq!(text(output), line);
    }
}

#[test]
fn an_all_gather_gemm_and_its_results_go_between_two_ranks() {
    let program = compile("cc", "capi/tests/gemm.c", "gemm");
    for (rank, output) in as_two_ranks(&program, "gemm").iter().enumerate() {
        assert!(output.status.success(), "rank {rank}: {}", text(output));
        assert_eq!(text(output), format!("rank {rank} has both products\n"));
    }
}

#[test]
fn the_header_is_c_plus_plus_too() {
    let program = compile("c++", "examples/c/ring.c", "ring-c++");
    for output in as_two_ranks(&program, "ring-c++") {
        assert!(output.status.success(), "{}", text(&output));
    }
}

#[test]
fn a_wrong_call_returns_a_status_whatever_it_is_given() {
    let program = compile("cc", "capi/tests/wrong_calls.c", "wrong_calls");
    let output = Command::new(&program).output().expect("the program runs");
    assert!(
        output.status.success(),
        "{}: {}",
        output.status,
        text(&output)
    );
    assert!(
        text(&output).ends_with("every call returned\n"),
        "{}",
        text(&output)
    );
}
