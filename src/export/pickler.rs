//! Writes pickles of data: numbers, texts, lists and dicts, protocol 4. Format: Python's
//! `pickletools`.

use std::io::{Result, Write};

use rustc_hash::FxHashMap;

/// A pickle that is being written. A list is [`Pickler::begin_list`], its elements,
/// [`Pickler::end_list`]; a dict the same with keys and values in turn.
pub(super) struct Pickler<'a> {
    out: &'a mut dyn Write,
    texts: FxHashMap<String, u32>,
    remembered: u32,
}

/// A value that a dict has for a key.
pub(super) enum Value<'a> {
    Text(&'a str),
    Number(u64),
    Truth(bool),
    Numbers(&'a [u64]),
    Fields(&'a [(&'a str, Value<'a>)]),
    /// A value that was remembered at this place.
    Again(u32),
}

impl<'a> Pickler<'a> {
    /// Begins a pickle with its header.
    pub(super) fn new(out: &'a mut dyn Write) -> Result<Pickler<'a>> {
        out.write_all(&[0x80, 4])?;
        Ok(Pickler {
            out,
            texts: FxHashMap::default(),
            remembered: 0,
        })
    }

    pub(super) fn begin_list(&mut self) -> Result<()> {
        self.out.write_all(b"](")
    }

    pub(super) fn end_list(&mut self) -> Result<()> {
        self.out.write_all(b"e")
    }

    pub(super) fn begin_dict(&mut self) -> Result<()> {
        self.out.write_all(b"}(")
    }

    pub(super) fn end_dict(&mut self) -> Result<()> {
        self.out.write_all(b"u")
    }

    /// A text; one that came before refers to it.
    pub(super) fn text(&mut self, text: &str) -> Result<()> {
        if let Some(place) = self.texts.get(text) {
            return self.again(*place);
        }
        let length = u32::try_from(text.len()).map_err(std::io::Error::other)?;
        self.out.write_all(b"X")?;
        self.out.write_all(&length.to_le_bytes())?;
        self.out.write_all(text.as_bytes())?;
        let place = self.remember()?;
        self.texts.insert(text.to_string(), place);
        Ok(())
    }

    /// Writes a non-negative integer.
    pub(super) fn number(&mut self, number: u64) -> Result<()> {
        match u8::try_from(number) {
            Ok(small) => self.out.write_all(&[b'K', small]),
            Err(_) => {
                // Signed: one byte more than the number has.
                self.out.write_all(&[0x8a, 9])?;
                self.out.write_all(&number.to_le_bytes())?;
                self.out.write_all(&[0])
            }
        }
    }

    /// Writes keys of a dict with their values.
    pub(super) fn fields(&mut self, fields: &[(&str, Value<'_>)]) -> Result<()> {
        for (key, value) in fields {
            self.text(key)?;
            match value {
                Value::Text(text) => self.text(text)?,
                Value::Number(number) => self.number(*number)?,
                Value::Truth(is) => self.out.write_all(&[if *is { 0x88 } else { 0x89 }])?,
                Value::Numbers(numbers) => {
                    self.begin_list()?;
                    numbers.iter().try_for_each(|number| self.number(*number))?;
                    self.end_list()?;
                }
                Value::Fields(fields) => {
                    self.begin_dict()?;
                    self.fields(fields)?;
                    self.end_dict()?;
                }
                Value::Again(place) => self.again(*place)?,
            }
        }
        Ok(())
    }

    /// Remembers the value written last, so that its place can refer to it.
    pub(super) fn remember(&mut self) -> Result<u32> {
        let place = self.remembered;
        self.remembered = self.remembered.saturating_add(1);
        self.out.write_all(&[0x94])?;
        Ok(place)
    }

    /// Writes a reference to a remembered value.
    pub(super) fn again(&mut self, place: u32) -> Result<()> {
        self.out.write_all(b"j")?;
        self.out.write_all(&place.to_le_bytes())
    }

    /// Writes the end of the pickle.
    pub(super) fn finish(self) -> Result<()> {
        self.out.write_all(b".")
    }
}
