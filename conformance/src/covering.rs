//! Covering arrays of strength two: few rows that combine every two values of every two parameters.
//!
//! The algorithm is greedy and adds one row at a time, like AETG (Cohen, Dalal, Fredman, Patton: "The
//! AETG system", IEEE TSE 23(7), 1997). The seed is fixed, so that a sample is the same everywhere.

/// A small pseudo-random generator: SplitMix64 (Steele, Lea, Flood, 2014).
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    /// Returns the next 64 random bits.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`. Panics if `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.number() % bound as u64) as usize
    }
}

/// The pairs of values that no row contains yet.
struct Uncovered {
    /// Index of each parameter's first value among the values of all parameters.
    first: Vec<usize>,
    /// For each value: its parameter, and its index within that parameter.
    places: Vec<(usize, usize)>,
    met: Vec<bool>,
    left: usize,
}

impl Uncovered {
    fn new(sizes: &[usize]) -> Self {
        let mut values = 0;
        let first = sizes
            .iter()
            .map(|size| {
                values += size;
                values - size
            })
            .collect();
        let pairs = |index: usize| sizes[index] * sizes[..index].iter().sum::<usize>();
        let places = (sizes.iter().enumerate())
            .flat_map(|(parameter, &size)| (0..size).map(move |value| (parameter, value)));
        Self {
            first,
            places: places.collect(),
            met: vec![false; values * values],
            left: (0..sizes.len()).map(pairs).sum(),
        }
    }

    fn index(&self, a: (usize, usize), b: (usize, usize)) -> usize {
        let (a, b) = if a.0 < b.0 { (a, b) } else { (b, a) };
        (self.first[a.0] + a.1) * self.places.len() + self.first[b.0] + b.1
    }

    fn is_new(&self, a: (usize, usize), b: (usize, usize)) -> bool {
        !self.met[self.index(a, b)]
    }

    fn meet(&mut self, row: &[usize]) {
        for b in 0..row.len() {
            for a in 0..b {
                let index = self.index((a, row[a]), (b, row[b]));
                self.left -= usize::from(!self.met[index]);
                self.met[index] = true;
            }
        }
    }
}

/// Candidates tried per row; a higher number hardly reduces the number of rows.
const CANDIDATES: usize = 4;

/// Returns rows with one value per parameter, such that every two values of every two parameters
/// occur together in some row. Parameter `i` has the values `0..sizes[i]`.
pub fn pairwise(sizes: &[usize], seed: u64) -> Vec<Vec<usize>> {
    if sizes.contains(&0) {
        return Vec::new();
    }
    let mut random = Random(seed);
    let mut uncovered = Uncovered::new(sizes);
    let mut rows = Vec::new();
    while uncovered.left > 0 {
        let mut best = (0, Vec::new());
        for _ in 0..CANDIDATES {
            let row = candidate(sizes, &uncovered, &mut random);
            let gain = (0..row.len())
                .flat_map(|b| (0..b).map(move |a| (a, b)))
                .filter(|&(a, b)| uncovered.is_new((a, row[a]), (b, row[b])))
                .count();
            if gain > best.0 {
                best = (gain, row);
            }
        }
        uncovered.meet(&best.1);
        rows.push(best.1);
    }
    rows
}

/// Builds a row with at least one new pair.
fn candidate(sizes: &[usize], uncovered: &Uncovered, random: &mut Random) -> Vec<usize> {
    let count = sizes.len();
    let mut row: Vec<Option<usize>> = vec![None; count];
    // Start with a new pair; the search begins at a random index.
    let start = random.below(uncovered.met.len());
    let pair = (0..uncovered.met.len())
        .map(|step| (start + step) % uncovered.met.len())
        .find_map(|index| {
            let values = uncovered.places.len();
            let (a, b) = (
                uncovered.places[index / values],
                uncovered.places[index % values],
            );
            (a.0 < b.0 && !uncovered.met[index]).then_some((a, b))
        });
    if let Some((a, b)) = pair {
        row[a.0] = Some(a.1);
        row[b.0] = Some(b.1);
    }
    // Then assign the other parameters in random order, each the value that forms the most new pairs.
    let mut order: Vec<usize> = (0..count).filter(|&at| row[at].is_none()).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, random.below(at + 1));
    }
    for parameter in order {
        let turn = random.below(sizes[parameter]);
        let gain = |value: usize| {
            (0..count)
                .filter(|&other| {
                    row[other]
                        .is_some_and(|chosen| uncovered.is_new((parameter, value), (other, chosen)))
                })
                .count()
        };
        // The search begins at a random value, so that ties are broken at random.
        let mut best = (0, turn);
        for step in 0..sizes[parameter] {
            let value = (turn + step) % sizes[parameter];
            let gain = gain(value);
            if gain > best.0 {
                best = (gain, value);
            }
        }
        row[parameter] = Some(best.1);
    }
    row.into_iter().map(|value| value.unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(sizes: &[usize], rows: &[Vec<usize>]) -> usize {
        let mut uncovered = Uncovered::new(sizes);
        for row in rows {
            uncovered.meet(row);
        }
        uncovered.left
    }

    #[test]
    fn every_pair_of_values_meets_in_far_fewer_rows_than_the_product() {
        let sizes = [25, 7, 3, 10, 20, 7, 7, 12, 2];
        let rows = pairwise(&sizes, 1);
        assert_eq!(missing(&sizes, &rows), 0);
        assert!(
            rows.iter()
                .all(|row| row.iter().zip(&sizes).all(|(value, size)| value < size))
        );
        assert!(
            rows.len() >= 25 * 20,
            "fewer rows than the two longest parameters' pairs"
        );
        assert!(rows.len() < 25 * 20 * 3 / 2, "{} rows", rows.len());
    }

    #[test]
    fn a_row_left_out_is_found_missing() {
        let sizes = [4, 3, 3];
        let mut rows = pairwise(&sizes, 1);
        rows.truncate(rows.len() - 1);
        assert_ne!(missing(&sizes, &rows), 0);
    }

    #[test]
    fn the_same_seed_gives_the_same_rows() {
        assert_eq!(pairwise(&[5, 4, 3], 7), pairwise(&[5, 4, 3], 7));
        assert_ne!(pairwise(&[5, 4, 3], 7), pairwise(&[5, 4, 3], 8));
    }

    #[test]
    fn one_parameter_has_no_pairs_and_an_empty_one_no_rows() {
        assert!(pairwise(&[3], 1).is_empty());
        assert!(pairwise(&[3, 0], 1).is_empty());
    }
}
