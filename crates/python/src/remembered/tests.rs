//! Frames of 3.12 that are made up, and changed one field after the other.

use super::*;
use crate::memory::made::Made;

struct Thread {
    memory: Made,
    layout: Layout,
    state: u64,
    /// The frames, from the innermost out, and the code object of each function.
    frames: Vec<(u64, u64)>,
}

impl Thread {
    /// In two functions, and the frame of the interpreter's own outside of them.
    fn new() -> Thread {
        let layout = Layout::of(12).expect("a layout");
        let mut memory = Made::default();
        let state = memory.put(&[0; 256]);
        let cframe = memory.put(&[0; 32]);
        let mut thread = Thread {
            memory,
            layout,
            state,
            frames: Vec::new(),
        };
        thread.set(state + layout.current, cframe);
        let mut previous = 0;
        for (owner, number) in [(3, 0), (0, 41), (0, 42)] {
            let code = thread.memory.put(&[0; 512]);
            let version = code + layout.version.expect("a number");
            thread.memory.set(version, &i32::to_le_bytes(number));
            thread.set(code + layout.file, 0x5_0000);
            let frame = thread.memory.put(&[0; 128]);
            thread.set(frame + layout.frame.previous, previous);
            thread.set(frame + layout.frame.code, code);
            thread.set(frame + layout.frame.instruction, code + 200);
            thread.memory.set(frame + layout.frame.owner, &[owner]);
            thread.frames.insert(0, (frame, code));
            previous = frame;
        }
        thread.set(cframe + layout.cframe.expect("3.12"), previous);
        thread
    }

    fn set(&mut self, at: u64, value: u64) {
        self.memory.set(at, &value.to_le_bytes());
    }

    fn remember(&self, most: usize) -> Option<Vec<Cell<RememberedFrame>>> {
        let mut into = vec![Cell::default(); most];
        let count = remember(&self.memory, &self.layout, self.state, &into)?;
        into.truncate(count);
        Some(into)
    }

    fn is_in(&self, remembered: &[Cell<RememberedFrame>]) -> bool {
        are(&self.memory, &self.layout, self.state, remembered)
    }
}

#[test]
fn all_frames_are_remembered_or_none() {
    let thread = Thread::new();
    let seen = thread.remember(8).expect("frames");
    assert_eq!(seen.len(), 3);
    assert!(thread.is_in(&seen));
    // Neither more nor fewer.
    assert!(!thread.is_in(&seen[..2]) && !thread.is_in(&[]));
    assert!(thread.remember(2).is_none());
}

#[test]
fn every_field_tells() {
    let seen = Thread::new().remember(8).expect("frames");
    let layout = Thread::new().layout;
    for at in 0..3 {
        let (frame, code) = Thread::new().frames[at];
        for place in [
            frame + layout.frame.instruction,
            frame + layout.frame.code,
            frame + layout.frame.previous,
        ] {
            let mut thread = Thread::new();
            thread.set(place, 0x9_0000);
            assert!(!thread.is_in(&seen), "frame {at}, {place:x}");
        }
        let mut thread = Thread::new();
        thread.memory.set(frame + layout.frame.owner, &[1]);
        assert!(!thread.is_in(&seen), "frame {at}, its owner");
        let number = code + layout.version.expect("a number");
        for (place, bytes) in [(number, &[43_u8; 4][..]), (code + layout.file, &[1; 8])] {
            let mut thread = Thread::new();
            thread.memory.set(place, bytes);
            // The outermost is no function.
            assert_eq!(thread.is_in(&seen), at == 2, "frame {at}, {place:x}");
        }
    }
}

#[test]
fn code_without_a_number_is_not_remembered() {
    let mut thread = Thread::new();
    let (_, code) = thread.frames[1];
    let number = code + thread.layout.version.expect("a number");
    thread.memory.set(number, &[0; 4]);
    assert!(thread.remember(8).is_none());
}
