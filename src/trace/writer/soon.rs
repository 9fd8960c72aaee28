//! Stand-ins, until the parts Strings and Stacks are there: texts become facts of the key `string`, in the
//! order of their ids; nodes are only numbered. [`crate::trace::Trace::string`] reads the facts.

use std::sync::Mutex;

use super::Writer;

/// What was interned so far.
#[derive(Debug, Default)]
pub(super) struct Soon {
    strings: Mutex<Vec<String>>,
    nodes: Mutex<Vec<(u32, u8, u64)>>,
}

impl Writer {
    /// The id of a text, the same for the same text; 0 if there is no room.
    pub fn intern(&self, text: &str) -> u32 {
        let Ok(mut strings) = self.soon.strings.lock() else {
            return 0;
        };
        if let Some(at) = strings.iter().position(|known| known == text) {
            return at as u32 + 1;
        }
        strings.push(text.to_owned());
        self.fact("string", text);
        strings.len() as u32
    }

    /// The id of the node below `parent` with this kind and value, made if there is none; 0 if there is no
    /// room.
    pub fn stack_child(&self, parent: u32, kind: u8, value: u64) -> u32 {
        let Ok(mut nodes) = self.soon.nodes.lock() else {
            return 0;
        };
        let node = (parent, kind, value);
        if let Some(at) = nodes.iter().position(|known| *known == node) {
            return at as u32 + 1;
        }
        nodes.push(node);
        nodes.len() as u32
    }
}
