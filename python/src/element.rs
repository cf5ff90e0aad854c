//! Element types, by the names that NumPy and PyTorch give them.

use crate::dlpack::DataType;
use crate::failure::{Failure, Result, invalid};
use pyo3::prelude::*;
use pyo3::types::PyString;
use symmem::{ElementType, ReduceOp};

/// A type, its name, and its code and bits in DLPack.
type Row = (ElementType, &'static str, u8, u8);

/// Every element type.
const TYPES: [Row; 14] = [
    (ElementType::I8, "int8", DataType::INT, 8),
    (ElementType::U8, "uint8", DataType::UINT, 8),
    (ElementType::I16, "int16", DataType::INT, 16),
    (ElementType::U16, "uint16", DataType::UINT, 16),
    (ElementType::I32, "int32", DataType::INT, 32),
    (ElementType::U32, "uint32", DataType::UINT, 32),
    (ElementType::I64, "int64", DataType::INT, 64),
    (ElementType::U64, "uint64", DataType::UINT, 64),
    (ElementType::F16, "float16", DataType::FLOAT, 16),
    (ElementType::Bf16, "bfloat16", DataType::BFLOAT, 16),
    (ElementType::F32, "float32", DataType::FLOAT, 32),
    (ElementType::F64, "float64", DataType::FLOAT, 64),
    (
        ElementType::F8E4M3,
        "float8_e4m3fn",
        DataType::FLOAT8_E4M3FN,
        8,
    ),
    (ElementType::F8E5M2, "float8_e5m2", DataType::FLOAT8_E5M2, 8),
];

fn row(element: ElementType) -> Row {
    let found = TYPES.iter().find(|row| row.0 == element);
    // The table has every type of this version; bytes are always right for moves.
    *found.unwrap_or(&TYPES[1])
}

/// Returns the name of an element type.
pub fn name_of(element: ElementType) -> &'static str {
    row(element).1
}

/// Returns the bytes of an element.
pub fn bytes_of(element: ElementType) -> usize {
    usize::from(row(element).3 / 8)
}

/// Returns the type in DLPack.
pub fn dlpack_of(element: ElementType) -> DataType {
    let (_, _, code, bits) = row(element);
    DataType {
        code,
        bits,
        lanes: 1,
    }
}

/// Returns the element type of a type in DLPack, if symmem has it.
pub fn of_dlpack(theirs: DataType) -> Option<ElementType> {
    let is_it = |row: &&Row| (row.2, row.3) == (theirs.code, theirs.bits) && theirs.lanes == 1;
    TYPES.iter().find(is_it).map(|row| row.0)
}

/// Returns the element type of this name, if symmem has it.
pub fn of_name(name: &str) -> Option<ElementType> {
    TYPES.iter().find(|row| row.1 == name).map(|row| row.0)
}

/// Returns the element type that a NumPy, PyTorch or ml_dtypes type or its name stands for.
///
/// # Errors
/// If it is none of symmem's.
pub fn of_object(dtype: &Bound<'_, PyAny>) -> Result<ElementType> {
    let text = match dtype.cast::<PyString>() {
        Ok(name) => name.to_string(),
        // A type object of NumPy has `__name__`, a dtype `name`; PyTorch's has neither, and prints as `torch.float32`.
        Err(_) => match dtype.getattr("__name__").or_else(|_| dtype.getattr("name")) {
            Ok(name) => name.extract()?,
            Err(_) => dtype.str()?.to_string(),
        },
    };
    let name = text.rsplit('.').next().unwrap_or(&text);
    let found = of_name(name).or_else(|| of_typestr(name));
    found.ok_or_else(|| unknown(name))
}

/// Returns the element type of a type's text in NumPy, such as `<f4` or `f4`, if symmem has it.
pub fn of_typestr(text: &str) -> Option<ElementType> {
    let code = text.trim_start_matches(['<', '|', '=']);
    let (kind, bytes) = code.split_at_checked(1)?;
    let kind = match kind {
        "i" => DataType::INT,
        "u" => DataType::UINT,
        "f" => DataType::FLOAT,
        _ => return None,
    };
    let bits = bytes.parse::<u8>().ok()?.checked_mul(8)?;
    of_dlpack(DataType {
        code: kind,
        bits,
        lanes: 1,
    })
}

/// Returns the failure of an element type that symmem does not have.
pub fn unknown(name: &str) -> Failure {
    let names: Vec<&str> = TYPES.iter().map(|row| row.1).collect();
    invalid(format!(
        "there is no element type {name:?}; use one of {}",
        names.join(", ")
    ))
}

/// Reductions, each by its place here for operators, and by its names.
const REDUCTIONS: [(ReduceOp, &[&str]); 5] = [
    (ReduceOp::Sum, &["sum"]),
    (ReduceOp::Average, &["average", "avg", "mean"]),
    (ReduceOp::Minimum, &["minimum", "min"]),
    (ReduceOp::Maximum, &["maximum", "max"]),
    (ReduceOp::Product, &["product", "prod"]),
];

/// Returns the numbers of reductions by all their names.
pub fn reductions() -> Vec<(&'static str, usize)> {
    let all = REDUCTIONS.iter().enumerate();
    all.flat_map(|(number, (_, names))| names.iter().map(move |name| (*name, number)))
        .collect()
}

/// Returns the reduction of a name.
///
/// # Errors
/// If there is none.
pub fn reduction(name: &str) -> Result<ReduceOp> {
    let found = REDUCTIONS.iter().find(|(_, names)| names.contains(&name));
    found.map(|(operator, _)| *operator).ok_or_else(|| {
        let names: Vec<&str> = REDUCTIONS.iter().map(|(_, names)| names[0]).collect();
        invalid(format!(
            "there is no reduction {name:?}; use one of {}",
            names.join(", ")
        ))
    })
}

/// Returns the reduction of a number.
///
/// # Errors
/// If there is none.
pub fn reduction_of(number: i64) -> Result<ReduceOp> {
    let found = usize::try_from(number)
        .ok()
        .and_then(|number| REDUCTIONS.get(number));
    let found = found.map(|(operator, _)| *operator);
    found.ok_or_else(|| invalid(format!("there is no reduction {number}")))
}
