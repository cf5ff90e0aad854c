//! The dissemination barrier: in step `s` each member tells the one 2^s after it, and hears the one 2^s before it.

use super::fault::LegFault;
use super::progress::Progress;
use super::tag::{Kind, tag};
use crate::network::wire::Wire;

/// The state: steps done, and whether the current one has been told.
#[derive(Default)]
pub struct Running {
    step: u32,
    told: bool,
}

impl Running {
    /// Does what can be done.
    pub fn poll<W: Wire>(&mut self, wire: &mut W) -> Result<Progress, LegFault<W::Fault>> {
        let (members, own) = (wire.members(), wire.own());
        while 1 << self.step < members {
            let distance = 1 << self.step;
            let tag = tag(Kind::Step, self.step);
            if !self.told {
                wire.send((own + distance) % members, tag, &[])?;
                self.told = true;
            }
            if wire
                .take((own + members - distance) % members, tag)
                .is_none()
            {
                return Ok(Progress::Waiting);
            }
            self.step += 1;
            self.told = false;
        }
        Ok(Progress::Done)
    }
}
