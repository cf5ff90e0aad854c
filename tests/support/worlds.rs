//! Worlds of ranks for the conformance suite: processes of the test itself, on the host backend or on
//! CUDA or HIP over the fake runtimes.

use super::hip::{Release, fake_hip};
use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};
use symmem::ShareKind;
use symmem::backends::Selection;
use symmem_conformance::{Outcome, Totals, World, WorldOptions};

/// Set for the processes that are ranks of a world.
pub const RANK: &str = "SYMMEM_CONFORMANCE_RANK";

/// A backend as it is come by, and how it shares memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    /// The reference.
    Host,
    /// CUDA, linked, over the fake driver.
    Linked,
    /// CUDA, loaded from a plugin file, over the fake driver.
    Plugin,
    /// CUDA with memory shared by file descriptors of the virtual memory management.
    Vmm,
    /// CUDA with memory shared by legacy handles.
    LegacyIpc,
    /// HIP, linked, over the fake runtime, with memory shared by its inter-process handles.
    HipLinked,
    /// HIP, loaded from a plugin file, over the fake runtime.
    HipPlugin,
    /// HIP with memory shared by file descriptors of the virtual memory management.
    HipVmm,
    /// HIP over the fake runtime as an older release.
    HipSix,
}

impl Backend {
    /// Whether it is HIP, over which release of the fake runtime.
    fn hip(self) -> Option<Release> {
        match self {
            Self::HipLinked | Self::HipPlugin | Self::HipVmm => Some(Release::Seven),
            Self::HipSix => Some(Release::Six),
            _ => None,
        }
    }

    /// Whether it is HIP.
    pub fn is_hip(self) -> bool {
        self.hip().is_some()
    }

    /// The CUDA backend whose cases a HIP one gets: come by in the same way, or sharing memory in it.
    pub fn counterpart(self) -> Option<Self> {
        match self {
            Self::HipLinked | Self::HipSix => Some(Self::Linked),
            Self::HipPlugin => Some(Self::Plugin),
            Self::HipVmm => Some(Self::Vmm),
            _ => None,
        }
    }

    /// Where the libraries of its vendor are, if it has one.
    fn libraries(self) -> Option<&'static Path> {
        match self.hip() {
            Some(release) => Some(fake_hip(release)),
            None if self == Self::Host => None,
            None => Some(super::fake_driver_and_libraries()),
        }
    }
}

/// Whether all cases are wanted, or the sample.
pub fn is_full() -> bool {
    std::env::var("SYMMEM_CONFORMANCE").is_ok_and(|wanted| wanted == "full")
}

/// Whether a test that only `SYMMEM_TEST_FULL=1` or all cases ask for is left out, which it then says
/// past the harness.
pub fn left_out(name: &str) -> bool {
    let wanted = std::env::var("SYMMEM_TEST_FULL").is_ok_and(|value| value != "0");
    if wanted || is_full() {
        return false;
    }
    let _ = writeln!(
        std::io::stderr(),
        "skipped: {name}: SYMMEM_TEST_FULL=1 runs it"
    );
    true
}

/// A world, and which part of its cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    pub backend: Backend,
    pub ranks: u32,
    pub threads: bool,
    pub part: usize,
}

/// What AMD's devices, or the library for them, do not have. HIP does everything else that CUDA does.
const LACKS: [&str; 2] = ["the device has no bulk copies", "has no symmetric windows"];

/// What became of a part's cases: they are run by whichever test asks first, and once.
pub fn once(part: Part, run: impl FnOnce() -> Vec<Outcome>) -> Vec<Outcome> {
    type Runs = Mutex<HashMap<Part, Arc<OnceLock<Vec<Outcome>>>>>;
    static RUNS: LazyLock<Runs> = LazyLock::new(Mutex::default);
    let mut runs = RUNS.lock().unwrap_or_else(PoisonError::into_inner);
    let here = runs.entry(part).or_default().clone();
    drop(runs);
    // Where it panics, the next who asks runs it again.
    here.get_or_init(run).clone()
}

/// Holds a part of a HIP world against the same on CUDA, adds what is wrong and says how many cases that were;
/// `outcomes` gives, or finds out, what became of the cases of either.
pub fn held_against_cuda(
    hip: Part,
    outcomes: impl Fn(Part) -> Vec<Outcome>,
    wrong: &mut Vec<String>,
) -> usize {
    let backend = hip.backend.counterpart();
    let backend = backend.expect("every HIP backend has one");
    let (on_cuda, on_hip) = (outcomes(Part { backend, ..hip }), outcomes(hip));
    let found = differences(&on_cuda, &on_hip).into_iter();
    wrong.extend(found.map(|found| format!("{hip:?}: {found}")));
    on_hip.len()
}

/// Where HIP does less than CUDA, case by case, for no reason that [`LACKS`] names.
pub fn differences(cuda: &[Outcome], hip: &[Outcome]) -> Vec<String> {
    let mut wrong = Vec::new();
    if cuda.len() != hip.len() {
        wrong.push(format!(
            "{} cases on CUDA, {} on HIP",
            cuda.len(),
            hip.len()
        ));
    }
    for (number, (on_cuda, on_hip)) in cuda.iter().zip(hip).enumerate() {
        if let (Outcome::Passed, Outcome::Skipped(reason)) = (on_cuda, on_hip)
            && !LACKS.iter().any(|lack| reason.contains(lack))
        {
            wrong.push(format!(
                "case {number} passes on CUDA, and HIP skips it: {reason}"
            ));
        }
    }
    wrong
}

/// Before the number of processes that are to report.
const EXPECTED: &str = "expected reports: ";

/// Where the fake driver writes what a world's ranks did wrong.
fn violations(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.report"))
}

/// A world whose ranks run the test `rank_process` of the same file.
pub fn options(backend: Backend, ranks: u32, threads: bool, name: &str) -> WorldOptions {
    let test = std::env::current_exe().expect("a test knows its own file");
    let mut options = WorldOptions {
        threads,
        ..WorldOptions::new(ranks, test)
    };
    options.arguments = ["--exact", "rank_process", "--nocapture"]
        .iter()
        .map(Into::into)
        .collect();
    options.environment.push((RANK.into(), "1".into()));
    options.backend = match backend {
        Backend::Host => Selection::Named("host".into()),
        Backend::Plugin => Selection::Plugin(super::cuda_plugin().into()),
        Backend::HipPlugin => Selection::Plugin(super::hip::hip_plugin().into()),
        _ if backend.hip().is_some() => Selection::Named("hip".into()),
        _ => Selection::Named("cuda".into()),
    };
    options.share_kinds = match backend {
        Backend::Vmm | Backend::HipVmm => vec![ShareKind::VmmFileDescriptor],
        Backend::LegacyIpc => vec![ShareKind::LegacyIpc],
        _ => Vec::new(),
    };
    if let Some(libraries) = backend.libraries() {
        let report = violations(name);
        // How many processes are to report: a report that is missing must not be taken for one without
        // complaints.
        let processes = if threads { 1 } else { ranks };
        std::fs::write(&report, format!("{EXPECTED}{processes}\n")).expect("the report's file");
        options.environment.extend([
            ("SYMMEM_LIBRARY_PATH".into(), libraries.into()),
            ("NCCL_NVLS_ENABLE".into(), "0".into()),
            ("FAKE_DEVICE_COUNT".into(), "4".into()),
            ("FAKE_DEVICE_REPORT".into(), report.into()),
        ]);
    }
    options
}

/// What must hold of a world that has ended: in good order, nothing left, the driver not misused.
pub fn end(world: World, name: &str) {
    if let Err(error) = world.finish() {
        panic!("{name}: {error}");
    }
    let report = std::fs::read_to_string(violations(name)).unwrap_or_default();
    let (told, wrong): (Vec<&str>, Vec<&str>) = report
        .lines()
        .filter(|line| !line.starts_with(EXPECTED))
        .partition(|line| line.starts_with("process "));
    // The host backend has no driver.
    let expected = report.lines().find_map(|line| line.strip_prefix(EXPECTED));
    let expected = expected.map_or(0, |count| count.parse().expect("a number"));
    assert_eq!(told.len(), expected, "{name}: reports in\n{report}");
    assert!(
        wrong.is_empty(),
        "{name}: the driver's report:\n{}",
        wrong.join("\n")
    );
}

/// Leaves a world's totals, of `all` cases that there are, to `cargo xtask conformance`, and says
/// them past the tests' harness.
pub fn account(name: &str, totals: &Totals, all: usize) {
    let line = format!("conformance: {name}: {totals}, of {all} cases in all");
    let _ = writeln!(std::io::stderr(), "{line}");
    if let Some(file) = std::env::var_os("SYMMEM_CONFORMANCE_TOTALS") {
        let line = serde_json::json!({ "world": name, "all": all, "totals": totals });
        let file = std::fs::File::options()
            .append(true)
            .create(true)
            .open(file);
        let mut file = file.expect("the totals' file can be written");
        writeln!(file, "{line}").expect("the totals' file can be written");
    }
}
