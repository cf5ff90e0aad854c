use super::*;
use crate::report::fixture;
use crate::report::schema::Column;

/// The made-up report with devices that figures were published for.
pub(super) fn hopper() -> Report {
    let mut report = fixture::cuda();
    report.environment.devices = vec!["NVIDIA H200".to_owned(); 2];
    report
}

#[test]
fn a_page_has_every_part() {
    let page = html(&hopper()).unwrap();
    for part in [
        "<!doctype html>",
        "<html lang=\"en\">",
        "prefers-color-scheme: dark",
        "Push, both ways at once",
        "<h2 id=\"latency\"",
        "<h2 id=\"every-pair\"",
        "<h2 id=\"environment\"",
        "<h2 id=\"notes\"",
        "Published elsewhere",
        "very likely computed from elements",
        "All-gather + GEMM of 8 ranks",
        "678 TFLOP/s",
        "3.2.5",
        "link limit 450 GB/s",
        "dense peak 989.5 TFLOP/s",
        "% of NVLink",
        "all_reduce, in place",
        "all_reduce, out of place",
    ] {
        assert!(page.contains(part), "{part:?} is missing");
    }
    // Push and pull of two kinds, latency, two operations in two placements, two products.
    assert_eq!(page.matches("<figure>").count(), 4 + 1 + 4 + 2);
}

#[test]
fn a_page_loads_nothing_and_leads_only_to_itself() {
    let page = html(&hopper()).unwrap();
    for reference in ["http:", "src=", "url(", "@import", "<link"] {
        assert!(!page.contains(reference), "{reference} is in the page");
    }
    for link in page.split("href=\"").skip(1) {
        assert!(link.starts_with('#'), "{}", &link[..20]);
    }
    assert!(page.contains("Content-Security-Policy\" content=\"default-src 'none';"));
}

#[test]
fn every_text_of_a_report_is_escaped() {
    const PLANTED: &str = "</script><script>alert(\"'&\")</script>\u{1b}\u{202e}";
    let scripts = |page: &str| page.matches("<script").count() + page.matches("</script").count();
    let text = hopper().to_json().unwrap();
    let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
    plant(&mut value, PLANTED);
    let report: Report = serde_json::from_value(value).unwrap();
    assert_eq!(report.notes[0], PLANTED);
    let page = html(&report).unwrap();
    assert_eq!(scripts(&page), 2, "its own");
    assert!(!page.contains(['\u{1b}', '\u{202e}']));
    assert!(page.contains("&lt;script&gt;alert(&quot;&#39;&amp;&quot;)&lt;/script&gt;"));
}

/// Replaces every text and every key of a map, but for those that the schema fixes.
pub(super) fn plant(value: &mut serde_json::Value, text: &str) {
    use serde_json::Value;
    match value {
        Value::String(content) => *content = text.to_owned(),
        Value::Array(items) => items.iter_mut().for_each(|item| plant(item, text)),
        Value::Object(fields) => {
            for (name, field) in fields {
                match name.as_str() {
                    "direction" | "traffic" | "column" | "collective" => {}
                    "dtype" | "sharding" | "b_order" => {}
                    // A point by nobody stands in no table.
                    "by" if field == "symmem" || field == "pull" => {}
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
    for report in [hopper(), fixture::host()] {
        let page = html(&report).unwrap();
        let mut open = Vec::new();
        let body = &page[page.find("<body>").unwrap()..page.find("<script>").unwrap()];
        for tag in body.split('<').skip(1) {
            let tag = &tag[..tag.find('>').unwrap()];
            if tag.ends_with('/') {
                continue;
            }
            match tag.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop(), Some(name)),
                None => open.push(tag.split([' ', '\n']).next().unwrap()),
            }
        }
        assert_eq!(open, ["body"]);
    }
}

#[test]
fn headings_follow_each_other_without_a_gap() {
    let page = html(&hopper()).unwrap();
    let mut before = 0;
    for level in page.split("<h").skip(1) {
        let Some(level) = level.chars().next().and_then(|digit| digit.to_digit(10)) else {
            continue;
        };
        assert!(level <= before + 1, "h{level} after h{before}");
        before = level;
    }
    assert_eq!(page.matches("<h1").count(), 1);
}

#[test]
fn what_is_absent_leaves_no_trace() {
    let page = html(&fixture::host()).unwrap();
    for part in [
        "copy engine",
        "Latency",
        "Every pair",
        ">Notes<",
        "class=\"alarm\"",
    ] {
        assert!(!page.contains(part), "{part:?} is there");
    }
    assert_eq!(page.matches("<figure>").count(), 2);
}

#[test]
fn a_host_run_speaks_of_no_blocks_links_or_published_figures() {
    let mut report = fixture::host();
    for point in &mut report.points {
        if point.column == Column::GridBest {
            point.column = Column::Block128;
            point.method = "processor".into();
        }
    }
    report.environment.devices = vec!["Intel(R) Xeon(R) Processor".into(); 2];
    report.ag_gemm = fixture::cuda().ag_gemm;
    let page = html(&report).unwrap();
    for part in [
        "block128",
        "grid best",
        "NVLink",
        "Published",
        "Hopper",
        "678",
        "class=\"limit\"",
    ] {
        assert!(!page.contains(part), "{part:?} is there");
    }
    assert!(page.contains("<title>symmem\n2 KiB\n"));
}

#[test]
fn a_report_of_nothing_is_still_a_page() {
    let mut report = fixture::host();
    report.points.clear();
    let page = html(&report).unwrap();
    assert!(page.contains("Environment") && !page.contains("Summary"));
}

#[test]
fn wrong_results_are_announced() {
    let mut report = fixture::cuda();
    report.points[0].wrong_bytes = 7;
    let page = html(&report).unwrap();
    assert!(page.contains("1 of 192 results had wrong bytes"));
    assert!(page.contains("title=\"7 wrong bytes or elements\""));
}

#[test]
#[ignore = "writes pages of made-up reports and of the recorded ones to <temporary folder>/symmem-report, to look at"]
fn pages_to_look_at() {
    let folder = std::env::temp_dir().join("symmem-report");
    std::fs::create_dir_all(&folder).unwrap();
    let mut reports = vec![
        ("cuda".to_owned(), hopper()),
        ("host".to_owned(), fixture::host()),
    ];
    let results = concat!(env!("CARGO_MANIFEST_DIR"), "/results");
    for file in std::fs::read_dir(results).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        if let Ok(report) = Report::from_json(&text) {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            reports.push((name, report));
        }
    }
    for (name, report) in reports {
        let page = html(&report).unwrap();
        assert!(page.len() < 2_000_000, "{name}: {} bytes", page.len());
        std::fs::write(folder.join(name + ".html"), page).unwrap();
    }
}
