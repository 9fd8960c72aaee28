//! Functions of return addresses, found offline: on the machine of the process, or on another one.
//!
//! A trace holds addresses, the loaded modules and the names of code in no file. A module's file is
//! used only if its build id is the one that was loaded. Else its debug file is searched by build
//! id. Else the names come from a [`Bundle`] that was packed on the machine with the files.

use std::cell::OnceCell;
use std::path::PathBuf;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use serde::Serialize;

mod build_id;
mod bundle;
mod elf;
mod files;
mod jit;
mod lines;
mod origin;
mod sound;
#[cfg(test)]
mod tests;

pub use bundle::Bundle;
pub use lines::{base, line, lines, short};
pub use origin::Origin;

/// A library or program that was loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Address of its first byte.
    pub begin: u64,
    /// The first address after it.
    pub end: u64,
    /// Difference between its addresses in memory and in its file.
    pub bias: u64,
    /// Its file, as the dynamic linker named it.
    pub path: String,
    /// Its build id; empty if it has none.
    pub build_id: Vec<u8>,
    /// Number of the module among all that lay at the same addresses. A return address has it from
    /// bit 48 upwards.
    pub generation: u32,
}

/// Lowest bit of the module's generation in a return address, see docs/trace-format.md.
const GENERATION_SHIFT: u32 = 48;

/// Kind of code of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Of a module.
    Native,
    /// Code of the Python interpreter.
    Python,
    /// Code of another compiler at run time, which named it in its perf map.
    Jit,
    /// Nothing more is known than the module and the offset in it, or not even that.
    #[default]
    Unknown,
}

/// One function at an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbol {
    /// Its name, demangled and in full. Unknown code has `module+0xoffset`, or the address.
    pub function: String,
    /// The path of the source file, as given to the compiler.
    pub file: Option<String>,
    /// The line of the call in that file.
    pub line: Option<u32>,
    /// Path of the module's file.
    pub module: Option<String>,
    /// True if the compiler inlined it into its caller, which is the next symbol of the same
    /// address.
    pub inlined: bool,
    /// Kind of code of the function.
    pub kind: Kind,
    /// Its origin, once it was looked up.
    pub known: KnownOrigin,
}

/// The origin of a function, which takes long to find. It is ignored when functions are compared.
#[derive(Debug, Default)]
pub struct KnownOrigin(OnceCell<Origin>);

impl Clone for KnownOrigin {
    /// Returns an unknown origin: a copy may be changed.
    fn clone(&self) -> KnownOrigin {
        KnownOrigin::default()
    }
}

impl PartialEq for KnownOrigin {
    fn eq(&self, _: &KnownOrigin) -> bool {
        true
    }
}

impl Eq for KnownOrigin {}

impl Symbol {
    /// Returns the origin of the function.
    pub fn origin(&self) -> Origin {
        *self.known.0.get_or_init(|| Origin::of(self))
    }

    /// Returns the operator of PyTorch that it calls: `mul_Tensor`.
    pub fn operator(&self) -> Option<&str> {
        let operator = self.function.split_once("at::_ops::")?.1;
        operator.split_once("::call(").map(|(name, _)| name)
    }
}

/// Sources in which symbols are searched.
#[derive(Debug)]
pub struct Options {
    /// Directories to search for modules and their debug files, before `/usr/lib/debug`.
    pub debug_dirs: Vec<PathBuf>,
    /// Symbols that were packed on the machine with the files.
    pub bundle: Option<Bundle>,
    /// True if files of this machine may be read.
    pub use_files: bool,
    /// The problems found before; the beginning of [`Symbolizer::problems`].
    pub problems: Vec<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            debug_dirs: Vec::new(),
            bundle: None,
            use_files: true,
            problems: Vec::new(),
        }
    }
}

/// Finds the functions of one process's addresses, and remembers them.
#[derive(Debug)]
pub struct Symbolizer {
    modules: Vec<Module>,
    /// Names of code in no file, by the addresses of the calls in it.
    jit: FxHashMap<u64, String>,
    options: Options,
    elf: elf::Reader,
    /// The files of each module, by its index, once they were searched.
    files: FxHashMap<usize, Vec<PathBuf>>,
    cache: FxHashMap<u64, Rc<[Symbol]>>,
    problems: Vec<String>,
}

impl Symbolizer {
    /// Creates a symbolizer of a process that had these modules and this code in no file.
    pub fn new(
        modules: Vec<Module>,
        jit: FxHashMap<u64, String>,
        mut options: Options,
    ) -> Symbolizer {
        let problems = std::mem::take(&mut options.problems);
        Symbolizer {
            modules,
            jit,
            elf: elf::Reader::new(&options.debug_dirs),
            options,
            files: FxHashMap::default(),
            cache: FxHashMap::default(),
            problems,
        }
    }

    /// Returns the functions of a return address, at least one: first the inlined ones, last the
    /// function itself. From bit 48 upwards, the address has the generation of its module.
    ///
    /// A call may be the last instruction of its function, so the byte before is looked up.
    pub fn resolve(&mut self, address: u64) -> Rc<[Symbol]> {
        if let Some(known) = self.cache.get(&address) {
            return Rc::clone(known);
        }
        let symbols: Rc<[Symbol]> = self.look_up(address).into();
        self.cache.insert(address, Rc::clone(&symbols));
        symbols
    }

    /// Returns the problems with symbols up to now, each a sentence that names the file.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// Returns a bundle with all known functions of these return addresses.
    pub fn pack(&mut self, addresses: impl IntoIterator<Item = u64>) -> Bundle {
        let mut bundle = Bundle::default();
        for address in addresses {
            let symbols = self.resolve(address);
            let known = symbols.iter().all(|symbol| symbol.kind == Kind::Native);
            if known && let Some(module) = self.module(address).and_then(|i| self.modules.get(i)) {
                bundle.insert(module, offset(module, address), &symbols);
            }
        }
        bundle
    }

    fn look_up(&mut self, address: u64) -> Vec<Symbol> {
        if let Some(name) = self.jit.get(&address.wrapping_sub(1)) {
            return vec![jit::symbol(name)];
        }
        let Some(index) = self.module(address) else {
            return vec![unknown(format!("{:#x}", plain(address)), None)];
        };
        let module = &self.modules[index];
        let at = offset(module, address);
        let files = self.files.entry(index).or_insert_with(|| {
            if self.options.use_files {
                files::of(module, &self.options.debug_dirs, &mut self.problems)
            } else {
                Vec::new()
            }
        });
        let (elf, problems) = (&mut self.elf, &mut self.problems);
        let mut found = files.iter().find_map(|file| elf.find(file, at, problems));
        if found.is_none() {
            let bundle = self.options.bundle.as_ref();
            found = bundle.and_then(|bundle| bundle.find(module, at));
        }
        let Some(mut symbols) = found else {
            let offset = plain(address).wrapping_sub(module.bias);
            let name = format!("{}+{offset:#x}", lines::base(&module.path));
            return vec![unknown(name, Some(module.path.clone()))];
        };
        for symbol in &mut symbols {
            symbol.module = Some(module.path.clone());
        }
        symbols
    }

    /// Returns the module of a return address: of several the one that it names, or the last.
    fn module(&self, address: u64) -> Option<usize> {
        let at = plain(address).wrapping_sub(1);
        let meant = (address >> GENERATION_SHIFT) as u32;
        let holds = |module: &Module| (module.begin..module.end).contains(&at);
        let all = self.modules.iter().enumerate();
        all.filter(|(_, module)| holds(module))
            .max_by_key(|(_, module)| (module.generation == meant, module.generation))
            .map(|(index, _)| index)
    }
}

/// Returns the looked-up address in the module's file for a return address.
fn offset(module: &Module, address: u64) -> u64 {
    plain(address).wrapping_sub(module.bias).wrapping_sub(1)
}

/// Returns a return address without the generation of its module.
fn plain(address: u64) -> u64 {
    address & ((1 << GENERATION_SHIFT) - 1)
}

fn unknown(function: String, module: Option<String>) -> Symbol {
    Symbol {
        function,
        module,
        ..Symbol::default()
    }
}
