//! A user's kernel, compiled ahead of time, that puts, signals and waits.
//!
//! `symmem run -n 2 -- target/debug/examples/user_kernel_ahead`
//!
//! `cargo xtask kernels build` compiles `kernels/ring.cu` to `kernels/ring.ptx` and the code objects beside it, with
//! clang and the headers in `device/include`. The vendors' compilers work too:
//! `nvcc -ptx -std=c++17 -arch=compute_80 -I device/include ring.cu`;
//! `hipcc -x hip --genco -std=c++17 --offload-arch=gfx942 -I device/include ring.cu`.

#[path = "kernels/ring.rs"]
mod ring;

/// Returns the code that the device loads: on AMD, the code object of its architecture; otherwise PTX, which the
/// driver compiles for devices from sm_80 on.
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
        // SAFETY: the code was compiled from `ring.cu`.
        unsafe { ring::run(&communicator, code)? };
    }
    communicator.finalize().map(drop)
}
