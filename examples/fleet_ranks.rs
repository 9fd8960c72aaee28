//! Writes the traces of a made-up job, to try `gpushim fleet` and measure it: each rank repeats a step of a recording at
//! times and with sizes of its own, and some have faults, which are printed as JSON.
//!
//!     cargo run --example fleet_ranks -- FOLDER RANKS FAULTS [ALLOCATIONS [RECORDING]]

use std::path::PathBuf;

#[path = "../tests/fleet/made.rs"]
#[allow(dead_code)]
mod made;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let folder = PathBuf::from(args.next().ok_or("name a folder")?);
    let ranks = args.next().ok_or("say how many ranks")?.parse()?;
    let faults = args.next().ok_or("say how many faults")?.parse()?;
    let most = args.next().map_or(Ok(600), |text| text.parse())?;
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/training.pickle.gz");
    let recording = args.next().map_or(PathBuf::from(data), PathBuf::from);
    std::fs::create_dir_all(&folder)?;
    let base = made::Base::of(&recording, most);
    for (rank, kind, function) in made::faulty(&base, ranks, faults, &folder) {
        println!(
            "{{\"rank\": {rank}, \"kind\": \"{kind}\", \"function\": \"{}\"}}",
            function.unwrap_or_default()
        );
    }
    Ok(())
}
