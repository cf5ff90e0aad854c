//! The side streams of copy-engine collectives.
//!
//! Each channel has its own streams, since channels do not wait for each other: on one stream they would, and
//! ranks that started different channels would wait forever. Captured and eager calls use different streams: a
//! stream that takes part in a capture takes no eager work until the capture has ended.

use crate::backend::abi::CAPABILITY_COPY_ENGINE;
use crate::base::error::Result;
use crate::base::limits::{COLLECTIVE_CHANNELS, LANES};
use crate::rank::context::Context;
use crate::rank::driver::Driver;
use crate::rank::release::{Held, ReleaseQueue};
use crate::rank::side::SideStream;
use std::sync::OnceLock;

/// The side streams of a call.
pub struct SideStreams {
    /// The lanes but for the first, which is the caller's stream. In a mesh, where each pair of devices has a
    /// link of its own, there is a lane for each peer that is copied to at once.
    pub lanes: Vec<SideStream>,
    /// The stream of the copy to this rank itself.
    pub own: SideStream,
}

/// Returns the number of lanes of a group of `members`, on a device that keeps its links busy by copying to
/// `fanout` peers at once.
pub fn most(fanout: u32, members: usize) -> usize {
    match fanout as usize {
        0 | 1 => LANES,
        fanout => fanout.min(members - 1),
    }
}

/// A channel's side streams, of eager and of captured calls.
type Pair = [SideStreams; 2];

/// The side streams of a group. Those of channel 0 are made together with the group. Those of another channel are made at
/// its first eager call that finds the device idle; until then its copies go by the caller's stream, one after the other.
///
/// A stream must not be made while a kernel may wait for a peer (see "Waiting kernels" in the repository's guide): on an
/// H200 with driver 580.159 the 20th to 35th stream made beside a running kernel blocked until that kernel ended
/// (`benches/NOTES.md`).
#[derive(Default)]
pub struct Lanes {
    /// By channel; empty if no copy engine is used.
    channels: Vec<OnceLock<Pair>>,
    /// Lanes of a call beside the caller's stream.
    more: usize,
}

impl Lanes {
    /// Makes the side streams of a group of `members` that it has from the start.
    ///
    /// # Errors
    /// The backend's errors; the streams made so far are released.
    pub fn open(driver: &Driver, released: &ReleaseQueue, members: usize) -> Result<Self> {
        if members < 2 || driver.capabilities.flags & CAPABILITY_COPY_ENGINE == 0 {
            return Ok(Self::default());
        }
        let more = most(driver.capabilities.fanout, members) - 1;
        let channels = (0..COLLECTIVE_CHANNELS).map(|_| OnceLock::new()).collect();
        let lanes = Self { channels, more };
        lanes.make(0, driver, released)?;
        Ok(lanes)
    }

    /// Returns the side streams of a call on a channel; `None` if the caller's stream has to do.
    pub fn side_streams(
        &self,
        context: &Context,
        channel: u32,
        captured: bool,
    ) -> Option<&SideStreams> {
        let made = self.channels.get(channel as usize)?;
        // In a capture no stream may be asked whether it is idle.
        if made.get().is_none() && !captured && context.is_idle_with_neighbors() {
            if let Err(error) = self.make(channel as usize, context, &context.released) {
                tracing::warn!(rank = context.rank, channel, %error, "no side streams: copies use the caller's");
            }
        }
        made.get()?.get(usize::from(captured))
    }

    /// Makes the streams of a channel.
    fn make(&self, channel: usize, driver: &Driver, released: &ReleaseQueue) -> Result<()> {
        let mut made = Vec::new();
        let pair = [(); 2].map(|()| side_streams(driver, self.more, &mut made));
        let close =
            |made: &[SideStream]| made.iter().for_each(|side| released.push(side.closing()));
        match pair {
            [Ok(eager), Ok(captured)] => {
                // Another thread may have made them meanwhile.
                if self.channels[channel].set([eager, captured]).is_err() {
                    close(&made);
                }
                Ok(())
            }
            [Err(error), _] | [_, Err(error)] => {
                close(&made);
                Err(error)
            }
        }
    }

    /// Returns the resources that destroy the streams once they are idle.
    pub fn closing(&self) -> impl Iterator<Item = Held> {
        let side_streams = self.channels.iter().filter_map(OnceLock::get).flatten();
        side_streams.flat_map(|side_streams| {
            let all = side_streams
                .lanes
                .iter()
                .chain(std::iter::once(&side_streams.own));
            all.map(SideStream::closing)
        })
    }
}

/// Makes the streams of one call, `lanes` and one more, and adds them to `made`.
fn side_streams(driver: &Driver, lanes: usize, made: &mut Vec<SideStream>) -> Result<SideStreams> {
    let mut side = || SideStream::open(driver).inspect(|&side| made.push(side));
    let lanes = (0..lanes).map(|_| side()).collect::<Result<_>>()?;
    Ok(SideStreams {
        lanes,
        own: side()?,
    })
}
