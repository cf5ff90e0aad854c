//! MessagePack, as far as the metadata of code objects uses it (from the format's public specification).

/// A value. Keys of maps are strings in this metadata.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Nothing,
    Boolean(bool),
    Integer(i64),
    Text(String),
    List(Vec<Value>),
    Map(Vec<(String, Value)>),
}

impl Value {
    /// Returns the value of a key, if this is a map that has it.
    pub fn get(&self, key: &str) -> Option<&Value> {
        match self {
            Self::Map(entries) => entries.iter().find(|(k, _)| k == key).map(|(_, v)| v),
            _ => None,
        }
    }

    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn number(&self) -> Option<u64> {
        match self {
            Self::Integer(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    pub fn list(&self) -> &[Value] {
        match self {
            Self::List(values) => values,
            _ => &[],
        }
    }
}

/// The deepest nesting of lists and maps. Metadata nests less; a damaged file must not exhaust the stack.
const DEPTH: u32 = 16;

/// Reads one value from the start of `bytes`; returns `None` if they are no such value.
pub(crate) fn read(bytes: &[u8]) -> Option<Value> {
    value(&mut { bytes }, DEPTH)
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

/// Reads a big-endian number of `length` bytes.
fn unsigned(bytes: &mut &[u8], length: usize) -> Option<u64> {
    let taken = take(bytes, length)?;
    Some(taken.iter().fold(0, |n, byte| n << 8 | u64::from(*byte)))
}

fn value(bytes: &mut &[u8], depth: u32) -> Option<Value> {
    let depth = depth.checked_sub(1)?;
    let kind = unsigned(bytes, 1)?;
    Some(match kind {
        0x00..=0x7f => Value::Integer(kind as i64),
        0x80..=0x8f => map(bytes, kind & 0xf, depth)?,
        0x90..=0x9f => list(bytes, kind & 0xf, depth)?,
        0xa0..=0xbf => text(bytes, kind & 0x1f)?,
        0xc0 => Value::Nothing,
        0xc2 | 0xc3 => Value::Boolean(kind == 0xc3),
        // Unsigned and signed integers of 1, 2, 4 and 8 bytes.
        0xcc..=0xcf => Value::Integer(unsigned(bytes, 1 << (kind - 0xcc))?.try_into().ok()?),
        0xd0..=0xd3 => {
            let length = 1 << (kind - 0xd0);
            let shift = 64 - 8 * length as u32;
            Value::Integer((unsigned(bytes, length)? << shift) as i64 >> shift)
        }
        // Strings, lists and maps with a length of 1, 2 or 4 bytes.
        0xd9..=0xdb => {
            let length = unsigned(bytes, 1 << (kind - 0xd9))?;
            text(bytes, length)?
        }
        0xdc | 0xdd => {
            let length = unsigned(bytes, 2 << (kind - 0xdc))?;
            list(bytes, length, depth)?
        }
        0xde | 0xdf => {
            let length = unsigned(bytes, 2 << (kind - 0xde))?;
            map(bytes, length, depth)?
        }
        // Floats, binary data and extensions do not occur in this metadata.
        _ => return None,
    })
}

fn text(bytes: &mut &[u8], length: u64) -> Option<Value> {
    let taken = take(bytes, length as usize)?;
    Some(Value::Text(String::from_utf8(taken.to_vec()).ok()?))
}

fn list(bytes: &mut &[u8], length: u64, depth: u32) -> Option<Value> {
    let values = (0..length).map(|_| value(bytes, depth));
    Some(Value::List(values.collect::<Option<_>>()?))
}

fn map(bytes: &mut &[u8], length: u64, depth: u32) -> Option<Value> {
    let mut entries = Vec::new();
    for _ in 0..length {
        let Value::Text(key) = value(bytes, depth)? else {
            return None;
        };
        entries.push((key, value(bytes, depth)?));
    }
    Some(Value::Map(entries))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_lists_and_numbers_are_read() {
        let bytes = b"\x82\xa4.abc\x93\x01\xcd\x01\x00\xd1\xff\xfe\xa1d\xc3";
        let read = read(bytes).expect("good bytes");
        let numbers: Vec<Value> = [1, 256, -2].map(Value::Integer).to_vec();
        assert_eq!(read.get(".abc"), Some(&Value::List(numbers)));
        assert_eq!(read.get("d"), Some(&Value::Boolean(true)));
    }

    #[test]
    fn damaged_bytes_are_refused() {
        assert_eq!(read(b"\x82\xa4.ab"), None, "cut short");
        assert_eq!(read(&[0x91; 100]), None, "nested without end");
        assert_eq!(read(b"\xdd\xff\xff\xff\xff"), None, "longer than the bytes");
        assert_eq!(read(b"\x81\x01\x01"), None, "a key that is no string");
    }
}
