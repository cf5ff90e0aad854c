//! The options of every command, the color of its output, and results on standard output.

use super::*;
use rstest::rstest;

/// Returns the long options in a command's help.
fn options(command: &[&str]) -> Vec<String> {
    let directory = directory(&format!("help-{}", command.join("-")));
    let help = text(&succeed(symmem(&directory, &[command, &["--help"]].concat())).stdout);
    let lines = help.lines().map(str::trim_start);
    let named = lines.filter(|line| line.starts_with('-'));
    let long = named.filter_map(|line| line.split_whitespace().find(|word| word.starts_with("--")));
    let mut all: Vec<String> = long
        .map(|word| word.trim_matches(['-', ',']).into())
        .collect();
    all.retain(|name| !["help", "version", "color"].contains(&&**name));
    all.sort();
    all
}

#[rstest]
#[case(&[], "backend details force full html json quick ranks")]
#[case(&["info"], "backend details force json")]
#[case(&["run"], "backend node nodes plain ranks reaction rendezvous secret-file")]
#[case(&["bench", "p2p"], "backend baseline force full html json node nodes pairs quick ranks rendezvous secret-file")]
#[case(
    &["bench", "collectives"],
    "algorithm backend baseline between concurrent fit force full html json machine max-bytes min-bytes mpirun node nodes op plain predict quick ranks rendezvous rounds secret-file type"
)]
#[case(
    &["bench", "ag-gemm"],
    "algorithm b-order backend baseline benchmark bias config ddlb explain force html json k m n out quick ranks rounds sharding tile transport tune type validate"
)]
#[case(
    &["bench", "gemm-rs"],
    "algorithm b-order backend benchmark bias chunks config element explain force html json k m n out quick ranks rounds streams transport tune validate"
)]
#[case(
    &["bench", "gemm-ar"],
    "algorithm b-order backend benchmark bias chunks config element explain force html json k m n out quick ranks rounds streams transport tune validate"
)]
#[case(
    &["bench", "rms-norm"],
    "backend baseline benchmark force hidden html json no-residual output quick ranks rounds rows sharded-residual type validate"
)]
#[case(&["bench", "enqueue"], "backend force json quick ranks")]
#[case(&["tune"], "backend full max-bytes min-bytes op out quick ranks rust type")]
#[case(&["compare"], "force html")]
#[case(&["selftest"], "backend crowded force full json nccl nodes only quick ranks share soak")]
#[case(&["completions"], "")]
fn a_command_has_the_options_that_it_honors(#[case] command: &[&str], #[case] expected: &str) {
    assert_eq!(options(command).join(" "), expected);
}

#[test]
#[cfg(feature = "cuda")]
fn the_doctor_has_the_options_that_it_honors() {
    let expected = "backend force full i-own-this-machine json max-bytes op quick ranks";
    assert_eq!(options(&["doctor", "multicast"]).join(" "), expected);
}

#[test]
fn a_result_on_standard_output_is_alone_there() {
    let directory = directory("json-to-standard-output");
    let bench = [
        "bench",
        "p2p",
        "--backend",
        "host",
        "--quick",
        "--json",
        "-",
    ];
    let output = succeed(symmem(&directory, &bench));
    assert!(Report::from_json(&text(&output.stdout)).is_ok());
    assert!(text(&output.stderr).contains("Push, both ways at once"));
    let output = succeed(symmem(
        &directory,
        &["info", "--backend", "host", "--json", "-"],
    ));
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["schema"], "symmem-info/1");
    assert!(!directory.join("-").exists());
    let both = ["--backend", "host", "--json", "-", "--html", "-"];
    assert!(fail(symmem(&directory, &both)).contains("cannot both"));
}

#[test]
fn options_in_front_of_a_command_are_those_of_the_command() {
    let directory = directory("in-front");
    let arguments = ["--backend", "host", "--json", "i.json", "info"];
    succeed(symmem(&directory, &arguments));
    assert!(directory.join("i.json").exists());
    let error = fail(symmem(&directory, &["--html", "i.html", "info"]));
    assert!(error.contains("unexpected argument '--html'"), "{error}");
}

#[rstest]
#[case(&["--help"], &[], false)]
#[case(&["--help", "--color", "always"], &[], true)]
#[case(&["--color=always", "--help"], &[("NO_COLOR", "1")], true)]
#[case(&["--help", "--color", "never"], &[], false)]
#[case(&["--no-such"], &[], false)]
#[case(&["--no-such", "--color=always"], &[], true)]
fn a_pipe_has_colors_only_on_request(
    #[case] arguments: &[&str],
    #[case] variables: &[(&str, &str)],
    #[case] expected: bool,
) {
    let directory = directory("colors");
    let mut command = symmem(&directory, arguments);
    command.envs(variables.iter().copied());
    let output = command.output().unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(said.contains('\x1b'), expected, "{said:?}");
}

#[rstest]
#[case("bash", "complete -F")]
#[case("zsh", "#compdef symmem")]
#[case("fish", "complete -c symmem")]
fn a_shell_gets_a_script_that_completes(#[case] shell: &str, #[case] part: &str) {
    let directory = directory(&format!("completions-{shell}"));
    let script = text(&succeed(symmem(&directory, &["completions", shell])).stdout);
    assert!(script.contains(part) && script.contains("selftest"));
    for hidden in ["rank-selftest", "supervise"] {
        assert!(!script.contains(hidden), "{hidden} is hidden");
    }
}

#[rstest]
#[case(&["run", "-n", "2", "ls", "-l"], "put `--` in front of the program: symmem run -n 2 -- ls -l")]
#[case(&["run", "-n", "2"], "name a program after `--`: symmem run -n 2 -- PROGRAM")]
#[case(&["bench"], "needs one of p2p, collectives, ag-gemm, gemm-rs, gemm-ar, rms-norm, enqueue")]
#[case(&["selftset"], "unrecognized subcommand 'selftset'; did you mean selftest?")]
#[case(&["-n", "1", "--backend", "host"], "write --ranks 2 to --ranks 72")]
#[case(&["bench", "ag-gemm", "-n", "2"], "the number of ranks is --ranks here")]
#[case(&["bench", "ag-gemm"], "no shape; name one by -m M -n N -k K")]
#[case(&["bench", "ag-gemm", "-m", "0", "-n", "1", "-k", "1"], "write 1 or more")]
#[case(&["bench", "ag-gemm", "-m", "-1", "-n", "1", "-k", "1"], "write 1 or more")]
#[case(&["bench", "enqueue", "--json", ""], "an empty file name")]
#[case(&["--json", "x", "--html", "./x"], "name the same file")]
#[case(&["bench", "ag-gemm", "-m", "9999999", "-n", "1", "-k", "9999999"], "A would have")]
#[case(&["bench", "ag-gemm", "--tile", "256"], "write rows and columns, as in 256x128, or auto")]
#[case(&["bench", "ag-gemm", "--tile", "0x64"], "is not a tile")]
#[case(&["bench", "ag-gemm", "--type", "f64"], "expected one of")]
#[case(&["bench", "ag-gemm", "--type", "f32"], "--type without -m -n -k")]
#[case(&["bench", "collectives", "--predict", "0"], "not a number of nodes; write 2 to 4096")]
#[case(&["bench", "collectives", "--predict", "2,4097"], "write 2 to 4096")]
#[case(&["bench", "collectives", "--predict", "-3"], "unexpected argument '-3'")]
#[case(&["bench", "collectives", "--predict", ""], "write 2 to 4096")]
#[case(&["bench", "collectives", "--predict", "2", "--machine", "b200"], "not a machine; write h200 or tcp")]
#[case(&["bench", "collectives", "--predict", "2", "--fit", "no-such.json"], "no-such.json cannot be read")]
#[case(&["bench", "collectives", "--predict", "2", "--fit", "/dev/null"], "/dev/null is no report")]
#[case(&["bench", "collectives", "--predict", "2", "--min-bytes", "2G", "--max-bytes", "1G"], "no size is at least")]
#[case(&["bench", "collectives", "--predict", "4096", "--op", "gather", "--max-bytes", "1K"], "give a larger --max-bytes")]
#[case(&["bench", "collectives", "--predict", "2", "--rounds", "3"], "--rounds")]
#[case(&["bench", "collectives", "--fit", "x"], "--predict")]
#[case(&["bench", "collectives", "--between", "gem"], "not a kernel; write copy, gemv, gemm")]
#[case(&["bench", "ag-gemm", "--config", "x", "-m", "1", "-n", "1", "-k", "1"], "give one of both")]
#[case(&["bench", "gemm-rs", "-n", "2"], "the number of ranks is --ranks here")]
#[case(&["bench", "gemm-ar"], "no shape; name one by -m M -n N -k K")]
#[case(&["bench", "gemm-ar", "--bias"], "--bias without -m -n -k")]
#[case(&["bench", "gemm-rs", "-m", "8,0", "-n", "1", "-k", "1"], "write 1 or more")]
#[case(&["bench", "gemm-rs", "-m", "8", "-n", "-1", "-k", "1"], "write 1 or more")]
#[case(&["bench", "gemm-rs", "-m", "8", "-n", "1", "-k", "x"], "write 1 or more")]
#[case(&["bench", "gemm-rs", "-m", "9999999", "-n", "1", "-k", "9999999"], "A would have")]
#[case(&["bench", "gemm-ar", "--element", "f64"], "expected one of")]
#[case(&["bench", "gemm-ar", "--element", "f32", "-m", "8", "-n", "1", "-k", "1"], "use float16 or bfloat16")]
#[case(&["bench", "gemm-ar", "--element", "f8e4m3", "-m", "8", "-n", "1", "-k", "1"], "use float16 or bfloat16")]
#[case(&["bench", "gemm-ar", "--algorithm", "pull"], "write automatic, baseline, pipeline, push, packets or all")]
#[case(&["bench", "gemm-ar", "--transport", "get"], "write put, kernel or all")]
#[case(&["bench", "gemm-ar", "--chunks", "0"], "write 1 or more")]
#[case(&["bench", "gemm-ar", "--config", "x", "-m", "1", "-n", "1", "-k", "1"], "give one of both")]
fn a_wrong_word_is_answered_with_the_right_one(#[case] arguments: &[&str], #[case] part: &str) {
    let directory = directory("wrong-word");
    let error = fail(symmem(&directory, arguments));
    assert!(error.contains(part), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}
