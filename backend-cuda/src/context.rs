//! The device's primary context, which all CUDA libraries of the process share.

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
    /// The context that a [`ContextGuard`] left current on this thread, because none was current before.
    static LEFT_CURRENT: Cell<CUcontext> = const { Cell::new(null_mut()) };
}

/// A retained primary context; dropping it releases it.
pub struct Context {
    driver: &'static Driver,
    device: CUdevice,
    raw: CUcontext,
}

// SAFETY: a context is only a handle, and the driver's functions may be called from any thread.
unsafe impl Send for Context {}
// SAFETY: as for `Send`.
unsafe impl Sync for Context {}

impl Context {
    /// Retains a device's primary context. Creates it if this process has none yet.
    pub fn retain(driver: &'static Driver, device: CUdevice) -> CallResult<Self> {
        let mut raw = null_mut();
        // SAFETY: the out-pointer is writable; the driver checks the device.
        unsafe { call!(driver, cuDevicePrimaryCtxRetain(&raw mut raw, device)) }?;
        Ok(Self {
            driver,
            device,
            raw,
        })
    }

    /// Returns the device.
    pub fn device(&self) -> CUdevice {
        self.device
    }

    /// Gives kernels and copies of this context access to all `cuMemAlloc` memory of `peer`.
    ///
    /// Never disables it again, because other code in the process may rely on it.
    pub fn enable_peer_access(&self, peer: &Context) -> CallResult<()> {
        if peer.raw == self.raw {
            return Ok(());
        }
        let driver = self.driver;
        let mut can = 0;
        // SAFETY: the out-pointer is writable.
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
                    "device {} cannot address the memory of device {}; use devices that \
                     `nvidia-smi topo -p2p rw` shows as OK, or a separate job on each host bridge",
                    self.device, peer.device
                ),
            ));
        }
        let _entered = self.enter()?;
        // SAFETY: `self` and `peer` keep both contexts retained.
        let code = unsafe { (driver.table.cuCtxEnablePeerAccess)(peer.raw, 0) };
        if code == PEER_ACCESS_ALREADY_ENABLED {
            return Ok(());
        }
        driver.check("cuCtxEnablePeerAccess", code)
    }

    /// Releases the context and returns the failure, which dropping it cannot.
    pub fn release(self) -> CallResult<()> {
        ManuallyDrop::new(self).end()
    }

    fn end(&self) -> CallResult<()> {
        let left = self.leave_thread();
        let driver = self.driver;
        // SAFETY: `self` retained the context once, and everything created in it has been released.
        left.and(unsafe { call!(driver, cuDevicePrimaryCtxRelease_v2(self.device)) })
    }

    /// Makes no context current if this one was left current on this thread, since its last release destroys it.
    fn leave_thread(&self) -> CallResult<()> {
        if LEFT_CURRENT.try_with(Cell::get) != Ok(self.raw) {
            return Ok(());
        }
        let driver = self.driver;
        let mut current = self.raw;
        // SAFETY: the out-pointer is writable, and the driver allows a thread without a current context.
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
    type ContextGuard<'a> = ContextGuard<'a>;

    /// Asks the driver each time, since the program may change contexts without symmem's knowledge. The call
    /// reads a thread-local, in some tens of nanoseconds.
    #[inline]
    fn enter(&self) -> CallResult<ContextGuard<'_>> {
        let driver = self.driver;
        let mut current = null_mut();
        // SAFETY: the out-pointer is writable.
        unsafe { call!(driver, cuCtxGetCurrent(&raw mut current)) }?;
        if current == self.raw {
            return Ok(ContextGuard {
                driver,
                restore: null_mut(),
            });
        }
        // SAFETY: the context stays retained while `self` lives.
        unsafe { call!(driver, cuCtxSetCurrent(self.raw)) }?;
        // A context that symmem itself left current need not be restored. It may even be destroyed by now, if
        // another thread released it.
        let restore = if current == LEFT_CURRENT.get() {
            null_mut()
        } else {
            current
        };
        if restore.is_null() {
            LEFT_CURRENT.set(self.raw);
        }
        Ok(ContextGuard { driver, restore })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // Nobody is left to report a failure to.
        let _ = self.end();
    }
}

/// Guard: the context is current on this thread.
pub struct ContextGuard<'context> {
    driver: &'context Driver,
    restore: CUcontext,
}

impl Drop for ContextGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // Restores the context that the program had made current. If there was none, symmem's stays current, so
        // that the thread of a rank pays for the switch only once.
        if !self.restore.is_null() {
            // SAFETY: the context was current when the guard was created. A failure means that its owner has
            // destroyed it since, and is ignored.
            unsafe { (self.driver.table.cuCtxSetCurrent)(self.restore) };
        }
    }
}
