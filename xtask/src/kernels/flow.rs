//! Forward dataflow analysis: the facts that may hold before each instruction, over all paths through a function. Facts
//! are bits; joining paths combines them with "or".

/// Returns the facts before each of `count` instructions; `None` for unreachable ones. `entry` holds before the first.
///
/// `step` returns the facts after an instruction from those before it, and the instructions that may follow.
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
