//! Libraries built by gcc and loaded into this process.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::symbols::{Module, Options, Symbolizer, build_id};

/// `outer` calls, through the inlined `inner`, a function that returns its return address. `hidden`
/// returns one within a function that only a full symbol table names.
pub const SOURCE: &str = "\
#define APART __attribute__((noipa, noinline))
APART static void *here(void) { return __builtin_return_address(0); }
static inline __attribute__((always_inline)) void *inner(void) {
    void *address = here();
    __asm__ volatile(\"\" ::: \"memory\");
    return address;
}
APART void *outer(void) {
    return inner();
}
APART static void *secret(void) {
    return inner();
}
APART void *hidden(void) {
    void *address = secret();
    __asm__ volatile(\"\" ::: \"memory\");
    return address;
}
";

pub const ID: &str = "-Wl,--build-id=0x00112233445566778899aabbccddeeff00112233";
pub const OTHER_ID: &str = "-Wl,--build-id=0xff112233445566778899aabbccddeeff00112233";

/// Runs a program if there is one of this name.
pub fn run(program: &str, args: &[&str]) -> Option<Vec<u8>> {
    let output = match Command::new(program).args(args).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        output => output.unwrap(),
    };
    assert!(
        output.status.success(),
        "{program} {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(output.stdout)
}

/// A library that was loaded into this process.
pub struct Library {
    pub dir: TempDir,
    pub module: Module,
    handle: libloading::Library,
}

impl Library {
    pub fn c(flags: &[&str]) -> Library {
        Library::compile("gcc", "c", SOURCE, flags).expect("the tests need gcc")
    }

    pub fn compile(
        compiler: &str,
        extension: &str,
        source: &str,
        flags: &[&str],
    ) -> Option<Library> {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (
            dir.path().join(format!("code.{extension}")),
            dir.path().join("libcode.so"),
        );
        std::fs::write(&from, source).unwrap();
        let mut args = vec![
            "-O1",
            "-shared",
            "-fPIC",
            "-o",
            to.to_str()?,
            from.to_str()?,
        ];
        args.extend(flags);
        run(compiler, &args)?;
        // SAFETY: the library is built by this test and has no constructors.
        let handle = unsafe { libloading::Library::new(&to) }.unwrap();
        let mut library = Library {
            dir,
            module: Module::default(),
            handle,
        };
        let base = base_of(library.symbol("outer"));
        library.module = Module {
            begin: base,
            end: base + (1 << 20),
            bias: base,
            path: to.to_str()?.to_string(),
            build_id: build_id::of_file(&to).unwrap().unwrap_or_default(),
            generation: 1,
        };
        Some(library)
    }

    pub fn symbol(&self, name: &str) -> u64 {
        // SAFETY: only the address is used.
        let symbol = unsafe { self.handle.get::<*const ()>(name.as_bytes()) };
        *symbol.unwrap() as u64
    }

    /// Returns the result of a function of the library: an address.
    pub fn call(&self, name: &str) -> u64 {
        // SAFETY: all functions of the sources here take nothing and return a pointer.
        let function = unsafe {
            self.handle
                .get::<extern "C" fn() -> *const ()>(name.as_bytes())
        };
        function.unwrap()() as u64
    }

    pub fn path(&self) -> &Path {
        Path::new(&self.module.path)
    }

    pub fn symbolizer(&self, options: Options) -> Symbolizer {
        Symbolizer::new(vec![self.module.clone()], Default::default(), options)
    }
}

/// Returns the address in memory at which the file of an address begins.
pub fn base_of(address: u64) -> u64 {
    // SAFETY: all zeros is a value of this struct of pointers.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `info` outlives the call.
    assert_ne!(unsafe { libc::dladdr(address as *const _, &mut info) }, 0);
    info.dli_fbase as u64
}
