//! The heuristic: it returns algorithms for a GEMM, and each may be used only for the GEMM it was returned for.

use crate::broken;
use crate::numbers::{Numbers, Result};
use crate::objects::{self, Layout, Operation};
use std::ffi::c_int;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Bytes of workspace that the algorithms need, in the heuristic's order of preference.
const WORKSPACES: [u64; 3] = [1 << 20, 0, 3 << 20];
/// The widest access of a kernel in bytes.
const WIDEST: u32 = 16;
/// Marks an algorithm's first word, above its number and its alignment.
const MARK: u64 = 0x5741_5900 << 32;

/// An operation on matrices whose shapes match.
#[derive(Clone, Copy, Debug)]
pub struct Problem {
    pub operation: Operation,
    pub first: Layout,
    pub second: Layout,
    pub added: Layout,
    pub result: Layout,
}

impl Problem {
    /// Builds a GEMM description; fails where the library would.
    pub fn new(numbers: &Numbers, operation: u64, matrices: [u64; 4]) -> Result<Self> {
        let [first, second, added, result] = matrices;
        let problem = Self {
            operation: objects::operation(numbers, operation)?,
            first: objects::layout(numbers, first)?,
            second: objects::layout(numbers, second)?,
            added: objects::layout(numbers, added)?,
            result: objects::layout(numbers, result)?,
        };
        let Self {
            operation,
            first,
            second,
            added,
            result,
        } = problem;
        let (m, k) = match operation.transposes_first {
            true => (first.columns, first.rows),
            false => (first.rows, first.columns),
        };
        let fits = second.rows == k && result.rows == m && result.columns == second.columns;
        let element = first.element;
        let of_c = match element {
            element if element == numbers.f8_e4m3 => numbers.bf16,
            element => element,
        };
        let alike = second.element == element && result.element == of_c;
        let of_result = |layout: Layout| Layout {
            stride: result.stride,
            ..layout
        };
        if !fits || !alike || of_result(added) != result {
            return Err(broken(
                numbers,
                &format!("the matrices do not match: {problem:?}"),
            ));
        }
        let bias = operation.bias_element.unwrap_or(of_c);
        if operation.has_bias && bias != of_c {
            return Err(broken(
                numbers,
                &format!("a bias of type {bias} with a result of type {of_c}"),
            ));
        }
        if operation.scale != 0 && element != numbers.f8_e4m3 {
            return Err(broken(
                numbers,
                &format!("a scale of matrices of type {element}"),
            ));
        }
        Ok(problem)
    }

    /// Returns K, the number of terms in each sum.
    pub fn depth(&self) -> u64 {
        self.second.rows
    }

    /// Whether the library has kernels for it. Those of 8-bit floats transpose the first matrix only, and want multiples of 16.
    fn has_kernels(&self, numbers: &Numbers) -> bool {
        let layouts = [self.first, self.second, self.added, self.result];
        let mut sizes = layouts
            .iter()
            .flat_map(|layout| [layout.rows, layout.columns, layout.stride]);
        self.first.element != numbers.f8_e4m3
            || self.operation.transposes_first && sizes.all(|size| size.is_multiple_of(16))
    }

    fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.first, self.second, self.added, self.result).hash(&mut hasher);
        (self.operation.transposes_first, self.operation.has_bias).hash(&mut hasher);
        hasher.finish()
    }
}

/// An algorithm, as the heuristic returned it.
#[derive(Clone, Copy, Debug)]
pub struct Heuristic {
    pub number: u32,
    /// Bytes that matrices must be aligned to.
    pub alignment: u32,
    pub workspace: u64,
}

impl Heuristic {
    /// Reads an algorithm from its struct; fails unless the heuristic returned it for this problem.
    pub fn read(numbers: &Numbers, words: &[u64], problem: &Problem) -> Result<Self> {
        let (number, alignment) = (words[0] as u32 & 0xffff, words[0] as u32 >> 16);
        if words[0] & !0xffff_ffff != MARK || number as usize >= WORKSPACES.len() {
            return Err(broken(
                numbers,
                "an algorithm that the heuristic never returned",
            ));
        }
        if words[1] != problem.digest() {
            return Err(broken(
                numbers,
                "an algorithm that was returned for another GEMM",
            ));
        }
        Ok(Self {
            number,
            alignment,
            workspace: WORKSPACES[number as usize],
        })
    }

    fn write(&self, problem: &Problem, told: &mut [u64], algorithm_words: usize) {
        told.fill(0);
        told[0] = MARK | u64::from(self.alignment) << 16 | u64::from(self.number);
        told[1] = problem.digest();
        told[algorithm_words] = self.workspace;
        // A status of success, then the wave count.
        told[algorithm_words + 1] = u64::from(1.0_f32.to_bits()) << 32;
    }
}

/// Returns the heuristic's algorithms, at most `wanted`.
///
/// # Safety
/// `found` has room for `wanted` results, and `count` is writable.
pub unsafe fn tell(
    numbers: &Numbers,
    problem: &Problem,
    preference: u64,
    wanted: c_int,
    found: *mut u64,
    count: *mut c_int,
) -> Result {
    let preference = objects::preference(numbers, preference)?;
    let wanted = usize::try_from(wanted).unwrap_or(0);
    if wanted == 0 || found.is_null() || count.is_null() {
        return Err(broken(
            numbers,
            "no algorithm is requested, or an output is null",
        ));
    }
    if problem.operation.has_bias && problem.operation.bias == 0 {
        // One version of one of the libraries fails for a null bias pointer.
        return Err(numbers.invalid);
    }
    if numbers
        .partial_sums
        .is_some_and(|(_, in_f32)| preference.partial_sums & !in_f32 != 0)
    {
        return Err(broken(
            numbers,
            "the reduction schemes allow rounded partial sums",
        ));
    }
    let alignment = preference.alignments.into_iter().min().unwrap_or(1);
    let alignment = match numbers.alignments {
        Some(_) => alignment.min(WIDEST),
        None => 1,
    };
    let most: usize = fake_library::number("FAKE_BLASLT_WAYS", WORKSPACES.len());
    let least: u32 = fake_library::number("FAKE_BLASLT_ALIGNMENT", 1);
    let least = match problem.first.element {
        element if element == numbers.f8_e4m3 => WIDEST,
        _ => least,
    };
    let is_narrow = numbers.alignments.is_some() && alignment < least;
    let has_kernels = problem.has_kernels(numbers) && !is_narrow;
    let heuristics: Vec<Heuristic> = WORKSPACES
        .into_iter()
        .enumerate()
        .map(|(number, workspace)| Heuristic {
            number: number as u32,
            alignment,
            workspace,
        })
        .filter(|heuristic| heuristic.workspace <= preference.most_workspace && has_kernels)
        .take(wanted.min(most))
        .collect();
    // The algorithm, two reserved words, a status beside the wave count, and the workspace.
    let each = numbers.algorithm_words + 4;
    for (index, heuristic) in heuristics.iter().enumerate() {
        // SAFETY: the caller promises room for `wanted` results, and there are no more than that.
        let told = unsafe { std::slice::from_raw_parts_mut(found.add(index * each), each) };
        heuristic.write(problem, told, numbers.algorithm_words);
    }
    // SAFETY: the caller promises that `count` is writable.
    unsafe { count.write(heuristics.len() as c_int) };
    if heuristics.is_empty() {
        return Err(numbers.unsupported);
    }
    Ok(())
}
