//! Values as scripts take and give them: MessagePack on the way in, bulk strings on the way out.

use redis::Value;

use super::failure::{RedisFailure, RedisResult};

/// MessagePack that a script unpacks with one call.
#[derive(Debug, Default, Clone)]
pub(super) struct Packed(Vec<u8>);

impl Packed {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn list(&mut self, len: usize) -> &mut Self {
        match len {
            0..=15 => self.0.push(0x90 | len as u8),
            16..=0xffff => self.head16(0xdc, len),
            _ => self.head32(0xdd, len),
        }
        self
    }

    pub(super) fn bytes(&mut self, bytes: impl AsRef<[u8]>) -> &mut Self {
        let bytes = bytes.as_ref();
        match bytes.len() {
            len @ 0..=31 => self.0.push(0xa0 | len as u8),
            len @ 32..=0xffff => self.head16(0xda, len),
            len => self.head32(0xdb, len),
        }
        self.0.extend_from_slice(bytes);
        self
    }

    pub(super) fn int(&mut self, value: i64) -> &mut Self {
        match value {
            0..=127 => self.0.push(value as u8),
            _ => {
                self.0.push(0xd3);
                self.0.extend_from_slice(&value.to_be_bytes());
            }
        }
        self
    }

    pub(super) fn flag(&mut self, value: bool) -> &mut Self {
        self.0.push(if value { 0xc3 } else { 0xc2 });
        self
    }

    /// An absent value is false to a script.
    pub(super) fn maybe(&mut self, value: Option<&[u8]>) -> &mut Self {
        match value {
            Some(bytes) => self.bytes(bytes),
            None => self.flag(false),
        }
    }

    fn head16(&mut self, tag: u8, len: usize) {
        self.0.push(tag);
        self.0.extend_from_slice(&(len as u16).to_be_bytes());
    }

    fn head32(&mut self, tag: u8, len: usize) {
        self.0.push(tag);
        self.0.extend_from_slice(&(len as u32).to_be_bytes());
    }

    pub(super) fn append(&mut self, other: &Self) -> &mut Self {
        self.0.extend_from_slice(&other.0);
        self
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

pub(super) fn list(value: Value) -> RedisResult<Vec<Value>> {
    match value {
        Value::Array(values) | Value::Set(values) => Ok(values),
        Value::Nil => Ok(Vec::new()),
        Value::Map(pairs) => Ok(pairs.into_iter().flat_map(|(k, v)| [k, v]).collect()),
        _ => Err(RedisFailure::damaged("an answer is not a list")),
    }
}

pub(super) fn int(value: &Value) -> RedisResult<i64> {
    match value {
        Value::Int(number) => Ok(*number),
        Value::Nil => Ok(0),
        Value::Boolean(flag) => Ok(i64::from(*flag)),
        Value::Double(number) => Ok(*number as i64),
        Value::BulkString(bytes) => text_int(bytes),
        Value::SimpleString(text) => text_int(text.as_bytes()),
        _ => Err(RedisFailure::damaged("an answer is not a number")),
    }
}

pub(super) fn text_int(bytes: &[u8]) -> RedisResult<i64> {
    let text = std::str::from_utf8(bytes).ok();
    let whole = text.and_then(|text| text.parse().ok());
    let number = whole.or_else(|| text?.parse::<f64>().ok().map(|number| number as i64));
    number.ok_or_else(|| RedisFailure::damaged("a stored number"))
}

/// `None` if there is nothing.
pub(super) fn bytes(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.into_bytes()),
        Value::Int(number) => Some(number.to_string().into_bytes()),
        Value::Double(number) => Some(number.to_string().into_bytes()),
        _ => None,
    }
}

pub(super) fn text(value: Value) -> Option<String> {
    bytes(value).and_then(|bytes| String::from_utf8(bytes).ok())
}

pub(super) fn byte_list(value: Value) -> RedisResult<Vec<Option<Vec<u8>>>> {
    Ok(list(value)?.into_iter().map(bytes).collect())
}

/// Fields and values, one after the other.
pub(super) fn pairs(value: Value) -> RedisResult<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut found = Vec::new();
    let mut values = list(value)?.into_iter();
    while let (Some(first), Some(second)) = (values.next(), values.next()) {
        if let (Some(first), Some(second)) = (bytes(first), bytes(second)) {
            found.push((first, second));
        }
    }
    Ok(found)
}

pub(super) fn id(bytes: &[u8]) -> RedisResult<u128> {
    let bytes = bytes.try_into().map_err(|_| RedisFailure::damaged("an id"))?;
    Ok(u128::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_packed_as_the_format_says() {
        let mut packed = Packed::new();
        packed.list(3).int(5).bytes("ab").flag(false);
        assert_eq!(packed.into_bytes(), [0x93, 5, 0xa2, b'a', b'b', 0xc2]);
        let mut long = Packed::new();
        long.list(20).bytes(vec![7; 40]).int(-1);
        let bytes = long.into_bytes();
        assert_eq!(bytes[..6], [0xdc, 0, 20, 0xda, 0, 40]);
        assert_eq!(bytes[46..], [0xd3, 255, 255, 255, 255, 255, 255, 255, 255]);
    }
}
