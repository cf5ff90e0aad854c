//! The ranks of a world, by node.

use std::fmt;
use std::str::FromStr;
use symmem::backend::abi::MAX_RANKS;

/// The number of ranks on each node of a world. Ranks are numbered from node to node: of `3+1`, ranks 0 to 2 are on node 0.
///
/// Written as `4` for four ranks of one node, `2x2` for two nodes of two ranks each, or `3+1` for each node's number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RanksPerNode(Vec<u32>);

impl RanksPerNode {
    /// Returns the number of ranks.
    pub fn world(&self) -> u32 {
        self.0.iter().sum()
    }

    /// Whether there are several nodes.
    pub fn spans_nodes(&self) -> bool {
        self.0.len() > 1
    }

    /// Returns the number of ranks on each node.
    pub fn sizes(&self) -> &[u32] {
        &self.0
    }

    /// Returns the key of a rank's node for `SYMMEM_NODE`; `None` if there is only one node, which needs no key.
    pub(super) fn key(&self, rank: u32) -> Option<String> {
        let mut end = 0;
        let node = self.0.iter().position(|size| {
            end += size;
            rank < end
        });
        node.filter(|_| self.spans_nodes())
            .map(|node| format!("node{node}"))
    }
}

impl From<u32> for RanksPerNode {
    /// Returns ranks on one node.
    fn from(ranks: u32) -> Self {
        Self(vec![ranks])
    }
}

impl fmt::Display for RanksPerNode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes = &self.0;
        if let [ranks] = sizes[..] {
            return write!(formatter, "{ranks}");
        }
        if sizes.iter().all(|size| *size == sizes[0]) {
            return write!(formatter, "{}x{}", sizes.len(), sizes[0]);
        }
        let sizes: Vec<String> = sizes.iter().map(u32::to_string).collect();
        formatter.write_str(&sizes.join("+"))
    }
}

/// Most ranks of a world over nodes.
const MOST: u32 = 512;

impl FromStr for RanksPerNode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            text.parse()
                .ok()
                .filter(|number| (1..=MOST).contains(number))
        };
        let sizes: Option<Vec<u32>> = match text.split_once('x') {
            Some((nodes, ranks)) => number(nodes)
                .zip(number(ranks))
                .map(|(nodes, ranks)| vec![ranks; nodes as usize]),
            None => text.split('+').map(number).collect(),
        };
        let fits = |sizes: &Vec<u32>| {
            let most_of_a_node = sizes.iter().all(|&size| size as usize <= MAX_RANKS);
            most_of_a_node && sizes.iter().sum::<u32>() <= MOST
        };
        sizes.filter(fits).map(Self).ok_or_else(|| {
            format!(
                "`{text}` is no number of ranks by node; write 2x2 for two nodes of two ranks, or 3+1, with at most \
                 {MAX_RANKS} ranks on a node and {MOST} in all"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_numbered_from_node_to_node() {
        let keys = |text: &str| -> Vec<Option<String>> {
            let ranks: RanksPerNode = text.parse().unwrap();
            assert_eq!(ranks.to_string(), text);
            (0..ranks.world()).map(|rank| ranks.key(rank)).collect()
        };
        let of = |nodes: &[u32]| -> Vec<Option<String>> {
            nodes
                .iter()
                .map(|node| Some(format!("node{node}")))
                .collect()
        };
        assert_eq!(keys("2x2"), of(&[0, 0, 1, 1]));
        assert_eq!(keys("4x1"), of(&[0, 1, 2, 3]));
        assert_eq!(keys("3+1"), of(&[0, 0, 0, 1]));
        assert_eq!(keys("4"), [None, None, None, None]);
        assert_eq!("1x4".parse::<RanksPerNode>().unwrap(), 4.into());
        assert_eq!("2+2".parse::<RanksPerNode>().unwrap().to_string(), "2x2");
    }

    #[test]
    fn what_is_no_number_of_ranks_is_refused() {
        for wrong in [
            "", "x", "2x", "0x2", "2x0", "3+", "3+0", "-1", "2x2x2", "1x73", "8x65", "600x1",
        ] {
            assert!(wrong.parse::<RanksPerNode>().is_err(), "{wrong}");
        }
    }
}
