//! The functions of an ELF file: from its debug information, else from its symbol tables.

use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Symbolized, Symbolizer};
use rustc_hash::FxHashSet;

use super::files::SYSTEM_DEBUG_DIR;
use super::sound::{self, Use};
use super::{Kind, Symbol};

/// Reads ELF files and keeps what it has parsed of them.
#[derive(Debug)]
pub struct Reader {
    parsed: Symbolizer,
    debug_dirs: Vec<PathBuf>,
    /// Files that it must not read again, with or without their debug information.
    damaged: Vec<(PathBuf, bool)>,
    /// Files that were checked.
    looked_at: FxHashSet<PathBuf>,
}

impl Reader {
    /// Creates a reader that follows debug links into these directories.
    pub fn new(debug_dirs: &[PathBuf]) -> Reader {
        Reader {
            parsed: symbolizer(debug_dirs),
            debug_dirs: debug_dirs.to_vec(),
            damaged: Vec::new(),
            looked_at: FxHashSet::default(),
        }
    }

    /// Checks a file before it is read for the first time.
    fn look_at(&mut self, file: &Path, problems: &mut Vec<String>) {
        if !self.looked_at.insert(file.to_path_buf()) {
            return;
        }
        let system = PathBuf::from(SYSTEM_DEBUG_DIR);
        let dirs: Vec<PathBuf> = self.debug_dirs.iter().cloned().chain([system]).collect();
        let (uses, why) = match sound::look_at(file, &dirs) {
            Use::All => return,
            Use::Tables(None) => (&[true][..], None),
            Use::Tables(Some(why)) => (
                &[true][..],
                Some(format!("its debug information is not used: {why}")),
            ),
            Use::Nothing(why) => (&[true, false][..], Some(format!("it is not used: {why}"))),
        };
        let uses = uses.iter().map(|debug| (file.to_path_buf(), *debug));
        self.damaged.extend(uses);
        problems.extend(why.map(|why| format!("{}: {why}", file.display())));
    }

    /// Returns the functions at an address in the file, innermost first, without their module.
    pub fn find(
        &mut self,
        file: &Path,
        at: u64,
        problems: &mut Vec<String>,
    ) -> Option<Vec<Symbol>> {
        self.look_at(file, problems);
        // If debug information is malformed, the symbol tables are used.
        [true, false].into_iter().find_map(|debug| {
            let damaged = |(path, with): &(PathBuf, bool)| path == file && *with == debug;
            if self.damaged.iter().any(damaged) {
                return None;
            }
            // Blazesym 0.2.7 panics on some damaged debug information (dwarf/lines.rs). All that it
            // had parsed by then is dropped.
            let parsed = AssertUnwindSafe(&self.parsed);
            panic::catch_unwind(|| look_up(&parsed, file, at, debug)).unwrap_or_else(|_| {
                self.parsed = symbolizer(&self.debug_dirs);
                self.damaged.push((file.to_path_buf(), debug));
                problems.push(format!(
                    "{} is damaged: not all of it is used",
                    file.display()
                ));
                None
            })
        })
    }
}

fn symbolizer(debug_dirs: &[PathBuf]) -> Symbolizer {
    let dirs = debug_dirs.iter().map(PathBuf::as_path);
    let dirs = dirs.chain([Path::new(SYSTEM_DEBUG_DIR)]);
    // Files do not change while a report is made of them.
    let builder = Symbolizer::builder().enable_auto_reload(false);
    builder.set_debug_dirs(Some(dirs)).build()
}

/// Looks up the functions at an address. Debug information of lines alone (`rustc -C
/// debuginfo=line-tables-only`) names functions without their module: the symbol table has the
/// whole name.
fn look_up(parsed: &Symbolizer, file: &Path, at: u64, debug: bool) -> Option<Vec<Symbol>> {
    let mut symbols = symbols_at(parsed, file, at, debug)?;
    let outer = symbols.last_mut()?;
    if debug && !outer.function.contains(':') {
        let tail = format!("::{}", outer.function);
        let whole = symbols_at(parsed, file, at, false).and_then(|mut table| table.pop());
        if let Some(whole) = whole.filter(|it| it.function.ends_with(&tail)) {
            outer.function = whole.function;
        }
    }
    Some(symbols)
}

fn symbols_at(parsed: &Symbolizer, file: &Path, at: u64, debug: bool) -> Option<Vec<Symbol>> {
    let mut elf = Elf::new(file);
    elf.debug_syms = debug;
    let found = parsed.symbolize_single(&Source::Elf(elf), Input::VirtOffset(at));
    match found.ok()? {
        Symbolized::Sym(found) if !found.name.is_empty() => {
            let outer = symbol(&found.name, found.code_info.as_deref(), false);
            let inner = found.inlined.iter().rev();
            let inner = inner.map(|it| symbol(&it.name, it.code_info.as_ref(), true));
            Some(inner.chain([outer]).collect())
        }
        _ => None,
    }
}

fn symbol(name: &str, code: Option<&CodeInfo<'_>>, inlined: bool) -> Symbol {
    Symbol {
        function: name.to_string(),
        file: code.map(|code| code.to_path().to_string_lossy().into_owned()),
        line: code.and_then(|code| code.line).filter(|line| *line > 0),
        inlined,
        kind: Kind::Native,
        ..Symbol::default()
    }
}
