//! Trace files as gpushim wrote them in each version of the format.

/// The content of a version's file.
pub fn file(version: &str) -> Vec<u8> {
    decoded(match version {
        "1.0" => include_str!("trace-1.0.hex"),
        other => panic!("no file of version {other}"),
    })
}

/// A line is an offset and bytes, in hex; a line `*` repeats the one before at the next place. What has no
/// line is zero.
fn decoded(text: &str) -> Vec<u8> {
    let number = |text| usize::from_str_radix(text, 16).unwrap();
    let (mut content, mut next, mut last) = (Vec::new(), 0, Vec::new());
    for line in text.lines() {
        if let Some(bytes) = line.strip_prefix("# bytes 0x") {
            content.resize(number(bytes), 0);
            continue;
        }
        if line.starts_with('#') {
            continue;
        }
        if let Some((at, bytes)) = line.split_once(' ') {
            next = number(at);
            let pairs = (0..bytes.len()).step_by(2);
            last = pairs.map(|at| number(&bytes[at..at + 2]) as u8).collect();
        }
        content[next..next + last.len()].copy_from_slice(&last);
        next += last.len();
    }
    content
}
