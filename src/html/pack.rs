//! Numbers for a page: columns of variable-length integers behind a head of JSON, deflated, in
//! base64.
//!
//! Before the deflating: the head's bytes as u32, little endian; the head; the columns one after
//! the other. The head names each column, the number of its values and its bytes. A number is
//! LEB128. In a column of differences it is the zigzag of the difference from the number before,
//! from 0 on.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::DeflateEncoder;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::error::Result;

use gpushim_trace::leb128;

/// The greatest number that a page can hold: JavaScript counts in doubles.
pub const MAX: u64 = (1 << 53) - 1;

/// A payload being put together.
#[derive(Default)]
pub struct Pack {
    head: Map<String, Value>,
    columns: Vec<Column>,
    bytes: Vec<u8>,
}

#[derive(Serialize)]
struct Column {
    name: String,
    count: usize,
    bytes: usize,
    /// True if the column holds differences.
    delta: bool,
}

impl Pack {
    /// Adds a value to the head.
    pub fn head(&mut self, key: &str, value: &impl Serialize) -> Result<()> {
        self.head
            .insert(key.to_string(), serde_json::to_value(value)?);
        Ok(())
    }

    /// Adds a column of numbers that are small themselves. A number beyond [`MAX`] becomes [`MAX`].
    pub fn plain(&mut self, name: &str, numbers: impl IntoIterator<Item = u64>) {
        self.column(name, false, numbers);
    }

    /// Adds a column of numbers of which each is near the one before.
    pub fn delta(&mut self, name: &str, numbers: impl IntoIterator<Item = u64>) {
        self.column(name, true, numbers);
    }

    fn column(&mut self, name: &str, delta: bool, numbers: impl IntoIterator<Item = u64>) {
        let begin = self.bytes.len();
        let (mut count, mut before) = (0, 0);
        for number in numbers {
            let number = number.min(MAX);
            let word = if delta {
                // Both are below 2^53, so the difference fits.
                let step = number as i64 - before;
                before = number as i64;
                (step << 1 ^ step >> 63) as u64
            } else {
                number
            };
            leb128::put(&mut self.bytes, word);
            count += 1;
        }
        self.columns.push(Column {
            name: name.to_string(),
            count,
            bytes: self.bytes.len() - begin,
            delta,
        });
    }

    /// Writes it, deflated, in base64.
    pub fn write(mut self, out: &mut dyn Write) -> Result<()> {
        let columns = std::mem::take(&mut self.columns);
        self.head("columns", &columns)?;
        let head = serde_json::to_vec(&self.head)?;
        let mut deflate = DeflateEncoder::new(Vec::new(), Compression::default());
        deflate.write_all(&u32::try_from(head.len())?.to_le_bytes())?;
        deflate.write_all(&head)?;
        deflate.write_all(&self.bytes)?;
        Ok(base64(&deflate.finish()?, out)?)
    }
}

/// Base64 of RFC 4648, padded.
fn base64(bytes: &[u8], out: &mut dyn Write) -> io::Result<()> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let letter = LETTERS[(word >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= three.len() { letter } else { b'=' });
        }
    }
    out.write_all(&text)
}

#[cfg(test)]
pub mod unpack {
    //! Decoder of a payload, for tests.

    use std::collections::BTreeMap;
    use std::io::Read;

    use serde_json::Value;

    /// Head and columns of a payload.
    pub fn unpack(text: &str) -> (Value, BTreeMap<String, Vec<u64>>) {
        let mut bytes = Vec::new();
        let deflated = unbase64(text);
        flate2::read::DeflateDecoder::new(&deflated[..])
            .read_to_end(&mut bytes)
            .unwrap();
        let (length, rest) = bytes.split_at(4);
        let length = u32::from_le_bytes(length.try_into().unwrap()) as usize;
        let (head, mut rest) = rest.split_at(length);
        let head: Value = serde_json::from_slice(head).unwrap();
        let mut columns = BTreeMap::new();
        for column in head["columns"].as_array().unwrap() {
            let (mut bytes, after) = rest.split_at(column["bytes"].as_u64().unwrap() as usize);
            rest = after;
            let mut numbers = Vec::new();
            let mut before = 0i64;
            while !bytes.is_empty() {
                let mut word = 0;
                for place in 0.. {
                    let (first, after) = bytes.split_first().unwrap();
                    bytes = after;
                    word |= u64::from(first & 0x7f) << (7 * place);
                    if first & 0x80 == 0 {
                        break;
                    }
                }
                if column["delta"].as_bool().unwrap() {
                    before += (word >> 1) as i64 ^ -((word & 1) as i64);
                    word = before as u64;
                }
                numbers.push(word);
            }
            assert_eq!(numbers.len() as u64, column["count"].as_u64().unwrap());
            columns.insert(column["name"].as_str().unwrap().to_string(), numbers);
        }
        assert!(rest.is_empty());
        (head, columns)
    }

    fn unbase64(text: &str) -> Vec<u8> {
        let value = |letter: u8| match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            other => panic!("not base64: {other}"),
        };
        let (mut bits, mut held, mut bytes) = (0u32, 0, Vec::new());
        for letter in text.bytes().filter(|letter| *letter != b'=') {
            bits = bits << 6 | u32::from(value(letter));
            held += 6;
            if held >= 8 {
                held -= 8;
                bytes.push((bits >> held) as u8);
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (plain, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foobar", "Zm9vYmFy"),
        ] {
            let mut out = Vec::new();
            base64(plain.as_bytes(), &mut out).unwrap();
            assert_eq!(out, coded.as_bytes(), "{plain}");
        }
    }

    #[test]
    fn columns_come_back() {
        let mut pack = Pack::default();
        let plain = [0, 1, 127, 128, 300, MAX];
        let delta = [5, 0, MAX, 3, 3, 1 << 40];
        pack.head("name", &"</script>").unwrap();
        pack.plain("plain", plain);
        pack.delta("delta", delta);
        pack.plain("beyond", [u64::MAX]);
        pack.plain("none", []);
        let mut out = Vec::new();
        pack.write(&mut out).unwrap();
        let (head, columns) = unpack::unpack(std::str::from_utf8(&out).unwrap());
        assert_eq!(head["name"], "</script>");
        assert_eq!(columns["plain"], plain);
        assert_eq!(columns["delta"], delta);
        assert_eq!(columns["beyond"], [MAX]);
        assert_eq!(columns["none"], [0u64; 0]);
    }
}
