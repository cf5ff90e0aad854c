//! A GEMM, prepared once for a shape; later calls only enqueue it.

use super::BlasLtApi;
use super::heuristic::{Heuristic, RESULT_WORDS};
use super::table::{Code, Object};
use std::ffi::{c_int, c_void};
use std::ptr::{from_ref, null_mut, with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::{Mutex, PoisonError};
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, Failure};

/// Heuristic candidates requested: with the one for unaligned operands, as many as symmem times. Behind the
/// first few, the heuristic's candidates hardly differ.
const CANDIDATES: usize = 7;
/// Largest workspace of a candidate, in bytes: twice what NVIDIA recommends for its newest devices, and near
/// what frameworks give hipBLASLt. Only what a candidate asks for is allocated.
const MOST_WORKSPACE: u64 = 64 << 20;
/// Assumed alignment of operands, in bytes: the widest access of any kernel.
const ALIGNMENT: u64 = 16;
/// `D = 1 · A · B + beta · C`, where `C` is the addend.
const ALPHA: f32 = 1.0;
/// The factor of the addend: none, the result overwrites what was there, or one.
const BETA: [f32; 2] = [0.0, 1.0];

/// An object of the library.
#[derive(Clone, Copy)]
pub(super) struct Opaque(pub Object);

impl Opaque {
    const NONE: Self = Self(null_mut());
}

// SAFETY: this crate never dereferences the pointer, and the library's functions may be called on any thread.
// The users of an object make sure that no two calls change it at the same time.
unsafe impl Send for Opaque {}
// SAFETY: as for `Send`.
unsafe impl Sync for Opaque {}

/// A prepared GEMM.
pub(super) struct PreparedGemm {
    library: &'static BlasLtApi,
    instance: Opaque,
    shape: GemmLayout,
    operation: Opaque,
    /// Layouts of the library's first and second matrix, of the addend (of the result, if there is none), and of the result.
    layouts: [Opaque; 4],
    /// Heuristic candidates, the best guess first. If the library's kernels assume an alignment, the last
    /// candidate is for operands with less than [`ALIGNMENT`]. It is part of this list so that a caller who
    /// runs every candidate once has loaded it too.
    heuristics: Vec<Heuristic>,
    /// Index of the candidate for unaligned operands.
    unaligned: Option<usize>,
    workspace: Option<SharedAllocation>,
    /// Held from setting addresses in the operation until the GEMM is enqueued.
    addresses: Mutex<()>,
}

pub(super) fn invalid(call: &str, message: String) -> Failure {
    Failure::new(Status::INVALID_ARGUMENT, call, message)
}

/// Refuses shapes that are empty, inconsistent, or not supported by cuBLASLt and hipBLASLt.
pub(super) fn check_shape(shape: &GemmLayout) -> CallResult<()> {
    let refuse = |message: String| Err(invalid("gemm_prepare", message));
    let &GemmLayout { m, n, k, .. } = shape;
    if m == 0 || n == 0 || k == 0 {
        return refuse(format!("{m} x {k} times {k} x {n} has nothing to multiply"));
    }
    if !matches!(
        shape.element,
        ElementTypeCode::F16
            | ElementTypeCode::BF16
            | ElementTypeCode::F32
            | ElementTypeCode::F8_E4M3
    ) {
        return refuse(format!(
            "a GEMM takes F16, BF16, F32 or F8_E4M3, not {}",
            shape.element.name()
        ));
    }
    if shape.element == ElementTypeCode::F8_E4M3 && shape.b_order == MatrixOrderCode::ROWS {
        return Err(Failure::new(
            Status::UNSUPPORTED,
            "gemm_prepare",
            "8-bit floats are multiplied only with a B that is stored by columns; store B by columns",
        ));
    }
    let b_width = match shape.b_order {
        MatrixOrderCode::ROWS => n,
        MatrixOrderCode::COLUMNS => k,
        order => {
            return refuse(format!(
                "matrix order {} is unknown; use rows or columns",
                order.0
            ));
        }
    };
    for (matrix, stride, width) in [
        ("A", shape.a_stride, k),
        ("B", shape.b_stride, b_width),
        ("C", shape.c_stride, n),
    ] {
        if stride < width || i64::try_from(stride).is_err() {
            return refuse(format!(
                "{matrix} has a stride of {stride} elements; it must be at least {width} and at most 2^63 - 1"
            ));
        }
    }
    Ok(())
}

impl PreparedGemm {
    /// Creates an empty GEMM; [`PreparedGemm::fill`] prepares it.
    pub fn new(library: &'static BlasLtApi, instance: Opaque, shape: &GemmLayout) -> Self {
        Self {
            library,
            instance,
            shape: *shape,
            operation: Opaque::NONE,
            layouts: [Opaque::NONE; 4],
            heuristics: Vec::new(),
            unaligned: None,
            workspace: None,
            addresses: Mutex::new(()),
        }
    }

    /// Returns the number of heuristic candidates.
    pub fn candidates(&self) -> u32 {
        self.heuristics.len() as u32
    }

    fn has_bias(&self) -> bool {
        self.shape.bias != 0
    }

    fn has_addend(&self) -> bool {
        self.shape.addend != 0
    }

    /// Creates the library's objects, asks for candidates, and allocates the largest workspace among them.
    pub fn fill(
        &mut self,
        allocate: impl FnOnce(u64) -> CallResult<SharedAllocation>,
    ) -> CallResult<()> {
        let dialect = self.library.dialect;
        self.operation = self.describe_operation()?;
        let &GemmLayout { m, n, k, .. } = &self.shape;
        let is_transposed = self.shape.b_order == MatrixOrderCode::COLUMNS;
        if is_transposed {
            self.set(dialect.transpose_first, &dialect.transposed)?;
        }
        let (rows, columns) = if is_transposed { (k, n) } else { (n, k) };
        let (element, output) = (self.shape.element, self.shape.output());
        self.layouts[0] = self.layout(element, rows, columns, self.shape.b_stride)?;
        self.layouts[1] = self.layout(element, k, m, self.shape.a_stride)?;
        let addend_stride = match self.has_addend() {
            true => n,
            false => self.shape.c_stride,
        };
        self.layouts[2] = self.layout(output, n, m, addend_stride)?;
        self.layouts[3] = self.layout(output, n, m, self.shape.c_stride)?;
        if self.has_bias() {
            self.set(dialect.epilogue, &dialect.epilogue_bias)?;
            if let Some(attribute) = dialect.bias_element {
                self.set(attribute, &self.number_of(output))?;
            }
        }
        self.heuristics = self.ask(ALIGNMENT, CANDIDATES)?;
        if self.heuristics.is_empty() {
            return Err(Failure::new(
                Status::UNSUPPORTED,
                self.library.name_of("MatmulAlgoGetHeuristic"),
                format!("{} has no algorithm for {:?}", dialect.name, self.shape),
            ));
        }
        // cuBLASLt takes 8-bit floats of that alignment only.
        if dialect.alignments.is_some() && self.shape.element != ElementTypeCode::F8_E4M3 {
            // Operands are aligned at least to `A`'s elements. Not an error if there is none: `run` then refuses unaligned operands.
            match self.ask(self.shape.element.bytes(), 1) {
                Ok(mut heuristics) => {
                    self.unaligned = (!heuristics.is_empty()).then_some(self.heuristics.len());
                    self.heuristics.append(&mut heuristics);
                }
                Err(failure) if failure.status == Status::UNSUPPORTED => {}
                Err(failure) => return Err(failure),
            }
        }
        let bytes = self
            .heuristics
            .iter()
            .map(|heuristic| heuristic.workspace)
            .max();
        let bytes = bytes.unwrap_or(0);
        if bytes > 0 {
            self.workspace = Some(allocate(bytes)?);
        }
        Ok(())
    }

    /// Returns the library's number of an element type.
    fn number_of(&self, element: ElementTypeCode) -> c_int {
        let dialect = self.library.dialect;
        match element {
            ElementTypeCode::F16 => dialect.f16,
            ElementTypeCode::F32 => dialect.f32,
            ElementTypeCode::F8_E4M3 => dialect.f8_e4m3,
            _ => dialect.bf16,
        }
    }

    fn describe_operation(&self) -> CallResult<Opaque> {
        let (library, mut made) = (self.library, null_mut());
        let (create, dialect) = (library.table.operation_create, library.dialect);
        // SAFETY: the out-pointer is writable.
        let code = unsafe { create(&raw mut made, dialect.compute_f32, dialect.f32) };
        library.check("MatmulDescCreate", code)?;
        Ok(Opaque(made))
    }

    fn layout(
        &self,
        element: ElementTypeCode,
        rows: u64,
        columns: u64,
        stride: u64,
    ) -> CallResult<Opaque> {
        let (library, mut made) = (self.library, null_mut());
        let create = library.table.layout_create;
        let element = self.number_of(element);
        // SAFETY: the out-pointer is writable. `check_shape` has checked that strides fit `i64`.
        let code = unsafe { create(&raw mut made, element, rows, columns, stride as i64) };
        library.check("MatrixLayoutCreate", code)?;
        Ok(Opaque(made))
    }

    /// Sets an attribute of the operation.
    fn set<T: Copy>(&self, attribute: c_int, value: &T) -> CallResult<()> {
        let set = self.library.table.operation_set;
        // SAFETY: the operation is live, and a reference's bytes are readable.
        let code = unsafe {
            set(
                self.operation.0,
                attribute,
                from_ref(value).cast(),
                size_of::<T>(),
            )
        };
        self.library.check("MatmulDescSetAttribute", code)
    }

    /// Returns at most `wanted` heuristic candidates for operands of this alignment in bytes.
    fn ask(&self, alignment: u64, wanted: usize) -> CallResult<Vec<Heuristic>> {
        let (library, table) = (self.library, &self.library.table);
        if self.has_bias() {
            // Some versions choose by the bias's address and return nothing for a null one. Nothing reads this
            // address.
            self.set(library.dialect.bias_pointer, &((1_u64 << 30) + alignment))?;
        }
        if self.shape.takes_scale() {
            // The same.
            self.set(library.dialect.scale_of_first, &(1_u64 << 30))?;
        }
        let mut preference = null_mut();
        // SAFETY: the out-pointer is writable.
        library.check("MatmulPreferenceCreate", unsafe {
            (table.preference_create)(&raw mut preference)
        })?;
        let found = self.ask_with(preference, alignment, wanted);
        // SAFETY: the preference was created above and is not used again.
        let code = unsafe { (table.preference_destroy)(preference) };
        let given_up = library.check("MatmulPreferenceDestroy", code);
        found.and_then(|found| given_up.map(|()| found))
    }

    /// Asks the heuristic with the given preference. [`GEMM_REQUEST_REVISION`] numbers this request, so that stored
    /// results of another one are not used: raise it with any change here.
    fn ask_with(
        &self,
        preference: Object,
        alignment: u64,
        wanted: usize,
    ) -> CallResult<Vec<Heuristic>> {
        let (library, table) = (self.library, &self.library.table);
        let prefer = |attribute: c_int, value: *const c_void, bytes: usize| {
            // SAFETY: the preference is live, and the callers below pass a readable value of `bytes` bytes.
            let code = unsafe { (table.preference_set)(preference, attribute, value, bytes) };
            library.check("MatmulPreferenceSetAttribute", code)
        };
        let most = from_ref(&MOST_WORKSPACE).cast();
        prefer(library.dialect.most_workspace, most, size_of::<u64>())?;
        for attribute in library.dialect.alignments.into_iter().flatten() {
            let alignment = alignment as u32;
            prefer(attribute, from_ref(&alignment).cast(), size_of::<u32>())?;
        }
        if let Some((attribute, in_f32)) = library.dialect.partial_sums {
            prefer(attribute, from_ref(&in_f32).cast(), size_of::<u32>())?;
        }
        let each = library.dialect.algorithm_words + RESULT_WORDS;
        let mut results = vec![0_u64; each * wanted];
        let mut count: c_int = 0;
        let [first, second, addend, result] = self.layouts.map(|layout| layout.0);
        // SAFETY: all objects are live, and `results` has room for `wanted` results.
        let code = unsafe {
            (table.heuristic)(
                self.instance.0,
                self.operation.0,
                first,
                second,
                addend,
                result,
                preference,
                wanted as c_int,
                results.as_mut_ptr().cast(),
                &raw mut count,
            )
        };
        library.check("MatmulAlgoGetHeuristic", code)?;
        let count = usize::try_from(count).unwrap_or(0);
        let results = results.chunks_exact(each).take(count);
        Ok(results
            .filter_map(|words| Heuristic::read(words, library.dialect.algorithm_words))
            .collect())
    }

    /// Enqueues the GEMM.
    ///
    /// # Safety
    /// As [`symmem_core::backend::Gemm::gemm`].
    pub unsafe fn run(
        &self,
        candidate: u32,
        operands: &GemmOperands,
        on: RawStream,
    ) -> CallResult<()> {
        let library = self.library;
        let heuristic = self.heuristic(candidate, operands)?;
        let takes_scale = self.shape.takes_scale();
        let _turn = (self.has_bias() || takes_scale).then(|| {
            // A panic under the lock leaves an old address behind, which is set anew below.
            self.addresses
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        });
        if self.has_bias() {
            self.set(library.dialect.bias_pointer, &operands.bias.0)?;
        }
        if takes_scale {
            self.set(library.dialect.scale_of_first, &operands.scale.0)?;
        }
        let address =
            |address: DeviceAddress| with_exposed_provenance::<c_void>(address.0 as usize);
        let result = with_exposed_provenance_mut::<c_void>(operands.c.0 as usize);
        let [first, second, third, fourth] = self.layouts.map(|layout| layout.0);
        let addend = match self.has_addend() {
            true => address(operands.addend),
            false => result.cast_const(),
        };
        let (workspace, bytes) = self.workspace.as_ref().map_or((null_mut(), 0), |memory| {
            let pointer = with_exposed_provenance_mut(memory.address.0 as usize);
            (pointer, memory.bytes as usize)
        });
        // SAFETY: the library's objects live as long as `self`. The caller keeps memory and stream live, and
        // uses the workspace on one stream at a time.
        let code: Code = unsafe {
            (library.table.multiply)(
                self.instance.0,
                self.operation.0,
                from_ref(&ALPHA).cast(),
                address(operands.b),
                first,
                address(operands.a),
                second,
                from_ref(&BETA[usize::from(self.has_addend())]).cast(),
                addend,
                third,
                result,
                fourth,
                heuristic.words.as_ptr().cast(),
                workspace,
                bytes,
                with_exposed_provenance_mut(on.0 as usize),
            )
        };
        library.check("Matmul", code)
    }

    /// Returns the requested candidate, or the one for unaligned operands if these need it.
    #[inline]
    fn heuristic(&self, candidate: u32, operands: &GemmOperands) -> CallResult<&Heuristic> {
        let heuristic = self.heuristics.get(candidate as usize);
        let heuristic = heuristic.ok_or_else(|| self.no_such_candidate(candidate))?;
        let &GemmOperands {
            a,
            b,
            c,
            bias,
            addend,
            scale,
        } = operands;
        if scale.0 != 0 && !self.shape.takes_scale() {
            let name = self.shape.element.name();
            return Err(invalid(
                "gemm",
                format!("a scale for matrices of {name}; only those of F8_E4M3 take one"),
            ));
        }
        for (what, prepared, passed) in [
            ("bias", self.has_bias(), bias),
            ("addend", self.has_addend(), addend),
        ] {
            if prepared != (passed.0 != 0) {
                let is = if prepared { "with" } else { "without" };
                return Err(invalid(
                    "gemm",
                    format!(
                        "the GEMM was prepared {is} {what}, but the {what} passed is {passed:?}"
                    ),
                ));
            }
        }
        let low_bits = a.0 | b.0 | c.0 | bias.0 | addend.0;
        if self.library.dialect.alignments.is_none() || low_bits.is_multiple_of(ALIGNMENT) {
            return Ok(heuristic);
        }
        let unaligned = self.unaligned.and_then(|index| self.heuristics.get(index));
        let unaligned = unaligned.filter(|_| low_bits.is_multiple_of(self.shape.element.bytes()));
        unaligned.ok_or_else(|| self.no_unaligned_candidate(operands))
    }

    #[cold]
    fn no_such_candidate(&self, candidate: u32) -> Failure {
        let count = self.heuristics.len();
        invalid(
            "gemm",
            format!("candidate {candidate} of {count}: they are counted from 0"),
        )
    }

    #[cold]
    fn no_unaligned_candidate(&self, operands: &GemmOperands) -> Failure {
        invalid(
            "gemm",
            format!(
                "{} needs operands aligned to {ALIGNMENT} bytes for {:?}, but they are {operands:x?}",
                self.library.dialect.name, self.shape
            ),
        )
    }

    /// Destroys the library's objects and frees the workspace. Tries every step and returns the first failure.
    pub fn release(&self, free: impl FnOnce(RawAllocation) -> CallResult<()>) -> CallResult<()> {
        let (library, table) = (self.library, &self.library.table);
        let mut result = Ok(());
        let made = |object: &Opaque| !object.0.is_null();
        for layout in self.layouts.iter().copied().filter(made) {
            // SAFETY: this GEMM created the layout and does not use it again.
            let code = unsafe { (table.layout_destroy)(layout.0) };
            result = result.and(library.check("MatrixLayoutDestroy", code));
        }
        if made(&self.operation) {
            // SAFETY: this GEMM created the operation and does not use it again.
            let code = unsafe { (table.operation_destroy)(self.operation.0) };
            result = result.and(library.check("MatmulDescDestroy", code));
        }
        match &self.workspace {
            Some(workspace) => result.and(free(workspace.handle)),
            None => result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: GemmLayout = GemmLayout {
        m: 3,
        n: 4,
        k: 5,
        a_stride: 5,
        b_stride: 4,
        c_stride: 4,
        element: ElementTypeCode::BF16,
        b_order: MatrixOrderCode::ROWS,
        bias: 0,
        addend: 0,
    };

    #[test]
    fn a_shape_that_is_none_is_refused_with_what_is_wrong() {
        assert_eq!(check_shape(&SHAPE), Ok(()));
        let columns = GemmLayout {
            b_order: MatrixOrderCode::COLUMNS,
            ..SHAPE
        };
        for (shape, word) in [
            (GemmLayout { m: 0, ..SHAPE }, "nothing to multiply"),
            (
                GemmLayout {
                    a_stride: 4,
                    ..SHAPE
                },
                "A has a stride of 4",
            ),
            (
                GemmLayout {
                    c_stride: 3,
                    ..SHAPE
                },
                "C has a stride of 3",
            ),
            (
                GemmLayout {
                    b_stride: 3,
                    ..SHAPE
                },
                "B has a stride of 3",
            ),
            (
                columns,
                "B has a stride of 4 elements; it must be at least 5",
            ),
            (
                GemmLayout {
                    c_stride: 1 << 63,
                    ..SHAPE
                },
                "C has a stride",
            ),
            (
                GemmLayout {
                    element: ElementTypeCode::F64,
                    ..SHAPE
                },
                "not F64",
            ),
            (
                GemmLayout {
                    b_order: MatrixOrderCode(7),
                    ..SHAPE
                },
                "matrix order 7",
            ),
        ] {
            let failure = check_shape(&shape).unwrap_err();
            assert_eq!(failure.status, Status::INVALID_ARGUMENT);
            assert!(failure.message.contains(word), "{failure}");
        }
    }
}
