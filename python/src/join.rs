//! How a rank joins a world.

use crate::communicator::Communicator;
use crate::failure::{Failure, Result, invalid};
use crate::interrupt;
use crate::number::Number;
use crate::stream;
use pyo3::prelude::*;
use symmem::backends::Selection;
use symmem::{Builder, DeviceChoice, LaunchEnvironment};

/// Joins a world: that of the launcher's variables, or rank `rank` of `world_size` under the name `job`.
///
/// Blocks until all ranks have joined.
#[pyfunction]
#[pyo3(signature = (rank, world_size, job, backend, device, deadline, setup_deadline, check_calls))]
#[expect(clippy::too_many_arguments, reason = "Python passes them by name")]
pub fn join(
    python: Python<'_>,
    rank: Option<Number<u32>>,
    world_size: Option<Number<u32>>,
    job: Option<String>,
    backend: Option<String>,
    device: Option<Number<u32>>,
    deadline: Option<f64>,
    setup_deadline: Option<f64>,
    check_calls: Option<bool>,
) -> Result<Communicator> {
    let mut builder = Builder::new();
    builder = match (rank, world_size, job) {
        (None, None, None) => builder,
        (Some(Number(0)), Some(Number(1)), None) => {
            builder.launch(LaunchEnvironment::alone().map_err(symmem::Error::from)?)
        }
        (Some(Number(rank)), Some(Number(world)), Some(job)) => {
            let launch = LaunchEnvironment::local(rank, world, job);
            builder.launch(launch.map_err(symmem::Error::from)?)
        }
        _ => {
            return Err(invalid(
                "pass rank, world_size and job, a name that the ranks share, or none of them",
            ));
        }
    };
    if let Some(backend) = backend {
        builder = builder.backend(Selection::parse(&backend)?);
    }
    if let Some(Number(ordinal)) = device {
        builder = builder.device(DeviceChoice::Ordinal(ordinal));
    }
    if let Some(deadline) = deadline {
        builder = builder.deadline(stream::seconds(deadline)?);
    }
    if let Some(deadline) = setup_deadline {
        builder = builder.setup_deadline(stream::seconds(deadline)?);
    }
    if let Some(check) = check_calls {
        builder = builder.check_calls(check);
    }
    // Nobody ends a call that was left alone before the world exists; its setup deadline does.
    let build = move || builder.build().map_err(Failure::from);
    let communicator = interrupt::call(python, || {}, build)?;
    Ok(Communicator::new(communicator))
}
