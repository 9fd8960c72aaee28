//! Damaged modules, and links in them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use std::io::Write;

use crate::bounded::gpushim;
use crate::files::pipe;
use crate::stacks::traced;

const LIMIT: Duration = Duration::from_secs(30);
const ID: &[u8] = b"0123456789abcdef0123";

/// A section: its name, type, flags and content.
type Section<'a> = (&'a str, u32, u64, Vec<u8>);

const PROGRAM: u32 = 1;
const NOTE: u32 = 7;
const COMPRESSED: u64 = 0x800;

/// An ELF file with a build id and these sections.
fn elf(sections: &[Section]) -> Vec<u8> {
    let note = [
        &4_u32.to_le_bytes()[..],
        &20_u32.to_le_bytes(),
        &3_u32.to_le_bytes(),
        b"GNU\0",
        ID,
    ]
    .concat();
    let mut all: Vec<Section> = vec![
        ("", 0, 0, Vec::new()),
        (".note.gnu.build-id", NOTE, 2, note),
    ];
    all.extend(sections.iter().cloned());
    let mut names = Vec::new();
    let places: Vec<usize> = all
        .iter()
        .map(|(name, ..)| name)
        .chain([&".shstrtab"])
        .map(|name| {
            names.extend_from_slice(name.as_bytes());
            names.push(0);
            names.len() - name.len() - 1
        })
        .collect();
    all.push((".shstrtab", 3, 0, names));
    let mut content = vec![0; 64];
    let mut table = Vec::new();
    for ((_, kind, flags, bytes), name) in all.iter().zip(places) {
        let mut entry = vec![0; 64];
        entry[..4].copy_from_slice(&(name as u32).to_le_bytes());
        entry[4..8].copy_from_slice(&kind.to_le_bytes());
        entry[8..16].copy_from_slice(&flags.to_le_bytes());
        entry[24..32].copy_from_slice(&(content.len() as u64).to_le_bytes());
        entry[32..40].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        entry[48..56].copy_from_slice(&4_u64.to_le_bytes());
        table.extend_from_slice(&entry);
        content.extend_from_slice(bytes);
        content.resize(content.len().next_multiple_of(8), 0);
    }
    content[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    content[16..20].copy_from_slice(&[3, 0, 62, 0]);
    content[20..24].copy_from_slice(&1_u32.to_le_bytes());
    let at = content.len() as u64;
    content[40..48].copy_from_slice(&at.to_le_bytes());
    content[52..54].copy_from_slice(&64_u16.to_le_bytes());
    content[58..60].copy_from_slice(&64_u16.to_le_bytes());
    content[60..62].copy_from_slice(&(all.len() as u16).to_le_bytes());
    content[62..64].copy_from_slice(&(all.len() as u16 - 1).to_le_bytes());
    content.extend_from_slice(&table);
    content
}

/// Compressed zeros with a claimed size.
fn zeros(claimed: u64, bytes: usize) -> Vec<u8> {
    let header = [
        &1_u32.to_le_bytes()[..],
        &[0; 4],
        &claimed.to_le_bytes(),
        &1_u64.to_le_bytes(),
    ]
    .concat();
    let mut encoder = ZlibEncoder::new(header, Compression::best());
    encoder.write_all(&vec![0; bytes]).expect("packed");
    encoder.finish().expect("packed")
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new(module: &[u8]) -> Folder {
        let folder = Folder(tempfile::tempdir().expect("a folder"));
        std::fs::write(folder.at("module.so"), module).expect("written");
        traced(
            &folder.at("a.trace"),
            &folder.at("module.so"),
            ID,
            &[&[0x1010]],
        );
        folder
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Output of `pack` under a limit of memory in MiB.
    fn says(&self, mib: u64) -> String {
        let ran = gpushim(self.0.path(), &["pack", "a.trace"], mib, LIMIT);
        assert_eq!(ran.code, Some(0), "{}", ran.text());
        ran.text()
    }
}

#[test]
fn sections_that_claim_to_be_huge() {
    for name in [".debug_info", ".debug_str", ".symtab"] {
        let module = elf(&[(name, PROGRAM, COMPRESSED, zeros(1 << 62, 100))]);
        let said = Folder::new(&module).says(512);
        assert!(
            said.contains("module.so: it is not used: "),
            "{name}: {said}"
        );
    }
}

#[test]
fn sections_that_unpack_without_end() {
    // 256 MiB in 260 KB: as claimed, and where less is claimed.
    for claimed in [256 << 20, 1 << 20] {
        let module = elf(&[(
            ".debug_info",
            PROGRAM,
            COMPRESSED,
            zeros(claimed, 256 << 20),
        )]);
        assert!(module.len() < 1 << 20);
        let said = Folder::new(&module).says(256);
        assert!(said.contains("module.so: it is not used: "), "{said}");
    }
}

#[test]
fn links_to_pipes() {
    let link = |to: &Path, rest: &[u8]| [to.as_os_str().as_encoded_bytes(), &[0], rest].concat();
    let pipes = tempfile::tempdir().expect("a folder");
    let there = pipes.path().join("pipe");
    pipe(&there);
    for (name, rest) in [(".gnu_debuglink", &[0; 4][..]), (".gnu_debugaltlink", ID)] {
        let module = elf(&[(name, PROGRAM, 0, link(&there, rest))]);
        Folder::new(&module).says(1024);
        // And to one beside the module.
        let module = elf(&[(name, PROGRAM, 0, link(Path::new("pipe"), rest))]);
        let folder = Folder::new(&module);
        pipe(&folder.at("pipe"));
        folder.says(1024);
    }
    let sup = [&[5, 0, 0][..], &link(&there, &[1, 7])].concat();
    let folder = Folder::new(&elf(&[(".debug_sup", PROGRAM, 0, sup)]));
    let said = folder.says(1024);
    assert!(said.contains("it leads to "), "{said}");
    // A package of debug information beside the module.
    let folder = Folder::new(&elf(&[]));
    pipe(&folder.at("module.so.dwp"));
    let said = folder.says(1024);
    assert!(said.contains("it leads to "), "{said}");
}
