//! Failures at the start: wrong devices, drivers and plugins.

use crate::built;
use crate::built::hip::{Release, fake_hip, fake_hip_without, is_installed};
use crate::support::{Member, Plan, Setting, World, fresh_name};
use rstest::rstest;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use symmem::DeviceChoice;
use symmem::backends::{Probe, Selection, probe_all};

pub fn role(_role: &str, member: &Member) {
    if member.argument == "probes" {
        let probes = probe_all();
        let lines: Vec<String> = probes.iter().map(Probe::to_string).collect();
        return member.say("probes", lines.join("; "));
    }
    let builder = member.builder();
    let odd = member.rank == member.world - 1;
    let builder = match member
        .argument
        .split_once(' ')
        .unwrap_or((&member.argument, ""))
    {
        ("ordinal", ordinal) if odd => {
            builder.device(DeviceChoice::Ordinal(ordinal.parse().expect("a number")))
        }
        ("uuid", _) if odd => builder.device(DeviceChoice::Uuid(*b"no such device !")),
        ("plugin", path) => builder
            .backend(Selection::Plugin(path.into()))
            .share_kinds(&[]),
        ("named", name) => builder
            .backend(Selection::Named(name.into()))
            .share_kinds(&[]),
        _ => builder,
    };
    let opened = builder.build();
    member.tell("opened", &opened);
    if let Ok(communicator) = opened {
        let used = communicator.allocate::<u32>(&[16]).and_then(|buffer| {
            let stream = communicator.stream()?;
            buffer.write(&stream, 0, &[7; 16])?;
            let mut read = [0; 16];
            buffer.read(&stream, 0, &mut read)?;
            assert_eq!(read, [7; 16]);
            // The fixture can be asked to panic here.
            communicator.memory_information()?;
            buffer.free()
        });
        member.tell("used", &used);
        member.tell("finalized", &communicator.finalize());
    }
}

fn opened(world: &mut World) -> Vec<String> {
    let opened = world.expect("opened");
    world.ends_well();
    opened
}

#[rstest]
fn a_device_that_does_not_exist_is_named_and_the_others_are_told(
    #[values(Setting::Host, Setting::Cuda)] setting: Setting,
    #[values("ordinal 99", "uuid")] choice: &str,
) {
    let errors = opened(&mut Plan::new("start/open", 2, setting).argument(choice).start());
    let words = if choice == "uuid" {
        "UUID"
    } else {
        "no device 99"
    };
    assert!(
        errors[1].starts_with("NoSuchDevice") && errors[1].contains(words),
        "{}",
        errors[1]
    );
    assert!(
        errors[0].starts_with("PeerFailed") && errors[0].contains(words),
        "{}",
        errors[0]
    );
}

#[rstest]
#[case::stub(("FAKE_CUDA_STUB", "1"), &["NoBackend", "stub"])]
#[case::no_device(("CUDA_VISIBLE_DEVICES", ""), &["NoBackend", "CUDA_VISIBLE_DEVICES"])]
#[case::partition(("FAKE_CUDA_MIG", "1"), &["Unsupported", "MIG"])]
#[case::no_peer_access(("FAKE_DEVICE_NO_PEER", "1"), &["PeerUnreachable", "topo -p2p"])]
#[case::old_driver(("FAKE_CUDA_DRIVER_VERSION", "11040"), &[])]
fn a_driver_that_cannot_serve_says_why(#[case] variable: (&str, &str), #[case] words: &[&str]) {
    let plan = Plan::new("start/open", 2, Setting::Cuda).env(variable.0, variable.1);
    for error in opened(&mut plan.start()) {
        // Another rank may fail first; this rank then reports that.
        let told = error.starts_with("PeerFailed");
        assert!(
            words.iter().all(|word| error.contains(word)) || told,
            "{error}"
        );
    }
}

/// Every fault of AMD's runtime has its own error text.
#[test]
fn a_hip_runtime_that_cannot_serve_says_why() {
    let nowhere = library_directory("no-hip", None).display().to_string();
    let lacking = fake_hip_without("hipIpcOpenMemHandle")
        .display()
        .to_string();
    let old = fake_hip(Release::Five).display().to_string();
    let libraries = "SYMMEM_LIBRARY_PATH";
    let mut cases = vec![
        (libraries, &*old, ["NoBackend", "5.7 or newer is needed"]),
        (libraries, &*lacking, ["NoBackend", "hipIpcOpenMemHandle"]),
        ("FAKE_DEVICE_COUNT", "0", ["NoBackend", "hipInit"]),
        ("FAKE_HIP_ARCHITECTURE", "gfx1100", ["gfx1100", "gfx942"]),
    ];
    match is_installed() {
        true => built::skipped("without a library: a runtime of AMD's is installed here"),
        false => cases.push((libraries, &nowhere, ["NoBackend", "libamdhip64.so.7"])),
    }
    let mut errors = Vec::new();
    for &(variable, value, words) in &cases {
        let plan = Plan::new("start/open", 1, Setting::Hip).env(variable, value);
        let mut world = plan.start();
        let error = world.expect("opened").remove(0);
        world.ranks[0].ends_well();
        // A fake whose functions are never called writes no report.
        if variable != libraries {
            world.left_nothing();
        }
        let said = words.iter().all(|word| error.contains(word));
        assert!(said, "{variable}={value}: {error}");
        errors.push(error);
    }
    errors.sort();
    errors.dedup();
    assert_eq!(errors.len(), cases.len(), "no two say the same");
}

/// Returns a directory with `contents` as its `libcuda.so.1`.
fn library_directory(name: &str, contents: Option<&[u8]>) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(fresh_name(name));
    std::fs::create_dir_all(&directory).expect("a directory");
    if let Some(contents) = contents {
        std::fs::write(directory.join("libcuda.so.1"), contents).expect("a file");
    }
    directory
}

#[test]
fn a_library_that_is_missing_or_no_library_says_where_it_was_looked_for() {
    for (name, contents) in [
        ("missing", None),
        ("text", Some(&b"this is no ELF file"[..])),
        ("empty", Some(&b""[..])),
        (
            "truncated",
            Some(&b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0"[..]),
        ),
    ] {
        let directory = library_directory(name, contents);
        let plan = Plan::new("start/open", 1, Setting::Cuda);
        let mut world = plan.env("SYMMEM_LIBRARY_PATH", directory.display()).start();
        let error = world.expect("opened").remove(0);
        assert!(
            error.starts_with("NoBackend") && error.contains("libcuda.so.1"),
            "{error}"
        );
        assert!(error.contains("SYMMEM_LIBRARY_PATH"), "{error}");
        world.ranks[0].ends_well();
        let _ = std::fs::remove_dir_all(directory);
    }
}

/// Returns the fixture's plugin file, under the name of its backend.
fn plugin() -> &'static Path {
    static PLUGIN: OnceLock<PathBuf> = OnceLock::new();
    PLUGIN.get_or_init(|| {
        let library = built::fake("libsymmem_plugin_fixture.so");
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(fresh_name("plugin"));
        std::fs::create_dir_all(&directory).expect("a directory");
        let plugin = directory.join("libsymmem_tiny.so");
        std::fs::copy(library, &plugin).expect("a copy");
        plugin
    })
}

fn load(path: &Path, variable: (&str, &str)) -> (String, World) {
    let plan = Plan::new("start/open", 1, Setting::Host);
    let plan = plan.argument(format!("plugin {}", path.display()));
    let mut world = plan.env(variable.0, variable.1).start();
    let opened = world.expect("opened").remove(0);
    (opened, world)
}

#[test]
fn a_plugin_file_is_a_backend_like_any_other() {
    let (opened, mut world) = load(plugin(), ("FIXTURE_FAULT", ""));
    assert_eq!(opened, "ok");
    assert_eq!(world.expect("used"), ["ok"]);
    assert_eq!(world.expect("finalized"), ["ok"]);
    world.ends_well();
}

#[rstest]
#[case("null", "its table is null")]
#[case("unreadable", "`backend` is not in readable memory")]
#[case("misaligned", "not a multiple of 8")]
#[case("magic", "magic bytes")]
#[case("major", "ABI version 2")]
#[case("truncated", "damaged")]
#[case("size", "one of its ABI version has")]
#[case("entry", "entry `open` of its table `backend` is no function")]
#[case("part", "`signals` is not in readable memory")]
#[case("part_size", "`device` has 1099511627776 bytes")]
#[case("part_entry", "entry `launch` of its table `device` is no function")]
fn a_plugin_with_a_bad_table_is_refused(#[case] fault: &str, #[case] words: &str) {
    let (error, mut world) = load(plugin(), ("FIXTURE_FAULT", fault));
    assert!(
        error.starts_with("NoBackend") && error.contains(words),
        "{error}"
    );
    assert!(error.contains("libsymmem_tiny.so: "), "{error}");
    world.ends_well();
}

/// Returns a directory for `SYMMEM_PLUGIN_PATH`: the fixture under its own name, under the name of a plugin for the
/// next major version, and under the name of a built-in backend.
fn plugin_path() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(fresh_name("plugin-path"));
        std::fs::create_dir_all(&directory).expect("a directory");
        for name in ["tiny", "next", "cuda"] {
            let file = directory.join(format!("libsymmem_{name}.so"));
            std::fs::copy(plugin(), file).expect("a copy");
        }
        directory
    })
}

const NEXT: &str = "has backend `next` for plugin ABI 2, and this program needs plugin ABI 1";

#[test]
fn plugins_in_the_plugin_path_are_probed_and_each_that_is_not_used_says_why() {
    let plan = Plan::new("start/open", 1, Setting::Host).argument("probes");
    let mut world = plan
        .env("SYMMEM_PLUGIN_PATH", plugin_path().display())
        .start();
    let probes = world.expect("probes").remove(0);
    let of = |file: &str| {
        let line = probes.split("; ").find(|line| line.contains(file));
        line.unwrap_or_else(|| panic!("no {file} in {probes}"))
    };
    assert!(
        of("libsymmem_tiny.so").ends_with("14 device(s)"),
        "{probes}"
    );
    assert!(probes.contains(NEXT), "{probes}");
    assert!(of("libsymmem_cuda.so").contains("not used"), "{probes}");
    assert!(probes.ends_with("host (built in): 1 device(s)"), "{probes}");
    world.ends_well();
}

#[rstest]
#[case("tiny", "ok")]
#[case("next", NEXT)]
fn a_plugin_in_the_plugin_path_is_selected_by_name(#[case] name: &str, #[case] words: &str) {
    let plan = Plan::new("start/open", 1, Setting::Host).argument(format!("named {name}"));
    let mut world = plan
        .env("SYMMEM_PLUGIN_PATH", plugin_path().display())
        .start();
    let told = world.expect("opened").remove(0);
    assert!(told.contains(words), "{told}");
    world.ends_well();
}

#[rstest]
#[case("device_count", "NoBackend")]
#[case("capabilities", "Backend")]
fn a_plugin_that_panics_is_an_error(#[case] method: &str, #[case] variant: &str) {
    let (error, mut world) = load(plugin(), ("TINY_PANIC", method));
    assert!(
        error.starts_with(variant) && error.contains("panicked"),
        "{error}"
    );
    assert!(error.contains("was asked to panic"), "{error}");
    world.ends_well();
}

#[test]
fn a_plugin_that_panics_later_fails_that_call_only() {
    let (opened, mut world) = load(plugin(), ("TINY_PANIC", "memory_information"));
    assert_eq!(opened, "ok");
    let error = world.expect("used").remove(0);
    assert!(
        error.starts_with("Backend") && error.contains("panicked"),
        "{error}"
    );
    assert_eq!(world.expect("finalized"), ["ok"]);
    world.ends_well();
}

#[test]
fn a_file_that_is_no_plugin_is_refused_by_name() {
    let good = std::fs::read(plugin()).expect("the fixture");
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(fresh_name("bad-plugins"));
    std::fs::create_dir_all(&directory).expect("a directory");
    let write = |name: &str, bytes: &[u8]| {
        let path = directory.join(name);
        std::fs::write(&path, bytes).expect("a file");
        path
    };
    let mut foreign = good.clone();
    // The machine in the ELF header; 243 is RISC-V.
    foreign[18] = 243;
    let folder = directory.join("libsymmem_folder.so");
    std::fs::create_dir(&folder).expect("a directory");
    let fifo = directory.join("libsymmem_fifo.so");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, 0o600.into()).expect("a FIFO");
    let cases = [
        (directory.join("libsymmem_absent.so"), "os error 2"),
        (
            write("libsymmem_text.so", b"#!/bin/sh\n"),
            "not an ELF file",
        ),
        // The dynamic loader would map this one, and end the process with SIGBUS.
        (write("libsymmem_cut.so", &good[..8192]), "truncated"),
        (write("libsymmem_head.so", &good[..100]), "truncated"),
        (write("libsymmem_empty.so", b""), "truncated"),
        (write("libsymmem_foreign.so", &foreign), "RISC-V"),
        (folder, "is a directory"),
        (fifo, "is a FIFO"),
        // A valid file under another backend's name lacks that backend's symbol.
        (
            write("libsymmem_other.so", &good),
            "undefined symbol: symmem_backend_other_v1",
        ),
        (write("other.so", &good), "libsymmem_NAME.so"),
    ];
    for (path, words) in cases {
        let (error, mut world) = load(&path, ("FIXTURE_FAULT", ""));
        let file = path.display().to_string();
        assert!(
            error.starts_with("NoBackend") && error.contains(words) && error.contains(&file),
            "{error}"
        );
        world.ends_well();
    }
    let _ = std::fs::remove_dir_all(directory);
}

#[test]
fn what_is_no_plugin_in_the_plugin_path_is_listed_with_the_reason_and_empty_elements_are_ignored() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(fresh_name("odd-plugins"));
    std::fs::create_dir_all(directory.join("libsymmem_folder.so")).expect("a directory");
    let fifo = directory.join("libsymmem_fifo.so");
    rustix::fs::mkfifoat(rustix::fs::CWD, fifo, 0o600.into()).expect("a FIFO");
    std::os::unix::fs::symlink("nowhere", directory.join("libsymmem_link.so")).expect("a link");
    std::fs::copy(plugin(), directory.join("libsymmem_tiny.so")).expect("a copy");
    let plan = Plan::new("start/open", 1, Setting::Host).argument("probes");
    let path = format!(":{}::", directory.display());
    let mut world = plan.env("SYMMEM_PLUGIN_PATH", path).start();
    let probes = world.expect("probes").remove(0);
    for words in [
        "libsymmem_folder.so is a directory",
        "libsymmem_fifo.so is a FIFO",
        "libsymmem_link.so: stat failed",
        "tiny (from",
    ] {
        assert!(probes.contains(words), "{probes}");
    }
    world.ends_well();
    let _ = std::fs::remove_dir_all(directory);
}

#[rstest]
#[case("", "is not loaded: every user may write")]
#[case("0", "is not loaded: every user may write")]
#[case("1", "ok")]
#[case("yes", "SYMMEM_PLUGIN_WORLD_WRITABLE=`yes` is not 1 or 0")]
fn a_plugin_that_every_user_may_write_is_refused_unless_the_user_allows_it(
    #[case] value: &str,
    #[case] words: &str,
) {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(fresh_name("open-plugins"));
    std::fs::create_dir_all(&directory).expect("a directory");
    let file = directory.join("libsymmem_tiny.so");
    std::fs::copy(plugin(), &file).expect("a copy");
    std::fs::set_permissions(&directory, Permissions::from_mode(0o777)).expect("its owner's");
    let (told, mut world) = load(&file, ("SYMMEM_PLUGIN_WORLD_WRITABLE", value));
    assert!(told.contains(words), "{told}");
    world.ends_well();
    let _ = std::fs::remove_dir_all(directory);
}
