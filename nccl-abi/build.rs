//! Names the shared library as its file, which programs open or preload under any name they like.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libsymmem_nccl.so");
    // Calls among its own functions stay in it, also where the program has loaded NCCL first.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    println!("cargo:rerun-if-changed=build.rs");
}
