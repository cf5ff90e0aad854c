//! Pages in a real browser: nothing on them fails, overflows, is cut off or loads anything, and all can be read by
//! pointer, touch and keyboard, on a phone and on a wide screen, in light and dark. Faults planted in copies are found.
//!
//! One headless Chromium shows every copy in a frame of its own. `browser.js` runs in each and reports to the page
//! around them, whose text Chromium prints at the end.

use super::html;
use super::tests::{hopper, plant};
use crate::report::compare::{self, Comparison, Run};
use crate::report::{Report, fixture};
use serde::Deserialize;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const CHECKS: &str = include_str!("browser.js");

/// After this the browser hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is shown: a copy of a page, in a window of that width, light or dark.
struct Frame {
    name: String,
    page: String,
    width: u32,
    dark: bool,
}

/// What a frame reports.
#[derive(Debug, Deserialize)]
struct Verdict {
    name: String,
    problems: Vec<String>,
    counts: Counts,
}

/// What was looked at.
#[derive(Debug, Deserialize)]
struct Counts {
    tables: u32,
    links: u32,
    plots: u32,
    points: u32,
}

/// A recorded report, as text.
fn text(name: &str) -> String {
    let path = format!("{}/results/{name}.json", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}

fn recorded(name: &str) -> Report {
    Report::from_json(&text(name)).unwrap()
}

/// The page of two recorded reports side by side.
fn comparison() -> String {
    let names = [
        "2026-11-21-copy-engine-2xh200",
        "2026-11-21-copy-engine-4xh200",
    ];
    let runs = names.map(|name| Run::parse(name, &text(name)).unwrap());
    compare::html(&Comparison::new(runs.to_vec()).unwrap()).unwrap()
}

/// Every text of a report replaced by one that does harm where it is not escaped, and is long.
fn hostile() -> Report {
    let planted = format!(
        "</title></script><script>alert(1)</script><img src=x onerror=alert(2)>\"'{}",
        "W".repeat(300)
    );
    let mut value = serde_json::from_str(&hopper().to_json().unwrap()).unwrap();
    plant(&mut value, &planted);
    serde_json::from_value(value).unwrap()
}

/// A fault, and what the checks must say of it.
struct Fault {
    name: &'static str,
    plant: fn(&str) -> String,
    found: &'static str,
}

/// Before the end of the body.
fn with(page: &str, html: &str) -> String {
    page.replacen("</main>", &format!("{html}</main>"), 1)
}

/// One fault for each kind of check.
const FAULTS: [Fault; 14] = [
    Fault {
        name: "script error",
        plant: |page| with(page, "<script>throw new Error('planted')</script>"),
        found: "script error: Uncaught Error: planted",
    },
    Fault {
        name: "console error",
        plant: |page| with(page, "<script>console.error('planted')</script>"),
        found: "console error: planted",
    },
    Fault {
        name: "request that the policy blocks",
        plant: |page| with(page, "<img alt=\"\" src=\"http://127.0.0.1:9/x.png\">"),
        found: "external request: http://127.0.0.1:9/x.png",
    },
    Fault {
        name: "request from a style without a policy",
        plant: |page| {
            let page = page.replacen("default-src 'none'", "default-src *", 1);
            with(
                &page,
                "<p style=\"background: url(http://127.0.0.1:9/y.png)\">x</p>",
            )
        },
        found: "external request: http://127.0.0.1:9/y.png",
    },
    Fault {
        name: "overflow",
        plant: |page| with(page, "<div style=\"width:1500px\">x</div>"),
        found: "overflow at first: ",
    },
    Fault {
        name: "table outside of a box",
        plant: |page| page.replacen("<div class=\"scroll\"", "<div class=\"free\"", 1),
        found: "table in no scroll box",
    },
    Fault {
        name: "box wider than the page",
        plant: |page| {
            let wide = ".table { overflow: hidden; } .scroll { overflow-x: auto; width: 1500px;";
            page.replacen(".scroll { overflow-x: auto; max-width: 100%;", wide, 1)
        },
        found: "scroll box too wide",
    },
    Fault {
        name: "column without a unit",
        plant: |page| page.replacen("<span class=\"of\">GB/s</span>", "", 1),
        found: "column without a unit",
    },
    Fault {
        name: "details that do not open",
        plant: |page| {
            with(
                page,
                "<details><summary onclick=\"event.preventDefault()\">x</summary>y</details>",
            )
        },
        found: "details: a click opens nothing",
    },
    Fault {
        name: "dead link",
        plant: |page| page.replacen("<h2 id=\"environment\"", "<h2 id=\"elsewhere\"", 1),
        found: "link leads nowhere: Environment",
    },
    Fault {
        name: "no hover",
        plant: |page| page.replacen("'pointermove'", "'pointernever'", 1),
        found: "hover shows nothing",
    },
    Fault {
        name: "no keyboard",
        plant: |page| page.replacen("ArrowRight: now + 1", "ArrowNever: 0", 1),
        found: "ArrowRight shows nothing",
    },
    Fault {
        name: "no dark colors",
        plant: |page| page.replacen("screen and (prefers-color-scheme: dark)", "not all", 1),
        found: "dark is not honored",
    },
    Fault {
        name: "weak contrast",
        plant: |page| page.replacen("--quiet: #a2a9b3", "--quiet: #454a50", 1),
        found: "contrast ",
    },
];

/// Where Chromium is; `None` without it, said by name. CI has it.
fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&path).map(|folder| folder.join("chromium"));
    let found = found.find(|file| file.is_file());
    assert!(
        found.is_some() || std::env::var_os("CI").is_none(),
        "CI installs chromium"
    );
    if found.is_none() {
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        // Past the harness, which keeps to itself what a test that passes says.
        let _ = writeln!(std::io::stderr(), "skipped: {name}: no chromium");
    }
    found
}

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Shows every frame in one browser, and returns what each reports.
fn show(chromium: &Path, frames: &[Frame]) -> Vec<Verdict> {
    let folder = std::env::temp_dir().join(format!("symmem-page-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let folder = Folder(folder);
    let mut around = format!(
        "<!doctype html><meta charset=\"utf-8\"><style>iframe {{ position: absolute; left: 0; top: 0; border: 0 }}</style>\
         <pre id=\"verdict\"></pre><script>const all = []; addEventListener('message', (event) => {{ all.push(event.data); \
         if (all.length === {}) document.getElementById('verdict').textContent = 'BEGIN' + JSON.stringify(all) + 'END'; \
         }});</script>\n",
        frames.len()
    );
    for (index, frame) in frames.iter().enumerate() {
        let file = format!("{index}.html");
        let page = frame
            .page
            .replacen("<head>", &format!("<head><script>{CHECKS}</script>"), 1);
        std::fs::write(folder.0.join(&file), page).unwrap();
        let (scheme, dark) = if frame.dark {
            ("dark", 1)
        } else {
            ("light", 0)
        };
        around += &format!(
            "<iframe src=\"{file}?name={index}&amp;width={width}&amp;dark={dark}\" width=\"{width}\" height=\"800\" \
             style=\"color-scheme: {scheme}\"></iframe>\n",
            width = frame.width
        );
    }
    let index = folder.0.join("index.html");
    std::fs::write(&index, around).unwrap();
    let output = folder.0.join("output");
    let mut child = Command::new(chromium)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--hide-scrollbars",
            "--no-first-run",
            "--window-size=1300,820",
            "--virtual-time-budget=20000",
            "--dump-dom",
        ])
        .arg(format!(
            "--user-data-dir={}",
            folder.0.join("profile").display()
        ))
        .arg(format!("file://{}", index.display()))
        .stdout(std::fs::File::create(&output).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > PATIENCE {
            let _ = child.kill();
            let _ = child.wait();
            panic!("chromium did not end within {PATIENCE:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let text = std::fs::read_to_string(&output).unwrap();
    let verdict = text
        .split_once(">BEGIN")
        .and_then(|(_, rest)| rest.split_once("END<"));
    let Some((verdict, _)) = verdict else {
        panic!("a page did not report; chromium printed:\n{text}");
    };
    let verdict = verdict
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&nbsp;", "\u{a0}");
    let mut verdicts: Vec<Verdict> = serde_json::from_str(&verdict.replace("&amp;", "&")).unwrap();
    verdicts.sort_by_key(|verdict| verdict.name.parse::<usize>().unwrap());
    verdicts
}

#[test]
fn pages_work_in_a_browser_and_planted_faults_are_found() {
    let Some(chromium) = chromium() else { return };
    let mut frames = Vec::new();
    let all = [(360, false), (360, true), (1280, false), (1280, true)];
    let two = [(360, true), (1280, false)];
    let page = |report: Report| html(&report).unwrap();
    let stored = |name| page(recorded(name));
    for (name, page, windows) in [
        ("host fixture", page(fixture::host()), &all[..]),
        ("host", stored("2026-11-20-p2p-host-32-cores-1"), &all),
        ("collectives", stored("2026-11-21-collectives-4xh200"), &all),
        ("products", stored("2026-11-22-ag-gemm-large-4xh200"), &all),
        ("transfers", stored("2026-11-20-p2p-2xh200"), &two),
        ("GPU fixture", page(hopper()), &two),
        ("hostile", page(hostile()), &two),
        ("comparison", comparison(), &two),
    ] {
        assert!(page.len() < 2_000_000, "{name}: {} bytes", page.len());
        for &(width, dark) in windows {
            let scheme = if dark { "dark" } else { "light" };
            frames.push(Frame {
                name: format!("{name}, {width} px, {scheme}"),
                page: page.clone(),
                width,
                dark,
            });
        }
    }
    let sound = frames.len();
    let page = html(&fixture::host()).unwrap();
    for fault in &FAULTS {
        let broken = (fault.plant)(&page);
        assert_ne!(broken, page, "{}: nothing was planted", fault.name);
        frames.push(Frame {
            name: fault.name.into(),
            page: broken,
            width: 360,
            dark: true,
        });
    }
    let verdicts = show(&chromium, &frames);
    assert_eq!(verdicts.len(), frames.len());
    let mut wrong = Vec::new();
    for (frame, verdict) in frames.iter().zip(&verdicts).take(sound) {
        let counts = &verdict.counts;
        let some = counts.tables > 0 && counts.links > 0 && counts.plots > 0 && counts.points > 0;
        if !verdict.problems.is_empty() || !some {
            wrong.push(format!(
                "{}: {:#?}, {counts:?}",
                frame.name, verdict.problems
            ));
        }
    }
    for (fault, verdict) in FAULTS.iter().zip(&verdicts[sound..]) {
        if !verdict
            .problems
            .iter()
            .any(|problem| problem.starts_with(fault.found))
        {
            wrong.push(format!(
                "planted and not found: {}: {:#?}",
                fault.name, verdict.problems
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
