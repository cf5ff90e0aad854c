//! Broadcast of data that fits in a message, along a binomial tree.

use super::fault::LegFault;
use super::memory;
use super::parts::Span;
use super::progress::Progress;
use super::tag::{Kind, tag};
use crate::network::wire::Wire;

/// A broadcast by messages.
#[derive(Clone, Debug)]
pub struct Tree {
    /// The member that has the data.
    pub root: usize,
    /// Where it is at all members; at most [`crate::network::wire::MOST_MESSAGE`] bytes.
    pub span: Span,
}

/// The state: the message has not come yet.
pub struct Running {
    plan: Tree,
}

impl Tree {
    /// Begins it.
    pub fn begin(&self) -> Running {
        Running { plan: self.clone() }
    }
}

/// Returns the parent of a member in the tree of member 0; `None` for member 0.
fn parent(member: usize) -> Option<usize> {
    (member > 0).then(|| member & (member - 1))
}

/// Returns the children of a member, the one with the largest subtree first.
fn children(member: usize, members: usize) -> impl Iterator<Item = usize> {
    let steps = (0..usize::BITS).rev().map(|bit| 1_usize << bit);
    steps
        .filter(move |&step| {
            step < members && (member == 0 || step < member & member.wrapping_neg())
        })
        .map(move |step| member + step)
        .filter(move |&child| child < members)
}

impl Running {
    /// Does what can be done.
    pub fn poll<W: Wire>(&mut self, wire: &mut W) -> Result<Progress, LegFault<W::Fault>> {
        let Tree { root, span } = self.plan;
        let members = wire.members();
        let number = (wire.own() + members - root) % members;
        let member = |number: usize| (number + root) % members;
        let mut copy = Vec::new();
        match parent(number) {
            None => memory::read(wire, span, &mut copy),
            Some(parent) => {
                let from = member(parent);
                let Some(data) = wire.take(from, tag(Kind::Data, 0)) else {
                    return Ok(Progress::Waiting);
                };
                if data.len() as u64 != span.bytes {
                    return Err(LegFault::Length {
                        member: from,
                        expected: span.bytes,
                        seen: data.len() as u64,
                    });
                }
                copy.extend_from_slice(data);
            }
        }
        for child in children(number, members) {
            wire.send(member(child), tag(Kind::Data, 0), &copy)?;
        }
        if number > 0 {
            memory::write(wire, span, &copy);
        }
        Ok(Progress::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_member_but_the_root_is_the_child_of_its_parent_and_of_nobody_else() {
        for members in 1..20 {
            let mut parents = vec![None; members];
            for member in 0..members {
                for child in children(member, members) {
                    assert_eq!(parents[child].replace(member), None);
                }
            }
            let expected: Vec<_> = (0..members).map(parent).collect();
            assert_eq!(parents, expected);
        }
    }
}
