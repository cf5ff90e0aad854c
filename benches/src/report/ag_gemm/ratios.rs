//! Tables that divide a time by another.

use super::kind::{KIND, row};
use super::{
    AgGemmResults, BASELINE, GEMM, Measured, OWN_GEMM, TORCH, TORCH_FUSED, TRANSFORMER_ENGINE,
    WINDOWS,
};
use crate::report::text::decimal;
use crate::report::view::{Cell, View, heading};

/// Explains the name of a column; `--baseline` means a program to compare with.
pub(super) const AS_BASELINE: &str =
    "baseline: symmem's algorithm `Baseline`, which gathers A and then multiplies.";

/// Symmem's fastest algorithm, compared with the GEMM and the all-gather that it consists of.
pub(super) fn shares(section: &AgGemmResults) -> Option<View> {
    let rows: Vec<Vec<Cell>> = (section.products.iter())
        .filter_map(|measured| {
            let best = measured.best()?;
            let derived = measured.derive(best)?;
            let share = |share: Option<f64>| {
                share.map_or(Cell::Absent, |share| Cell::Figure(format!("{share:.3}")))
            };
            let mut row = row(measured);
            row.push(Cell::Figure(best.into()));
            row.push(match measured.ideal() {
                Some(ideal) => Cell::Figure(decimal(ideal / 1e3)),
                None => Cell::Absent,
            });
            row.push(share(derived.of_ideal));
            row.push(share(derived.overlap));
            row.push(share(derived.of_together));
            Some(row)
        })
        .collect();
    (!rows.is_empty()).then(|| View {
        title: "all-gather + GEMM: symmem's fastest algorithm and its parts".into(),
        caption: vec![
            "fastest: symmem's fastest algorithm; ideal: the longer of the times of the GEMM alone and the gather \
             alone."
                .into(),
            "of ideal: ideal divided by the fastest algorithm's time; overlap: time of the GEMM alone divided by the \
             same."
                .into(),
            "of together: time of GEMM and gather at once, without a dependency, divided by the fastest algorithm's \
             time."
                .into(),
        ],
        headings: vec![
            heading("MxNxK"),
            heading(KIND),
            heading("fastest"),
            heading("ideal\n(µs)"),
            heading("of\nideal").of("share"),
            heading("overlap").of("share"),
            heading("of\ntogether").of("share"),
        ],
        rows,
    })
}

/// A column that divides one time by another.
struct RatioColumn {
    heading: &'static str,
    /// Whose time is divided.
    one: &'static str,
    /// Whose time is the divisor; `None` for symmem's fastest algorithm.
    by: Option<&'static str>,
    meaning: &'static str,
}

impl RatioColumn {
    fn of(&self, measured: &Measured) -> Option<f64> {
        measured.over(self.one, self.by.or(measured.best())?)
    }
}

const RATIOS: [RatioColumn; 6] = [
    RatioColumn {
        heading: "gemm\n÷ own gemm",
        one: GEMM,
        by: Some(OWN_GEMM),
        meaning: "gemm ÷ own gemm: time of the GEMM alone by cuBLASLt or hipBLASLt, divided by that of symmem's \
                  large-tile kernel.",
    },
    RatioColumn {
        heading: "baseline\n÷ symmem",
        one: BASELINE,
        by: None,
        meaning: AS_BASELINE,
    },
    RatioColumn {
        heading: "windows\n÷ symmem",
        one: WINDOWS,
        by: None,
        meaning: "windows: NCCL or RCCL gathers between symmetric windows, then cuBLASLt or hipBLASLt multiplies.",
    },
    RatioColumn {
        heading: "torch\n÷ symmem",
        one: TORCH,
        by: None,
        meaning: "torch: PyTorch's all-gather, then its GEMM.",
    },
    RatioColumn {
        heading: "fused\n÷ symmem",
        one: TORCH_FUSED,
        by: None,
        meaning: "fused: PyTorch's `fused_all_gather_matmul`.",
    },
    RatioColumn {
        heading: "engine\n÷ symmem",
        one: TRANSFORMER_ENGINE,
        by: None,
        meaning: "engine: Transformer Engine's linear layer, which overlaps the gather with the GEMM.",
    },
];

/// Symmem's fastest algorithm, compared with what else was measured.
pub(super) fn ratios(section: &AgGemmResults) -> Option<View> {
    let measured = |column: &RatioColumn| {
        let mut products = section.products.iter();
        products.any(|measured| column.of(measured).is_some())
    };
    let columns: Vec<RatioColumn> = RATIOS.into_iter().filter(measured).collect();
    if columns.is_empty() {
        return None;
    }
    let mut caption = vec![
        "x ÷ symmem: time of x divided by that of symmem's fastest algorithm; above 1, symmem is faster.".to_owned(),
        "Graph replays are compared if both have them, otherwise single calls.".to_owned(),
    ];
    caption.extend(columns.iter().map(|column| column.meaning.to_owned()));
    let mut headings = vec![heading("MxNxK"), heading(KIND)];
    headings.extend((columns.iter()).map(|column| heading(column.heading).of("×")));
    let rows = (section.products.iter())
        .map(|measured| {
            let cells = columns.iter().map(|column| column.of(measured));
            let mut row = row(measured);
            row.extend(cells.map(|ratio| ratio.map_or(Cell::Absent, Cell::Ratio)));
            row
        })
        .filter(|row| row[2..].iter().any(|cell| *cell != Cell::Absent))
        .collect();
    Some(View {
        title: "all-gather + GEMM: symmem's fastest algorithm and other libraries".into(),
        caption,
        headings,
        rows,
    })
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn a_ratio_has_a_column_and_a_sentence_only_if_something_was_measured() {
        let ratios = ratios(&example()).expect("every shape has a fastest algorithm");
        let texts: Vec<_> = (ratios.headings.iter())
            .map(|one| one.text.as_str())
            .collect();
        let expected = [
            "MxNxK",
            KIND,
            "gemm\n÷ own gemm",
            "baseline\n÷ symmem",
            "windows\n÷ symmem",
            "fused\n÷ symmem",
        ];
        assert_eq!(texts, expected);
        let explained = |word: &str| ratios.caption.iter().any(|line| line.starts_with(word));
        assert!(explained("fused: ") && !explained("torch: ") && !explained("engine: "));
        // `Baseline` takes 27 µs, the windows 24, pull 21; there is no GEMM of symmem's own.
        let small: Vec<String> = ratios.rows[1][2..].iter().map(Cell::text).collect();
        assert_eq!(small, ["–", "1.29×", "1.14×", "–"]);
    }
}
