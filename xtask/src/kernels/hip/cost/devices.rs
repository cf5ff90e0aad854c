//! What the model takes from documents and published measurements, by device. Every figure names its source; a figure
//! without a source is an assumption, and says so.
//!
//! Sources, by their names below:
//! - *CDNA3*, *CDNA4*: AMD's "CDNA3" and "CDNA4 Instruction Set Architecture", and their white papers.
//! - *FP8 blog*: AMD, "FP8 GEMM Optimization on AMD CDNA4 Architecture", 10 March 2026, table 1.
//! - *MAF*: AMD, "Measuring Max-Achievable FLOPs – Part 2", 28 February 2025: the clock under a dense GEMM.
//! - *mt4g*: the report of `caps-tum/mt4g` on an MI300X VF, 8 August 2025: latencies by pointer chasing, bandwidths.
//! - *xGMI blog*: AMD, "Understanding RCCL Bandwidth and xGMI Performance on AMD Instinct MI300X".

use serde::Serialize;

/// Lanes of a wave.
pub const LANES: u32 = 64;
/// SIMDs of a compute unit; a SIMD issues for one of its waves every four clocks (CDNA3).
pub const SIMDS: u32 = 4;
/// Clocks of a pass: a SIMD takes a wave's 64 lanes in four clocks (CDNA3). llvm-mca counts in passes.
pub const PASS: u64 = 4;

/// A device, and what one of its compute units can do.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Device {
    pub target: &'static str,
    pub product: &'static str,
    pub compute_units: u32,
    /// The highest clock in MHz (data sheet).
    pub peak_mhz: f64,
    /// The clock in MHz that the power limit leaves under a dense GEMM.
    pub gemm_mhz: f64,
    /// Floating-point operations of a compute unit's matrix cores in a clock, f16 or bf16 (data sheet).
    pub matrix_flops: f64,
    /// Bytes of shared memory of a compute unit.
    pub shared_bytes: u32,
    /// Bytes that shared memory reads and writes in a clock (FP8 blog). Writes of CDNA4 have 32 banks, as published
    /// experiments with HipKittens show (`analysis/paper_experiments/phases`).
    pub shared_read: f64,
    pub shared_write: f64,
    /// Clocks from the issue of a read of shared memory until its data can be used, without others' accesses (mt4g, 52).
    pub shared_latency: u64,
    /// Vector registers of a SIMD for each lane (CDNA3).
    pub registers: u32,
    /// The most waves of a SIMD (CDNA3).
    pub most_waves: u32,
    /// Bytes that a compute unit's vector memory moves in a clock (rocprofiler-compute, vL1D: 64 B).
    pub vector_memory: f64,
    /// Bytes of a compute unit's share of its L2 in a clock: 16 channels of 128 B for the compute units of an XCD
    /// (CDNA3). mt4g read less than half of it.
    pub l2_rate: f64,
    /// Latencies in clocks of a load that hits the Infinity Cache, and HBM (mt4g: 288 + 209, 900).
    pub cache_latency: u64,
    pub memory_latency: u64,
    /// Achievable bytes per second of HBM.
    pub memory_rate: f64,
    /// Latency in nanoseconds of a load from a peer. Not published for MI300X: an assumption.
    pub link_latency_ns: f64,
    /// Usable bytes per second of a link and direction (xGMI blog: 45 to 48 GB/s of 64), and the links of a device.
    pub link_rate: f64,
    pub links: u32,
}

/// The devices that are modeled, by target.
pub const DEVICES: [Device; 2] = [
    Device {
        target: "gfx942",
        product: "MI300X",
        compute_units: 304,
        peak_mhz: 2100.0,
        gemm_mhz: 1207.0, // MAF, bf16
        matrix_flops: 2048.0,
        shared_bytes: 64 << 10,
        shared_read: 128.0,
        shared_write: 128.0,
        shared_latency: 52,
        registers: 512,
        most_waves: 8,
        vector_memory: 64.0,
        l2_rate: 2048.0 / 38.0,
        cache_latency: 497,
        memory_latency: 900,
        memory_rate: 4.2e12, // AMD's roofline benchmark, as in ROCm issue 5070; mt4g: 4.0 read, 4.4 written
        link_latency_ns: 1500.0,
        link_rate: 48e9,
        links: 7,
    },
    Device {
        target: "gfx950",
        product: "MI355X",
        compute_units: 256,
        peak_mhz: 2400.0,
        gemm_mhz: 1700.0, // published logs of hipBLASLt and CK at the limit of 1400 W: 1650 and 1725
        matrix_flops: 4096.0,
        shared_bytes: 160 << 10,
        shared_read: 256.0,
        shared_write: 128.0,
        shared_latency: 52, // of MI300X
        registers: 512,
        most_waves: 8,
        vector_memory: 64.0,
        l2_rate: 2048.0 / 32.0,
        cache_latency: 497, // latencies of MI300X, in clocks
        memory_latency: 900,
        memory_rate: 5.65e12, // a published copy by CK, of a peak of 8.0
        link_latency_ns: 1500.0,
        link_rate: 53e9, // Iris's all-gather by RCCL, 371 GB/s over seven links
        links: 7,
    },
];

impl Device {
    /// Returns the device of a target.
    #[cfg(test)]
    pub fn of(target: &str) -> Option<&'static Self> {
        DEVICES.iter().find(|device| device.target == target)
    }

    /// Returns the clocks of a time at the highest clock.
    pub fn clocks(&self, nanoseconds: f64) -> u64 {
        (nanoseconds * self.peak_mhz / 1000.0).round() as u64
    }

    /// Returns the bytes in a clock, at the highest clock, of `rate` bytes per second that `units` share.
    pub fn share(&self, rate: f64, units: u32) -> f64 {
        rate / f64::from(units) / (self.peak_mhz * 1e6)
    }

    /// Returns the waves that a SIMD can hold, each with so many registers.
    ///
    /// Registers are allocated by eights (LLVM's "User Guide for AMDGPU Backend").
    pub fn waves_by_registers(&self, registers: u32) -> u32 {
        let each = registers.next_multiple_of(8).max(8);
        (self.registers / each).min(self.most_waves)
    }

    /// Returns the blocks that a compute unit can hold.
    pub fn blocks(&self, threads: u32, registers: u32, shared_bytes: u32) -> u32 {
        let waves = threads.div_ceil(LANES).max(1);
        let by_waves = self.waves_by_registers(registers) * SIMDS / waves;
        match self.shared_bytes.checked_div(shared_bytes) {
            Some(by_shared) => by_waves.min(by_shared),
            None => by_waves,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_and_shared_memory_limit_the_blocks_of_a_compute_unit() {
        let device = Device::of("gfx942").unwrap();
        // 168 registers leave three waves to a SIMD, so three blocks of four waves; two stages of shared memory leave one.
        assert_eq!(device.blocks(256, 168, 0), 3);
        assert_eq!(device.blocks(256, 168, 36_864), 1);
        assert_eq!(device.blocks(512, 254, 65_536), 1);
        assert_eq!(device.blocks(512, 32, 128), 4);
        assert_eq!(device.blocks(512, 300, 0), 0);
    }

    #[test]
    fn the_peaks_are_those_of_the_data_sheets() {
        let peak = |device: &Device| {
            device.matrix_flops * f64::from(device.compute_units) * device.peak_mhz * 1e6
        };
        assert!((peak(&DEVICES[0]) / 1307.4e12 - 1.0).abs() < 0.001);
        assert!((peak(&DEVICES[1]) / 2516.6e12 - 1.0).abs() < 0.001);
    }
}
