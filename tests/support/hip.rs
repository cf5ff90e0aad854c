//! The fake HIP runtime under the names of its releases, with the fake RCCL and the fake hipBLASLt beside it.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use super::{build, directory};

/// A release of AMD's runtime, as its library is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// 5.2, `.so.5`.
    Five,
    /// 6.4, `.so.6`.
    Six,
    /// 7.1, `.so.7`.
    Seven,
}

impl Release {
    fn name(self) -> &'static str {
        match self {
            Self::Five => "libamdhip64.so.5",
            Self::Six => "libamdhip64.so.6",
            Self::Seven => "libamdhip64.so.7",
        }
    }

    fn number(self) -> (u32, u32) {
        match self {
            Self::Five => (5, 2),
            Self::Six => (6, 4),
            Self::Seven => (7, 1),
        }
    }

    /// The functions that came later.
    fn lacks(self) -> Vec<&'static str> {
        let later = |line: &'static str| {
            let (name, since) = line.split_once(' ')?;
            let (major, minor) = since.split_once('.')?;
            let since: (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
            (since > self.number()).then_some(name)
        };
        let lines = include_str!("../fake-hip/symbols").lines();
        lines
            .filter(|line| !line.starts_with('#'))
            .filter_map(later)
            .collect()
    }
}

/// A directory that holds the fake runtime as this release, the fake RCCL and the fake hipBLASLt, for
/// `SYMMEM_LIBRARY_PATH`.
pub fn fake_hip(release: Release) -> &'static Path {
    static DIRECTORIES: [LazyLock<PathBuf>; 3] = [
        LazyLock::new(|| make(Release::Five)),
        LazyLock::new(|| make(Release::Six)),
        LazyLock::new(|| make(Release::Seven)),
    ];
    &DIRECTORIES[release as usize]
}

/// Whether a runtime of AMD's is installed where the backend would find it by itself, whatever
/// `SYMMEM_LIBRARY_PATH` says.
pub fn is_installed() -> bool {
    let loaded = |name: &str| {
        // SAFETY: loading runs the initialisers of AMD's runtime, as every program that uses it does.
        unsafe { libloading::Library::new(name) }.is_ok()
    };
    let releases = [Release::Five, Release::Six, Release::Seven];
    (releases.iter().any(|release| loaded(release.name()))) || Path::new("/opt/rocm/lib").exists()
}

fn make(release: Release) -> PathBuf {
    let directory = directory(&format!("fake-hip-{release:?}"));
    let runtime = runtime();
    place_without(&runtime, &release.lacks(), &directory.join(release.name()));
    let rccl = build(
        &["build", "--quiet", "-p", "symmem-fake-nccl", "--lib"],
        "libsymmem_fake_nccl.so",
    );
    // NVIDIA's spelling; AMD's is `ncclAllToAll`.
    place_without(&rccl, &["ncclAlltoAll"], &directory.join("librccl.so.1"));
    let products = super::library_of_products();
    place_without(&products, &[], &directory.join("libhipblaslt.so.1"));
    if release == Release::Seven {
        // Before, the compiler is in the runtime's file.
        place_without(&runtime, &[], &directory.join("libhiprtc.so.7"));
    }
    directory
}

pub(super) fn runtime() -> PathBuf {
    build(
        &["build", "--quiet", "-p", "symmem-fake-hip", "--lib"],
        "libsymmem_fake_hip.so",
    )
}

/// A directory with a runtime of the newest release, and no library beside it.
pub fn fake_hip_without_libraries() -> PathBuf {
    let directory = directory("fake-hip-without-libraries");
    place_without(&runtime(), &[], &directory.join(Release::Seven.name()));
    directory
}

/// A directory with a runtime of the newest release that lacks one function more.
pub fn fake_hip_without(function: &str) -> PathBuf {
    let directory = directory(&format!("fake-hip-without-{function}"));
    let file = directory.join(Release::Seven.name());
    place_without(&runtime(), &[function], &file);
    directory
}

/// Puts a copy of a library that lacks functions: their names are overwritten in it.
pub(super) fn place_without(library: &Path, functions: &[&str], to: &Path) {
    let mut bytes = std::fs::read(library).expect("the library");
    for function in functions {
        // A name of the dynamic symbols, between zero bytes.
        let name = format!("\0{function}\0").into_bytes();
        let mut places = Vec::new();
        for (place, window) in bytes.windows(name.len()).enumerate() {
            if window == name {
                places.push(place + 1);
            }
        }
        assert!(
            !places.is_empty(),
            "{} has no {function}",
            library.display()
        );
        places.into_iter().for_each(|place| bytes[place] = b'x');
    }
    // Other tests may have the file of an earlier run open: it is replaced, not changed.
    let fresh = to.with_extension(format!("{}", std::process::id()));
    std::fs::write(&fresh, bytes).expect("a copy of the library");
    std::fs::rename(&fresh, to).expect("the copy's name");
}

/// The HIP backend as a plugin file.
pub fn hip_plugin() -> &'static Path {
    static FILE: LazyLock<PathBuf> =
        LazyLock::new(|| super::plugin("symmem-hip", "libsymmem_hip.so"));
    &FILE
}
