//! Where the memory for pages comes from.

use std::ops::Range;

use super::driver::{Handle, PAGE, PageDriver};
use super::state::State;
use super::types::Mode;

/// What came of backing pages, in pages.
#[derive(Clone, Copy, Default)]
pub(super) struct Backed {
    pub on_host: u32,
    pub missing: u32,
}

impl<E: Copy> State<E> {
    /// Gives memory to those of a segment's pages that have none; the host's, too, if `is_needed`. None of them may be
    /// hollow.
    pub fn back<D: PageDriver<Event = E>>(
        &mut self,
        driver: &D,
        base: u64,
        pages: Range<usize>,
        is_needed: bool,
    ) -> Backed {
        let mut backed = Backed::default();
        // Pages side by side that were mapped, and not enabled yet.
        let mut run = pages.start..pages.start;
        for index in pages {
            if self
                .page_mut(base, index)
                .is_none_or(|page| page.memory.is_some())
            {
                continue;
            }
            if run.end != index {
                self.enable(driver, base, run, &mut backed);
                run = index..index;
            }
            let Some(memory) = self.obtain(driver, is_needed) else {
                backed.missing += 1;
                if is_needed {
                    continue;
                }
                // The other pages will not get any either.
                break;
            };
            if driver
                .map(base + index as u64 * PAGE, memory.number)
                .is_err()
            {
                driver.destroy(memory);
                backed.missing += 1;
                continue;
            }
            backed.on_host += u32::from(memory.is_host);
            if let Some(page) = self.page_mut(base, index) {
                page.memory = Some(memory);
            }
            run.end = index + 1;
        }
        self.enable(driver, base, run, &mut backed);
        backed
    }

    /// Enables pages that were mapped; if the driver refuses, they have no memory after all.
    fn enable<D: PageDriver<Event = E>>(
        &mut self,
        driver: &D,
        base: u64,
        run: Range<usize>,
        backed: &mut Backed,
    ) {
        if run.is_empty() {
            return;
        }
        let address = |index: usize| base + index as u64 * PAGE;
        let bytes = run.len() as u64 * PAGE;
        if driver
            .allow(address(run.start), bytes, &self.others)
            .is_ok()
        {
            return;
        }
        for index in run {
            if driver.unmap(address(index)).is_ok()
                && let Some(page) = self.page_mut(base, index)
                && let Some(memory) = page.memory.take()
            {
                driver.destroy(memory);
            }
            backed.missing += 1;
        }
    }

    /// Memory for one page; the host's, too, if `is_needed`.
    fn obtain<D: PageDriver<Event = E>>(&mut self, driver: &D, is_needed: bool) -> Option<Handle> {
        if let Some(spare) = self.spare.pop() {
            return Some(spare);
        }
        let hollow_first = self.is_short || self.mode == Mode::Least;
        if hollow_first && let Some(memory) = self.hollow_out(driver) {
            return Some(memory);
        }
        if let Some(memory) = self.create(driver) {
            return Some(memory);
        }
        if let Some(memory) = self.hollow_out(driver) {
            return Some(memory);
        }
        if driver.make_room()
            && let Some(memory) = self.create(driver)
        {
            return Some(memory);
        }
        while !self.is_off && self.emptied.wait(driver, self.is_capturing()) {
            if let Some(memory) = self.hollow_out(driver) {
                return Some(memory);
            }
        }
        if !is_needed {
            return None;
        }
        let number = driver.create_on_host().ok()?;
        Some(Handle {
            number,
            is_host: true,
        })
    }

    fn create<D: PageDriver<Event = E>>(&mut self, driver: &D) -> Option<Handle> {
        let made = driver.create();
        self.is_short = made.is_err();
        let number = made.ok()?;
        Some(Handle {
            number,
            is_host: false,
        })
    }

    /// Takes the memory of the page that was emptied first, of those whose work is over.
    pub fn hollow_out<D: PageDriver<Event = E>>(&mut self, driver: &D) -> Option<Handle> {
        let mut has_looked = false;
        while !self.is_off {
            if self.emptied.is_next_before(u64::MAX) {
                if let Some(memory) = self.take_next(driver) {
                    return Some(memory);
                }
            } else if std::mem::replace(&mut has_looked, true) {
                return None;
            } else {
                self.emptied.close(driver, self.is_capturing());
                self.emptied.poll(driver, self.is_capturing());
            }
        }
        None
    }

    /// Takes the memory of the next page whose work is over. `None`: it has none for another page. Memory of the host goes
    /// back.
    pub fn take_next<D: PageDriver<Event = E>>(&mut self, driver: &D) -> Option<Handle> {
        let entry = self.emptied.next_ready()?;
        let (base, index) = self.page_of(&entry)?;
        let is_unmapped = driver.unmap(entry.0).is_ok();
        let page = self.page_mut(base, index)?;
        if !is_unmapped {
            // It would be refused again.
            page.is_pinned = true;
            return None;
        }
        let memory = page.memory.take()?;
        if memory.is_host {
            driver.destroy(memory);
            return None;
        }
        self.moves += 1;
        Some(memory)
    }
}
