//! Copies between the host and addresses of the device, through pinned memory of the communicator.

use crate::backend::RemoteAccess;
use crate::backend::abi::{DeviceAddress, HostMemory, RawStream, Transfer};
use crate::base::error::Result;
use crate::rank::context::{Inner, lock};

/// Bytes of pinned host memory through which host copies go.
pub const STAGING_BYTES: u64 = 4 << 20;

/// Pinned memory and a stream for host copies.
pub struct Staging {
    pub memory: HostMemory,
    pub stream: RawStream,
}

impl Inner {
    /// Copies host bytes to an address of this device or a mapped peer. Blocking, bounded.
    pub fn write_bytes(&self, destination: DeviceAddress, bytes: &[u8]) -> Result<()> {
        let staging = lock(&self.staging);
        self.write_through(&staging, staging.stream, destination, bytes)
    }

    /// Copies bytes at an address of this device or a mapped peer to the host. Blocking, bounded.
    pub fn read_bytes(&self, source: DeviceAddress, bytes: &mut [u8]) -> Result<()> {
        let staging = lock(&self.staging);
        self.read_through(&staging, staging.stream, source, bytes)
    }

    /// As [`Shared::write_bytes`], after all earlier work on `stream`.
    pub fn write_on(&self, stream: RawStream, to: DeviceAddress, bytes: &[u8]) -> Result<()> {
        self.wait_before_staging(stream)?;
        self.write_through(&lock(&self.staging), stream, to, bytes)
    }

    /// As [`Shared::read_bytes`], after all earlier work on `stream`.
    pub fn read_on(&self, stream: RawStream, from: DeviceAddress, bytes: &mut [u8]) -> Result<()> {
        self.wait_before_staging(stream)?;
        self.read_through(&lock(&self.staging), stream, from, bytes)
    }

    /// A stream that waits for a peer must not hold the staging memory meanwhile: the peer may be
    /// waiting for what another thread of this rank is about to write.
    fn wait_before_staging(&self, stream: RawStream) -> Result<()> {
        self.wait_idle(stream, self.options.deadline)
    }

    fn write_through(
        &self,
        staging: &Staging,
        stream: RawStream,
        destination: DeviceAddress,
        bytes: &[u8],
    ) -> Result<()> {
        let mut address = destination.0;
        for chunk in bytes.chunks(STAGING_BYTES as usize) {
            // SAFETY: the staging memory is this long, locked, and no copy from it is under way:
            // each is waited for below.
            unsafe {
                (staging.memory.host as *mut u8)
                    .copy_from_nonoverlapping(chunk.as_ptr(), chunk.len())
            };
            self.copy(
                stream,
                DeviceAddress(address),
                staging.memory.device,
                chunk.len(),
            )?;
            address += chunk.len() as u64;
        }
        Ok(())
    }

    fn read_through(
        &self,
        staging: &Staging,
        stream: RawStream,
        source: DeviceAddress,
        bytes: &mut [u8],
    ) -> Result<()> {
        let mut address = source.0;
        for chunk in bytes.chunks_mut(STAGING_BYTES as usize) {
            self.copy(
                stream,
                staging.memory.device,
                DeviceAddress(address),
                chunk.len(),
            )?;
            // SAFETY: as above; the copy has completed.
            unsafe {
                chunk
                    .as_mut_ptr()
                    .copy_from_nonoverlapping(staging.memory.host as *const u8, chunk.len())
            };
            address += chunk.len() as u64;
        }
        Ok(())
    }

    fn copy(
        &self,
        stream: RawStream,
        destination: DeviceAddress,
        source: DeviceAddress,
        bytes: usize,
    ) -> Result<()> {
        // After a failure an earlier copy may still use the staging memory.
        self.health.check()?;
        let bytes = bytes as u64;
        let transfer = Transfer::by_engine(destination, source, bytes);
        // SAFETY: the caller names live memory; the copy is waited for, so both ranges stay live.
        unsafe { self.backend.transfer(&transfer, stream) }
            .map_err(|failure| self.failed("host copy", failure).about(None, bytes))?;
        self.wait_idle(stream, self.options.deadline)
    }
}
