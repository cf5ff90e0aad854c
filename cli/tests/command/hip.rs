//! What `symmem info` prints if AMD's runtime does not work: a specific message for each case, never a panic or an
//! abort.

use super::*;
use crate::support::hip::{Release, fake_hip, fake_hip_without, is_installed};

/// The runtime library of ROCm 5, which Debian 12 packages.
const RELEASE_5: &str = "libamdhip64.so.5";

/// Returns `symmem info` for the HIP backend, with `libraries` first in its library search.
fn info(name: &str, libraries: &Path) -> Command {
    let mut command = symmem(&directory(name), &["info", "--details"]);
    command
        .env("SYMMEM_BACKEND", "hip")
        .env("SYMMEM_LIBRARY_PATH", libraries)
        // AMD's libraries load further libraries.
        .env("LD_LIBRARY_PATH", libraries);
    for name in [
        "ROCM_PATH",
        "VIRTUAL_ENV",
        "HIP_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
    ] {
        command.env_remove(name);
    }
    command
}

/// Returns the output of a command that must exit with the code of a failure.
#[track_caller]
fn refusal(mut command: Command) -> String {
    let output = command.output().unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(
        output.status.code(),
        Some(1),
        "{command:?}: {}\n{said}",
        output.status
    );
    assert!(!said.contains("panicked"), "{said}");
    said
}

#[track_caller]
fn says(said: &str, words: &[&str], not: &[&str]) {
    for word in words {
        assert!(said.contains(word), "{word:?} is missing in {said}");
    }
    for word in not {
        assert!(!said.contains(word), "{word:?} is in {said}");
    }
}

#[test]
fn without_amds_library_it_says_what_to_install() {
    if is_installed() {
        support::skipped("a runtime of AMD's is installed here");
        return;
    }
    let said = refusal(info("hip-none", &directory("hip-nothing")));
    let words = [
        "libamdhip64.so.7",
        "cannot be loaded",
        "install AMD's ROCm runtime",
        "ROCM_PATH",
    ];
    says(&said, &words, &["no symbol", "/dev/kfd"]);
}

/// Tests the real library as Debian packages it: from the directory `SYMMEM_TEST_HIP_RUNTIME`, which CI's step
/// `runtimes` creates, otherwise from the loader's directories.
#[test]
fn with_the_real_library_and_no_device_it_says_that_there_is_no_device() {
    if Path::new("/dev/kfd").exists() {
        support::skipped("this machine may have an AMD device");
        return;
    }
    let named = std::env::var_os("SYMMEM_TEST_HIP_RUNTIME").map(PathBuf::from);
    let here = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
    ];
    let installed = here
        .iter()
        .map(PathBuf::from)
        .find(|place| place.join(RELEASE_5).exists());
    let Some(libraries) = named.or(installed) else {
        let on_ci = std::env::var_os("CI").is_some() && cfg!(target_arch = "x86_64");
        assert!(!on_ci, "CI has {RELEASE_5} by its step `runtimes`");
        support::skipped(&format!(
            "no {RELEASE_5}; Debian's package is libamdhip64-5"
        ));
        return;
    };
    assert!(
        libraries.join(RELEASE_5).exists(),
        "{RELEASE_5} in {}",
        libraries.display()
    );
    let said = refusal(info("hip-real", &libraries));
    let words = ["no AMD device", "/dev/kfd", "amdgpu", "hipInit"];
    says(&said, &words, &["cannot be loaded", "no symbol"]);
}

#[test]
fn with_a_library_that_lacks_a_symbol_it_names_the_symbol_and_the_version() {
    let lacking = fake_hip_without("hipIpcOpenMemHandle");
    let said = refusal(info("hip-lacking", &lacking));
    let words = [
        "no symbol hipIpcOpenMemHandle",
        "libamdhip64.so.7",
        "7.1",
        "install ROCm again",
    ];
    says(&said, &words, &["cannot be loaded", "/dev/kfd"]);
}

#[test]
fn with_a_release_that_is_too_old_it_names_the_file_that_it_found() {
    let old = fake_hip(Release::Five);
    let said = refusal(info("hip-old", old));
    let file = old.join(RELEASE_5).display().to_string();
    let words = [
        &*format!("libamdhip64.so: unavailable: {file}: "),
        "5.7 or newer",
    ];
    says(&said, &words, &["libamdhip64.so.7", "cannot be loaded"]);
}

#[test]
fn a_mask_of_compute_units_is_told_and_counted() {
    let libraries = fake_hip(Release::Seven);
    let mut whole = info("hip-whole", libraries);
    whole
        .env_remove("HSA_CU_MASK")
        .env_remove("ROC_GLOBAL_CU_MASK");
    says(
        &text(&succeed(whole).stdout),
        &["304 compute units"],
        &["_CU_MASK"],
    );
    let mut masked = info("hip-masked", libraries);
    masked
        .env("HSA_CU_MASK", "0,1:0-15")
        .env("ROC_GLOBAL_CU_MASK", "all");
    let words = [
        ", 16 compute units",
        "HSA_CU_MASK leaves 16 compute units",
        "ROC_GLOBAL_CU_MASK is set and not understood",
    ];
    says(
        &text(&succeed(masked).stdout),
        &words,
        &["304 compute units"],
    );
}

#[test]
fn on_mi200_it_says_from_which_release_on_virtual_memory_can_be_shared() {
    let mut old = info("hip-mi200", fake_hip(Release::Seven));
    old.env("FAKE_HIP_ARCHITECTURE", "gfx90a");
    let words = ["device_0_vmm: unavailable", "from version 7.2 on"];
    says(&text(&succeed(old).stdout), &words, &[]);
}

/// Returns the baselines of a short benchmark on the HIP backend.
fn baselines(
    name: &str,
    libraries: &Path,
) -> Vec<symmem_bench::report::collectives::BaselineState> {
    let directory = directory(name);
    let mut arguments = vec![
        "bench",
        "collectives",
        "--backend",
        "hip",
        "--quick",
        "-n",
        "2",
    ];
    arguments.extend([
        "--op",
        "all_reduce",
        "--min-bytes",
        "8K",
        "--max-bytes",
        "8K",
    ]);
    arguments.extend(["--baseline", "nccl,rccl-windows", "--json", "c.json"]);
    let mut command = symmem(&directory, &arguments);
    command
        .env("SYMMEM_LIBRARY_PATH", libraries)
        .env("LD_LIBRARY_PATH", libraries)
        .env("FAKE_DEVICE_COUNT", "2")
        .env_remove("VIRTUAL_ENV");
    succeed(command);
    let report = report(&directory.join("c.json"));
    report.collectives.unwrap().baselines
}

#[test]
fn the_vendors_library_is_called_rccl_where_it_is_measured_and_where_it_is_missing() {
    let libraries = fake_hip(Release::Seven);
    let names = ["rccl", "rccl windows"];
    let found = baselines("hip-rccl", libraries);
    assert_eq!([&*found[0].name, &*found[1].name], names);
    let version = found[0].version.as_deref().unwrap_or_default();
    assert!(version.starts_with("RCCL "), "{:?}", found[0]);
    // Plain memory cannot be a symmetric window.
    let why = found[1].absent.as_deref().unwrap_or_default();
    assert!(
        why.contains("RCCL 2.28.9 has no symmetric windows"),
        "{why}"
    );
    assert!(!why.contains("NVLink"), "{why}");
    if is_installed() {
        support::skipped("without RCCL: ROCm is installed here");
        return;
    }
    // A directory with only the runtime.
    let alone = directory("hip-runtime-alone");
    let runtime = "libamdhip64.so.7";
    std::os::unix::fs::symlink(libraries.join(runtime), alone.join(runtime)).unwrap();
    let missing = baselines("hip-no-rccl", &alone);
    assert_eq!([&*missing[0].name, &*missing[1].name], names);
    for baseline in &missing {
        let why = baseline.absent.as_deref().unwrap_or_default();
        assert!(
            why.contains("librccl.so.1") && why.contains("install RCCL"),
            "{why}"
        );
        assert!(!why.contains("libnccl"), "{why}");
    }
}
