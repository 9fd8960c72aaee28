//! Users of contexts beyond the one that made them (`cuCtxAttach`): while there are any, a detach
//! does not end the context.

use std::collections::HashMap;
use std::sync::Mutex;

use gpushim_alloc::Context;

/// Number of attachments of each context without a detachment, by its handle.
static ATTACHED: Mutex<Option<HashMap<u64, u64>>> = Mutex::new(None);

fn with<R>(f: impl FnOnce(&mut HashMap<u64, u64>) -> R) -> Option<R> {
    let mut attached = ATTACHED.lock().ok()?;
    Some(f(attached.get_or_insert_default()))
}

/// Counts one more user of a context.
pub fn more(context: Context) {
    with(|all| *all.entry(context.0).or_default() += 1);
}

/// Counts one user fewer of a context that has some.
pub fn fewer(context: Context) {
    with(|all| {
        if let Some(users) = all.get_mut(&context.0) {
            *users -= 1;
            if *users == 0 {
                all.remove(&context.0);
            }
        }
    });
}

/// True if a context has users beyond the one that made it.
pub fn any(context: Context) -> bool {
    with(|all| all.contains_key(&context.0)) == Some(true)
}

/// Removes all users of a context that has ended.
pub fn none(context: Context) {
    with(|all| all.remove(&context.0));
}
