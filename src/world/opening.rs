//! Opening of a rank's device: the choice of the device, and the time limit.

use crate::backend::abi::{Capabilities, DeviceDescription, HostServices, OpenOptions};
use crate::backend::{Backend, Device, Failure, read_text};
use crate::base::abandon::{Abandoned, run_within};
use crate::base::error::{Error, Result};
use crate::world::configuration::{BackendSource, Configuration, DeviceChoice};
use symmem_core::host::HostBackend;

static SERVICES: HostServices = HostServices {
    size: size_of::<HostServices>() as u32,
    reserved: 0,
    log: Some(log),
};

/// Forwards a plugin's log lines: a plugin has its own copy of `tracing`, which has no subscriber.
unsafe extern "C" fn log(level: u32, text: *const u8, length: usize) {
    // SAFETY: the backend passes `length` readable bytes.
    let bytes = unsafe { std::slice::from_raw_parts(text, length) };
    let text = String::from_utf8_lossy(bytes);
    match level {
        1 => tracing::error!(target: "symmem::backend", "{text}"),
        2 => tracing::warn!(target: "symmem::backend", "{text}"),
        3 => tracing::info!(target: "symmem::backend", "{text}"),
        4 => tracing::debug!(target: "symmem::backend", "{text}"),
        _ => tracing::trace!(target: "symmem::backend", "{text}"),
    }
}

/// Opens the device as [`open_device`] does. A driver that never returns costs only its thread.
pub(crate) fn open_device_within(
    source: &BackendSource,
    configuration: &Configuration,
    (rank, spans_nodes): (usize, bool),
) -> Result<(Backend, Capabilities, DeviceDescription)> {
    // Shorter than the other ranks' wait for this one, so that they receive the reason.
    let limit = configuration.setup_deadline - configuration.setup_deadline / 8;
    let (source, configuration) = (source.clone(), configuration.clone());
    let open = move || open_device(&source, &configuration, (rank, spans_nodes));
    run_within("symmem-open", limit, open).unwrap_or_else(|abandoned| {
        Err(match abandoned {
            Abandoned::Late(waited) => Error::HostTimeout {
                rank,
                operation: "open",
                waited,
            },
            Abandoned::NoThread(error) => Error::System {
                rank,
                call: "pthread_create",
                reason: error.to_string(),
            },
        })
    })
}

fn open_device(
    source: &BackendSource,
    configuration: &Configuration,
    (rank, spans_nodes): (usize, bool),
) -> Result<(Backend, Capabilities, DeviceDescription)> {
    let failed = |failure| Error::backend(rank, "open", failure);
    let mut options = OpenOptions {
        size: size_of::<OpenOptions>() as u32,
        ordinal: 0,
        rank: rank as u32,
        local_world: configuration.launch.local_world,
        services: &SERVICES,
    };
    let backend = match source {
        BackendSource::Host => {
            if spans_nodes {
                options.local_world = OpenOptions::OTHER_NODES;
            }
            options.ordinal =
                choose_device(configuration, rank, 1, |_| HostBackend::describe_device(0))?;
            Backend::Host(HostBackend::open(&options).map_err(failed)?)
        }
        BackendSource::Tables(tables) => {
            let count = tables.device_count().map_err(failed)?;
            options.ordinal = choose_device(configuration, rank, count, |ordinal| {
                tables.describe_device(ordinal)
            })?;
            Backend::Plugin(tables.open(&options).map_err(failed)?)
        }
    };
    let capabilities = backend.capabilities().map_err(failed)?;
    let description = backend.description().map_err(failed)?;
    Ok((backend, capabilities, description))
}

fn choose_device(
    configuration: &Configuration,
    rank: usize,
    count: u32,
    describe: impl Fn(u32) -> std::result::Result<DeviceDescription, Failure>,
) -> Result<u32> {
    let describe =
        |ordinal| describe(ordinal).map_err(|failure| Error::backend(rank, "open", failure));
    let none = |message: String| Err(Error::NoSuchDevice { rank, message });
    let chosen = match configuration.device {
        _ if count == 0 => return none("the backend found no device".into()),
        DeviceChoice::LocalRank => configuration.launch.local_rank % count,
        DeviceChoice::Ordinal(ordinal) if ordinal < count => ordinal,
        DeviceChoice::Ordinal(ordinal) => {
            return none(format!(
                "there is no device {ordinal}: {count} are visible, numbered from 0; see CUDA_VISIBLE_DEVICES or \
                 HIP_VISIBLE_DEVICES"
            ));
        }
        DeviceChoice::Uuid(uuid) => {
            let mut found = Vec::new();
            for ordinal in 0..count {
                if describe(ordinal)?.uuid == uuid {
                    found.push(ordinal);
                }
            }
            let text: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
            match found[..] {
                [ordinal] => ordinal,
                [] => {
                    return none(format!(
                        "none of the {count} visible devices has the UUID {text}"
                    ));
                }
                _ => {
                    return none(format!(
                        "devices {found:?} all have the UUID {text}, as partitions of one device may; choose one by \
                         its ordinal"
                    ));
                }
            }
        }
    };
    let description = describe(chosen)?;
    if description.partition != 0 {
        return Err(Error::Unsupported {
            rank,
            operation: "open",
            message: format!(
                "device {chosen} ({}) is a partition of a GPU (MIG), which cannot address other \
                 devices' memory; use whole GPUs",
                read_text(&description.name)
            ),
        });
    }
    Ok(chosen)
}
