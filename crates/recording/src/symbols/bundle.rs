//! Symbols that were packed on the machine with the files, to be read on another one.
//!
//! The format is text, so that it can be read, searched and compared; `docs/trace-format.md` has
//! it. It is attached to the trace. Of an earlier form it is a file beside the trace, under the
//! trace's name with `.symbols` after it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use super::{Kind, Module, Symbol};
use gpushim_trace::attached::{self, Attached};
use gpushim_trace::regular::{open_companion, open_regular, read_at_most};
use gpushim_trace::{escape_into, fnv, unescaped};

/// Bytes of a bundle beyond which it is not read.
const BYTES_MAX: u64 = 256 << 20;
const FIRST_LINE: &str = "gpushim symbols 1";

/// The functions of some addresses of some modules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bundle(BTreeMap<Key, BundledModule>);

/// The identity of a module: its build id, or its path if it has none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Id(Vec<u8>),
    Path(String),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct BundledModule {
    /// The path of the module, for people.
    path: String,
    /// Symbols, innermost first, by the looked-up address in the module's file.
    symbols: BTreeMap<u64, Vec<Symbol>>,
}

impl Bundle {
    /// Reads the bundle attached to a trace, or the one beside it. Also returns its problems:
    /// sentences that name the file. A missing bundle is no problem. A file of another user beside
    /// the trace is not read.
    pub fn open(trace: &Path) -> (Option<Bundle>, Vec<String>) {
        let said = |what: String| format!("the names attached to {}: {what}", trace.display());
        let attached = open_regular(trace).map_or(Ok(None), |(file, _)| {
            attached::read(&file, Attached::Symbols)
        });
        match attached {
            Ok(None) => Bundle::open_beside(trace),
            Ok(Some(content)) => {
                let (bundle, problems) = Bundle::parse(&content);
                (Some(bundle), problems.into_iter().map(said).collect())
            }
            Err(error) => (None, vec![said(format!("they cannot be read: {error}"))]),
        }
    }

    fn open_beside(trace: &Path) -> (Option<Bundle>, Vec<String>) {
        let mut path = trace.as_os_str().to_owned();
        path.push(".symbols");
        let path = PathBuf::from(path);
        let said = |what: String| format!("{}: {what}", path.display());
        let opened = match open_companion(&path, trace) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return (None, Vec::new()),
            opened => opened,
        };
        let content = opened.and_then(|(file, meta)| read_at_most(file, &meta, BYTES_MAX));
        match content {
            Ok(content) => {
                let (bundle, problems) = Bundle::parse(&content);
                (Some(bundle), problems.into_iter().map(said).collect())
            }
            Err(error) => (None, vec![said(format!("it cannot be read: {error}"))]),
        }
    }

    /// Parses the content of a file; of a damaged one the readable part. Also returns its problems.
    pub fn parse(content: &[u8]) -> (Bundle, Vec<String>) {
        let mut bundle = Bundle::default();
        let mut problems = Vec::new();
        if !content.starts_with(format!("{FIRST_LINE}\n").as_bytes()) {
            problems.push(format!("it does not begin with \"{FIRST_LINE}\": not used"));
            return (bundle, problems);
        }
        let end = content
            .iter()
            .rposition(|byte| *byte == b'\t')
            .unwrap_or(content.len());
        let (text, sum) = content.split_at(end);
        if sum != format!("\t{:016x}\n", checksum(text)).as_bytes() {
            problems.push("it does not match its checksum: damaged or cut off".to_string());
        }
        let text = String::from_utf8_lossy(text);
        let mut reading = Reading::default();
        let mut lines = text.split('\n').enumerate().skip(1).peekable();
        while let Some((index, line)) = lines.next() {
            let last = lines.peek().is_none();
            if last && line == "end" {
                break;
            }
            if reading.line(line, &mut bundle).is_none() {
                // One line is named: a damaged file may have millions.
                if reading.bad == 0 {
                    problems.push(format!("line {} makes no sense: left out", index + 1));
                }
                reading.bad += 1;
            }
        }
        if reading.bad > 1 {
            problems.push(format!("{} lines in all make no sense", reading.bad));
        }
        (bundle, problems)
    }

    /// Returns the text of the file.
    pub fn to_text(&self) -> String {
        let mut text = format!("{FIRST_LINE}\n");
        for (key, found) in &self.0 {
            text.push_str("module\t");
            if let Key::Id(id) = key {
                id.iter()
                    .for_each(|byte| hex(&mut text, u64::from(*byte), 2));
            }
            text.push('\t');
            escape_into(&mut text, &found.path);
            text.push('\n');
            for (offset, symbols) in &found.symbols {
                for symbol in symbols {
                    hex(&mut text, *offset, 1);
                    text.push_str(if symbol.inlined {
                        "\tinlined\t"
                    } else {
                        "\t\t"
                    });
                    escape_into(&mut text, &symbol.function);
                    text.push('\t');
                    escape_into(&mut text, symbol.file.as_deref().unwrap_or_default());
                    text.push('\t');
                    if let Some(line) = symbol.line {
                        text.push_str(&line.to_string());
                    }
                    text.push('\n');
                }
            }
        }
        text.push_str("end");
        let sum = checksum(text.as_bytes());
        text.push('\t');
        hex(&mut text, sum, 16);
        text.push('\n');
        text
    }

    /// Returns the number of modules in it.
    pub fn modules(&self) -> usize {
        self.0.len()
    }

    /// Returns the number of addresses with known functions.
    pub fn addresses(&self) -> usize {
        self.0.values().map(|found| found.symbols.len()).sum()
    }

    pub(super) fn insert(&mut self, module: &Module, offset: u64, symbols: &[Symbol]) {
        let found = self
            .0
            .entry(Key::of(&module.build_id, &module.path))
            .or_default();
        found.path.clone_from(&module.path);
        // The module is the line above.
        let symbols = symbols.iter().map(|symbol| Symbol {
            module: None,
            ..symbol.clone()
        });
        found.symbols.insert(offset, symbols.collect());
    }

    pub(super) fn find(&self, module: &Module, offset: u64) -> Option<Vec<Symbol>> {
        let found = self.0.get(&Key::of(&module.build_id, &module.path))?;
        found.symbols.get(&offset).cloned()
    }
}

impl Key {
    fn of(build_id: &[u8], path: &str) -> Key {
        if build_id.is_empty() {
            Key::Path(path.to_string())
        } else {
            Key::Id(build_id.to_vec())
        }
    }
}

/// The state of reading the lines of a bundle.
#[derive(Default)]
struct Reading {
    module: Option<Key>,
    /// The inlined functions of an offset whose own function has not been read yet.
    inner: Vec<Symbol>,
    offset: u64,
    bad: u64,
}

impl Reading {
    /// Reads a line; `None` if it is malformed.
    fn line(&mut self, line: &str, bundle: &mut Bundle) -> Option<()> {
        let mut fields = line.split('\t');
        let first = fields.next()?;
        if first == "module" {
            // If this line is damaged, the lines after it belong to no module.
            self.module = None;
            self.inner.clear();
            let (id, path) = (from_hex(fields.next()?)?, unescaped(fields.next()?));
            let key = Key::of(&id, &path);
            bundle.0.entry(key.clone()).or_default().path = path;
            self.module = Some(key);
            return fields.next().is_none().then_some(());
        }
        let offset = u64::from_str_radix(first, 16).ok()?;
        let inlined = match fields.next()? {
            "inlined" => true,
            "" => false,
            _ => return None,
        };
        let function = unescaped(fields.next().filter(|name| !name.is_empty())?);
        let file = Some(fields.next()?)
            .filter(|file| !file.is_empty())
            .map(unescaped);
        let line = match fields.next()? {
            "" => None,
            number => Some(number.parse().ok()?),
        };
        let symbol = Symbol {
            function,
            file,
            line,
            inlined,
            kind: Kind::Native,
            ..Symbol::default()
        };
        if fields.next().is_some() {
            return None;
        }
        let found = bundle.0.get_mut(self.module.as_ref()?)?;
        if offset != self.offset {
            self.inner.clear();
        }
        self.offset = offset;
        self.inner.push(symbol);
        if !inlined {
            found
                .symbols
                .insert(offset, std::mem::take(&mut self.inner));
        }
        Some(())
    }
}

fn hex(text: &mut String, number: u64, width: usize) {
    // Writing to a string never fails.
    let _ = write!(text, "{number:0width$x}");
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let whole = text.len().is_multiple_of(2);
    whole.then(|| text.as_bytes().chunks(2).map(pair).collect())?
}

fn checksum(bytes: &[u8]) -> u64 {
    fnv::sum(bytes.iter().map(|byte| u64::from(*byte)))
}
