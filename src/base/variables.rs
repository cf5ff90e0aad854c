//! The table of all environment variables that this library and its backends read.

/// Description of an environment variable, for documentation and error messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// Its owner: `symmem`, or the launcher, library or tool that defines it.
    pub owner: &'static str,
    /// The crates that read it.
    pub read_by: &'static [&'static str],
    /// The accepted values.
    pub accepts: &'static str,
    /// The behavior if it is unset.
    pub default: &'static str,
    /// What it does, in one line.
    pub about: &'static str,
}

const NUMBER: &str = "a whole number from 0 up";
const TASKS: &str = "a list of tasks per node such as 8 or 4(x2),3";
const HOSTS: &str = "a list of hosts such as node[07-12,31]";
const FIRST_HOST: &str = "Names the host on which ranks of several hosts meet, its first, if SYMMEM_RENDEZVOUS is not set";
const ANY_TEXT: &str = "any text";
const DIRECTORY: &str = "a directory";
pub(super) const FROM_LAUNCHER: &str = "another launcher's variables, or else a world of one rank";
const NOT_FORBIDDEN: &str = "does not forbid multicast";
pub(super) const SYMMEM: &str = "symmem";

/// A variable that this crate reads.
const fn own(
    name: &'static str,
    accepts: &'static str,
    default: &'static str,
    about: &'static str,
) -> Variable {
    Variable {
        name,
        owner: SYMMEM,
        read_by: &[SYMMEM],
        accepts,
        default,
        about,
    }
}

/// A launcher's variable, from which this crate learns this rank's number and world.
const fn launcher(
    owner: &'static str,
    name: &'static str,
    accepts: &'static str,
    about: &'static str,
) -> Variable {
    Variable {
        name,
        owner,
        read_by: &[SYMMEM],
        accepts,
        default: FROM_LAUNCHER,
        about,
    }
}

/// Selects the backend.
pub(crate) const BACKEND: Variable = own(
    "SYMMEM_BACKEND",
    "auto, the name of a backend (host, cuda, hip or a plugin's) or path:FILE for the plugin in that file",
    "auto: the first backend that has a device",
    "Selects the backend; a named backend that cannot start is an error",
);

/// Search path of plugins.
pub(crate) const PLUGIN_PATH: Variable = own(
    "SYMMEM_PLUGIN_PATH",
    "directories separated by colons; empty elements are ignored",
    "the executable's directory, which is always searched last",
    "Lists the directories to search for libsymmem_NAME.so",
);

/// Whether plugin files that every user may write are loaded.
pub(crate) const PLUGIN_WORLD_WRITABLE: Variable = own(
    "SYMMEM_PLUGIN_WORLD_WRITABLE",
    "1 or 0",
    "0",
    "Makes symmem load (1) or refuse (0) a plugin file that every user of the machine may write, or whose directory \
     every user may write",
);

/// Strategies of sharing memory to try.
pub(crate) const SHARE: Variable = own(
    "SYMMEM_SHARE",
    "a list of vmm_file_descriptor, legacy_ipc, address_range, same_process and memory_file, separated by commas",
    "the backend's own order",
    "Lists the strategies of sharing memory to try, in order; must be the same on all ranks",
);

/// Time after which a rank that is not heard from is dead.
pub(crate) const SILENCE: Variable = own(
    "SYMMEM_SILENCE",
    "a number of seconds from 0.3 up",
    "3",
    "Sets after how many seconds without a sign a rank of another node is dead; must be the same on all ranks",
);

/// Whether calls are compared.
pub(crate) const CHECK: Variable = own(
    "SYMMEM_CHECK",
    "1 or 0",
    "0",
    "Makes ranks compare each collective call before they make it; must be the same on all ranks",
);

/// The selectors' tuning rows.
pub(crate) const TUNING: Variable = own(
    "SYMMEM_TUNING",
    "the path of a tuning table that `symmem tune` or `symmem bench` of GEMMs with `--tune` wrote",
    "the backend's own rows",
    "Names the file of measured tuning rows, which take precedence over the backend's own; must be the same on all \
     ranks",
);

/// All environment variables that this library and its backends read, by subject. Variables that only the
/// command or the benchmarks read are not listed.
pub static VARIABLES: &[Variable] = &[
    BACKEND,
    PLUGIN_PATH,
    PLUGIN_WORLD_WRITABLE,
    SHARE,
    CHECK,
    SILENCE,
    TUNING,
    own(
        "SYMMEM_MULTICAST_BYTES",
        "a number of bytes from 1 up",
        "1073741824 (1 GiB)",
        "Sets how many bytes of each rank's memory a communicator's multicast object can reach; must be the same on \
         all ranks",
    ),
    Variable {
        name: "SYMMEM_MULTICAST",
        owner: SYMMEM,
        read_by: &[SYMMEM, "symmem-core", "symmem-cuda"],
        accepts: "1, 0 or emulate",
        default: "multicast is not used",
        about: "Enables NVLS multicast (1), forbids it (0) or runs its kernels over the peers' own addresses \
            (emulate); must be the same on all ranks",
    },
    Variable {
        name: "NCCL_NVLS_ENABLE",
        owner: "NCCL",
        read_by: &["symmem-cuda"],
        accepts: "a number",
        default: NOT_FORBIDDEN,
        about: "0 forbids NCCL and symmem to use multicast",
    },
    Variable {
        name: "NVSHMEM_DISABLE_NVLS",
        owner: "NVSHMEM",
        read_by: &["symmem-cuda"],
        accepts: "1 or 0",
        default: NOT_FORBIDDEN,
        about: "1 forbids NVSHMEM and symmem to use multicast",
    },
    Variable {
        name: "TORCH_SYMM_MEM_DISABLE_MULTICAST",
        owner: "PyTorch",
        read_by: &["symmem-cuda"],
        accepts: "1 or 0",
        default: NOT_FORBIDDEN,
        about: "1 forbids PyTorch's symmetric memory and symmem to use multicast",
    },
    Variable {
        name: "SYMMEM_LIBRARY_PATH",
        owner: SYMMEM,
        read_by: &["symmem-gpu", "symmem-ucx"],
        accepts: "directories separated by colons; empty elements are ignored",
        default: "none: the dynamic loader's search path comes first",
        about: "Lists the directories to search first for driver, NCCL, RCCL, cuBLASLt, hipBLASLt and UCX",
    },
    Variable {
        name: "SYMMEM_UCX_LIBRARY",
        owner: SYMMEM,
        read_by: &["symmem-ucx"],
        accepts: "a file",
        default: "libucp.so.0, from SYMMEM_LIBRARY_PATH or where the dynamic loader finds it",
        about: "Names the library of UCX, which worlds over nodes need",
    },
    Variable {
        name: "CUDA_HOME",
        owner: "CUDA",
        read_by: &["symmem-cuda"],
        accepts: DIRECTORY,
        default: "the toolkit is not searched",
        about: "Names the CUDA toolkit's directory, which is searched for NCCL and cuBLASLt",
    },
    Variable {
        name: "ROCM_PATH",
        owner: "ROCm",
        read_by: &["symmem-hip"],
        accepts: DIRECTORY,
        default: "/opt/rocm",
        about: "Names the ROCm toolkit's directory, which is searched for the HIP runtime, RCCL and hipBLASLt",
    },
    Variable {
        name: "HSA_CU_MASK",
        owner: "ROCm",
        read_by: &["symmem-hip"],
        accepts: "sets of compute units, as ROCr reads them",
        default: "all compute units",
        about: "Limits the process to some compute units of a device; symmem sizes its grids for them",
    },
    Variable {
        name: "ROC_GLOBAL_CU_MASK",
        owner: "ROCm",
        read_by: &["symmem-hip"],
        accepts: "a hexadecimal mask of compute units",
        default: "all compute units",
        about: "Limits the process to some compute units of every device; symmem sizes its grids for them",
    },
    Variable {
        name: "HSA_NO_SCRATCH_RECLAIM",
        owner: "ROCm",
        read_by: &["symmem-hip"],
        accepts: "1 or 0",
        default: "0",
        about: "RCCL needs 1 on some devices; the backend's description advises it there",
    },
    Variable {
        name: "VIRTUAL_ENV",
        owner: "Python",
        read_by: &["symmem-gpu"],
        accepts: DIRECTORY,
        default: "no virtual environment is active",
        about: "Names the active virtual environment, whose packages are searched for the vendors' libraries",
    },
    Variable {
        name: "CONDA_PREFIX",
        owner: "Conda",
        read_by: &["symmem-gpu"],
        accepts: DIRECTORY,
        default: "no Conda environment is active",
        about: "Names the active Conda environment, whose packages are searched for the vendors' libraries",
    },
    Variable {
        name: "PATH",
        owner: "POSIX",
        read_by: &["symmem-gpu"],
        accepts: "directories separated by colons",
        default: "no Python's packages are searched",
        about: "Locates the `python3` whose packages are searched for the vendors' libraries",
    },
    Variable {
        name: "HOME",
        owner: "POSIX",
        read_by: &[SYMMEM, "symmem-gpu"],
        accepts: DIRECTORY,
        default: "the user's own packages are not searched, and no secret file is kept there",
        about: "Locates the user's own Python packages, which are searched for the vendors' libraries, and the user's \
            secret file (`.symmem-secret`) if XDG_RUNTIME_DIR is not a folder of the user's own",
    },
    Variable {
        name: "XDG_RUNTIME_DIR",
        owner: "XDG",
        read_by: &[SYMMEM],
        accepts: DIRECTORY,
        default: "/run/user/UID",
        about: "Locates the user's secret file (`symmem-secret`), under which ranks without SYMMEM_SECRET meet",
    },
    own(
        "SYMMEM_RANK",
        NUMBER,
        FROM_LAUNCHER,
        "Sets this process's rank, from 0; set together with SYMMEM_WORLD",
    ),
    own(
        "SYMMEM_WORLD",
        "a whole number from 1 up",
        FROM_LAUNCHER,
        "Sets the world size: the number of ranks of the job",
    ),
    own(
        "SYMMEM_LOCAL_RANK",
        NUMBER,
        "SYMMEM_RANK",
        "Sets this process's rank on its host, which chooses the device",
    ),
    own(
        "SYMMEM_LOCAL_WORLD",
        "a whole number from 1 up",
        "SYMMEM_WORLD",
        "Sets the number of the job's ranks on this host",
    ),
    own(
        "SYMMEM_JOB",
        ANY_TEXT,
        "the launcher's job name",
        "Names the job, under which its ranks meet on one host; must be the same on all ranks",
    ),
    own(
        "SYMMEM_SECRET",
        "64 hexadecimal digits",
        "the secret in the user's secret file, on an abstract Unix socket only",
        "Sets the secret with which a process proves that it is a rank of the job; must be the same on all ranks",
    ),
    own(
        "SYMMEM_RENDEZVOUS",
        "host:port with a port from 1 to 65535",
        "an abstract Unix socket named after the job",
        "Sets the TCP address on which rank 0 listens; needs SYMMEM_SECRET and the Cargo feature `tcp`",
    ),
    own(
        "SYMMEM_NODE",
        "a text of at most 256 bytes",
        "the host's boot ID and network namespace",
        "Sets the key of this rank's node: ranks with equal keys share a node, and must be able to pass each other file \
         descriptors",
    ),
    own(
        "SYMMEM_GENERATION",
        NUMBER,
        "0",
        "Counts restarts of the job: ranks of different generations do not meet",
    ),
    launcher(
        "torchrun",
        "RANK",
        NUMBER,
        "Sets this process's rank, from 0",
    ),
    launcher(
        "torchrun",
        "WORLD_SIZE",
        NUMBER,
        "Sets the world size: the number of ranks of the job",
    ),
    launcher(
        "torchrun",
        "LOCAL_RANK",
        NUMBER,
        "Sets this process's rank on its host",
    ),
    launcher(
        "torchrun",
        "LOCAL_WORLD_SIZE",
        NUMBER,
        "Sets the number of the job's ranks on this host",
    ),
    launcher(
        "torchrun",
        "TORCHELASTIC_RUN_ID",
        ANY_TEXT,
        "Part of the job's name",
    ),
    launcher(
        "torchrun",
        "TORCHELASTIC_RESTART_COUNT",
        ANY_TEXT,
        "Part of the job's name",
    ),
    launcher(
        "torchrun",
        "MASTER_ADDR",
        ANY_TEXT,
        "Part of the job's name, and the host on which ranks of several hosts meet if SYMMEM_RENDEZVOUS is not set",
    ),
    launcher(
        "torchrun",
        "MASTER_PORT",
        ANY_TEXT,
        "Part of the job's name; ranks of several hosts meet one port above it if SYMMEM_RENDEZVOUS is not set",
    ),
    launcher(
        "Open MPI",
        "OMPI_COMM_WORLD_RANK",
        NUMBER,
        "Sets this process's rank, from 0",
    ),
    launcher(
        "Open MPI",
        "OMPI_COMM_WORLD_SIZE",
        NUMBER,
        "Sets the world size: the number of ranks of the job",
    ),
    launcher(
        "Open MPI",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        NUMBER,
        "Sets this process's rank on its host",
    ),
    launcher(
        "Open MPI",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        NUMBER,
        "Sets the number of the job's ranks on this host",
    ),
    launcher(
        "Open MPI",
        "OMPI_MCA_ess_base_jobid",
        ANY_TEXT,
        "The job's name, if PMIX_NAMESPACE is not set",
    ),
    launcher(
        "Open MPI",
        "OMPI_MCA_orte_hnp_uri",
        ANY_TEXT,
        "The job's name, if neither of the others is set",
    ),
    launcher("PMIx", "PMIX_NAMESPACE", ANY_TEXT, "The job's name"),
    launcher(
        "PMI",
        "PMI_RANK",
        NUMBER,
        "Sets this process's rank, from 0",
    ),
    launcher(
        "PMI",
        "PMI_SIZE",
        NUMBER,
        "Sets the world size: the number of ranks of the job",
    ),
    launcher("PMI", "PMI_JOBID", ANY_TEXT, "The job's name"),
    launcher(
        "Intel MPI",
        "MPI_LOCALRANKID",
        NUMBER,
        "Sets this process's rank on its host",
    ),
    launcher(
        "Intel MPI",
        "MPI_LOCALNRANKS",
        NUMBER,
        "Sets the number of the job's ranks on this host",
    ),
    launcher("Slurm", "SLURM_JOB_ID", ANY_TEXT, "Part of the job's name"),
    launcher(
        "Slurm",
        "SLURM_STEP_ID",
        ANY_TEXT,
        "Part of the job's name; without it, this process is not a rank",
    ),
    launcher(
        "Slurm",
        "SLURM_PROCID",
        NUMBER,
        "Sets this process's rank, from 0",
    ),
    launcher(
        "Slurm",
        "SLURM_STEP_NUM_TASKS",
        NUMBER,
        "Sets the world size: the number of tasks of the step",
    ),
    launcher(
        "Slurm",
        "SLURM_NTASKS",
        NUMBER,
        "Sets the world size if SLURM_STEP_NUM_TASKS is not set",
    ),
    launcher(
        "Slurm",
        "SLURM_LOCALID",
        NUMBER,
        "Sets this process's rank on its host",
    ),
    launcher(
        "Slurm",
        "SLURM_NODEID",
        NUMBER,
        "Sets this host's index in the job",
    ),
    launcher("Slurm", "SLURM_STEP_NODELIST", HOSTS, FIRST_HOST),
    launcher("Slurm", "SLURM_JOB_NODELIST", HOSTS, FIRST_HOST),
    launcher("Slurm", "SLURM_NODELIST", HOSTS, FIRST_HOST),
    launcher(
        "Slurm",
        "SLURM_STEP_TASKS_PER_NODE",
        TASKS,
        "Sets the number of ranks on each host",
    ),
    launcher(
        "Slurm",
        "SLURM_TASKS_PER_NODE",
        TASKS,
        "Sets the number of ranks on each host, if SLURM_STEP_TASKS_PER_NODE is not set",
    ),
    launcher(
        "Slurm",
        "SLURM_NTASKS_PER_NODE",
        TASKS,
        "Sets the number of ranks on each host, if neither of the others is set",
    ),
];
