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
        self.place(rank).map(|(node, _)| format!("node{node}"))
    }

    /// Returns the device of a rank, if each of several nodes can have devices of its own, in equal parts, as nodes of
    /// several machines do; otherwise `None`.
    pub(super) fn device(&self, rank: u32, devices: u32) -> Option<u32> {
        let (node, local) = self.place(rank)?;
        let each = devices / self.0.len() as u32;
        (each > 0).then(|| node * each + local % each)
    }

    /// Returns the variables that make a rank's process use the network between nodes of this machine. Those that are
    /// set already stay as they are.
    pub(super) fn environment(&self, rank: u32) -> Vec<(&'static str, String)> {
        let Some(key) = self.key(rank) else {
            return Vec::new();
        };
        let mut variables = vec![
            // By itself UCX would use the memory that ranks of one machine share.
            ("UCX_TLS", "tcp,self".into()),
            // NCCL and RCCL take ranks with the same one for ranks of one machine.
            ("NCCL_HOSTID", key),
        ];
        variables.retain(|(name, _)| std::env::var_os(name).is_none());
        variables
    }

    /// Returns the node of a rank and its number there; `None` if there is only one node.
    fn place(&self, rank: u32) -> Option<(u32, u32)> {
        if !self.spans_nodes() {
            return None;
        }
        let mut first = 0;
        for (node, size) in self.0.iter().enumerate() {
            if rank < first + size {
                return Some((node as u32, rank - first));
            }
            first += size;
        }
        None
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
    fn nodes_divide_the_devices_and_a_machine_with_fewer_devices_shares_them() {
        let devices = |text: &str, devices| -> Vec<Option<u32>> {
            let ranks: RanksPerNode = text.parse().unwrap();
            let all = 0..ranks.world();
            all.map(|rank| ranks.device(rank, devices)).collect()
        };
        assert_eq!(devices("2x4", 2), [0, 0, 0, 0, 1, 1, 1, 1].map(Some));
        assert_eq!(devices("2x2", 4), [0, 1, 2, 3].map(Some));
        assert_eq!(devices("3+1", 5), [0, 1, 0, 2].map(Some));
        assert_eq!(devices("2x2", 1), [None; 4]);
        assert_eq!(devices("4", 4), [None; 4]);
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
