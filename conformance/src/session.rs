//! Runs cases on one communicator, and keeps buffers and streams from case to case.

use super::buffers::{Memory, Side, allocate};
use super::case::Case;
use super::collectives::{
    self, AlgorithmName, CollectiveCase, Lane, Members, Neighbor, RefusalCase, Site, SoakCase,
    SoakLoad, StreamOwner, refusals as collective_refusals, soak,
};
use super::context::{Context, STREAMS};
use super::dtype::Dtype;
use super::findings::{Fault, Findings};
use super::outcome::Outcome;
use super::transfer_case::{Operation, TransferCase};
use super::{norms, products, reduced_products, refusals, registration, transfers};
use std::time::Duration;
use symmem::backend::Device;
use symmem::backend::abi::RawStream;
use symmem::{Communicator, Error, Group, MulticastSupport, Result, Stream};

/// Default time limit of each wait for a peer.
pub const CASE_DEADLINE: Duration = Duration::from_secs(30);

/// Name of the failed operation if the device has no room for as many collectives at once as a case has.
const ALLOWING: &str = "allow_concurrent_collectives";

/// Name of the failed operation if the buffers of a case are not bound to the multicast object.
const BINDING: &str = "binding its buffers";

/// Runs cases on one rank, one after the other.
pub struct Session<'a> {
    communicator: &'a Communicator,
    streams: Vec<Stream>,
    /// Streams created outside of the library, for [`StreamOwner::Caller`].
    callers: Vec<Stream>,
    buffers: Vec<Box<dyn Memory>>,
    /// The groups made so far; `None` if this rank is not a member.
    groups: Vec<(Members, Option<Group>)>,
    /// The user's kernel of crowded soaks: `None` until loaded, then the kernel if the device can run it.
    neighbor: Option<Option<Neighbor>>,
    /// NCCL or RCCL without and with symmetric windows: `None` until opened, then the result.
    vendors: [Option<std::result::Result<(), String>>; 2],
    deadline: Duration,
    usable: bool,
    #[cfg(test)]
    pub(super) fault: Option<Fault>,
}

/// Runs one case on a communicator. Collective: every rank passes the same case and gets the same
/// outcome.
///
/// Blocks until all ranks are done; each wait takes at most [`CASE_DEADLINE`].
pub fn run(communicator: &Communicator, case: &Case) -> Outcome {
    let mut session = match Session::new(communicator) {
        Ok(session) => session,
        Err(error) => return Outcome::Failed(error.to_string()),
    };
    let outcome = session.run(case);
    match (session.close(), outcome) {
        (Err(error), Outcome::Passed) => Outcome::Failed(error.to_string()),
        (_, outcome) => outcome,
    }
}

impl<'a> Session<'a> {
    /// Creates a session on `communicator`.
    ///
    /// # Errors
    /// If streams cannot be created.
    pub fn new(communicator: &'a Communicator) -> Result<Self> {
        let streams = (0..STREAMS)
            .map(|_| communicator.stream())
            .collect::<Result<_>>()?;
        // SAFETY: the backend only creates streams here, and `close` destroys them.
        let backend = unsafe { communicator.backend() };
        let callers = (0..STREAMS)
            .map(|_| {
                let raw = backend.stream_create().map_err(|failure| Error::System {
                    rank: communicator.rank(),
                    call: "stream_create",
                    reason: failure.to_string(),
                })?;
                // SAFETY: the stream was just created on this rank's device, and only `close` destroys it.
                Ok(unsafe { communicator.stream_from_raw(raw.0) })
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            communicator,
            streams,
            callers,
            buffers: Vec::new(),
            groups: Vec::new(),
            neighbor: None,
            vendors: [None, None],
            deadline: CASE_DEADLINE,
            usable: true,
            #[cfg(test)]
            fault: None,
        })
    }

    /// Sets the time limit of each wait for a peer, instead of [`CASE_DEADLINE`].
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Whether another case can run; false if a case has broken the communicator.
    pub fn is_usable(&self) -> bool {
        self.usable && self.communicator.check().is_ok()
    }

    /// Runs one case. Collective: every rank passes the same case and gets the same outcome, unless the
    /// case breaks the communicator. Blocks until all ranks are done.
    pub fn run(&mut self, case: &Case) -> Outcome {
        let outcome = match self.missing(case) {
            Some(reason) => Outcome::Skipped(reason),
            None => match self.allow(case).and_then(|()| self.findings(case)) {
                Ok(findings) if findings.is_empty() => Outcome::Passed,
                Ok(findings) => Outcome::Failed(findings.join("; ")),
                // The message says what is not supported, for example an element type.
                Err(Error::Unsupported {
                    message, operation, ..
                }) if self.may_be_missing(case) || [BINDING, ALLOWING].contains(&operation) => {
                    Outcome::Skipped(message)
                }
                Err(error) => Outcome::Failed(error.to_string()),
            },
        };
        self.agree(outcome)
    }

    /// Sets how many collectives are under way at once: only cases with several have less than the whole device.
    /// What earlier cases used is no longer in use. Collective.
    fn allow(&self, case: &Case) -> Result<()> {
        let at_once = match case {
            Case::Collective(case) => collectives::lanes(case),
            Case::Soak(case) => case.streams(),
            Case::Transfer(_)
            | Case::Refusal(_)
            | Case::AllGatherGemm(_)
            | Case::Norm(_)
            | Case::NormRefusal(_)
            | Case::GemmReduce(_)
            | Case::GemmReduceRefusal(_) => 1,
        };
        self.communicator
            .allow_concurrent_collectives(at_once as u32)
    }

    /// Returns why the ranks cannot run a case; `None` if they can. Collective.
    fn missing(&mut self, case: &Case) -> Option<String> {
        if let Some(missing) = case.missing(self.communicator.capabilities()) {
            return Some(missing.into());
        }
        let over_nodes = self.over_nodes();
        match case {
            Case::Transfer(case) if case.needs_kernels(&self.nodes()) => Some(
                "an engine is of kernels, and only streams reach ranks of other nodes, without one"
                    .into(),
            ),
            Case::NormRefusal(_) | Case::GemmReduceRefusal(_) if over_nodes => {
                Some("over nodes, norms and GEMMs with communication are all refused".into())
            }
            Case::Collective(case) => match case.variant.algorithm {
                AlgorithmName::Vendor => self.vendor(false),
                AlgorithmName::VendorWindows => self.vendor(true),
                algorithm if algorithm.is_multicast() => self.no_multicast(),
                _ => None,
            },
            Case::AllGatherGemm(case) if case.variant.is_nccl() => self.vendor(false),
            Case::Soak(case) if case.load == SoakLoad::Nccl => self.vendor(false),
            Case::Norm(case) => case.missing(self.communicator.world_size()),
            _ => None,
        }
    }

    /// Whether the ranks are on several nodes.
    fn over_nodes(&self) -> bool {
        self.communicator.nodes() > 1
    }

    /// The node of each rank.
    fn nodes(&self) -> Vec<usize> {
        let peers = self.communicator.peers().iter();
        peers.map(|peer| peer.node).collect()
    }

    /// Whether a case may need something that only the call itself can check, such as an element type that NCCL or RCCL
    /// reduces, a GEMM kernel, or a group on one node.
    fn may_be_missing(&self, case: &Case) -> bool {
        match case {
            Case::Collective(case) => {
                case.variant.algorithm.is_nccl() || self.over_nodes() && case.wraps_between_nodes()
            }
            Case::AllGatherGemm(_) | Case::GemmReduce(_) | Case::GemmReduceRefusal(_) => true,
            Case::Norm(_) => self.over_nodes(),
            _ => false,
        }
    }

    /// Returns why multicast is not available; `None` if it is. The same on all ranks.
    fn no_multicast(&self) -> Option<String> {
        let status = self.communicator.multicast();
        let reason = status.reason.unwrap_or_default();
        (status.support == MulticastSupport::None)
            .then(|| format!("multicast is not available: {reason}"))
    }

    /// Opens NCCL or RCCL once; returns why it is not available, `None` if it is. Collective.
    fn vendor(&mut self, windows: bool) -> Option<String> {
        let slot = usize::from(windows);
        if self.vendors[slot].is_none() {
            let opened = self.open_nccl(windows);
            self.vendors[slot] = Some(opened.map_err(|error| match error {
                Error::Unsupported { message, .. } => message,
                error => error.to_string(),
            }));
            // Buffers allocated from now on are registered as windows.
            let kept = std::mem::take(&mut self.buffers);
            if let Err(error) = kept.into_iter().try_for_each(|buffers| buffers.free()) {
                self.vendors[slot] = Some(Err(error.to_string()));
            }
        }
        self.vendors[slot].as_ref()?.as_ref().err().cloned()
    }

    fn open_nccl(&self, windows: bool) -> Result<()> {
        self.communicator.open_nccl(windows)?;
        if windows {
            // Not every kind of memory can be registered as a window.
            let probe = self.communicator.allocate::<u8>(&[1])?;
            let registered = probe.register_with_nccl();
            probe.free()?;
            registered?;
        }
        Ok(())
    }

    fn findings(&mut self, case: &Case) -> Result<Findings> {
        match case {
            Case::Transfer(case) => self.transfer(case),
            Case::Collective(case) => self.collective(case),
            Case::Refusal(case) => self.refusals(case),
            Case::Soak(case) => self.soak(case),
            Case::AllGatherGemm(case) => products::check(&products::GemmCheck {
                communicator: self.communicator,
                stream: &self.streams[0],
                case,
                deadline: self.deadline,
                fault: self.fault(),
            }),
            Case::Norm(case) => norms::check(&norms::NormCheck {
                communicator: self.communicator,
                stream: &self.streams[0],
                case,
                deadline: self.deadline,
                fault: self.fault(),
            }),
            Case::NormRefusal(case) => norms::check_refusals(
                self.communicator,
                &self.streams[0],
                case,
                self.deadline,
                self.fault(),
            ),
            Case::GemmReduce(case) => reduced_products::check(&reduced_products::GemmReduceCheck {
                communicator: self.communicator,
                stream: &self.streams[0],
                case,
                deadline: self.deadline,
                fault: self.fault(),
            }),
            Case::GemmReduceRefusal(case) => reduced_products::check_refusals(
                self.communicator,
                &self.streams[0],
                case,
                self.deadline,
                self.fault(),
            ),
        }
    }

    /// Frees the session's buffers and streams. Collective; blocks.
    ///
    /// # Errors
    /// If a stream does not finish in time or cannot be destroyed, or as any collective call.
    pub fn close(self) -> Result<()> {
        let communicator = self.communicator;
        if let Some(Some(neighbor)) = self.neighbor {
            neighbor.free()?;
        }
        for stream in self.callers {
            stream.synchronize_within(self.deadline)?;
            let raw = RawStream(stream.raw());
            drop(stream);
            // SAFETY: `new` created the stream, it is idle, and its only handle was dropped above.
            let destroyed = unsafe { communicator.backend().stream_destroy(raw) };
            destroyed.map_err(|failure| Error::System {
                rank: communicator.rank(),
                call: "stream_destroy",
                reason: failure.to_string(),
            })?;
        }
        self.buffers
            .into_iter()
            .try_for_each(|buffers| buffers.free())
    }

    fn fault(&self) -> Option<Fault> {
        #[cfg(test)]
        return self.fault;
        #[cfg(not(test))]
        None
    }

    fn collective(&mut self, case: &CollectiveCase) -> Result<Findings> {
        self.join(case.members)?;
        let (destination, source) = collectives::sizes(case, self.communicator.world_size());
        let lanes = (0..collectives::lanes(case))
            .map(|_| self.take(case.dtype, destination, source))
            .collect::<Result<Vec<_>>>()?;
        // Without binding, the library would replace the multicast algorithm, and the case would not test it.
        let status = self.communicator.multicast();
        let unbound =
            case.variant.algorithm.is_multicast() && lanes.iter().any(|lane| lane.is_unbound());
        let findings = match site(self.everyone(), &self.groups, case.members) {
            _ if unbound => Err(Error::Unsupported {
                rank: self.communicator.rank(),
                operation: BINDING,
                message: status.reason.unwrap_or_else(|| {
                    "the multicast object has no room left for this case's buffers; raise \
                     SYMMEM_MULTICAST_BYTES"
                        .into()
                }),
            }),
            Some(site) => {
                let streams = match case.stream {
                    StreamOwner::Library => &mut self.streams,
                    StreamOwner::Caller => &mut self.callers,
                };
                collectives::check(site, case, streams, &lanes)
            }
            None => Ok(Findings::new()),
        };
        self.buffers.extend(lanes);
        findings
    }

    fn refusals(&mut self, case: &RefusalCase) -> Result<Findings> {
        let after = case.case(collective_refusals::AFTER, false);
        let (destination, source) = collectives::sizes(&after, self.communicator.world_size());
        let buffers = vec![self.take(case.dtype, destination.max(4096), source.max(4096))?];
        let findings =
            collective_refusals::check(self.everyone(), case, &mut self.streams, &buffers);
        self.buffers.extend(buffers);
        findings
    }

    /// The site of a call by all ranks.
    fn everyone(&self) -> Site<'a> {
        Site {
            communicator: self.communicator,
            group: None,
            deadline: self.deadline,
            fault: self.fault(),
        }
    }

    fn soak(&mut self, case: &SoakCase) -> Result<Findings> {
        let communicator = self.communicator;
        while self.streams.len() < case.streams() {
            self.streams.push(communicator.stream()?);
        }
        if case.load == SoakLoad::Nccl {
            return self.soak_by_nccl(case);
        }
        if case.load == SoakLoad::Crowded && self.neighbor.is_none() {
            self.neighbor = Some(Neighbor::load(communicator)?);
        }
        soak::repeat(communicator, case, |number| self.burst(case, number))
    }

    /// Makes calls by NCCL or RCCL one after the other, without those that it does not serve.
    fn soak_by_nccl(&mut self, soak: &SoakCase) -> Result<Findings> {
        let mut served = 0;
        let mut findings = soak::repeat(self.communicator, soak, |number| {
            let mut findings = Findings::new();
            for soak::Planned { case, calls } in self.planned(soak, number) {
                for _ in 0..calls {
                    match self.collective(&case) {
                        // All ranks decide alike.
                        Err(Error::Unsupported { .. }) => break,
                        other => findings.extend(other?),
                    }
                    served += 1;
                }
            }
            Ok(findings)
        })?;
        if served == 0 {
            findings.push("none of the calls was one that NCCL or RCCL serves".into());
        }
        Ok(findings)
    }

    fn planned(&self, soak: &SoakCase, number: u64) -> Vec<soak::Planned> {
        let has = (self.no_multicast().is_none(), self.over_nodes());
        soak::burst(soak, number, self.communicator.capabilities(), has)
    }

    fn burst(&mut self, case: &SoakCase, number: u64) -> Result<Findings> {
        let communicator = self.communicator;
        let planned = self.planned(case, number);
        let mut buffers = Vec::new();
        for soak::Planned { case, .. } in &planned {
            self.join(case.members)?;
            let (destination, source) = collectives::sizes(case, communicator.world_size());
            buffers.push(self.take(case.dtype, destination, source)?);
        }
        let mut lanes = Vec::new();
        for (at, soak::Planned { case, .. }) in planned.iter().enumerate() {
            let (memory, stream) = (&*buffers[at], &self.streams[at]);
            let lane = site(self.everyone(), &self.groups, case.members)
                .map(|site| Lane::new(site, case, at, memory, stream));
            lanes.push(lane.transpose()?);
        }
        let neighbor = self
            .neighbor
            .as_mut()
            .filter(|_| case.load == SoakLoad::Crowded);
        let neighbor = neighbor.and_then(Option::as_mut);
        let streams = &mut self.streams[..case.streams()];
        let findings = soak::run(communicator, &planned, &lanes, streams, neighbor);
        drop(lanes);
        self.buffers.append(&mut buffers);
        findings
    }

    /// Creates the group of a case unless it exists. Collective.
    fn join(&mut self, members: Members) -> Result<()> {
        let known = self.groups.iter().any(|(of, _)| *of == members);
        if known || members == Members::All {
            return Ok(());
        }
        let (rank, world) = (self.communicator.rank(), self.communicator.world_size());
        let (color, key) = members.choice(rank, world);
        let group = self.communicator.split(color, key)?;
        self.groups.push((members, group));
        Ok(())
    }

    fn transfer(&mut self, case: &TransferCase) -> Result<Findings> {
        let (destination, source) = transfers::sizes(case, self.communicator.world_size());
        // Registration and refusals need some elements even if the case's length is 0.
        let (destination, source) = (destination.max(1024), source.max(1024));
        let buffers = self.take(case.dtype, destination, source)?;
        let context = Context {
            communicator: self.communicator,
            streams: &self.streams,
            case,
            deadline: self.deadline,
            fault: self.fault(),
        };
        let findings = match case.operation {
            Operation::HostCopy => transfers::host_copy(&context, &*buffers),
            Operation::Refusals => refusals::check(&context, &*buffers),
            Operation::Registration => registration::check(&context, &*buffers),
            _ => transfers::check(&context, &*buffers),
        };
        self.buffers.push(buffers);
        findings
    }

    /// Returns buffers of at least these lengths, kept ones if they are long enough. All ranks decide
    /// alike, since all run the same cases.
    fn take(&mut self, dtype: Dtype, destination: usize, source: usize) -> Result<Box<dyn Memory>> {
        let kept = self.buffers.iter().position(|kept| kept.dtype() == dtype);
        if let Some(kept) = kept {
            let kept = self.buffers.swap_remove(kept);
            if kept.length(Side::Destination) >= destination && kept.length(Side::Source) >= source
            {
                return Ok(kept);
            }
            kept.free()?;
        }
        let (destination, source) = (destination.next_power_of_two(), source.next_power_of_two());
        let buffers = allocate(self.communicator, dtype, destination, source)?;
        if let Some(Ok(())) = self.vendors[1] {
            buffers.register_with_nccl()?;
        }
        Ok(buffers)
    }

    /// Combines the outcomes of all ranks: failed if any rank failed. Collective.
    fn agree(&mut self, mine: Outcome) -> Outcome {
        let told = serde_json::to_vec(&mine).unwrap_or_default();
        let answers = match self.communicator.host_all_gather(&told) {
            Ok(answers) => answers,
            Err(error) => {
                self.usable = false;
                let rank = self.communicator.rank();
                return match mine {
                    Outcome::Failed(reason) => Outcome::Failed(format!("rank {rank}: {reason}")),
                    _ => Outcome::Failed(format!("the ranks could not exchange outcomes: {error}")),
                };
            }
        };
        let outcomes = answers.iter().map(|answer| {
            serde_json::from_slice(answer)
                .unwrap_or_else(|error| Outcome::Failed(format!("sent no valid outcome: {error}")))
        });
        let mut agreed = Outcome::Passed;
        for (rank, outcome) in outcomes.enumerate() {
            match outcome {
                Outcome::Failed(reason) => {
                    return Outcome::Failed(format!("rank {rank}: {reason}"));
                }
                Outcome::Skipped(reason) => agreed = Outcome::Skipped(reason),
                Outcome::Passed => {}
            }
        }
        agreed
    }
}

/// The site of a call by `members`; `None` if this rank is not a member.
fn site<'s>(
    everyone: Site<'s>,
    groups: &'s [(Members, Option<Group>)],
    members: Members,
) -> Option<Site<'s>> {
    let group = groups.iter().find(|(of, _)| *of == members);
    let group = group.and_then(|(_, group)| group.as_ref());
    (group.is_some() || members == Members::All).then_some(Site { group, ..everyone })
}
