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
const ANY_TEXT: &str = "any text";
const DIRECTORY: &str = "a directory";
const FROM_LAUNCHER: &str = "another launcher's, else a world of one rank";
const NOT_FORBIDDEN: &str = "multicast is not forbidden by it";
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
    "Selects the backend; one that is named and cannot start is an error",
);

/// Search path of plugins.
pub(crate) const PLUGIN_PATH: Variable = own(
    "SYMMEM_PLUGIN_PATH",
    "directories separated by colons",
    "the directory of the executable, which is searched last in any case",
    "Lists the directories that are searched for libsymmem_NAME.so",
);

/// Strategies of sharing memory to try.
pub(crate) const SHARE: Variable = own(
    "SYMMEM_SHARE",
    "a list of vmm_file_descriptor, legacy_ipc, same_process and memory_file, separated by commas",
    "the backend's own order",
    "Names the strategies of sharing memory that are tried, in order; the same on all ranks",
);

/// Whether calls are compared.
pub(crate) const CHECK: Variable = own(
    "SYMMEM_CHECK",
    "1 or 0",
    "0",
    "Has ranks compare each collective call before they make it; the same on all ranks",
);

/// The selectors' tuning rows.
pub(crate) const TUNING: Variable = own(
    "SYMMEM_TUNING",
    "the path of a table that `symmem tune` or `symmem bench ag-gemm --tune` wrote",
    "the rows of the backend",
    "Names the file with measured rows, which go before those of the backend; the same on all ranks",
);

/// All environment variables that this library and its backends read, by subject. Variables that only the
/// command or the benchmarks read are not listed.
pub static VARIABLES: &[Variable] = &[
    BACKEND,
    PLUGIN_PATH,
    SHARE,
    CHECK,
    TUNING,
    own(
        "SYMMEM_MULTICAST_BYTES",
        "a number of bytes from 1 up",
        "1073741824 (1 GiB)",
        "Sets how many bytes of each rank the multicast object of a communicator can reach; the same on all ranks",
    ),
    Variable {
        name: "SYMMEM_MULTICAST",
        owner: SYMMEM,
        read_by: &[SYMMEM, "symmem-core", "symmem-cuda"],
        accepts: "1, 0 or emulate",
        default: "multicast is not used",
        about: "Asks for NVLS multicast (1), forbids it (0) or has its kernels without a switch (emulate); the same on all ranks",
    },
    Variable {
        name: "NCCL_NVLS_ENABLE",
        owner: "NCCL",
        read_by: &["symmem-cuda"],
        accepts: "a number",
        default: NOT_FORBIDDEN,
        about: "0 forbids multicast to NCCL and to symmem",
    },
    Variable {
        name: "NVSHMEM_DISABLE_NVLS",
        owner: "NVSHMEM",
        read_by: &["symmem-cuda"],
        accepts: "1 or 0",
        default: NOT_FORBIDDEN,
        about: "1 forbids multicast to NVSHMEM and to symmem",
    },
    Variable {
        name: "TORCH_SYMM_MEM_DISABLE_MULTICAST",
        owner: "PyTorch",
        read_by: &["symmem-cuda"],
        accepts: "1 or 0",
        default: NOT_FORBIDDEN,
        about: "1 forbids multicast to PyTorch's symmetric memory and to symmem",
    },
    Variable {
        name: "SYMMEM_LIBRARY_PATH",
        owner: SYMMEM,
        read_by: &["symmem-gpu"],
        accepts: "directories separated by colons",
        default: "none before those of the dynamic loader",
        about: "Lists the directories that are searched first for the vendors' libraries",
    },
    Variable {
        name: "CUDA_HOME",
        owner: "CUDA",
        read_by: &["symmem-cuda"],
        accepts: DIRECTORY,
        default: "the toolkit is not searched",
        about: "Names the CUDA toolkit, which is searched for NCCL and cuBLASLt",
    },
    Variable {
        name: "ROCM_PATH",
        owner: "ROCm",
        read_by: &["symmem-hip"],
        accepts: DIRECTORY,
        default: "/opt/rocm",
        about: "Names the ROCm toolkit, which is searched for the HIP runtime, RCCL and hipBLASLt",
    },
    Variable {
        name: "HSA_CU_MASK",
        owner: "ROCm",
        read_by: &["symmem-hip"],
        accepts: "sets of compute units, as ROCr reads them",
        default: "all compute units",
        about: "Keeps the process to some compute units of a device, for which grids are sized",
    },
    Variable {
        name: "ROC_GLOBAL_CU_MASK",
        owner: "ROCm",
        read_by: &["symmem-hip"],
        accepts: "a hexadecimal mask of compute units",
        default: "all compute units",
        about: "Keeps the process to some compute units of every device, for which grids are sized",
    },
    Variable {
        name: "HSA_NO_SCRATCH_RECLAIM",
        owner: "ROCm",
        read_by: &["symmem-hip"],
        accepts: "1 or 0",
        default: "0",
        about: "1 is what RCCL needs on some devices; the description of the backend advises it there",
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
        default: "no Python is found by it",
        about: "Leads to the `python3` whose packages are searched for the vendors' libraries",
    },
    Variable {
        name: "HOME",
        owner: "POSIX",
        read_by: &["symmem-gpu"],
        accepts: DIRECTORY,
        default: "the user's own packages are not searched",
        about: "Leads to the user's own Python packages, which are searched for the vendors' libraries",
    },
    own(
        "SYMMEM_RANK",
        NUMBER,
        FROM_LAUNCHER,
        "Numbers this rank from 0; set together with SYMMEM_WORLD",
    ),
    own(
        "SYMMEM_WORLD",
        "a whole number from 1 up",
        FROM_LAUNCHER,
        "Says how many ranks the job has",
    ),
    own(
        "SYMMEM_LOCAL_RANK",
        NUMBER,
        "SYMMEM_RANK",
        "Numbers this rank among those of its host; it chooses the device",
    ),
    own(
        "SYMMEM_LOCAL_WORLD",
        "a whole number from 1 up",
        "SYMMEM_WORLD",
        "Says how many ranks of the job its host has",
    ),
    own(
        "SYMMEM_JOB",
        ANY_TEXT,
        "the launcher's name of the job",
        "Names the job, under which its ranks meet on one host; the same on all ranks",
    ),
    own(
        "SYMMEM_SECRET",
        "64 hexadecimal digits",
        "the job's name in its place, good on the abstract Unix socket only",
        "Holds what makes a process a rank of the job; the same on all ranks",
    ),
    own(
        "SYMMEM_RENDEZVOUS",
        "host:port with a port from 1 to 65535",
        "an abstract Unix socket named after the job",
        "Says where rank 0 listens instead; needs SYMMEM_SECRET and the feature `tcp`",
    ),
    own(
        "SYMMEM_GENERATION",
        NUMBER,
        "0",
        "Counts restarts of the job: ranks of different generations do not meet",
    ),
    launcher("torchrun", "RANK", NUMBER, "Numbers this rank from 0"),
    launcher(
        "torchrun",
        "WORLD_SIZE",
        NUMBER,
        "Says how many ranks the job has",
    ),
    launcher(
        "torchrun",
        "LOCAL_RANK",
        NUMBER,
        "Numbers this rank among those of its host",
    ),
    launcher(
        "torchrun",
        "LOCAL_WORLD_SIZE",
        NUMBER,
        "Says how many ranks of the job its host has",
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
        "Part of the job's name; nothing listens there for symmem",
    ),
    launcher(
        "torchrun",
        "MASTER_PORT",
        ANY_TEXT,
        "Part of the job's name; nothing listens there for symmem",
    ),
    launcher(
        "Open MPI",
        "OMPI_COMM_WORLD_RANK",
        NUMBER,
        "Numbers this rank from 0",
    ),
    launcher(
        "Open MPI",
        "OMPI_COMM_WORLD_SIZE",
        NUMBER,
        "Says how many ranks the job has",
    ),
    launcher(
        "Open MPI",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        NUMBER,
        "Numbers this rank among those of its host",
    ),
    launcher(
        "Open MPI",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        NUMBER,
        "Says how many ranks of the job its host has",
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
    launcher("PMI", "PMI_RANK", NUMBER, "Numbers this rank from 0"),
    launcher("PMI", "PMI_SIZE", NUMBER, "Says how many ranks the job has"),
    launcher("PMI", "PMI_JOBID", ANY_TEXT, "The job's name"),
    launcher(
        "Intel MPI",
        "MPI_LOCALRANKID",
        NUMBER,
        "Numbers this rank among those of its host",
    ),
    launcher(
        "Intel MPI",
        "MPI_LOCALNRANKS",
        NUMBER,
        "Says how many ranks of the job its host has",
    ),
    launcher("Slurm", "SLURM_JOB_ID", ANY_TEXT, "Part of the job's name"),
    launcher(
        "Slurm",
        "SLURM_STEP_ID",
        ANY_TEXT,
        "Part of the job's name; without it this process is no rank",
    ),
    launcher("Slurm", "SLURM_PROCID", NUMBER, "Numbers this rank from 0"),
    launcher(
        "Slurm",
        "SLURM_STEP_NUM_TASKS",
        NUMBER,
        "Says how many ranks the step has",
    ),
    launcher(
        "Slurm",
        "SLURM_NTASKS",
        NUMBER,
        "Says how many ranks the allocation has, if the step does not say",
    ),
    launcher(
        "Slurm",
        "SLURM_LOCALID",
        NUMBER,
        "Numbers this rank among those of its host",
    ),
    launcher(
        "Slurm",
        "SLURM_NODEID",
        NUMBER,
        "Numbers this host among those of the job",
    ),
    launcher(
        "Slurm",
        "SLURM_STEP_TASKS_PER_NODE",
        TASKS,
        "Says how many ranks each host has",
    ),
    launcher(
        "Slurm",
        "SLURM_TASKS_PER_NODE",
        TASKS,
        "Says how many ranks each host has, if the step does not say",
    ),
    launcher(
        "Slurm",
        "SLURM_NTASKS_PER_NODE",
        TASKS,
        "Says how many ranks each host has, if neither of the others does",
    ),
];
