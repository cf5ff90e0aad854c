//! Programs that call NCCL, with the library in NCCL's place: over the fake driver, beside a stub of NCCL and without one.

#[path = "../../tests/support/fakes.rs"]
#[allow(dead_code, reason = "these tests need the driver only")]
mod fakes;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Files of these tests.
fn files() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// The library: cargo builds it before these tests.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("the test's own file");
    let mut folders = test.ancestors().skip(1);
    let with_it = folders.find(|folder| folder.join("libsymmem_nccl.so").is_file());
    let folder = with_it.expect("cargo builds the library first");
    folder.join("libsymmem_nccl.so")
}

/// Compiles a file of this folder.
fn compile(source: &str, to: &Path, flags: &[&str]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(source);
    std::fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
    let fresh = to.with_extension(format!("new-{}", std::process::id()));
    let output = Command::new("cc")
        .args([
            "-Wall",
            "-Wextra",
            "-Werror",
            "-Wno-deprecated-non-prototype",
            "-Wno-unused-parameter",
        ])
        .arg("-o")
        .arg(&fresh)
        .arg(source)
        .args(flags)
        .output()
        .expect("a C compiler");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    std::fs::rename(&fresh, to).expect("a file");
}

/// The stub of NCCL, under NCCL's name.
static STUB: LazyLock<PathBuf> = LazyLock::new(|| {
    let stub = files().join("stub-nccl/libnccl.so.2");
    compile(
        "stub_nccl.c",
        &stub,
        &["-shared", "-fPIC", "-Wl,-soname,libnccl.so.2"],
    );
    stub
});

/// The program that opens the library by its file.
static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
    let program = files().join("calls-nccl");
    compile("program.c", &program, &["-ldl", "-pthread"]);
    program
});

/// The program that is linked to NCCL.
static LINKED: LazyLock<PathBuf> = LazyLock::new(|| {
    let program = files().join("links-nccl");
    let stub = STUB.to_str().expect("text");
    compile(
        "program.c",
        &program,
        &["-ldl", "-pthread", "-Wl,--no-as-needed", stub],
    );
    program
});

/// A job of a program.
struct Job {
    program: PathBuf,
    role: &'static str,
    variables: Vec<(&'static str, OsString)>,
    /// Ranks are threads of one process.
    threads: bool,
    /// A function of NCCL's that fails on rank 0 only.
    first_refuses: Option<&'static str>,
    folder: PathBuf,
}

/// How a job ended.
struct Ended {
    ranks: Vec<Output>,
    /// What NCCL was called for.
    nccl: Vec<String>,
}

impl Job {
    /// A job of a program that opens the library in NCCL's place, without NCCL.
    fn alone(role: &'static str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = files().join(format!("job-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        Self {
            program: PROGRAM.clone(),
            role,
            variables: vec![
                ("NCCL_FILE", library().into()),
                ("SYMMEM_NCCL_LIBRARY", "none".into()),
            ],
            threads: false,
            first_refuses: None,
            folder,
        }
    }

    /// A job of a program that opens the library in NCCL's place, beside NCCL.
    fn beside_nccl(role: &'static str) -> Self {
        Self::alone(role).with("SYMMEM_NCCL_LIBRARY", STUB.as_path())
    }

    fn with(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.variables.push((name, value.into()));
        self
    }

    fn run(self) -> Ended {
        let report = self.folder.join("report");
        let processes = if self.threads { 1 } else { 2 };
        let ranks = (0..processes).map(|rank: u32| {
            let driver = fakes::fake_driver();
            let mut command = Command::new(&self.program);
            command
                .arg(self.role)
                .envs((!self.threads).then(|| ("RANK", rank.to_string())))
                .env("WORLD", "2")
                // All on this host, so that a busy machine has time to bring them together.
                .env("WORLD_SIZE", "2")
                .env("LOCAL_WORLD_SIZE", "2")
                .envs(
                    (rank == 0)
                        .then_some(self.first_refuses)
                        .flatten()
                        .map(|name| ("STUB_REFUSES", name)),
                )
                .env("ID", self.folder.join("id"))
                .env("STUB_LOG", self.folder.join(format!("nccl-{rank}")))
                .env("LD_LIBRARY_PATH", driver)
                .env("SYMMEM_LIBRARY_PATH", driver)
                .env("FAKE_DEVICE_COUNT", "2")
                .env("FAKE_DEVICE_REPORT", &report)
                .env("NCCL_NVLS_ENABLE", "0")
                .env("SYMMEM_NCCL_REPORT", "1")
                .envs(self.variables.iter().map(|(name, value)| (name, value)))
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            command.spawn().expect("the program starts")
        });
        let ranks: Vec<_> = ranks.collect();
        let ranks = (ranks.into_iter()).map(|rank| rank.wait_with_output().expect("its end"));
        let ranks: Vec<Output> = ranks.collect();
        let told = std::fs::read_to_string(&report).unwrap_or_default();
        let wrong: Vec<&str> =
            (told.lines().filter(|line| !line.starts_with("process "))).collect();
        let log = std::fs::read_to_string(self.folder.join("nccl-0")).unwrap_or_default();
        let ended = Ended {
            ranks,
            nccl: log.lines().map(str::to_owned).collect(),
        };
        std::fs::remove_dir_all(&self.folder).expect("ours");
        // A rank that failed leaves what it had.
        if ended.ranks.iter().all(|rank| rank.status.success()) {
            assert!(wrong.is_empty(), "the driver's report: {wrong:#?}");
        }
        ended
    }
}

impl Ended {
    /// Checks that all ranks ended well, and printed this first.
    #[track_caller]
    fn well(self, line: &str) -> Self {
        for (rank, output) in self.ranks.iter().enumerate() {
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(
                output.status.success(),
                "rank {rank}: {}: {text}",
                output.status
            );
            let told = String::from_utf8_lossy(&output.stdout);
            assert_eq!(told.lines().next(), Some(line), "rank {rank}: {text}");
        }
        self
    }

    /// Returns what a rank wrote on stderr.
    fn told(&self, rank: usize) -> String {
        String::from_utf8_lossy(&self.ranks[rank].stderr).into_owned()
    }
}

#[test]
fn every_collective_has_its_result_where_there_is_no_nccl() {
    let ended = Job::alone("collectives").run().well("served");
    let told = ended.told(0);
    assert!(
        told.contains("symmem does all calls: there is no NCCL: SYMMEM_NCCL_LIBRARY=none"),
        "{told}"
    );
    assert!(
        told.contains("rank 0 of 2, without NCCL: ncclAllReduce: "),
        "{told}"
    );
}

#[test]
fn calls_go_into_graphs_that_the_program_captures() {
    Job::alone("capture").run().well("served");
    Job::beside_nccl("capture").run().well("served");
}

#[test]
fn ranks_may_be_threads() {
    let mut job = Job::alone("collectives");
    job.threads = true;
    job.run().well("served");
}

#[test]
fn two_ranks_on_one_gpu_are_served_though_nccl_refuses_them() {
    let job = Job::beside_nccl("collectives").with("DEVICE", "0");
    let ended = job
        .with("STUB_REFUSES", "ncclCommInitRank")
        .run()
        .well("served");
    assert!(!ended.nccl.iter().any(|name| name == "ncclAllReduce"));
}

#[test]
fn beside_nccl_it_takes_the_calls_that_it_does_faster_and_passes_on_the_rest() {
    let ended = Job::beside_nccl("routes").run().well("served");
    let calls = ended.nccl.iter().filter(|name| !name.contains("Group"));
    let calls: Vec<&str> = calls.map(String::as_str).collect();
    let expected = [
        "ncclGetUniqueId",
        "ncclCommInitRank",
        "ncclAllReduce",
        "ncclRedOpCreatePreMulSum",
        "ncclAllReduce",
        "ncclAllReduce",
        "ncclSend",
        "ncclCommSplit",
        "ncclAllGather",
        "ncclCommDestroy",
        "ncclCommFinalize",
        "ncclCommDestroy",
    ];
    assert_eq!(calls, expected);
    let told = ended.told(0);
    assert!(
        told.contains("ncclAllReduce: 1 by symmem, 3 by NCCL; ncclSend: 1 by NCCL"),
        "{told}"
    );
    // The communicator that NCCL made of it.
    assert!(
        told.contains(" alone: ncclAllGather: 0 by symmem, 1 by NCCL"),
        "{told}"
    );
}

#[test]
fn a_simulated_group_ends_and_does_none_of_its_calls() {
    Job::alone("simulate").run().well("served");
    let ended = Job::beside_nccl("simulate beside NCCL")
        .run()
        .well("served");
    // NCCL estimates symmem's call, too, and nobody does it.
    let calls = &ended.nccl[ended.nccl.len() - 5..];
    let expected = [
        "ncclGroupStart",
        "ncclGroupEnd",
        "ncclAllReduce",
        "ncclGroupSimulateEnd",
        "ncclCommDestroy",
    ];
    assert_eq!(calls, expected);
}

#[test]
fn ranks_join_several_communicators_in_one_group_each_in_its_own_order() {
    for job in [Job::alone, Job::beside_nccl] {
        job("two communicators").run().well("served");
    }
}

#[test]
fn a_rank_whose_group_fails_in_nccl_does_its_part_of_symmems_calls() {
    let mut job = Job::beside_nccl("failed group");
    job.first_refuses = Some("ncclGroupEnd");
    job.run().well("served");
}

#[test]
fn captures_on_one_communicator_do_not_meddle_with_each_other() {
    Job::alone("two captures").run().well("served");
}

#[test]
fn a_program_may_use_many_streams() {
    Job::alone("many streams").run().well("served");
}

#[test]
fn an_asynchronous_error_of_nccls_has_nccls_message() {
    let job = Job::beside_nccl("asynchronous").with("STUB_ASYNC", "6");
    job.run().well("served");
}

#[test]
fn functions_for_the_programs_own_kernels_are_passed_on() {
    Job::beside_nccl("teams").run().well("served");
}

#[test]
fn a_rank_waits_only_briefly_for_ranks_that_may_be_on_another_host() {
    let job = Job::beside_nccl("elsewhere").with("LOCAL_WORLD_SIZE", "8");
    // The first test that needs the driver builds it.
    fakes::fake_driver();
    let start = Instant::now();
    let ended = job.with("WORLD_SIZE", "16").run().well("not served");
    let waited = start.elapsed();
    assert!(waited < Duration::from_secs(14), "{}", ended.told(0));
    assert!(ended.told(0).contains("NCCL does all calls"));
}

#[test]
fn a_most_of_bytes_is_the_users_and_must_be_the_same_everywhere() {
    let job = Job::beside_nccl("collectives").with("SYMMEM_NCCL_MOST_BYTES", "all");
    let ended = job.run().well("served");
    assert!(!ended.nccl.iter().any(|name| name == "ncclAllReduce"));
    let job = Job::beside_nccl("").with("SYMMEM_NCCL_MOST_BYTES", "many");
    let ended = job.run().well("not served");
    assert!(ended.told(0).contains("SYMMEM_NCCL_MOST_BYTES is \"many\""));
}

#[test]
fn ranks_of_another_host_and_identifiers_of_another_library_are_nccls() {
    let ended = Job::beside_nccl("").with("LOCAL_WORLD_SIZE", "1").run();
    let ended = ended.well("not served");
    assert!(
        ended
            .told(0)
            .contains("started 1 processes on this host, and the communicator has 2 ranks")
    );
    let ended = Job::beside_nccl("").with("ID_OF_NCCL", "1").run();
    let ended = ended.well("not served");
    assert!(
        ended.told(0).contains("without symmem"),
        "{}",
        ended.told(0)
    );
}

#[test]
fn a_program_that_is_linked_to_nccl_gets_the_library_by_preloading() {
    let mut job = Job::alone("routes").with("LD_PRELOAD", library());
    job.program = LINKED.clone();
    job.variables
        .retain(|(name, _)| !["NCCL_FILE", "SYMMEM_NCCL_LIBRARY"].contains(name));
    let mut path = OsString::from(fakes::fake_driver());
    path.push(":");
    path.push(STUB.parent().expect("a folder"));
    let ended = job
        .with("LD_LIBRARY_PATH", path)
        .with("STUB_CALLS_ITSELF", "1")
        .run()
        .well("served");
    // A call that NCCL makes of itself stays NCCL's, though symmem would take it from the program.
    let mut calls = ended.nccl.iter().skip_while(|name| *name != "ncclSend");
    assert_eq!(calls.nth(1).map(String::as_str), Some("ncclBroadcast"));
    assert!(
        !ended.told(0).contains("ncclBroadcast"),
        "{}",
        ended.told(0)
    );
}

#[test]
fn under_nccls_name_the_library_does_not_take_itself_for_nccl() {
    let folder = files().join("in-place-of-nccl");
    std::fs::create_dir_all(&folder).expect("a folder");
    let link = folder.join("libnccl.so.2");
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(library(), &link).expect("a link");
    let mut job = Job::alone("collectives");
    job.program = LINKED.clone();
    job.variables
        .retain(|(name, _)| !["NCCL_FILE", "SYMMEM_NCCL_LIBRARY"].contains(name));
    let mut path = OsString::from(fakes::fake_driver());
    path.push(":");
    path.push(&folder);
    // Nor does it look in this machine's Python.
    let job = job
        .with("LD_LIBRARY_PATH", path)
        .with("PATH", "")
        .with("HOME", "");
    job.run().well("served");
}

#[test]
fn a_death_is_told_by_the_asynchronous_error() {
    let ended = Job::alone("death").run();
    let told = String::from_utf8_lossy(&ended.ranks[0].stdout).into_owned();
    assert!(told.ends_with("told\n"), "{told} {}", ended.told(0));
}

#[test]
fn an_abort_ends_what_waits_for_a_peer() {
    Job::alone("abort").run().well("served");
}

#[test]
fn ranks_that_end_a_communicator_at_different_times_leave_nothing_behind() {
    Job::alone("late").run().well("served");
}

#[test]
fn wrong_calls_have_codes_and_messages() {
    // The ranks come to the library one after the other, each with its own mistakes.
    Job::alone("wrong").run().well("served");
}
