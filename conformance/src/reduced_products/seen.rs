//! What a call has left at a rank, compared with the reference.

use super::case::GemmReduceCase;
use super::reference::Reference;
use crate::findings::Fault;
use crate::gemm_float::GemmFloat;
use crate::region::Guarded;
use std::hash::{DefaultHasher, Hash, Hasher};
use zerocopy::IntoBytes;

/// A rank, and the number of ranks.
pub type Place = (usize, usize);

/// What a call has left at this rank.
pub struct Seen<T: GemmFloat> {
    pub c: Guarded<T>,
    /// The inputs with their names, and what they must hold.
    pub inputs: Vec<(&'static str, Guarded<T>, Vec<T>)>,
}

impl<T: GemmFloat> Seen<T> {
    /// Changes what was read as the planted fault would. `previous` is the `C` of the call before.
    pub fn plant(
        &mut self,
        fault: Option<Fault>,
        case: &GemmReduceCase,
        reference: &Reference,
        (rank, world): Place,
        previous: &[T],
    ) {
        let n = case.n;
        let m = case.m(world);
        let (first, rows) = case.rows_of(rank, world);
        let c = self.c.elements_mut();
        let store = |c: &mut [T], numbers: &[f64]| {
            let numbers = numbers.iter().map(|number| T::from_f64(*number));
            c.iter_mut()
                .zip(numbers)
                .for_each(|(c, number)| *c = number);
        };
        let planted = |one| fault == Some(one);
        if planted(Fault::WrongByte) {
            c[0] = T::from_f64(c[0].to_f64() + 0.5);
        } else if planted(Fault::StaleBlock) {
            // The first half of the rows, as a chunk would be.
            let block = (rows.div_ceil(2) * n).min(previous.len());
            c[..block].copy_from_slice(&previous[..block]);
        } else if planted(Fault::WrongOwner) {
            for (row, c) in c.chunks_mut(n).enumerate() {
                let of_next = (first + row + m.div_ceil(world)) % m;
                store(c, &reference.row(of_next).sums);
            }
        } else if planted(Fault::MissingPart) {
            for (row, c) in c.chunks_mut(n).enumerate() {
                let row = reference.row(first + row);
                let pairs = row.sums.iter().zip(&row.parts[(rank + 1) % world]);
                let rest: Vec<f64> = pairs.map(|(sum, part)| sum - part).collect();
                store(c, &rest);
            }
        } else if planted(Fault::OtherBits) {
            self.change_last_bit();
        } else if planted(Fault::Guard) {
            self.c.all[0] = T::from_f64(0.0);
        } else if planted(Fault::Source) {
            self.inputs[0].1.elements_mut()[0] = T::from_f64(0.0);
        }
    }

    /// Changes the last bit of the first element of `C`, which stays within the bound.
    pub fn change_last_bit(&mut self) {
        let c = self.c.elements_mut();
        let last = c[0].as_bytes()[0] ^ 1;
        c[0].as_mut_bytes()[0] = last;
    }

    /// Hashes the bits of `C`.
    pub fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.c.elements().as_bytes().hash(&mut hasher);
        hasher.finish()
    }

    /// Describes the first thing that is wrong.
    pub fn wrong(
        &self,
        case: &GemmReduceCase,
        reference: &Reference,
        (rank, world): Place,
    ) -> Option<String> {
        let (first, _) = case.rows_of(rank, world);
        let mut rows = self.c.elements().chunks(case.n).enumerate();
        let element = rows.find_map(|(index, made)| {
            let row = reference.row(first + index);
            let mut columns = made
                .iter()
                .zip(row.sums.iter().zip(&row.bounds))
                .enumerate();
            columns.find_map(|(column, (made, (exact, bound)))| {
                let made = made.to_f64();
                let off = (made - exact).abs();
                (off.is_nan() || off > *bound).then(|| {
                    format!("C[{index}, {column}] is {made}, not {exact} within {bound:e}")
                })
            })
        });
        let guard = || self.c.overwritten("C");
        let input = || {
            self.inputs.iter().find_map(|(name, seen, must)| {
                let mut pairs = seen.elements().iter().zip(must);
                let at = pairs.position(|(seen, must)| seen.as_bytes() != must.as_bytes());
                let changed = at.map(|at| format!("element {at} of {name} has changed"));
                changed.or_else(|| seen.overwritten(name))
            })
        };
        element.or_else(guard).or_else(input)
    }
}
