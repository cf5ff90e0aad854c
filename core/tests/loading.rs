//! Loading plugin files: every file that is no plugin for this program is an error that names it, and no signal.

use rstest::rstest;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use symmem_core::backend::{ABI_MAJOR, LoadError, ObjectError, TableError, WorldWritable, load};

/// Returns an empty directory for this test.
fn directory(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("loading-{name}"));
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).expect("a directory");
    // The tests' own umask may allow everything.
    fs::set_permissions(&directory, Permissions::from_mode(0o755)).expect("its owner's");
    directory
}

/// Compiles a shared object from this source.
fn compiled(name: &str, text: &str) -> PathBuf {
    let directory = directory(name);
    let source = directory.join("plugin.rs");
    fs::write(&source, text).expect("a source");
    let file = directory.join(format!("libsymmem_{name}.so"));
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let status = Command::new(compiler)
        .args([
            "--edition=2024",
            "--crate-type=cdylib",
            "--crate-name=plugin",
            "-Cstrip=symbols",
            "-o",
        ])
        .args([&file, &source])
        .status();
    assert!(status.expect("a compiler").success());
    fs::set_permissions(&file, Permissions::from_mode(0o755)).expect("its owner's");
    file
}

/// Compiles a shared object that exports these symbols; each is a function that returns this address.
fn plugin(name: &str, symbols: &[String], address: usize) -> PathBuf {
    let functions = symbols.iter().map(|symbol| {
        format!("#[unsafe(no_mangle)] pub extern \"C\" fn {symbol}() -> usize {{ {address} }}\n")
    });
    compiled(name, &functions.collect::<String>())
}

/// Returns the symbol of a backend for this program's version of the ABI.
fn symbol(name: &str) -> String {
    format!("symmem_backend_{name}_v{ABI_MAJOR}")
}

/// Returns the error of loading a file, which must name the file.
fn refused(file: &Path, name: &str) -> LoadError {
    // SAFETY: the file was just made here, and its initializers do nothing.
    let error = unsafe { load(file, name, WorldWritable::Refuse) }
        .map(drop)
        .unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&file.display().to_string()), "{text}");
    assert_eq!(error.to_failure().message, text);
    error
}

#[test]
fn a_plugin_for_another_major_is_refused_with_both_numbers_and_what_to_do() {
    let other = ABI_MAJOR + 1;
    let file = plugin("newer", &[format!("symmem_backend_newer_v{other}")], 0);
    let error = refused(&file, "newer");
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
        "undefined symbol",
        "use the plugin file of this program's symmem release",
    ] {
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn a_plugin_of_another_name_is_not_taken_for_one_of_another_major() {
    let symbols = [format!("symmem_backend_other_v{}", ABI_MAJOR + 1)];
    let error = refused(&plugin("named", &symbols, 0), "named");
    assert!(matches!(error, LoadError::NoSymbol { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("symmem_backend_named_v1") && text.contains("undefined symbol"),
        "{text}"
    );
}

#[test]
fn a_plugin_for_this_major_too_is_asked_for_its_table_of_this_major() {
    let symbols = [ABI_MAJOR, ABI_MAJOR + 1].map(|major| format!("symmem_backend_both_v{major}"));
    let error = refused(&plugin("both", &symbols, 0), "both");
    let null = LoadError::BadTable {
        path: PathBuf::new(),
        error: TableError::Null,
    };
    assert_eq!(
        std::mem::discriminant(&error),
        std::mem::discriminant(&null)
    );
    assert!(error.to_string().contains("its table is null"), "{error}");
}

#[rstest]
// The first page is never mapped, nor is the upper half of the addresses.
#[case("low", 16, "is not in readable memory: 24 bytes at 0x10")]
#[case("high", usize::MAX - 7, "is not in readable memory")]
#[case("odd", 4097, "not a multiple of 8")]
fn a_table_that_cannot_be_read_is_refused_by_its_address(
    #[case] name: &str,
    #[case] address: usize,
    #[case] words: &str,
) {
    let error = refused(&plugin(name, &[symbol(name)], address), name);
    assert!(matches!(error, LoadError::BadTable { .. }), "{error:?}");
    assert!(error.to_string().contains(words), "{error}");
}

#[rstest]
#[case("constant", "#[unsafe(no_mangle)] pub static")]
#[case("variable", "#[unsafe(no_mangle)] pub static mut")]
// Some linkers put constants beside code.
#[case(
    "beside_code",
    "#[unsafe(link_section = \".text\")] #[unsafe(no_mangle)] pub static"
)]
fn a_symbol_that_is_data_is_not_called(#[case] name: &str, #[case] item: &str) {
    let symbol = symbol(name);
    let file = compiled(name, &format!("{item} {symbol}: [u64; 64] = [7; 64];"));
    let error = refused(&file, name);
    assert!(matches!(error, LoadError::NotAFunction { .. }), "{error:?}");
    assert!(error.to_string().contains(&symbol), "{error}");
}

#[rstest]
#[case("untyped", ".data", "notype")]
#[case("untyped_code", ".text", "notype")]
#[case("misplaced", ".data", "function")]
fn a_symbol_that_is_no_function_or_not_in_code_is_not_called(
    #[case] name: &str,
    #[case] section: &str,
    #[case] kind: &str,
) {
    let (directory, symbol) = (directory(name), symbol(name));
    let source = directory.join("plugin.s");
    let file = directory.join(format!("libsymmem_{name}.so"));
    let text = format!("{section}\n.globl {symbol}\n.type {symbol}, @{kind}\n{symbol}: .quad 7\n");
    fs::write(&source, text).expect("a source");
    // The compiler's own linker.
    let status = Command::new("cc")
        .args(["-shared", "-nostdlib", "-o"])
        .args([&file, &source])
        .status();
    assert!(status.expect("an assembler").success());
    fs::set_permissions(&file, Permissions::from_mode(0o755)).expect("its owner's");
    let error = refused(&file, name);
    assert!(matches!(error, LoadError::NotAFunction { .. }), "{error:?}");
}

#[test]
fn a_plugin_that_is_cut_anywhere_before_its_last_segments_end_is_truncated() {
    let whole = plugin("cut", &[symbol("cut")], 0);
    let bytes = fs::read(&whole).expect("the file");
    let cut = directory("cut-short").join("libsymmem_cut.so");
    for length in (0..bytes.len()).step_by(bytes.len() / 200) {
        fs::write(&cut, &bytes[..length]).expect("a file");
        match refused(&cut, "cut") {
            LoadError::NotASharedObject {
                error: ObjectError::Truncated { found, .. },
                ..
            } => assert_eq!(found, length as u64),
            // Only what the loader does not use is missing, such as the section headers.
            LoadError::BadTable { .. } if length * 10 > bytes.len() * 9 => return,
            other => panic!("{length} of {} bytes: {other}", bytes.len()),
        }
    }
}

#[test]
fn what_is_no_file_is_refused_without_opening_it() {
    let directory = directory("kinds");
    let named = |kind: &str| directory.join(format!("libsymmem_{kind}.so"));
    fs::create_dir(named("directory")).expect("a directory");
    rustix::fs::mkfifoat(rustix::fs::CWD, named("fifo"), 0o600.into()).expect("a FIFO");
    let _socket = std::os::unix::net::UnixListener::bind(named("socket")).expect("a socket");
    symlink("/dev/null", named("device")).expect("a link");
    for (name, words) in [
        ("directory", "is a directory"),
        ("fifo", "is a FIFO"),
        ("socket", "is a socket"),
        ("device", "is a device"),
    ] {
        let error = refused(&named(name), name);
        assert!(matches!(error, LoadError::NotAFile { .. }), "{error:?}");
        assert!(error.to_string().contains(words), "{error}");
    }
    symlink("nowhere", named("link")).expect("a link");
    for name in ["link", "absent"] {
        let error = refused(&named(name), name);
        assert!(matches!(error, LoadError::NotReadable { .. }), "{error:?}");
        assert!(error.to_string().contains("os error 2"), "{error}");
    }
}

#[test]
fn a_file_of_another_kind_or_for_another_machine_is_refused_before_it_is_loaded() {
    let good = fs::read(plugin("good", &[symbol("good")], 0)).expect("the file");
    let directory = directory("machines");
    // Offsets of the ELF header: class, byte order, type and machine.
    for (name, at, value, words) in [
        ("text", 0, b'#', "not an ELF file"),
        ("narrow", 4, 1, "ELF class 1"),
        ("swapped", 5, 2, "byte order is 2"),
        ("program", 16, 2, "ELF type is 2"),
        ("machine", 18, 243, "it is for RISC-V"),
    ] {
        let mut bytes = good.clone();
        bytes[at] = value;
        let file = directory.join(format!("libsymmem_{name}.so"));
        fs::write(&file, bytes).expect("a file");
        let error = refused(&file, name);
        assert!(
            matches!(error, LoadError::NotASharedObject { .. }),
            "{error:?}"
        );
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn a_library_that_the_loader_refuses_is_refused_in_the_loaders_words() {
    let file = compiled(
        "needy",
        "unsafe extern \"C\" { fn symmem_is_nowhere(); } \
         #[unsafe(no_mangle)] pub extern \"C\" fn needs() { unsafe { symmem_is_nowhere() } }",
    );
    let error = refused(&file, "needy");
    assert!(matches!(error, LoadError::NotLoadable { .. }), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains("undefined symbol: symmem_is_nowhere"),
        "{text}"
    );
}

#[test]
fn a_name_without_a_directory_is_a_file_of_the_working_directory_and_not_of_the_loader() {
    // The dynamic loader would find the C library under this name.
    let file = Path::new("libc.so.6");
    let error = refused(file, "c");
    assert!(matches!(error, LoadError::NotReadable { .. }), "{error:?}");
}

#[test]
fn a_plugin_that_every_user_may_replace_is_refused_unless_the_caller_allows_it() {
    let file = plugin("open", &[symbol("open")], 0);
    let home = file.parent().expect("a directory").to_owned();
    let link = directory("open-link").join("libsymmem_open.so");
    symlink(&file, &link).expect("a link");
    let modes = |directory: u32, mode: u32| {
        fs::set_permissions(&home, Permissions::from_mode(directory)).expect("its owner's");
        fs::set_permissions(&file, Permissions::from_mode(mode)).expect("its owner's");
    };
    for (directory, mode, place) in [(0o755, 0o757, &file), (0o777, 0o755, &home)] {
        modes(directory, mode);
        // A symbolic link from a directory of its owner's does not help.
        for path in [&file, &link] {
            let error = refused(path, "open");
            let text = error.to_string();
            let LoadError::WorldWritable { place: found, .. } = error else {
                panic!("{text}");
            };
            let found = fs::canonicalize(found).expect("a place");
            assert_eq!(found, fs::canonicalize(place).expect("a place"), "{text}");
            assert!(text.contains("SYMMEM_PLUGIN_WORLD_WRITABLE=1"), "{text}");
        }
        // SAFETY: the file was just made here, and its initializers do nothing.
        let allowed = unsafe { load(&file, "open", WorldWritable::Allow) };
        let error = allowed.map(drop).unwrap_err();
        assert!(matches!(error, LoadError::BadTable { .. }), "{error:?}");
    }
    modes(0o755, 0o755);
    let error = refused(&link, "open");
    assert!(matches!(error, LoadError::BadTable { .. }), "{error:?}");
}
