//! The wire format of protocol buffers, as far as ONNX needs it (protobuf.dev/programming-guides/encoding):
//! a message is read in place, field by field, and only slices of it are kept.
//!
//! A crate for protocol buffers would first build whole messages, as large as a hostile file claims. It also
//! needs code that is generated from the schema of ONNX, while this reader wants two dozen of its
//! fields.

/// Errors of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WireError {
    #[error("the file ends within a field")]
    CutShort,
    #[error("a number is longer than 64 bits")]
    LongNumber,
    #[error("a field has the wire type {0}: allowed is 0, 1, 2 or 5")]
    WireType(u8),
    #[error("field {0} does not have the type that ONNX defines")]
    OtherType(u32),
    #[error("a name is not UTF-8")]
    Text,
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Value<'a> {
    Varint(u64),
    Fixed32([u8; 4]),
    Fixed64,
    Bytes(&'a [u8]),
}

/// A field of a message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Field<'a> {
    pub number: u32,
    value: Value<'a>,
}

impl<'a> Field<'a> {
    /// A signed number, as ONNX has them: in two's complement and no zigzag.
    pub fn integer(self) -> Result<i64, WireError> {
        match self.value {
            Value::Varint(bits) => Ok(bits as i64),
            _ => Err(WireError::OtherType(self.number)),
        }
    }

    pub fn float(self) -> Result<f32, WireError> {
        match self.value {
            Value::Fixed32(bytes) => Ok(f32::from_le_bytes(bytes)),
            _ => Err(WireError::OtherType(self.number)),
        }
    }

    /// Bytes, or a message within.
    pub fn bytes(self) -> Result<&'a [u8], WireError> {
        match self.value {
            Value::Bytes(bytes) => Ok(bytes),
            _ => Err(WireError::OtherType(self.number)),
        }
    }

    pub fn text(self) -> Result<&'a str, WireError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| WireError::Text)
    }

    /// Adds the numbers of a repeated field, packed or a single one.
    pub fn integers(self, into: &mut Vec<i64>) -> Result<(), WireError> {
        let Value::Bytes(mut bytes) = self.value else {
            into.push(self.integer()?);
            return Ok(());
        };
        while !bytes.is_empty() {
            into.push(varint(&mut bytes)? as i64);
        }
        Ok(())
    }

    /// Adds the numbers of a repeated field, packed or a single one.
    pub fn floats(self, into: &mut Vec<f32>) -> Result<(), WireError> {
        let Value::Bytes(bytes) = self.value else {
            into.push(self.float()?);
            return Ok(());
        };
        let (numbers, []) = bytes.as_chunks::<4>() else { return Err(WireError::CutShort) };
        into.extend(numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)));
        Ok(())
    }
}

/// The fields of a message, in the order in which they were written. After an error there are no more.
pub(crate) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub fn of(message: &'a [u8]) -> Self {
        Self(message)
    }

    fn read(&mut self) -> Result<Field<'a>, WireError> {
        let key = varint(&mut self.0)?;
        let number = u32::try_from(key >> 3).map_err(|_| WireError::LongNumber)?;
        let value = match (key & 7) as u8 {
            0 => Value::Varint(varint(&mut self.0)?),
            1 => {
                self.take(8)?;
                Value::Fixed64
            }
            2 => {
                let len = varint(&mut self.0)?;
                Value::Bytes(self.take(usize::try_from(len).unwrap_or(usize::MAX))?)
            }
            5 => {
                let mut bytes = [0; 4];
                bytes.copy_from_slice(self.take(4)?);
                Value::Fixed32(bytes)
            }
            other => return Err(WireError::WireType(other)),
        };
        Ok(Field { number, value })
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(WireError::CutShort)?;
        self.0 = rest;
        Ok(taken)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.read();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

/// Takes a number of 7 bits a byte, the lowest first.
fn varint(bytes: &mut &[u8]) -> Result<u64, WireError> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or(WireError::CutShort)?;
        *bytes = rest;
        if shift == 63 && *byte > 1 {
            break;
        }
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(WireError::LongNumber)
}

/// Writes messages, for tests.
#[cfg(test)]
pub(crate) mod writing {
    fn varint(mut number: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while number >= 0x80 {
            bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        bytes.push(number as u8);
        bytes
    }

    pub fn integer(number: u32, value: i64) -> Vec<u8> {
        [varint(u64::from(number) << 3), varint(value as u64)].concat()
    }

    pub fn bytes(number: u32, value: &[u8]) -> Vec<u8> {
        let head = [varint(u64::from(number) << 3 | 2), varint(value.len() as u64)].concat();
        [&head[..], value].concat()
    }

    pub fn float(number: u32, value: f32) -> Vec<u8> {
        [varint(u64::from(number) << 3 | 5), value.to_le_bytes().to_vec()].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(message: &[u8]) -> Result<Vec<Field<'_>>, WireError> {
        Fields::of(message).collect()
    }

    #[test]
    fn what_is_written_is_read() {
        let message = [
            writing::integer(1, 300),
            writing::integer(2, -1),
            writing::bytes(16, b"name"),
            writing::float(3, 0.5),
            vec![0x21, 1, 2, 3, 4, 5, 6, 7, 8],
        ]
        .concat();
        let fields = read(&message).unwrap();
        assert_eq!(fields.iter().map(|it| it.number).collect::<Vec<_>>(), [1, 2, 16, 3, 4]);
        assert_eq!((fields[0].integer(), fields[1].integer()), (Ok(300), Ok(-1)));
        assert_eq!((fields[2].text(), fields[3].float()), (Ok("name"), Ok(0.5)));
        assert_eq!(fields[4].integer(), Err(WireError::OtherType(4)));
    }

    #[test]
    fn repeated_numbers_come_packed_or_one_by_one() {
        let packed = writing::bytes(1, &[0x05, 0xac, 0x02]);
        let message = [packed, writing::integer(1, 7)].concat();
        let mut numbers = Vec::new();
        read(&message).unwrap().iter().for_each(|it| it.integers(&mut numbers).unwrap());
        assert_eq!(numbers, [5, 300, 7]);
        let packed = writing::bytes(1, &[1.0_f32.to_le_bytes(), 2.0_f32.to_le_bytes()].concat());
        let message = [packed, writing::float(1, 3.0)].concat();
        let mut numbers = Vec::new();
        read(&message).unwrap().iter().for_each(|it| it.floats(&mut numbers).unwrap());
        assert_eq!(numbers, [1.0, 2.0, 3.0]);
        let cut = writing::bytes(1, &[0; 5]);
        assert_eq!(read(&cut).unwrap()[0].floats(&mut numbers), Err(WireError::CutShort));
    }

    #[test]
    fn bytes_that_are_no_message_are_refused() {
        let cases: [(&[u8], WireError); 5] = [
            (&[0x08], WireError::CutShort),
            (&[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f, 0], WireError::CutShort),
            (&[0x0b], WireError::WireType(3)),
            (b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", WireError::LongNumber),
            (&[0xff; 11], WireError::LongNumber),
        ];
        for (message, error) in cases {
            assert_eq!(read(message), Err(error), "{message:x?}");
        }
        let name = writing::bytes(1, &[0xff]);
        assert_eq!(read(&name).unwrap()[0].text(), Err(WireError::Text));
    }
}
