//! The packages of all fakes. One command builds them, so that what they have in common is built once; tests and
//! maintainers' commands that build the same ones share the result.

/// The packages' names.
pub const FAKES: [&str; 6] = [
    "symmem-fake-blaslt",
    "symmem-fake-cuda",
    "symmem-fake-hip",
    "symmem-fake-nccl",
    "symmem-look-ups",
    "symmem-plugin-fixture",
];
