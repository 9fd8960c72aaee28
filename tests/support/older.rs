//! Drivers of an earlier time: the stand-in without some of its functions.

use std::fs;
use std::path::PathBuf;

use super::place;

/// Makes a folder with a `libcuda.so.1` that does not export these functions.
///
/// The library is a copy whose table of names has another first letter in each of these names. The
/// hash used by the dynamic linker no longer fits. Neither the old nor the new name is found.
///
/// # Panics
/// If the stand-in never had them.
pub fn older_driver(absent: &[&str]) -> PathBuf {
    let place = place();
    let folder = place
        .libraries
        .join(format!("without-{}", absent.join("-")));
    let source = place.built.join("libcuda.so");
    let mut library = fs::read(&source)
        .unwrap_or_else(|error| panic!("failed to read {}: {error}", source.display()));
    // The names for the dynamic linker stand before the code.
    let names = library.len().min(1 << 20);
    for name in absent {
        let entry = [b"\0", name.as_bytes(), b"\0"].concat();
        let mut places = library[..names].windows(entry.len());
        let found = places.position(|bytes| bytes == entry);
        let at = found.unwrap_or_else(|| panic!("{name} is not in {}", source.display()));
        library[at + 1] = b'x';
    }
    fs::create_dir_all(&folder)
        .unwrap_or_else(|error| panic!("failed to create {}: {error}", folder.display()));
    let fresh = folder.join(format!(".fresh-{}", std::process::id()));
    let made =
        fs::write(&fresh, library).and_then(|()| fs::rename(&fresh, folder.join("libcuda.so.1")));
    made.unwrap_or_else(|error| panic!("failed to write {}: {error}", folder.display()));
    folder
}
