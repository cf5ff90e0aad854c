//! A kernel of one's own, compiled ahead of time, that puts, signals and waits.
//!
//! `symmem run -n 2 -- target/debug/examples/user_kernel_ahead`
//!
//! `kernels/ring.ptx` and the code objects beside it were made from `kernels/ring.cu` with clang and the
//! headers in `device/include` (`cargo xtask kernels build`). The vendors' compilers do as well:
//! `nvcc -ptx -std=c++17 -arch=compute_80 -I device/include ring.cu`;
//! `hipcc -x hip --genco -std=c++17 --offload-arch=gfx942 -I device/include ring.cu`.

#[path = "kernels/ring.rs"]
mod ring;

/// What the device loads: on AMD's a code object of its own architecture; elsewhere PTX, which the driver
/// compiles for the device at hand, from sm_80 on.
fn code_for(architecture: u32) -> &'static [u8] {
    match architecture {
        910 => include_bytes!("kernels/ring.gfx90a.co"),
        942 => include_bytes!("kernels/ring.gfx942.co"),
        950 => include_bytes!("kernels/ring.gfx950.co"),
        _ => include_bytes!("kernels/ring.ptx"),
    }
}

fn main() -> symmem::Result<()> {
    let communicator = symmem::init()?;
    if ring::has_kernels(&communicator) {
        let code = code_for(communicator.device().architecture);
        // SAFETY: made from `ring.cu`.
        unsafe { ring::run(&communicator, code)? };
    }
    communicator.finalize().map(drop)
}
