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
    let gemms = [
        (!tuning.gemm.is_empty()).then(|| products(tuning)),
        (!tuning.gemm_reduce.is_empty()).then(|| reduced(tuning)),
    ];
    let mut text: String = gemms.into_iter().flatten().collect();
    if !tuning.rows.is_empty() || text.is_empty() {
        text.insert_str(0, &format!("{table}\n"));
    }
    text
}

fn reduced(tuning: &Table) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::TableStyle::new());
    table.set_header([
        "operation",
        "MxNxK, element",
        "ranks",
        "device",
        "algorithm",
        "transport",
        "chunks",
        "streams",
    ]);
    for row in &tuning.gemm_reduce {
        table.add_row([
            row.operation.clone(),
            row.problem.file_name(),
            row.world.to_string(),
            row.device.clone(),
            row.algorithm.clone(),
            row.transport.clone(),
            row.chunks.to_string(),
            row.streams.to_string(),
        ]);
    }
    format!("{table}\n")
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
        let text = r#"{"version": 1, "rows": [], "gemm_reduce": [{"device": "Example", "world": 2,
            "operation": "gemm_all_reduce", "product": {"m": 4, "n": 8, "k": 32, "dtype": "float16"},
            "algorithm": "pipeline", "transport": "put", "streams": 1, "chunks": 2}]}"#;
        let table = Table::from_json(text).unwrap();
        let text = terminal(&table);
        assert!(
            text.contains("4x8x32") && text.contains("gemm_all_reduce"),
            "{text}"
        );
    }
}
