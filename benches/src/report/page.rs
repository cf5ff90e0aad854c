//! The report as one HTML page that needs nothing but itself.

use std::fmt::{self, Write};

use super::ag_gemm::{self, AgGemmResults};
use super::collectives::{self, CollectiveResults, OURS};
use super::html::{END, Escaped, begin, beside, draw_legend, section, table};
use super::plot::{self, Axes};
use super::published;
use super::schema::{Column, Direction, Report, Traffic};
use super::text;
use super::view;

/// The whole page: plots, every table, notes, environment, and published figures with their caveat.
///
/// It loads nothing: style and plots are inside, there is no script. Light or dark follows the
/// reader's setting.
///
/// # Errors
/// Those of the plot's writer; writing to memory raises none.
pub fn html(report: &Report) -> Result<String, fmt::Error> {
    let environment = &report.environment;
    let devices = text::counted(&environment.devices);
    let mut title = subject(report).to_owned();
    if !devices.is_empty() {
        title += &format!(", {devices}");
    }
    let mut page = begin(&title);
    head(&mut page, report, &devices)?;
    plots(&mut page, report)?;
    for traffic in Traffic::ALL {
        for direction in Direction::ALL {
            if let Some(view) = view::rates(report, direction, traffic) {
                section(&mut page, &view, "h2")?;
            }
            if let Some(view) = view::single_shots(report, direction, traffic) {
                page.push_str("<details>\n<summary>");
                write!(page, "{}", Escaped(&view.title))?;
                page.push_str("</summary>\n");
                table(&mut page, &view)?;
                page.push_str("</details>\n");
            }
        }
    }
    for view in view::latencies(report)
        .into_iter()
        .chain(view::matrices(report))
    {
        section(&mut page, &view, "h2")?;
    }
    if let Some(measured) = &report.collectives {
        collective_section(&mut page, measured)?;
    }
    if let Some(measured) = &report.ag_gemm {
        ag_gemm::section(&mut page, measured)?;
    }
    notes(&mut page, report)?;
    page.push_str("<h2>Environment</h2>\n<dl>\n");
    for (name, value) in view::environment(report) {
        writeln!(
            page,
            "<div><dt>{}</dt><dd>{}</dd></div>",
            Escaped(&name),
            Escaped(&value)
        )?;
    }
    page.push_str("</dl>\n");
    if !report.points.is_empty() {
        published_figures(&mut page)?;
    }
    page.push_str(END);
    Ok(page)
}

/// What the page is about.
fn subject(report: &Report) -> &'static str {
    match (report.points.is_empty(), &report.collectives) {
        (true, None) if report.ag_gemm.is_some() => "All-gather + GEMM",
        (true, Some(_)) => "Collectives",
        (false, Some(_)) => "Peer-to-peer bandwidth and collectives",
        (_, None) => "Peer-to-peer bandwidth",
    }
}

fn head(page: &mut String, report: &Report, devices: &str) -> fmt::Result {
    let environment = &report.environment;
    let facts = [
        devices,
        &format!("{} backend", environment.backend),
        &format!("multicast {}", environment.multicast),
        &environment.date,
    ];
    let facts: Vec<String> = (facts.iter())
        .filter(|fact| !fact.is_empty())
        .map(|fact| Escaped(fact).to_string())
        .collect();
    writeln!(
        page,
        "<header>\n<h1>{}</h1>\n<p>{}</p>\n</header>",
        subject(report),
        facts.join(" · ")
    )?;
    let wrong = report.wrong_points().count();
    if wrong != 0 {
        writeln!(
            page,
            "<p class=\"alarm\">{wrong} of {} results had wrong bytes. Their rates are not shown.</p>",
            report.points.len()
        )?;
    }
    let section = report.collectives.iter();
    let wrong = section.flat_map(CollectiveResults::wrong_points).count();
    if wrong != 0 {
        writeln!(
            page,
            "<p class=\"alarm\">{wrong} collectives had wrong elements. Their times are not shown.</p>"
        )?;
    }
    let wrong = report.ag_gemm.iter().flat_map(AgGemmResults::wrong).count();
    if wrong != 0 {
        writeln!(
            page,
            "<p class=\"alarm\">{wrong} products had wrong elements. Their times are not shown.</p>"
        )?;
    }
    Ok(())
}

/// Collectives: who was beside, a plot of busbw for each operation, every table.
fn collective_section(page: &mut String, measured: &CollectiveResults) -> fmt::Result {
    writeln!(page, "<h2>Collectives of {} ranks</h2>", measured.world)?;
    beside(page, &measured.baselines)?;
    if let Some(axes) = Axes::of_collectives(measured) {
        let names = (measured.baselines.iter()).map(|baseline| baseline.name.as_str());
        let mut legend = Vec::new();
        for (place, name) in std::iter::once(OURS).chain(names).enumerate() {
            if measured.points.iter().any(|point| point.by == name) {
                legend.push((plot::collective_class(place), name));
            }
        }
        draw_legend(page, legend)?;
        page.push_str("<div class=\"plots\">\n");
        for collective in measured.measured() {
            if let Some(svg) = plot::collective_svg(measured, &axes, collective)? {
                writeln!(
                    page,
                    "<figure>\n<figcaption>{}, <span>busbw, out of place</span></figcaption>\n{svg}\n</figure>",
                    collective.name()
                )?;
            }
        }
        page.push_str("</div>\n");
    }
    for view in collectives::views(measured) {
        section(page, &view, "h2")?;
    }
    Ok(())
}

/// A legend, then the plots of each way of traffic, push beside pull.
fn plots(page: &mut String, report: &Report) -> fmt::Result {
    let Some(axes) = Axes::of(report) else {
        return Ok(());
    };
    let drawn = |column: &Column| report.points.iter().any(|point| point.column == *column);
    let columns = Column::ALL.iter().filter(|column| drawn(column));
    draw_legend(page, columns.map(|column| (column.class(), column.label())))?;
    page.push_str("<div class=\"plots\">\n");
    for traffic in Traffic::ALL {
        for direction in Direction::ALL {
            if let Some(svg) = plot::svg(report, &axes, direction, traffic)? {
                writeln!(
                    page,
                    "<figure>\n<figcaption>{}, <span>{}</span></figcaption>\n{svg}\n</figure>",
                    text::capital(direction.label()),
                    traffic.label()
                )?;
            }
        }
    }
    page.push_str("</div>\n");
    Ok(())
}

fn notes(page: &mut String, report: &Report) -> fmt::Result {
    if report.notes.is_empty() {
        return Ok(());
    }
    page.push_str("<h2>Notes</h2>\n<ul>\n");
    for note in &report.notes {
        writeln!(page, "<li>{}</li>", Escaped(note))?;
    }
    page.push_str("</ul>\n");
    Ok(())
}

fn published_figures(page: &mut String) -> fmt::Result {
    page.push_str("<section class=\"published\">\n<h2>Published elsewhere, for context</h2>\n");
    writeln!(
        page,
        "<p class=\"caveat\">{}</p>\n<p>{}</p>",
        Escaped(published::CAVEAT),
        Escaped(published::METHOD)
    )?;
    page.push_str(
        "<div class=\"scroll\"><table>\n<thead><tr><th scope=\"col\">bytes</th>\
         <th scope=\"col\">NVSHMEM 3.2.5 push</th><th scope=\"col\">NVSHMEM 3.2.5 pull</th>\
         <th scope=\"col\">TileScale push, as printed</th>\
         <th scope=\"col\">TileScale pull, as printed</th></tr></thead>\n<tbody>\n",
    );
    for row in published::ONE_BLOCK {
        writeln!(
            page,
            "<tr><th scope=\"row\">{}</th><td>{:.4}</td><td>{:.4}</td><td>{:.4}</td><td>{:.4}</td></tr>",
            text::size(row.bytes),
            row.nvshmem_push,
            row.nvshmem_pull,
            row.tilescale_push,
            row.tilescale_pull
        )?;
    }
    page.push_str("</tbody>\n</table></div>\n</section>\n");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn a_page_has_every_part() {
        let page = html(&fixture::cuda()).unwrap();
        for part in [
            "<!doctype html>",
            "prefers-color-scheme: dark",
            "Push, both ways at once",
            "Latency",
            "Every pair",
            "Environment",
            "Notes",
            "Published elsewhere",
            "very likely computed from elements",
            "All-gather + GEMM of 8 ranks",
            "678 TFLOP/s",
            "3.2.5",
        ] {
            assert!(page.contains(part), "{part:?} is missing");
        }
        assert_eq!(page.matches("<figure>").count(), 6);
    }

    #[test]
    fn a_page_loads_nothing() {
        let page = html(&fixture::cuda()).unwrap();
        for reference in [
            "http:", "https:", "src=", "href=", "url(", "@import", "<script",
        ] {
            assert!(!page.contains(reference), "{reference} is in the page");
        }
    }

    #[test]
    fn every_text_of_a_report_is_escaped() {
        const PLANTED: &str = "<script>alert(\"'&\")</script>\u{1b}";
        let text = fixture::cuda().to_json().unwrap();
        let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
        plant(&mut value, PLANTED);
        let report: Report = serde_json::from_value(value).unwrap();
        assert_eq!(report.notes[0], PLANTED);
        let page = html(&report).unwrap();
        assert!(!page.contains("<script"));
        assert!(!page.contains('\u{1b}'));
        assert!(page.contains("&lt;script&gt;alert(&quot;&#39;&amp;&quot;)&lt;/script&gt;"));
    }

    /// Replaces every text and every key of a map, but for those that the schema fixes.
    fn plant(value: &mut serde_json::Value, text: &str) {
        use serde_json::Value;
        match value {
            Value::String(content) => *content = text.to_owned(),
            Value::Array(items) => items.iter_mut().for_each(|item| plant(item, text)),
            Value::Object(fields) => {
                for (name, field) in fields {
                    match name.as_str() {
                        "direction" | "traffic" | "column" | "collective" => {}
                        "dtype" | "sharding" | "b_order" => {}
                        "libraries" | "variables" => {
                            *field = serde_json::json!({ text: text });
                        }
                        _ => plant(field, text),
                    }
                }
            }
            _ => {}
        }
    }

    #[test]
    fn elements_are_closed_in_order() {
        for report in [fixture::cuda(), fixture::host()] {
            let page = html(&report).unwrap();
            let mut open = Vec::new();
            let body = &page[page.find("<body>").unwrap()..];
            for tag in body.split('<').skip(1) {
                let tag = &tag[..tag.find('>').unwrap()];
                if tag.ends_with('/') {
                    continue;
                }
                match tag.strip_prefix('/') {
                    Some("html") => {}
                    Some(name) => assert_eq!(open.pop(), Some(name)),
                    None => open.push(tag.split([' ', '\n']).next().unwrap()),
                }
            }
            assert_eq!(open, Vec::<&str>::new());
        }
    }

    #[test]
    fn what_is_absent_leaves_no_trace() {
        let page = html(&fixture::host()).unwrap();
        for part in ["copy engine", "Latency", "Every pair", "Notes", "alarm\">"] {
            assert!(!page.contains(part), "{part:?} is there");
        }
        assert_eq!(page.matches("<figure>").count(), 2);
    }

    #[test]
    fn products_of_several_numbers_of_rows_are_drawn() {
        let mut report = fixture::host();
        let mut section = crate::report::ag_gemm::example();
        for m in [64, 4] {
            let mut other = section.products[1].clone();
            other.problem.m = m;
            section.products.push(other);
        }
        report.ag_gemm = Some(section);
        let page = html(&report).unwrap();
        assert_eq!(page.matches("<figure>").count(), 2 + 1);
        assert!(page.contains("TFLOP/s over M") && page.contains("64 rows: "));
    }

    #[test]
    fn a_report_of_nothing_is_still_a_page() {
        let mut report = fixture::host();
        report.points.clear();
        assert!(html(&report).unwrap().contains("Environment"));
    }

    #[test]
    fn wrong_results_are_announced() {
        let mut report = fixture::cuda();
        report.points[0].wrong_bytes = 7;
        let page = html(&report).unwrap();
        assert!(page.contains("1 of 192 results had wrong bytes"));
        assert!(page.contains("title=\"7 wrong bytes\""));
    }

    #[test]
    #[ignore = "writes the made-up reports to <temporary folder>/symmem-report, to look at"]
    fn pages_to_look_at() {
        let folder = std::env::temp_dir().join("symmem-report");
        std::fs::create_dir_all(&folder).unwrap();
        for (name, report) in [("cuda", fixture::cuda()), ("host", fixture::host())] {
            let path = folder.join(name);
            std::fs::write(path.with_extension("html"), html(&report).unwrap()).unwrap();
            let text = crate::report::table::terminal(&report);
            std::fs::write(path.with_extension("txt"), text).unwrap();
        }
    }
}
