//! Published figures of others, with the reason why they cannot be compared directly.

use super::super::html::{Document, Escaped, table};
use super::super::published;
use super::super::text::size;
use super::super::view::{Cell, View, heading};
use std::fmt::{self, Write};

pub(super) fn section(page: &mut Document) -> fmt::Result {
    let text = page.section("Published elsewhere, for context")?;
    writeln!(
        text,
        "<p class=\"caveat\">{}</p>\n<p>{}</p>",
        Escaped(published::CAVEAT),
        Escaped(published::METHOD)
    )?;
    let rows = published::ONE_BLOCK.iter().map(|row| {
        let figures = [
            row.nvshmem_push,
            row.nvshmem_pull,
            row.tilescale_push,
            row.tilescale_pull,
        ];
        let figures = figures.map(|figure| Cell::Figure(format!("{figure:.4}")));
        let name = std::iter::once(Cell::Name(size(row.bytes)));
        name.chain(figures).collect()
    });
    let figures = [
        "NVSHMEM 3.2.5 push",
        "NVSHMEM 3.2.5 pull",
        "TileScale push, as printed",
        "TileScale pull, as printed",
    ];
    let figures = figures.map(|text| heading(text).of("GB/s"));
    table(
        text,
        &View {
            title: "One block, as published".into(),
            caption: Vec::new(),
            headings: std::iter::once(heading("bytes")).chain(figures).collect(),
            rows: rows.collect(),
        },
    )
}
