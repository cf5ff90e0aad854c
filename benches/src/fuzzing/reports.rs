//! Reports, as `symmem compare` reads them.
//!
//! An input is one report, which is compared with itself, or two with a zero byte between them. An input that starts
//! with 0xff, a byte of no text, is a list of changes of an example report: so a fuzzer reaches the code that draws
//! numbers without having to write whole reports. See [`edited`].

use serde_json::Value;

use crate::report::Report;
use crate::report::compare::{self, CompareError, Comparison, Run};

/// A report with each kind of measurement.
const EXAMPLE: &str = include_str!("example.json");
/// Bytes of a change: index of a value (2, little-endian), kind (1), number (8).
const EDIT_BYTES: usize = 11;
/// Changes of one input that count: more would only take time.
const MOST_EDITS: usize = 64;

/// Checks `bytes` as reports.
pub fn check(bytes: &[u8]) {
    if let Some(edits) = bytes.strip_prefix(&[0xff]) {
        return compare(&[&edited(edits), EXAMPLE]);
    }
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match text.split_once('\0') {
        Some((one, other)) => compare(&[one, other]),
        None => compare(&[text, text]),
    }
}

/// Reads and compares reports, and draws the comparison as the command does.
fn compare(texts: &[&str]) {
    let mut runs = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        let file = format!("{index}.json");
        match Run::parse(&file, text) {
            Ok(run) => {
                survives(&run.report);
                runs.push(run);
            }
            Err(error) => {
                assert!(matches!(error, CompareError::Read { .. }));
                let text = error.to_string();
                assert!(text.starts_with(&file), "{text}");
                let faults = ["line ", "has schema "];
                assert!(faults.iter().any(|fault| text.contains(fault)), "{text}");
                return;
            }
        }
    }
    match Comparison::new(runs) {
        Ok(comparison) => {
            let read = texts.iter().map(|text| text.len()).sum();
            expect_short(&compare::terminal(&comparison), read);
            expect_short(
                &compare::html(&comparison).expect("memory takes any text"),
                read,
            );
        }
        Err(error) => assert!(error.to_string().contains("0.json"), "{error}"),
    }
}

/// A report is the same after it is written and read.
fn survives(report: &Report) {
    let written = report.to_json().expect("a report is always JSON");
    assert_eq!(&Report::from_json(&written).unwrap(), report);
}

/// Checks that a page is proportional to what was read: style and script, then a hundred bytes for each.
#[track_caller]
fn expect_short(drawn: &str, read: usize) {
    let most = 100 * read + (1 << 20);
    assert!(drawn.len() <= most, "{} bytes from {read}", drawn.len());
}

/// Returns the example with changes. A change sets the value of its index to a number, 0 to 2, or removes it, or
/// doubles the list that it is in.
fn edited(edits: &[u8]) -> String {
    let mut report: Value = serde_json::from_str(EXAMPLE).expect("the example is JSON");
    let mut places = Vec::new();
    collect(&report, &mut String::new(), &mut places);
    for edit in edits.chunks_exact(EDIT_BYTES).take(MOST_EDITS) {
        let index = usize::from(u16::from_le_bytes([edit[0], edit[1]]));
        let mut number = [0; 8];
        number.copy_from_slice(&edit[3..]);
        // A place may be gone by an earlier change.
        apply(&mut report, &places[index % places.len()], edit[2], number);
    }
    report.to_string()
}

/// Collects the JSON pointers of all numbers, texts, lists and records.
fn collect(value: &Value, at: &mut String, found: &mut Vec<String>) {
    let length = at.len();
    let mut within = |key: &str, value: &Value, at: &mut String| {
        *at += &format!("/{}", key.replace('~', "~0").replace('/', "~1"));
        found.push(at.clone());
        collect(value, at, found);
        at.truncate(length);
    };
    match value {
        Value::Array(values) => {
            for (index, value) in values.iter().enumerate() {
                within(&index.to_string(), value, at);
            }
        }
        Value::Object(values) => {
            for (key, value) in values {
                within(key, value, at);
            }
        }
        _ => {}
    }
}

fn apply(report: &mut Value, place: &str, kind: u8, number: [u8; 8]) {
    let Some((parent, key)) = place.rsplit_once('/') else {
        return;
    };
    let new = match kind % 8 {
        // JSON has no infinity: it becomes null.
        0 => Value::from(f64::from_le_bytes(number)),
        1 => Value::from(u64::from_le_bytes(number)),
        2 => Value::from(u32::from_le_bytes([
            number[0], number[1], number[2], number[3],
        ])),
        3 => Value::from(number[0] % 3),
        4 => Value::from(String::from_utf8_lossy(&number).into_owned()),
        5 => Value::Null,
        _ => return restructure(report.pointer_mut(parent), key, kind),
    };
    if let Some(value) = report.pointer_mut(place) {
        *value = new;
    }
}

/// Removes a value from its list or record, or adds its list's values once more.
fn restructure(parent: Option<&mut Value>, key: &str, kind: u8) {
    match parent {
        Some(Value::Array(values)) if kind % 8 == 6 && values.len() < 64 => {
            values.extend_from_within(..)
        }
        Some(Value::Array(values)) => {
            let index = key.parse().unwrap_or(values.len());
            if index < values.len() {
                values.remove(index);
            }
        }
        Some(Value::Object(values)) => {
            values.remove(&key.replace("~1", "/").replace("~0", "~"));
        }
        _ => {}
    }
}
