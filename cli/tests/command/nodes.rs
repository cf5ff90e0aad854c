//! `symmem run` on each of several nodes.

use super::{directory, fail, succeed, symmem, text};
use rstest::rstest;

const SECRET: &str = "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a";

#[test]
fn ranks_of_a_node_have_the_worlds_numbers_and_the_address_and_secret_of_all() {
    let directory = directory("nodes");
    std::fs::write(directory.join("secret"), format!("{SECRET}\n")).unwrap();
    let script = "echo $SYMMEM_RANK of $SYMMEM_WORLD, here $SYMMEM_LOCAL_RANK of $SYMMEM_LOCAL_WORLD, \
                  at $SYMMEM_RENDEZVOUS by $SYMMEM_SECRET ${SYMMEM_JOB-without a name}";
    let arguments = [
        "run",
        "--nodes",
        "3",
        "--node",
        "1",
        "--rendezvous",
        "n0:4000",
        "--secret-file",
        "secret",
        "-n",
        "2",
        "--",
        "sh",
        "-c",
        script,
    ];
    let output = succeed(symmem(&directory, &arguments));
    let mut lines: Vec<String> = text(&output.stdout).lines().map(String::from).collect();
    lines.sort();
    let line = |rank: u32, local: u32| {
        format!("[{rank}] {rank} of 6, here {local} of 2, at n0:4000 by {SECRET} without a name")
    };
    assert_eq!(lines, [line(2, 0), line(3, 1)]);
}

#[test]
fn a_rank_that_fails_is_named_by_its_number_in_the_world() {
    let directory = directory("nodes-failure");
    let script = "test $SYMMEM_RANK -ne 5";
    let arguments = [
        "run",
        "--nodes",
        "2",
        "--node",
        "1",
        "--rendezvous",
        "n0:4000",
        "-n",
        "4",
        "--",
        "sh",
        "-c",
        script,
    ];
    let mut command = symmem(&directory, &arguments);
    command.env("SYMMEM_SECRET", SECRET);
    let error = fail(command);
    assert!(error.contains("rank 5 "), "{error}");
}

#[rstest]
#[case::no_secret(&["--nodes", "2", "--node", "0", "--rendezvous", "n0:4000"], "openssl rand -hex 32")]
#[case::a_file_without_one(
    &["--nodes", "2", "--node", "0", "--rendezvous", "n0:4000", "--secret-file", "/dev/null"],
    "/dev/null has none"
)]
#[case::no_address(&["--nodes", "2", "--node", "0"], "--rendezvous HOST:PORT")]
#[case::no_such_node(&["--nodes", "2", "--node", "2", "--rendezvous", "n0:4000"], "number them from 0 to 1")]
#[case::no_number(&["--nodes", "2"], "--node")]
#[case::too_many(
    &["--nodes", "300", "--node", "0", "--rendezvous", "n0:4000", "--secret-file", "secret"],
    "more than a world has, 512"
)]
fn what_is_missing_is_said(#[case] more: &[&str], #[case] says: &str) {
    let directory = directory("nodes-missing");
    std::fs::write(directory.join("secret"), SECRET).unwrap();
    let arguments = [&["run", "-n", "2"], more, &["--", "true"]].concat();
    let mut command = symmem(&directory, &arguments);
    command.env_remove("SYMMEM_SECRET");
    let error = fail(command);
    assert!(error.contains(says), "{error}");
}
