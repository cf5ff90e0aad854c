//! Opening UCX, and what the process keeps of its own.

mod common;

use common::ucx;
use std::path::{Path, PathBuf};
use std::process::Command;
use symmem_ucx::{LIBRARY_VARIABLE, Library, LoadError};

fn scratch(name: &str, content: &[u8]) -> PathBuf {
    let name = format!("symmem-ucx-{}-{name}", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, content).expect("a file");
    path
}

/// Opens a file, which must fail, and removes it.
fn refused(path: &Path) -> LoadError {
    let error = Library::open_file(path).err().expect("refused");
    let _ = std::fs::remove_file(path);
    error
}

fn file_of(soname: &str) -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let mut paths = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5));
    paths.find(|path| path.contains(soname)).map(PathBuf::from)
}

#[test]
fn the_version_is_told() {
    let Some(library) = ucx() else { return };
    let version = library.version();
    println!("UCX {version}, without {:?}", library.missing());
    assert!(library.path().is_absolute() && library.path().is_file());
    let minor = version.split('.').nth(1).expect("major.minor.release");
    assert!(minor.parse::<u32>().expect("a number") >= 13, "{version}");
}

#[test]
fn a_missing_file_says_which_variable_names_it() {
    let error = refused(Path::new("/nowhere/libucp.so.0"));
    assert!(matches!(error, LoadError::NotReadable { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("/nowhere/libucp.so.0") && text.contains(LIBRARY_VARIABLE),
        "{text}"
    );
}

#[test]
fn a_directory_a_text_and_an_empty_file_are_refused_before_the_loader_sees_them() {
    let error = refused(&std::env::temp_dir());
    assert!(matches!(error, LoadError::NotReadable { .. }), "{error}");
    for content in [&b"not a library"[..], b""] {
        let error = refused(&scratch("text", content));
        assert!(
            matches!(error, LoadError::NotASharedObject { .. }),
            "{error}"
        );
    }
}

#[test]
fn a_truncated_library_is_refused_before_the_loader_sees_it() {
    let Some(_library) = ucx() else { return };
    let Some(file) = file_of("libucp.so") else {
        return;
    };
    let whole = std::fs::read(file).expect("the library's file");
    for bytes in [64, 4096, whole.len() / 2] {
        let error = refused(&scratch("truncated", &whole[..bytes]));
        assert!(
            matches!(error, LoadError::NotASharedObject { .. }),
            "{error}"
        );
    }
}

#[test]
fn another_library_lacks_a_function_by_name() {
    let libc = file_of("libc.so").expect("this program uses the C library");
    let error = Library::open_file(&libc).err().expect("refused");
    let text = error.to_string();
    assert!(matches!(error, LoadError::MissingSymbol { .. }), "{text}");
    assert!(
        text.contains("ucp_get_version") && text.contains("1.13"),
        "{text}"
    );
}

/// Compiles a library of some functions, or prints why the test is skipped.
fn compiled(name: &str, source: &str) -> Option<PathBuf> {
    let input = scratch(&format!("{name}.c"), source.as_bytes());
    let output = input.with_extension("so");
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&output, &input])
        .status();
    let _ = std::fs::remove_file(input);
    match status {
        Ok(status) if status.success() => Some(output),
        _ => {
            println!("skipped: there is no C compiler `cc`");
            None
        }
    }
}

const VERSION: &str =
    "void ucp_get_version(unsigned *a, unsigned *b, unsigned *c) { *a = 1; *b = MINOR; *c = 2; }";

#[test]
fn an_older_version_is_named() {
    let source = VERSION.replace("MINOR", "12");
    let Some(path) = compiled("old", &source) else {
        return;
    };
    let error = refused(&path);
    assert!(matches!(error, LoadError::TooOld { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("1.12.2") && text.contains("1.13"), "{text}");
}

#[test]
fn a_version_that_lacks_a_function_names_it() {
    let source = VERSION.replace("MINOR", "22");
    let Some(path) = compiled("partial", &source) else {
        return;
    };
    let error = refused(&path);
    let LoadError::MissingSymbol { symbol, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(symbol, "ucp_get_version_string");
}

#[test]
fn the_variable_names_the_file() {
    const ROLE: &str = "SYMMEM_UCX_TEST_VARIABLE";
    if std::env::var_os(ROLE).is_some() {
        let error = Library::open().err().expect("not a library");
        assert!(
            matches!(error, LoadError::NotASharedObject { .. }),
            "{error}"
        );
        return;
    }
    let path = scratch("named", b"no library");
    let status = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "the_variable_names_the_file"])
        .env(ROLE, "1")
        .env(LIBRARY_VARIABLE, &path)
        .status()
        .expect("this program starts");
    std::fs::remove_file(path).expect("ours");
    assert!(status.success());
}

/// Returns a line of `/proc/self/status`.
fn status_line(name: &str) -> String {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let mut lines = status.lines().filter_map(|line| line.strip_prefix(name));
    lines.next().expect("the line").trim().to_owned()
}

#[test]
fn opening_changes_neither_signal_handlers_nor_the_environment_nor_mmap() {
    const ROLE: &str = "SYMMEM_UCX_TEST_HANDLERS";
    if std::env::var_os(ROLE).is_none() {
        // A process of its own, where no other test has opened UCX.
        let name = "opening_changes_neither_signal_handlers_nor_the_environment_nor_mmap";
        let status = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", name, "--nocapture"])
            .env(ROLE, "1")
            .status()
            .expect("this program starts");
        assert!(status.success());
        return;
    }
    let state = || {
        let variables: Vec<_> = std::env::vars_os().collect();
        (status_line("SigCgt:"), status_line("Threads:"), variables)
    };
    let code = c_library_code();
    let before = state();
    let Some(library) = ucx() else { return };
    assert_eq!(state(), before, "after opening");
    assert!(c_library_code() == code, "the C library's code was patched");
    let context = symmem_ucx::Context::new(&library, &common::tcp()).expect("a context");
    let worker = symmem_ucx::Worker::new(&context).expect("a worker");
    worker.progress();
    let after = state();
    assert_eq!(after.0, before.0, "signal handlers, with a worker");
    assert_eq!(after.2, before.2, "environment, with a worker");
    assert!(c_library_code() == code, "the C library's code was patched");
    println!("threads: {} before, {} with a worker", before.1, after.1);
}

/// Returns the C library's code in memory.
fn c_library_code() -> Vec<u8> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc");
    let line = maps
        .lines()
        .find(|line| line.contains("r-xp") && line.contains("libc.so"))
        .expect("the C library");
    let (range, _) = line.split_once(' ').expect("a range");
    let (start, end) = range.split_once('-').expect("a range");
    let [start, end] = [start, end].map(|text| usize::from_str_radix(text, 16).expect("hex"));
    // SAFETY: the mapping is readable, and code does not change unless someone patches it.
    unsafe { std::slice::from_raw_parts(start as *const u8, end - start) }.to_vec()
}
