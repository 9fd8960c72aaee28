//! What was seen in each step of a native run, as numbers: for each step its length, then what was seen.

/// A native run's log, read step by step.
pub struct Native {
    words: Vec<u64>,
    at: usize,
}

impl Native {
    /// A log.
    pub fn new(words: Vec<u64>) -> Native {
        Native { words, at: 0 }
    }

    /// What was seen in the next step.
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

/// Adds a step.
pub fn add(log: &mut Vec<u64>, seen: &[u64]) {
    log.push(seen.len() as u64);
    log.extend_from_slice(seen);
}

/// The bytes of a log.
pub fn write(path: &str, log: &[u64]) -> std::io::Result<()> {
    let bytes: Vec<u8> = log.iter().flat_map(|word| word.to_ne_bytes()).collect();
    std::fs::write(path, bytes)
}

/// A log from its bytes.
pub fn read(path: &str) -> std::io::Result<Native> {
    let bytes = std::fs::read(path)?;
    let (words, _) = bytes.as_chunks::<8>();
    Ok(Native::new(
        words.iter().map(|word| u64::from_ne_bytes(*word)).collect(),
    ))
}
