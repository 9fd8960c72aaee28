//! The functions of an ELF file: from its debug information, else from its symbol tables.

use std::path::{Path, PathBuf};

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Symbolized, Symbolizer};

use super::files::SYSTEM_DEBUG_DIR;
use super::{Kind, Symbol};

/// Reads ELF files and keeps what it has parsed of them.
#[derive(Debug)]
pub struct Reader(Symbolizer);

impl Reader {
    /// A reader that follows debug links into these directories.
    pub fn new(debug_dirs: &[PathBuf]) -> Reader {
        let system = Path::new(SYSTEM_DEBUG_DIR);
        let dirs = debug_dirs.iter().map(PathBuf::as_path).chain([system]);
        // Files do not change while a report is made of them.
        let builder = Symbolizer::builder().enable_auto_reload(false);
        Reader(builder.set_debug_dirs(Some(dirs)).build())
    }

    /// The functions at an address as the file names it, innermost first, without their module.
    pub fn find(&self, file: &Path, at: u64) -> Option<Vec<Symbol>> {
        // Debug information that makes no sense, or a debug link to a file of another build, leaves the
        // symbol tables.
        [true, false].into_iter().find_map(|debug| {
            let mut elf = Elf::new(file);
            elf.debug_syms = debug;
            let input = Input::VirtOffset(at);
            match self.0.symbolize_single(&Source::Elf(elf), input).ok()? {
                Symbolized::Sym(found) if !found.name.is_empty() => {
                    let outer = symbol(&found.name, found.code_info.as_deref(), false);
                    let inner = found.inlined.iter().rev();
                    let inner = inner.map(|it| symbol(&it.name, it.code_info.as_ref(), true));
                    Some(inner.chain([outer]).collect())
                }
                _ => None,
            }
        })
    }
}

fn symbol(name: &str, code: Option<&CodeInfo<'_>>, inlined: bool) -> Symbol {
    Symbol {
        function: name.to_string(),
        file: code.map(|code| code.to_path().to_string_lossy().into_owned()),
        line: code.and_then(|code| code.line).filter(|line| *line > 0),
        module: None,
        inlined,
        kind: Kind::Native,
    }
}
