//! Tickets: a count of the calls that are enqueueing at this moment.
//!
//! An exchange finds memory through the table of addresses and not only through its operands. Such a call takes a
//! ticket before it reads the table, and drops it once its work is on a stream. To unmap memory, a caller first
//! removes it from the table, then checks that no ticket is out, then that no stream has work. Work enqueued earlier
//! is then complete, and later calls find the row of the table empty.

#[cfg(loom)]
use loom::sync::atomic::{AtomicUsize, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicUsize, Ordering, fence};

/// Counts the calls that are between their look-up of memory and the enqueueing of the work that uses it.
#[derive(Default)]
pub struct Tickets {
    out: AtomicUsize,
}

/// A ticket, held while a call enqueues; dropping it gives it back.
pub struct Ticket<'a>(&'a Tickets);

impl Tickets {
    /// Takes a ticket. Neither blocks nor allocates.
    #[inline]
    pub fn take(&self) -> Ticket<'_> {
        // Ordered before any read of the table; pairs with the fence in `none_out`.
        self.out.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        Ticket(self)
    }

    /// Whether no call is enqueueing. Call it after the memory was removed from the table: a call that still saw the
    /// old row either holds its ticket or has its work on a stream.
    pub fn none_out(&self) -> bool {
        fence(Ordering::SeqCst);
        self.out.load(Ordering::SeqCst) == 0
    }
}

impl Drop for Ticket<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: a thread that sees the count without this ticket also sees the enqueued work.
        self.0.out.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicBool;

    /// The steps of a release: remove from the table, check tickets, check work, unmap.
    fn model(takes_a_ticket: bool) {
        loom::model(move || {
            let tickets = Arc::new(Tickets::default());
            let listed = Arc::new(AtomicBool::new(true));
            let work = Arc::new(AtomicUsize::new(0));
            let mapped = Arc::new(AtomicBool::new(true));
            let caller = {
                let (tickets, listed) = (tickets.clone(), listed.clone());
                let (work, mapped) = (work.clone(), mapped.clone());
                loom::thread::spawn(move || {
                    let ticket = takes_a_ticket.then(|| tickets.take());
                    if listed.load(Ordering::SeqCst) {
                        work.fetch_add(1, Ordering::SeqCst);
                        drop(ticket);
                        // The device does the work at some later time.
                        assert!(mapped.load(Ordering::SeqCst), "used after it was unmapped");
                        work.fetch_sub(1, Ordering::SeqCst);
                    }
                })
            };
            listed.store(false, Ordering::SeqCst);
            if tickets.none_out() && work.load(Ordering::SeqCst) == 0 {
                mapped.store(false, Ordering::SeqCst);
            }
            caller.join().unwrap();
        });
    }

    #[test]
    fn memory_is_unmapped_past_all_tickets_only() {
        model(true);
    }

    #[test]
    #[should_panic(expected = "used after it was unmapped")]
    fn without_tickets_the_model_fails() {
        model(false);
    }
}
