//! VMM handles, to memory and to multicast objects.

use std::sync::Arc;

use crate::driver::Driver;
use crate::multicast::{self, Object};
use crate::physical::Physical;

/// What a handle refers to.
#[derive(Clone)]
pub(crate) enum Held {
    Memory(Arc<Physical>),
    Multicast(Arc<Object>),
}

impl Held {
    /// Whether both refer to the same object.
    pub fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Memory(one), Self::Memory(other)) => Arc::ptr_eq(one, other),
            (Self::Multicast(one), Self::Multicast(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// Reports what is wrong with the release of this object, which has just happened.
    pub fn report_gone(&self, driver: &Driver) {
        match self {
            Self::Memory(memory) => multicast::report_freed(driver, memory),
            Self::Multicast(object) => multicast::report_gone(driver, object),
        }
    }
}

/// A handle with its reference count.
pub(crate) struct Handle {
    pub held: Held,
    pub references: u32,
}

impl Handle {
    pub fn new(held: Held) -> Self {
        Self {
            held,
            references: 1,
        }
    }

    pub fn is_multicast(&self) -> bool {
        matches!(self.held, Held::Multicast(_))
    }
}
