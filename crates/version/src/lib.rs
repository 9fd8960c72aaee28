//! Identity of this gpushim: the version, the commit it was built from, and the build id of the
//! running ELF file.
//!
//! The build id tells apart two builds that share all else, and names the file for debuggers and
//! `debuginfod`.

use std::ffi::c_void;
use std::sync::OnceLock;

/// Version of the Cargo package.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Commit, in 12 digits, with `-modified` if files differed from it. `None` in builds for
/// development, and if neither git nor the archive named one.
pub const COMMIT: Option<&str> = option_env!("GPUSHIM_BUILT_FROM");

/// Returns version and commit: the same for the command and the library of one release.
pub fn source() -> String {
    match COMMIT {
        Some(commit) => format!("{VERSION}, commit {commit}"),
        None => format!("{VERSION}, commit unknown"),
    }
}

/// Returns version, commit and build id on one line.
pub fn line() -> &'static str {
    static LINE: OnceLock<String> = OnceLock::new();
    LINE.get_or_init(|| match build_id() {
        Some(id) => format!("{}, build id {id}", source()),
        None => source(),
    })
}

/// Returns the build id of the program or library that this function is linked into, in hexadecimal
/// digits. `None` if its linker wrote none.
pub fn build_id() -> Option<String> {
    let mut search = Search {
        address: build_id as *const () as u64,
        found: None,
    };
    // SAFETY: the callback has the type that is asked for, and `search` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}

struct Search {
    /// Address in the object that is looked for.
    address: u64,
    found: Option<String>,
}

unsafe extern "C" fn visit(
    info: *mut libc::dl_phdr_info,
    _: usize,
    data: *mut c_void,
) -> libc::c_int {
    // SAFETY: `build_id` passes its search.
    let search = unsafe { &mut *data.cast::<Search>() };
    // SAFETY: the linker passes the description of a loaded object, which stays loaded while it is shown.
    let info = unsafe { &*info };
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    // SAFETY: the linker says how many headers there are.
    let headers =
        unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let range = |header: &libc::Elf64_Phdr| {
        let begin = info.dlpi_addr.wrapping_add(header.p_vaddr);
        begin..begin.wrapping_add(header.p_memsz)
    };
    let mut loaded = headers
        .iter()
        .filter(|header| header.p_type == libc::PT_LOAD);
    if !loaded.any(|header| range(header).contains(&search.address)) {
        return 0;
    }
    let notes = headers
        .iter()
        .filter(|header| header.p_type == libc::PT_NOTE);
    search.found = notes
        .filter_map(|header| {
            let range = range(header);
            let length = usize::try_from(header.p_memsz).ok()?;
            // SAFETY: a segment of notes lies within what is loaded of the object.
            let notes = unsafe { std::slice::from_raw_parts(range.start as *const u8, length) };
            of_notes(notes, if header.p_align == 8 { 8 } else { 4 })
        })
        .next();
    1
}

/// Type of the note with the build id.
const BUILD_ID: u32 = 3;

/// Finds the build id among the notes of a segment. Names and contents are padded to `align` bytes.
fn of_notes(notes: &[u8], align: usize) -> Option<String> {
    let mut at = 0_usize;
    loop {
        let number = |offset: usize| {
            let bytes = notes.get(at + offset..at + offset + 4)?;
            Some(u32::from_ne_bytes(bytes.try_into().ok()?))
        };
        let name = at + 12;
        let name_end = name.checked_add(number(0)? as usize)?;
        let content = name_end.checked_next_multiple_of(align)?;
        let content_end = content.checked_add(number(4)? as usize)?;
        if number(8)? == BUILD_ID && notes.get(name..name_end)? == b"GNU\0" {
            let id = notes.get(content..content_end)?;
            return Some(id.iter().map(|byte| format!("{byte:02x}")).collect());
        }
        at = content_end.checked_next_multiple_of(align)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(kind: u32, owner: &[u8], content: &[u8]) -> Vec<u8> {
        let mut note = Vec::new();
        for number in [owner.len() as u32, content.len() as u32, kind] {
            note.extend(number.to_ne_bytes());
        }
        for part in [owner, content] {
            note.extend(part);
            note.resize(note.len().next_multiple_of(4), 0);
        }
        note
    }

    #[test]
    fn the_build_id_is_found_among_other_notes() {
        let id = note(BUILD_ID, b"GNU\0", &[0xab, 0x01, 0x2c]);
        let mut notes = [
            note(1, b"GNU\0", &[1; 16]),
            note(BUILD_ID, b"Go\0", &[2; 5]),
            id,
        ]
        .concat();
        assert_eq!(of_notes(&notes, 4).as_deref(), Some("ab012c"));
        // A note that is cut off has none.
        notes.truncate(notes.len() - 4);
        assert_eq!(of_notes(&notes, 4), None);
        assert_eq!(of_notes(&[255; 64], 4), None);
    }

    #[test]
    fn the_line_is_of_this_file() {
        let line = line();
        assert!(line.starts_with(&format!("{VERSION}, ")), "{line}");
        let file = std::env::current_exe().unwrap();
        let output = std::process::Command::new("readelf")
            .arg("-n")
            .arg(file)
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&output.stdout).into_owned();
        let told = output
            .lines()
            .find_map(|line| line.trim().strip_prefix("Build ID: "));
        assert_eq!(build_id().as_deref(), told);
        assert!(
            told.is_none_or(|id| line.ends_with(&format!(", build id {id}"))),
            "{line}"
        );
    }
}
