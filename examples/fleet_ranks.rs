//! Writes the traces of a generated job, to try `gpushim report` and measure it.
//!
//! Each rank repeats a step of a recording at times and with sizes of its own. Some ranks have
//! faults, which are printed as JSON.
//!
//!     cargo run --example fleet_ranks -- FOLDER RANKS FAULTS [ALLOCATIONS [STEPS [JOB [RECORDING]]]]

use std::path::PathBuf;

#[path = "../tests/fleet/made.rs"]
#[allow(dead_code)]
mod made;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let folder = PathBuf::from(args.next().ok_or("name a folder")?);
    let world = args.next().ok_or("say how many ranks")?.parse()?;
    let faults = args.next().ok_or("say how many faults")?.parse()?;
    let most = args.next().map_or(Ok(600), |text| text.parse())?;
    let steps = args.next().map_or(Ok(14), |text| text.parse())?;
    let name = args.next().unwrap_or("81234".to_string());
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/training.pickle.gz");
    let recording = args.next().map_or(PathBuf::from(data), PathBuf::from);
    std::fs::create_dir_all(&folder)?;
    let job = made::Job {
        name: &name,
        world,
        faults,
        steps,
    };
    let base = made::Base::of(&recording, most);
    for (rank, kind, function) in made::faulty(&base, &job, &folder) {
        println!(
            "{{\"rank\": {rank}, \"kind\": \"{kind}\", \"function\": \"{}\"}}",
            function.unwrap_or_default()
        );
    }
    Ok(())
}
