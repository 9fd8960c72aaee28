//! Tables of entries that events refer to by a number: texts, stacks, modules, sites, names of
//! generated code. Each entry is appended to its part of the file, without a lock, and never
//! changes.

use std::ffi::c_void;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use memmap2::MmapRaw;

use super::Writer;
use super::places::{Place, Places};
use crate::index::Index;
use crate::jit::Jit;
use crate::modules::{Module, Modules};
use crate::per_thread::{AtThreadEnd, OnDemand};
use crate::sites::{self, Keys, Site, Sites};
use crate::space::{Room, Space};
use crate::stacks::{self, Memo, Pushed, StackNode, Stacks};
use crate::strings::Strings;

/// The parts, within a mapping.
#[derive(Debug)]
pub struct Tables {
    strings: Strings<'static, AtomicU64>,
    stacks: Stacks<'static, AtomicU64>,
    modules: Modules<'static, AtomicU64>,
    jit: Jit<'static, AtomicU64>,
    sites: Sites<'static, AtomicU64>,
}

impl Tables {
    /// Returns tables over parts that are zero.
    ///
    /// # Errors
    /// They are not all within the mapping, or there is not enough memory.
    ///
    /// # Safety
    /// The mapping must live longer than what this returns, and the parts be accessed atomically
    /// only.
    pub unsafe fn new(map: &MmapRaw, places: &Places, space: &Arc<Space>) -> io::Result<Tables> {
        let part = |place: Place| {
            // SAFETY: the caller promises what `words` wants.
            let words = unsafe { place.words(map) };
            words.ok_or_else(|| io::Error::other("the mapping does not fit its parts"))
        };
        let index = |entries| {
            let index = Index::for_entries(entries);
            index.ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))
        };
        let room = |place: Place| Room::of(space, place.at);
        let (strings, stacks) = (part(places.strings)?, part(places.stacks)?);
        // A text takes two words at least.
        let texts = index(strings.len() / 2)?;
        let nodes = index(stacks.len() / stacks::layout::WORDS)?;
        let sites = part(places.sites)?;
        let records = sites.len() / sites::layout::WORDS;
        let keys = Keys::for_entries(records);
        let keys = keys.ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(Tables {
            strings: Strings::new(strings, texts).within(room(places.strings)),
            stacks: Stacks::new(stacks, nodes).within(room(places.stacks)),
            modules: Modules::new(part(places.modules)?).within(room(places.modules)),
            jit: Jit::new(part(places.jit)?).within(room(places.jit)),
            sites: Sites::new(sites, index(records)?, keys).within(room(places.sites)),
        })
    }
}

thread_local! {
    static MEMO: OnDemand<Memo> = const { OnDemand::new() };
}

static END: AtThreadEnd = AtThreadEnd::new(ended);

extern "C" fn ended(_: *mut c_void) {
    // SAFETY: a thread that ends records no stack meanwhile.
    MEMO.with(|memo| unsafe { memo.free() });
}

impl Writer {
    /// Returns the id of a text. The same text has the same id, except in rare races. A text beyond
    /// 4 KiB is shortened. A text that does not fit is counted, and 0 is returned. Takes no lock,
    /// makes no system call and uses no heap.
    pub fn intern(&self, text: &str) -> u32 {
        self.mapped.tables.strings.intern(text)
    }

    /// Returns the id of a stack, for [`crate::Event::stack`]. A stack consists of return
    /// addresses, from the innermost frame on, above a node. The node is 0 or came from
    /// [`Writer::stack_child`]. A frame of an interpreter is [`SITE`](crate::SITE) with the id of a
    /// site from [`Writer::site`].
    ///
    /// A stack that does not fit has only its outer frames, and is counted. Takes no lock and makes
    /// no system call. Uses the heap only at a thread's first stack. Not for signal handlers.
    ///
    /// ```
    /// use gpushim_trace::{Class, Event, Kind, StackNode, Trace, Writer, WriterOptions};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("run.trace");
    /// let writer = Writer::create(&path, &WriterOptions::default())?;
    /// let forward = StackNode::Range { name: writer.intern("forward"), domain: 0 };
    /// let open_ranges = writer.stack_child(0, forward);
    /// let stack = writer.stack(open_ranges, &[0x401136, 0x401020]);
    /// writer.record(&Event { stack, ..Event::new(Kind::Alloc, Class::Device) });
    ///
    /// let trace = Trace::open(&path)?;
    /// let nodes: Vec<StackNode> = trace.stack(stack).collect();
    /// assert_eq!(nodes, [StackNode::Frame(0x401136), StackNode::Frame(0x401020), forward]);
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn stack(&self, root: u32, frames: &[u64]) -> u32 {
        self.whole_stack(root, frames).id
    }

    /// Returns the id like [`Writer::stack`], and tells if the whole stack did fit. Only then may
    /// the caller keep the id for the same stack: one that is cut off is counted each time.
    #[inline]
    pub fn whole_stack(&self, root: u32, frames: &[u64]) -> Pushed {
        let stacks = &self.mapped.tables.stacks;
        MEMO.with(|memo| match memo.get_or_make(&END, Memo::new) {
            Some(memo) => stacks.push(memo, root, frames),
            None => stacks.push(&Memo::new(), root, frames),
        })
    }

    /// Returns the number of this trace, unique among traces made by this process or inherited by
    /// fork.
    #[inline]
    pub fn instance(&self) -> u64 {
        self.mapped.tables.stacks.instance()
    }

    /// Returns the id of a place in source code. `key` identifies the place for an interpreter in
    /// this process. `make` is called once for each key while there is room for keys; its texts
    /// come from [`Writer::intern`]. The same place has the same id, also under another key, except
    /// in rare races. `None` if it does not fit, which is counted, or if `make` returns `None`.
    /// Takes no lock, makes no system call and uses no heap.
    ///
    /// ```
    /// use gpushim_trace::{SITE, Site, StackNode, Trace, Writer, WriterOptions};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("run.trace");
    /// let writer = Writer::create(&path, &WriterOptions::default())?;
    /// let forward = Site { name: writer.intern("Model.forward"), file: writer.intern("train.py"), line: 41 };
    /// let code_and_instruction = [0x7f00_1234_5678, 12, 0, 0];
    /// let site = writer.site(&code_and_instruction, || Some(forward)).ok_or("it fits")?;
    /// let stack = writer.stack(0, &[0x401136, SITE | u64::from(site)]);
    ///
    /// let trace = Trace::open(&path)?;
    /// let nodes: Vec<StackNode> = trace.stack(stack).collect();
    /// assert_eq!(nodes, [StackNode::Frame(0x401136), StackNode::Site(site)]);
    /// assert_eq!(trace.site(site), Some(forward));
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn site(
        &self,
        key: &[u64; sites::KEY],
        make: impl FnOnce() -> Option<Site>,
    ) -> Option<u32> {
        self.mapped.tables.sites.find(key, make)
    }

    /// Returns the id of a node below a parent, for the ranges open on a thread. The parent is 0 or
    /// came from this function. A node that does not fit is counted, and the parent is returned.
    /// Takes no lock, makes no system call and uses no heap.
    pub fn stack_child(&self, parent: u32, node: StackNode) -> u32 {
        self.mapped.tables.stacks.child(parent, node)
    }

    /// Adds a program or library that was loaded; its path is a text from [`Writer::intern`].
    /// `false` if it does not fit, which is counted. Takes no lock, makes no system call and uses
    /// no heap.
    ///
    /// ```
    /// use gpushim_trace::{BuildId, Module, Trace, Writer, WriterOptions};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("run.trace");
    /// let writer = Writer::create(&path, &WriterOptions::default())?;
    /// let module = Module {
    ///     begin: 0x40_0000,
    ///     end: 0x50_0000,
    ///     path: writer.intern("/usr/bin/python3"),
    ///     build_id: BuildId::new(&[0xc0, 0xff, 0xee]),
    ///     ..Module::default()
    /// };
    /// assert!(writer.module(&module));
    ///
    /// let trace = Trace::open(&path)?;
    /// assert_eq!(trace.modules(), [module]);
    /// assert_eq!(trace.string(module.path).as_deref(), Some("/usr/bin/python3"));
    /// assert_eq!(module.build_id.to_string(), "c0ffee");
    /// # Ok(())
    /// # }
    /// ```
    pub fn module(&self, module: &Module) -> bool {
        self.mapped.tables.modules.add(module)
    }

    /// Adds the name of code that is in no file, a text from [`Writer::intern`]. Later names
    /// replace earlier ones at the same addresses. `false` if it does not fit, which is counted.
    /// Takes a lock: not for hot paths.
    pub fn jit(&self, begin: u64, size: u32, name: u32) -> bool {
        let _held = self.rare.lock();
        self.mapped.tables.jit.add(begin, size, name)
    }

    /// Returns the return addresses of the nodes from this id on, and the id to pass next time. For
    /// naming code that is in no file; not for hot paths.
    pub fn frames_since(&self, from: u32) -> (Vec<u64>, u32) {
        self.mapped.tables.stacks.frames_since(from)
    }
}
