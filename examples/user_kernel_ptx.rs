//! A kernel of one's own, compiled ahead of time, that puts, signals and waits.
//!
//! `symmem run -n 2 -- target/debug/examples/user_kernel_ptx`
//!
//! `kernels/ring.ptx` was made from `kernels/ring.cu` with clang and the headers in `device/include`
//! (`cargo xtask kernels build`). nvcc does as well:
//! `nvcc -ptx -std=c++17 -arch=compute_80 -I device/include ring.cu`.

#[path = "kernels/ring.rs"]
mod ring;

/// The driver compiles it for the device at hand, from sm_80 on.
const PTX: &str = include_str!("kernels/ring.ptx");

fn main() -> symmem::Result<()> {
    let communicator = symmem::init()?;
    if ring::has_kernels(&communicator) {
        // SAFETY: made from `ring.cu`.
        unsafe { ring::run(&communicator, PTX.as_bytes())? };
    }
    communicator.finalize().map(drop)
}
