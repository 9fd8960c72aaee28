//! Properties of 64-bit ELF files.

use object::LittleEndian;
use object::elf::{FileHeader64, PT_INTERP, SHT_DYNSYM};
use object::read::elf::{FileHeader, ProgramHeader, Sym};

type Header = FileHeader64<LittleEndian>;

/// True if a program, of which the first bytes are enough, names a dynamic loader. `None`: it is no
/// 64-bit little-endian ELF file.
pub fn has_loader(program: &[u8]) -> Option<bool> {
    let header = Header::parse(program).ok()?;
    let endian = header.endian().ok()?;
    let mut parts = header.program_headers(endian, program).ok()?.iter();
    Some(parts.any(|part| part.p_type(endian) == PT_INTERP))
}

/// True if a library defines a dynamic symbol of this name. `None`: it is no 64-bit little-endian
/// ELF file, or is damaged.
pub fn defines(library: &[u8], name: &[u8]) -> Option<bool> {
    let header = Header::parse(library).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, library).ok()?;
    let symbols = sections.symbols(endian, library, SHT_DYNSYM).ok()?;
    let is_it = |symbol: &object::elf::Sym64<LittleEndian>| {
        !symbol.is_undefined(endian) && symbol.name(endian, symbols.strings()) == Ok(name)
    };
    Some(symbols.iter().any(is_it))
}
