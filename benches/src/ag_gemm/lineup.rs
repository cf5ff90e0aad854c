//! The contenders of a shape: the parts alone, other libraries, symmem's algorithms, and the selector's choice.

use super::calls::ContenderKind;
use super::contender::Contender;
use super::kernel::Kernel;
use super::options::ALL_TRANSPORTS;
use super::run::Run;
use super::session::{Session, raw_shape};
use super::side::Side;
use super::torch::Torch;
use super::windows::Windows;
use crate::by_caller::is_by_caller;
use crate::gemm::element::MatrixFloat;
use crate::gemm::library::Library;
use crate::gemm::turn::{REPLAYED_ROWS, missing};
use crate::outcome::{Outcome, agree, not_here};
use crate::report::ag_gemm::{
    ALGORITHMS, AUTOMATIC, BASELINE, Entry, GATHER, GEMM, GemmProblem, OWN_GEMM, TOGETHER, TORCH,
    TORCH_FUSED, TRANSFORMER_ENGINE, VARIANTS, WINDOWS,
};
use crate::{Result, exchange};
use symmem::tuning::StoredGemmRow;
use symmem::tuning::{gemm_algorithm, gemm_transport};
use symmem::{
    Algorithm, AllGatherGemm, CollectiveCall, CollectiveOperation, CollectiveOptions,
    GemmAlgorithm, GemmElement, GemmOptions, GemmTile, GemmTransport,
};

impl<'a, T: MatrixFloat> Run<'a, T> {
    /// Creates symmem's algorithms that support this shape and device; adds the others to `absent`. Collective.
    pub(super) fn ours(
        &self,
        problem: &GemmProblem,
        absent: &mut Vec<Entry>,
        plans: &mut Vec<String>,
    ) -> Result<Vec<Contender<'a, T>>> {
        let asked = self.options.transport.as_deref();
        let variants = VARIANTS
            .into_iter()
            .filter(|_| asked == Some(ALL_TRANSPORTS));
        let mut contenders = Vec::new();
        for name in ALGORITHMS.into_iter().chain(variants) {
            let (by, moved) = name.split_once(' ').unwrap_or((name, ""));
            let Some(known) = gemm_algorithm(by).filter(|_| self.options.has(by)) else {
                continue;
            };
            let options = GemmOptions {
                algorithm: known,
                transport: gemm_transport(moved)
                    .or(asked.and_then(gemm_transport))
                    .unwrap_or_default(),
                tile: (self.options.tile).map(|(rows, columns)| GemmTile { rows, columns }),
                tune: self.options.runs(),
                ..GemmOptions::default()
            };
            // For small M, an algorithm's default transport may equal this variant.
            if is_variant(name) && find(&contenders, (known, options.transport)).is_some() {
                continue;
            }
            let made = self
                .communicator
                .all_gather_gemm::<T>(&problem.gemm_shape(), &options);
            match not_here(made.map_err(Into::into))? {
                Ok(operation) => {
                    if self.options.explain {
                        plans.extend(exchange::all_gather(
                            self.communicator,
                            &operation.explain(),
                        )?);
                    }
                    let how = moved_by(operation.transport());
                    contenders.push(Contender::new(
                        name,
                        ContenderKind::Ours(Box::new(operation)),
                        how,
                    ));
                }
                Err(reason) => absent.push(missing(name, reason)),
            }
        }
        Ok(contenders)
    }

    /// Returns the name of the selector's choice with its transport. Also returns the choice as a contender, if all
    /// algorithms were requested and it is none of them. Collective.
    pub(super) fn chosen(
        &self,
        problem: &GemmProblem,
        contenders: &[Contender<'a, T>],
    ) -> Result<(Option<String>, Option<Contender<'a, T>>)> {
        let make = |tune| {
            let options = GemmOptions {
                tune,
                ..GemmOptions::default()
            };
            self.communicator
                .all_gather_gemm::<T>(&problem.gemm_shape(), &options)
        };
        let Ok(operation) = not_here(make(false).map_err(Into::into))? else {
            return Ok((None, None));
        };
        let chosen = choice_of(&operation);
        let name = (ALGORITHMS.into_iter()).find(|name| gemm_algorithm(name) == Some(chosen.0));
        let name = format!("{} {}", name.unwrap_or_default(), moved_by(chosen.1));
        let mut other = None;
        if self.options.algorithms.is_empty() && find(contenders, chosen).is_none() {
            let by = ContenderKind::Ours(Box::new(make(true)?));
            other = Some(Contender::new(AUTOMATIC, by, name.clone()));
        }
        Ok((Some(name), other))
    }

    /// Creates the parts alone (GEMM by the library and by symmem's kernel, gather), both at once, and the gather
    /// between windows followed by the GEMM. Collective.
    pub(super) fn parts(
        &self,
        session: &Session<'a, T>,
        problem: &GemmProblem,
        absent: &mut Vec<Entry>,
    ) -> Result<Vec<Contender<'a, T>>> {
        let stream = &self.stream;
        // Gather first, so that the GEMM has valid input.
        session.run(stream, || session.issue(stream, &ContenderKind::Gather))?;
        let prepared = Library::new(self.communicator, raw_shape::<T>(problem))?;
        let mut parts = Vec::new();
        let mut windows = None;
        match agree(self.communicator, prepared)? {
            Ok(library) => {
                let work = |library: &Library<'_>| session.multiply(stream, library);
                let library = library.choose(&self.clock, stream, work)?;
                // On the host backend, nothing runs at once.
                if problem.m > REPLAYED_ROWS && !is_by_caller(self.communicator) {
                    let again = library.again(self.communicator)?;
                    if let Ok(again) = agree(self.communicator, again)? {
                        let by = ContenderKind::Together(again, Side::new(self.communicator)?);
                        parts.push(Contender::new(TOGETHER, by, String::new()));
                    }
                }
                if self.options.has(BASELINE) {
                    let again = library.again(self.communicator)?;
                    windows = agree(self.communicator, again)?.ok();
                }
                let how = library.how();
                parts.insert(0, Contender::new(GEMM, ContenderKind::Gemm(library), how));
            }
            Err(reason) => absent.push(missing(GEMM, reason)),
        }
        self.communicator.host_barrier()?;
        match Kernel::new::<T>(self.communicator, problem)? {
            Ok(kernel) => {
                let how = kernel.how();
                parts.push(Contender::new(
                    OWN_GEMM,
                    ContenderKind::Own(Box::new(kernel)),
                    how,
                ));
            }
            Err(reason) => absent.push(missing(OWN_GEMM, reason)),
        }
        let mut between = None;
        if let Some(library) = windows {
            match self.between_windows(session, library)? {
                Ok(by) => between = Some(Contender::new(WINDOWS, by, "vendor".into())),
                Err(reason) => absent.push(missing(WINDOWS, reason)),
            }
        }
        // With registered windows, the gather uses them.
        let how = self.gathered_by(session, between.is_some())?;
        parts.push(Contender::new(GATHER, ContenderKind::Gather, how));
        parts.extend(between);
        Ok(parts)
    }

    /// Names the algorithm that the selector of collectives chooses for the gather.
    fn gathered_by(&self, session: &Session<'a, T>, windows: bool) -> Result<String> {
        let all = (session.a.len() * self.communicator.world_size() * size_of::<T>()) as u64;
        let gather = CollectiveCall {
            in_multicast: session.a.is_in_multicast() && session.whole.is_in_multicast(),
            ..CollectiveCall::new(CollectiveOperation::AllGather, all, T::TYPE)
        };
        let explanation =
            (self.communicator).explain_call(&gather, &CollectiveOptions::default())?;
        Ok(
            match explanation.choice().map(|choice| choice.algorithm()) {
                Some(Algorithm::Nccl) if windows => "nccl windows".into(),
                Some(Algorithm::Nccl) => "nccl".into(),
                Some(own) => format!("own {}", own.name().to_lowercase()),
                None => "own".into(),
            },
        )
    }

    /// Creates the all-gather by NCCL or RCCL between windows, followed by the GEMM, if possible. Collective.
    fn between_windows(
        &self,
        session: &Session<'a, T>,
        library: Library<'a>,
    ) -> Result<Outcome<ContenderKind<'a, T>>> {
        let made = Windows::new(session, library)?.map(ContenderKind::Windows);
        let Ok(by) = made else {
            return Ok(made);
        };
        // A call refuses ranges that windows cannot take; one rank's refusal counts for all.
        let called = not_here(session.issue(&self.stream, &by))?;
        let called = agree(self.communicator, called)?;
        self.stream.synchronize()?;
        Ok(called.map(|()| by))
    }

    /// Creates and checks PyTorch's contenders. Collective.
    pub(super) fn beside(
        &self,
        torch: &mut Option<Torch>,
        problem: &GemmProblem,
        absent: &mut Vec<Entry>,
    ) -> Result<Vec<Contender<'a, T>>> {
        let mut contenders = Vec::new();
        let shaped = self.ask(torch, |torch| torch.shape(problem))?;
        for (name, method) in [
            (TORCH, "plain"),
            (TORCH_FUSED, "fused"),
            (TRANSFORMER_ENGINE, "overlapped"),
        ] {
            let checked = match &shaped {
                Ok(()) => self.ask(torch, |torch| torch.check(method))?,
                Err(reason) => Err(reason.clone()),
            };
            match checked {
                Ok(counts) => {
                    let mut contender =
                        Contender::new(name, ContenderKind::Torch(method), String::new());
                    contender.turn.seen.count(counts);
                    contenders.push(contender);
                }
                Err(reason) => absent.push(missing(name, reason)),
            }
        }
        Ok(contenders)
    }
}

fn is_variant(name: &str) -> bool {
    VARIANTS.contains(&name)
}

/// Algorithm and transport of one of symmem's contenders.
type AlgorithmAndTransport = (GemmAlgorithm, GemmTransport);

fn choice_of<T: GemmElement>(operation: &AllGatherGemm<T>) -> AlgorithmAndTransport {
    (operation.algorithm(), operation.transport())
}

/// Finds symmem's contender with this algorithm and transport.
fn find<'c, 'a, T: MatrixFloat>(
    contenders: &'c [Contender<'a, T>],
    how: AlgorithmAndTransport,
) -> Option<&'c Contender<'a, T>> {
    contenders.iter().find(|contender| match &contender.by {
        ContenderKind::Ours(ours) => choice_of(ours) == how,
        _ => false,
    })
}

/// Names the transport of the shards.
fn moved_by(transport: GemmTransport) -> String {
    match transport {
        GemmTransport::Automatic => "own".into(),
        transport => transport.name().into(),
    }
}

/// Returns the tuning row of the contender named `best`. The row has the GEMM heuristics of all of symmem's contenders,
/// since other algorithms multiply other numbers of rows.
pub(super) fn row<T: MatrixFloat>(
    best: &str,
    contenders: &[Contender<'_, T>],
) -> Option<StoredGemmRow> {
    let ours = |contender: &Contender<'_, T>| match &contender.by {
        ContenderKind::Ours(operation) => Some((contender.name, operation.row())),
        _ => None,
    };
    let all: Vec<_> = contenders.iter().filter_map(ours).collect();
    let (_, mut row) = all.iter().find(|(name, _)| *name == best)?.clone();
    for (rows, candidate) in all.iter().flat_map(|(_, other)| &other.candidates) {
        if row.candidates.iter().all(|(known, _)| known != rows) {
            row.candidates.push((*rows, *candidate));
        }
    }
    StoredGemmRow::new(&row)
}
