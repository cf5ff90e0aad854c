//! Copies between the host and device addresses, through pinned memory of the communicator.

use crate::backend::abi::{DeviceAddress, HostMemory, RawStream, Transfer};
use crate::backend::{Device, RemoteAccess};
use crate::base::error::Result;
use crate::base::lock::lock;
use crate::rank::context::Closing;
use crate::rank::driver::Driver;
use crate::rank::submit::Submit;
use std::sync::Mutex;
use std::time::Duration;

/// Bytes of pinned host memory for host copies.
pub const STAGING_BYTES: u64 = 4 << 20;

/// Pinned memory and a stream for host copies, one at a time.
pub struct Staging {
    memory: Mutex<HostMemory>,
    stream: RawStream,
    /// Deadline of one chunk's copy.
    deadline: Duration,
}

impl Staging {
    /// Takes memory of [`STAGING_BYTES`] and a stream that nothing else uses.
    pub fn new(memory: HostMemory, stream: RawStream, deadline: Duration) -> Self {
        Self {
            memory: Mutex::new(memory),
            stream,
            deadline,
        }
    }

    /// Copies host bytes to an address of this device or a mapped peer. Blocks, for at most the deadline in
    /// each chunk.
    ///
    /// # Errors
    /// The backend's errors; the error that poisoned the communicator.
    pub fn write(&self, driver: &Driver, destination: DeviceAddress, bytes: &[u8]) -> Result<()> {
        self.write_through(driver, self.stream, destination, bytes)
    }

    /// Copies bytes at an address of this device or a mapped peer to the host. Blocks as [`Staging::write`]
    /// does.
    ///
    /// # Errors
    /// As [`Staging::write`].
    pub fn read(&self, driver: &Driver, source: DeviceAddress, bytes: &mut [u8]) -> Result<()> {
        self.read_through(driver, self.stream, source, bytes)
    }

    /// Copies as [`Staging::write`] does, after all earlier work on `submit`'s stream.
    ///
    /// # Errors
    /// As [`Staging::write`].
    pub fn write_on(&self, submit: &Submit<'_>, to: DeviceAddress, bytes: &[u8]) -> Result<()> {
        let (driver, stream) = (submit.driver(), submit.stream());
        self.wait_before(driver, stream)?;
        self.write_through(driver, stream, to, bytes)
    }

    /// Copies as [`Staging::read`] does, after all earlier work on `submit`'s stream.
    ///
    /// # Errors
    /// As [`Staging::write`].
    pub fn read_on(
        &self,
        submit: &Submit<'_>,
        from: DeviceAddress,
        bytes: &mut [u8],
    ) -> Result<()> {
        let (driver, stream) = (submit.driver(), submit.stream());
        self.wait_before(driver, stream)?;
        self.read_through(driver, stream, from, bytes)
    }

    /// Waits for the stream before the staging memory is locked: the stream may wait for a peer, which may wait
    /// for what another thread of this rank is about to write.
    fn wait_before(&self, driver: &Driver, stream: RawStream) -> Result<()> {
        driver.wait_idle(stream, self.deadline)
    }

    fn write_through(
        &self,
        driver: &Driver,
        stream: RawStream,
        destination: DeviceAddress,
        bytes: &[u8],
    ) -> Result<()> {
        let memory = lock(&self.memory);
        let mut address = destination.0;
        for chunk in bytes.chunks(STAGING_BYTES as usize) {
            // SAFETY: the staging memory is this long, locked, and no copy from it is under way:
            // each is waited for below.
            unsafe {
                (memory.host as *mut u8).copy_from_nonoverlapping(chunk.as_ptr(), chunk.len())
            };
            let to = DeviceAddress(address);
            self.copy(driver, stream, to, memory.device, chunk.len())?;
            address += chunk.len() as u64;
        }
        Ok(())
    }

    fn read_through(
        &self,
        driver: &Driver,
        stream: RawStream,
        source: DeviceAddress,
        bytes: &mut [u8],
    ) -> Result<()> {
        let memory = lock(&self.memory);
        let mut address = source.0;
        for chunk in bytes.chunks_mut(STAGING_BYTES as usize) {
            let from = DeviceAddress(address);
            self.copy(driver, stream, memory.device, from, chunk.len())?;
            // SAFETY: as above; the copy has completed.
            unsafe {
                chunk
                    .as_mut_ptr()
                    .copy_from_nonoverlapping(memory.host as *const u8, chunk.len())
            };
            address += chunk.len() as u64;
        }
        Ok(())
    }

    fn copy(
        &self,
        driver: &Driver,
        stream: RawStream,
        destination: DeviceAddress,
        source: DeviceAddress,
        bytes: usize,
    ) -> Result<()> {
        const NAME: &str = "host copy";
        // After a failure an earlier copy may still use the staging memory.
        driver.health.check()?;
        let bytes = bytes as u64;
        let transfer = Transfer::by_engine(destination, source, bytes);
        // SAFETY: the caller names live memory; the copy is waited for, so both ranges stay live.
        let enqueue = || unsafe { driver.backend.transfer(&transfer, stream) };
        driver
            .outside_captures(stream, enqueue)
            .map_err(|failure| driver.failed(NAME, failure).about(None, bytes))?
            .ok_or_else(|| driver.captured(NAME))?;
        driver.wait_through_captures(stream, self.deadline)
    }
}

impl Closing for Staging {
    fn end(&self, driver: &Driver) {
        // SAFETY: no copy is under way, and none begins any more. A failure cannot be handled here.
        let _ = unsafe { driver.backend.host_free(*lock(&self.memory)) };
    }
}
