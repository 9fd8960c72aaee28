//! Streams of tensors: an event has room for a number only, and a fact names the handle of the
//! number.

use crate::event::Event;

/// Prefix of the facts' keys; the number follows.
const KEY: &str = "stream.";

/// Returns the key and the value of the fact that names a stream.
///
/// ```
/// let (key, value) = gpushim_trace::stream_fact(7, 0x55d0_1234_5670);
/// assert_eq!((key.as_str(), value.as_str()), ("stream.7", "0x55d012345670"));
/// ```
pub fn stream_fact(number: u8, handle: u64) -> (String, String) {
    (format!("{KEY}{number}"), format!("{handle:#x}"))
}

/// Handles of streams by their numbers.
#[derive(Debug)]
pub struct Streams([Option<u64>; 256]);

impl Streams {
    /// Returns the handles named by facts. Of two facts for a number the first counts.
    pub fn of(facts: Vec<(String, String)>) -> Streams {
        let mut handles = [None; 256];
        handles[usize::from(Event::DEFAULT_STREAM)] = Some(0);
        let named = facts.iter().filter_map(|(key, value)| {
            let number: u8 = key.strip_prefix(KEY)?.parse().ok()?;
            let handle = u64::from_str_radix(value.strip_prefix("0x")?, 16).ok()?;
            (number != 0).then_some((number, handle))
        });
        for (number, handle) in named {
            handles[usize::from(number)].get_or_insert(handle);
        }
        Streams(handles)
    }

    /// Returns the handle of a number; `None` for 0 and for a number without a fact.
    pub fn handle(&self, number: u8) -> Option<u64> {
        self.0[usize::from(number)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_named_by_facts() {
        let senseless = [
            ("stream.x", "0x1"),
            ("stream.300", "0x1"),
            ("stream.0", "0x1"),
            ("stream.4", "7"),
            ("streams", "0x2"),
        ];
        let mut facts: Vec<_> = senseless
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .into();
        facts.extend([
            stream_fact(255, u64::MAX),
            stream_fact(2, 0x10),
            stream_fact(2, 0x20),
        ]);
        let streams = Streams::of(facts);
        let known: Vec<_> = (0..=255)
            .filter_map(|number| Some((number, streams.handle(number)?)))
            .collect();
        assert_eq!(known, [(1, 0), (2, 0x10), (255, u64::MAX)]);
    }
}
