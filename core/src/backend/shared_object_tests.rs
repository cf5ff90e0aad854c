//! Files that the dynamic loader must not be given, as bytes.

use super::*;
use std::cell::Cell;

/// What a test changes of a whole shared object.
struct Object {
    header: [u8; HEADER_BYTES],
    segments: Vec<Segment>,
    length: usize,
}

fn segment(kind: u32, offset: u64, address: u64, file_bytes: u64, memory_bytes: u64) -> Segment {
    Segment {
        kind,
        offset,
        address,
        file_bytes,
        memory_bytes,
    }
}

/// Two segments, of which the second ends in zeroes that are not in the file, and holds the dynamic section.
fn whole() -> Object {
    let mut header = [0; HEADER_BYTES];
    header[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', ELF_CLASS, BYTE_ORDER]);
    header[16..18].copy_from_slice(&SHARED_OBJECT.to_ne_bytes());
    header[18..20].copy_from_slice(&MACHINE.to_ne_bytes());
    header[32..40].copy_from_slice(&(HEADER_BYTES as u64).to_ne_bytes());
    header[54..56].copy_from_slice(&(PROGRAM_HEADER_BYTES as u16).to_ne_bytes());
    Object {
        header,
        segments: vec![
            segment(LOAD, 0, 0, 0x1000, 0x1000),
            segment(LOAD, 0x1000, 0x2000, 0x800, 0x3000),
            segment(DYNAMIC, 0x1100, 0x2100, 0x100, 0x100),
        ],
        length: 0x1800,
    }
}

impl Object {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.header.to_vec();
        bytes[56..58].copy_from_slice(&(self.segments.len() as u16).to_ne_bytes());
        for segment in &self.segments {
            let mut header = [0; PROGRAM_HEADER_BYTES];
            header[..4].copy_from_slice(&segment.kind.to_ne_bytes());
            for (at, value) in [
                (8, segment.offset),
                (16, segment.address),
                (32, segment.file_bytes),
                (40, segment.memory_bytes),
            ] {
                header[at..at + 8].copy_from_slice(&value.to_ne_bytes());
            }
            bytes.extend(header);
        }
        bytes.resize(self.length, 0);
        bytes
    }
}

/// Checks a file of these bytes, and that nothing past its end is asked for.
fn checked(bytes: &[u8]) -> Result<(), ObjectError> {
    check(bytes.len() as u64, |buffer, offset| {
        let from = offset as usize;
        buffer.copy_from_slice(&bytes[from..from + buffer.len()]);
        Ok(())
    })
}

fn changed(change: impl FnOnce(&mut Object)) -> Result<(), ObjectError> {
    let mut object = whole();
    change(&mut object);
    checked(&object.bytes())
}

#[test]
fn a_whole_object_passes_and_so_does_one_with_more_behind_its_segments() {
    changed(|_| {}).unwrap();
    changed(|object| object.length += 100).unwrap();
    // A segment of zeroes may state any place in the file.
    changed(|object| {
        object
            .segments
            .insert(2, segment(LOAD, 1 << 40, 0x8000, 0, 0x1000));
    })
    .unwrap();
    // Thread-local zeroes may lie anywhere.
    changed(|object| {
        let zeroes = segment(THREAD_LOCAL, 0x1800, 0x2840, 0, 0x40);
        object.segments.push(zeroes);
    })
    .unwrap();
    // The loader does not read parts of other kinds, such as that of the stack.
    let stack = segment(0x6474_e551, 0, 1 << 60, 1 << 60, 0);
    changed(|object| object.segments.push(stack)).unwrap();
}

// Miri isolates files.
#[cfg(not(miri))]
#[test]
fn every_library_of_this_process_passes() {
    use std::os::unix::fs::FileExt;
    let list = std::fs::read_to_string("/proc/self/maps").expect("Linux lists them");
    let files = list.lines().filter_map(|line| line.split_once(" r-xp "));
    let libraries = files.filter_map(|(_, rest)| rest.find('/').map(|at| &rest[at..]));
    let mut checks = 0;
    for library in libraries.filter(|path| path.contains(".so")) {
        let file = std::fs::File::open(library).expect("it is loaded");
        let length = file.metadata().expect("it is open").len();
        if let Err(error) = check(length, |buffer, offset| file.read_exact_at(buffer, offset)) {
            panic!("{library}: {error}");
        }
        checks += 1;
    }
    assert!(checks > 0, "the C library is loaded: {list}");
}

#[test]
fn an_object_that_is_cut_anywhere_is_truncated() {
    let bytes = whole().bytes();
    for length in 0..bytes.len() {
        let error = checked(&bytes[..length]).unwrap_err();
        let ObjectError::Truncated { found, needed, .. } = error else {
            panic!("{length} bytes: {error}");
        };
        assert!(found == length as u64 && needed > found, "{error}");
    }
}

#[test]
fn a_file_of_another_kind_is_named_by_its_first_bytes() {
    for (bytes, found) in [
        (&b"#!/bin/sh\n"[..], "\"#!/b\""),
        (b"MZ", "\"MZ\\x00\\x00\""),
        (&[b' '; 4096], "\"    \""),
    ] {
        let error = checked(bytes).unwrap_err();
        assert!(matches!(error, ObjectError::NotElf { .. }), "{error:?}");
        assert!(error.to_string().contains(found), "{error}");
    }
}

#[test]
fn an_object_for_another_machine_is_refused_with_both() {
    let (other, words) = match MACHINE {
        X86_64 => (AARCH64, "it is for aarch64"),
        _ => (X86_64, "it is for x86-64"),
    };
    let error = changed(|object| object.header[18..20].copy_from_slice(&other.to_ne_bytes()));
    let text = error.unwrap_err().to_string();
    assert!(
        text.contains(words) && text.contains(machine_name(MACHINE)),
        "{text}"
    );
    let narrow = changed(|object| object.header[4] = 1).unwrap_err();
    assert!(matches!(narrow, ObjectError::OtherClass { found: 1 }));
    let order = 3 - BYTE_ORDER;
    let swapped = changed(|object| object.header[5] = order).unwrap_err();
    assert!(matches!(swapped, ObjectError::OtherByteOrder { found } if found == order));
    let program = changed(|object| object.header[16..18].copy_from_slice(&2_u16.to_ne_bytes()));
    assert!(matches!(
        program.unwrap_err(),
        ObjectError::NotShared { found: 2 }
    ));
}

#[test]
fn headers_that_contradict_themselves_are_damage() {
    let damages: [fn(&mut Object); 11] = [
        |object| object.header[54] += 1,
        |object| object.segments.clear(),
        |object| object.segments[1].memory_bytes = 0x10,
        |object| object.segments[1].address = 0x800,
        |object| object.segments[1].memory_bytes = u64::MAX,
        |object| object.segments[2].address = 0x2780,
        |object| object.segments.truncate(2),
        |object| (object.segments).push(segment(NOTE, 0, 0x1000, 8, 8)),
        |object| (object.segments).push(segment(PROPERTY, 0, 1 << 60, 8, 8)),
        |object| (object.segments).push(segment(THREAD_LOCAL, 0, 0, 8, 4)),
        |object| {
            object.length = 1 << 20;
            let unused = (0..MOST_PROGRAM_HEADERS).map(|_| segment(0, 0, 0, 0, 0));
            object.segments.extend(unused);
        },
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        let error = changed(damage).unwrap_err();
        assert!(
            matches!(error, ObjectError::Damaged(_)),
            "{number}: {error:?}"
        );
    }
}

#[test]
fn an_offset_past_any_file_is_a_cut_and_no_overflow() {
    let far = |at: usize| {
        changed(move |object| object.header[at..at + 8].copy_from_slice(&u64::MAX.to_ne_bytes()))
    };
    assert!(matches!(far(32), Err(ObjectError::Truncated { .. })));
    let segment = changed(|object| object.segments[0].offset = u64::MAX);
    assert!(matches!(segment, Err(ObjectError::Truncated { .. })));
}

#[test]
fn a_file_that_cannot_be_read_gives_the_systems_reason() {
    let calls = Cell::new(0);
    let error = check(4096, |_, _| {
        calls.set(calls.get() + 1);
        Err(io::Error::from_raw_os_error(5))
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("os error 5"), "{error}");
    assert_eq!(calls.get(), 1, "the first failure ends the check");
}
