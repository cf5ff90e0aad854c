use super::*;

/// Eight lines `mov.u32 %r0, %r0;`, compressed by `zstd -19 --check`.
const FRAME: &[u8] = b"\x28\xb5\x2f\xfd\x24\x90\xd5\x01\x00\x04\x02\x6d\x6f\x76\x2e\x75\x33\x32\x20\x25\
    \x72\x30\x2c\x3b\x0a\x31\x32\x32\x34\x33\x31\x34\x33\x35\x36\x37\x2c\x20\x25\x72\x34\x3b\x0a\x0c\xa0\
    \x10\xd8\xec\x3d\x80\x13\x19\x07\x98\x3b\x33\xb7\xb0\x95\x5b\xf8\x96\xaa\x4b\x58\x5f\x06\xf1\xf0\x35\
    \x93";

fn text() -> Vec<u8> {
    let line = |index: u32| format!("mov.u32 %r{index}, %r{};\n", index * 7 % 5);
    (0..8).map(line).collect::<String>().into_bytes()
}

#[test]
fn an_image_has_the_bytes_that_were_compressed_and_text_a_zero_byte_behind_them() {
    let machine_code = CompressedImage::machine_code(FRAME).decompress().unwrap();
    assert_eq!(*machine_code, *text());
    let terminated = CompressedImage::text(FRAME).decompress().unwrap();
    assert_eq!(*terminated, *[text(), vec![0]].concat());
}

#[test]
fn images_begin_at_a_multiple_of_64_wherever_they_are_moved() {
    let mut all: Vec<AlignedBytes> = Vec::new();
    for length in [0, 1, 63, 64, 1000, 300_000] {
        all.push(AlignedBytes::from(vec![1; length].as_slice()));
        all.push(AlignedBytes::zeroed(length));
    }
    for bytes in all {
        assert_eq!(bytes.as_ptr().addr() % 64, 0);
    }
}

#[test]
fn images_that_are_decompressed_side_by_side_keep_their_order() {
    let corrupt = CompressedImage::machine_code(b"no frame");
    let images = [
        CompressedImage::text(FRAME),
        corrupt,
        CompressedImage::machine_code(FRAME),
    ];
    let all = decompress_all(&images);
    let lengths = all.iter().map(|each| each.as_ref().ok().map(|it| it.len()));
    assert!(lengths.eq([Some(145), None, Some(144)]));
}

#[test]
fn a_truncated_image_is_an_error() {
    for length in 0..FRAME.len() {
        assert!(decompress(&FRAME[..length]).is_err(), "{length} bytes");
    }
}

#[test]
fn an_image_with_a_changed_bit_is_an_error_or_has_the_same_bytes() {
    let bits = 8 * FRAME.len();
    let mut errors = 0;
    for bit in 0..bits {
        let mut changed = FRAME.to_vec();
        changed[bit / 8] ^= 1 << (bit % 8);
        match decompress(&changed) {
            // The format has bits that decoders ignore, and several encodings of the same bytes.
            Ok(bytes) => assert_eq!(*bytes, *text(), "bit {bit}"),
            Err(_) => errors += 1,
        }
    }
    assert!(errors > bits * 9 / 10, "{errors} errors of {bits}");
}

#[test]
fn an_image_without_a_checksum_is_an_error() {
    let mut without = FRAME[..FRAME.len() - 4].to_vec();
    without[4] &= !4;
    assert!(matches!(decompress(&without), Err(CorruptImage::Checksum)));
}

#[test]
fn an_image_that_announces_no_size_or_too_large_a_one_is_an_error_before_anything_is_allocated() {
    // A window of 1 KiB, without a content size and with one of eight bytes.
    let without = [&FRAME[..4], &[0x04, 0], &FRAME[6..]].concat();
    let told = decompress(&without).unwrap_err();
    assert!(
        matches!(told, CorruptImage::Announced { bytes: 0 }),
        "{told}"
    );
    let announced = [&FRAME[..4], &[0xc4, 0], &u64::MAX.to_le_bytes()].concat();
    let told = decompress(&announced).unwrap_err();
    assert!(
        matches!(told, CorruptImage::Announced { bytes: u64::MAX }),
        "{told}"
    );
}

#[test]
fn an_error_says_what_is_wrong_and_has_the_decoders_as_its_source() {
    let told = decompress(&FRAME[..20]).unwrap_err();
    let said = told.to_string();
    assert!(
        said.starts_with("corrupt kernel image: not a complete zstd frame: "),
        "{said}"
    );
    assert!(std::error::Error::source(&told).is_some());
}
