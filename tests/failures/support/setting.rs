//! What a world runs on, and how many cases run.

use crate::built::amount::{Amount, amount};
use crate::built::hip::{Release, fake_hip};
use rstest_reuse::template;
use std::path::Path;
use symmem::{ShareKind, SignalPlacement};

/// A backend, where signals live, and how memory is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    Host,
    HostWithHostSignals,
    Cuda,
    CudaWithHostSignals,
    CudaLegacy,
    Hip,
    HipWithHostSignals,
    HipVmm,
}

/// Every backend, in one setting each.
#[template]
#[rstest]
pub fn on_each_backend(#[values(Setting::Host, Setting::Cuda, Setting::Hip)] setting: Setting) {}

/// Every device backend, in one setting each.
#[template]
#[rstest]
pub fn on_each_device(#[values(Setting::Cuda, Setting::Hip)] setting: Setting) {}

/// Every way to share memory.
#[template]
#[rstest]
pub fn however_memory_is_shared(
    #[values(
        Setting::Host,
        Setting::Cuda,
        Setting::CudaLegacy,
        Setting::Hip,
        Setting::HipVmm
    )]
    setting: Setting,
) {
}

/// Every placement of signals, for each vendor's memory.
#[template]
#[rstest]
pub fn wherever_signals_live(
    #[values(
        Setting::Host,
        Setting::HostWithHostSignals,
        Setting::Cuda,
        Setting::CudaWithHostSignals,
        Setting::CudaLegacy,
        Setting::Hip,
        Setting::HipWithHostSignals
    )]
    setting: Setting,
) {
}

impl Setting {
    pub fn name(self) -> String {
        format!("{self:?}")
    }

    pub fn parse(name: &str) -> Self {
        use Setting::*;
        [
            Host,
            HostWithHostSignals,
            Cuda,
            CudaWithHostSignals,
            CudaLegacy,
            Hip,
            HipWithHostSignals,
            HipVmm,
        ]
        .into_iter()
        .find(|setting| setting.name() == name)
        .expect("a setting's name")
    }

    /// Returns the backend's name.
    pub fn backend(self) -> &'static str {
        match self {
            Self::Host | Self::HostWithHostSignals => "host",
            Self::Cuda | Self::CudaWithHostSignals | Self::CudaLegacy => "cuda",
            Self::Hip | Self::HipWithHostSignals | Self::HipVmm => "hip",
        }
    }

    /// Whether ranks have device memory, streams and copy engines.
    pub fn is_device(self) -> bool {
        self.backend() != "host"
    }

    /// Returns the directory of the fake libraries, if the vendor's runtime is a fake.
    pub fn libraries(self) -> Option<&'static Path> {
        match self.backend() {
            "cuda" if !system_driver() => Some(crate::built::fake_driver()),
            "hip" if !system_driver() => Some(fake_hip(Release::Seven)),
            _ => None,
        }
    }

    /// Returns the same directory with NCCL or RCCL.
    pub fn libraries_with_collectives(self) -> Option<&'static Path> {
        match self.libraries() {
            Some(_) if self.backend() == "cuda" => Some(crate::built::fake_driver_and_libraries()),
            libraries => libraries,
        }
    }

    pub fn placement(self) -> SignalPlacement {
        match self {
            Self::HostWithHostSignals | Self::CudaWithHostSignals | Self::HipWithHostSignals => {
                SignalPlacement::Host
            }
            _ => SignalPlacement::Device,
        }
    }

    pub fn kinds(self) -> &'static [ShareKind] {
        match self {
            Self::Host | Self::HostWithHostSignals => &[ShareKind::MemoryFile],
            Self::CudaLegacy | Self::Hip | Self::HipWithHostSignals => &[ShareKind::LegacyIpc],
            _ => &[ShareKind::VmmFileDescriptor],
        }
    }
}

/// Whether every case runs, and not only a sample.
pub fn full() -> bool {
    amount() == Amount::All
}

/// Whether `SYMMEM_TEST_DRIVER=system` selects the machine's own driver instead of the fake one. It is for the themes
/// that do not look into the driver (`waits`, `abort`, `drain`, `exporter`, `rebuild`, `collectives`, `products`,
/// `reduced_products`).
pub fn system_driver() -> bool {
    std::env::var_os("SYMMEM_TEST_DRIVER").is_some_and(|value| value == "system")
}
