//! Copies of rows.

use crate::clean;
use crate::rank::{ELEMENT, GUARD, Rank};
use crate::support::vendors::{Vendor, role};
use rstest::rstest;
use symmem::backend::RemoteAccess;
use symmem::backend::abi::*;

#[rstest]
fn rows_are_copied_between_strides_and_replayed(
    #[values(Vendor::Cuda, Vendor::Hip)] vendor: Vendor,
) {
    clean(role(vendor, "rows::rows", vendor.libraries(), &[]));
    let call = match vendor {
        Vendor::Cuda => "cuMemcpy2DAsync_v2",
        Vendor::Hip => "hipMemcpy2DAsync",
    };
    let environment = [("FAKE_DEVICE_FAIL", call), ("PRODUCTS_WORDS", call)];
    clean(role(
        vendor,
        "rows::failing_rows",
        vendor.libraries(),
        &environment,
    ));
}

const ROWS: u64 = 5;
const WIDTH: u64 = 7;

/// Returns a copy of `ROWS` rows of `WIDTH` elements, 9 elements apart in the source and 12 in the destination.
fn some_rows(rank: &Rank) -> (RowsCopy, Vec<u16>) {
    let numbers: Vec<u16> = (0..9 * ROWS as u16).collect();
    let copy = RowsCopy {
        destination: rank.place(&vec![GUARD; 12 * ROWS as usize], 0),
        destination_stride: 12 * ELEMENT,
        source: rank.place(&numbers, 0),
        source_stride: 9 * ELEMENT,
        bytes: WIDTH * ELEMENT,
        rows: ROWS,
        direction: DirectionCode::LOCAL,
        reserved: 0,
    };
    (copy, numbers)
}

fn check_rows(rank: &Rank, copy: &RowsCopy, numbers: &[u16]) {
    let seen = rank.read(copy.destination, 12 * ROWS as usize);
    for (place, seen) in seen.into_iter().enumerate() {
        let (row, column) = (place / 12, place % 12);
        let expected = match column < WIDTH as usize {
            true => numbers[row * 9 + column],
            false => GUARD,
        };
        assert_eq!(seen, expected, "row {row}, column {column}");
    }
}

#[test]
#[ignore = "run in a child process by the test above"]
fn rows() {
    let rank = Rank::open();
    let (copy, mut numbers) = some_rows(&rank);
    let enqueue = |copy: &RowsCopy| {
        // SAFETY: both ranges are live until the stream is drained.
        unsafe { rank.backend.transfer_rows(copy, rank.stream) }
    };
    for none in [RowsCopy { rows: 0, ..copy }, RowsCopy { bytes: 0, ..copy }] {
        enqueue(&none).unwrap();
        let seen = rank.read(copy.destination, 12);
        assert_eq!(seen, [GUARD; 12], "nothing to copy");
    }
    enqueue(&copy).unwrap();
    check_rows(&rank, &copy, &numbers);
    rank.replay(
        2,
        || enqueue(&copy).unwrap(),
        |time| {
            numbers
                .iter_mut()
                .for_each(|number| *number += 100 * time as u16);
            rank.write(copy.source, &numbers);
        },
    );
    check_rows(&rank, &copy, &numbers);
    rank.close();
}

#[test]
#[ignore = "run in a child process by the test above"]
fn failing_rows() {
    let rank = Rank::open();
    let (copy, numbers) = some_rows(&rank);
    // SAFETY: both ranges are live until the stream is drained.
    let enqueue = || unsafe { rank.backend.transfer_rows(&copy, rank.stream) };
    let failure = enqueue().unwrap_err();
    assert_eq!(failure.call, std::env::var("PRODUCTS_WORDS").unwrap());
    enqueue().unwrap();
    check_rows(&rank, &copy, &numbers);
    rank.close();
}
