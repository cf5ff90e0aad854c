//! Whether ours go by the algorithm that is named: where they would not, others would be measured under its name.

use super::contender::{By, Contender};
use super::how::is_multicast;
use super::points::Run;
use super::session::Way;
use super::shape::Shape;
use crate::Result;
use crate::report::collectives::OURS;
use crate::report::{Collective, Placement};
use symmem::{Algorithm, MulticastSupport};

impl Run<'_> {
    /// Why what is to go by multicast would not; `None` if it would, or goes another way. All ranks come to the
    /// same.
    pub(super) fn without_multicast(&self, by: By) -> Option<String> {
        let named = self.named(by)?;
        let status = self.communicator().multicast();
        let reached = status.support != MulticastSupport::None && self.session.is_in_multicast();
        let why = status.reason.unwrap_or_else(|| {
            "buffers of this size find no room in the object; raise SYMMEM_MULTICAST_BYTES".into()
        });
        (is_multicast(named) && !reached).then_some(why)
    }

    /// Why none of these operations of `bytes` goes by the algorithm that was asked for; `None` if one does, or
    /// the choice is the selector's. All ranks come to the same.
    pub(super) fn goes_by_none(
        &self,
        collectives: &[Collective],
        bytes: u64,
    ) -> Result<Option<String>> {
        if self.named(By::Us).is_none() {
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
                match self.strays(&shape, By::Us, placement)? {
                    Some(way) => reasons.push(format!("{}: {}", collective.name(), why(&way))),
                    None => return Ok(None),
                }
            }
        }
        reasons.dedup();
        Ok(Some(reasons.join("; ")))
    }

    /// The algorithm of ours that one is to go by, if it is one that is named.
    fn named(&self, by: By) -> Option<Algorithm> {
        match by {
            By::Us => self.algorithm,
            By::Own(algorithm) => Some(algorithm),
            _ => None,
        }
    }

    /// The way that ours would go where it is not by the algorithm that is named; `None` if it is, or there is none.
    /// All ranks come to the same.
    pub(super) fn strays(
        &self,
        shape: &Shape,
        by: By,
        placement: Placement,
    ) -> Result<Option<Way>> {
        if self.named(by).is_none() {
            return Ok(None);
        }
        Ok(match self.session.way(&self.call(shape, by, placement))? {
            Way::AsNamed(_) => None,
            other => Some(other),
        })
    }

    /// Says that one has no part in an operation, and why. That a baseline has no such operation at all is not said.
    pub(super) fn leave_out(&mut self, contender: &Contender, collective: Collective, way: &Way) {
        let name = match (contender.by, self.named(contender.by), way) {
            (By::Own(_), _, Way::Refused(_)) => return,
            (By::Us, Some(algorithm), _) => format!("{OURS} {}", lower(algorithm)),
            _ => contender.name.to_owned(),
        };
        let (operation, element, why) = (collective.name(), self.session.element.name, why(way));
        let note = format!("{name} is left out of {operation} of {element}: {why}");
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// How we do it: the algorithm, and its grid.
    pub(super) fn how(
        &self,
        by: By,
        shape: &Shape,
        placement: Placement,
    ) -> Result<(String, u32, u32)> {
        if !matches!(by, By::Us | By::Own(_)) {
            return Ok(Default::default());
        }
        Ok(match self.session.way(&self.call(shape, by, placement))? {
            // Where the caller does the work there is no grid.
            Way::AsNamed(choice) if self.by_caller => (lower(choice.algorithm()), 0, 0),
            Way::AsNamed(choice) => (lower(choice.algorithm()), choice.blocks, choice.threads),
            _ => Default::default(),
        })
    }
}

/// Why a way is not the one that is named.
fn why(way: &Way) -> String {
    match way {
        Way::AsNamed(choice) => format!("{} does it", lower(choice.algorithm())),
        Way::Otherwise(other) => format!("{} would do it", lower(*other)),
        Way::Refused(why) => why.clone(),
    }
}

/// An algorithm's name as commands and reports have it.
fn lower(algorithm: Algorithm) -> String {
    algorithm.name().to_lowercase()
}
