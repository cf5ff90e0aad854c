//! Machines with constants, and where each constant comes from.

use super::machine::{CONSTANTS, Constant, Link, Machine};

/// Where a constant comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Fitted to runs of symmem; the text names them.
    Measured(&'static str),
    /// A vendor's data sheet.
    DataSheet(&'static str),
    /// Nobody measured it; the text says what it stands for.
    Assumed(&'static str),
}

impl Origin {
    /// Returns the kind of source in one word, and the source.
    pub const fn parts(self) -> (&'static str, &'static str) {
        match self {
            Self::Measured(text) => ("measured", text),
            Self::DataSheet(text) => ("data sheet", text),
            Self::Assumed(text) => ("assumed", text),
        }
    }
}

/// A machine by name.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Name in commands.
    pub name: &'static str,
    /// What it is.
    pub description: &'static str,
    /// One node of it.
    pub machine: Machine,
    /// The constants' origins, in the order of [`Constant::ALL`].
    pub origins: [Origin; CONSTANTS],
}

const NVLINK: Origin = Origin::Measured(
    "2026-11-26-collectives-2xh200 and -4xh200, all sizes: mean error 8 %, largest 22 %; 8 GPUs were not measured",
);
const HOST: Origin = Origin::Measured(
    "2026-11-21-collectives-host-32-cores, 2 ranks: mean error 25 %, largest 71 %",
);
const WIRE: Origin = Origin::Assumed("Ethernet of 10 Gb/s");

impl Preset {
    /// All of them; the first is the default.
    pub const ALL: [Self; 2] = [
        Self {
            name: "h200",
            description: "8 H100s or H200s a node with NVLink, and one 400 Gb/s NDR port for each GPU",
            machine: Machine {
                nodes: 1,
                ranks_per_node: 8,
                rails: 8,
                inside: Link {
                    latency: 1.97e-6,
                    bandwidth: 348e9,
                    gap: 0.0,
                },
                between: Link {
                    latency: 6e-6,
                    bandwidth: 50e9,
                    gap: 0.3e-6,
                },
                reduction: 5.3e12,
            },
            origins: [
                NVLINK,
                NVLINK,
                Origin::Assumed("a kernel stores to all peers at once"),
                Origin::Assumed(
                    "RDMA write of 2 µs, and 4 µs for the stream to start it and to see it",
                ),
                Origin::DataSheet("ConnectX-7, 400 Gb/s, without protocol overhead"),
                Origin::Assumed("posting a message and seeing its completion"),
                NVLINK,
            ],
        },
        Self {
            name: "tcp",
            description: "hosts with 2 ranks each on the host backend, joined by Ethernet",
            machine: Machine {
                nodes: 1,
                ranks_per_node: 2,
                rails: 1,
                inside: Link {
                    latency: 0.34e-6,
                    bandwidth: 22e9,
                    gap: 0.0,
                },
                between: Link {
                    latency: 40e-6,
                    bandwidth: 1.25e9,
                    gap: 5e-6,
                },
                reduction: 20e9,
            },
            origins: [
                HOST,
                HOST,
                Origin::Assumed("ranks copy without messages"),
                Origin::Assumed("a message over TCP, one way, with a sleeping receiver"),
                WIRE,
                Origin::Assumed("a system call to send and one to receive"),
                Origin::Assumed("one core that reads two buffers and writes one"),
            ],
        },
    ];

    /// Returns the preset with this name.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|preset| preset.name == name)
    }

    /// Returns a constant's origin.
    pub fn origin(&self, constant: Constant) -> Origin {
        self.origins[constant as usize]
    }
}
