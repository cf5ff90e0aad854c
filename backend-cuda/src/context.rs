//! The device's primary context: the one that every CUDA library in the process shares.

use crate::driver::constants::result::PEER_ACCESS_ALREADY_ENABLED;
use crate::driver::{Driver, call};
use cudarc::driver::sys::{CUcontext, CUdevice};
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ptr::null_mut;
use symmem_core::backend::abi::Status;
use symmem_core::backend::{CallResult, Failure};
use symmem_gpu::Current;

thread_local! {
    /// The context of ours that was left current on this thread, which had none before.
    static LEFT_CURRENT: Cell<CUcontext> = const { Cell::new(null_mut()) };
}

/// A retained primary context; given back on drop.
pub struct Context {
    driver: &'static Driver,
    device: CUdevice,
    raw: CUcontext,
}

// SAFETY: the driver's functions may be called from any thread; a context is only a handle.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Retains the primary context of a device, creating it if this process has none yet.
    pub fn retain(driver: &'static Driver, device: CUdevice) -> CallResult<Self> {
        let mut raw = null_mut();
        // SAFETY: the place is writable; the driver checks the device.
        unsafe { call!(driver, cuDevicePrimaryCtxRetain(&raw mut raw, device)) }?;
        Ok(Self {
            driver,
            device,
            raw,
        })
    }

    /// The device.
    pub fn device(&self) -> CUdevice {
        self.device
    }

    /// Lets this context's kernels and copies reach everything that `cuMemAlloc` gave in `peer`.
    ///
    /// Never disabled again: other code in the process may have come to rely on it.
    pub fn enable_peer_access(&self, peer: &Context) -> CallResult<()> {
        if peer.raw == self.raw {
            return Ok(());
        }
        let driver = self.driver;
        let mut can = 0;
        // SAFETY: the place is writable.
        unsafe {
            call!(
                driver,
                cuDeviceCanAccessPeer(&raw mut can, self.device, peer.device)
            )
        }?;
        if can == 0 {
            return Err(Failure::new(
                Status::PEER_UNREACHABLE,
                "cuDeviceCanAccessPeer",
                format!(
                    "device {} cannot address the memory of device {}; `nvidia-smi topo -p2p rw` \
                     shows which devices can: use those, or one process for each host bridge",
                    self.device, peer.device
                ),
            ));
        }
        let _entered = self.enter()?;
        // SAFETY: both contexts are retained.
        let code = unsafe { (driver.table.cuCtxEnablePeerAccess)(peer.raw, 0) };
        if code == PEER_ACCESS_ALREADY_ENABLED {
            return Ok(());
        }
        driver.check("cuCtxEnablePeerAccess", code)
    }

    /// Gives the context back, and tells what a drop cannot.
    pub fn release(self) -> CallResult<()> {
        ManuallyDrop::new(self).end()
    }

    fn end(&self) -> CallResult<()> {
        let left = self.leave_thread();
        let driver = self.driver;
        // SAFETY: retained once by `self`, and everything made in it has been given up.
        left.and(unsafe { call!(driver, cuDevicePrimaryCtxRelease_v2(self.device)) })
    }

    /// Makes no context current where this one was left so: its last release destroys it.
    fn leave_thread(&self) -> CallResult<()> {
        if LEFT_CURRENT.try_with(Cell::get) != Ok(self.raw) {
            return Ok(());
        }
        let driver = self.driver;
        let mut current = self.raw;
        // SAFETY: the place is writable; no context current is always allowed.
        unsafe {
            let asked = call!(driver, cuCtxGetCurrent(&raw mut current));
            if current != self.raw {
                return asked;
            }
            asked.and(call!(driver, cuCtxSetCurrent(null_mut())))
        }
    }
}

impl Current for Context {
    type Entered<'a> = Entered<'a>;

    /// The driver is asked each time, since the program may change contexts behind our back; it is
    /// a read of a thread-local, some tens of nanoseconds.
    #[inline]
    fn enter(&self) -> CallResult<Entered<'_>> {
        let driver = self.driver;
        let mut current = null_mut();
        // SAFETY: the place is writable.
        unsafe { call!(driver, cuCtxGetCurrent(&raw mut current)) }?;
        if current == self.raw {
            return Ok(Entered {
                driver,
                restore: null_mut(),
            });
        }
        // SAFETY: the context is retained while `self` lives.
        unsafe { call!(driver, cuCtxSetCurrent(self.raw)) }?;
        // What we left current ourselves is nobody's to find again, and may be gone by now: another
        // thread can have given that context back.
        let restore = if current == LEFT_CURRENT.get() {
            null_mut()
        } else {
            current
        };
        if restore.is_null() {
            LEFT_CURRENT.set(self.raw);
        }
        Ok(Entered { driver, restore })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // Nobody is left to tell of a failure.
        let _ = self.end();
    }
}

/// Proof that the context is current on this thread.
pub struct Entered<'context> {
    driver: &'context Driver,
    restore: CUcontext,
}

impl Drop for Entered<'_> {
    #[inline]
    fn drop(&mut self) {
        // A program that had made another context current finds it current again. Where there was
        // none, ours stays: a rank's thread then pays for the switch only once.
        if !self.restore.is_null() {
            // SAFETY: the context was current when the guard was made. A failure means that it is
            // gone, which is its owner's to notice.
            unsafe { (self.driver.table.cuCtxSetCurrent)(self.restore) };
        }
    }
}
