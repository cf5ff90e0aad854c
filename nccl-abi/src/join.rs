//! How a rank joins a communicator: NCCL's first, where all ranks meet whichever host they are on, then symmem's.

use crate::abi::{self, Comm, UniqueId};
use crate::choice::Agreed;
use crate::exit::at_exit;
use crate::failure::{Failure, of_nccl};
use crate::member::{self, Member};
use crate::{device, identifier, library, reentry, report};
use std::ffi::c_int;
use std::time::Duration;
use symmem::bootstrap::Bootstrap;
use symmem::{Communicator, DeviceChoice};

/// Time for a step of symmem's setup once NCCL has brought all ranks together.
const TOGETHER: Duration = Duration::from_secs(15);
/// Time for the other ranks to come to the setup after NCCL has brought all together, if some may be on another host. These
/// see in the identifier that rank 0 is not on theirs, give up at once, and have no way to say so.
const ARRIVAL: Duration = Duration::from_secs(2);
/// Time for a step of symmem's setup if there is no NCCL to do so.
const ALONE: Duration = Duration::from_secs(600);

/// Most bytes of a call that symmem does, or `all`.
const MOST_BYTES: &str = "SYMMEM_NCCL_MOST_BYTES";

/// The numbers of ranks on this host and in the job, as launchers tell them.
const LAUNCHERS: [(&str, &str); 3] = [
    ("LOCAL_WORLD_SIZE", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE"),
    ("MPI_LOCALNRANKS", "PMI_SIZE"),
];

/// Returns the number of ranks of the job on this host, and whether these are all, as a launcher tells it.
fn launched() -> Option<(u32, bool)> {
    let number = |name| std::env::var(name).ok()?.parse::<u32>().ok();
    LAUNCHERS.into_iter().find_map(|(local, world)| {
        let local = number(local)?;
        Some((local, number(world) == Some(local)))
    })
}

/// Words behind a handle that is not NCCL's.
const HANDLE: usize = 512;

/// A rank that joins.
pub struct Join {
    /// Where the program wants the handle.
    place: *mut Comm,
    pub identifier: UniqueId,
    rank: u32,
    world: u32,
    /// This thread's device when it joined.
    device: Result<u32, Failure>,
}

impl Join {
    /// Checks the numbers.
    ///
    /// # Errors
    /// If there is no such rank, or nowhere to put the handle.
    pub fn new(
        place: *mut Comm,
        identifier: UniqueId,
        rank: c_int,
        world: c_int,
    ) -> Result<Self, Failure> {
        let wrong = |message: String| Failure::new(abi::INVALID_ARGUMENT, message);
        if place.is_null() {
            return Err(wrong(
                "the communicator has no place to be stored in".into(),
            ));
        }
        match (u32::try_from(rank), u32::try_from(world)) {
            (Ok(rank), Ok(world)) if rank < world => Ok(Self {
                place,
                identifier,
                rank,
                world,
                device: device::current(),
            }),
            _ => Err(wrong(format!("rank {rank} of {world}"))),
        }
    }

    /// Joins symmem's communicator. `nccl`: whether NCCL's was made.
    ///
    /// # Errors
    /// If neither library can serve the communicator: NCCL's, or why there is none, and symmem's.
    pub fn finish(&self, nccl: Result<(), Failure>) -> Result<(), Failure> {
        let member = self.member(nccl.is_ok());
        match (nccl, member) {
            (Ok(()), Ok(member)) => {
                // SAFETY: NCCL has stored its handle there, and the program keeps the place until the call returns.
                let comm = unsafe { self.place.read() };
                member::add(comm, member);
                Ok(())
            }
            (Ok(()), Err(why)) => {
                report::line(&format!(
                    "rank {} of {}: NCCL does all calls: {why}",
                    self.rank, self.world
                ));
                Ok(())
            }
            (Err(without), Ok(member)) => {
                if self.rank == 0 {
                    let line = format!("symmem does all calls: there is no NCCL: {without}");
                    report::line(&line);
                }
                // Zeros of its own: where a function of NCCL's gets it all the same, that finds no communicator in it.
                let comm: Comm = Box::into_raw(Box::new([0_u64; HANDLE])).cast();
                // SAFETY: the program keeps the place until the call returns.
                unsafe { self.place.write(comm) };
                member::add(comm, member);
                Ok(())
            }
            (Err(nccl), Err(why)) => Err(Failure::new(
                nccl.code,
                format!("neither symmem ({why}) nor NCCL ({nccl})"),
            )),
        }
    }

    /// Meets the other ranks in a communicator of symmem's.
    fn member(&self, has_nccl: bool) -> Result<Member, Failure> {
        let usage = |message: String| Failure::new(abi::INVALID_USAGE, message);
        if self.world == 1 && has_nccl {
            return Err(usage("it is the only rank".into()));
        }
        let launched = launched();
        if let Some((local, _)) = launched
            && local < self.world
        {
            let message = format!(
                "the launcher started {local} processes on this host, and the communicator has {} ranks",
                self.world
            );
            return Err(usage(message));
        }
        let meeting = identifier::meeting(&self.identifier, self.rank, self.world)?;
        let device = match &self.device {
            Ok(device) => *device,
            Err(failure) => return Err(usage(failure.message.clone())),
        };
        let step = match library::nccl() {
            Ok(_) => TOGETHER,
            Err(_) => ALONE,
        };
        let is_one_host = launched.is_some_and(|(_, are_all)| are_all);
        let arrival = match has_nccl && !is_one_host {
            true => ARRIVAL,
            false => step,
        };
        // The deadline of the setup holds for each of its steps, so the ranks meet once before with the shorter one.
        drop(Bootstrap::connect(meeting.clone(), arrival).map_err(symmem::Error::from)?);
        let communicator = Communicator::builder()
            .launch(meeting)
            .device(DeviceChoice::Ordinal(device))
            .setup_deadline(step)
            .build()?;
        if communicator.device().architecture == 0 {
            return Err(usage("the host backend has no streams of programs".into()));
        }
        let agreed = agree(&communicator, has_nccl)?;
        at_exit(member::report_all);
        Ok(Member::new(communicator, has_nccl, agreed))
    }
}

/// Agrees with all ranks on who can do what.
fn agree(communicator: &Communicator, has_nccl: bool) -> Result<Agreed, Failure> {
    let most_bytes = match std::env::var(MOST_BYTES) {
        Ok(all) if all == "all" => Some(u64::MAX),
        Ok(bytes) if !bytes.is_empty() => Some(bytes.parse().map_err(|_| {
            let message = format!("{MOST_BYTES} is {bytes:?}: use a number of bytes, or all");
            Failure::new(abi::INVALID_USAGE, message)
        })?),
        _ => None,
    };
    // Zero is no limit, so that limits of 0 and 1 byte differ here as they do in calls.
    let payload = [
        u64::from(has_nccl),
        most_bytes.map_or(0, |most| most.saturating_add(1)),
    ];
    let payload: Vec<u8> = payload.iter().flat_map(|one| one.to_le_bytes()).collect();
    let all = communicator.host_all_gather(&payload)?;
    if let Some(other) = all.iter().position(|other| other[8..] != payload[8..]) {
        let message = format!("{MOST_BYTES} differs between this rank and rank {other}");
        return Err(Failure::new(abi::INVALID_USAGE, message));
    }
    Ok(Agreed {
        has_nccl: all.iter().all(|other| other[0] == 1),
        most_bytes,
    })
}

/// Forgets a handle that is not NCCL's.
///
/// # Safety
/// The handle came from [`Join::finish`] without NCCL, and is used no more.
pub unsafe fn forget(comm: Comm) {
    // SAFETY: guaranteed by the caller.
    drop(unsafe { Box::from_raw(comm.cast::<[u64; HANDLE]>()) });
}

/// Makes an identifier: NCCL's, if it is there, with symmem's part.
///
/// # Errors
/// NCCL's, or the kernel's.
pub fn identifier() -> Result<UniqueId, Failure> {
    let mut identifier = UniqueId([0; 128]);
    if let Ok(nccl) = library::nccl() {
        // SAFETY: the pointer is to an identifier on this stack.
        let code = unsafe { (nccl.table.ncclGetUniqueId)(&mut identifier) };
        of_nccl(code)?;
    }
    // Every rank that has the variable makes the same identifier of it by itself.
    let is_fixed = std::env::var_os("NCCL_COMM_ID").is_some_and(|id| !id.is_empty());
    match is_fixed || reentry::is_nccls() {
        true => Ok(identifier),
        false => identifier::marked(identifier),
    }
}
