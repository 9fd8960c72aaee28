//! Frames of a spool without compression, with correct checksums. A change of a few bytes then
//! changes events and nothing else.

use gpushim_trace::layout::{get_u32, get_u64};

/// Bytes of a frame's header, see `docs/trace-format.md`.
pub const HEADER_BYTES: usize = 96;
/// Events, then the bytes of the runs and the columns, plain and compressed.
const EVENTS: usize = 32;
const RUNS: [usize; 2] = [36, 40];
const COLUMNS: [usize; 2] = [44, 48];
const SUM: usize = 80;
const HEADER_SUM: usize = 88;
/// The most events of a frame here: a few bytes can stand for a quarter of a million.
const EVENTS_MAX: u32 = 4096;

/// Offsets of frames, as long as their headers are valid.
pub fn frames(content: &[u8]) -> impl Iterator<Item = usize> {
    let mut next = 0_usize;
    std::iter::from_fn(move || {
        let at = next;
        let header = content.get(at..at.checked_add(HEADER_BYTES)?)?;
        let bytes = u64::from(get_u32(header, RUNS[1])?) + u64::from(get_u32(header, COLUMNS[1])?);
        next = at.checked_add(HEADER_BYTES + bytes as usize)?;
        (header.starts_with(b"gpuspool") && next <= content.len()).then_some(at)
    })
}

/// Makes the sums of all frames right.
pub fn resum(content: &mut [u8]) {
    for at in frames(content).collect::<Vec<_>>() {
        let frame = &mut content[at..];
        let events = get_u32(frame, EVENTS).unwrap().min(EVENTS_MAX);
        frame[EVENTS..EVENTS + 4].copy_from_slice(&events.to_le_bytes());
        let bytes = [RUNS[1], COLUMNS[1]].map(|at| get_u32(frame, at).unwrap() as usize);
        let packed = checksum(&frame[HEADER_BYTES..HEADER_BYTES + bytes[0] + bytes[1]]);
        frame[SUM..SUM + 8].copy_from_slice(&packed.to_le_bytes());
        let header = checksum(&frame[..HEADER_SUM]);
        frame[HEADER_SUM..HEADER_BYTES].copy_from_slice(&header.to_le_bytes());
    }
}

/// 64-bit FNV-1a over u64, the last one filled up with zeros.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(0xcbf2_9ce4_8422_2325, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        (hash ^ get_u64(&word, 0).unwrap()).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Makes a spool of the same frames without compression.
#[allow(dead_code, reason = "who only reads has no use for it")]
pub fn plain(content: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    for at in frames(content) {
        let frame = &content[at..];
        let number = |at| get_u32(frame, at).unwrap() as usize;
        let begin = all.len();
        all.extend(&frame[..HEADER_BYTES]);
        let mut from = HEADER_BYTES;
        for [bytes, packed] in [RUNS, COLUMNS] {
            let content =
                zstd::bulk::decompress(&frame[from..from + number(packed)], number(bytes));
            from += number(packed);
            let stored = stored(&content.unwrap());
            all[begin + packed..begin + packed + 4]
                .copy_from_slice(&(stored.len() as u32).to_le_bytes());
            all.extend(stored);
        }
    }
    resum(&mut all);
    all
}

/// A zstd frame of one raw block (RFC 8878, 3.1.1).
fn stored(content: &[u8]) -> Vec<u8> {
    let bytes = content.len() as u32;
    assert!(bytes < 128 << 10, "the most that a block holds");
    let mut frame = 0xfd2f_b528_u32.to_le_bytes().to_vec();
    // A single segment, and four bytes that say how long it is.
    frame.push(0b1010_0000);
    frame.extend(bytes.to_le_bytes());
    // The last block, raw.
    frame.extend(&(bytes << 3 | 1).to_le_bytes()[..3]);
    frame.extend(content);
    frame
}
