//! Launch environments: this rank's number and the rendezvous of its job, from a launcher's variables.

use crate::backend::abi::MAX_RANKS;
use crate::base::bootstrap_error::BootstrapError;
use crate::base::env::value_of;
use crate::base::limits::MAX_WORLD;
use crate::bootstrap::peer::MAX_NODE;
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
    /// socket named after the job, where the kernel vouches for the user at the other end. Required if not all ranks are
    /// on this host.
    pub address: Option<String>,
    /// The key of this rank's node, in place of the host's: ranks with equal keys share a node, and must be able to pass
    /// each other file descriptors. `None`, the default, is the host's boot ID and its network namespace.
    pub node: Option<String>,
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
            node: None,
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
    /// If not all ranks are on this host, the rendezvous is by TCP. Without `SYMMEM_RENDEZVOUS` rank 0 then listens at
    /// `MASTER_ADDR`, one port above `MASTER_PORT`, where torchrun's own store listens; or, in a Slurm step, on its first
    /// node, at a port from 20000 to 29999 that follows from the numbers of job and step.
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

    /// Returns whether the ranks may be on several nodes.
    pub(super) fn may_span_nodes(&self) -> bool {
        self.local_world < self.world || self.node.is_some()
    }

    /// Checks that the numbers are consistent, and that ranks on several hosts can meet.
    pub(super) fn check(&self) -> Result<(), BootstrapError> {
        let Self {
            rank,
            world,
            local_rank,
            local_world,
            source,
            ref address,
            ..
        } = *self;
        let most = match self.may_span_nodes() {
            true => MAX_WORLD,
            false => MAX_RANKS,
        };
        if rank >= world || world as usize > most {
            return Err(BootstrapError::RankOutsideWorld {
                rank,
                world,
                origin: source,
            });
        }
        if local_world < world && address.is_none() {
            return Err(BootstrapError::SeveralHosts { world, local_world });
        }
        if local_rank >= local_world || local_world as usize > MAX_RANKS {
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
const SLURM: &str = "Slurm";
const TORCHRUN: &str = "torchrun";

/// The ports at which ranks of a Slurm step meet: below those that the kernel gives to connections.
const SLURM_PORTS: std::ops::Range<u64> = 20_000..30_000;

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
            node: None,
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
        // part of the name. The port itself is not used: the agent's own store listens there. The restart
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
        Ok(Some(self.launched(place, local, job, TORCHRUN)))
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
            SLURM,
        )))
    }

    /// Returns where the ranks of torchrun meet: one port above that of its own store, on the same host.
    fn torchrun_address(&self) -> Result<Option<String>, BootstrapError> {
        let (Some(host), Some(port)) = (self.text("MASTER_ADDR"), self.number("MASTER_PORT")?)
        else {
            return Ok(None);
        };
        let above = u16::try_from(port)
            .ok()
            .and_then(|port| port.checked_add(1));
        let port = above.ok_or_else(|| BootstrapError::BadVariable {
            name: "MASTER_PORT",
            value: port.to_string(),
            expected: "a port below 65535, so that SYMMEM_RENDEZVOUS can be the next one",
        })?;
        // A bare address of version 6 has colons of its own.
        let host = match host.contains(':') && !host.starts_with('[') {
            true => format!("[{host}]"),
            false => host,
        };
        Ok(Some(format!("{host}:{port}")))
    }

    /// Returns where the ranks of a Slurm step meet: on its first node, which runs rank 0.
    fn slurm_address(&self) -> Option<String> {
        let lists = [
            "SLURM_STEP_NODELIST",
            "SLURM_JOB_NODELIST",
            "SLURM_NODELIST",
        ];
        let list = lists.into_iter().find_map(|name| self.text(name))?;
        let host = first_host(&list)?;
        let number = |name: &str| self.text(name)?.parse::<u64>().ok();
        let job = number("SLURM_JOB_ID")?.wrapping_mul(16);
        let place = job.wrapping_add(number("SLURM_STEP_ID").unwrap_or(0));
        let ports = SLURM_PORTS.end - SLURM_PORTS.start;
        Some(format!("{host}:{}", SLURM_PORTS.start + place % ports))
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
        if let Some(node) = self.text("SYMMEM_NODE") {
            if node.len() > MAX_NODE {
                return Err(BootstrapError::BadVariable {
                    name: "SYMMEM_NODE",
                    value: node,
                    expected: "a text of at most 256 bytes",
                });
            }
            environment.node = Some(node);
        }
        // Only ranks of one host need no port.
        if environment.address.is_none() && environment.local_world < environment.world {
            environment.address = match environment.source {
                TORCHRUN => self.torchrun_address()?,
                SLURM => self.slurm_address(),
                _ => None,
            };
        }
        Ok(())
    }
}

/// Returns the first host of Slurm's list, such as `node[07-12,31],login`.
fn first_host(list: &str) -> Option<String> {
    let end = list.find([',', '[']).unwrap_or(list.len());
    let (prefix, rest) = list.split_at(end);
    let host = match rest.strip_prefix('[') {
        None => prefix.to_owned(),
        Some(numbers) => {
            let (numbers, behind) = numbers.split_once(']')?;
            let first = numbers.split([',', '-']).next()?;
            let suffix = behind.split(',').next()?;
            // More than one list of numbers in a name: rank 0's host is then set by hand.
            if suffix.contains('[') {
                return None;
            }
            format!("{prefix}{first}{suffix}")
        }
    };
    (!host.is_empty()).then_some(host)
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
