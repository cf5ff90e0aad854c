//! Who is enqueueing at this moment.
//!
//! A call that finds memory by more than its own operands (an exchange, which follows a token through the
//! table of addresses) takes a ticket first and gives it up once its work is on a stream. Whoever unmaps
//! memory first takes it out of the table, then sees that no ticket is out, and then that no stream has
//! work. What was enqueued before is then done; what comes later finds the table's row empty.

#[cfg(loom)]
use loom::sync::atomic::{AtomicUsize, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicUsize, Ordering, fence};

/// Counts the calls that are between finding memory and having enqueued the work that uses it.
#[derive(Default)]
pub struct Tickets {
    out: AtomicUsize,
}

/// Held while a call enqueues.
pub struct Ticket<'a>(&'a Tickets);

impl Tickets {
    /// Takes a ticket. Neither blocks nor allocates.
    #[inline]
    pub fn take(&self) -> Ticket<'_> {
        // Before any look at the table: see `none_out`.
        self.out.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        Ticket(self)
    }

    /// Whether no call is enqueueing. Asked after memory was taken out of the table: a call that did not see
    /// that has its ticket out still, or has its work on a stream.
    pub fn none_out(&self) -> bool {
        fence(Ordering::SeqCst);
        self.out.load(Ordering::SeqCst) == 0
    }
}

impl Drop for Ticket<'_> {
    #[inline]
    fn drop(&mut self) {
        // What was enqueued happens before whoever sees the count without this ticket.
        self.0.out.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicBool;

    /// The order that a release keeps: out of the table, no ticket, no work; then unmapped.
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
