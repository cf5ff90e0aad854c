//! The closed sets of the public API as enums. Across the table of functions they are numbers, since a backend may
//! be older or newer.

use crate::backend::abi;

/// Declares an enum whose values stand for numbers of the table.
macro_rules! closed {
    ($(#[$doc:meta])* $name:ident of $raw:ident { $($(#[$vdoc:meta])* $variant:ident = $constant:ident,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$vdoc])* $variant,)+
        }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name in logs, reports and tuning tables.
            pub fn name(self) -> &'static str {
                abi::$raw::from(self).name()
            }

            #[allow(dead_code, reason = "not every set is read back")]
            pub(crate) fn of(raw: abi::$raw) -> Option<Self> {
                Self::ALL.iter().copied().find(|&one| abi::$raw::from(one) == raw)
            }
        }

        impl From<$name> for abi::$raw {
            #[inline]
            fn from(value: $name) -> Self {
                match value {
                    $($name::$variant => Self::$constant,)+
                }
            }
        }
    };
}

closed! {
    /// How a reduction makes one element of several.
    ReduceOp of ReduceOperation {
        /// The sum; integers wrap.
        Sum = SUM,
        /// The sum divided by the number of ranks; integers are truncated.
        Average = AVERAGE,
        /// The least; NaN if any is NaN.
        Minimum = MINIMUM,
        /// The greatest; NaN if any is NaN.
        Maximum = MAXIMUM,
        /// The product; integers wrap.
        Product = PRODUCT,
    }
}

closed! {
    /// How a collective is done. Not every algorithm fits every operation.
    #[non_exhaustive]
    Algorithm of Algorithm {
        /// LL packets, which carry their flag: no barrier, twice the bytes. One-shot.
        Ll = PACKETS,
        /// LL packets twice: a reduce-scatter, then an all-gather of its results.
        LlTwoShot = PACKETS_TWO_SHOT,
        /// Between two barriers every rank pulls all it needs and reduces it itself.
        OneShot = ONE_SHOT,
        /// Between two barriers every rank pulls and reduces its part and pushes it to all; a broadcast scatters,
        /// then gathers.
        TwoShot = TWO_SHOT,
        /// Between two barriers every rank stores to its peers.
        Push = PUSH,
        /// Between two barriers every rank loads from its peers.
        Pull = PULL,
        /// Between two barriers the parts of each pair of ranks change places; each rank swaps half of them. An
        /// all-to-all in place, and nothing else.
        Swap = SWAP,
        /// Copies by the copy engine, each step when the neighbour has finished the one before it. In an
        /// all-reduce it gathers, once a kernel has reduced each rank's share.
        CopyEngine = COPY_ENGINE,
        /// NVLS: between two barriers every rank loads its share from a multicast address, reduced by the switch,
        /// and stores it to one. An operation that only reduces, or only hands out, does half of it.
        Multicast = MULTICAST,
        /// NVLS: between two barriers every rank loads all it needs from a multicast address, reduced by the
        /// switch. Never in place.
        MulticastOneShot = MULTICAST_ONE_SHOT,
        /// The receiver loads from the sender once both are there: sends and receives.
        Rendezvous = RENDEZVOUS,
        /// NCCL or RCCL.
        Nccl = VENDOR,
    }
}

closed! {
    /// When a wait for a word is over: the word, compared with the wait's value. The order is that of epochs:
    /// wrapping, so that a word is greater if it is less than half the range ahead.
    Condition of Condition {
        /// Equal.
        Equal = EQUAL,
        /// Not equal.
        NotEqual = NOT_EQUAL,
        /// Ahead or equal.
        GreaterOrEqual = GREATER_OR_EQUAL,
        /// Ahead.
        Greater = GREATER,
        /// Behind or equal.
        LessOrEqual = LESS_OR_EQUAL,
        /// Behind.
        Less = LESS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_number_of_its_own() {
        for &algorithm in Algorithm::ALL {
            assert_eq!(Algorithm::of(algorithm.into()), Some(algorithm));
        }
        assert_eq!(Algorithm::of(abi::Algorithm::AUTOMATIC), None);
        for &operator in ReduceOp::ALL {
            assert_eq!(ReduceOp::of(operator.into()), Some(operator));
        }
        for &condition in Condition::ALL {
            assert_eq!(Condition::of(condition.into()), Some(condition));
        }
    }
}
