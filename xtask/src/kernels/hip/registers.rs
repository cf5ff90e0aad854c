//! The registers that an instruction reads and writes, from its text.

use super::isa::{Access, Instruction};

const VECTORS: usize = 256;
/// Of scalar registers: 0 to 105, then vcc, m0 and exec at their numbers in the encoding.
const SCALARS: usize = 2 * VECTORS;
const VCC: usize = SCALARS + 106;
const M0: usize = SCALARS + 124;
const EXEC: usize = SCALARS + 126;
const SCC: usize = SCALARS + 128;
const WORDS: usize = (SCC + 1).div_ceil(64);

/// A set of 32-bit registers: vector and accumulation registers, scalar ones, and the condition bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers([u64; WORDS]);

impl Registers {
    pub const NONE: Self = Self([0; WORDS]);

    fn range(first: usize, count: usize) -> Self {
        let mut set = Self::NONE;
        for register in first..(first + count).min(SCC + 1) {
            set.0[register / 64] |= 1 << (register % 64);
        }
        set
    }

    pub fn exec() -> Self {
        Self::range(EXEC, 2)
    }

    pub fn vcc() -> Self {
        Self::range(VCC, 2)
    }

    pub fn scc() -> Self {
        Self::range(SCC, 1)
    }

    /// Parses an operand such as `v2`, `s[4:5]`, `-v3`, `|v3|` or `vcc`. Others, such as numbers, are no registers.
    pub fn parse(operand: &str) -> Self {
        let operand = operand.trim_matches(['-', '|', ' ']);
        let operand = operand
            .strip_prefix("sext(")
            .or_else(|| operand.strip_prefix("abs("))
            .map_or(operand, |inner| inner.trim_end_matches(')'));
        match operand {
            "vcc" => return Self::vcc(),
            "vcc_lo" => return Self::range(VCC, 1),
            "vcc_hi" => return Self::range(VCC + 1, 1),
            "exec" => return Self::exec(),
            "exec_lo" => return Self::range(EXEC, 1),
            "exec_hi" => return Self::range(EXEC + 1, 1),
            "scc" => return Self::scc(),
            "m0" => return Self::range(M0, 1),
            _ => {}
        }
        let (base, rest) = match operand.split_at_checked(1) {
            Some(("v", rest)) => (0, rest),
            Some(("a", rest)) => (VECTORS, rest),
            Some(("s", rest)) => (SCALARS, rest),
            _ => return Self::NONE,
        };
        if let Ok(number) = rest.parse::<usize>() {
            return Self::range(base + number, 1);
        }
        let ends = rest
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']')?.split_once(':'));
        match ends.map(|(first, last)| (first.parse::<usize>(), last.parse::<usize>())) {
            Some((Ok(first), Ok(last))) if last >= first => {
                Self::range(base + first, last - first + 1)
            }
            _ => Self::NONE,
        }
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::NONE
    }

    pub fn with(mut self, other: Self) -> Self {
        for (word, more) in self.0.iter_mut().zip(&other.0) {
            *word |= more;
        }
        self
    }

    pub fn without(mut self, other: Self) -> Self {
        for (word, less) in self.0.iter_mut().zip(&other.0) {
            *word &= !less;
        }
        self
    }

    pub fn meets(&self, other: Self) -> bool {
        self.0
            .iter()
            .zip(&other.0)
            .any(|(word, more)| word & more != 0)
    }

    pub fn contains(&self, other: Self) -> bool {
        other.without(*self).is_empty()
    }
}

/// What an instruction reads and writes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Effect {
    pub reads: Registers,
    pub writes: Registers,
    /// Whether the registers that it writes may keep bits that they had.
    pub keeps: bool,
}

/// Returns the operands, without modifiers.
pub fn operands(instruction: &Instruction) -> Vec<&str> {
    instruction
        .operands
        .split(',')
        .map(|operand| operand.trim())
        // A modifier follows the last operand behind a space.
        .map(|operand| operand.split(' ').next().unwrap_or(operand))
        .collect()
}

/// Scalar instructions that leave the condition bit as it is.
const NO_CONDITION: [&str; 15] = [
    "s_mov",
    "s_cmov",
    "s_cselect",
    "s_mul",
    "s_load",
    "s_mem",
    "s_pack",
    "s_sext",
    "s_bfm",
    "s_brev",
    "s_ff1",
    "s_getreg",
    "s_getpc",
    "s_bitset",
    "s_setreg",
];
/// Instructions without a destination among their operands.
const NO_DESTINATION: [&str; 14] = [
    "s_cmp",
    "s_bitcmp",
    "s_cbranch",
    "s_branch",
    "s_waitcnt",
    "s_nop",
    "s_sleep",
    "s_barrier",
    "s_endpgm",
    "s_setprio",
    "ds_write",
    "ds_add_u32",
    "buffer_",
    "s_setpc",
];

/// Returns what an instruction does to registers. A mask that is joined to `exec` is the one from before, of which `exec`
/// is a part.
pub fn effect(instruction: &Instruction) -> Effect {
    let mnemonic = instruction.mnemonic.as_str();
    let operands = operands(instruction);
    let all = |from: usize| {
        operands
            .iter()
            .skip(from)
            .fold(Registers::NONE, |set, operand| {
                set.with(Registers::parse(operand))
            })
    };
    let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| mnemonic.starts_with(prefix));
    let first = Registers::parse(operands.first().unwrap_or(&""));
    if mnemonic == "s_or_b64" && operands[..2.min(operands.len())] == ["exec", "exec"] {
        return Effect {
            reads: all(2),
            writes: Registers::exec().with(Registers::scc()),
            keeps: false,
        };
    }
    if mnemonic.contains("saveexec") {
        return Effect {
            reads: all(1).with(Registers::exec()),
            writes: first.with(Registers::exec()).with(Registers::scc()),
            keeps: false,
        };
    }
    let mut effect = Effect::default();
    match instruction.access() {
        Some(Access::Load) => {
            (effect.reads, effect.writes) = (all(1), first);
            effect.keeps = mnemonic.contains("_d16");
            return effect;
        }
        Some(Access::Store) => {
            effect.reads = all(0);
            return effect;
        }
        Some(Access::Atomic) => {
            let returns = returns(instruction);
            effect.reads = all(usize::from(returns));
            effect.writes = if returns { first } else { Registers::NONE };
            return effect;
        }
        None => {}
    }
    if begins(&NO_DESTINATION) {
        effect.reads = all(0);
        if begins(&["s_cmp", "s_bitcmp"]) {
            effect.writes = Registers::scc();
        }
        effect.reads = effect.reads.with(condition(mnemonic));
        return effect;
    }
    // A carry or a scaled divisor's flag is a second destination.
    let carries = begins(&["v_add", "v_sub"]) && mnemonic.contains("_co_")
        || begins(&["v_div_scale", "v_mad_u64_u32", "v_mad_i64_i32"]);
    let destinations = if carries || mnemonic.starts_with("v_swap") {
        2
    } else {
        1
    };
    effect.reads = all(destinations);
    effect.writes = operands
        .iter()
        .take(destinations)
        .fold(Registers::NONE, |set, operand| {
            set.with(Registers::parse(operand))
        });
    if mnemonic.starts_with("v_swap") {
        effect.reads = effect.writes;
    }
    if mnemonic.starts_with("v_cmpx") {
        effect.reads = all(0);
        effect.writes = Registers::exec();
    }
    if begins(&["v_fmac", "v_mac", "v_pk_fmac", "v_dot"]) {
        effect.reads = effect.reads.with(first);
    }
    if mnemonic.starts_with("v_div_fmas") {
        effect.reads = effect.reads.with(Registers::vcc());
    }
    effect.keeps = mnemonic.starts_with("v_writelane")
        || instruction.operands.contains("UNUSED_PRESERVE")
        || begins(&["s_cmov", "s_bitset", "ds_read_u8_d16", "ds_read_u16_d16"]);
    if begins(&["s_cselect", "s_cmov", "s_addc", "s_subb"]) {
        effect.reads = effect.reads.with(Registers::scc());
    }
    if mnemonic.starts_with("s_") && !begins(&NO_CONDITION) {
        effect.writes = effect.writes.with(Registers::scc());
    }
    if mnemonic.starts_with("v_") {
        effect.reads = effect.reads.with(Registers::exec());
    }
    effect
}

/// Returns whether an atomic returns the previous value.
pub fn returns(instruction: &Instruction) -> bool {
    // Its destination is then the first of at least four operands.
    operands(instruction).len() > 3
}

/// Returns the register that decides a conditional branch.
pub fn condition(mnemonic: &str) -> Registers {
    match mnemonic.strip_prefix("s_cbranch_") {
        Some("scc0" | "scc1") => Registers::scc(),
        Some("vccz" | "vccnz") => Registers::vcc(),
        Some("execz" | "execnz") => Registers::exec(),
        _ => Registers::NONE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effect_of(mnemonic: &str, operands: &str) -> Effect {
        effect(&Instruction {
            address: 0,
            mnemonic: mnemonic.to_owned(),
            operands: operands.to_owned(),
            target: None,
        })
    }

    fn set(operands: &[&str]) -> Registers {
        operands.iter().fold(Registers::NONE, |set, each| {
            set.with(Registers::parse(each))
        })
    }

    #[test]
    fn knows_what_each_kind_of_instruction_reads_and_writes() {
        for (mnemonic, operands, reads, writes) in [
            (
                "global_load_dwordx2",
                "v[2:3], v[0:1], off offset:8 sc0 sc1",
                &["v[0:1]"][..],
                &["v2", "v3"][..],
            ),
            (
                "global_store_dword",
                "v0, v9, s[4:5] sc0 sc1",
                &["v0", "v9", "s4", "s5"],
                &[],
            ),
            (
                "global_atomic_add",
                "v1, v0, v2, s[4:5] sc0 sc1",
                &["v0", "v2", "s[4:5]"],
                &["v1"],
            ),
            (
                "global_atomic_add",
                "v0, v2, s[4:5] sc1",
                &["v0", "v2", "s[4:5]"],
                &[],
            ),
            (
                "v_cmp_lt_i32_e64",
                "s[24:25], -1, v2",
                &["v2", "exec"],
                &["s[24:25]"],
            ),
            (
                "v_add_co_u32_e32",
                "v2, vcc, v3, v4",
                &["v3", "v4", "exec"],
                &["v2", "vcc"],
            ),
            (
                "v_cndmask_b32_e32",
                "v0, v1, v2, vcc",
                &["v1", "v2", "vcc", "exec"],
                &["v0"],
            ),
            ("v_readfirstlane_b32", "s4, v1", &["v1", "exec"], &["s4"]),
            ("s_cmp_eq_u32", "s4, 0", &["s4"], &["scc"]),
            ("s_cselect_b64", "s[2:3], -1, 0", &["scc"], &["s[2:3]"]),
            (
                "s_and_b64",
                "vcc, exec, s[2:3]",
                &["exec", "s[2:3]"],
                &["vcc", "scc"],
            ),
            (
                "s_and_saveexec_b64",
                "s[2:3], vcc",
                &["vcc", "exec"],
                &["s[2:3]", "exec", "scc"],
            ),
            (
                "s_or_b64",
                "exec, exec, s[2:3]",
                &["s[2:3]"],
                &["exec", "scc"],
            ),
            ("s_cbranch_vccz", "12", &["vcc"], &[]),
        ] {
            let found = effect_of(mnemonic, operands);
            assert_eq!(found.reads, set(reads), "{mnemonic} {operands}: reads");
            assert_eq!(found.writes, set(writes), "{mnemonic} {operands}: writes");
        }
    }
}
