//! Checks that a call uses the named algorithm. Otherwise another algorithm would be measured under its name.

use super::contender::{Contender, Implementation};
use super::how::is_multicast;
use super::points::Run;
use super::session::ResolvedAlgorithm;
use super::shape::Shape;
use crate::Result;
use crate::report::collectives::OURS;
use crate::report::{Collective, Placement};
use symmem::{Algorithm, Carrier, Explanation, MulticastSupport};

impl Run<'_> {
    /// Returns why a contender that names multicast cannot use it; `None` if it can, or names no multicast. The same
    /// on all ranks.
    pub(super) fn without_multicast(&self, by: Implementation) -> Option<String> {
        let named = self.named(by)?;
        let status = self.communicator().multicast();
        let reached = status.support != MulticastSupport::None && self.session.is_in_multicast();
        let why = status.reason.unwrap_or_else(|| {
            "the multicast object has no room for buffers of this size; raise SYMMEM_MULTICAST_BYTES".into()
        });
        (is_multicast(named) && !reached).then_some(why)
    }

    /// Returns why none of these operations of `bytes` would use the requested algorithm; `None` if one would, or no
    /// algorithm was requested. The same on all ranks.
    pub(super) fn why_unused(
        &self,
        collectives: &[Collective],
        bytes: u64,
    ) -> Result<Option<String>> {
        if self.named(Implementation::Us).is_none() {
            return Ok(None);
        }
        let world = self.communicator().world_size();
        let mut reasons = Vec::new();
        for &collective in collectives {
            let Some(shape) = Shape::new(collective, bytes, self.session.element.size, world)
            else {
                return Ok(None);
            };
            for placement in Placement::ALL.into_iter().filter(|p| shape.has(*p)) {
                match self.strays(&shape, Implementation::Us, placement)? {
                    Some(resolved) => {
                        reasons.push(format!("{}: {}", collective.name(), why(&resolved)))
                    }
                    None => return Ok(None),
                }
            }
        }
        reasons.dedup();
        Ok(Some(reasons.join("; ")))
    }

    /// Returns symmem's algorithm that a contender names, if any.
    fn named(&self, by: Implementation) -> Option<Algorithm> {
        match by {
            Implementation::Us => self.algorithm,
            Implementation::Own(algorithm) => Some(algorithm),
            _ => None,
        }
    }

    /// Returns how a call would be made if it would not use the named algorithm; `None` if it would, or no algorithm
    /// is named. The same on all ranks.
    pub(super) fn strays(
        &self,
        shape: &Shape,
        by: Implementation,
        placement: Placement,
    ) -> Result<Option<ResolvedAlgorithm>> {
        if self.named(by).is_none() {
            return Ok(None);
        }
        Ok(
            match self.session.resolved(&self.call(shape, by, placement))? {
                ResolvedAlgorithm::AsNamed(_) => None,
                other => Some(other),
            },
        )
    }

    /// Notes that a contender is left out of an operation, and why. Makes no note for a baseline algorithm that does
    /// not support the operation at all.
    pub(super) fn leave_out(
        &mut self,
        contender: &Contender,
        collective: Collective,
        resolved: &ResolvedAlgorithm,
    ) {
        let name = match (contender.by, self.named(contender.by), resolved) {
            (Implementation::Own(_), _, ResolvedAlgorithm::Refused(_)) => return,
            (Implementation::Us, Some(algorithm), _) => format!("{OURS} {}", lower(algorithm)),
            _ => contender.name.to_owned(),
        };
        let (operation, element, why) =
            (collective.name(), self.session.element.name, why(resolved));
        let note = format!("{name} is left out of {operation} of {element}: {why}");
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Returns the algorithm of a call of symmem, with blocks and threads of its grid.
    pub(super) fn how(
        &self,
        by: Implementation,
        shape: &Shape,
        placement: Placement,
    ) -> Result<(String, u32, u32)> {
        if !matches!(
            by,
            Implementation::Us | Implementation::Own(_) | Implementation::OwnMemory
        ) {
            return Ok(Default::default());
        }
        Ok(
            match self.session.resolved(&self.call(shape, by, placement))? {
                // If the caller does the work, there is no grid.
                ResolvedAlgorithm::AsNamed(explanation) => {
                    let choice = explanation.choice().filter(|_| !self.by_caller);
                    let grid = choice.map_or((0, 0), |choice| (choice.blocks, choice.threads));
                    (brief(&explanation), grid.0, grid.1)
                }
                _ => Default::default(),
            },
        )
    }
}

/// Describes why a call would not use the named algorithm.
fn why(resolved: &ResolvedAlgorithm) -> String {
    match resolved {
        ResolvedAlgorithm::AsNamed(explanation) => {
            format!("the call uses {}", brief(explanation))
        }
        ResolvedAlgorithm::Otherwise(other) => format!("the call would use {}", lower(*other)),
        ResolvedAlgorithm::Refused(why) => why.clone(),
    }
}

/// Names the algorithms of this rank's stages, and of its legs between nodes with what carries them.
fn brief(explanation: &Explanation) -> String {
    let stages = explanation.stages.iter();
    let mut names: Vec<String> = stages
        .map(|stage| lower(stage.choice.algorithm()))
        .collect();
    if let Some(between) = &explanation.between_nodes {
        let carrier = match between.carrier {
            Carrier::Nccl => "nccl",
            _ => "ucx",
        };
        let legs = between.legs.iter();
        names.extend(legs.map(|leg| match leg.shape {
            Some(shape) => format!("{carrier} {shape}"),
            None => carrier.into(),
        }));
    }
    names.dedup();
    names.join(" + ")
}

/// Returns an algorithm's name as commands and reports write it.
fn lower(algorithm: Algorithm) -> String {
    algorithm.name().to_lowercase()
}
