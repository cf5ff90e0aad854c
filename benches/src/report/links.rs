//! The links between the devices of a machine, in one line.

use std::collections::BTreeMap;

/// Returns the name of a line in a backend's description that says how one device reaches another.
pub fn key(from: usize, to: usize) -> String {
    format!("link_{from}_{to}")
}

/// Describes the links between devices: one kind for all of them, or the pairs of every kind but the most frequent.
/// `link` returns the backend's word for the link from one device to another. `None` for fewer than two devices, or if
/// the backend reports no links.
pub fn text<'a>(devices: usize, link: impl Fn(usize, usize) -> Option<&'a str>) -> Option<String> {
    let mut kinds: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for from in 0..devices {
        for to in from + 1..devices {
            let (there, back) = (link(from, to)?, link(to, from)?);
            let pairs = match there == back {
                true => vec![(there, format!("{from}–{to}"))],
                false => vec![
                    (there, format!("{from}→{to}")),
                    (back, format!("{to}→{from}")),
                ],
            };
            for (word, pair) in pairs {
                kinds.entry(kind(word)).or_default().push(pair);
            }
        }
    }
    let most = kinds.iter().max_by_key(|(_, pairs)| pairs.len());
    let most = most.map(|(kind, _)| kind.clone())?;
    kinds.remove(&most);
    if kinds.is_empty() {
        return Some(match devices {
            2 => format!("{most} between both devices"),
            _ => format!("{most} between all {devices} devices"),
        });
    }
    let mut parts: Vec<String> = (kinds.iter())
        .map(|(kind, pairs)| match pairs.len() {
            ..=MOST_PAIRS => format!("{kind}: {}", pairs.join(", ")),
            count => format!("{kind}: {count} pairs"),
        })
        .collect();
    parts.push(format!("{most}: all other pairs"));
    Some(parts.join("; "))
}

/// More pairs than this are counted, not listed.
const MOST_PAIRS: usize = 4;

fn kind(word: &str) -> String {
    match word {
        "peer" => "peer access".into(),
        "no" => "no peer access".into(),
        other => match other.strip_prefix("peer ") {
            Some(over) => format!("peer access over {}", over.replace("xgmi", "xGMI")),
            None => other.into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_links_are_one_kind_and_others_are_listed_or_counted() {
        assert_eq!(text(1, |_, _| Some("peer")), None);
        assert_eq!(text(2, |_, _| None), None);
        let all = |devices| text(devices, |_, _| Some("peer xgmi")).unwrap();
        assert_eq!(all(2), "peer access over xGMI between both devices");
        assert_eq!(all(8), "peer access over xGMI between all 8 devices");
        let one_way = |from, to| Some(if (from, to) == (0, 1) { "no" } else { "peer" });
        assert_eq!(
            text(4, one_way).unwrap(),
            "no peer access: 0→1; peer access: all other pairs"
        );
        // Two halves of a machine.
        let halves = |from: usize, to: usize| Some(if from / 4 == to / 4 { "peer" } else { "no" });
        assert_eq!(
            text(8, halves).unwrap(),
            "peer access: 12 pairs; no peer access: all other pairs"
        );
    }
}
