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
    let mut torchrun = TORCHRUN;
    torchrun[3].1 = "4";
    assert!(matches!(
        read(&torchrun),
        Err(BootstrapError::SeveralHosts {
            world: 8,
            local_world: 4
        })
    ));
    let mut slurm = SLURM;
    slurm[5].1 = "4(x2)";
    assert!(matches!(
        read(&slurm),
        Err(BootstrapError::SeveralHosts {
            world: 8,
            local_world: 4
        })
    ));
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
