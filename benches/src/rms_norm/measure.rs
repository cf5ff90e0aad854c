//! The measurement of all-reduces with RMSNorm, from the options to the report.

use super::element::RowFloat;
use super::options::Options;
use super::rounds::Rounds;
use super::session::Session;
use crate::by_caller::is_by_caller;
use crate::common::SharedLimits;
use crate::outcome::no_vendor_here;
use crate::progress::Progress;
use crate::report::collectives::BaselineState;
use crate::report::norms::{NormPoint, NormResults, RowElement};
use crate::report::{Environment, Report};
use crate::{BenchError, Result};
use symmem::Communicator;

/// Measures all-reduces with RMSNorm. Collective; blocks. Every rank gets the whole report. `environment` and `progress` are used
/// at rank 0 only.
///
/// # Errors
/// [`BenchError::World`] with fewer than 2 ranks, or if a point is too large for the devices; any error of the backend or a peer.
/// An absent library, a refused call and wrong elements are not errors: the report contains them.
pub fn run(
    communicator: &Communicator,
    options: &Options,
    environment: Environment,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report> {
    let rank = communicator.rank();
    let impossible = |message: String| Err(BenchError::World { rank, message });
    if communicator.world_size() < 2 {
        return impossible("all-reduces need 2 ranks or more; ask for them with --ranks 2".into());
    }
    let on_host = is_by_caller(communicator);
    let limits = SharedLimits::agree(communicator)?;
    let points = options.points(on_host);
    let size = options.element.bytes();
    for point in &points {
        let bytes = (point.rows as u64)
            .checked_mul(point.hidden as u64)
            .and_then(|elements| elements.checked_mul(size));
        if bytes.is_none_or(|bytes| bytes > limits.limit) {
            return impossible(format!(
                "{} rows of {} elements do not fit into {} bytes, the room for a matrix; give smaller --rows or --hidden",
                point.rows, point.hidden, limits.limit
            ));
        }
    }
    let mut report = Report::new(environment);
    report.environment.devices = limits.devices;
    let mut section = NormResults {
        world: communicator.world_size() as u32,
        ..NormResults::default()
    };
    let mut vendor = None;
    if options.benchmark && options.vendor.unwrap_or(!on_host) {
        let name = match communicator.backend_name() {
            "hip" => "rccl",
            _ => "nccl",
        };
        let state = open(communicator, name)?;
        vendor = state.version.is_some().then_some(name);
        section.baselines.push(state);
    }
    let all = Points {
        communicator,
        options,
        on_host,
        vendor,
        points,
    };
    section.points = match options.element {
        RowElement::Bf16 => all.measure::<half::bf16>(progress)?,
        RowElement::F16 => all.measure::<half::f16>(progress)?,
        RowElement::F32 => all.measure::<f32>(progress)?,
    };
    report.norms = Some(section);
    Ok(report)
}

struct Points<'r> {
    communicator: &'r Communicator,
    options: &'r Options,
    on_host: bool,
    vendor: Option<&'static str>,
    points: Vec<NormPoint>,
}

impl Points<'_> {
    fn measure<T: RowFloat>(self, progress: &mut dyn FnMut(Progress)) -> Result<Vec<NormPoint>> {
        let session = Session::<T>::new(self.communicator, &self.points)?;
        let rounds = Rounds {
            session: &session,
            options: self.options,
            on_host: self.on_host,
            vendor: self.vendor,
        };
        let total = self.points.len();
        let mut measured = Vec::with_capacity(total);
        for (done, point) in self.points.into_iter().enumerate() {
            progress(Progress {
                done,
                total,
                what: format!("RMSNorm of {} rows of {}", point.rows, point.hidden),
            });
            measured.push(rounds.measure(point)?);
        }
        session.finish()?;
        Ok(measured)
    }
}

/// Opens NCCL or RCCL. Collective.
fn open(communicator: &Communicator, name: &str) -> Result<BaselineState> {
    let opened = communicator.open_nccl(false).map_err(Into::into);
    let opened = no_vendor_here(opened)?;
    Ok(BaselineState {
        name: name.into(),
        version: opened.as_ref().ok().map(|library| {
            let (major, minor) = (library.version / 10_000, library.version / 100 % 100);
            format!("{} {major}.{minor}.{}", library.name, library.version % 100)
        }),
        absent: opened.err(),
    })
}
