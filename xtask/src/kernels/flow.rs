//! What may be true before each instruction, over all paths through a function: a forward dataflow analysis
//! whose facts are bits that paths join by "or".

/// The facts before each of `count` instructions, of which the first is entered with `entry`; `None` where
/// control never comes.
///
/// `step` gives the facts after an instruction from those before it, and the instructions that may follow.
pub fn facts(
    count: usize,
    entry: u8,
    step: impl Fn(usize, u8) -> (u8, Vec<usize>),
) -> Vec<Option<u8>> {
    let mut before: Vec<Option<u8>> = vec![None; count];
    let mut work = vec![(0, entry)];
    while let Some((index, facts)) = work.pop() {
        let Some(known) = before.get_mut(index) else {
            continue;
        };
        let joined = known.unwrap_or(0) | facts;
        if *known == Some(joined) {
            continue;
        }
        *known = Some(joined);
        let (after, next) = step(index, joined);
        work.extend(next.into_iter().map(|next| (next, after)));
    }
    before
}
