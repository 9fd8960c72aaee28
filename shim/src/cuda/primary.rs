//! Primary contexts, as far as the program holds them.

use std::sync::Mutex;

use gpushim_alloc::Context;

/// One device's primary context.
#[derive(Clone, Copy)]
struct Primary {
    device: i32,
    context: Context,
    /// Number of times that the program retained it.
    claims: u32,
    /// True if the program retained it since it last ended.
    is_active: bool,
}

static TABLE: Mutex<Vec<Primary>> = Mutex::new(Vec::new());

fn update<R>(device: i32, f: impl FnOnce(&mut Primary) -> R) -> Option<R> {
    let mut table = TABLE.lock().ok()?;
    table.iter_mut().find(|one| one.device == device).map(f)
}

/// Counts a retain of a device's primary context by the program.
pub fn retained(device: i32, context: Context) {
    let Ok(mut table) = TABLE.lock() else { return };
    if table.iter().all(|one| one.device != device) {
        table.push(Primary {
            device,
            context,
            claims: 0,
            is_active: false,
        });
    }
    drop(table);
    update(device, |one| {
        one.context = context;
        one.claims += 1;
        one.is_active = true;
    });
}

/// Returns the program's primary context of a device, if it has one.
pub fn of(device: i32) -> Option<Context> {
    update(device, |one| one.is_active.then_some(one.context))?
}

/// Effect of a release or a reset by the program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Other parts of the program still hold it.
    Stays,
    /// The context ends, with the memory in it.
    Ends(Context),
    /// No retain of it was seen.
    Unknown,
}

/// Returns the effect of one release of a device's primary context by the program.
pub fn release_means(device: i32) -> End {
    let means = |one: &mut Primary| match (one.claims, one.is_active) {
        (0, _) => End::Unknown,
        (1, true) => End::Ends(one.context),
        _ => End::Stays,
    };
    update(device, means).unwrap_or(End::Unknown)
}

/// Returns the effect of a reset of a device's primary context by the program.
pub fn reset_means(device: i32) -> End {
    let means = |one: &mut Primary| match one.is_active {
        true => End::Ends(one.context),
        false => End::Unknown,
    };
    update(device, means).unwrap_or(End::Unknown)
}

/// Counts a release of a device's primary context by the program.
pub fn released(device: i32) {
    update(device, |one| one.claims = one.claims.saturating_sub(1));
}

/// Notes that a device's primary context has ended.
pub fn ended(device: i32) {
    update(device, |one| one.is_active = false);
}
