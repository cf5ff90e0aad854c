//! The fake HIP runtime under the names of its releases, with the fake RCCL and the fake hipBLASLt.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use super::fakes::{directory, fake, library_of_products, place_without, plugin};

/// A release of AMD's runtime, by its library's name.
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

    /// Returns the functions that came after this release.
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

/// Returns a directory with the fake runtime as this release, the fake RCCL and the fake hipBLASLt, for
/// `SYMMEM_LIBRARY_PATH`.
pub fn fake_hip(release: Release) -> &'static Path {
    static DIRECTORIES: [LazyLock<PathBuf>; 3] = [
        LazyLock::new(|| make(Release::Five)),
        LazyLock::new(|| make(Release::Six)),
        LazyLock::new(|| make(Release::Seven)),
    ];
    &DIRECTORIES[release as usize]
}

/// Whether AMD's runtime is installed where the backend finds it without `SYMMEM_LIBRARY_PATH`.
pub fn is_installed() -> bool {
    let loaded = |name: &str| {
        // SAFETY: loading runs the initializers of AMD's runtime, as in every program that uses it.
        unsafe { libloading::Library::new(name) }.is_ok()
    };
    let releases = [Release::Five, Release::Six, Release::Seven];
    (releases.iter().any(|release| loaded(release.name()))) || Path::new("/opt/rocm/lib").exists()
}

fn make(release: Release) -> PathBuf {
    let directory = directory(&format!("fake-hip-{release:?}"));
    let runtime = runtime();
    place_without(&runtime, &release.lacks(), &directory.join(release.name()));
    let rccl = fake("libsymmem_fake_nccl.so");
    // NCCL's spelling; RCCL's is `ncclAllToAll`.
    place_without(&rccl, &["ncclAlltoAll"], &directory.join("librccl.so.1"));
    let products = library_of_products();
    place_without(&products, &[], &directory.join("libhipblaslt.so.1"));
    if release == Release::Seven {
        // Older releases have the compiler in the runtime's file.
        place_without(&runtime, &[], &directory.join("libhiprtc.so.7"));
    }
    directory
}

pub(super) fn runtime() -> PathBuf {
    fake("libsymmem_fake_hip.so")
}

/// Returns a directory with a runtime of the newest release and no other library.
pub fn fake_hip_without_libraries() -> PathBuf {
    let directory = directory("fake-hip-without-libraries");
    place_without(&runtime(), &[], &directory.join(Release::Seven.name()));
    directory
}

/// Returns a directory with a runtime of the newest release that lacks one more function.
pub fn fake_hip_without(function: &str) -> PathBuf {
    let directory = directory(&format!("fake-hip-without-{function}"));
    let file = directory.join(Release::Seven.name());
    place_without(&runtime(), &[function], &file);
    directory
}

/// Returns the HIP backend as a plugin file.
pub fn hip_plugin() -> &'static Path {
    static FILE: LazyLock<PathBuf> = LazyLock::new(|| plugin("symmem-hip", "libsymmem_hip.so"));
    &FILE
}
