//! Writes the first files for fuzzing into `corpus/trace`: `cargo run --example corpus [TRACE…]`,
//! in `fuzz/`.
//!
//! Files of the same name are replaced. Files found by fuzzing stay. Named traces are made compact
//! and become `real-N`, followed by their spools.

#[allow(dead_code, reason = "only the form of a spool is of use here")]
#[path = "../read_all.rs"]
mod read_all;
#[path = "../seeds.rs"]
mod seeds;

use gpushim_trace::layout::{get_u64, header};

fn main() -> std::io::Result<()> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/trace");
    std::fs::create_dir_all(&folder)?;
    let sound = seeds::sound()
        .into_iter()
        .map(|(name, content)| (name.to_string(), content));
    let mut all: Vec<_> = sound.chain(seeds::damaged()).collect();
    for (number, path) in std::env::args().skip(1).enumerate() {
        let mut content = std::fs::read(&path)?;
        let mapped = get_u64(&content, header::FILE_BYTES).unwrap_or_default() as usize;
        let frames = content.split_off(mapped.min(content.len()));
        let mut content = seeds::compact(&content);
        content.extend(read_all::spool::plain(&frames));
        all.push((format!("real-{number}"), content));
    }
    let full = seeds::sound().into_iter().find(|(name, _)| *name == "full");
    all.extend(full.map(|(_, content)| ("packed".to_string(), seeds::packed(&content))));
    for (name, content) in all {
        println!("{name}: {} bytes", content.len());
        std::fs::write(folder.join(name), content)?;
    }
    Ok(())
}
