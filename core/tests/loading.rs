//! Loading plugin files: the errors for other major versions and other names.

use std::path::{Path, PathBuf};
use std::process::Command;
use symmem_core::backend::{ABI_MAJOR, LoadError, load};

/// Compiles a shared object that exports these symbols; each is a function that returns null.
fn plugin(name: &str, symbols: &[String]) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("loading-{name}"));
    std::fs::create_dir_all(&directory).expect("a directory");
    let source = directory.join("plugin.rs");
    let functions = symbols.iter().map(|symbol| {
        format!("#[unsafe(no_mangle)] pub extern \"C\" fn {symbol}() -> *const u8 {{ std::ptr::null() }}\n")
    });
    std::fs::write(&source, functions.collect::<String>()).expect("a source");
    let file = directory.join(format!("libsymmem_{name}.so"));
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let status = Command::new(compiler)
        .args([
            "--edition=2024",
            "--crate-type=cdylib",
            "--crate-name=plugin",
            "-o",
        ])
        .args([&file, &source])
        .status();
    assert!(status.expect("a compiler").success());
    file
}

fn refused(name: &str, symbols: &[String]) -> LoadError {
    let file = plugin(name, symbols);
    // SAFETY: the file was just built here, and its initializers do nothing.
    unsafe { load(&file, name) }.map(drop).unwrap_err()
}

#[test]
fn a_plugin_for_another_major_is_refused_with_both_numbers_and_what_to_do() {
    let other = ABI_MAJOR + 1;
    let error = refused("newer", &[format!("symmem_backend_newer_v{other}")]);
    assert!(
        matches!(&error, LoadError::OtherMajor { found, .. } if *found == other),
        "{error}"
    );
    let text = error.to_string();
    for words in [
        "libsymmem_newer.so",
        "`newer`",
        &format!("for plugin ABI {other}"),
        &format!("needs plugin ABI {ABI_MAJOR}"),
        "use the plugin file of this program's symmem release",
    ] {
        assert!(text.contains(words), "{text}");
    }
    assert_eq!(error.to_failure().message, text);
}

#[test]
fn a_plugin_of_another_name_is_not_taken_for_one_of_another_major() {
    let error = refused(
        "named",
        &[format!("symmem_backend_other_v{}", ABI_MAJOR + 1)],
    );
    assert!(matches!(error, LoadError::NoSymbol { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("symmem_backend_named_v1"), "{text}");
}

#[test]
fn a_plugin_for_this_major_too_is_asked_for_its_table_of_this_major() {
    let symbols = [ABI_MAJOR, ABI_MAJOR + 1].map(|major| format!("symmem_backend_both_v{major}"));
    let error = refused("both", &symbols);
    assert!(matches!(error, LoadError::NoTable), "{error}");
}
