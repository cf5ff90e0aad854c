//! Scalar arithmetic on 32 or 64 bits, and the condition bit that it sets.

/// A scalar instruction's function.
#[derive(Clone, Copy, Debug)]
pub struct ScalarFunction {
    run: Run,
    /// Bits of each source and of the destination.
    bits: [u32; 3],
    form: Form,
}

/// Takes two sources and the condition; returns the result and the new condition (`None`: unchanged).
type Run = fn(u64, u64, bool) -> (u64, Option<bool>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Plain,
    /// Sets the condition only.
    Compare,
    /// The destination is also the first source; the constant has 16 bits.
    InPlace,
    /// The constant has 16 bits.
    Short,
    /// The result goes to `exec`, and the previous value of `exec` to the destination.
    SaveExec,
}

impl ScalarFunction {
    /// Returns the result, with as many bits as the destination, and the condition.
    pub fn run(&self, first: u64, second: u64, condition: bool) -> (u64, Option<bool>) {
        let cut = |value: u64, bits| {
            if bits == 32 {
                value & 0xffff_ffff
            } else {
                value
            }
        };
        let (result, condition) = (self.run)(
            cut(first, self.bits[1]),
            cut(second, self.bits[2]),
            condition,
        );
        (cut(result, self.bits[0]), condition)
    }

    /// Whether the destination and each source have 64 bits.
    pub fn wide(&self) -> [bool; 3] {
        self.bits.map(|bits| bits == 64)
    }

    /// Whether the first operand is a destination.
    pub fn has_destination(&self) -> bool {
        self.form != Form::Compare
    }

    /// Whether the destination is also the first source.
    pub fn in_place(&self) -> bool {
        self.form == Form::InPlace
    }

    /// Whether the result goes to `exec`, and the previous value of `exec` to the destination.
    pub fn saves_exec(&self) -> bool {
        self.form == Form::SaveExec
    }

    /// Whether the constant is a signed 16-bit number.
    pub fn is_short(&self) -> bool {
        matches!(self.form, Form::InPlace | Form::Short)
    }
}

const fn plain(bits: u32, run: Run) -> ScalarFunction {
    ScalarFunction {
        run,
        bits: [bits; 3],
        form: Form::Plain,
    }
}

const fn mixed(bits: [u32; 3], run: Run) -> ScalarFunction {
    ScalarFunction {
        run,
        bits,
        form: Form::Plain,
    }
}

const fn formed(form: Form, bits: u32, run: Run) -> ScalarFunction {
    ScalarFunction {
        run,
        bits: [bits; 3],
        form,
    }
}

fn logic(value: u64, bits: u32) -> (u64, Option<bool>) {
    let cut = if bits == 32 {
        value & 0xffff_ffff
    } else {
        value
    };
    (cut, Some(cut != 0))
}

fn signed(value: u64) -> i32 {
    value as u32 as i32
}

fn add(a: u64, b: u64) -> (u64, Option<bool>) {
    let (sum, overflow) = signed(a).overflowing_add(signed(b));
    (u64::from(sum as u32), Some(overflow))
}

fn shifted_sum(a: u64, bits: u32, b: u64) -> (u64, Option<bool>) {
    let sum = (a << bits) + b;
    (sum, Some(sum > u64::from(u32::MAX)))
}

/// Returns the function of a mnemonic; `None` if it is not modeled.
pub fn function(mnemonic: &str) -> Option<ScalarFunction> {
    use Form::{Compare, InPlace, SaveExec, Short};
    Some(match mnemonic {
        "s_mov_b32" => plain(32, |a, _, _| (a, None)),
        "s_mov_b64" => plain(64, |a, _, _| (a, None)),
        "s_movk_i32" => formed(Short, 32, |a, _, _| (a, None)),
        "s_brev_b32" => plain(32, |a, _, _| (u64::from((a as u32).reverse_bits()), None)),
        "s_not_b32" => plain(32, |a, _, _| logic(!a, 32)),
        "s_bcnt1_i32_b64" => mixed([32, 64, 32], |a, _, _| logic(a.count_ones().into(), 32)),
        "s_and_b32" => plain(32, |a, b, _| logic(a & b, 32)),
        "s_and_b64" => plain(64, |a, b, _| logic(a & b, 64)),
        "s_andn2_b32" => plain(32, |a, b, _| logic(a & !b, 32)),
        "s_andn2_b64" => plain(64, |a, b, _| logic(a & !b, 64)),
        "s_or_b32" => plain(32, |a, b, _| logic(a | b, 32)),
        "s_or_b64" => plain(64, |a, b, _| logic(a | b, 64)),
        "s_orn2_b64" => plain(64, |a, b, _| logic(a | !b, 64)),
        "s_nor_b64" => plain(64, |a, b, _| logic(!(a | b), 64)),
        "s_xor_b32" => plain(32, |a, b, _| logic(a ^ b, 32)),
        "s_xor_b64" => plain(64, |a, b, _| logic(a ^ b, 64)),
        "s_and_saveexec_b64" => formed(SaveExec, 64, |a, exec, _| logic(a & exec, 64)),
        "s_andn2_saveexec_b64" => formed(SaveExec, 64, |a, exec, _| logic(a & !exec, 64)),
        "s_or_saveexec_b64" => formed(SaveExec, 64, |a, exec, _| logic(a | exec, 64)),
        "s_add_i32" => plain(32, |a, b, _| add(a, b)),
        "s_addk_i32" => formed(InPlace, 32, |a, b, _| add(a, b)),
        "s_sub_i32" => plain(32, |a, b, _| {
            let (difference, overflow) = signed(a).overflowing_sub(signed(b));
            (u64::from(difference as u32), Some(overflow))
        }),
        "s_add_u32" => plain(32, |a, b, _| (a + b, Some(a + b > u64::from(u32::MAX)))),
        "s_lshl1_add_u32" => plain(32, |a, b, _| shifted_sum(a, 1, b)),
        "s_lshl2_add_u32" => plain(32, |a, b, _| shifted_sum(a, 2, b)),
        "s_lshl4_add_u32" => plain(32, |a, b, _| shifted_sum(a, 4, b)),
        "s_addc_u32" => plain(32, |a, b, carry| {
            let sum = a + b + u64::from(carry);
            (sum, Some(sum > u64::from(u32::MAX)))
        }),
        "s_sub_u32" => plain(32, |a, b, _| (a.wrapping_sub(b), Some(b > a))),
        "s_subb_u32" => plain(32, |a, b, borrow| {
            let less = b + u64::from(borrow);
            (a.wrapping_sub(less), Some(less > a))
        }),
        "s_mul_i32" => plain(32, |a, b, _| (a.wrapping_mul(b), None)),
        "s_mulk_i32" => formed(InPlace, 32, |a, b, _| (a.wrapping_mul(b), None)),
        "s_mul_hi_u32" => plain(32, |a, b, _| ((a * b) >> 32, None)),
        "s_max_u32" => plain(32, |a, b, _| (a.max(b), Some(a >= b))),
        "s_min_u32" => plain(32, |a, b, _| (a.min(b), Some(a <= b))),
        "s_lshl_b32" => plain(32, |a, b, _| logic(a << (b & 31), 32)),
        "s_lshr_b32" => plain(32, |a, b, _| logic(a >> (b & 31), 32)),
        "s_ashr_i32" => plain(32, |a, b, _| {
            logic(u64::from((signed(a) >> (b & 31)) as u32), 32)
        }),
        "s_lshl_b64" => mixed([64, 64, 32], |a, b, _| logic(a << (b & 63), 64)),
        "s_lshr_b64" => mixed([64, 64, 32], |a, b, _| logic(a >> (b & 63), 64)),
        "s_bfe_u32" => plain(32, |a, b, _| {
            let width = (b >> 16 & 0x7f).min(32);
            logic(a >> (b & 31) & ((1u64 << width) - 1), 32)
        }),
        "s_cselect_b32" => plain(32, |a, b, condition| (if condition { a } else { b }, None)),
        "s_cselect_b64" => plain(64, |a, b, condition| (if condition { a } else { b }, None)),
        "s_cmp_eq_u64" => formed(Compare, 64, |a, b, _| (0, Some(a == b))),
        "s_cmp_lg_u64" => formed(Compare, 64, |a, b, _| (0, Some(a != b))),
        "s_cmp_eq_u32" | "s_cmp_eq_i32" => formed(Compare, 32, |a, b, _| (0, Some(a == b))),
        "s_cmp_lg_u32" | "s_cmp_lg_i32" => formed(Compare, 32, |a, b, _| (0, Some(a != b))),
        "s_bitcmp1_b32" => formed(Compare, 32, |a, b, _| (0, Some(a >> (b & 31) & 1 == 1))),
        "s_cmp_gt_u32" | "s_cmpk_gt_u32" => formed(Compare, 32, |a, b, _| (0, Some(a > b))),
        "s_cmp_ge_u32" => formed(Compare, 32, |a, b, _| (0, Some(a >= b))),
        "s_cmp_lt_u32" | "s_cmpk_lt_u32" => formed(Compare, 32, |a, b, _| (0, Some(a < b))),
        "s_cmp_le_u32" => formed(Compare, 32, |a, b, _| (0, Some(a <= b))),
        "s_cmp_gt_i32" => formed(Compare, 32, |a, b, _| (0, Some(signed(a) > signed(b)))),
        "s_cmp_ge_i32" => formed(Compare, 32, |a, b, _| (0, Some(signed(a) >= signed(b)))),
        "s_cmp_le_i32" => formed(Compare, 32, |a, b, _| (0, Some(signed(a) <= signed(b)))),
        "s_bitcmp0_b32" => formed(Compare, 32, |a, b, _| (0, Some(a >> (b & 31) & 1 == 0))),
        "s_cmp_lt_i32" => formed(Compare, 32, |a, b, _| (0, Some(signed(a) < signed(b)))),
        _ => return None,
    })
}
