//! What calls log, collected on their thread.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Debug;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// The fields of an event, as text.
pub type Fields = HashMap<&'static str, String>;

thread_local! {
    static EVENTS: RefCell<Option<Vec<Fields>>> = const { RefCell::new(None) };
}

/// Collects events of calls. To be installed once in a process.
pub struct Collector;

impl Collector {
    /// Returns the events of this thread while `call` runs, and its result.
    pub fn during<T>(call: impl FnOnce() -> T) -> (Vec<Fields>, T) {
        EVENTS.with_borrow_mut(|events| *events = Some(Vec::new()));
        let result = call();
        let events = EVENTS.with_borrow_mut(Option::take);
        (events.unwrap_or_default(), result)
    }
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("symmem")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        EVENTS.with_borrow_mut(|events| {
            if let Some(events) = events {
                let mut fields = Visitor::default();
                event.record(&mut fields);
                events.push(fields.0);
            }
        });
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Visitor(Fields);

impl Visit for Visitor {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.into());
    }
}
