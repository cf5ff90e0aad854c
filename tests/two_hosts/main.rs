//! The ring example on two hosts, started by each launcher, in network namespaces of this machine.

mod conformance;

use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;
use two_hosts::{AGENT, Host, Hosts, HostsOptions, INTERFACE, Skip};

/// The variable that makes this binary the `symmem` command.
const ROLE: &str = "SYMMEM_TEST_COMMAND";

/// What comes before the command's own arguments.
const BEFORE: [&str; 5] = [
    "command",
    "--exact",
    "--nocapture",
    "--test-threads=1",
    "--",
];

/// Number of hosts, and of ranks on each.
const HOSTS: usize = 2;
const RANKS: usize = 2;

/// Hard limit of a run.
const LONG: Duration = Duration::from_secs(120);

/// The `symmem` command; does nothing in the test run itself.
#[test]
fn command() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    // Behind the name of this test, which the harness has printed.
    println!();
    let own = std::env::args_os().skip(1 + BEFORE.len());
    let words = std::iter::once("symmem".into()).chain(own).collect();
    let file = std::env::current_exe().unwrap();
    let code = symmem_cli::main_in(words, (file, BEFORE.map(Into::into).into()));
    let failed = format!("{code:?}") != format!("{:?}", ExitCode::SUCCESS);
    std::process::exit(failed.into())
}

/// Returns the path of the ring example, which `cargo test` builds beside the tests.
fn ring() -> String {
    let test = std::env::current_exe().unwrap();
    let path: PathBuf = test.ancestors().nth(2).unwrap().join("examples/ring");
    assert!(path.exists(), "{path:?} is missing: cargo build --examples");
    path.into_os_string().into_string().unwrap()
}

fn hosts(test: &str) -> Option<Hosts> {
    let hosts = Hosts::new(&HostsOptions::default());
    hosts.map_err(|skip| skip.tell(test)).ok()
}

/// Returns the variables that any launcher's ranks need here.
fn variables(hosts: &Hosts) -> Vec<(&'static str, String)> {
    let secret = symmem::bootstrap::Secret::random().unwrap().to_hex();
    vec![
        ("SYMMEM_BACKEND", "host".into()),
        ("SYMMEM_SECRET", secret),
        ("SYMMEM_RENDEZVOUS", format!("{}:29500", hosts[0].address())),
        // Else UCX would use the memory that both hosts share, and none of a host's own devices.
        ("UCX_TLS", "tcp,self".into()),
        ("UCX_NET_DEVICES", INTERFACE.into()),
    ]
}

fn start(host: &Host, program: &[String]) -> Command {
    let mut command = host.command(&program[0]);
    command
        .args(&program[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    for name in [
        "SYMMEM_RANK",
        "SYMMEM_WORLD",
        "SYMMEM_GENERATION",
        "SYMMEM_JOB",
    ] {
        command.env_remove(name);
    }
    command
}

/// Waits for all, which must succeed in time, and returns what they print; `None` if the library cannot do this.
fn outputs(hosts: &Hosts, children: Vec<Child>) -> String {
    let pids: Vec<u32> = children.iter().map(Child::id).collect();
    let (sender, ends) = channel();
    for child in children {
        let sender = sender.clone();
        std::thread::spawn(move || sender.send(child.wait_with_output().unwrap()));
    }
    drop(sender);
    let (mut text, mut success) = (String::new(), true);
    for _ in &pids {
        let Ok(output) = ends.recv_timeout(LONG) else {
            panic!(
                "still there after {LONG:?}: {:?}\n{text}",
                hosts.leftovers()
            );
        };
        let Output {
            status,
            stdout,
            stderr,
        } = output;
        text += &String::from_utf8_lossy(&stdout);
        text += &String::from_utf8_lossy(&stderr);
        success &= status.success();
    }
    assert!(success, "{text}");
    text
}

/// Waits, and asserts that each rank has been around the ring, that bytes crossed the wire, and that nothing is left.
fn assert_ring(hosts: &Hosts, children: Vec<Child>) {
    let text = outputs(hosts, children);
    let world = HOSTS * RANKS;
    for rank in 0..world {
        let line = format!("rank {rank} of {world}: 10 laps");
        assert!(text.contains(&line), "no `{line}` in\n{text}");
    }
    // Eleven puts of 256 KiB to the other host, from one rank of each.
    for bytes in hosts.bytes() {
        assert!(bytes.sent > 11 * (256 << 10), "{bytes:?}");
    }
    assert_eq!(hosts.leftovers(), [""; 0]);
}

#[test]
fn torchruns_variables_of_two_nodes_start_the_ring() {
    const TEST: &str = "torchruns_variables_of_two_nodes_start_the_ring";
    let Some(hosts) = hosts(TEST) else {
        return;
    };
    let variables = variables(&hosts);
    let ranks = (0..HOSTS * RANKS).map(|rank| {
        let node = rank / RANKS;
        let mut command = start(&hosts[node], &[ring()]);
        command
            .envs(variables.iter().cloned())
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", (HOSTS * RANKS).to_string())
            .env("LOCAL_RANK", (rank % RANKS).to_string())
            .env("LOCAL_WORLD_SIZE", RANKS.to_string())
            .env("GROUP_RANK", node.to_string())
            .env("MASTER_ADDR", hosts[0].address().to_string())
            .env("MASTER_PORT", "29400")
            // Torchrun's variables say where the ranks meet.
            .env_remove("SYMMEM_RENDEZVOUS")
            .env("TORCHELASTIC_RUN_ID", "none")
            .env("TORCHELASTIC_RESTART_COUNT", "0");
        command.spawn().unwrap()
    });
    assert_ring(&hosts, ranks.collect());
}

#[test]
fn mpirun_starts_the_ring_on_two_hosts() {
    const TEST: &str = "mpirun_starts_the_ring_on_two_hosts";
    let Some(hosts) = hosts(TEST) else {
        return;
    };
    if Command::new("mpirun").arg("--version").output().is_err() {
        return Skip::new("no mpirun; install openmpi-bin").tell(TEST);
    }
    let options = "--allow-run-as-root --oversubscribe --bind-to none --mca oob_tcp_if_include";
    let options = options.split(' ').map(str::to_owned);
    let mut words: Vec<String> = ["mpirun".to_owned()].into_iter().chain(options).collect();
    words.extend([INTERFACE, "--mca", "plm_rsh_agent", AGENT, "--host"].map(str::to_owned));
    let places: Vec<String> = hosts
        .iter()
        .map(|host| format!("{}:{RANKS}", host.name()))
        .collect();
    words.push(places.join(","));
    let variables = variables(&hosts);
    for (name, _) in &variables {
        words.extend(["-x".to_owned(), (*name).to_owned()]);
    }
    words.push(ring());
    // On a host, where the daemons of both hosts reach it.
    let mut command = start(&hosts[0], &words);
    hosts.export(&mut command);
    let mpirun = command.envs(variables).spawn().unwrap();
    assert_ring(&hosts, vec![mpirun]);
}

#[test]
fn symmem_run_starts_the_ring_on_two_nodes() {
    const TEST: &str = "symmem_run_starts_the_ring_on_two_nodes";
    let Some(hosts) = hosts(TEST) else {
        return;
    };
    let variables = variables(&hosts);
    let launchers = (0..HOSTS).map(|node| {
        let address = format!("{}:29500", hosts[0].address());
        let options =
            format!("run --nodes {HOSTS} --node {node} --rendezvous {address} -n {RANKS} --");
        let own = std::env::current_exe()
            .unwrap()
            .into_os_string()
            .into_string()
            .unwrap();
        let words: Vec<String> = std::iter::once(own)
            .chain(BEFORE.map(str::to_owned))
            .chain(options.split(' ').map(str::to_owned))
            .chain([ring()])
            .collect();
        let mut command = start(&hosts[node], &words);
        let variables = variables.iter().cloned();
        command
            .env(ROLE, "1")
            .envs(variables)
            .env_remove("SYMMEM_RENDEZVOUS");
        command.spawn().unwrap()
    });
    assert_ring(&hosts, launchers.collect());
}
