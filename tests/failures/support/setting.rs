//! On what a world runs, and how much of it is asked for.

use crate::built::hip::{Release, fake_hip};
use rstest_reuse::template;
use std::path::Path;
use symmem::{ShareKind, SignalPlacement};

/// A backend, where signals live and how memory is shared.
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

/// Every backend, in one setting.
#[template]
#[rstest]
pub fn on_each_backend(#[values(Setting::Host, Setting::Cuda, Setting::Hip)] setting: Setting) {}

/// Every device's backend, in one setting.
#[template]
#[rstest]
pub fn on_each_device(#[values(Setting::Cuda, Setting::Hip)] setting: Setting) {}

/// Every way of sharing memory.
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

/// Every place of signals, beside each vendor's memory.
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

    /// The backend's name.
    pub fn backend(self) -> &'static str {
        match self {
            Self::Host | Self::HostWithHostSignals => "host",
            Self::Cuda | Self::CudaWithHostSignals | Self::CudaLegacy => "cuda",
            Self::Hip | Self::HipWithHostSignals | Self::HipVmm => "hip",
        }
    }

    /// Whether ranks have a device's memory, streams and copy engines.
    pub fn is_device(self) -> bool {
        self.backend() != "host"
    }

    /// The directory of the fake libraries, if the vendor's runtime is a fake.
    pub fn libraries(self) -> Option<&'static Path> {
        match self.backend() {
            "cuda" if !system_driver() => Some(crate::built::fake_driver()),
            "hip" if !system_driver() => Some(fake_hip(Release::Seven)),
            _ => None,
        }
    }

    /// The same with the vendor's library of collectives among them.
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

/// Whether everything is asked for, not a sample of it.
pub fn full() -> bool {
    std::env::var_os("SYMMEM_TEST_FULL").is_some_and(|value| value != "0" && !value.is_empty())
}

/// Whether a vendor's driver is the machine's own, with `SYMMEM_TEST_DRIVER=system`, and not the fake one:
/// for the themes that do not look into the driver (`waits`, `abort`, `exporter`, `rebuild`,
/// `collectives`, `products`).
pub fn system_driver() -> bool {
    std::env::var_os("SYMMEM_TEST_DRIVER").is_some_and(|value| value == "system")
}
