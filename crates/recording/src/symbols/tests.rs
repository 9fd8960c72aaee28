//! Libraries and programs built by gcc, whose addresses are taken while they are loaded.

use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::*;

mod bundles;
mod library;

use library::{ID, Library, OTHER_ID, SOURCE, base_of, run};

/// Returns the printed lines of an address.
fn shown(symbolizer: &mut Symbolizer, address: u64) -> Vec<String> {
    lines(&symbolizer.resolve(address))
}

fn no_files() -> Options {
    Options {
        use_files: false,
        ..Options::default()
    }
}

#[test]
fn with_debug_information_inlined_functions_have_lines() {
    let library = Library::c(&["-g", ID]);
    let mut symbolizer = library.symbolizer(Options::default());
    let symbols = symbolizer.resolve(library.call("outer"));
    let seen: Vec<_> = symbols
        .iter()
        .map(|symbol| (symbol.function.as_str(), symbol.line, symbol.inlined))
        .collect();
    assert_eq!(seen, [("inner", Some(4), true), ("outer", Some(9), false)]);
    let source = library.dir.path().join("code.c");
    for symbol in &*symbols {
        assert_eq!(symbol.file.as_deref(), source.to_str());
        assert_eq!(symbol.module.as_deref(), library.path().to_str());
    }
    assert_eq!(
        shown(&mut symbolizer, library.call("hidden")),
        ["inner  code.c:4", "secret  code.c:12"]
    );
    assert_eq!(symbolizer.problems(), [] as [&str; 0]);
}

#[test]
fn without_it_the_symbol_table_has_the_names() {
    let library = Library::c(&["-g0", ID]);
    let mut symbolizer = library.symbolizer(Options::default());
    assert_eq!(
        shown(&mut symbolizer, library.call("outer")),
        ["outer  libcode.so"]
    );
    assert_eq!(
        shown(&mut symbolizer, library.call("hidden")),
        ["secret  libcode.so"]
    );
}

#[test]
fn a_stripped_library_has_its_exports_and_offsets() {
    let library = Library::c(&["-s", ID]);
    let mut symbolizer = library.symbolizer(Options::default());
    assert_eq!(
        shown(&mut symbolizer, library.call("outer")),
        ["outer  libcode.so"]
    );
    let hidden = library.call("hidden");
    let offset = hidden - library.module.bias;
    assert_eq!(
        shown(&mut symbolizer, hidden),
        [format!("libcode.so+{offset:#x}")]
    );
    assert_eq!(symbolizer.resolve(hidden)[0].kind, Kind::Unknown);
}

#[test]
fn a_separate_debug_file_is_found_by_build_id() {
    let library = Library::c(&["-g", ID]);
    let path = library.path().to_str().unwrap();
    let by_id = library.dir.path().join("debug/.build-id/00");
    std::fs::create_dir_all(&by_id).unwrap();
    let debug = by_id.join("112233445566778899aabbccddeeff00112233.debug");
    let split = run(
        "objcopy",
        &["--only-keep-debug", path, debug.to_str().unwrap()],
    );
    if split.is_none() {
        return;
    }
    // The stripped file is a copy: the library is mapped.
    let stripped = library.dir.path().join("stripped");
    run(
        "objcopy",
        &["--strip-all", path, stripped.to_str().unwrap()],
    )
    .unwrap();
    std::fs::rename(&stripped, path).unwrap();
    let hidden = library.call("hidden");
    let mut without = library.symbolizer(Options::default());
    assert_eq!(without.resolve(hidden)[0].kind, Kind::Unknown);
    let options = || Options {
        debug_dirs: vec![library.dir.path().join("debug")],
        ..Options::default()
    };
    let expected = ["inner  code.c:4", "secret  code.c:12"];
    assert_eq!(shown(&mut library.symbolizer(options()), hidden), expected);
    // It is found even if the library itself is removed.
    std::fs::remove_file(path).unwrap();
    assert_eq!(shown(&mut library.symbolizer(options()), hidden), expected);
    // A debug file of another build under that name is not used.
    let other = Library::c(&["-g", OTHER_ID]);
    std::fs::copy(other.path(), &debug).unwrap();
    assert_eq!(
        library.symbolizer(options()).resolve(hidden)[0].kind,
        Kind::Unknown
    );
}

#[test]
fn a_copy_in_a_debug_directory_is_found_by_name() {
    let library = Library::c(&["-g", ID]);
    let dir = library.dir.path().join("copies");
    std::fs::create_dir(&dir).unwrap();
    std::fs::rename(library.path(), dir.join("libcode.so")).unwrap();
    let options = Options {
        debug_dirs: vec![dir],
        ..Options::default()
    };
    let mut symbolizer = library.symbolizer(options);
    assert_eq!(
        shown(&mut symbolizer, library.call("outer")),
        ["inner  code.c:4", "outer  code.c:9"]
    );
}

#[test]
fn a_file_with_another_build_id_is_not_used() {
    let library = Library::c(&["-g", ID]);
    let outer = library.call("outer");
    for flags in [OTHER_ID, "-Wl,--build-id=none"] {
        let other = Library::c(&["-g", flags]);
        std::fs::rename(other.path(), library.path()).unwrap();
        let mut symbolizer = library.symbolizer(Options::default());
        assert_eq!(symbolizer.resolve(outer)[0].kind, Kind::Unknown);
        symbolizer.resolve(outer + 1);
        let [problem] = symbolizer.problems() else {
            panic!("{:?}", symbolizer.problems());
        };
        assert!(
            problem.contains("libcode.so is not the file that was loaded"),
            "{problem}"
        );
    }
}

#[test]
fn without_a_build_id_a_file_is_used_with_a_warning() {
    let library = Library::c(&["-g", "-Wl,--build-id=none"]);
    assert_eq!(library.module.build_id, [] as [u8; 0]);
    let mut symbolizer = library.symbolizer(Options::default());
    let outer = library.call("outer");
    assert_eq!(
        shown(&mut symbolizer, outer),
        ["inner  code.c:4", "outer  code.c:9"]
    );
    let problems = symbolizer.problems();
    assert!(
        problems.len() == 1 && problems[0].contains("has no build id"),
        "{problems:?}"
    );
    // A file that has an id by now is another one.
    let other = Library::c(&["-g", ID]);
    std::fs::rename(other.path(), library.path()).unwrap();
    let mut symbolizer = library.symbolizer(Options::default());
    assert_eq!(symbolizer.resolve(outer)[0].kind, Kind::Unknown);
}

#[test]
fn a_program_at_fixed_addresses() {
    let dir = tempfile::tempdir().unwrap();
    let (source, program) = (dir.path().join("prog.c"), dir.path().join("prog"));
    let main = "#include <stdio.h>\nint main(void) {\n    return printf(\"%p\", outer()) < 0;\n}\n";
    std::fs::write(&source, format!("{SOURCE}{main}")).unwrap();
    let args = ["-g", "-O1", "-no-pie", "-Wl,--build-id=sha1", "-o"];
    run(
        "gcc",
        &[
            &args[..],
            &[program.to_str().unwrap(), source.to_str().unwrap()],
        ]
        .concat(),
    );
    let printed = String::from_utf8(run(program.to_str().unwrap(), &[]).unwrap()).unwrap();
    let address = u64::from_str_radix(printed.trim_start_matches("0x"), 16).unwrap();
    let module = Module {
        begin: address & !0xfff,
        end: address + 4096,
        bias: 0,
        path: program.to_str().unwrap().to_string(),
        build_id: build_id::of_file(&program).unwrap().unwrap(),
        generation: 0,
    };
    assert_eq!(module.build_id.len(), 20);
    let mut symbolizer = Symbolizer::new(vec![module], Default::default(), Options::default());
    assert_eq!(
        shown(&mut symbolizer, address),
        ["inner  prog.c:4", "outer  prog.c:9"]
    );
}

#[test]
fn names_of_cpp_are_demangled() {
    let source = "
namespace geometry {
struct Shape { __attribute__((noipa, noinline)) void *area(int, const Shape &) const; };
void *Shape::area(int, const Shape &) const {
    return __builtin_extract_return_addr(__builtin_return_address(0));
}
template <class T> __attribute__((noipa, noinline)) void *call(T number) {
    Shape shape;
    void *address = shape.area(number, shape);
    __asm__ volatile(\"\" ::: \"memory\");
    return address;
}
}
extern \"C\" void *outer() { return geometry::call<long>(7); }
";
    for debug in ["-g", "-g0"] {
        let Some(library) = Library::compile("g++", "cpp", source, &[debug, ID]) else {
            return;
        };
        let mut symbolizer = library.symbolizer(Options::default());
        let symbols = symbolizer.resolve(library.call("outer"));
        assert_eq!(symbols.len(), 1);
        assert_eq!(symbols[0].function, "void* geometry::call<long>(long)");
        let place = if debug == "-g" {
            "code.cpp:9"
        } else {
            "libcode.so"
        };
        assert_eq!(
            lines(&symbols),
            [format!("void* geometry::call<long>(...)  {place}")]
        );
    }
}

#[inline(never)]
fn a_function_of_rust() -> u64 {
    std::hint::black_box(7)
}

/// Returns this test executable, and an address in it.
fn ourselves() -> (Module, u64) {
    let address = std::hint::black_box(a_function_of_rust as fn() -> u64) as usize as u64;
    let path = std::env::current_exe().unwrap();
    let base = base_of(address);
    let module = Module {
        begin: base,
        end: u64::MAX,
        bias: base,
        path: path.to_str().unwrap().to_string(),
        build_id: build_id::of_file(&path).unwrap().unwrap_or_default(),
        generation: 0,
    };
    assert_eq!(a_function_of_rust(), 7);
    (module, address + 1)
}

#[test]
fn names_of_rust_are_demangled() {
    let (module, address) = ourselves();
    let mut symbolizer = Symbolizer::new(vec![module], Default::default(), Options::default());
    let symbols = symbolizer.resolve(address);
    let symbol = symbols.last().unwrap();
    assert_eq!(
        symbol.function,
        "gpushim_recording::symbols::tests::a_function_of_rust"
    );
    let file = symbol.file.as_deref().unwrap();
    assert!(file.ends_with("src/symbols/tests.rs"), "{file}");
    assert!(symbol.line.is_some());
}

#[test]
fn of_modules_at_the_same_place_the_last_counts_and_other_code_comes_first() {
    let module = |generation, path: &str| Module {
        begin: 0x1000,
        end: 0x2000,
        bias: 0x1000,
        path: path.to_string(),
        build_id: vec![1; 20],
        generation,
    };
    let modules = vec![module(2, "/lib/new.so"), module(1, "/lib/old.so")];
    let named = |call| (call, "py::train:/src/train.py".to_string());
    let jit = (0x1800..0x1810).map(named).collect();
    let mut symbolizer = Symbolizer::new(modules, jit, Options::default());
    let expected = [
        (0x1000, "0x1000"),
        (0x1001, "new.so+0x1"),
        (0x1800, "new.so+0x800"),
        (0x1801, "train  train.py"),
        (0x1810, "train  train.py"),
        (0x1811, "new.so+0x811"),
        (0x2000, "new.so+0x1000"),
        (0x2001, "0x2001"),
        (0, "0x0"),
        ((1 << 48) - 1, "0xffffffffffff"),
        // Modules of one generation.
        (0x1001 | 1 << 48, "old.so+0x1"),
        (0x1001 | 2 << 48, "new.so+0x1"),
        (0x1001 | 3 << 48, "new.so+0x1"),
    ];
    for (address, name) in expected {
        assert_eq!(shown(&mut symbolizer, address), [name]);
    }
}

proptest! {
    #[test]
    fn any_file_has_a_build_id_or_none(
        damage in prop::collection::vec((0..4096_usize, any::<u64>()), 0..20),
        length in 0..20_000_usize,
    ) {
        static ELF: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
        let content = ELF.get_or_init(|| std::fs::read(Library::c(&[ID]).path()).unwrap());
        let mut content = content.clone();
        for (at, word) in damage {
            content[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        content.truncate(length);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &content).unwrap();
        if let Ok(Some(id)) = build_id::of_file(file.path()) {
            prop_assert!(!id.is_empty() && id.len() < content.len());
        }
    }
}

#[test]
fn build_ids_are_read_as_the_linker_wrote_them() {
    let library = Library::c(&[ID]);
    let expected: Vec<u8> = (0..16)
        .map(|n| n * 0x11)
        .chain([0, 0x11, 0x22, 0x33])
        .collect();
    assert_eq!(library.module.build_id, expected);
    // Without sections, the segments have it.
    let mut content = std::fs::read(library.path()).unwrap();
    content[40..48].fill(0);
    content[60..62].fill(0);
    let bare = library.dir.path().join("bare.so");
    std::fs::write(&bare, &content).unwrap();
    assert_eq!(build_id::of_file(&bare).unwrap(), Some(expected));
    assert!(build_id::of_file(Path::new("/dev/zero")).is_err());
    assert!(build_id::of_file(&library.dir.path().join("code.c")).is_err());
}

#[test]
fn a_pipe_in_place_of_a_module_does_not_block() {
    let dir = tempfile::tempdir().unwrap();
    let pipe: PathBuf = dir.path().join("pipe");
    let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
    // SAFETY: the name is a C string.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    for build_id in [vec![], vec![7; 20]] {
        let module = Module {
            end: 100,
            path: pipe.to_str().unwrap().to_string(),
            build_id,
            ..Module::default()
        };
        let mut symbolizer = Symbolizer::new(vec![module], Default::default(), Options::default());
        assert_eq!(shown(&mut symbolizer, 50), ["pipe+0x32"]);
    }
    let trace = dir.path().join("a.trace");
    std::fs::rename(&pipe, beside(&trace)).unwrap();
    let (bundle, problems) = Bundle::open(&trace);
    assert!(bundle.is_none() && problems.len() == 1);
}

/// Returns the path of the names beside a trace of an earlier form.
fn beside(trace: &Path) -> PathBuf {
    PathBuf::from(format!("{}.symbols", trace.display()))
}

#[test]
fn files_are_not_looked_at_unless_asked() {
    let library = Library::c(&["-g", OTHER_ID]);
    let mut symbolizer = library.symbolizer(no_files());
    assert_eq!(
        symbolizer.resolve(library.call("outer"))[0].kind,
        Kind::Unknown
    );
    assert_eq!(symbolizer.problems(), [] as [&str; 0]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]
    /// Some of these damages make the parser panic, which is reported and costs only the symbols of
    /// the file.
    #[test]
    fn a_damaged_library_does_no_harm(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 1..=8_usize), 1..12),
    ) {
        static ELF: std::sync::OnceLock<(Vec<u8>, u64)> = std::sync::OnceLock::new();
        let (content, at) = ELF.get_or_init(|| {
            let library = Library::c(&["-g", ID]);
            let at = library.call("outer") - library.module.bias - 1;
            (std::fs::read(library.path()).unwrap(), at)
        });
        let mut content = content.clone();
        for (from, value, length) in damage {
            let from = from.index(content.len() - length);
            content[from..from + length].fill(value);
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &content).unwrap();
        let (mut reader, mut problems) = (elf::Reader::new(&[]), Vec::new());
        let first = reader.find(file.path(), *at, &mut problems);
        prop_assert!(problems.len() <= 2);
        let said = problems.clone();
        prop_assert_eq!(reader.find(file.path(), *at, &mut problems), first);
        prop_assert_eq!(problems, said);
    }
}
