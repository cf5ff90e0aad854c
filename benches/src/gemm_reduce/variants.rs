//! The algorithms of symmem that take part, with the transports, chunks and streams of pipelines.

use super::options::Options;
use crate::report::gemm_reduce::{AUTOMATIC, BASELINE, PACKETS, PIPELINE, PUSH, TRANSPORTS};
use symmem::tuning::gemm_transport;
use symmem::{
    GemmElement, GemmPartials, GemmReduce, GemmReduceAlgorithm, GemmReduceOptions, GemmTransport,
};

/// The numbers of chunks and of streams that are measured by default.
const CHUNKS: [usize; 3] = [1, 2, 4];
const STREAMS: [usize; 2] = [1, 2];

impl Options {
    /// Returns the library's options of every algorithm that takes part, the selector's choice first.
    pub(super) fn variants(&self) -> Vec<GemmReduceOptions> {
        let has = |name: &str| {
            self.algorithms.is_empty() || self.algorithms.iter().any(|known| known == name)
        };
        let or = |asked: &[usize], usual: &[usize]| match asked {
            [] => usual.to_vec(),
            asked => asked.to_vec(),
        };
        let base = GemmReduceOptions {
            symmetric_result: true,
            tune: self.runs(),
            ..GemmReduceOptions::default()
        };
        let mut variants = Vec::new();
        if has(AUTOMATIC) {
            variants.push(base);
        }
        if has(BASELINE) {
            variants.push(GemmReduceOptions {
                algorithm: GemmReduceAlgorithm::Baseline,
                ..base
            });
        }
        let transports = TRANSPORTS.into_iter().filter(|name| {
            self.transports.is_empty() || self.transports.iter().any(|asked| asked == name)
        });
        for transport in transports
            .filter(|_| has(PIPELINE))
            .filter_map(gemm_transport)
        {
            for &chunks in &or(&self.chunks, &CHUNKS) {
                for &streams in &or(&self.streams, &STREAMS) {
                    variants.push(GemmReduceOptions {
                        algorithm: GemmReduceAlgorithm::Pipeline,
                        transport,
                        chunks: Some(chunks),
                        streams,
                        ..base
                    });
                }
            }
        }
        let kernels = [
            (PUSH, GemmReduceAlgorithm::Push),
            (PACKETS, GemmReduceAlgorithm::Packets),
        ];
        for (_, algorithm) in kernels.into_iter().filter(|(name, _)| has(name)) {
            for partials in [GemmPartials::Element, GemmPartials::F32] {
                variants.push(GemmReduceOptions {
                    algorithm,
                    partials,
                    ..base
                });
            }
        }
        variants
    }
}

/// Returns the name of an operation with `streams` streams: `pipeline put, 2 chunks, 1 stream`, `push f32`.
pub(super) fn name<T: GemmElement>(operation: &GemmReduce<T>, streams: usize) -> String {
    let counted = |count: usize, what: &str| match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    };
    match (operation.algorithm(), operation.transport()) {
        (algorithm, GemmTransport::Automatic) => kernel_name(algorithm, operation.partials()),
        (algorithm, transport) => format!(
            "{} {}, {}, {}",
            algorithm.name(),
            transport.name(),
            counted(operation.chunks(), "chunk"),
            counted(streams, "stream")
        ),
    }
}

/// Returns the name of an algorithm without a transport: with `f32` if it sends parts of the sum so.
pub(super) fn kernel_name(algorithm: GemmReduceAlgorithm, partials: GemmPartials) -> String {
    match partials {
        GemmPartials::F32 => format!("{} {}", algorithm.name(), partials.name()),
        _ => algorithm.name().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::gemm_reduce::{ALGORITHMS, GemmCollective};
    use crate::sizes::Effort;

    fn options() -> Options {
        Options {
            collective: GemmCollective::AllReduce,
            effort: Effort::Quick,
            problems: Vec::new(),
            algorithms: Vec::new(),
            transports: Vec::new(),
            streams: Vec::new(),
            chunks: Vec::new(),
            validate: true,
            benchmark: true,
            explain: false,
            rounds: None,
        }
    }

    #[test]
    fn by_default_everything_takes_part() {
        assert_eq!(options().variants().len(), 1 + 1 + 2 * 3 * 2 + 2 * 2);
        for algorithm in [
            GemmReduceAlgorithm::Automatic,
            GemmReduceAlgorithm::Baseline,
            GemmReduceAlgorithm::Pipeline,
            GemmReduceAlgorithm::Push,
            GemmReduceAlgorithm::Packets,
        ] {
            assert!(ALGORITHMS.contains(&algorithm.name()));
        }
    }

    #[test]
    fn filters_leave_what_they_name() {
        let variants = Options {
            algorithms: vec!["pipeline".into()],
            transports: vec!["kernel".into()],
            streams: vec![3],
            chunks: vec![2, 5],
            ..options()
        }
        .variants();
        let found: Vec<_> = (variants.iter())
            .map(|one| (one.transport, one.chunks, one.streams))
            .collect();
        let kernel = GemmTransport::Kernel;
        assert_eq!(found, [(kernel, Some(2), 3), (kernel, Some(5), 3)]);
        let variants = Options {
            algorithms: vec!["push".into()],
            ..options()
        }
        .variants();
        let found: Vec<_> = (variants.iter())
            .map(|one| kernel_name(one.algorithm, one.partials))
            .collect();
        assert_eq!(found, ["push", "push f32"]);
    }
}
