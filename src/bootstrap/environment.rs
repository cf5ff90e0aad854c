//! Launch environments: this rank's number and the rendezvous of its job, from a launcher's variables.

use crate::backend::abi::MAX_RANKS;
use crate::base::bootstrap_error::BootstrapError;
use crate::base::env::value_of;
use crate::bootstrap::process::ProcessIdentity;
use crate::bootstrap::secret::{Secret, hex, random_bytes};

/// A rank's place in its job, as read from a launcher's variables or set by the caller.
///
/// ```
/// use symmem::LaunchEnvironment;
/// let launch = LaunchEnvironment::local(1, 4, "training-17")?; // rank 1 of 4, for `Builder::launch`
/// assert_eq!((launch.rank, launch.world), (1, 4));
/// # Ok::<(), symmem::BootstrapError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchEnvironment {
    /// This rank, counted from 0.
    pub rank: u32,
    /// Ranks in the job.
    pub world: u32,
    /// This rank among the ranks of its host.
    pub local_rank: u32,
    /// Ranks on this host.
    pub local_world: u32,
    /// `host:port` where rank 0 listens; needs the feature `tcp`. `None`, the default, is an abstract Unix
    /// socket named after the job, where the kernel vouches for the user at the other end.
    pub address: Option<String>,
    /// The secret that makes a process a rank of this job. Required with `address`. `None`, the default, is the secret in
    /// the user's secret file (see [`Bootstrap::connect`](crate::bootstrap::Bootstrap::connect)), with the job's name.
    pub secret: Option<Secret>,
    /// The job's name, which tells it apart from the user's other jobs on the host. Not required with `secret`.
    pub job: Option<String>,
    /// Counts rebuilds of the job: ranks of different generations never meet.
    pub generation: u64,
    /// The launcher that set the variables, for messages.
    pub source: &'static str,
}

impl LaunchEnvironment {
    /// Returns the launch environment of this process's variables; a world of one rank if no launcher set any.
    ///
    /// # Errors
    /// Those of [`LaunchEnvironment::from_variables`]; [`BootstrapError::System`] if the kernel has no random
    /// bytes.
    pub fn detect() -> Result<Self, BootstrapError> {
        // A value that is not UTF-8 is kept, so that the error about it can show it.
        let lookup = |name: &str| value_of(name).map(|value| value.to_string_lossy().into_owned());
        let Some(mut environment) = Self::from_variables(lookup)? else {
            return Self::alone();
        };
        if environment.job.is_none() && environment.source == PMI {
            environment.job = job_of_parent();
        }
        Ok(environment)
    }

    /// Returns a world of one rank, which no other process can join.
    ///
    /// # Errors
    /// [`BootstrapError::System`] if the kernel has no random bytes.
    pub fn alone() -> Result<Self, BootstrapError> {
        let secret = Secret::random().map_err(|source| BootstrapError::System {
            rank: 0,
            call: "getrandom",
            source,
        })?;
        Ok(Self {
            secret: Some(secret),
            ..Self::local(0, 1, random_job(0)?)?
        })
    }

    /// Returns the environment of rank `rank` of `world` on this host, which meets under the name `job`:
    /// explicit configuration.
    ///
    /// # Errors
    /// [`BootstrapError::RankOutsideWorld`] if `rank` or `world` is out of range.
    pub fn local(rank: u32, world: u32, job: impl Into<String>) -> Result<Self, BootstrapError> {
        let environment = Self {
            rank,
            world,
            local_rank: rank,
            local_world: world,
            address: None,
            secret: None,
            job: Some(job.into()),
            generation: 0,
            source: "explicit configuration",
        };
        environment.check()?;
        Ok(environment)
    }

    /// Returns the launch environment of the variables that `lookup` returns, or `None` if they name no rank.
    ///
    /// Tries, in order: `SYMMEM_*` (set by `symmem run` or by hand), torchrun, Open MPI, PMI (MPICH, Intel
    /// MPI), Slurm. Whichever names the rank, `SYMMEM_RENDEZVOUS`, `SYMMEM_SECRET`, `SYMMEM_JOB` and
    /// `SYMMEM_GENERATION` take precedence for the rendezvous.
    ///
    /// # Errors
    /// [`BootstrapError::BadVariable`], [`BootstrapError::MissingVariable`],
    /// [`BootstrapError::RankOutsideWorld`], [`BootstrapError::SeveralHosts`].
    pub fn from_variables(
        lookup: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, BootstrapError> {
        // Job scripts write `VARIABLE=` to unset one.
        let variables = Variables {
            lookup: |name: &str| lookup(name).filter(|value| !value.is_empty()),
        };
        let launchers = [
            Variables::symmem_run,
            Variables::torchrun,
            Variables::open_mpi,
            Variables::pmi,
            Variables::slurm,
        ];
        for launcher in launchers {
            if let Some(mut environment) = launcher(&variables)? {
                variables.meeting_place(&mut environment)?;
                environment.check()?;
                return Ok(Some(environment));
            }
        }
        Ok(None)
    }

    /// Checks that the numbers are consistent and all ranks are on one host.
    pub(super) fn check(&self) -> Result<(), BootstrapError> {
        let Self {
            rank,
            world,
            local_rank,
            local_world,
            source,
            ..
        } = *self;
        if rank >= world || world as usize > MAX_RANKS {
            return Err(BootstrapError::RankOutsideWorld {
                rank,
                world,
                origin: source,
            });
        }
        if local_world < world {
            return Err(BootstrapError::SeveralHosts { world, local_world });
        }
        if local_rank >= local_world {
            return Err(BootstrapError::RankOutsideWorld {
                rank: local_rank,
                world: local_world,
                origin: source,
            });
        }
        Ok(())
    }
}

const PMI: &str = "PMI";

/// Returns a random job name, which cannot be guessed.
pub(super) fn random_job(rank: u32) -> Result<String, BootstrapError> {
    let bytes = random_bytes().map_err(|source| BootstrapError::System {
        rank,
        call: "getrandom",
        source,
    })?;
    Ok(hex(&bytes[..16]))
}

/// Returns a job name derived from the parent process: Hydra passes its ranks no job name, but is the parent of
/// all ranks on a host.
fn job_of_parent() -> Option<String> {
    let pid = rustix::process::getppid()?.as_raw_nonzero().get();
    let parent = ProcessIdentity::of(u32::try_from(pid).ok()?)?;
    Some(format!("parent-{}-{}", parent.pid, parent.start_time))
}

/// Step numbers from here up are Slurm's own (batch script, interactive, external): only one process runs
/// there, whatever the task count is. From slurm.h, `SLURM_MAX_NORMAL_STEP_ID`.
const SLURM_FIRST_SPECIAL_STEP: u64 = 0xffff_fff0;

struct Variables<F> {
    lookup: F,
}

impl<F: Fn(&str) -> Option<String>> Variables<F> {
    fn text(&self, name: &str) -> Option<String> {
        (self.lookup)(name)
    }

    fn number(&self, name: &'static str) -> Result<Option<u32>, BootstrapError> {
        let Some(value) = self.text(name) else {
            return Ok(None);
        };
        match value.trim().parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(BootstrapError::BadVariable {
                name,
                value,
                expected: "a whole number from 0 up",
            }),
        }
    }

    /// Returns rank and world from two variables that must be set together.
    fn rank_and_world(
        &self,
        rank: &'static str,
        world: &'static str,
    ) -> Result<Option<(u32, u32)>, BootstrapError> {
        match (self.number(rank)?, self.number(world)?) {
            (Some(rank), Some(world)) => Ok(Some((rank, world))),
            (None, None) => Ok(None),
            (Some(_), None) => Err(BootstrapError::MissingVariable {
                missing: world,
                present: rank,
            }),
            (None, Some(_)) => Err(BootstrapError::MissingVariable {
                missing: rank,
                present: world,
            }),
        }
    }

    /// Returns the environment of a launcher, whose local numbers default to the global ones.
    fn launched(
        &self,
        (rank, world): (u32, u32),
        local: (Option<u32>, Option<u32>),
        job: Option<String>,
        source: &'static str,
    ) -> LaunchEnvironment {
        LaunchEnvironment {
            rank,
            world,
            local_rank: local.0.unwrap_or(rank),
            local_world: local.1.unwrap_or(world),
            address: None,
            secret: None,
            job,
            generation: 0,
            source,
        }
    }

    fn symmem_run(&self) -> Result<Option<LaunchEnvironment>, BootstrapError> {
        let Some(place) = self.rank_and_world("SYMMEM_RANK", "SYMMEM_WORLD")? else {
            return Ok(None);
        };
        let local = (
            self.number("SYMMEM_LOCAL_RANK")?,
            self.number("SYMMEM_LOCAL_WORLD")?,
        );
        Ok(Some(self.launched(place, local, None, "SYMMEM_RANK")))
    }

    fn torchrun(&self) -> Result<Option<LaunchEnvironment>, BootstrapError> {
        // Either name alone is too common a word to mean this.
        if self.text("RANK").is_none() || self.text("WORLD_SIZE").is_none() {
            return Ok(None);
        }
        let Some(place) = self.rank_and_world("RANK", "WORLD_SIZE")? else {
            return Ok(None);
        };
        let local = (self.number("LOCAL_RANK")?, self.number("LOCAL_WORLD_SIZE")?);
        // TORCHELASTIC_RUN_ID is "none" by default, so the agent's port, which it owns while the job runs, is
        // part of the name. The port itself is never used: the agent's own store listens there. The restart
        // count keeps out ranks left over from an earlier attempt.
        let parts = [
            "TORCHELASTIC_RUN_ID",
            "MASTER_ADDR",
            "MASTER_PORT",
            "TORCHELASTIC_RESTART_COUNT",
        ]
        .map(|name| self.text(name).unwrap_or_default());
        let job = (!parts[0].is_empty() || !parts[2].is_empty())
            .then(|| format!("torchrun-{}", parts.join("-")));
        Ok(Some(self.launched(place, local, job, "torchrun")))
    }

    fn open_mpi(&self) -> Result<Option<LaunchEnvironment>, BootstrapError> {
        let Some(place) = self.rank_and_world("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")?
        else {
            return Ok(None);
        };
        let local = (
            self.number("OMPI_COMM_WORLD_LOCAL_RANK")?,
            self.number("OMPI_COMM_WORLD_LOCAL_SIZE")?,
        );
        let job = self
            .text("PMIX_NAMESPACE")
            .or_else(|| self.text("OMPI_MCA_ess_base_jobid"))
            .or_else(|| self.text("OMPI_MCA_orte_hnp_uri"))
            .map(|job| format!("openmpi-{job}"));
        Ok(Some(self.launched(place, local, job, "Open MPI")))
    }

    fn pmi(&self) -> Result<Option<LaunchEnvironment>, BootstrapError> {
        let Some(place) = self.rank_and_world("PMI_RANK", "PMI_SIZE")? else {
            return Ok(None);
        };
        let mut local = (
            self.number("MPI_LOCALRANKID")?,
            self.number("MPI_LOCALNRANKS")?,
        );
        let mut job = self
            .text("PMI_JOBID")
            .or_else(|| self.text("PMIX_NAMESPACE"));
        // `srun --mpi=pmi2` sets PMI's rank and size and leaves the rest to Slurm's variables.
        if let Some(slurm) = self.slurm()? {
            local = (
                local.0.or(Some(slurm.local_rank)),
                local.1.or(Some(slurm.local_world)),
            );
            job = job.or(slurm.job);
        }
        Ok(Some(self.launched(place, local, job, PMI)))
    }

    fn slurm(&self) -> Result<Option<LaunchEnvironment>, BootstrapError> {
        let (Some(job), Some(step)) = (self.text("SLURM_JOB_ID"), self.text("SLURM_STEP_ID"))
        else {
            // Inside `sbatch` and `salloc`, but not started by `srun`: one process, not a rank.
            return Ok(None);
        };
        if step
            .parse()
            .is_ok_and(|step: u64| step >= SLURM_FIRST_SPECIAL_STEP)
        {
            return Ok(None);
        }
        // The step's own count if srun set it, else the allocation's.
        let world = ["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"]
            .into_iter()
            .find(|name| self.text(name).is_some())
            .unwrap_or("SLURM_NTASKS");
        let Some(place) = self.rank_and_world("SLURM_PROCID", world)? else {
            return Ok(None);
        };
        let local = (self.number("SLURM_LOCALID")?, self.slurm_tasks_here()?);
        Ok(Some(self.launched(
            place,
            local,
            Some(format!("slurm-{job}.{step}")),
            "Slurm",
        )))
    }

    /// Returns the tasks on this node, from a list such as `4(x2),3` with one count per node.
    fn slurm_tasks_here(&self) -> Result<Option<u32>, BootstrapError> {
        let node = self.number("SLURM_NODEID")?.unwrap_or(0) as usize;
        for name in [
            "SLURM_STEP_TASKS_PER_NODE",
            "SLURM_TASKS_PER_NODE",
            "SLURM_NTASKS_PER_NODE",
        ] {
            if let Some(value) = self.text(name) {
                let expected = "a list of tasks per node such as 8 or 4(x2),3";
                return match tasks_of_node(&value, node) {
                    Some(tasks) => Ok(Some(tasks)),
                    None => Err(BootstrapError::BadVariable {
                        name,
                        value,
                        expected,
                    }),
                };
            }
        }
        Ok(None)
    }

    fn meeting_place(&self, environment: &mut LaunchEnvironment) -> Result<(), BootstrapError> {
        if let Some(job) = self.text("SYMMEM_JOB") {
            environment.job = Some(job);
        }
        if let Some(value) = self.text("SYMMEM_SECRET") {
            // The value is not repeated in the error: it may be almost right.
            environment.secret =
                Some(
                    Secret::from_hex(&value).ok_or_else(|| BootstrapError::BadVariable {
                        name: "SYMMEM_SECRET",
                        value: format!("<{} characters>", value.len()),
                        expected: "64 hexadecimal digits",
                    })?,
                );
        }
        if let Some(value) = self.text("SYMMEM_GENERATION") {
            environment.generation = value.parse().map_err(|_| BootstrapError::BadVariable {
                name: "SYMMEM_GENERATION",
                value,
                expected: "a whole number from 0 up",
            })?;
        }
        if let Some(value) = self.text("SYMMEM_RENDEZVOUS") {
            let valid = value.rsplit_once(':').is_some_and(|(host, port)| {
                !host.is_empty() && port.parse().is_ok_and(|port: u16| port != 0)
            });
            if !valid {
                return Err(BootstrapError::BadVariable {
                    name: "SYMMEM_RENDEZVOUS",
                    value,
                    expected: "host:port with a port from 1 to 65535",
                });
            }
            environment.address = Some(value);
        }
        Ok(())
    }
}

/// Returns the count for node `node` in Slurm's run-length list.
fn tasks_of_node(list: &str, node: usize) -> Option<u32> {
    let mut first = 0;
    for item in list.split(',') {
        let (count, repeat) = match item.trim().split_once("(x") {
            Some((count, repeat)) => (count, repeat.strip_suffix(')')?.parse().ok()?),
            None => (item.trim(), 1usize),
        };
        let count = count.parse().ok()?;
        // A list may claim more nodes than numbers can count.
        first = repeat.checked_add(first)?;
        if node < first {
            return Some(count);
        }
    }
    None
}

#[cfg(test)]
#[path = "environment_tests.rs"]
mod tests;
