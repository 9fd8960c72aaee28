//! The placements that the pools follow (`GPUSHIM_POLICY=plan:FILE`), and what became of them.

use std::sync::{Arc, OnceLock};

use gpushim_alloc::plan::{Family, Plans, PoolPlan, ReadError};
use gpushim_config::Log;
use gpushim_trace::regular::open_regular;

use crate::base::{settings, stderr};

/// The plan of a device's pool, if there is one to follow.
pub fn of(device: i32, family: Family) -> Option<Arc<PoolPlan>> {
    static PLANS: OnceLock<Option<Plans>> = OnceLock::new();
    PLANS.get_or_init(read).as_ref()?.of(device, family)
}

fn read() -> Option<Plans> {
    let file = settings::config().plan_file()?;
    let opened = open_regular(&file).map_err(ReadError::Io);
    match opened.and_then(|(opened, _)| Plans::read(opened)) {
        Ok(plans) => Some(plans),
        Err(error) => {
            if settings::config().log >= Log::Warn {
                stderr::say(&format!(
                    "GPUSHIM_POLICY: failed to read the plan {}: {error}; using vmm",
                    file.display()
                ));
            }
            None
        }
    }
}
