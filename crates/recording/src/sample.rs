//! Recordings made up for tests.

use std::path::Path;

use serde_json::{Value, json};

use crate::Snapshot;

/// Bytes of a block of [`snapshot`].
pub const MIB: u64 = 1 << 20;
/// Address of the segment of [`snapshot`].
pub const AT: u64 = 0x7f00_0000_0000;

/// Returns the stack of an entry: a single frame, with this line.
pub fn frames(line: u64) -> Value {
    json!([{"name": "forward", "filename": "/home/user/net.py", "line": line}])
}

/// Returns an entry of a history, of one MiB at an address.
pub fn entry(action: &str, address: u64, time: Option<u64>, frames: &Value) -> Value {
    let mut entry =
        json!({"action": action, "addr": address, "size": MIB, "stream": 0, "frames": frames});
    if let Some(time) = time {
        entry["time_us"] = json!(time);
    }
    entry
}

/// Makes a snapshot of a history, with a segment of four blocks at its end without any entry.
pub fn snapshot(entries: &[Value], annotations: &[Value]) -> Snapshot {
    let block = |number: u64| {
        json!({
            "address": AT + number * MIB, "size": MIB, "requested_size": MIB, "state": "active_allocated",
            "frames": frames(3),
        })
    };
    let segment = json!({
        "address": AT, "total_size": 20 * MIB, "stream": 0, "device": 0, "segment_type": "large",
        "blocks": (0..4).map(block).collect::<Vec<_>>(),
    });
    let root = json!({
        "segments": [segment], "device_traces": [entries], "external_annotations": annotations,
    });
    let mut bytes = vec![0x80, 4];
    pickled(&root, &mut bytes);
    bytes.push(b'.');
    Snapshot::of(Path::new("made.pickle"), &bytes).expect("a snapshot")
}

/// Writes a value in the pickle format.
pub fn pickled(value: &Value, out: &mut Vec<u8>) {
    let text = |text: &str, out: &mut Vec<u8>| {
        out.push(b'X');
        out.extend((text.len() as u32).to_le_bytes());
        out.extend(text.as_bytes());
    };
    match value {
        Value::Null => out.push(b'N'),
        Value::Bool(is) => out.push(if *is { 0x88 } else { 0x89 }),
        Value::Number(number) => {
            out.extend([0x8a, 9]);
            out.extend(number.as_u64().expect("a whole number").to_le_bytes());
            out.push(0);
        }
        Value::String(string) => text(string, out),
        Value::Array(all) => {
            out.extend(b"](");
            all.iter().for_each(|one| pickled(one, out));
            out.push(b'e');
        }
        Value::Object(all) => {
            out.extend(b"}(");
            for (key, one) in all {
                text(key, out);
                pickled(one, out);
            }
            out.push(b'u');
        }
    }
}
