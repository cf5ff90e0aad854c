//! What a call has left at a rank, compared with the reference.

use super::case::{NormCase, NormOutput};
use super::reference::Expected;
use super::values::Values;
use crate::dtype::Dtype;
use crate::findings::Fault;
use crate::floats::Format;
use crate::region::Guarded;
use std::hash::{DefaultHasher, Hash, Hasher};
use symmem::{F8E4M3, NormElement};

/// A type of rows, by its bits.
pub trait NormFloat: NormElement {
    fn of_bits(bits: u32) -> Self;
    fn bits(self) -> u32;
}

macro_rules! floats {
    ($($type:ty: $bits:ty,)*) => {$(
        impl NormFloat for $type {
            fn of_bits(bits: u32) -> Self {
                Self::from_bits(bits as $bits)
            }
            fn bits(self) -> u32 {
                self.to_bits().into()
            }
        }
    )*};
}
floats! {
    half::f16: u16,
    half::bf16: u16,
    f32: u32,
}

/// A number of 8 bits that no result has: NaN.
pub const POISON_F8: F8E4M3 = F8E4M3(0x7f);

/// Results in their type.
pub enum Results<T: NormFloat> {
    Same(Guarded<T>),
    Narrow(Guarded<F8E4M3>),
}

/// What a call has left at this rank.
pub struct Seen<T: NormFloat> {
    pub results: Results<T>,
    pub scales: Option<Guarded<f32>>,
    pub sums: Option<Guarded<T>>,
    /// The number of the first of the sums among those of all rows.
    pub first_sum: usize,
    /// The inputs that the call may not change, with their names, and what they must hold.
    pub inputs: Vec<(&'static str, Guarded<T>, Vec<u32>)>,
}

impl<T: NormFloat> Seen<T> {
    /// Changes what was read as the planted fault would.
    pub fn plant(&mut self, fault: Option<Fault>, case: &NormCase, values: &Values) {
        let planted = |one| fault == Some(one);
        let format = Format::of(case.dtype);
        match &mut self.results {
            Results::Same(results) if planted(Fault::WrongByte) => {
                let first = &mut results.elements_mut()[0];
                *first = T::of_bits(first.bits() ^ 1 << (format.mantissa - 1));
            }
            Results::Narrow(results) if planted(Fault::WrongByte) => {
                results.elements_mut()[0].0 ^= 4;
            }
            Results::Same(results) if planted(Fault::Guard) => results.all[0] = T::of_bits(0),
            Results::Narrow(results) if planted(Fault::Guard) => results.all[0] = F8E4M3(0),
            Results::Same(results) if planted(Fault::MissingPacket) => {
                let poison = T::of_bits(format.encode(f32::NAN));
                let last = results.elements_mut().last_mut();
                last.into_iter().for_each(|last| *last = poison);
            }
            Results::Narrow(results) if planted(Fault::MissingPacket) => {
                let last = results.elements_mut().last_mut();
                last.into_iter().for_each(|last| *last = POISON_F8);
            }
            _ => {}
        }
        if planted(Fault::Source) {
            let inputs = self.inputs.iter_mut();
            for (_, input, _) in inputs.filter(|(name, ..)| *name == "source") {
                let first = &mut input.elements_mut()[0];
                *first = T::of_bits(first.bits() ^ 1);
            }
        }
        let sums = if planted(Fault::WrongOrder) {
            Expected::new(case, &values.reversed()).sums
        } else if planted(Fault::OldResidual) {
            values.residual.clone()
        } else {
            Vec::new()
        };
        let seen = self.sums.iter_mut().flat_map(Guarded::elements_mut);
        seen.zip(sums.into_iter().skip(self.first_sum))
            .for_each(|(seen, sum)| *seen = T::of_bits(sum));
        if planted(Fault::WrongScale) {
            let scales = self.scales.iter_mut().flat_map(Guarded::elements_mut);
            scales.for_each(|scale| *scale *= 1.001);
        }
        if planted(Fault::OtherBits) {
            self.change_last_bit();
        }
    }

    /// Changes the last bit of the first result in the rows' type, which stays within the bound.
    pub fn change_last_bit(&mut self) {
        if let Results::Same(results) = &mut self.results {
            let first = &mut results.elements_mut()[0];
            *first = T::of_bits(first.bits() ^ 1);
        }
    }

    /// Hashes the bits of everything that the call wrote, `with_sums` or without them.
    pub fn hash(&self, with_sums: bool) -> u64 {
        let mut hasher = DefaultHasher::new();
        match &self.results {
            Results::Same(results) => results
                .elements()
                .iter()
                .for_each(|one| one.bits().hash(&mut hasher)),
            Results::Narrow(results) => results
                .elements()
                .iter()
                .for_each(|one| one.0.hash(&mut hasher)),
        }
        let sums = self.sums.iter().filter(|_| with_sums);
        let sums = sums.flat_map(Guarded::elements);
        sums.for_each(|sum| sum.bits().hash(&mut hasher));
        let scales = self.scales.iter().flat_map(Guarded::elements);
        scales.for_each(|scale| scale.to_bits().hash(&mut hasher));
        hasher.finish()
    }

    /// Describes the first thing that is wrong. `tensor_scale` is the scale that was given.
    pub fn wrong(&self, expected: &Expected, case: &NormCase, tensor_scale: f32) -> Option<String> {
        self.wrong_sum(expected, case)
            .or_else(|| self.wrong_scale(expected, case, tensor_scale))
            .or_else(|| self.wrong_result(expected, case))
            .or_else(|| self.wrong_guard_or_input())
    }

    fn wrong_sum(&self, expected: &Expected, case: &NormCase) -> Option<String> {
        let format = Format::of(case.dtype);
        let expected = expected.sums.iter().skip(self.first_sum);
        let sums = self.sums.as_ref()?.elements().iter().zip(expected);
        // Zeros may have either sign: a packet may lose it.
        let mut pairs = sums.map(|(seen, sum)| (format.decode(seen.bits()), format.decode(*sum)));
        let at = pairs.clone().position(|(seen, sum)| seen != sum)?;
        let (seen, sum) = pairs.nth(at)?;
        let place = place(self.first_sum + at, case.hidden);
        Some(format!("the sum of {place} is {seen}, not {sum}"))
    }

    fn wrong_scale(&self, expected: &Expected, case: &NormCase, given: f32) -> Option<String> {
        let scales = self.scales.as_ref()?.elements();
        if case.output == NormOutput::Tensor {
            return (scales != [given]).then(|| "the scale that was given has changed".into());
        }
        let mut scales = scales.iter().enumerate();
        scales.find_map(|(at, scale)| {
            let near = expected.scale(at);
            (!near.accepts((*scale).into())).then(|| {
                let (value, bound) = (near.value, near.bound);
                format!("scale {at} is {scale}, not {value} within {bound:e}")
            })
        })
    }

    fn wrong_result(&self, expected: &Expected, case: &NormCase) -> Option<String> {
        let scale = |at: usize| match &self.scales {
            Some(scales) => f64::from(scales.elements()[at / expected.width()]),
            None => 1.0,
        };
        let result = |at: usize| match &self.results {
            Results::Same(results) => Format::of(case.dtype).decode(results.elements()[at].bits()),
            Results::Narrow(results) => {
                Format::of(Dtype::F8E4m3).decode(results.elements()[at].0.into())
            }
        };
        (0..case.elements()).find_map(|at| {
            let (scale, result) = (scale(at), f64::from(result(at)));
            let near = expected.result(at, scale);
            let seen = result * scale;
            (!near.accepts(seen)).then(|| {
                let (place, value, bound) = (place(at, case.hidden), near.value, near.bound);
                format!("{place} of the result is {seen}, not {value} within {bound:e}")
            })
        })
    }

    fn wrong_guard_or_input(&self) -> Option<String> {
        let result = match &self.results {
            Results::Same(results) => results.overwritten("result"),
            Results::Narrow(results) => results.overwritten("result"),
        };
        let scales = || self.scales.as_ref()?.overwritten("array of scales");
        let sums = || self.sums.as_ref()?.overwritten("sum");
        let inputs = || {
            self.inputs.iter().find_map(|(name, seen, must)| {
                let pairs = seen.elements().iter().zip(must);
                let changed = pairs.map(|(seen, must)| seen.bits() != *must);
                let at = changed.into_iter().position(|is_changed| is_changed);
                let changed = at.map(|at| format!("element {at} of the {name} has changed"));
                changed.or_else(|| seen.overwritten(name))
            })
        };
        result.or_else(scales).or_else(sums).or_else(inputs)
    }
}

/// Names element `at` of rows of `hidden` elements.
fn place(at: usize, hidden: usize) -> String {
    format!("row {}, element {}", at / hidden, at % hidden)
}
