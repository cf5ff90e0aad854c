//! FlashInfer's and vLLM's all-reduces as baselines, with a stand-in for the program that speaks its protocol.

use super::*;
use rstest::rstest;

/// A stand-in that measures nothing. `greeting` is what a rank says first, `limit` the number of commands that it obeys
/// before it says that it has failed.
pub fn stand_in(directory: &Path, greeting: &str, limit: u32) -> PathBuf {
    let script = format!(
        r#"#!/bin/sh
echo $$ >> pids
rank=$1
echo "$*" > "arguments-$rank"
{greeting}
read -r line
echo "$line" > "handles-$rank"
[ "$line" = quit ] && exit 0
echo "ready flashinfer-python 0.0.1"
left={limit}
while read -r command library operation kind bytes placement how rest; do
    [ "$left" -gt 0 ] || {{ echo "error no progress within 60 s"; exit 1; }}
    left=$((left - 1))
    case "$command $library $operation $how" in
    *\ two-shot\ *) echo "absent two-shot takes more rows than ranks" ;;
    check\ *\ all_reduce\ *) echo "wrong 0 100" ;;
    time\ vllm\ *) echo "result 900" ;;
    time\ *loop) echo "result $((2000 + rank))" ;;
    time\ *graph) echo "result $((1000 + rank))" ;;
    single\ *) echo "samples 2000 3000" ;;
    between\ loop\ *) echo "result $((500 + rank))" ;;
    between\ graph\ *) echo "result $((400 + rank))" ;;
    quit*) exit 0 ;;
    *) echo "absent it has an all-reduce only" ;;
    esac
done
"#
    );
    program(directory, &script)
}

pub const HANDLE: &str = r#"echo "shared ab$rank""#;

fn beside(directory: &Path, baselines: &str, program: Option<&Path>) -> Command {
    let arguments = [
        "bench",
        "collectives",
        "--backend",
        "host",
        "-n",
        "2",
        "--baseline",
        baselines,
        "--min-bytes",
        "1K",
        "--max-bytes",
        "2K",
        "--type",
        "bf16",
        "--rounds",
        "2",
        "--op",
        "all_reduce,all_gather",
        "--json",
        "c.json",
    ];
    let mut command = symmem(directory, &arguments);
    if let Some(program) = program {
        command.env("SYMMEM_FLASHINFER_BASELINE", program);
    }
    command
}

#[test]
fn its_processes_get_the_handles_of_all_and_each_kernel_is_a_baseline() {
    let directory = directory("flashinfer");
    let program = stand_in(&directory, HANDLE, 1_000_000);
    let output = succeed(beside(&directory, "flashinfer,vllm", Some(&program)));
    let output = text(&output.stdout);
    let told = "baseline flashinfer one-shot plain: flashinfer-python 0.0.1";
    assert!(output.contains(told), "{output}");
    for rank in 0..2 {
        let file = |name: &str| std::fs::read_to_string(directory.join(format!("{name}-{rank}")));
        assert_eq!(file("handles").unwrap().trim(), "shared ab0 ab1");
        let arguments = file("arguments").unwrap();
        let words: Vec<&str> = arguments.split_whitespace().collect();
        let own = rank.to_string();
        assert_eq!((words[0], words[1]), (own.as_str(), "2"));
        assert_eq!(words[3..], ["2048", "bfloat16"], "at most 2 KiB");
    }
    let report = report(&directory.join("c.json"));
    let section = collectives(&report);
    let found = |by: &str| -> Vec<_> {
        let points = section.points.iter();
        points.filter(|point| point.by == by).collect()
    };
    for by in [
        "flashinfer one-shot",
        "flashinfer one-shot late",
        "flashinfer one-shot plain",
        "vllm",
    ] {
        assert_eq!(found(by).len(), 2, "{by}: two sizes of the all-reduce");
    }
    assert!(found("flashinfer two-shot").is_empty());
    let placed = found("flashinfer one-shot")[0].out_of_place.unwrap();
    assert_eq!(placed.graph.unwrap().ns, 1001.0, "of the slower rank");
    assert_eq!(placed.looped.unwrap().ns, 2001.0);
    assert_eq!(placed.checked, 200);
    have_ended(&directory);
}

/// Returns the options that a rank of the stand-in got, behind the five arguments that it always gets.
pub fn options(directory: &Path, rank: u32) -> Vec<String> {
    let arguments = std::fs::read_to_string(directory.join(format!("arguments-{rank}"))).unwrap();
    arguments
        .split_whitespace()
        .skip(5)
        .map(str::to_owned)
        .collect()
}

#[test]
fn with_a_kernel_between_calls_its_processes_get_the_same_and_time_it_alone() {
    let directory = directory("flashinfer-between");
    let program = stand_in(&directory, HANDLE, 1_000_000);
    let mut command = beside(&directory, "flashinfer,gloo", Some(&program));
    command.args(["--between", "copy"]);
    let output = text(&succeed(command).stdout);
    for rank in 0..2 {
        assert_eq!(
            options(&directory, rank),
            ["--copy", "16777216", "264", "512"]
        );
    }
    let report = report(&directory.join("c.json"));
    let section = collectives(&report);
    let between = section.between.as_ref().unwrap();
    assert_eq!(between.in_programs.len(), 1);
    let alone = between.in_programs[0].alone;
    assert_eq!(alone.graph.unwrap().ns, 401.0, "of the slower rank");
    assert_eq!(alone.looped.unwrap().ns, 501.0);
    assert!(
        output.contains(" µs alone (0.40 µs in flashinfer);"),
        "{output}"
    );
    let by = |name: &str| section.points.iter().any(|point| point.by == name);
    assert!(by("flashinfer one-shot") && !by("gloo"));
    have_ended(&directory);
}

#[test]
fn launched_plainly_its_one_shot_is_measured_once_and_the_report_names_the_launch_mode() {
    let directory = directory("flashinfer-plain");
    let program = stand_in(&directory, HANDLE, 1_000_000);
    let measure = |more: &[&str]| {
        let mut command = beside(&directory, "flashinfer,vllm", Some(&program));
        command.args(more);
        succeed(command);
        report(&directory.join("c.json"))
    };
    let dependent = measure(&[]);
    assert!(options(&directory, 0).is_empty());
    let plain = measure(&["--plain", "--force"]);
    assert_eq!(options(&directory, 1), ["--plain"]);
    let named = |report: &Report| {
        let mut notes = report.notes.iter();
        let in_notes = notes.any(|note| note.starts_with("launch mode plain: "));
        (collectives(report).plain, in_notes)
    };
    assert_eq!(
        (named(&dependent), named(&plain)),
        ((false, false), (true, true))
    );
    let section = collectives(&plain);
    let by = |name: &str| section.points.iter().any(|point| point.by == name);
    assert!(by("flashinfer one-shot plain") && by("vllm"));
    for name in ["flashinfer one-shot", "flashinfer one-shot late"] {
        let mut baselines = section.baselines.iter();
        let absent = baselines.find(|one| one.name == name).unwrap();
        let why = absent.absent.as_deref().unwrap();
        assert!(
            !by(name) && why.contains("flashinfer one-shot plain"),
            "{why}"
        );
    }
}

#[rstest]
#[case::not_named(None, "SYMMEM_FLASHINFER_BASELINE is not set; build the program")]
#[case::not_there(Some("/no/such/program"), "/no/such/program: cannot be started")]
fn without_the_program_its_baselines_are_absent_and_the_reason_says_how_to_build_it(
    #[case] program: Option<&str>,
    #[case] reason: &str,
) {
    let name = program.map_or("not-named", |_| "not-there");
    let directory = directory(&format!("no-flashinfer-{name}"));
    succeed(beside(
        &directory,
        "flashinfer,vllm",
        program.map(Path::new),
    ));
    let report = report(&directory.join("c.json"));
    let section = collectives(&report);
    assert_eq!(section.baselines.len(), 5);
    for baseline in &section.baselines {
        let absent = baseline.absent.as_deref().unwrap();
        assert!(absent.contains(reason), "{absent}");
        assert!(absent.contains("benches/baselines/build_flashinfer.sh"));
    }
    assert!(section.points.iter().all(|point| point.by == OURS));
}

#[test]
fn a_rank_that_cannot_take_part_ends_the_others_processes() {
    let directory = directory("flashinfer-absent");
    let greeting = format!(r#"[ "$rank" = 1 ] && {{ echo "absent no GPU"; exit 0; }}; {HANDLE}"#);
    let program = stand_in(&directory, &greeting, 1_000_000);
    let output = text(&succeed(beside(&directory, "vllm", Some(&program))).stdout);
    assert!(output.contains("baseline vllm: absent, no GPU"), "{output}");
    let told = std::fs::read_to_string(directory.join("handles-0")).unwrap();
    assert_eq!(told.trim(), "quit");
    have_ended(&directory);
}

#[test]
fn what_its_watchdog_says_is_a_note_and_not_the_end_of_the_run() {
    let directory = directory("flashinfer-watchdog");
    let program = stand_in(&directory, HANDLE, 4);
    succeed(beside(&directory, "flashinfer", Some(&program)));
    let report = report(&directory.join("c.json"));
    let told = |note: &String| note.contains("no progress within 60 s");
    assert!(report.notes.iter().any(told), "{:?}", report.notes);
    let ours = collectives(&report).points.iter();
    assert_eq!(ours.filter(|point| point.by == OURS).count(), 4);
    have_ended(&directory);
}

#[test]
fn the_script_that_builds_it_says_in_a_line_what_is_missing() {
    let directory = directory("build-flashinfer");
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../benches/baselines/build_flashinfer.sh")
        .canonicalize()
        .unwrap();
    let error = |python: &str, package: &Path| {
        let mut command = Command::new("sh");
        command.arg(&script).arg(&directory);
        command.env("PYTHON", python).env("FLASHINFER", package);
        let error = fail(command);
        assert_eq!(error.lines().count(), 1, "{error}");
        error
    };
    let said = error("/no/such/python", Path::new(""));
    assert!(
        said.contains("/no/such/python has no flashinfer-python"),
        "{said}"
    );
    let said = error("/no/such/python", &directory);
    assert!(
        said.contains("trtllm_allreduce_fusion.cuh is missing"),
        "{said}"
    );
}
