//! The side streams of copy-engine collectives.
//!
//! Each channel has its own streams, since channels do not wait for each other: on one stream they would, and
//! ranks that started different channels would wait forever. Captured and eager calls use different streams: a
//! stream that takes part in a capture takes no eager work until the capture has ended.

use crate::backend::abi::CAPABILITY_COPY_ENGINE;
use crate::base::error::Result;
use crate::base::limits::{COLLECTIVE_CHANNELS, LANES};
use crate::rank::driver::Driver;
use crate::rank::release::{Held, ReleaseQueue};
use crate::rank::side::SideStream;

/// The side streams of a call.
#[derive(Clone)]
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

/// The side streams of a group, made together with it: the driver may take memory for a stream, which no call
/// may wait for (see "Waiting kernels" in the repository's guide).
#[derive(Clone, Default)]
pub struct Lanes {
    /// `[channel][captured]`; empty if no copy engine is used.
    channels: Vec<[SideStreams; 2]>,
}

impl Lanes {
    /// Makes the side streams of a group of `members`.
    ///
    /// # Errors
    /// The backend's errors; the streams made so far are released.
    pub fn open(driver: &Driver, released: &ReleaseQueue, members: usize) -> Result<Self> {
        if members < 2 || driver.capabilities.flags & CAPABILITY_COPY_ENGINE == 0 {
            return Ok(Self::default());
        }
        let mut lanes = Self::default();
        let mut made = Vec::new();
        let more = most(driver.capabilities.fanout, members) - 1;
        for _ in 0..COLLECTIVE_CHANNELS {
            match [
                side_streams(driver, more, &mut made),
                side_streams(driver, more, &mut made),
            ] {
                [Ok(eager), Ok(captured)] => lanes.channels.push([eager, captured]),
                [Err(error), _] | [_, Err(error)] => {
                    made.iter().for_each(|side| released.push(side.closing()));
                    return Err(error);
                }
            }
        }
        Ok(lanes)
    }

    /// Returns the side streams of a channel.
    pub fn side_streams(&self, channel: u32, captured: bool) -> Option<&SideStreams> {
        let side_streams = self.channels.get(channel as usize)?;
        side_streams.get(usize::from(captured))
    }

    /// Returns the resources that destroy the streams once they are idle.
    pub fn closing(&self) -> impl Iterator<Item = Held> {
        let side_streams = self.channels.iter().flatten();
        side_streams.flat_map(|side_streams| {
            let all = side_streams
                .lanes
                .iter()
                .chain(std::iter::once(&side_streams.own));
            all.map(SideStream::closing)
        })
    }
}

/// Makes the streams of one channel, `lanes` and one more, and adds them to `made`.
fn side_streams(driver: &Driver, lanes: usize, made: &mut Vec<SideStream>) -> Result<SideStreams> {
    let mut side = || SideStream::open(driver).inspect(|&side| made.push(side));
    let lanes = (0..lanes).map(|_| side()).collect::<Result<_>>()?;
    Ok(SideStreams {
        lanes,
        own: side()?,
    })
}
