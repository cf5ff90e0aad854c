//! Names the shared library as programs that link it look for it: by the major version only.

fn main() {
    let major = std::env::var("CARGO_PKG_VERSION_MAJOR").unwrap_or_default();
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libsymmem.so.{major}");
    println!("cargo:rerun-if-changed=build.rs");
}
