//! Every interleaving, for a reader during an append to the modules and to the jit part.

use loom::sync::Arc;
use loom::thread;

use super::*;
use crate::explore::{Outcomes, crowd, explore, zeros};
use crate::jit::{self, Jit, JitMap};

#[test]
fn a_reader_sees_modules_whole_or_not_at_all() {
    let outcomes = Outcomes::default();
    let seen = outcomes.clone();
    explore(2, move || {
        let words = Arc::new(zeros(crowd(), 3 * layout::WORDS));
        let add = |begin| {
            let words = Arc::clone(&words);
            let module = Module {
                begin,
                end: begin + 1,
                bias: begin,
                path: begin as u32,
                generation: begin,
                build_id: BuildId::new(&[begin as u8; 24]),
            };
            move || assert!(Modules::new(&words).add(&module))
        };
        let read = |words: &[_]| {
            let (found, senseless) = modules(words, layout::WORDS);
            assert_eq!(senseless, 0);
            for module in &found {
                let n = module.begin;
                assert_eq!((module.end, module.bias, module.generation), (n + 1, n, n));
                assert_eq!(module.build_id.as_bytes(), [n as u8; 24]);
            }
            found.len()
        };
        let (reader, seen) = (Arc::clone(&words), seen.clone());
        let writer = thread::spawn(add(1));
        let reader = thread::spawn(move || seen.add(read(&reader)));
        add(2)();
        writer.join().unwrap();
        reader.join().unwrap();
        assert_eq!(read(&words), 2);
    });
    assert_eq!(outcomes.all(), [0, 1, 2]);
}

#[test]
fn a_reader_sees_names_of_code_whole_or_not_at_all() {
    let outcomes = Outcomes::default();
    let seen = outcomes.clone();
    explore(3, move || {
        let words = Arc::new(zeros(
            crowd(),
            (jit::layout::FIRST + 2) * jit::layout::WORDS,
        ));
        let names = |words: &[_]| {
            let map = JitMap::of(words, jit::layout::WORDS);
            [map.name(16), map.name(32), map.name(0)]
        };
        let states = [[None; 3], [Some(1), None, None], [Some(1), Some(2), None]];
        let (reader, seen) = (Arc::clone(&words), seen.clone());
        let reader = thread::spawn(move || {
            let found = names(&reader);
            let state = states.iter().position(|state| *state == found);
            seen.add(state.expect("a name that was not there"));
        });
        let jit = Jit::new(&words);
        assert!(jit.add(16, 8, 1) && jit.add(32, 8, 2));
        reader.join().unwrap();
        assert_eq!(names(&words), states[2]);
    });
    assert_eq!(outcomes.all(), [0, 1, 2]);
}
