//! Makes mutants of device sources: each has one fault that a reader can name. What the lint and the interpreter look for
//! plays no part here.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use super::source::{Call, Source};

/// A source with one fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutant {
    /// The source's path below `device`.
    pub file: String,
    /// The first changed line, counted from 1.
    pub line: usize,
    /// The function that it is in.
    pub function: String,
    /// The line's text, without spaces around it.
    pub text: String,
    pub operator: &'static str,
    /// Counts mutants by this operator of equal lines in one function, from 0, where there are several.
    pub number: usize,
    pub before: String,
    pub after: String,
    /// Whether only the line's text tells it from another mutant.
    shares_name: bool,
    /// The changed bytes of the source.
    range: Range<usize>,
}

impl Mutant {
    /// Returns the name by which reports know it, which stays when other lines of the source change.
    pub fn name(&self) -> String {
        let mut name = format!("{}: {}", self.file, self.change());
        if self.number != 0 {
            name.push_str(&format!(" #{}", self.number));
        }
        if self.shares_name {
            name.push_str(&format!(" in `{}`", self.text));
        }
        name
    }

    fn change(&self) -> String {
        let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        format!(
            "{} ({}): `{}` -> `{}`",
            self.operator,
            self.function,
            flat(&self.before),
            flat(&self.after)
        )
    }

    /// Returns the source with the fault.
    pub fn apply(&self, source: &str) -> String {
        let mut text = source.to_owned();
        text.replace_range(self.range.clone(), &self.after);
        text
    }

    /// Whether the fault changes no value, only in which order accesses happen: code for a target that accesses, waits and
    /// branches as before does the same. Such are faults in fences, barriers and clobbers of assembly, and on gfx90a
    /// stores that are not atomic any more, which look alike.
    pub fn changes_only_order(&self, target: &str) -> bool {
        let orders = |statement: &str| {
            let name = statement.trim().trim_start_matches("arch::");
            name.starts_with("asm volatile(\"")
                || ORDERING.iter().any(|each| name.starts_with(each))
        };
        let code = self
            .before
            .lines()
            .filter(|line| !line.trim().starts_with("//"));
        let code = code.collect::<Vec<_>>().join("\n");
        match self.operator {
            "no clobber" => true,
            "drop" => orders(&code),
            "swap" => code.split_inclusive(";\n").all(orders),
            "scope" => FENCES.iter().any(|(scope, _)| self.before.trim() == *scope),
            "weaken" => {
                let stores = ["store_relaxed", "publish_taken"];
                target == "gfx90a" && self.after == "store" && stores.contains(&&*self.before)
            }
            _ => false,
        }
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}:{}", self.file, self.line, self.change())
    }
}

/// Functions that order, publish or wait, and have no result.
const STATEMENTS: [&str; 20] = [
    "release_wave",
    "release_system",
    "acquire_system",
    "fence_system",
    "block_barrier",
    "warp_barrier",
    "barrier",
    "drain",
    "publish",
    "publish_flag",
    "publish_entered",
    "publish_taken",
    "release_and_store",
    "acquire_flag",
    "acquire_words",
    "until_rows",
    "until_column",
    "__builtin_amdgcn_fence",
    "__builtin_amdgcn_s_barrier",
    "__builtin_amdgcn_wave_barrier",
];

/// Functions that wait and return whether what they waited for came.
const WAITS: [&str; 13] = [
    "until_reached",
    "until_packet",
    "until_member_entered",
    "until_entered",
    "wait_free",
    "wait_arrived",
    "wait_pushed",
    "confirmed",
    "is_confirmed",
    "receive",
    "receive_unit",
    "barrier",
    "wait",
];

/// Votes, which are also barriers.
const VOTES: [&str; 2] = ["block_all", "warp_all"];

/// Functions, and weaker ones of the same arguments.
const WEAKER: [(&str, &str); 20] = [
    ("publish_flag", "store_relaxed"),
    ("publish_flag", "store"),
    ("publish_entered", "store_relaxed"),
    ("publish_taken", "store"),
    ("release_and_store", "store_relaxed"),
    ("block_barrier", "warp_barrier"),
    ("block_barrier", "release_wave"),
    ("fence_system", "release_system"),
    ("fence_system", "acquire_system"),
    ("load_acquire", "load_relaxed"),
    ("load_relaxed", "load"),
    ("load_flag", "load"),
    ("load_word", "load"),
    ("store_relaxed", "store"),
    ("load_packet", "load"),
    ("store_packet", "store"),
    ("arrive", "arrive_taken"),
    ("release_system", "drain"),
    ("release_system", "acquire_system"),
    ("acquire_system", "release_system"),
];

/// Words, and weaker ones.
const SCOPES: [(&str, &str); 8] = [
    ("__HIP_MEMORY_SCOPE_SYSTEM", "__HIP_MEMORY_SCOPE_AGENT"),
    ("__HIP_MEMORY_SCOPE_SYSTEM", "__HIP_MEMORY_SCOPE_WORKGROUP"),
    ("Tells::stored", "Tells::taken"),
    ("Tells::stored", "Tells::entered"),
    ("Tells::taken", "Tells::entered"),
    ("__ATOMIC_RELEASE", "__ATOMIC_ACQUIRE"),
    ("__ATOMIC_ACQUIRE", "__ATOMIC_RELEASE"),
    ("vmcnt(0)", "vmcnt(1)"),
];

/// Scopes of fences, and smaller ones.
const FENCES: [(&str, &str); 4] = [
    ("\"\"", "\"agent\""),
    ("\"\"", "\"workgroup\""),
    ("\"workgroup\"", "\"wavefront\""),
    ("\"wavefront\"", "\"singlethread\""),
];

/// How statements begin that only order.
const ORDERING: [&str; 9] = [
    "release_wave(",
    "release_system(",
    "acquire_system(",
    "block_barrier(",
    "warp_barrier(",
    "drain(",
    "__builtin_amdgcn_fence(",
    "__builtin_amdgcn_s_barrier(",
    "__builtin_amdgcn_wave_barrier(",
];

const DROPPED: &str = "static_cast<void>(0)";

/// Returns all mutants of a source.
pub fn mutants(file: &str, text: &str) -> Vec<Mutant> {
    let source = Source::new(text.to_owned());
    let mut made = Made {
        file,
        source: &source,
        mutants: Vec::new(),
    };
    made.statements();
    made.waits();
    made.weaker();
    made.words();
    made.conditions();
    made.assembly();
    made.atomics();
    made.swaps();
    made.numbered()
}

struct Made<'a> {
    file: &'a str,
    source: &'a Source,
    mutants: Vec<Mutant>,
}

impl Made<'_> {
    fn add(&mut self, operator: &'static str, range: Range<usize>, after: impl Into<String>) {
        let source = self.source;
        let line = source.line(range.start);
        self.mutants.push(Mutant {
            file: self.file.to_owned(),
            line: source.text[..range.start].matches('\n').count() + 1,
            function: source.function(range.end).to_owned(),
            text: source.code()[line].trim().to_owned(),
            operator,
            number: 0,
            shares_name: false,
            before: source.text[range.clone()].to_owned(),
            after: after.into(),
            range,
        });
    }

    /// Leaves out fences, barriers, publications and waits without a result.
    fn statements(&mut self) {
        let source = self.source;
        for name in STATEMENTS {
            for call in source.calls(name) {
                if source.is_statement(&call.whole()) {
                    self.add("drop", call.whole(), DROPPED);
                }
            }
        }
        // In portable code it counts and reports, and is no publication.
        for name in ["store_relaxed", "store_packet"] {
            for call in source.calls(name) {
                let half =
                    source.function(call.name.start) == "store_packet" || name == "store_packet";
                if half && source.is_statement(&call.whole()) {
                    self.add("drop", call.whole(), DROPPED);
                }
            }
        }
    }

    /// Leaves out waits with a result, and makes them wait for less.
    fn waits(&mut self) {
        let source = self.source;
        for name in WAITS {
            for call in source.calls(name) {
                if !source.is_statement(&call.whole()) {
                    self.add("no wait", call.whole(), "true");
                }
            }
        }
        for name in VOTES {
            for call in source.calls(name) {
                let condition = &source.text[call.arguments.clone()];
                self.add("no vote", call.whole(), format!("({condition})"));
            }
        }
        for call in source.calls("reached") {
            let arguments = source.arguments(&call.arguments);
            self.add(
                "one less",
                arguments[0].clone(),
                format!("{} + 1", &source.text[arguments[0].clone()]),
            );
        }
        for call in source.calls("until_reached") {
            let arguments = source.arguments(&call.arguments);
            let Some(expected) = arguments.get(1).cloned() else {
                continue;
            };
            let after = format!(" ({}) - 1", source.text[expected.clone()].trim());
            self.add("one less", expected, after);
        }
    }

    /// Replaces functions by weaker ones.
    fn weaker(&mut self) {
        let source = self.source;
        for (name, weaker) in WEAKER {
            let calls: Vec<Call> = source.calls(name).collect();
            for call in calls {
                self.add("weaken", call.last, weaker);
            }
        }
    }

    /// Replaces scopes and orders by weaker ones.
    fn words(&mut self) {
        let source = self.source;
        for (word, weaker) in SCOPES {
            for (at, _) in source.code().match_indices(word) {
                // A comparison with it is no use of it.
                let before = source.code()[..at].trim_end();
                if !before.ends_with('=') {
                    self.add("scope", at..at + word.len(), weaker);
                }
            }
        }
        for call in source.calls("__builtin_amdgcn_fence") {
            let arguments = source.arguments(&call.arguments);
            for (scope, smaller) in FENCES {
                let Some(given) = arguments.get(1) else {
                    continue;
                };
                if source.text[given.clone()].trim() == scope {
                    self.add("scope", given.clone(), format!(" {smaller}"));
                }
            }
        }
    }

    /// Leaves out one of the conditions by which a packet has arrived.
    fn conditions(&mut self) {
        let source = self.source;
        let mut begin = 0;
        for line in source.code().split_inclusive('\n') {
            let start = begin;
            begin += line.len();
            let arrives = line.contains("flag_in(halves")
                || source.function(start + line.len()) == "has_arrived" && line.contains("&&");
            if !arrives {
                continue;
            }
            let mut cuts: Vec<usize> = line.match_indices("&&").map(|(at, _)| at).collect();
            let close = line.find(") missing").or_else(|| line.find(';'));
            cuts.push(close.unwrap_or(line.len()));
            for pair in cuts.windows(2) {
                self.add("half", start + pair[0]..start + pair[1], "");
            }
            // The first one, unless it asks for something else.
            if let Some(first) = line.find("return ") {
                self.add("half", start + first + 7..start + cuts[0] + 2, "");
            }
        }
    }

    /// Leaves out assembly, or lets the compiler move accesses past it.
    fn assembly(&mut self) {
        let source = self.source;
        for call in source.calls("volatile") {
            let statement = call.name.start - "asm ".len()..call.arguments.end + 1;
            let code = &source.code()[call.arguments.clone()];
            let Some(at) = code.find("::: \"memory\"") else {
                continue;
            };
            self.add("drop", statement, DROPPED);
            let clobber = call.arguments.start + at;
            self.add("no clobber", clobber..call.arguments.end, "");
        }
    }

    /// Replaces atomic accesses by plain ones.
    fn atomics(&mut self) {
        let source = self.source;
        let plain = [
            ("__hip_atomic_load", "*(@0)"),
            ("__hip_atomic_store", "*(@0) = (@1)"),
            (
                "__hip_atomic_fetch_add",
                "({ auto* at = @0; const auto was = *at; *at = was + (@1); was; })",
            ),
            (
                "__hip_atomic_exchange",
                "({ auto* at = @0; const auto was = *at; *at = (@1); was; })",
            ),
            (
                "__hip_atomic_compare_exchange_strong",
                "({ auto* at = @0; const auto was = *at; if (was == expected) *at = desired; expected = was; })",
            ),
        ];
        for (name, form) in plain {
            for call in source.calls(name) {
                let arguments = source.arguments(&call.arguments);
                let text = |index: usize| source.text[arguments[index].clone()].trim();
                let after = form.replace("@0", text(0)).replace("@1", text(1));
                self.add("not atomic", call.whole(), after);
            }
        }
    }

    /// Swaps a statement that orders or publishes with the statement on the line before.
    fn swaps(&mut self) {
        let source = self.source;
        let mut begin = 0;
        let mut before: Option<Range<usize>> = None;
        for line in source.code().split_inclusive('\n') {
            let range = begin..begin + line.trim_end().len();
            begin += line.len();
            let code = line.trim();
            if code.is_empty() {
                continue;
            }
            let whole = code.ends_with(';')
                && ![
                    "return", "const ", "if ", "for ", "using ", "static ", "extern ", "typedef ",
                ]
                .iter()
                .any(|word| code.starts_with(word))
                && code.matches('(').count() == code.matches(')').count();
            if !whole {
                // A statement may move before one with a condition, but not out of the condition of an early return.
                let conditional = code.ends_with(';') && code.starts_with("if ");
                let leaves = code.ends_with("return;") || code.ends_with("continue;");
                before = (conditional && !leaves).then_some(range);
                continue;
            }
            let orders = STATEMENTS
                .iter()
                .any(|name| code.contains(&format!("{name}(")))
                || code.starts_with("asm volatile");
            if let Some(first) = before.replace(range.clone())
                && orders
            {
                let text = format!(
                    "{}\n{}",
                    &source.code()[range.clone()],
                    &source.code()[first.clone()]
                );
                self.add("swap", first.start..range.end, text);
            }
        }
    }

    /// Numbers mutants that are alike but for their place, in order.
    fn numbered(mut self) -> Vec<Mutant> {
        self.mutants.sort_by(|one, other| {
            let key = |each: &Mutant| (each.range.start, each.operator, each.after.clone());
            key(one).cmp(&key(other))
        });
        self.mutants.dedup_by(|one, other| {
            one.range == other.range && one.after == other.after && one.operator == other.operator
        });
        let mut numbered: Vec<Mutant> = Vec::with_capacity(self.mutants.len());
        for mut mutant in self.mutants {
            let alike = |other: &&Mutant| {
                other.function == mutant.function
                    && other.text == mutant.text
                    && other.operator == mutant.operator
            };
            mutant.number = numbered.iter().filter(alike).count();
            numbered.push(mutant);
        }
        let mut names: HashMap<String, usize> = HashMap::new();
        for mutant in &numbered {
            *names.entry(mutant.name()).or_default() += 1;
        }
        for mutant in &mut numbered {
            mutant.shares_name = names[&mutant.name()] > 1;
        }
        numbered
    }
}
