//! Each kind of leg, for 1 to 7 members, all types, ragged lengths and small inboxes.

use super::mock::{Net, Planted, Random};
use super::reference::{OPERATORS, TYPES, reduced};
use crate::backend::abi::{ElementTypeCode, ReduceOpCode};
use crate::network::leg::fault::LegFault;
use crate::network::leg::leg::Leg;
use crate::network::leg::memory::Reduction;
use crate::network::leg::parts::{Parts, Span};
use crate::network::leg::pieces::{Needed, Pieces};

const MOST_MEMBERS: usize = 7;

/// Returns regions of random bytes.
fn regions(random: &mut Random, members: usize, bytes: u64) -> Vec<Vec<u8>> {
    let mut region = || (0..bytes).map(|_| random.next() as u8).collect();
    (0..members).map(|_| region()).collect()
}

/// Returns ranges without bytes.
fn nothing() -> Parts {
    Parts::Whole(Span::default())
}

fn range(span: Span) -> std::ops::Range<usize> {
    span.offset as usize..(span.offset + span.bytes) as usize
}

/// A reduction's data, its inbox, and how it is reduced.
struct Case {
    data: Span,
    inbox: Span,
    reduction: Reduction,
}

impl Case {
    fn of(random: &mut Random, members: usize, elements: u64) -> Self {
        let element = TYPES[random.below(TYPES.len())];
        let reduce = OPERATORS[random.below(OPERATORS.len())];
        let reduction = Reduction::new(element, reduce, members).expect("known");
        let offset = 64 * random.below(3) as u64;
        let bytes = elements * element.bytes();
        // From a single line for each sender up to several slots.
        let inbox = 64 * members as u64 * (1 + random.below(20) as u64);
        Self {
            data: Span { offset, bytes },
            inbox: Span {
                offset: (offset + bytes).next_multiple_of(64),
                bytes: inbox,
            },
            reduction,
        }
    }

    fn end(&self) -> u64 {
        self.inbox.offset + self.inbox.bytes
    }

    /// An all-reduce in pieces, whatever its size.
    fn pieces(&self, needed: Needed) -> Leg {
        Leg::Pieces(Pieces {
            shares: Parts::Shares {
                span: self.data,
                element_bytes: self.reduction.element_bytes,
            },
            needed,
            reduction: self.reduction,
            inbox: self.inbox,
        })
    }
}

fn all_reduce(random: &mut Random, members: usize, elements: u64, planted: Planted) -> bool {
    let case = Case::of(random, members, elements);
    let before = regions(random, members, case.end());
    let leg = match random.below(2) {
        0 => Leg::all_reduce(case.data, members, case.reduction, case.inbox),
        _ => case.pieces(Needed::All),
    };
    let mut net = Net::new(before.clone());
    net.planted = planted;
    net.run(&vec![leg.clone(); members], random)
        .expect("no fault");
    let expected = reduced(&before, range(case.data), case.reduction);
    let mut regions = net.regions().iter();
    let equal = regions.all(|region| region[range(case.data)] == expected);
    if let (Leg::Pieces(_), Planted::None) = (leg, planted) {
        // Each byte is sent once to be reduced, and its result to all others.
        let total: u64 = net.bytes.iter().sum();
        assert_eq!(total, 2 * (members as u64 - 1) * case.data.bytes);
    }
    equal
}

#[test]
fn an_all_reduce_is_bit_identical_to_the_reference_at_every_member() {
    for seed in 0..600 {
        let random = &mut Random(seed);
        let members = 1 + random.below(MOST_MEMBERS);
        let elements = [random.below(40), random.below(3000)][random.below(2)] as u64;
        let equal = all_reduce(random, members, elements, Planted::None);
        assert!(equal, "seed {seed}: {members} members, {elements} elements");
    }
}

#[test]
fn a_planted_fault_is_seen() {
    for planted in [Planted::LostBytes, Planted::WrongByte, Planted::EarlyTag] {
        let seen = (0..60).any(|seed| {
            let random = &mut Random(seed);
            !all_reduce(random, 3, 500, planted)
        });
        assert!(seen, "{planted:?}");
    }
}

#[test]
fn a_member_of_an_all_reduce_sends_two_times_its_share_of_the_others() {
    // 4 members, 4 equal shares: each sends 3 shares to be reduced, and its own to 3 members.
    let random = &mut Random(1);
    let data = Span {
        offset: 0,
        bytes: 1 << 20,
    };
    let inbox = Span {
        offset: 1 << 20,
        bytes: 1 << 18,
    };
    let reduction = Reduction::new(ElementTypeCode::F32, ReduceOpCode::SUM, 4).expect("known");
    let mut net = Net::new(regions(random, 4, (1 << 20) + (1 << 18)));
    let leg = Leg::all_reduce(data, 4, reduction, inbox);
    net.run(&vec![leg; 4], random).expect("no fault");
    assert_eq!(net.bytes, [2 * 3 * (1 << 20) / 4; 4]);
}

#[test]
fn a_reduce_is_the_reference_at_the_root() {
    for seed in 0..300 {
        let random = &mut Random(seed);
        let members = 1 + random.below(MOST_MEMBERS);
        let elements = random.below(2500) as u64;
        let case = Case::of(random, members, elements);
        let root = random.below(members);
        let before = regions(random, members, case.end());
        let leg = match random.below(2) {
            0 => Leg::reduce(root, case.data, members, case.reduction, case.inbox),
            _ => case.pieces(Needed::Root(root)),
        };
        let mut net = Net::new(before.clone());
        net.run(&vec![leg; members], random).expect("no fault");
        let expected = reduced(&before, range(case.data), case.reduction);
        assert_eq!(
            net.regions()[root][range(case.data)],
            expected,
            "seed {seed}"
        );
    }
}

#[test]
fn a_reduce_scatter_is_the_references_part_at_each_member() {
    for seed in 0..300 {
        let random = &mut Random(seed);
        let members = 1 + random.below(MOST_MEMBERS);
        let each = random.below(800) as u64;
        let case = Case::of(random, members, each * members as u64);
        let bytes = each * case.reduction.element_bytes;
        let parts = Parts::Equal {
            offset: case.data.offset,
            stride: bytes,
            bytes,
        };
        let before = regions(random, members, case.end());
        // A longer longest part than there is chooses pieces.
        let longest = [bytes, 1 << 20][random.below(2)];
        let leg = Leg::reduce_scatter(parts.clone(), longest, members, case.reduction, case.inbox);
        let mut net = Net::new(before.clone());
        net.run(&vec![leg; members], random).expect("no fault");
        for member in 0..members {
            let part = range(parts.of(member, members));
            let expected = reduced(&before, part.clone(), case.reduction);
            assert_eq!(
                net.regions()[member][part],
                expected,
                "seed {seed}, member {member}"
            );
        }
        let total: u64 = net.bytes.iter().sum();
        assert_eq!(total, (members as u64 - 1) * case.data.bytes);
    }
}

/// Lengths around the size up to which a part is a message.
fn length(random: &mut Random) -> u64 {
    [
        0,
        random.below(100),
        random.below(3000),
        16_000 + random.below(3000),
    ][random.below(4)] as u64
}

#[test]
fn an_all_gather_of_parts_of_any_length_has_every_part_at_every_member() {
    for seed in 0..200 {
        let random = &mut Random(seed);
        let members = 1 + random.below(MOST_MEMBERS);
        let mut end = 0;
        let spans: Vec<_> = (0..members)
            .map(|_| {
                let bytes = length(random);
                let offset = end;
                end += bytes;
                Span { offset, bytes }
            })
            .collect();
        let before = regions(random, members, end);
        let parts = Parts::Each(spans.clone().into());
        let legs = (0..members)
            .map(|own| Leg::exchange(Parts::Whole(parts.of(own, members)), parts.clone()));
        let mut net = Net::new(before.clone());
        net.run(&legs.collect::<Vec<_>>(), random)
            .expect("no fault");
        for region in net.regions() {
            for (member, span) in spans.iter().enumerate() {
                assert_eq!(
                    region[range(*span)],
                    before[member][range(*span)],
                    "seed {seed}"
                );
            }
        }
    }
}

#[test]
fn an_all_to_all_of_parts_of_any_length_brings_each_to_its_member() {
    for seed in 0..200 {
        let random = &mut Random(seed);
        let members = 1 + random.below(MOST_MEMBERS);
        let lengths: Vec<Vec<u64>> = (0..members)
            .map(|_| (0..members).map(|_| length(random)).collect())
            .collect();
        // Sources one after the other, then destinations in reverse order.
        let half = members as u64 * 20_000;
        let sent = |from: usize, to: usize| Span {
            offset: lengths[from][..to].iter().sum(),
            bytes: lengths[from][to],
        };
        let received = |to: usize, from: usize| Span {
            offset: half
                + (from + 1..members)
                    .map(|after| lengths[after][to])
                    .sum::<u64>(),
            bytes: lengths[from][to],
        };
        let before = regions(random, members, 2 * half);
        let legs = (0..members).map(|own| {
            let sent = (0..members).map(|to| sent(own, to)).collect();
            let received = (0..members).map(|from| received(own, from)).collect();
            Leg::exchange(Parts::Each(sent), Parts::Each(received))
        });
        let mut net = Net::new(before.clone());
        net.run(&legs.collect::<Vec<_>>(), random)
            .expect("no fault");
        for to in 0..members {
            for from in 0..members {
                let expected = &before[from][range(sent(from, to))];
                assert_eq!(
                    &net.regions()[to][range(received(to, from))],
                    expected,
                    "seed {seed}"
                );
            }
        }
    }
}

#[test]
fn a_gather_and_a_scatter_move_parts_to_and_from_the_root_only() {
    for seed in 0..100 {
        let random = &mut Random(seed);
        let members = 1 + random.below(MOST_MEMBERS);
        let root = random.below(members);
        let bytes = length(random);
        let each = Parts::Equal {
            offset: 0,
            stride: bytes,
            bytes,
        };
        let before = regions(random, members, bytes * members as u64);
        let gathers = |own: usize| {
            let mine = Parts::only(root, members, each.of(own, members));
            match own == root {
                true => Leg::exchange(mine, each.clone()),
                false => Leg::exchange(mine, nothing()),
            }
        };
        let mut net = Net::new(before.clone());
        net.run(&(0..members).map(gathers).collect::<Vec<_>>(), random)
            .expect("no fault");
        for (member, before) in before.iter().enumerate() {
            let part = range(each.of(member, members));
            assert_eq!(
                net.regions()[root][part.clone()],
                before[part],
                "seed {seed}"
            );
        }
        let scatters = |own: usize| {
            let mine = Parts::only(root, members, each.of(own, members));
            match own == root {
                true => Leg::exchange(each.clone(), mine),
                false => Leg::exchange(nothing(), mine),
            }
        };
        let mut net = Net::new(before.clone());
        net.run(&(0..members).map(scatters).collect::<Vec<_>>(), random)
            .expect("no fault");
        for member in 0..members {
            let part = range(each.of(member, members));
            assert_eq!(
                net.regions()[member][part.clone()],
                before[root][part],
                "seed {seed}"
            );
        }
    }
}

#[test]
fn a_broadcast_has_the_roots_bytes_at_every_member() {
    for seed in 0..100 {
        let random = &mut Random(seed);
        let members = 1 + random.below(MOST_MEMBERS);
        let root = random.below(members);
        let span = Span {
            offset: 64,
            bytes: [length(random), 700_000][usize::from(random.below(10) == 0)],
        };
        let before = regions(random, members, 64 + span.bytes);
        let mut net = Net::new(before.clone());
        net.run(&vec![Leg::broadcast(root, span); members], random)
            .expect("no fault");
        for region in net.regions() {
            assert_eq!(
                region[range(span)],
                before[root][range(span)],
                "seed {seed}"
            );
        }
        // Each member but the root receives each byte once.
        let total: u64 = net.bytes.iter().sum();
        assert_eq!(total, span.bytes * (members as u64 - 1));
    }
}

#[test]
fn a_barrier_ends_at_every_member() {
    for seed in 0..100 {
        let random = &mut Random(seed);
        let members = 1 + random.below(MOST_MEMBERS);
        let mut net = Net::new(vec![Vec::new(); members]);
        net.run(&vec![Leg::Barrier; members], random)
            .expect("no fault");
    }
}

#[test]
fn a_member_that_never_begins_holds_up_a_barrier() {
    let random = &mut Random(1);
    let mut net = Net::new(vec![Vec::new(); 2]);
    let absent = Leg::exchange(nothing(), nothing());
    let stuck = net.run(&[Leg::Barrier, absent], random);
    assert!(matches!(stuck, Err(LegFault::Wire(_))), "{stuck:?}");
}

#[test]
fn a_part_of_another_length_than_expected_is_an_error() {
    for (sent, expected) in [(8, 12), (20_000, 30_000), (8, 30_000)] {
        let random = &mut Random(3);
        let span = |bytes| Span { offset: 0, bytes };
        let sends = Leg::exchange(Parts::Whole(span(sent)), nothing());
        let receives = Leg::exchange(nothing(), Parts::Whole(span(expected)));
        let mut net = Net::new(regions(random, 2, 30_000));
        let ended = net.run(&[sends, receives], random);
        assert!(
            matches!(ended, Err(LegFault::Length { .. })),
            "{sent} {expected}: {ended:?}"
        );
    }
}
