//! Primary contexts, as far as the program holds them.

use std::sync::Mutex;

use gpushim_alloc::Context;

/// One device's primary context.
#[derive(Clone, Copy)]
struct Primary {
    device: i32,
    context: Context,
    /// How often the program retained it.
    claims: u32,
    /// Whether the program retained it since it last ended.
    is_active: bool,
}

static TABLE: Mutex<Vec<Primary>> = Mutex::new(Vec::new());

fn update<R>(device: i32, f: impl FnOnce(&mut Primary) -> R) -> Option<R> {
    let mut table = TABLE.lock().ok()?;
    table.iter_mut().find(|one| one.device == device).map(f)
}

/// The program retained a device's primary context.
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

/// The program's primary context of a device, if it has one.
pub fn of(device: i32) -> Option<Context> {
    update(device, |one| one.is_active.then_some(one.context))?
}

/// What a release or a reset by the program means.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Others of the program hold it still.
    Stays,
    /// The context ends.
    Ends(Context),
    /// It was never seen to be retained.
    Unknown,
}

/// What it means that the program releases a device's primary context once.
pub fn release_means(device: i32) -> End {
    let means = |one: &mut Primary| match (one.claims, one.is_active) {
        (0, _) => End::Unknown,
        (1, true) => End::Ends(one.context),
        _ => End::Stays,
    };
    update(device, means).unwrap_or(End::Unknown)
}

/// What it means that the program resets a device's primary context.
pub fn reset_means(device: i32) -> End {
    let means = |one: &mut Primary| match one.is_active {
        true => End::Ends(one.context),
        false => End::Unknown,
    };
    update(device, means).unwrap_or(End::Unknown)
}

/// The program released a device's primary context once.
pub fn released(device: i32) {
    update(device, |one| one.claims = one.claims.saturating_sub(1));
}

/// A device's primary context has ended, with what was in it.
pub fn ended(device: i32) {
    update(device, |one| one.is_active = false);
}
