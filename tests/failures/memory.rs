//! x
use crate::support::Member;
pub fn role(_role: &str, _member: &Member) {}
