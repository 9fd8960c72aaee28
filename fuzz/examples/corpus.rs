//! Writes the files that fuzzing begins with into `corpus/trace`, where they replace those of the same
//! name: `cargo run --example corpus`, in `fuzz/`. Files that were found by fuzzing stay.

#[path = "../seeds.rs"]
mod seeds;

fn main() -> std::io::Result<()> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/trace");
    std::fs::create_dir_all(&folder)?;
    let sound = seeds::sound()
        .into_iter()
        .map(|(name, content)| (name.to_string(), content));
    for (name, content) in sound.chain(seeds::damaged()) {
        println!("{name}: {} bytes", content.len());
        std::fs::write(folder.join(name), content)?;
    }
    Ok(())
}
