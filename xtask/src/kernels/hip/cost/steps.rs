//! What an instruction of a loop needs, as the model of waves counts it.

use super::super::isa::Instruction;
use super::devices::{Device, LANES, PASS};
use super::mca::Scheduled;

/// The unit that executes an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    Scalar,
    Vector,
    Matrix,
    /// Vector memory: global and buffer accesses.
    Memory,
    Shared,
    Branch,
    /// Waits, barriers and the like, which only their wave notices.
    Internal,
}

/// A wait until at most so many accesses remain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    pub memory: Option<usize>,
    pub shared: Option<usize>,
}

/// An instruction of a loop.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub unit: Unit,
    /// Clocks for which it occupies its unit.
    pub clocks: u64,
    /// Clocks after which another instruction than an accumulation can use a matrix result.
    pub latency: u64,
    pub wait: Wait,
    pub barrier: bool,
    /// A new priority of the wave.
    pub priority: Option<u32>,
    /// Bytes that a wave loads from and stores to global memory.
    pub loaded: u64,
    pub stored: u64,
    /// Clocks of shared memory's writes for a load that goes there directly.
    pub direct: u64,
    /// Floating-point operations of a wave.
    pub flops: u64,
    /// Vector registers: written, and read. Accumulation registers follow at [`ACCUMULATION`].
    pub writes: Vec<u16>,
    pub reads: Vec<u16>,
    /// Those that a matrix instruction adds to.
    pub accumulates: Vec<u16>,
}

/// The index of the first accumulation register.
pub const ACCUMULATION: u16 = 512;

/// Instructions that take four passes: products of 32-bit integers and functions such as a reciprocal (CDNA3, as GCN3).
const QUARTER_RATE: [&str; 10] = [
    "v_mul_lo_u32",
    "v_mul_hi_u32",
    "v_mul_hi_i32",
    "v_mad_u64_u32",
    "v_mad_i64_i32",
    "v_rcp_",
    "v_rsq_",
    "v_sqrt_",
    "v_exp_",
    "v_log_",
];

impl Step {
    /// Describes an instruction. `shared` are the clocks of an access to shared memory that an interpreter counted.
    pub fn of(
        device: &Device,
        instruction: &Instruction,
        scheduled: &Scheduled,
        shared: Option<u64>,
    ) -> Self {
        let name = instruction.mnemonic.as_str();
        let unit = unit_of(name);
        let bytes = u64::from(access_bytes(name)) * u64::from(LANES);
        let operands = registers(&instruction.operands);
        let stores = name.contains("_store") || name.starts_with("ds_write");
        let direct = instruction.has("lds") || name.contains("_load_lds_");
        let first_written = !stores && !direct && name.starts_with(['v', 'g', 'b', 'd']);
        let written = usize::from(first_written && !operands.is_empty());
        let clocks = match unit {
            Unit::Matrix => scheduled.passes("HWXDL").max(1) * PASS,
            Unit::Vector if QUARTER_RATE.iter().any(|slow| name.starts_with(slow)) => 4 * PASS,
            Unit::Memory => ((bytes as f64 / device.vector_memory).ceil() as u64).max(PASS),
            Unit::Shared => shared.unwrap_or_else(|| free_of_conflicts(device, name)),
            Unit::Internal => idle(instruction),
            Unit::Branch => BRANCH,
            Unit::Scalar | Unit::Vector => PASS,
        };
        let global = unit == Unit::Memory;
        Self {
            unit,
            clocks,
            latency: scheduled.latency * PASS,
            wait: wait(instruction),
            barrier: name == "s_barrier",
            priority: (name == "s_setprio").then(|| instruction.operands.parse().unwrap_or(0)),
            loaded: if global && !stores { bytes } else { 0 },
            stored: if global && stores { bytes } else { 0 },
            direct: if direct {
                (bytes as f64 / device.shared_write).ceil() as u64
            } else {
                0
            },
            flops: matrix_flops(name),
            accumulates: if unit == Unit::Matrix {
                operands.get(3).cloned().unwrap_or_default()
            } else {
                Vec::new()
            },
            writes: operands[..written].concat(),
            reads: match unit {
                Unit::Matrix => operands.get(1..3).unwrap_or_default().concat(),
                _ => operands[written..].concat(),
            },
        }
    }
}

/// Clocks until the instruction behind a taken branch can issue (GCN3's 16; an assumption for CDNA).
const BRANCH: u64 = 16;

fn unit_of(name: &str) -> Unit {
    const INTERNAL: [&str; 7] = [
        "s_nop",
        "s_waitcnt",
        "s_barrier",
        "s_setprio",
        "s_sleep",
        "s_sethalt",
        "s_endpgm",
    ];
    if INTERNAL.contains(&name) {
        Unit::Internal
    } else if name.starts_with("s_cbranch") || name == "s_branch" {
        Unit::Branch
    } else if name.starts_with("s_") {
        Unit::Scalar
    } else if name.starts_with("v_mfma") || name.starts_with("v_smfmac") {
        Unit::Matrix
    } else if name.starts_with("ds_") {
        Unit::Shared
    } else if name.starts_with("v_") {
        Unit::Vector
    } else {
        Unit::Memory
    }
}

/// Returns the clocks for which a wave only waits: `s_nop 4` takes five issues.
fn idle(instruction: &Instruction) -> u64 {
    if instruction.mnemonic == "s_nop" {
        let more: u64 = instruction.operands.parse().unwrap_or(0);
        (more + 1) * PASS
    } else {
        PASS
    }
}

/// Returns the bytes that a lane moves.
fn access_bytes(name: &str) -> u32 {
    let sizes = [
        ("dwordx4", 16),
        ("dwordx3", 12),
        ("dwordx2", 8),
        ("dword", 4),
        ("short", 2),
        ("byte", 1),
        ("_x2", 8),
    ];
    if name.starts_with("ds_") {
        let double = if name.contains("read2") || name.contains("write2") {
            2
        } else {
            1
        };
        let width = name.split_once("_b").map_or("", |(_, bits)| bits);
        let bits: u32 = width.split('_').next().unwrap_or("").parse().unwrap_or(32);
        return bits / 8 * double;
    }
    let known = sizes.iter().find(|(size, _)| name.contains(size));
    known.map_or(4, |(_, bytes)| *bytes)
}

/// Returns the clocks of an access to shared memory without conflicts: its bytes, at most at the bandwidth.
fn free_of_conflicts(device: &Device, name: &str) -> u64 {
    let bytes = f64::from(access_bytes(name) * LANES);
    let write = name.starts_with("ds_write");
    // On CDNA4, only reads of 8 and 16 bytes use all banks (FP8 blog, and HipKittens' experiments).
    let wide = access_bytes(name) >= 8 && !write;
    let rate = if wide {
        device.shared_read
    } else {
        device.shared_write
    };
    (bytes / rate).ceil() as u64
}

/// Returns the operations of a matrix instruction such as `v_mfma_f32_16x16x16_bf16` or `v_mfma_f32_4x4x4_16b_f16`.
fn matrix_flops(name: &str) -> u64 {
    let Some(rest) = name
        .strip_prefix("v_mfma_f32_")
        .or_else(|| name.strip_prefix("v_mfma_i32_"))
    else {
        return 0;
    };
    let mut parts = rest.split('_');
    let sides = parts.next().unwrap_or("").split('x').map(|side| {
        let digits: String = side.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u64>().unwrap_or(0)
    });
    let blocks = parts
        .next()
        .and_then(|part| part.strip_suffix('b')?.parse::<u64>().ok())
        .unwrap_or(1);
    2 * blocks * sides.product::<u64>()
}

fn wait(instruction: &Instruction) -> Wait {
    if instruction.mnemonic != "s_waitcnt" {
        return Wait::default();
    }
    let left = |counter: &str| {
        let (_, rest) = instruction.operands.split_once(counter)?;
        rest.split_once(')')?.0.parse().ok()
    };
    Wait {
        memory: left("vmcnt("),
        shared: left("lgkmcnt("),
    }
}

/// Returns the vector registers of each operand; those of other operands are none.
fn registers(operands: &str) -> Vec<Vec<u16>> {
    let of = |operand: &str| -> Vec<u16> {
        let word = operand.trim().split(' ').next().unwrap_or("");
        let (rest, base) = match (word.strip_prefix('v'), word.strip_prefix('a')) {
            (Some(rest), _) => (rest, 0),
            (_, Some(rest)) => (rest, ACCUMULATION),
            _ => return Vec::new(),
        };
        let parse = |text: &str| text.parse::<u16>().ok();
        let range = match rest
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            Some(range) => range
                .split_once(':')
                .and_then(|(first, last)| Some((parse(first)?, parse(last)?))),
            None => parse(rest).map(|number| (number, number)),
        };
        range.map_or_else(Vec::new, |(first, last)| {
            (first..=last).map(|number| number + base).collect()
        })
    };
    operands.split(", ").map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(mnemonic: &str, operands: &str) -> Step {
        let instruction = Instruction {
            address: 0,
            mnemonic: mnemonic.to_owned(),
            operands: operands.to_owned(),
            target: None,
        };
        let passes = if mnemonic.starts_with("v_mfma") { 4 } else { 0 };
        let scheduled = Scheduled {
            latency: 8,
            resources: [("HWXDL".to_owned(), passes)].into(),
        };
        let device = Device::of("gfx950").unwrap();
        Step::of(device, &instruction, &scheduled, None)
    }

    #[test]
    fn a_matrix_instruction_has_operations_passes_and_registers() {
        let step = step(
            "v_mfma_f32_16x16x32_bf16",
            "v[50:53], v[136:139], a[4:7], v[50:53]",
        );
        assert_eq!(
            (step.unit, step.clocks, step.latency),
            (Unit::Matrix, 16, 32)
        );
        assert_eq!(step.flops, 2 * 16 * 16 * 32);
        assert_eq!(step.writes, [50, 51, 52, 53]);
        assert_eq!(step.accumulates, step.writes);
        assert_eq!(step.reads, [136, 137, 138, 139, 516, 517, 518, 519]);
        assert_eq!(matrix_flops("v_mfma_f32_4x4x4_16b_f16"), 2 * 64 * 16);
        assert_eq!(matrix_flops("v_mfma_f32_32x32x8f16"), 2 * 32 * 32 * 8);
    }

    #[test]
    fn accesses_have_bytes_and_clocks() {
        let load = step("global_load_dwordx4", "v[66:69], v[72:73], off");
        assert_eq!(
            (load.unit, load.loaded, load.clocks),
            (Unit::Memory, 1024, 16)
        );
        assert_eq!(load.reads, [72, 73]);
        let store = step("global_store_dwordx4", "v[72:73], v[66:69], off");
        assert_eq!((store.stored, store.loaded), (1024, 0));
        let direct = step("buffer_load_dwordx4", "v1, s[0:3], 0 offen lds");
        assert_eq!((direct.loaded, direct.direct), (1024, 8));
        let direct = step("global_load_lds_dwordx4", "v30, s[12:13]");
        assert_eq!((direct.loaded, direct.direct), (1024, 8));
        assert_eq!(direct.reads, [30]);
        // CDNA4 reads 256 bytes in a clock and writes 128.
        assert_eq!(step("ds_read_b128", "v[2:5], v1").clocks, 4);
        assert_eq!(step("ds_read2_b64", "v[2:5], v1").clocks, 4);
        assert_eq!(step("ds_read_b64_tr_b16", "v[2:3], v1").clocks, 2);
        assert_eq!(step("ds_write_b128", "v1, v[2:5]").clocks, 8);
        assert_eq!(step("ds_read_b32", "v2, v1").clocks, 2);
    }

    #[test]
    fn waits_name_their_counters() {
        let both = step("s_waitcnt", "vmcnt(3) lgkmcnt(0)");
        assert_eq!(
            both.wait,
            Wait {
                memory: Some(3),
                shared: Some(0)
            }
        );
        assert_eq!(step("s_nop", "4").clocks, 20);
        assert_eq!(step("s_setprio", "1").priority, Some(1));
        assert!(step("s_barrier", "").barrier);
    }
}
