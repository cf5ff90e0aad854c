//! The user's own kernels: loaded once, launched on streams.
//!
//! Loading and unloading may wait for the device, which may be waiting for a peer that needs this rank. So code
//! is loaded, with all its functions, only while this rank's streams are idle. It is unloaded once its handles
//! are gone, no graph has its kernels and the streams are idle.

use crate::backend::abi::{CAPABILITY_LAUNCH, Geometry, Handle, RawFunction, RawModule, Status};
use crate::backend::{CallResult, Device, Failure, argument_bytes};
use crate::base::error::{Error, Result};
use crate::rank::driver::Driver;
use crate::rank::release::{Progress, Resource};
use crate::stream::queue::Queue;
use crate::world::communicator::Communicator;
use crate::world::world::World;
use std::sync::Arc;

/// A user's loaded device code.
struct Loaded(RawModule);

impl Resource for Loaded {
    /// Unloads once nothing runs: an unload may wait for the device, which may wait for a peer that needs this
    /// rank.
    fn release(&self, driver: &Driver, quiet: bool, unheld: bool) -> Progress {
        if !quiet || !unheld {
            return Progress::Waits;
        }
        // SAFETY: live, and no stream runs a kernel of it or can any more: its handles and the graphs that had it
        // are gone.
        if let Err(failure) = unsafe { driver.backend.module_unload(self.0) } {
            tracing::warn!(rank = driver.rank, %failure, "module_unload failed");
        }
        Progress::done(true)
    }
}

/// The user's device code, loaded on this rank's device. Once the module and its [`Function`]s are dropped, it
/// is unloaded as soon as no graph holds it and this rank's streams are idle.
#[derive(Clone, Debug)]
pub struct Module(Arc<Owner>);

/// A kernel of a [`Module`]. It keeps the module loaded.
#[derive(Clone, Debug)]
pub struct Function {
    raw: RawFunction,
    owner: Arc<Owner>,
    name: Arc<str>,
    /// Whether it may be launched with a [`Handle`], or with arguments large enough to hold one.
    takes_handles: bool,
}

/// Gives the module up with the last handle.
struct Owner {
    loaded: Option<Arc<Loaded>>,
    world: Arc<World>,
    /// The version of [`Handle`] with which the code was compiled; `None` if it does not include the header.
    handles: Option<u32>,
}

impl Owner {
    fn loaded(&self) -> &Arc<Loaded> {
        self.loaded
            .as_ref()
            .expect("taken only by `drop`, which ends the value")
    }

    fn other_headers(&self, kernel: &str) -> Error {
        Error::HandleVersion {
            rank: self.world.rank,
            kernel: kernel.into(),
            found: self.handles,
            expected: Handle::VERSION,
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Some(loaded) = self.loaded.take() {
            self.world.give_up(loaded);
        }
    }
}

impl std::fmt::Debug for Owner {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:#x}", self.loaded().0.0)
    }
}

impl Communicator {
    /// Loads device code, in any form that the driver takes, with all its functions. Blocks until this rank's
    /// streams are idle, for at most the setup deadline. Load before you enqueue work that waits for peers.
    ///
    /// The code is looked through once for the version of `symmem/handle.h` with which it was compiled, which
    /// [`Module::function`] and launches compare.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the backend launches no kernels (the host backend) or while a stream is being
    /// captured; the backend's errors, with its compiler's log; the error that poisoned the communicator.
    ///
    /// # Safety
    /// The code is complete and built for this device. Any code that runs at loading is sound.
    pub unsafe fn load_module(&self, code: &[u8]) -> Result<Module> {
        let (world, operation) = (self.world(), "load_module");
        world.health.check()?;
        if world.capabilities.flags & CAPABILITY_LAUNCH == 0 {
            return Err(Error::Unsupported {
                rank: world.rank,
                operation,
                message: "this backend cannot launch user kernels; use a GPU backend".into(),
            });
        }
        world.wait_all_idle(world.deadlines.setup)?;
        let bytes = code.len() as u64;
        // SAFETY: the bytes are there; the caller vouches for the code.
        let raw = unsafe { world.backend.module_load(code) }
            .map_err(|failure| refused(world, operation, failure).about(None, bytes))?;
        // Made first, so that the code is unloaded if the look-ups fail.
        let mut owner = Owner {
            loaded: Some(Arc::new(Loaded(raw))),
            world: world.clone(),
            handles: None,
        };
        owner.handles =
            handle_version(world, raw).map_err(|failure| refused(world, operation, failure))?;
        Ok(Module(Arc::new(owner)))
    }
}

/// Versions of [`Handle`] after this one that are still recognized, to be named in an error.
const LATER_VERSIONS: u32 = 4;

/// Returns the version of [`Handle`] with which the module's code was compiled, by the marker that the device headers
/// leave in it; `None` if there is none.
fn handle_version(world: &World, module: RawModule) -> CallResult<Option<u32>> {
    let earlier_and_later =
        (1..=Handle::VERSION + LATER_VERSIONS).filter(|&version| version != Handle::VERSION);
    for version in std::iter::once(Handle::VERSION).chain(earlier_and_later) {
        // SAFETY: the module was loaded by the caller, and is live.
        match unsafe {
            world
                .backend
                .module_function(module, &Handle::marker(version))
        } {
            Ok(_) => return Ok(Some(version)),
            Err(failure) if failure.status == Status::CONTEXT_LOST => return Err(failure),
            Err(_) => {}
        }
    }
    Ok(None)
}

/// Turns a failure to load into an error. Only a lost context counts as a fault of the device: other ranks do
/// not wait for a load.
fn refused(world: &World, operation: &'static str, failure: Failure) -> Error {
    if failure.status == Status::CONTEXT_LOST {
        return world.failed(operation, failure);
    }
    Error::backend(world.rank, operation, failure)
}

impl Module {
    /// Returns the kernel of this name: the name of an `extern "C"` function, or the mangled name. Blocks as
    /// [`Communicator::load_module`] does.
    ///
    /// # Errors
    /// [`Error::HandleVersion`] if the module was compiled with `symmem/handle.h` of another version of symmem, whose
    /// handles have another layout; the backend's error, which names the kernel; the error that poisoned the
    /// communicator.
    pub fn function(&self, name: &str) -> Result<Function> {
        match self.0.handles {
            Some(version) if version != Handle::VERSION => {
                self.0.world.health.check()?;
                Err(self.0.other_headers(name))
            }
            own_headers => self.find(name, own_headers.is_some()),
        }
    }

    /// Returns the kernel of this name as [`Module::function`] does, from any code, for any arguments. The kernel must
    /// take no [`Handle`].
    ///
    /// # Errors
    /// The backend's error, which names the kernel; the error that poisoned the communicator.
    pub fn plain_function(&self, name: &str) -> Result<Function> {
        self.find(name, true)
    }

    fn find(&self, name: &str, takes_handles: bool) -> Result<Function> {
        let world = &self.0.world;
        world.health.check()?;
        world.wait_all_idle(world.deadlines.setup)?;
        let module = self.0.loaded().0;
        // SAFETY: the module is live.
        let raw = unsafe { world.backend.module_function(module, name) }
            .map_err(|failure| refused(world, "function", failure))?;
        Ok(Function {
            raw,
            owner: self.0.clone(),
            name: name.into(),
            takes_handles,
        })
    }
}

impl Queue {
    /// Enqueues a kernel after all earlier work of the stream. `arguments` is a `repr(C)` struct whose fields
    /// are the kernel's parameters in order; for a kernel that takes one struct, `arguments` is that struct. It
    /// is copied before the call returns.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a function of another communicator; [`Error::HandleVersion`] for arguments
    /// that are as large as a [`Handle`] if the code was compiled without this version's `symmem/handle.h` (unless
    /// it comes from [`Module::plain_function`]); the backend's errors, for example for a
    /// geometry that the device or the kernel does not support; the error that poisoned the communicator.
    ///
    /// # Safety
    /// - The kernel takes exactly these arguments in this layout, and is sound with them and this geometry. It takes
    ///   a [`Handle`] only if it comes from [`Module::function`].
    /// - The memory that the kernel accesses is live until the stream has passed this point, and in a capture
    ///   until the graph's last launch. So drop buffers whose [`crate::SymmetricBuffer::handle`] or address the
    ///   kernel takes only after that. (The library keeps a buffer that is dropped while the stream has work
    ///   until the stream is idle.)
    /// - Blocks that wait for other blocks, of this grid or of a peer's, are co-resident, and the kernel bounds
    ///   its waits as `symmem/handle.h` does: a kernel that spins forever cannot be stopped.
    pub unsafe fn launch<A: Copy>(
        &self,
        function: &Function,
        geometry: &Geometry,
        arguments: &A,
    ) -> Result<()> {
        let (world, operation) = (self.world(), "launch");
        world.health.check()?;
        if !Arc::ptr_eq(world, &function.owner.world) {
            return Err(self.invalid(
                operation,
                "function and stream belong to different communicators",
            ));
        }
        // Smaller arguments hold no handle.
        if size_of::<A>() >= size_of::<Handle>() && !function.takes_handles {
            return Err(function.owner.other_headers(&function.name));
        }
        let bytes = argument_bytes(arguments);
        let submit = self.submit(operation);
        submit.hold(function.owner.loaded());
        let (backend, stream) = (submit.backend(), submit.stream());
        // SAFETY: the function is live; the caller vouches for the rest.
        let enqueued = unsafe { backend.launch(function.raw, geometry, bytes, stream) };
        submit.end(enqueued)
    }
}
