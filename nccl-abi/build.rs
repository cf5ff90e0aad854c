//! Names the shared library as its file, which programs open or preload under any name they like.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libsymmem_nccl.so");
    println!("cargo:rerun-if-changed=build.rs");
}
