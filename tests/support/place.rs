//! Paths of the shim, the stand-ins and the libraries and programs built from C.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::files::Lock;
use super::machine::Machine;

/// The places, all absolute.
pub struct Place {
    /// Root folder of the repository.
    pub root: PathBuf,
    /// Machine that programs are built for and run on.
    pub machine: Machine,
    /// cargo's folder of this profile and machine, where the built libraries are.
    pub built: PathBuf,
    /// Path of `libgpushim.so`.
    pub shim: PathBuf,
    /// Folder with the stand-ins under the names that programs load: `libcuda.so.1`,
    /// `libcudart.so.12`, `.13`.
    pub libraries: PathBuf,
    /// Folder in which C programs are built.
    pub programs: PathBuf,
}

/// The places of this test run.
///
/// # Panics
/// In one sentence, if something was not built.
pub fn place() -> &'static Place {
    static PLACE: OnceLock<Place> = OnceLock::new();
    PLACE.get_or_init(|| find().unwrap_or_else(|problem| panic!("{problem}")))
}

fn find() -> Result<Place, String> {
    let exe = std::env::current_exe()
        .map_err(|error| format!("failed to find the test's own file: {error}"))?;
    // target/PROFILE/deps/TEST
    let machine = Machine::asked_for()?;
    let built = machine
        .built(&exe)
        .ok_or("the test's own file is not in a cargo target folder")?;
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    for name in ["libgpushim.so", "libcuda.so", "libcudart.a"] {
        if !built.join(name).is_file() {
            return Err(format!(
                "{} is missing: run `cargo build --workspace{}` in the same profile first, as scripts/test does",
                built.join(name).display(),
                machine.cargo_option()
            ));
        }
    }
    let place = Place {
        shim: built.join("libgpushim.so"),
        libraries: built.join("e2e/lib"),
        programs: built.join("e2e/programs"),
        root,
        machine,
        built,
    };
    lay_out(&place)?;
    Ok(place)
}

/// Puts the stand-ins under their names; once, whichever test process comes first.
fn lay_out(place: &Place) -> Result<(), String> {
    for folder in [&place.libraries, &place.programs] {
        fs::create_dir_all(folder)
            .map_err(|error| format!("failed to create {}: {error}", folder.display()))?;
    }
    let _lock = Lock::take(&place.libraries.join(".lock"))?;
    for name in ["libcuda.so.1", "libcuda.so"] {
        link(&place.built.join("libcuda.so"), &place.libraries.join(name))?;
    }
    let script = place.root.join("tests/standin/build-cudart");
    let made = ["libcudart.so.12", "libcudart.so.13", "libcudart_static.a"]
        .map(|name| modified(&place.libraries.join(name)));
    let of = [
        modified(&script),
        modified(&place.built.join("libcudart.a")),
    ];
    if made.iter().all(Option::is_some) && made.iter().min() > of.iter().max() {
        return Ok(());
    }
    let above = usize::from(place.machine.target().is_some()) + 1;
    let target = place.built.ancestors().nth(above).unwrap_or(&place.built);
    let output = Command::new(&script)
        .arg(&place.libraries)
        .args(place.built.file_name())
        .args(place.machine.target())
        .env("CARGO_TARGET_DIR", target)
        .output()
        .map_err(|error| format!("failed to run {}: {error}", script.display()))?;
    if !output.status.success() {
        return Err(format!(
            "{} failed: {}",
            script.display(),
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    Ok(())
}

fn modified(path: &Path) -> Option<std::time::SystemTime> {
    fs::metadata(path).and_then(|meta| meta.modified()).ok()
}

fn link(target: &Path, name: &Path) -> Result<(), String> {
    if fs::read_link(name).is_ok_and(|now| now == target) {
        return Ok(());
    }
    let _ = fs::remove_file(name);
    std::os::unix::fs::symlink(target, name)
        .map_err(|error| format!("failed to link {}: {error}", name.display()))
}
