//! Artefacts that one crate embeds: made, checked and recorded together.

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::{hip, ptx};
use crate::error::Result;
use crate::tools;

/// Kernels that examples embed: their sources and artefacts, from the root of the repository.
pub const EXAMPLES_FOLDER: &str = "examples/kernels";

/// The crate's artefacts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Family {
    /// `kernels-ptx`.
    Ptx,
    /// `kernels-hip`.
    Hip,
}

impl Family {
    pub const ALL: [Self; 2] = [Self::Ptx, Self::Hip];

    /// Where the crate's artefacts are, from the root of the repository.
    fn folder(self) -> &'static str {
        match self {
            Self::Ptx => "kernels-ptx/artefacts",
            Self::Hip => "kernels-hip/artefacts",
        }
    }

    /// Where the committed artefacts are.
    pub fn artefacts(self) -> PathBuf {
        tools::root().join(self.folder())
    }

    /// How the artefacts' names end.
    pub fn extensions(self) -> &'static [&'static str] {
        match self {
            Self::Ptx => &["ptx", "cubin"],
            Self::Hip => &["co"],
        }
    }

    /// Folders whose headers and device sources go into the artefacts.
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

    /// Headers among them that other targets have.
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

    /// The compiler's options, but for architectures and files; the definitions among them are those of
    /// symmem's own kernels, which examples' do without. Those of one module have its name in front.
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

    /// Compiles and lints all of it into `folder`, examples' artefacts into the folder of their name there.
    /// Returns the compilers' versions.
    pub fn make(self, folder: &Path) -> Result<Vec<String>> {
        match self {
            Self::Ptx => ptx::make(folder),
            Self::Hip => hip::make(folder),
        }
    }
}
