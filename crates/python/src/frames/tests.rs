//! Frames that are made up, sound and not.

use super::*;
use crate::layout::FrameLayout;
use crate::memory::made::Made;

const TYPES: Types = Types {
    code: 0x7_0000,
    text: 0x7_1000,
    bytes: 0x7_2000,
};

/// A thread of a version, and its frames so far, the last one the innermost.
struct Thread {
    memory: Made,
    layout: Layout,
    state: u64,
    innermost: u64,
}

impl Thread {
    fn new(layout: Layout) -> Thread {
        let mut memory = Made::default();
        let state = memory.put(&[0; 256]);
        let mut thread = Thread {
            memory,
            layout,
            state,
            innermost: 0,
        };
        if layout.cframe.is_some() {
            let cframe = thread.memory.put(&[0; 32]);
            thread.set(state + layout.current, cframe);
        }
        thread
    }

    fn set(&mut self, at: u64, value: u64) {
        self.memory.set(at, &value.to_le_bytes());
    }

    fn of(minor: u8) -> Thread {
        Thread::new(Layout::of(minor).expect("a layout"))
    }

    fn code(&mut self) -> u64 {
        let code = self.memory.put(&[0; 512]);
        self.set(code + layout::TYPE, TYPES.code);
        if self.layout.minor > 10 {
            self.memory
                .set(code + self.layout.first_traceable, &3_i32.to_le_bytes());
        }
        code
    }

    /// Makes a frame called by the innermost one, from a word for the code and one for the
    /// instruction. Returns its address.
    fn frame(&mut self, code: u64, instruction: u64, owner: u8, is_entry: bool) -> u64 {
        let frame = self.memory.put(&[0; 128]);
        let FrameLayout {
            previous,
            code: at_code,
            instruction: at_instruction,
            owner: at_owner,
            boundary,
        } = self.layout.frame;
        self.set(frame + previous, self.innermost);
        self.set(frame + at_code, code);
        self.set(frame + at_instruction, instruction);
        if self.layout.minor > 10 {
            self.memory.set(frame + at_owner, &[owner]);
        }
        if let Boundary::Flag(flag) = boundary {
            self.memory.set(frame + flag, &[u8::from(is_entry)]);
        }
        self.innermost = frame;
        let current = self.state + self.layout.current;
        match self.layout.cframe {
            None => self.set(current, frame),
            Some(offset) => {
                let cframe = self.memory.word(current).expect("a word");
                self.set(cframe + offset, frame);
            }
        }
        frame
    }

    fn steps(&self) -> (Vec<Step>, bool) {
        let mut found = Vec::new();
        let ended = steps(
            &self.memory,
            &self.memory,
            &self.layout,
            &TYPES,
            self.state,
            |step| {
                found.push(step);
                true
            },
        );
        (found, ended.is_some())
    }
}

fn call(code: u64, offset: i32) -> Step {
    Step::Call(Call { code, offset })
}

#[test]
fn frame_objects_have_a_native_frame_each() {
    for (minor, unit) in [(8, 1), (9, 1), (10, 2)] {
        let mut thread = Thread::of(minor);
        let (outer, inner) = (thread.code(), thread.code());
        thread.frame(outer, 12, 0, false);
        // Before its first instruction.
        thread.frame(inner, u64::from(u32::MAX), 0, false);
        let expected = [
            call(inner, -1),
            Step::Entry,
            call(outer, 12 * unit),
            Step::Entry,
        ];
        assert_eq!(thread.steps(), (expected.to_vec(), true));
    }
}

#[test]
fn frames_of_3_11_end_at_a_flag_and_unbegun_ones_are_left_out() {
    let mut thread = Thread::of(11);
    let code = thread.code();
    let at = |thread: &Thread, offset: u64| code + thread.layout.instructions + offset;
    let instructions = [20, 6, 4, 4].map(|offset| at(&thread, offset));
    thread.frame(code, instructions[0], 0, true);
    thread.frame(code, instructions[1], 0, false);
    // Not begun: before instruction 3. A generator is, wherever it stands.
    thread.frame(code, instructions[2], 0, true);
    thread.frame(code, instructions[3], OWNED_BY_GENERATOR, true);
    let expected = [
        call(code, 4),
        Step::Entry,
        Step::Entry,
        call(code, 6),
        call(code, 20),
        Step::Entry,
    ];
    assert_eq!(thread.steps(), (expected.to_vec(), true));
}

#[test]
fn frames_of_3_12_and_later_end_at_a_frame_of_the_interpreter() {
    // As 3.14: the pointer has a tag, and there are frames of other kinds.
    for (tag, cframe) in [(0, Some(0)), (1, None)] {
        let mut thread = Thread::new(Layout {
            cframe,
            ..layout::ADAPTIVE
        });
        let code = thread.code();
        let instruction = code + thread.layout.instructions + 8;
        thread.frame(0, 0, OWNED_BY_INTERPRETER + 1, false);
        thread.frame(0, 0, OWNED_BY_INTERPRETER, false);
        thread.frame(code | tag, instruction, 0, false);
        thread.frame(code | tag, instruction + 2, 2, false);
        thread.frame(0, 0, OWNED_BY_INTERPRETER, false);
        thread.frame(code | tag, instruction + 4, 1, false);
        let expected = [
            call(code, 12),
            Step::Entry,
            call(code, 10),
            call(code, 8),
            Step::Entry,
        ];
        assert_eq!(thread.steps(), (expected.to_vec(), true));
    }
}

#[test]
fn what_is_no_function_ends_the_walk() {
    for minor in 8..=12 {
        let mut thread = Thread::of(minor);
        let (code, other) = (thread.code(), thread.code());
        let instruction = if minor > 10 {
            code + thread.layout.instructions + 8
        } else {
            8
        };
        let outer = thread.frame(code, instruction, 0, true);
        thread.frame(code, instruction, 0, true);
        let (all, _) = thread.steps();
        let half = all.get(..all.len() / 2).expect("half of them").to_vec();
        let at = outer + thread.layout.frame.code;
        // Another object, and what is no object.
        thread.set(other + layout::TYPE, TYPES.text);
        for wrong in [other, 0, 1, 8, u64::MAX, 1 << 47, 0x8000] {
            thread.set(at, wrong);
            assert_eq!(
                thread.steps(),
                (half.clone(), false),
                "3.{minor} {wrong:#x}"
            );
        }
        // A ring: it ends all the same.
        thread.set(at, code);
        thread.set(outer + thread.layout.frame.previous, thread.innermost);
        let (steps, has_ended) = thread.steps();
        assert!(!has_ended && steps.len() <= 2 * MOST, "{}", steps.len());
        // No frames, and no thread.
        thread.state = 8;
        assert_eq!(thread.steps(), (Vec::new(), false));
    }
}

#[test]
fn an_instruction_far_away_ends_the_walk() {
    let mut thread = Thread::of(12);
    let code = thread.code();
    thread.frame(code, code + (1 << 40), 0, false);
    assert_eq!(thread.steps(), (Vec::new(), false));
}
