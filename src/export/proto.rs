//! Messages of Protocol Buffers, as they are encoded: a key for each field, then its value. Two of
//! our formats use a dozen messages; this is all that they need of them.

use gpushim_trace::leb128;

/// A message that is being written.
#[derive(Clone, Debug, Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    pub(super) fn new() -> Message {
        Message::default()
    }

    /// A number; of signed ones the two's complement.
    pub(super) fn number(mut self, field: u32, value: u64) -> Message {
        leb128::put(&mut self.0, u64::from(field) << 3);
        leb128::put(&mut self.0, value);
        self
    }

    /// A text, or a message within this one.
    pub(super) fn bytes(mut self, field: u32, value: &[u8]) -> Message {
        leb128::put(&mut self.0, u64::from(field) << 3 | 2);
        leb128::put(&mut self.0, value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    /// Adds a field with a text.
    pub(super) fn text(self, field: u32, value: &str) -> Message {
        self.bytes(field, value.as_bytes())
    }

    /// A message within this one.
    pub(super) fn message(self, field: u32, value: &Message) -> Message {
        self.bytes(field, &value.0)
    }

    /// Adds a packed field of numbers.
    pub(super) fn numbers(self, field: u32, values: impl IntoIterator<Item = u64>) -> Message {
        let mut packed = Message::new();
        for value in values {
            leb128::put(&mut packed.0, value);
        }
        self.message(field, &packed)
    }

    /// Encoded bytes of the message.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_the_documentation_encodes_them() {
        let inner = Message::new().number(1, 150);
        assert_eq!(inner.as_bytes(), [0x08, 0x96, 0x01]);
        let outer = Message::new().message(3, &inner).text(2, "testing");
        let text = b"\x1a\x03\x08\x96\x01\x12\x07testing";
        assert_eq!(outer.as_bytes(), text);
        let packed = Message::new().numbers(6, [3, 270, 86_942]);
        assert_eq!(packed.as_bytes(), b"\x32\x06\x03\x8e\x02\x9e\xa7\x05");
    }
}
