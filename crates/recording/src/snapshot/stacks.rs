//! The stacks of a snapshot, each kept once.

use std::cell::{Cell, RefCell};
use std::hash::Hash;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::nodes::Nodes;
use crate::pickle::{Pickle, Value};
use crate::snapshot::texts::{Numbered, Texts};
use crate::symbols::{Kind, Symbol};
use crate::way::{Call, Step, Way};
use crate::{Frame, Names};
use gpushim_trace::cut_to;

/// Frames of a stack beyond which the outer ones are left out. Python itself raises an error after
/// 1,000 calls.
const FRAMES: usize = 2048;

/// Parts of the paths of code that is generated anew for each run: `torch.compile`'s.
const GENERATED: [&str; 2] = ["/torchinductor_", "<eval_with_key>"];

/// A function as PyTorch names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Function {
    /// Number of the text of its name.
    name: u32,
    file: u32,
    line: u32,
}

impl Function {
    /// Returns true if its file is Python's: PyTorch does not name the language. Code without a
    /// file of its own (`<string>`, `<frozen importlib>`) is Python's, too.
    fn is_python(&self, texts: &Texts) -> bool {
        let file = texts.get(self.file).unwrap_or_default();
        file.ends_with(".py") || file.starts_with('<')
    }

    /// Makes a symbol. Its names take at most the bytes of `room`, which shrinks by them.
    fn symbol(&self, texts: &Texts, room: &Cell<usize>) -> Symbol {
        let text = |number| kept(texts.get(number).unwrap_or_default(), room);
        let file = texts.get(self.file).unwrap_or_default();
        let is_python = self.is_python(texts);
        let is_known = !matches!(file, "" | "??");
        Symbol {
            function: text(self.name),
            file: is_known.then(|| text(self.file)),
            line: (self.line > 0).then_some(self.line),
            kind: if is_python {
                Kind::Python
            } else {
                Kind::Native
            },
            ..Symbol::default()
        }
    }
}

/// A stack: its functions, and its labels by the program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Stack {
    /// Numbers of lists of functions; 0 for none.
    calls: u32,
    /// Numbers of labels, innermost first.
    labels: Vec<u32>,
}

/// Bytes that the names of all functions together may take; beyond, they are cut.
const LETTERS: usize = 64 << 20;
/// Bytes to which each further name is cut.
const LETTERS_LEAST: usize = 64;

/// Cuts a text to the bytes of `room`, which shrinks by them.
fn kept(text: &str, room: &Cell<usize>) -> String {
    let kept = cut_to(text, room.get().max(LETTERS_LEAST));
    room.set(room.get().saturating_sub(kept.len()));
    kept.to_string()
}

/// All stacks of a snapshot.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    functions: Numbered<Function>,
    calls: Numbered<Vec<u32>>,
    labels: Texts,
    /// Names and files of functions.
    texts: Texts,
    stacks: Numbered<Stack>,
    /// The number of each list of functions without generated code, from 1 upwards.
    plain: Vec<u32>,
    /// Results for lists and dicts of the pickle, by their place: many entries share them.
    seen_lists: FxHashMap<u32, u32>,
    seen_dicts: FxHashMap<u32, u32>,
}

impl Stacks {
    /// Returns the id of the stack of an entry, 0 if it has none.
    pub(super) fn of(&mut self, pickle: &Pickle<'_>, entry: Value) -> u32 {
        let frames = pickle.get(entry, "frames").or_else(|| {
            // Until PyTorch 2.1 a block had its frames in its history.
            let history = pickle.get(entry, "history")?;
            pickle.get(*pickle.items(history).first()?, "frames")
        });
        let calls = frames.map_or(0, |frames| self.calls_of(pickle, frames));
        let mut labels = Vec::new();
        for (key, prefix) in [("user_metadata", ""), ("compile_context", "compile ")] {
            let text = pickle.get(entry, key);
            let is_none = |text: Value| ["", "N/A"].iter().any(|none| pickle.is_text(text, none));
            let text = text.filter(|text| !is_none(*text));
            labels.extend(text.and_then(|text| self.labels.number(pickle, text, prefix)));
        }
        if calls == 0 && labels.is_empty() {
            return 0;
        }
        self.stacks.number(Stack { calls, labels })
    }

    fn calls_of(&mut self, pickle: &Pickle<'_>, frames: Value) -> u32 {
        let place = match frames {
            Value::List(place) | Value::Tuple(place) => place,
            _ => return 0,
        };
        if let Some(known) = self.seen_lists.get(&place) {
            return *known;
        }
        let functions: Vec<u32> = pickle
            .items(frames)
            .iter()
            .take(FRAMES)
            .filter_map(|frame| self.function(pickle, *frame))
            .collect();
        let number = if functions.is_empty() {
            0
        } else {
            self.calls.number(functions)
        };
        self.seen_lists.insert(place, number);
        number
    }

    fn function(&mut self, pickle: &Pickle<'_>, frame: Value) -> Option<u32> {
        let Value::Dict(place) = frame else {
            return None;
        };
        if let Some(known) = self.seen_dicts.get(&place) {
            return Some(*known);
        }
        let mut text = |key| {
            let text = pickle.get(frame, key)?;
            self.texts.number(pickle, text, "")
        };
        let (name, file) = (text("name"), text("filename"));
        let line = pickle.get(frame, "line").and_then(|n| pickle.number(n));
        let number = self.functions.number(Function {
            name: name.unwrap_or(0),
            file: file.unwrap_or(0),
            line: line.and_then(|line| u32::try_from(line).ok()).unwrap_or(0),
        });
        self.seen_dicts.insert(place, number);
        Some(number)
    }

    /// Returns the calls of a stack.
    pub(super) fn way(&self, id: u32) -> Way {
        let stack = self.stacks.get(id);
        let calls = stack.and_then(|stack| self.calls.get(stack.calls));
        let step = |number: &u32| {
            let function = self.functions.get(*number)?;
            let call = Call {
                function: u64::from(function.name) << 32 | u64::from(function.file),
                site: function.line.into(),
            };
            Some(match function.is_python(&self.texts) {
                true => Step::Line(call),
                false => Step::Native(call),
            })
        };
        Way::of(calls.into_iter().flatten().filter_map(step))
    }

    /// Returns the name and the file of a function in a way.
    pub(super) fn function_of(&self, number: u64) -> Option<[String; 2]> {
        let text = |number| self.texts.get(number).map(String::from);
        Some([text((number >> 32) as u32)?, text(number as u32)?])
    }

    /// Drops the data that is needed only while the pickle is read.
    pub(super) fn finish(&mut self) {
        self.seen_lists = FxHashMap::default();
        self.seen_dicts = FxHashMap::default();
        self.labels.finish();
        self.texts.finish();
        self.plain = self.without_generated();
    }

    /// Returns the number of each list of functions without generated code, in which each line is
    /// another function.
    fn without_generated(&mut self) -> Vec<u32> {
        let is_generated = |number: &u32| {
            let file = self.functions.get(*number).map(|function| function.file);
            let file = file
                .and_then(|file| self.texts.get(file))
                .unwrap_or_default();
            GENERATED.iter().any(|part| file.contains(part))
        };
        let lists = (1..).map_while(|number| self.calls.get(number));
        let plain: Vec<Vec<u32>> = lists
            .map(|list| {
                let plain: Vec<u32> = list
                    .iter()
                    .filter(|one| !is_generated(one))
                    .copied()
                    .collect();
                if plain.is_empty() {
                    list.clone()
                } else {
                    plain
                }
            })
            .collect();
        plain
            .into_iter()
            .map(|list| self.calls.number(list))
            .collect()
    }

    /// Returns a number that stacks of the same functions have in common, without generated code.
    pub(super) fn frames(&self, stack: u32) -> u64 {
        let calls = self.stacks.get(stack).map_or(0, |stack| stack.calls);
        let plain = self.plain.get((calls as usize).wrapping_sub(1));
        u64::from(plain.copied().unwrap_or(calls))
    }

    /// Returns the names of the stacks.
    pub(super) fn names(&self) -> SnapshotNames<'_> {
        SnapshotNames {
            stacks: self,
            calls: RefCell::default(),
            letters: Cell::new(LETTERS),
            nodes: Nodes::default(),
            known: FxHashMap::default(),
        }
    }
}

/// Names of the stacks of a snapshot, each made once.
pub(super) struct SnapshotNames<'a> {
    stacks: &'a Stacks,
    calls: RefCell<FxHashMap<u32, Frame>>,
    /// Bytes of names that may still be made.
    letters: Cell<usize>,
    nodes: Nodes,
    known: FxHashMap<u32, Rc<[Frame]>>,
}

impl Names for SnapshotNames<'_> {
    fn stack(&mut self, id: u32) -> Rc<[Frame]> {
        if let Some(known) = self.known.get(&id) {
            return Rc::clone(known);
        }
        let call = |number: &u32| {
            let mut calls = self.calls.borrow_mut();
            if let Some(known) = calls.get(number) {
                return Some(known.clone());
            }
            let function = self.stacks.functions.get(*number)?;
            let frame = Frame::Call(Rc::new(
                [function.symbol(&self.stacks.texts, &self.letters)],
            ));
            calls.insert(*number, frame.clone());
            Some(frame)
        };
        let stack = self.stacks.stacks.get(id);
        let calls = stack.and_then(|stack| self.stacks.calls.get(stack.calls));
        let labels = stack.map_or(&[][..], |stack| &stack.labels);
        let ranges = labels.iter().filter_map(|number| {
            let label = self.stacks.labels.get(*number)?;
            Some(Frame::Range(kept(label, &self.letters)))
        });
        let calls = calls.into_iter().flatten().filter_map(call);
        let calls: Vec<Frame> = calls.take(self.nodes.most(id)).collect();
        self.nodes.took(id, calls.len());
        let frames: Rc<[Frame]> = calls.into_iter().chain(ranges).collect();
        self.known.insert(id, Rc::clone(&frames));
        frames
    }

    fn problems(&self) -> Vec<String> {
        self.nodes.problem().into_iter().collect()
    }
}
