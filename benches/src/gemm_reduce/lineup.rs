//! The contenders of a shape: the parts alone, a GEMM followed by a collective, symmem's algorithms, and the selector's
//! choice.

use super::calls::{Contender, ContenderKind, by_provider};
use super::rounds::Run;
use super::session::Session;
use super::variants::{kernel_name, name};
use crate::gemm::element::MatrixFloat;
use crate::gemm::library::Library;
use crate::gemm::turn::missing;
use crate::outcome::{agree, not_here};
use crate::report::Entry;
use crate::report::gemm_reduce::{
    AUTOMATIC, COLLECTIVE, GEMM, GEMM_THEN_NCCL, GEMM_THEN_SYMMEM, GemmCollective,
    GemmReduceProblem,
};
use crate::{Result, exchange};
use symmem::{
    CollectiveCall, CollectiveOperation, GemmReduce, GemmReduceAlgorithm, GemmReduceOptions,
    Provider,
};

impl<'a, T: MatrixFloat> Run<'a, T> {
    fn make(
        &self,
        problem: &GemmReduceProblem,
        options: &GemmReduceOptions,
    ) -> symmem::Result<GemmReduce<T>> {
        let shape = problem.gemm_shape();
        match self.options.collective {
            GemmCollective::ReduceScatter => self.communicator.gemm_reduce_scatter(&shape, options),
            GemmCollective::AllReduce => self.communicator.gemm_all_reduce(&shape, options),
        }
    }

    /// Creates symmem's algorithms that support this shape and device; adds the others to `absent`. Collective.
    pub(super) fn ours(
        &self,
        problem: &GemmReduceProblem,
        absent: &mut Vec<Entry>,
        plans: &mut Vec<String>,
    ) -> Result<Vec<Contender<'a, T>>> {
        let mut contenders: Vec<Contender<'a, T>> = Vec::new();
        for options in self.options.variants() {
            let made = not_here(self.make(problem, &options).map_err(Into::into))?;
            let is_automatic = options.algorithm == GemmReduceAlgorithm::Automatic;
            let operation = match made {
                Ok(operation) => operation,
                Err(reason) => {
                    let asked = asked(&options);
                    if absent.iter().all(|known| known.by != asked) {
                        absent.push(missing(&asked, reason));
                    }
                    continue;
                }
            };
            let own = name(&operation);
            // A GEMM with few rows has fewer chunks than asked for, which may be another contender's number.
            if contenders.iter().any(|known| known.name == own) {
                continue;
            }
            if self.options.explain {
                plans.extend(exchange::all_gather(
                    self.communicator,
                    &operation.explain(),
                )?);
            }
            let by = ContenderKind::Ours(Box::new(operation));
            contenders.push(match is_automatic {
                true => Contender::new(AUTOMATIC, by, own),
                false => Contender::new(own, by, String::new()),
            });
        }
        Ok(contenders)
    }

    /// Returns the name of the selector's choice. Collective.
    pub(super) fn chosen(
        &self,
        problem: &GemmReduceProblem,
        contenders: &[Contender<'a, T>],
    ) -> Result<Option<String>> {
        if let Some(automatic) = contenders.iter().find(|one| one.name == AUTOMATIC) {
            return Ok(Some(automatic.how.clone()));
        }
        let options = GemmReduceOptions {
            symmetric_result: true,
            tune: false,
            ..GemmReduceOptions::default()
        };
        let made = not_here(self.make(problem, &options).map_err(Into::into))?;
        Ok(made.ok().map(|operation| name(&operation)))
    }

    /// Creates the parts alone, and the GEMM followed by a collective. Collective.
    pub(super) fn parts(
        &self,
        session: &Session<'a, T>,
        absent: &mut Vec<Entry>,
    ) -> Result<Vec<Contender<'a, T>>> {
        let (communicator, stream) = (self.communicator, &self.stream);
        let prepared = Library::new(communicator, session.layout())?;
        let mut parts = Vec::new();
        let mut then = Vec::new();
        match agree(communicator, prepared)? {
            Ok(library) => {
                let work = |library: &Library<'_>| session.multiply(stream, library);
                let library = library.choose(&self.clock, stream, work)?;
                for (name, provider) in [
                    (GEMM_THEN_NCCL, Provider::Nccl),
                    (GEMM_THEN_SYMMEM, Provider::Symmem),
                ] {
                    let again = agree(communicator, library.again(communicator)?)?;
                    match again.and_then(|again| self.can_provide(provider).map(|()| again)) {
                        Ok(again) => then.push((name, ContenderKind::Then(again, provider))),
                        Err(reason) => absent.push(missing(name, reason)),
                    }
                }
                let how = library.how();
                parts.push(Contender::new(GEMM, ContenderKind::Gemm(library), how));
            }
            Err(reason) => absent.push(missing(GEMM, reason)),
        }
        let how = self.added_up_by(session)?;
        parts.push(Contender::new(COLLECTIVE, ContenderKind::Collective, how));
        for (name, by) in then {
            // A call refuses what the provider cannot do; one rank's refusal counts for all.
            let called = not_here(session.issue(stream, &by))?;
            let called = agree(communicator, called)?;
            stream.synchronize()?;
            match called {
                Ok(()) => parts.push(Contender::new(name, by, String::new())),
                Err(reason) => absent.push(missing(name, reason)),
            }
        }
        Ok(parts)
    }

    /// Returns the reason if the provider is NCCL or RCCL and it could not be opened.
    fn can_provide(&self, provider: Provider) -> std::result::Result<(), String> {
        match provider {
            Provider::Nccl => self.nccl.clone(),
            _ => Ok(()),
        }
    }

    /// Names the algorithm that the selector of collectives chooses for the collective.
    fn added_up_by(&self, session: &Session<'a, T>) -> Result<String> {
        let all = (session.part.len() * size_of::<T>()) as u64;
        let operation = match self.options.collective {
            GemmCollective::ReduceScatter => CollectiveOperation::ReduceScatter,
            GemmCollective::AllReduce => CollectiveOperation::AllReduce,
        };
        let call = CollectiveCall {
            in_multicast: session.part.is_in_multicast() && session.c.is_in_multicast(),
            ..CollectiveCall::new(operation, all, T::TYPE)
        };
        let explanation =
            (self.communicator).explain_call(&call, &by_provider(Provider::Symmem))?;
        let choice = explanation.choice();
        Ok(choice.map_or(String::new(), |choice| {
            choice.algorithm().name().to_lowercase()
        }))
    }
}

/// Names the algorithm that was asked for, with a pipeline's transport.
fn asked(options: &GemmReduceOptions) -> String {
    match options.algorithm {
        GemmReduceAlgorithm::Pipeline => {
            format!("{} {}", options.algorithm.name(), options.transport.name())
        }
        algorithm => kernel_name(algorithm, options.partials),
    }
}
