//! Observations of each step of a native run, as numbers: for each step its length, then its
//! observations.

/// A native run's log, read step by step.
pub struct Native {
    words: Vec<u64>,
    at: usize,
}

impl Native {
    /// Begins to read a log from its words.
    pub fn new(words: Vec<u64>) -> Native {
        Native { words, at: 0 }
    }

    /// Reads the observations of the next step. Returns false if there are none.
    pub fn next(&mut self, into: &mut Vec<u64>) -> bool {
        into.clear();
        let Some(length) = self.words.get(self.at).map(|length| *length as usize) else {
            return false;
        };
        let Some(seen) = self.words.get(self.at + 1..self.at + 1 + length) else {
            return false;
        };
        into.extend_from_slice(seen);
        self.at += 1 + length;
        true
    }
}

/// Adds the observations of a step.
pub fn add(log: &mut Vec<u64>, seen: &[u64]) {
    log.push(seen.len() as u64);
    log.extend_from_slice(seen);
}

/// Writes the words of a log in native byte order.
pub fn write(path: &str, log: &[u64]) -> std::io::Result<()> {
    let bytes: Vec<u8> = log.iter().flat_map(|word| word.to_ne_bytes()).collect();
    std::fs::write(path, bytes)
}

/// Reads a log that [`write()`] wrote.
pub fn read(path: &str) -> std::io::Result<Native> {
    let bytes = std::fs::read(path)?;
    let (words, _) = bytes.as_chunks::<8>();
    Ok(Native::new(
        words.iter().map(|word| u64::from_ne_bytes(*word)).collect(),
    ))
}
