//! The environment of a run: date, command, devices, libraries.

use super::super::html::{Document, Escaped};
use super::super::schema::Report;
use super::super::text::counted;
use std::fmt::{self, Write};

pub(super) fn section(page: &mut Document, report: &Report) -> fmt::Result {
    let text = page.section("Environment")?;
    text.push_str("<dl>\n");
    for (name, value) in environment(report) {
        writeln!(
            text,
            "<div><dt>{}</dt><dd>{}</dd></div>",
            Escaped(&name),
            Escaped(&value)
        )?;
    }
    text.push_str("</dl>\n");
    Ok(())
}

/// What ran where, in pairs of name and value; what is unknown is left out.
fn environment(report: &Report) -> Vec<(String, String)> {
    let environment = &report.environment;
    let host = &environment.host;
    let mut rows = Vec::new();
    let mut add = |name: &str, value: &str| {
        if !value.is_empty() {
            rows.push((name.to_owned(), value.to_owned()));
        }
    };
    add("date", &environment.date);
    add("commit", &environment.commit);
    add("command", &environment.command);
    add("backend", &environment.backend);
    add("devices", &counted(&environment.devices));
    add("links", environment.links.as_deref().unwrap_or_default());
    add(
        "between nodes",
        environment.network.as_deref().unwrap_or_default(),
    );
    add("driver", environment.driver.as_deref().unwrap_or_default());
    for (name, version) in &environment.libraries {
        add(name, version);
    }
    add("clocks", environment.clocks.as_deref().unwrap_or_default());
    add("multicast", &environment.multicast);
    add("processor", &host.cpu);
    if host.cores != 0 {
        add("cores", &host.cores.to_string());
    }
    add("kernel", &host.kernel);
    for (name, value) in &environment.variables {
        add(name, if value.is_empty() { "(empty)" } else { value });
    }
    rows
}
