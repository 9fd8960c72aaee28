//! Random programs, run natively and under the shim on the stand-in driver, and compared step by
//! step.
//!
//! ```text
//! differential SECONDS|STEPSsteps [--seed N] [--driver NAME] [--shim NAME] [--steps N]
//!              [--programs N] [--keep-going]
//! differential one DRIVER SHIM SEED STEPS [STEP,STEP,…]     one program, aloud
//! differential table                                        the promised differences
//! ```
//!
//! `DIFFERENTIAL_SHIM` and `DIFFERENTIAL_STANDIN` are the paths of the shim and the stand-in.
//! `scripts/differential` sets them.

mod api;
mod campaign;
mod cases;
mod churn;
mod crowd;
mod descriptors;
mod drive;
mod generate;
mod judge;
mod log;
mod op;
mod promises;
mod random;
mod steps;
mod worker;
mod world;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let code = match arguments.first().map(String::as_str) {
        Some("worker") => worker(&arguments[1..]),
        Some("one") => campaign::one(&arguments[1..]),
        Some("table") => table(),
        _ => campaign::run(&arguments),
    };
    std::process::exit(code);
}

fn table() -> i32 {
    print!("{}", promises::markdown());
    0
}

/// DRIVER SEED PROGRAMS STEPS LOG [--shim NAME] [--keep FILE] [--loud]
fn worker(arguments: &[String]) -> i32 {
    match task(arguments) {
        Some(task) => worker::work(&task),
        None => {
            println!("error wrong arguments: {arguments:?}");
            3
        }
    }
}

fn task(arguments: &[String]) -> Option<worker::Task> {
    let driver = cases::Driver::of(arguments.first()?)?;
    let number = |index: usize| arguments.get(index)?.parse::<u64>().ok();
    let after = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)
    };
    let shim = match after("--shim") {
        Some(name) => Some(*driver.shims.iter().find(|shim| shim.name == name)?),
        None => None,
    };
    let keep = match after("--keep") {
        Some(path) => Some(
            std::fs::read_to_string(path)
                .ok()?
                .split_whitespace()
                .filter_map(|word| word.parse().ok())
                .collect(),
        ),
        None => None,
    };
    Some(worker::Task {
        shape: driver.shape(number(3)? as usize),
        seed: number(1)?,
        programs: number(2)?,
        log: arguments.get(4)?.clone(),
        compares: shim.is_some(),
        rules: shim.map_or_else(Default::default, |shim| shim.rules(driver)),
        pause: shim.map_or(0, |shim| shim.pause),
        keep,
        is_loud: arguments.iter().any(|argument| argument == "--loud"),
    })
}
