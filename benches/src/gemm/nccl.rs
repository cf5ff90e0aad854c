//! NCCL or RCCL as a baseline.

use crate::Result;
use crate::outcome::{agree, no_vendor_here};
use crate::report::collectives::BaselineState;
use symmem::Communicator;

/// Opens NCCL or RCCL, of all ranks or of none. Collective.
pub(crate) fn open(communicator: &Communicator) -> Result<BaselineState> {
    let opened = communicator.open_nccl(false).map_err(Into::into);
    let opened = agree(communicator, no_vendor_here(opened)?)?;
    Ok(BaselineState {
        name: "collectives library".into(),
        version: opened.as_ref().ok().map(|library| {
            let (major, minor) = (library.version / 10_000, library.version / 100 % 100);
            format!("{} {major}.{minor}.{}", library.name, library.version % 100)
        }),
        absent: opened.err(),
    })
}
