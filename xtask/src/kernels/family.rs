//! The artefacts that one crate embeds, which are built, checked and recorded together.

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::{hip, ptx};
use crate::error::Result;
use crate::tools;

/// Folder of the examples' kernels, sources and artefacts, relative to the repository's root.
pub const EXAMPLES_FOLDER: &str = "examples/kernels";

/// A crate with artefacts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Family {
    /// `kernels-ptx`.
    Ptx,
    /// `kernels-hip`.
    Hip,
}

impl Family {
    pub const ALL: [Self; 2] = [Self::Ptx, Self::Hip];

    /// Returns the folder of the artefacts, relative to the repository's root.
    fn folder(self) -> &'static str {
        match self {
            Self::Ptx => "kernels-ptx/artefacts",
            Self::Hip => "kernels-hip/artefacts",
        }
    }

    /// Returns the path of the committed artefacts.
    pub fn artefacts(self) -> PathBuf {
        tools::root().join(self.folder())
    }

    /// Returns the artefacts' file extensions.
    pub fn extensions(self) -> &'static [&'static str] {
        match self {
            Self::Ptx => &["ptx", "cubin"],
            Self::Hip => &["co"],
        }
    }

    /// Returns the folders with sources of the artefacts.
    pub fn sources(self) -> &'static [&'static str] {
        match self {
            Self::Ptx => &[
                "device/include/symmem",
                "device/entries",
                "kernels-ptx/src",
                EXAMPLES_FOLDER,
            ],
            Self::Hip => &["device/include/symmem", "device/entries", EXAMPLES_FOLDER],
        }
    }

    /// Returns headers in these folders that only other targets use.
    pub fn foreign(self) -> &'static [&'static str] {
        match self {
            Self::Ptx => &["arch_host.h", "arch_hip.h"],
            Self::Hip => &[
                "arch_host.h",
                "arch_ptx.h",
                "arch_ptx_multicast.h",
                "bulk.h",
            ],
        }
    }

    /// Returns the compiler's options without architectures and files. Definitions apply to symmem's own kernels and not
    /// to the examples'. Options of a single module have its name in front.
    pub fn options(self) -> Vec<String> {
        let owned = |options: &[&str]| {
            options
                .iter()
                .map(|&one| one.to_owned())
                .collect::<Vec<_>>()
        };
        match self {
            Self::Ptx => {
                let named = |module: &ptx::compile::Module| {
                    let name = module.name;
                    let options = module.options.iter();
                    options
                        .map(move |option| format!("{name}: {option}"))
                        .collect::<Vec<_>>()
                };
                let own = ptx::compile::MODULES.iter().flat_map(named);
                owned(&ptx::compile::CLANG_OPTIONS)
                    .into_iter()
                    .chain(own)
                    .collect()
            }
            Self::Hip => owned(&[&hip::compile::CLANG_OPTIONS[..], &hip::compile::OWN].concat()),
        }
    }

    /// Compiles and lints all artefacts into `folder`, those of examples into a subfolder. Returns the compilers'
    /// versions.
    pub fn make(self, folder: &Path) -> Result<Vec<String>> {
        match self {
            Self::Ptx => ptx::make(folder),
            Self::Hip => hip::make(folder),
        }
    }
}
