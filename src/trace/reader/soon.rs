//! The stand-in for reading the part Strings, see `writer/soon.rs`.

use super::Trace;

impl Trace {
    /// The text of a string id; `None` for 0 and for ids that are not in the file.
    pub fn string(&self, id: u32) -> Option<String> {
        let index = (id as usize).checked_sub(1)?;
        let texts = self.facts().into_iter().filter(|(key, _)| key == "string");
        texts.map(|(_, text)| text).nth(index)
    }
}
