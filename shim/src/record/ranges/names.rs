//! Names of ranges and domains. Two kinds of names are kept for the life of the process, each text
//! once: names to which a program has a handle, and names that were given before the trace was
//! opened.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::RwLock;
use std::sync::atomic::{AtomicU32, Ordering};

use gpushim_trace::{Writer, cut_to};

use crate::record::trace;

/// Most bytes of a name that are kept.
const LONGEST: usize = 1024;
/// Most names that are kept: a program may number its steps.
const MOST: usize = 1 << 16;

static NAMES: RwLock<BTreeMap<&'static str, &'static Name>> = RwLock::new(BTreeMap::new());

/// A name that is kept; equal texts are the same name.
#[derive(Debug)]
pub struct Name {
    text: Box<str>,
    /// Its id in the trace; 0 until it is needed.
    id: AtomicU32,
}

impl Name {
    /// Returns its string id in the trace.
    pub fn id(&self, writer: &Writer) -> u32 {
        match self.id.load(Ordering::Relaxed) {
            0 => {
                let id = writer.intern(&self.text);
                self.id.store(id, Ordering::Relaxed);
                id
            }
            known => known,
        }
    }
}

/// Returns the name of a text; `None` if there are too many.
pub fn name(text: &str) -> Option<&'static Name> {
    let text = cut_to(text, LONGEST);
    if let Some(known) = NAMES.read().ok()?.get(text) {
        return Some(known);
    }
    let mut names = NAMES.write().ok()?;
    if let Some(known) = names.get(text) {
        return Some(known);
    }
    if names.len() >= MOST {
        return None;
    }
    let name: &'static Name = Box::leak(Box::new(Name {
        text: text.into(),
        id: AtomicU32::new(0),
    }));
    names.insert(&name.text, name);
    Some(name)
}

/// The name that a program gives a range.
pub enum Text<'a> {
    None,
    /// A text of the call itself.
    Plain(Cow<'a, str>),
    /// A text that it registered before.
    Known(&'static Name),
}

/// Name of a range while it is open.
#[derive(Clone, Copy)]
pub enum Label {
    /// A string id of the trace.
    Id(u32),
    /// A text without an id: there was no trace yet.
    Early(&'static Name),
}

impl Text<'_> {
    /// Returns its string id in the trace.
    pub fn id(&self, writer: &Writer) -> u32 {
        match self {
            Text::None => 0,
            Text::Plain(text) => writer.intern(cut_to(text, LONGEST)),
            Text::Known(name) => name.id(writer),
        }
    }

    /// Returns its label, with or without a trace.
    pub fn label(&self, writer: Option<&Writer>) -> Label {
        match (writer, self) {
            (Some(writer), _) => Label::Id(self.id(writer)),
            (None, _) if trace::is_off() => Label::Id(0),
            (None, Text::None) => Label::Id(0),
            (None, Text::Plain(text)) => name(text).map_or(Label::Id(0), Label::Early),
            (None, Text::Known(name)) => Label::Early(name),
        }
    }
}

impl Label {
    /// Returns its string id in the trace.
    pub fn id(self, writer: &Writer) -> u32 {
        match self {
            Label::Id(id) => id,
            Label::Early(name) => name.id(writer),
        }
    }
}
