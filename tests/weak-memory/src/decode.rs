//! Decodes an instruction from the disassembler's text.
//!
//! Only the instructions that symmem's kernels compile to are supported. [`crate::operation`] names the sources.

use crate::operation::{
    Address, Condition, EXEC, M0, MatrixElement, Modifiers, Operand, Operation, Update, VCC,
};
use crate::scalar;
use crate::vector;

/// Decodes `mnemonic operand, operand modifier`; returns `None` if the instruction is not modeled.
pub fn decode(text: &str, target: Option<usize>) -> Option<Operation> {
    let (mnemonic, rest) = text.split_once(' ').unwrap_or((text, ""));
    let (operands, modifiers) = split(rest);
    if let Some(operation) = control(mnemonic, rest, target) {
        return Some(operation);
    }
    if mnemonic == "ds_bpermute_b32" {
        let vector = |index: usize| register(operands.get(index)?, 'v');
        return modifiers.is_empty().then_some(Operation::Permute {
            destination: vector(0)?,
            address: vector(1)?,
            source: vector(2)?,
        });
    }
    if mnemonic.starts_with("global_") || mnemonic.starts_with("ds_") {
        return access(mnemonic, &operands, &modifiers);
    }
    let known = |operands: Vec<Operand>| {
        if mnemonic.starts_with("s_") {
            scalar_operation(mnemonic, &operands)
        } else {
            vector_operation(mnemonic, &operands, &modifiers)
        }
    };
    // `0.5` is a constant in the instruction's own format, which is f32 also where words are only moved.
    let is_word = mnemonic.contains("_f32") || mnemonic.contains("_b32");
    let number = |text: &str| -> Option<Operand> {
        let number: f32 = text.parse().ok().filter(|_| is_word)?;
        Some(Operand::Constant(number.to_bits().into()))
    };
    let operands = operands
        .iter()
        .map(|each| operand(each).or_else(|| number(each)));
    let operands: Vec<Option<Operand>> = operands.collect();
    let first = operands.first().copied().flatten();
    let operands: Option<Vec<Operand>> = operands.into_iter().collect();
    operands
        .and_then(known)
        .or(is_floating(mnemonic).then_some(Operation::Unmodeled {
            destination: first,
            wide: mnemonic.starts_with("v_pk_") && mnemonic.ends_with("_f32"),
        }))
}

/// Whether an instruction computes in floating point. Kernels contain many of these on paths that no test runs.
fn is_floating(mnemonic: &str) -> bool {
    mnemonic.starts_with("v_") && (mnemonic.contains("_f32") || mnemonic.contains("_f16"))
}

/// Splits an instruction into its operands and the modifiers behind the last one.
fn split(rest: &str) -> (Vec<&str>, Vec<&str>) {
    let mut modifiers = Vec::new();
    let mut operands = Vec::new();
    for part in rest.split(", ") {
        let mut words = part.split(' ').filter(|word| !word.is_empty());
        operands.extend(words.next());
        modifiers.extend(words);
    }
    (operands, modifiers)
}

fn operand(text: &str) -> Option<Operand> {
    match text {
        "vcc" => return Some(Operand::Scalar(VCC)),
        "exec" => return Some(Operand::Scalar(EXEC)),
        "m0" => return Some(Operand::Scalar(M0)),
        _ => {}
    }
    if let Some(register) = register(text, 's') {
        return Some(Operand::Scalar(register));
    }
    if let Some(register) = register(text, 'v') {
        return Some(Operand::Vector(register));
    }
    if let Some(inner) = text
        .strip_prefix('|')
        .and_then(|rest| rest.strip_suffix('|'))
    {
        return register(inner, 'v').map(Operand::Magnitude);
    }
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let value = match digits.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok()?,
        None => digits.parse().ok()?,
    };
    Some(Operand::Constant(if negative { -value } else { value }))
}

/// Returns the first register of `s4` or `s[4:5]`.
fn register(text: &str, kind: char) -> Option<usize> {
    let rest = text.strip_prefix(kind)?;
    let number = match rest.strip_prefix('[') {
        Some(range) => range.split_once(':')?.0,
        None => rest,
    };
    number.parse().ok()
}

fn scalar_register(text: &str) -> Option<usize> {
    match operand(text)? {
        Operand::Scalar(register) => Some(register),
        _ => None,
    }
}

fn control(mnemonic: &str, rest: &str, target: Option<usize>) -> Option<Operation> {
    let has = |word: &str| rest.split(' ').any(|each| each == word);
    let branch = |condition| {
        Some(Operation::Branch {
            condition,
            target: target?,
        })
    };
    match mnemonic {
        "s_nop" | "s_setprio" => Some(Operation::Nothing),
        "s_sleep" => Some(Operation::Sleep),
        "s_endpgm" => Some(Operation::End),
        "s_barrier" => Some(Operation::Barrier),
        "s_branch" => branch(Condition::Always),
        "s_cbranch_scc0" => branch(Condition::ScalarCondition(false)),
        "s_cbranch_scc1" => branch(Condition::ScalarCondition(true)),
        "s_cbranch_execz" => branch(Condition::ExecZero(true)),
        "s_cbranch_execnz" => branch(Condition::ExecZero(false)),
        "s_cbranch_vccz" => branch(Condition::VccZero(true)),
        "s_cbranch_vccnz" => branch(Condition::VccZero(false)),
        "s_waitcnt" => wait(rest),
        "s_memrealtime" => Some(Operation::Clock {
            destination: scalar_register(rest)?,
        }),
        // gfx90a has no scope bits: a write-back is always for the system.
        "buffer_wbl2" => Some(Operation::WriteBack {
            system: rest.is_empty() || (has("sc0") && has("sc1")),
        }),
        "buffer_inv" => Some(Operation::Invalidate {
            level1: true,
            level2: has("sc1"),
        }),
        "buffer_wbinvl1_vol" => Some(Operation::Invalidate {
            level1: true,
            level2: false,
        }),
        "buffer_invl2" => Some(Operation::Invalidate {
            level1: false,
            level2: true,
        }),
        _ => None,
    }
}

fn wait(rest: &str) -> Option<Operation> {
    let (mut vector, mut scalar) = (None, None);
    for word in rest.split(' ') {
        let (counter, left) = word.strip_suffix(')')?.split_once('(')?;
        let left = Some(left.parse().ok()?);
        match counter {
            "vmcnt" => vector = left,
            "lgkmcnt" => scalar = left,
            // A wait for nothing, which clang writes where it has found a wait to be without use.
            "expcnt" if left == Some(7) => {}
            _ => return None,
        }
    }
    Some(Operation::Wait { vector, scalar })
}

fn access(mnemonic: &str, operands: &[&str], words: &[&str]) -> Option<Operation> {
    let has = |word: &str| words.contains(&word);
    let known = |word: &&str| {
        ["sc0", "sc1", "glc", "slc", "nt"].contains(word) || word.starts_with("offset")
    };
    if !words.iter().all(known) {
        return None;
    }
    let number = |prefix| match words.iter().find_map(|word| word.strip_prefix(prefix)) {
        Some(number) => number.parse().ok(),
        None => Some(0),
    };
    let offset = number("offset:")?;
    let modifiers = Modifiers {
        offset,
        sc0: has("sc0"),
        sc1: has("sc1"),
        glc: has("glc"),
        slc: has("slc"),
    };
    let vector = |index: usize| register(operands.get(index)?, 'v');
    // The base follows the data, if the instruction has data.
    let address = |index: usize, base: usize| {
        Some(Address {
            vector: vector(index)?,
            base: match *operands.get(base)? {
                "off" => None,
                text => Some(scalar_register(text)?),
            },
        })
    };
    if let Some(kind) = mnemonic.strip_prefix("global_load_lds_") {
        return Some(Operation::LoadToShared {
            bytes: size(kind)?.0,
            address: address(0, 1)?,
            modifiers,
        });
    }
    if let Some(kind) = mnemonic.strip_prefix("global_load_") {
        let (bytes, signed) = size(kind)?;
        return Some(Operation::Load {
            destination: vector(0)?,
            bytes,
            signed,
            address: address(1, 2)?,
            modifiers,
        });
    }
    if let Some(kind) = mnemonic.strip_prefix("global_store_") {
        let (kind, skipped) = match kind.strip_suffix("_d16_hi") {
            Some(kind) => (kind, 2),
            None => (kind, 0),
        };
        return Some(Operation::Store {
            source: vector(1)?,
            skipped,
            bytes: size(kind)?.0,
            address: address(0, 2)?,
            modifiers,
        });
    }
    if let Some(kind) = mnemonic.strip_prefix("global_atomic_") {
        let (kind, bytes) = match kind.strip_suffix("_x2") {
            Some(kind) => (kind, 8),
            None => (kind, 4),
        };
        let update = match kind {
            "add" => Update::Add,
            "swap" => Update::Swap,
            "cmpswap" => Update::CompareSwap,
            _ => return None,
        };
        let returns = modifiers.sc0 || modifiers.glc;
        let first = usize::from(returns);
        return Some(Operation::Atomic {
            update,
            destination: if returns { Some(vector(0)?) } else { None },
            source: vector(first + 1)?,
            bytes,
            address: address(first, first + 2)?,
            modifiers,
        });
    }
    if mnemonic == "ds_read_b64_tr_b16" {
        return Some(Operation::SharedLoadTransposed {
            destination: vector(0)?,
            address: vector(1)?,
            offset: usize::try_from(offset).ok()?,
        });
    }
    if let "ds_write_b16" | "ds_write_b16_d16_hi" = mnemonic {
        return Some(Operation::SharedStoreHalf {
            source: vector(1)?,
            high: mnemonic.ends_with("_hi"),
            address: vector(0)?,
            offset: usize::try_from(offset).ok()?,
        });
    }
    // One offset, or two in units of the access size.
    let (kind, bits) = mnemonic.split_once("_b")?;
    let bytes = bits.parse::<usize>().ok()? / 8;
    let place = |number: i64, scale| Some(usize::try_from(number).ok()? * scale);
    let places = match kind {
        "ds_read" | "ds_write" => vec![place(offset, 1)?],
        // In units of 64 elements.
        "ds_write2st64" => vec![
            place(number("offset0:")?, 64 * bytes)?,
            place(number("offset1:")?, 64 * bytes)?,
        ],
        "ds_read2" | "ds_write2" => vec![
            place(number("offset0:")?, bytes)?,
            place(number("offset1:")?, bytes)?,
        ],
        _ => return None,
    };
    let words_at = |place: usize| (0..bytes / 4).map(move |word| place + 4 * word);
    if kind.starts_with("ds_read") {
        return Some(Operation::SharedLoad {
            destination: vector(0)?,
            address: vector(1)?,
            offsets: places.into_iter().flat_map(words_at).collect(),
        });
    }
    let mut words = Vec::new();
    for (number, place) in places.into_iter().enumerate() {
        words.extend((vector(1 + number)?..).zip(words_at(place)));
    }
    Some(Operation::SharedStore {
        address: vector(0)?,
        words,
    })
}

fn size(kind: &str) -> Option<(usize, bool)> {
    Some(match kind {
        "ubyte" | "byte" => (1, false),
        "ushort" | "short" => (2, false),
        "sbyte" => (1, true),
        "sshort" => (2, true),
        "dword" => (4, false),
        "dwordx2" => (8, false),
        "dwordx3" => (12, false),
        "dwordx4" => (16, false),
        _ => return None,
    })
}

fn scalar_operation(mnemonic: &str, operands: &[Operand]) -> Option<Operation> {
    if let Some(kind) = mnemonic.strip_prefix("s_load_") {
        let words = match kind {
            "dword" => 1,
            _ => kind.strip_prefix("dwordx")?.parse().ok()?,
        };
        let [
            Operand::Scalar(destination),
            Operand::Scalar(base),
            Operand::Constant(offset),
        ] = *operands
        else {
            return None;
        };
        return Some(Operation::ScalarLoad {
            destination,
            words,
            base,
            offset,
        });
    }
    let function = scalar::function(mnemonic)?;
    let (destination, sources) = if function.has_destination() {
        let (Operand::Scalar(destination), sources) = (*operands.first()?, &operands[1..]) else {
            return None;
        };
        // The forms with a 16-bit constant have their destination as the first source.
        let mut sources = sources.to_vec();
        if function.in_place() {
            sources.insert(0, Operand::Scalar(destination));
        }
        (Some(destination), sources)
    } else {
        (None, operands.to_vec())
    };
    Some(Operation::Scalar {
        function,
        destination,
        sources,
    })
}

fn vector_operation(mnemonic: &str, operands: &[Operand], words: &[&str]) -> Option<Operation> {
    if mnemonic == "v_readfirstlane_b32" {
        let [Operand::Scalar(destination), Operand::Vector(source)] = *operands else {
            return None;
        };
        return Some(Operation::ReadLane {
            destination,
            source,
            lane: None,
        });
    }
    if mnemonic == "v_readlane_b32" {
        let [
            Operand::Scalar(destination),
            Operand::Vector(source),
            Operand::Constant(lane),
        ] = *operands
        else {
            return None;
        };
        return Some(Operation::ReadLane {
            destination,
            source,
            lane: Some(lane as usize),
        });
    }
    if let Some(rest) = mnemonic.strip_prefix("v_cmp_") {
        let rest = rest.strip_suffix("_e32").or(rest.strip_suffix("_e64"))?;
        let (condition, kind) = rest.split_once('_')?;
        let [Operand::Scalar(destination), first, second] = *operands else {
            return None;
        };
        let function = match kind {
            "f32" => vector::float_comparison(condition)?,
            _ => vector::comparison(condition, kind.starts_with('i'))?,
        };
        return Some(Operation::Compare {
            function,
            wide: match kind {
                "u32" | "i32" | "f32" => false,
                "u64" | "i64" => true,
                _ => return None,
            },
            signed: kind.starts_with('i'),
            destination,
            sources: [first, second],
        });
    }
    use MatrixElement as E;
    let matrix = match mnemonic {
        "v_mfma_f32_16x16x16_f16" | "v_mfma_f32_16x16x16f16" => Some((E::F16, 4)),
        "v_mfma_f32_16x16x32_f16" => Some((E::F16, 8)),
        "v_mfma_f32_16x16x16_bf16" | "v_mfma_f32_16x16x16bf16_1k" => Some((E::Bf16, 4)),
        "v_mfma_f32_16x16x32_bf16" => Some((E::Bf16, 8)),
        "v_mfma_f32_16x16x32_fp8_fp8" => Some((E::F8, 8)),
        _ => None,
    };
    if let Some((element, elements)) = matrix {
        let [
            Operand::Vector(destination),
            Operand::Vector(a),
            Operand::Vector(b),
            Operand::Vector(c),
        ] = *operands
        else {
            return None;
        };
        return Some(Operation::MatrixMultiply {
            element,
            elements,
            destination,
            a,
            b,
            c,
        });
    }
    let base = mnemonic
        .strip_suffix("_e32")
        .or(mnemonic.strip_suffix("_e64"))
        .or(mnemonic.strip_suffix("_sdwa"))
        .unwrap_or(mnemonic);
    let function = vector::function(base, words)?;
    let Operand::Vector(destination) = *operands.first()? else {
        return None;
    };
    let mut sources = operands[1..].to_vec();
    let mut carry_out = None;
    if function.carries_out() {
        let Operand::Scalar(register) = sources.remove(0) else {
            return None;
        };
        carry_out = Some(register);
    }
    let (mut parts, mut into) = ([None; 2], None);
    for word in words {
        let part = |value: &str| -> Option<(u32, u64)> {
            let (kind, number) = value.split_once('_')?;
            let number: u32 = number.parse().ok()?;
            Some(match kind {
                "BYTE" => (8 * number, 0xff),
                "WORD" => (16 * number, 0xffff),
                _ => return None,
            })
        };
        match word.split_once(':')? {
            ("src0_sel", "DWORD") | ("src1_sel", "DWORD") | ("dst_sel", "DWORD") => {}
            ("dst_sel", value) => into = Some(part(value)?),
            ("dst_unused", "UNUSED_PAD") => {}
            ("src0_sel", value) => parts[0] = Some(part(value)?),
            ("src1_sel", value) => parts[1] = Some(part(value)?),
            ("bitop3", _) if base == "v_bitop3_b32" => {}
            ("op_sel", _) if base == "v_pk_mov_b32" => {}
            ("op_sel_hi", _) if base == "v_pk_mul_f32" => {}
            _ => return None,
        }
    }
    (sources.len() == function.sources()).then_some(Operation::Vector {
        function,
        destination,
        carry_out,
        sources,
        parts,
        into,
    })
}
