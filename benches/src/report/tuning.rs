//! A tuning table as text for a terminal.

use symmem::tuning::Table;

/// Returns the rows as tables for a terminal.
pub fn terminal(tuning: &Table) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::TableStyle::new());
    table.set_header([
        "operation",
        "up to ranks",
        "up to bytes",
        "algorithm",
        "blocks",
        "threads a block",
        "copies at once",
    ]);
    for row in &tuning.rows {
        table.add_row([
            row.operation.clone(),
            row.world.to_string(),
            match row.bytes {
                u64::MAX => "any".into(),
                bytes => bytes.to_string(),
            },
            row.algorithm.clone(),
            row.blocks.to_string(),
            row.threads.to_string(),
            row.concurrent.to_string(),
        ]);
    }
    match tuning.gemm.is_empty() {
        true => format!("{table}\n"),
        false if tuning.rows.is_empty() => products(tuning),
        false => format!("{table}\n{}", products(tuning)),
    }
}

fn products(tuning: &Table) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::TableStyle::new());
    table.set_header([
        "MxNxK, element, A sharded by",
        "ranks",
        "device",
        "algorithm",
        "transport",
        "heuristic candidate by rows of A",
    ]);
    for row in &tuning.gemm {
        let candidates = row.candidates.iter();
        let candidates: Vec<String> = candidates
            .map(|candidate| format!("{} rows: {}", candidate.rows, candidate.candidate))
            .collect();
        table.add_row([
            row.problem.file_name(),
            row.world.to_string(),
            row.device.clone(),
            row.algorithm.clone(),
            row.transport.clone(),
            candidates.join(", "),
        ]);
    }
    format!("{table}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_named_by_their_shapes() {
        let text = r#"{"version": 1, "rows": [], "products": [{"device": "Example", "world": 2,
            "product": {"m": 4, "n": 8, "k": 16, "dtype": "float16"}, "algorithm": "pull",
            "transport": "automatic", "library": "", "ways": []}]}"#;
        let table = Table::from_json(text).unwrap();
        assert!(terminal(&table).contains("4x8x16"));
    }
}
