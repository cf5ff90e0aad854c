//! Tests of each launcher's variables.

use super::*;

fn read(variables: &[(&str, &str)]) -> Result<Option<LaunchEnvironment>, BootstrapError> {
    LaunchEnvironment::from_variables(|name| {
        variables
            .iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| (*value).to_owned())
    })
}

fn place(variables: &[(&str, &str)]) -> (u32, u32, u32, u32, Option<String>, &'static str) {
    let found = read(variables)
        .unwrap()
        .expect("variables that name a rank");
    (
        found.rank,
        found.world,
        found.local_rank,
        found.local_world,
        found.job,
        found.source,
    )
}

const SYMMEM: [(&str, &str); 2] = [("SYMMEM_RANK", "1"), ("SYMMEM_WORLD", "4")];
const TORCHRUN: [(&str, &str); 7] = [
    ("RANK", "2"),
    ("WORLD_SIZE", "8"),
    ("LOCAL_RANK", "2"),
    ("LOCAL_WORLD_SIZE", "8"),
    ("MASTER_ADDR", "127.0.0.1"),
    ("MASTER_PORT", "29500"),
    ("TORCHELASTIC_RUN_ID", "none"),
];
const OPEN_MPI: [(&str, &str); 5] = [
    ("OMPI_COMM_WORLD_RANK", "3"),
    ("OMPI_COMM_WORLD_SIZE", "4"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "3"),
    ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
    ("PMIX_NAMESPACE", "prterun-7@1"),
];
const SLURM: [(&str, &str); 6] = [
    ("SLURM_JOB_ID", "900"),
    ("SLURM_STEP_ID", "2"),
    ("SLURM_PROCID", "5"),
    ("SLURM_NTASKS", "8"),
    ("SLURM_LOCALID", "5"),
    ("SLURM_STEP_TASKS_PER_NODE", "8"),
];

#[test]
fn without_a_launcher_there_is_no_rank() {
    assert_eq!(read(&[]).unwrap(), None);
    assert_eq!(
        read(&[("RANK", "3")]).unwrap(),
        None,
        "RANK alone is too common a word"
    );
    assert_eq!(
        read(&[("SYMMEM_RANK", ""), ("SYMMEM_WORLD", "")]).unwrap(),
        None
    );
    let alone = LaunchEnvironment::alone().unwrap();
    assert_eq!((alone.rank, alone.world), (0, 1));
}

#[test]
fn each_launcher_is_understood() {
    assert_eq!(place(&SYMMEM), (1, 4, 1, 4, None, "SYMMEM_RANK"));
    let job = Some("torchrun-none-127.0.0.1-29500-".into());
    assert_eq!(place(&TORCHRUN), (2, 8, 2, 8, job, "torchrun"));
    assert_eq!(
        place(&OPEN_MPI),
        (3, 4, 3, 4, Some("openmpi-prterun-7@1".into()), "Open MPI")
    );
    let hydra = [
        ("PMI_RANK", "1"),
        ("PMI_SIZE", "2"),
        ("MPI_LOCALRANKID", "1"),
        ("MPI_LOCALNRANKS", "2"),
    ];
    assert_eq!(place(&hydra), (1, 2, 1, 2, None, "PMI"));
    assert_eq!(
        place(&SLURM),
        (5, 8, 5, 8, Some("slurm-900.2".into()), "Slurm")
    );
    let srun_pmi = [&SLURM[..], &[("PMI_RANK", "5"), ("PMI_SIZE", "8")]].concat();
    assert_eq!(
        place(&srun_pmi),
        (5, 8, 5, 8, Some("slurm-900.2".into()), "PMI")
    );
}

#[test]
fn launchers_come_in_order_and_the_meeting_place_is_ours_to_set() {
    let all = [&SYMMEM[..], &TORCHRUN, &OPEN_MPI, &SLURM].concat();
    assert_eq!(place(&all).5, "SYMMEM_RANK");
    assert_eq!(place(&all[2..]).5, "torchrun");
    assert_eq!(place(&all[9..]).5, "Open MPI");
    let secret = "0f".repeat(32);
    let own = [
        ("SYMMEM_JOB", "mine"),
        ("SYMMEM_SECRET", secret.as_str()),
        ("SYMMEM_RENDEZVOUS", "127.0.0.1:4000"),
        ("SYMMEM_GENERATION", "3"),
    ];
    let found = read(&[&TORCHRUN[..], &own].concat()).unwrap().unwrap();
    assert_eq!(found.job.as_deref(), Some("mine"));
    assert_eq!(found.secret, Secret::from_hex(&secret));
    assert_eq!(found.address.as_deref(), Some("127.0.0.1:4000"));
    assert_eq!(found.generation, 3);
}

#[test]
fn a_list_of_more_nodes_than_numbers_can_count_is_a_wrong_variable() {
    let list = "5,4(x18446744073709551615),3";
    assert_eq!(tasks_of_node(list, 0), Some(5));
    assert_eq!(tasks_of_node(list, 1), None);
}

#[test]
fn a_slurm_batch_script_is_not_a_rank() {
    assert_eq!(
        read(&[
            ("SLURM_JOB_ID", "9"),
            ("SLURM_PROCID", "0"),
            ("SLURM_NTASKS", "8")
        ])
        .unwrap(),
        None
    );
    let mut batch = SLURM;
    batch[1].1 = "4294967291";
    assert_eq!(read(&batch).unwrap(), None);
}

#[test]
fn slurm_counts_tasks_node_by_node() {
    for (list, node, tasks) in [
        ("8", 0, Some(8)),
        ("4(x2),3", 0, Some(4)),
        ("4(x2),3", 1, Some(4)),
        ("4(x2),3", 2, Some(3)),
        ("4(x2),3", 3, None),
        ("4(x", 0, None),
        ("", 0, None),
        ("4(x99999999999999999999)", 0, None),
    ] {
        assert_eq!(tasks_of_node(list, node), tasks, "{list} {node}");
    }
}

#[test]
fn several_hosts_are_their_own_error() {
    let several = |variables: &[(&str, &str)]| match read(variables) {
        Err(BootstrapError::SeveralHosts { world, local_world }) => (world, local_world),
        other => panic!("{other:?}"),
    };
    let mut slurm = SLURM;
    (slurm[4].1, slurm[5].1) = ("1", "4(x2)");
    assert_eq!(several(&slurm), (8, 4), "no list of nodes is set");
    let hydra = [
        ("PMI_RANK", "1"),
        ("PMI_SIZE", "4"),
        ("MPI_LOCALRANKID", "1"),
        ("MPI_LOCALNRANKS", "2"),
    ];
    assert_eq!(several(&hydra), (4, 2));
    let by_hand = [&hydra[..], &[("SYMMEM_RENDEZVOUS", "n1:4000")]].concat();
    assert_eq!(address(&by_hand).as_deref(), Some("n1:4000"));
}

/// Returns where the ranks meet.
fn address(variables: &[(&str, &str)]) -> Option<String> {
    read(variables).unwrap().unwrap().address
}

#[test]
fn ranks_of_torchrun_on_several_hosts_meet_one_port_above_its_own_store() {
    let mut torchrun = TORCHRUN;
    assert_eq!(address(&torchrun), None, "one host needs no port");
    torchrun[3].1 = "4";
    let (host, port) = address(&torchrun)
        .and_then(|at| {
            at.rsplit_once(':')
                .map(|(host, port)| (host.to_owned(), port.to_owned()))
        })
        .unwrap();
    assert_eq!((host.as_str(), port.as_str()), ("127.0.0.1", "29501"));
    let by_hand = [&torchrun[..], &[("SYMMEM_RENDEZVOUS", "n1:4000")]].concat();
    assert_eq!(address(&by_hand).as_deref(), Some("n1:4000"));
    let sixth = [&[("MASTER_ADDR", "fe80::1")], &torchrun[..]].concat();
    assert_eq!(address(&sixth).as_deref(), Some("[fe80::1]:29501"));
    let last = [&[("MASTER_PORT", "65535")], &torchrun[..]].concat();
    assert!(matches!(
        read(&last),
        Err(BootstrapError::BadVariable {
            name: "MASTER_PORT",
            ..
        })
    ));
}

#[test]
fn ranks_of_slurm_on_several_hosts_meet_on_the_first_at_a_port_of_the_step() {
    let mut slurm = SLURM;
    (slurm[4].1, slurm[5].1) = ("1", "4(x2)");
    let on = |list| [&slurm[..], &[("SLURM_JOB_NODELIST", list)]].concat();
    // 20000 + (900 * 16 + 2) % 10000
    assert_eq!(address(&on("n[3-4]")).as_deref(), Some("n3:24402"));
    let step = [&on("login")[..], &[("SLURM_STEP_NODELIST", "n7,n9")]].concat();
    assert_eq!(address(&step).as_deref(), Some("n7:24402"));
}

#[test]
fn the_first_host_of_a_list_is_found() {
    for (list, first) in [
        ("n1", Some("n1")),
        ("n1,n2", Some("n1")),
        ("n[007-012,31],login", Some("n007")),
        ("rack[1-2]-gpu,x", Some("rack1-gpu")),
        ("r[1-2]n[3-4]", None),
        ("n[1", None),
        ("", None),
    ] {
        assert_eq!(first_host(list).as_deref(), first, "{list}");
    }
}

#[test]
fn bad_values_are_named() {
    let bad = |variables: &[(&str, &str)]| match read(variables) {
        Err(BootstrapError::BadVariable { name, .. }) => name,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        bad(&[("SYMMEM_RANK", "-1"), ("SYMMEM_WORLD", "2")]),
        "SYMMEM_RANK"
    );
    assert_eq!(bad(&[("RANK", "0"), ("WORLD_SIZE", "two")]), "WORLD_SIZE");
    for place in [
        "4000",
        ":4000",
        "localhost:",
        "localhost:0",
        "localhost:70000",
    ] {
        assert_eq!(
            bad(&[&SYMMEM[..], &[("SYMMEM_RENDEZVOUS", place)]].concat()),
            "SYMMEM_RENDEZVOUS"
        );
    }
    assert_eq!(
        bad(&[&SYMMEM[..], &[("SYMMEM_SECRET", "abc")]].concat()),
        "SYMMEM_SECRET"
    );
    assert_eq!(
        bad(&[&SYMMEM[..], &[("SYMMEM_GENERATION", "x")]].concat()),
        "SYMMEM_GENERATION"
    );
}

#[test]
fn numbers_that_do_not_fit_together_are_refused() {
    for (rank, world) in [("4", "4"), ("0", "0"), ("0", "73")] {
        let result = read(&[("SYMMEM_RANK", rank), ("SYMMEM_WORLD", world)]);
        assert!(
            matches!(result, Err(BootstrapError::RankOutsideWorld { .. })),
            "{rank} of {world}"
        );
    }
    let half = read(&[("SYMMEM_RANK", "0")]);
    assert!(matches!(
        half,
        Err(BootstrapError::MissingVariable {
            missing: "SYMMEM_WORLD",
            ..
        })
    ));
    let local = [&SYMMEM[..], &[("SYMMEM_LOCAL_RANK", "9")]].concat();
    assert!(matches!(
        read(&local),
        Err(BootstrapError::RankOutsideWorld { rank: 9, .. })
    ));
}
