//! Cases are plain data, so that a test, the installed command and a remote machine run the same case.

use super::collectives::{CollectiveCase, RefusalCase, SoakCase};
use super::norms::{NormCase, NormRefusalCase};
use super::products::GemmCase;
use super::reduced_products::{GemmReduceCase, GemmReduceRefusalCase};
use super::transfer_case::{Placement, TransferCase};
use serde::{Deserialize, Serialize};
use std::fmt;
use symmem::backend::abi::{CAPABILITY_GRAPHS, Capabilities};

/// One check that all ranks of a world run together.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Case {
    /// Puts, gets, signals, barriers, host copies, refusals or registration.
    Transfer(TransferCase),
    /// One collective.
    Collective(CollectiveCase),
    /// Collective calls that must fail with a typed error.
    Refusal(RefusalCase),
    /// Mixed collectives for a given time.
    Soak(SoakCase),
    /// An all-gather + GEMM.
    #[serde(rename = "Product")]
    AllGatherGemm(GemmCase),
    /// An all-reduce of rows with a residual and a norm.
    Norm(NormCase),
    /// Such calls that must fail with a typed error.
    NormRefusal(NormRefusalCase),
    /// A GEMM + reduce-scatter or GEMM + all-reduce.
    GemmReduce(GemmReduceCase),
    /// Such operations and calls that must fail with a typed error.
    GemmReduceRefusal(GemmReduceRefusalCase),
}

impl Case {
    /// Returns where the communicator's signals live.
    pub fn placement(&self) -> Placement {
        match self {
            Self::Transfer(case) => case.placement,
            Self::Collective(_)
            | Self::Refusal(_)
            | Self::Soak(_)
            | Self::AllGatherGemm(_)
            | Self::Norm(_)
            | Self::NormRefusal(_)
            | Self::GemmReduce(_)
            | Self::GemmReduceRefusal(_) => Placement::Device,
        }
    }

    /// Returns why a device with these capabilities cannot run this case; `None` if it can.
    pub fn missing(&self, capabilities: &Capabilities) -> Option<&'static str> {
        match self {
            Self::Transfer(case) => case.engine.missing(capabilities),
            Self::Collective(case) => case.missing(capabilities),
            Self::AllGatherGemm(GemmCase { captured: true, .. })
            | Self::Norm(NormCase { captured: true, .. })
            | Self::GemmReduce(GemmReduceCase { captured: true, .. })
                if capabilities.flags & CAPABILITY_GRAPHS == 0 =>
            {
                Some("the device has no graphs")
            }
            Self::Refusal(_)
            | Self::Soak(_)
            | Self::AllGatherGemm(_)
            | Self::Norm(_)
            | Self::NormRefusal(_)
            | Self::GemmReduce(_)
            | Self::GemmReduceRefusal(_) => None,
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transfer(case) => case.fmt(formatter),
            Self::Collective(case) => case.fmt(formatter),
            Self::Refusal(case) => case.fmt(formatter),
            Self::Soak(case) => case.fmt(formatter),
            Self::AllGatherGemm(case) => case.fmt(formatter),
            Self::Norm(case) => case.fmt(formatter),
            Self::NormRefusal(case) => case.fmt(formatter),
            Self::GemmReduce(case) => case.fmt(formatter),
            Self::GemmReduceRefusal(case) => case.fmt(formatter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dtype, Engine, Length, Operation, Traffic};

    #[test]
    fn a_case_survives_json() {
        let case = TransferCase {
            operation: Operation::Replay,
            traffic: Traffic::AllPairs,
            dtype: Dtype::Bf16,
            length: Length::Around {
                bytes: 4096,
                delta: -1,
            },
            destination_offset: 3,
            source_offset: 15,
            engine: Engine::ring(4),
            placement: Placement::Host,
            seed: u64::MAX,
        };
        let case = Case::Transfer(case);
        let text = serde_json::to_string(&case).unwrap();
        assert_eq!(serde_json::from_str::<Case>(&text).unwrap(), case);
        assert_eq!(
            case.to_string(),
            "Replay/AllPairs/Bf16/4096B-1/+3+15/Bulk.1x128.ring4x16384/Host"
        );
    }
}
