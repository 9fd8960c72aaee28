//! Batches over all configurations, for a time or a number of steps, on as many processes as there
//! are cores.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::cases::{DRIVERS, Driver, Shim};
use crate::drive::{self, Batch, End, Places};
use crate::promises::TABLE;

/// Plan of a campaign, from the command line and the environment.
#[derive(Clone, Debug)]
struct Plan {
    places: Places,
    seconds: u64,
    steps: u64,
    seed: u64,
    driver: Option<String>,
    shim: Option<String>,
    length: usize,
    programs: u64,
    keeps_going: bool,
}

fn places() -> Option<Places> {
    let path = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let shim = path("DIFFERENTIAL_SHIM")?;
    let standin = path("DIFFERENTIAL_STANDIN")?;
    let work = path("DIFFERENTIAL_WORK")
        .unwrap_or_else(|| std::env::temp_dir().join("gpushim-differential"));
    std::fs::create_dir_all(&work).ok()?;
    Some(Places {
        shim,
        standin,
        work,
    })
}

fn plan(arguments: &[String]) -> Option<Plan> {
    let after = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let number =
        |name: &str, default: u64| after(name).map_or(Some(default), |value| value.parse().ok());
    let extent = arguments.first()?;
    let (seconds, steps) = match extent.strip_suffix("steps") {
        Some(steps) => (u64::MAX, steps.parse().ok()?),
        None => (extent.parse().ok()?, u64::MAX),
    };
    Some(Plan {
        places: places()?,
        seconds,
        steps,
        seed: number("--seed", 1)?,
        driver: after("--driver"),
        shim: after("--shim"),
        length: number("--steps", 500)? as usize,
        programs: number("--programs", 20)?,
        keeps_going: arguments.iter().any(|argument| argument == "--keep-going"),
    })
}

#[derive(Default)]
struct Tally {
    steps: BTreeMap<(usize, &'static str), u64>,
    promises: Vec<u64>,
    differences: Vec<String>,
    broken: Vec<String>,
}

/// Runs batches until time or steps are used up; 0 if nothing differs.
pub fn run(arguments: &[String]) -> i32 {
    let Some(plan) = plan(arguments) else {
        eprintln!(
            "differential SECONDS|NUMBERsteps [--seed N] [--driver NAME] [--shim NAME] [--steps N] [--programs N] [--keep-going]\nDIFFERENTIAL_SHIM and DIFFERENTIAL_STANDIN say where the library and the folder are (scripts/differential sets them)"
        );
        return 2;
    };
    let chosen: Vec<(usize, &'static Driver)> = DRIVERS
        .iter()
        .enumerate()
        .filter(|(_, driver)| plan.driver.as_ref().is_none_or(|name| name == driver.name))
        .filter(|(_, driver)| driver.shims.iter().any(|shim| wanted(&plan, shim)))
        .collect();
    if chosen.is_empty() {
        eprintln!("differential: no such configuration");
        return 2;
    }
    let started = Instant::now();
    let (next, done, over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let tally = Mutex::new(Tally {
        promises: vec![0; TABLE.len()],
        ..Tally::default()
    });
    let lanes = std::thread::available_parallelism().map_or(2, |count| count.get().min(16));
    std::thread::scope(|scope| {
        for lane in 0..lanes {
            let (plan, chosen, next, done, over, tally) =
                (&plan, &chosen, &next, &done, &over, &tally);
            scope.spawn(move || {
                loop {
                    let is_late = started.elapsed().as_secs() >= plan.seconds
                        || done.load(Ordering::Relaxed) >= plan.steps;
                    if is_late || over.load(Ordering::Relaxed) {
                        return;
                    }
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let (index, driver) = choose(chosen, number);
                    let seed = plan.seed + number * plan.programs;
                    let batch = Batch {
                        seed,
                        programs: plan.programs.div_ceil(driver.length),
                        steps: plan.length * driver.length as usize,
                    };
                    one_batch(plan, index, driver, batch, lane, &|found| {
                        let Ok(mut tally) = tally.lock() else { return };
                        match found {
                            Found::Steps(shim, steps, promises) => {
                                *tally.steps.entry((index, shim)).or_default() += steps;
                                for (sum, more) in tally.promises.iter_mut().zip(promises) {
                                    *sum += more;
                                }
                                done.fetch_add(steps, Ordering::Relaxed);
                            }
                            Found::Difference(text) => {
                                println!("{text}\n");
                                tally.differences.push(text);
                                over.fetch_or(!plan.keeps_going, Ordering::Relaxed);
                            }
                            Found::Broken(text) => {
                                println!("{text}");
                                tally.broken.push(text);
                                over.store(true, Ordering::Relaxed);
                            }
                        }
                    });
                }
            });
        }
    });
    let Ok(tally) = tally.into_inner() else {
        return 3;
    };
    report(
        &plan,
        &tally,
        started.elapsed(),
        next.load(Ordering::Relaxed),
    )
}

fn wanted(plan: &Plan, shim: &Shim) -> bool {
    plan.shim.as_ref().is_none_or(|name| name == shim.name)
}

/// Configurations in turn, each as often as its share says.
fn choose(chosen: &[(usize, &'static Driver)], number: u64) -> (usize, &'static Driver) {
    // A first round shows each once.
    if let Some(first) = chosen.get(number as usize) {
        return *first;
    }
    let total: u64 = chosen.iter().map(|(_, driver)| driver.share).sum();
    // A stride that meets all of them early.
    let mut at = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % total;
    for one in chosen {
        match at.checked_sub(one.1.share) {
            Some(rest) => at = rest,
            None => return *one,
        }
    }
    chosen[0]
}

enum Found {
    Steps(&'static str, u64, Vec<u64>),
    Difference(String),
    Broken(String),
}

fn one_batch(
    plan: &Plan,
    index: usize,
    driver: &'static Driver,
    batch: Batch,
    lane: usize,
    tell: &dyn Fn(Found),
) {
    let (log, end) = drive::native(&plan.places, driver, batch, lane, None);
    match end {
        End::Done(..) => {}
        End::Differs(seed, text) => {
            return tell(Found::Broken(format!(
                "natively, {} seed {seed}: {text}",
                driver.name
            )));
        }
        End::Broken(text) => {
            return tell(Found::Broken(format!("natively, {}: {text}", driver.name)));
        }
    }
    let _ = index;
    for shim in driver.shims.iter().filter(|shim| wanted(plan, shim)) {
        match drive::shimmed(&plan.places, driver, shim, batch, lane, &log, None) {
            End::Done(steps, promises) => tell(Found::Steps(shim.name, steps, promises)),
            End::Broken(text) => tell(Found::Broken(format!(
                "{} {}: {text}",
                driver.name, shim.name
            ))),
            End::Differs(seed, text) => {
                let short = drive::shorten(
                    &plan.places,
                    driver,
                    shim,
                    seed,
                    batch.steps,
                    lane,
                    Duration::from_secs(20),
                );
                let how = match &short {
                    Some((_, kept)) => {
                        let all = kept.len() >= batch.steps;
                        let list: Vec<String> = kept.iter().map(u32::to_string).collect();
                        format!(
                            "scripts/differential one {} {} {seed} {} {}",
                            driver.name,
                            shim.name,
                            batch.steps,
                            if all { String::new() } else { list.join(",") }
                        )
                    }
                    // The difference needs the effects of earlier programs of the process, or the
                    // right moment.
                    None => format!(
                        "scripts/differential 1 --driver {} --shim {} --seed {} --programs {} --steps {} (not by the one program alone)",
                        driver.name, shim.name, batch.seed, batch.programs, batch.steps
                    ),
                };
                let shortest = short.filter(|(_, kept)| kept.len() < batch.steps);
                let shortest = shortest.map_or(String::new(), |(text, kept)| {
                    format!("\nin {} steps: {text}", kept.len())
                });
                tell(Found::Difference(format!(
                    "DIFFERENCE {} {} seed {seed}: {text}{shortest}\nagain: {how}",
                    driver.name, shim.name
                )));
                // The native log is of the last trial now.
                return;
            }
        }
    }
}

fn report(plan: &Plan, tally: &Tally, took: Duration, batches: u64) -> i32 {
    let mut total = 0;
    for ((driver, shim), steps) in &tally.steps {
        println!("{:22} {:18} {steps:>10} steps", DRIVERS[*driver].name, shim);
        total += steps;
    }
    for ((_, what, _), count) in TABLE.iter().zip(&tally.promises) {
        println!("{count:>10} × {what}");
    }
    let last = plan.seed + (batches * plan.programs).saturating_sub(1);
    println!(
        "differential: {total} steps under the shim in {} s ({} a second), seeds {} to {last}, {} differences",
        took.as_secs(),
        total * 1000 / (took.as_millis() as u64).max(1),
        plan.seed,
        tally.differences.len()
    );
    match (tally.broken.is_empty(), tally.differences.is_empty()) {
        (true, true) => 0,
        (true, false) => 1,
        _ => 3,
    }
}

/// DRIVER SHIM SEED STEPS [STEP,…]: one program in both ways, its steps printed.
pub fn one(arguments: &[String]) -> i32 {
    let parsed = || {
        let driver = Driver::of(arguments.first()?)?;
        let shim = *driver
            .shims
            .iter()
            .find(|shim| Some(shim.name) == arguments.get(1).map(String::as_str))?;
        let batch = Batch {
            seed: arguments.get(2)?.parse().ok()?,
            programs: 1,
            steps: arguments.get(3)?.parse().ok()?,
        };
        Some((driver, shim, batch, places()?))
    };
    let Some((driver, shim, batch, places)) = parsed() else {
        eprintln!("differential one DRIVER SHIM SEED STEPS [STEP,STEP,…]");
        return 2;
    };
    drive::aloud(
        &places,
        driver,
        shim,
        batch,
        arguments.get(4).map(String::as_str),
    )
}
