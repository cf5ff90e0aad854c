//! How the kernels are launched, which their code objects do not say, and where their accesses go.

use super::devices::Device;
use super::waves::Path;

/// What a kernel does, which decides where its accesses go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Loads from a peer and stores here.
    Pull,
    /// Loads here and stores at peers.
    Push,
    /// A GEMM, whose operands come from the L2 and the Infinity Cache.
    Product,
}

/// Kernels that are launched alike.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    pub prefix: &'static str,
    pub work: Work,
    /// Threads of a block; `None` for as many as the kernel was compiled for.
    pub threads: Option<u32>,
    /// Blocks of a large call (`backend-hip/src/tuning`); a GEMM has one for each compute unit.
    pub blocks: u32,
    /// Links that a call uses, if there are as many.
    pub links: u32,
    /// Bytes of shared memory that the launch adds.
    pub shared_bytes: u32,
}

const COLLECTIVE: Family = Family {
    prefix: "",
    work: Work::Pull,
    threads: Some(512),
    blocks: 64,
    links: 7,
    shared_bytes: 0,
};

/// Two stages of both operands (`gemm_shared_bytes` in `tile_gemm.h`).
const TILE_GEMM_SHARED: u32 = 2 * 2 * 128 * (32 + 4) * 2;

const PRODUCT: Family = Family {
    work: Work::Product,
    threads: None,
    shared_bytes: TILE_GEMM_SHARED,
    ..COLLECTIVE
};

/// The families, longer prefixes before shorter ones.
const FAMILIES: [Family; 9] = [
    Family {
        prefix: "symmem_copy_vector",
        blocks: 16,
        links: 1,
        ..COLLECTIVE
    },
    Family {
        prefix: "symmem_gathered_gemm_",
        ..PRODUCT
    },
    Family {
        prefix: "symmem_reduced_gemm_",
        ..PRODUCT
    },
    Family {
        prefix: "symmem_move_packets",
        work: Work::Push,
        threads: Some(256),
        blocks: 32,
        ..COLLECTIVE
    },
    Family {
        prefix: "symmem_move",
        work: Work::Push,
        ..COLLECTIVE
    },
    Family {
        prefix: "symmem_reduce_packets_",
        work: Work::Push,
        threads: Some(256),
        blocks: 32,
        ..COLLECTIVE
    },
    Family {
        prefix: "symmem_reduce_push_",
        work: Work::Push,
        ..COLLECTIVE
    },
    Family {
        prefix: "symmem_reduce_",
        ..COLLECTIVE
    },
    Family {
        prefix: "symmem_exchange",
        ..COLLECTIVE
    },
];

impl Family {
    /// Returns the family of a kernel.
    pub fn of(kernel: &str) -> Option<Self> {
        let known = FAMILIES
            .iter()
            .find(|family| kernel.starts_with(family.prefix));
        known.copied()
    }
}

/// Where a kernel's accesses go in one case.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    pub name: &'static str,
    pub loads: Path,
    pub stores: Path,
    /// Whether loads and stores share the rate.
    pub one_memory: bool,
    /// Bytes in flight that a compute unit needs: latency times its share of the rate, of loads or stores.
    pub needed: f64,
    /// Compute units that take part, and the bytes per second that they have together.
    pub units: u32,
    pub rate: f64,
}

/// Returns the routes of a kernel's accesses.
pub fn routes(device: &Device, family: &Family) -> Vec<Route> {
    let here = Path {
        latency: device.memory_latency,
        rate: device.share(device.memory_rate, family.blocks),
    };
    if family.work == Work::Product {
        let operands = Path {
            latency: device.cache_latency,
            rate: device.l2_rate,
        };
        return vec![Route {
            name: "cache",
            loads: operands,
            stores: here,
            one_memory: false,
            needed: operands.latency as f64 * operands.rate,
            units: device.compute_units,
            rate: operands.rate * f64::from(device.compute_units) * device.peak_mhz * 1e6,
        }];
    }
    // All of HBM: a block on each compute unit, source and destination on this device.
    let all = Path {
        latency: device.memory_latency,
        rate: device.share(device.memory_rate, device.compute_units),
    };
    let links = family.links.min(device.links);
    let rate = device.link_rate * f64::from(links);
    let link = Path {
        latency: device.clocks(device.link_latency_ns),
        rate: device.share(rate, family.blocks),
    };
    let (loads, stores) = match family.work {
        Work::Push => (here, link),
        _ => (link, here),
    };
    vec![
        Route {
            name: "hbm",
            loads: all,
            stores: all,
            one_memory: true,
            needed: all.latency as f64 * all.rate,
            units: device.compute_units,
            rate: device.memory_rate,
        },
        Route {
            name: "xgmi",
            loads,
            stores,
            one_memory: false,
            needed: link.latency as f64 * link.rate,
            units: family.blocks,
            rate,
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_has_the_family_with_the_longest_prefix() {
        let threads = |kernel| Family::of(kernel).unwrap().threads;
        assert_eq!(threads("symmem_reduce_f32"), Some(512));
        assert_eq!(threads("symmem_reduce_packets_f32"), Some(256));
        assert_eq!(threads("symmem_gathered_gemm_f16_rows"), None);
        assert_eq!(Family::of("symmem_copy_vector").unwrap().links, 1);
        assert!(Family::of("symmem_wait").is_none());
    }

    #[test]
    fn a_link_needs_its_rate_times_its_latency_in_flight() {
        let device = Device::of("gfx942").unwrap();
        let family = Family::of("symmem_copy_vector").unwrap();
        let link = routes(device, &family)[1];
        // 48 GB/s for 1.5 µs by 16 blocks.
        assert!((link.needed / 4500.0 - 1.0).abs() < 0.01, "{}", link.needed);
    }
}
