//! Vector arithmetic, one lane at a time.

use half::{bf16, f16};

/// The kind of a source, per lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// 32 bits.
    Word,
    /// 64 bits.
    Wide,
    /// The lane's bit of a scalar register pair.
    Bit,
}

/// A vector instruction's function.
#[derive(Clone, Copy, Debug)]
pub struct VectorFunction {
    run: fn(&Lane) -> (u64, bool),
    shape: &'static [Source],
    wide: bool,
    carries_out: bool,
}

/// A lane's inputs.
#[derive(Clone, Copy, Debug)]
pub struct Lane {
    /// Its number in the wave.
    pub number: u32,
    /// Its sources; a [`Source::Bit`] is 0 or 1.
    pub sources: [u64; 3],
}

impl VectorFunction {
    /// Returns the result, 64 bits wide if [`Self::is_wide`], and the carry.
    pub fn run(&self, lane: &Lane) -> (u64, bool) {
        (self.run)(lane)
    }

    /// Returns how many sources it has.
    pub fn sources(&self) -> usize {
        self.shape.len()
    }

    /// Returns the kind of each source.
    pub fn shape(&self) -> &'static [Source] {
        self.shape
    }

    /// Whether it writes two registers.
    pub fn is_wide(&self) -> bool {
        self.wide
    }

    /// Whether it writes a carry to a scalar register pair, which is the second operand.
    pub fn carries_out(&self) -> bool {
        self.carries_out
    }
}

/// Returns a comparison of values that are sign- or zero-extended to 64 bits.
pub fn comparison(condition: &str, signed: bool) -> Option<fn(u64, u64) -> bool> {
    Some(match (condition, signed) {
        ("eq", _) => |a, b| a == b,
        ("ne", _) => |a, b| a != b,
        ("lt", false) => |a, b| a < b,
        ("le", false) => |a, b| a <= b,
        ("gt", false) => |a, b| a > b,
        ("ge", false) => |a, b| a >= b,
        ("lt", true) => |a, b| (a as i64) < b as i64,
        ("le", true) => |a, b| a as i64 <= b as i64,
        ("gt", true) => |a, b| a as i64 > b as i64,
        ("ge", true) => |a, b| a as i64 >= b as i64,
        _ => return None,
    })
}

/// Returns a comparison of f32.
pub fn float_comparison(condition: &str) -> Option<fn(u64, u64) -> bool> {
    Some(match condition {
        "lt" => |a, b| float(a) < float(b),
        "gt" => |a, b| float(a) > float(b),
        "u" => |a, b| float(a).is_nan() || float(b).is_nan(),
        _ => return None,
    })
}

fn float(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

/// Returns the bytes of `from` that the bytes of `selector` choose: 0 to 7, 12 for zero, and from 13 on all bits set. The
/// rest, copies of a sign, do not occur.
fn chosen_bytes(from: u64, selector: u64) -> u64 {
    (0..4).fold(0, |word, at| {
        let byte = match selector >> (8 * at) & 0xff {
            choice @ 0..8 => from >> (8 * choice) & 0xff,
            choice if choice < 13 => 0,
            _ => 0xff,
        };
        word | byte << (8 * at)
    })
}

/// Returns the function of a mnemonic without its encoding suffix; `None` if it is not modeled.
pub fn function(mnemonic: &str, modifiers: &[&str]) -> Option<VectorFunction> {
    use Source::{Bit, Wide, Word};
    macro_rules! lane {
        ($shape:expr, $wide:literal, $carries:literal, |$sources:ident| $body:expr) => {
            VectorFunction {
                run: |lane| {
                    let $sources = &lane.sources;
                    $body
                },
                shape: $shape,
                wide: $wide,
                carries_out: $carries,
            }
        };
    }
    // Results of 32 bits without a carry.
    macro_rules! word {
        ($shape:expr, |$sources:ident| $body:expr) => {
            lane!($shape, false, false, |$sources| ($body, false))
        };
    }
    macro_rules! wide {
        ($shape:expr, |$sources:ident| $body:expr) => {
            lane!($shape, true, false, |$sources| ($body, false))
        };
    }
    macro_rules! carry {
        ($shape:expr, |$sources:ident| $body:expr) => {
            lane!($shape, false, true, |$sources| $body)
        };
    }
    let selects = modifiers
        .iter()
        .find_map(|word| word.strip_prefix("op_sel:"));
    Some(match mnemonic {
        "v_mov_b32" => word!(&[Word], |s| s[0]),
        "v_not_b32" => word!(&[Word], |s| !s[0]),
        "v_bfrev_b32" => word!(&[Word], |s| u64::from((s[0] as u32).reverse_bits())),
        "v_and_b32" => word!(&[Word, Word], |s| s[0] & s[1]),
        "v_or_b32" => word!(&[Word, Word], |s| s[0] | s[1]),
        "v_xor_b32" => word!(&[Word, Word], |s| s[0] ^ s[1]),
        // The truth tables that occur: one bit for each value of the three sources, the first source highest.
        "v_bitop3_b32" if modifiers.contains(&"bitop3:0x80") => {
            word!(&[Word, Word, Word], |s| s[0] & s[1] & s[2])
        }
        "v_bitop3_b32" if modifiers.contains(&"bitop3:0xc") => {
            word!(&[Word, Word, Word], |s| !s[0] & s[1])
        }
        "v_bitop3_b32" if modifiers.contains(&"bitop3:0xc8") => {
            word!(&[Word, Word, Word], |s| s[1] & (s[0] | s[2]))
        }
        "v_bitop3_b32" if modifiers.contains(&"bitop3:0x48") => {
            word!(&[Word, Word, Word], |s| s[1] & (s[0] ^ s[2]))
        }
        "v_bitop3_b32" if modifiers.contains(&"bitop3:0x6c") => {
            word!(&[Word, Word, Word], |s| s[1] ^ s[0] & s[2])
        }
        "v_bitop3_b32" if modifiers.contains(&"bitop3:0x36") => {
            word!(&[Word, Word, Word], |s| s[1] ^ (s[0] | s[2]))
        }
        "v_bitop3_b32" if modifiers.contains(&"bitop3:0x78") => {
            word!(&[Word, Word, Word], |s| s[0] ^ s[1] & s[2])
        }
        "v_lshlrev_b32" => word!(&[Word, Word], |s| s[1] << (s[0] & 31)),
        "v_lshrrev_b32" => word!(&[Word, Word], |s| s[1] >> (s[0] & 31)),
        "v_add_u32" => word!(&[Word, Word], |s| s[0] + s[1]),
        "v_sub_u32" => word!(&[Word, Word], |s| s[0].wrapping_sub(s[1])),
        "v_subrev_u32" => word!(&[Word, Word], |s| s[1].wrapping_sub(s[0])),
        "v_add3_u32" => word!(&[Word, Word, Word], |s| s[0] + s[1] + s[2]),
        "v_lshl_add_u32" => word!(&[Word, Word, Word], |s| (s[0] << (s[1] & 31)) + s[2]),
        "v_add_lshl_u32" => word!(&[Word, Word, Word], |s| (s[0] + s[1]) << (s[2] & 31)),
        "v_xad_u32" => word!(&[Word, Word, Word], |s| (s[0] ^ s[1]) + s[2]),
        "v_mul_lo_u32" => word!(&[Word, Word], |s| s[0].wrapping_mul(s[1])),
        "v_mul_hi_u32" => word!(&[Word, Word], |s| (s[0] * s[1]) >> 32),
        "v_mul_u32_u24" => word!(&[Word, Word], |s| (s[0] & 0xff_ffff) * (s[1] & 0xff_ffff)),
        "v_mad_u32_u24" => {
            word!(&[Word, Word, Word], |s| (s[0] & 0xff_ffff)
                * (s[1] & 0xff_ffff)
                + s[2])
        }
        "v_bfe_u32" => word!(&[Word, Word, Word], |s| (s[0] >> (s[1] & 31))
            & ((1 << (s[2] & 31)) - 1)),
        "v_bfi_b32" => word!(&[Word, Word, Word], |s| s[0] & s[1] | !s[0] & s[2]),
        "v_and_or_b32" => word!(&[Word, Word, Word], |s| s[0] & s[1] | s[2]),
        "v_perm_b32" => word!(&[Word, Word, Word], |s| chosen_bytes(
            s[0] << 32 | s[1],
            s[2]
        )),
        "v_or3_b32" => word!(&[Word, Word, Word], |s| s[0] | s[1] | s[2]),
        "v_lshl_or_b32" => word!(&[Word, Word, Word], |s| s[0] << (s[1] & 31) | s[2]),
        "v_min_u32" => word!(&[Word, Word], |s| s[0].min(s[1])),
        "v_max_u32" => word!(&[Word, Word], |s| s[0].max(s[1])),
        "v_min3_u32" => word!(&[Word, Word, Word], |s| s[0].min(s[1]).min(s[2])),
        "v_alignbit_b32" => word!(&[Word, Word, Word], |s| (s[0] << 32 | s[1]) >> (s[2] & 31)),
        "v_cndmask_b32" => word!(&[Word, Word, Bit], |s| if s[2] == 1 { s[1] } else { s[0] }),
        "v_mbcnt_lo_u32_b32" => VectorFunction {
            run: |lane| {
                let below = (1u64 << lane.number.min(32)) - 1;
                (
                    u64::from((lane.sources[0] & below).count_ones()) + lane.sources[1],
                    false,
                )
            },
            ..word!(&[Word, Word], |s| s[0])
        },
        "v_mbcnt_hi_u32_b32" => VectorFunction {
            run: |lane| {
                let below = (1u64 << lane.number.saturating_sub(32)) - 1;
                (
                    u64::from((lane.sources[0] & below).count_ones()) + lane.sources[1],
                    false,
                )
            },
            ..word!(&[Word, Word], |s| s[0])
        },
        // Integer division begins with a floating-point estimate, which the code then corrects.
        "v_cvt_f32_u32" => word!(&[Word], |s| (s[0] as f32).to_bits().into()),
        "v_cvt_f32_ubyte0" => word!(&[Word], |s| ((s[0] & 0xff) as f32).to_bits().into()),
        "v_cvt_f32_f16" => word!(&[Word], |s| f16::from_bits(s[0] as u16)
            .to_f32()
            .to_bits()
            .into()),
        "v_cvt_f16_f32" => word!(&[Word], |s| f16::from_f32(float(s[0])).to_bits().into()),
        "v_cvt_pk_f16_f32" => word!(&[Word, Word], |s| {
            let half = |bits| u64::from(f16::from_f32(float(bits)).to_bits());
            half(s[1]) << 16 | half(s[0])
        }),
        "v_cvt_pk_bf16_f32" => word!(&[Word, Word], |s| {
            let half = |bits| u64::from(bf16::from_f32(float(bits)).to_bits());
            half(s[1]) << 16 | half(s[0])
        }),
        "v_cvt_u32_f32" => word!(&[Word], |s| (float(s[0]) as u32).into()),
        "v_rcp_iflag_f32" => word!(&[Word], |s| (1.0 / float(s[0])).to_bits().into()),
        "v_fma_f32" => word!(&[Word, Word, Word], |s| float(s[0])
            .mul_add(float(s[1]), float(s[2]))
            .to_bits()
            .into()),
        "v_mul_f32" => word!(&[Word, Word], |s| (float(s[0]) * float(s[1]))
            .to_bits()
            .into()),
        "v_add_f32" => word!(&[Word, Word], |s| (float(s[0]) + float(s[1]))
            .to_bits()
            .into()),
        // Two sums in one instruction.
        "v_pk_add_f32" if selects.is_none() => wide!(&[Wide, Wide], |s| {
            let sum = |shift| (float(s[0] >> shift) + float(s[1] >> shift)).to_bits();
            u64::from(sum(32)) << 32 | u64::from(sum(0))
        }),
        // Two products with one factor, the lower half of the second source.
        "v_pk_mul_f32" if selects.is_none() && modifiers.contains(&"op_sel_hi:[1,0]") => {
            wide!(&[Wide, Word], |s| {
                let product = |shift| (float(s[0] >> shift) * float(s[1])).to_bits();
                u64::from(product(32)) << 32 | u64::from(product(0))
            })
        }
        "v_add_co_u32" => carry!(&[Word, Word], |s| (s[0] + s[1], (s[0] + s[1]) >> 32 != 0)),
        "v_addc_co_u32" => carry!(&[Word, Word, Bit], |s| {
            let sum = s[0] + s[1] + s[2];
            (sum, sum >> 32 != 0)
        }),
        "v_sub_co_u32" => carry!(&[Word, Word], |s| (s[0].wrapping_sub(s[1]), s[1] > s[0])),
        "v_subrev_co_u32" => carry!(&[Word, Word], |s| (s[1].wrapping_sub(s[0]), s[0] > s[1])),
        "v_subbrev_co_u32" => carry!(&[Word, Word, Bit], |s| {
            (s[1].wrapping_sub(s[0] + s[2]), s[0] + s[2] > s[1])
        }),
        "v_subb_co_u32" => carry!(&[Word, Word, Bit], |s| {
            (s[0].wrapping_sub(s[1] + s[2]), s[1] + s[2] > s[0])
        }),
        "v_mad_u64_u32" => lane!(&[Word, Word, Wide], true, true, |s| {
            (s[0] * s[1]).overflowing_add(s[2])
        }),
        "v_mov_b64" => wide!(&[Wide], |s| s[0]),
        "v_pk_mov_b32" => match selects {
            None => wide!(&[Word, Word], |s| s[1] << 32 | s[0]),
            Some("[0,1]") => wide!(&[Wide, Wide], |s| s[1] >> 32 << 32 | s[0] & 0xffff_ffff),
            Some("[1,0]") => wide!(&[Wide, Wide], |s| s[1] << 32 | s[0] >> 32),
            Some(_) => return None,
        },
        "v_lshl_add_u64" => wide!(&[Wide, Word, Wide], |s| (s[0] << (s[1] & 63))
            .wrapping_add(s[2])),
        "v_lshlrev_b64" => wide!(&[Word, Wide], |s| s[1] << (s[0] & 63)),
        "v_lshrrev_b64" => wide!(&[Word, Wide], |s| s[1] >> (s[0] & 63)),
        _ => return None,
    })
}
