//! Frames of each layout that are made up, and changed one field after the other.

use super::*;
use crate::layout::{self, FrameLayout};
use crate::memory::made::Made;

/// Minor versions with layouts of their own.
const MINORS: [u8; 4] = [8, 10, 11, 12];

struct Thread {
    memory: Made,
    layout: Layout,
    state: u64,
    /// The frames, from the innermost out, and the code object of each function.
    frames: Vec<(u64, u64)>,
}

impl Thread {
    /// In two functions, and a third frame outside of them: of the interpreter's own from 3.12 on.
    fn new(minor: u8) -> Thread {
        let layout = Layout::of(minor).expect("a layout");
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
        let outermost = match layout.frame.boundary {
            Boundary::Shim => OWNED_BY_INTERPRETER,
            _ => 0,
        };
        let mut previous = 0;
        for (owner, number) in [(outermost, 0), (0, 41), (0, 42)] {
            let code = thread.memory.put(&[0; 512]);
            if let Some(version) = layout.version {
                thread.memory.set(code + version, &i32::to_le_bytes(number));
            }
            for part in [layout.name, layout.file, layout.lines] {
                let text = thread.memory.put(&[0; 128]);
                thread.set(text + layout::TEXT_LENGTH, 20);
                thread.set(code + part, text);
            }
            let frame = thread.memory.put(&[0; 128]);
            thread.set(frame + layout.frame.previous, previous);
            thread.set(frame + layout.frame.code, code);
            thread.set(frame + layout.frame.instruction, code + 200);
            if layout.frame.boundary != Boundary::Each {
                thread.memory.set(frame + layout.frame.owner, &[owner]);
            }
            thread.frames.insert(0, (frame, code));
            previous = frame;
        }
        match layout.cframe {
            Some(current) => thread.set(cframe + current, previous),
            None => thread.set(state + layout.current, previous),
        }
        thread
    }

    fn set(&mut self, at: u64, value: u64) {
        self.memory.set(at, &value.to_le_bytes());
    }

    fn word(&self, at: u64) -> u64 {
        self.memory.word(at).expect("a word")
    }

    fn remember(&self, most: usize) -> Option<Vec<RememberedFrame>> {
        let into = vec![Cell::default(); most];
        let count = remember(&self.memory, &self.layout, self.state, &into)?;
        Some(into.iter().take(count).map(Cell::get).collect())
    }

    fn is_in(&self, remembered: &[RememberedFrame]) -> bool {
        let mut present = Present::new(&self.memory, &self.layout, self.state);
        remembered.iter().all(|known| present.is_next(known)) && present.is_at_end()
    }
}

#[test]
fn all_frames_are_remembered_or_none() {
    for minor in MINORS {
        let thread = Thread::new(minor);
        let seen = thread.remember(8).expect("frames");
        assert_eq!(seen.len(), 3);
        assert!(thread.is_in(&seen));
        // Neither more nor fewer.
        assert!(!thread.is_in(&seen[..2]) && !thread.is_in(&[]));
        assert!(thread.remember(2).is_none());
    }
}

/// Addresses of what tells a frame apart, each with its bytes.
fn telling(thread: &Thread, frame: u64, code: u64) -> Vec<(u64, usize)> {
    let layout = &thread.layout;
    let FrameLayout {
        previous,
        code: its_code,
        instruction,
        owner,
        boundary,
    } = layout.frame;
    let mut telling = vec![(previous, 8), (its_code, 8)];
    match boundary {
        Boundary::Each => telling.push((instruction, 4)),
        Boundary::Flag(flag) => telling.extend([(instruction, 8), (owner, 1), (flag, 1)]),
        Boundary::Shim => telling.extend([(instruction, 8), (owner, 1)]),
    }
    let mut telling: Vec<_> = telling
        .iter()
        .map(|(at, size)| (frame + at, *size))
        .collect();
    // The outermost one of 3.12 is no function.
    if boundary == Boundary::Shim && thread.frames.last() == Some(&(frame, code)) {
        return telling;
    }
    telling.push((code + layout.first_line, 4));
    match layout.version {
        Some(version) => telling.extend([(code + version, 4), (code + layout.file, 8)]),
        None => {
            for part in [layout.name, layout.file, layout.lines] {
                telling.push((code + part, 8));
            }
            let [name, file, lines] =
                [layout.name, layout.file, layout.lines].map(|part| thread.word(code + part));
            for (text, part) in [
                (name, layout::TEXT_HASH),
                (name, layout::TEXT_LENGTH),
                (file, layout::TEXT_HASH),
                (file, layout::TEXT_LENGTH),
                (lines, layout::SIZE),
                (lines, layout::BYTES),
            ] {
                telling.push((text + part, 8));
            }
        }
    }
    telling
}

#[test]
fn every_field_tells() {
    for minor in MINORS {
        let seen = Thread::new(minor).remember(8).expect("frames");
        for at in 0..3 {
            let (frame, code) = Thread::new(minor).frames[at];
            for (place, size) in telling(&Thread::new(minor), frame, code) {
                let mut thread = Thread::new(minor);
                thread.memory.set(place, &24_u64.to_le_bytes()[..size]);
                assert!(!thread.is_in(&seen), "3.{minor}, frame {at}, {place:x}");
            }
        }
        assert!(Thread::new(minor).is_in(&seen));
    }
}

#[test]
fn code_whose_numbers_ran_out_is_told_apart_by_its_content() {
    let mut thread = Thread::new(12);
    let (_, code) = thread.frames[1];
    let number = code + thread.layout.version.expect("a number");
    thread.memory.set(number, &[0; 4]);
    let seen = thread.remember(8).expect("frames");
    assert!(thread.is_in(&seen));
    let name = thread.word(code + thread.layout.name);
    thread.set(name + layout::TEXT_HASH, 7);
    assert!(!thread.is_in(&seen));
}
