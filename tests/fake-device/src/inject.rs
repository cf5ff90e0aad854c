//! Injected failures, delays and deaths, at the n-th call or the n-th call of one symbol.

use std::ffi::{CStr, c_char};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};

use crate::call::{base_name, calls, calls_of, lock};
use crate::error::Code;

/// Fails one call.
struct Failure {
    /// The symbol; `None` matches any counted call.
    symbol: Option<String>,
    /// The number of the call since the process started; 0 for every call of the symbol.
    at: u64,
    code: Code,
    /// Whether a call that releases something fails without releasing it.
    undone: bool,
}

/// Delays one call, or every call.
struct Stall {
    symbol: String,
    /// The number of the call; 0 for every call.
    at: u64,
    /// `None` means for ever.
    time: Option<Duration>,
    /// Whether the delay comes after the call's work, before it returns.
    after: bool,
}

/// Kills the process at one call.
struct Death {
    symbol: String,
    /// The number of the call.
    at: u64,
    /// Whether the process dies after the call's work, before the call returns.
    after: bool,
}

static FAILURES: LazyLock<Mutex<Vec<Failure>>> =
    LazyLock::new(|| Mutex::new(rules("FAKE_DEVICE_FAIL", parse_failure)));

static STALLS: LazyLock<Vec<Stall>> = LazyLock::new(|| rules("FAKE_DEVICE_STALL", parse_stall));

static DEATHS: LazyLock<Vec<Death>> = LazyLock::new(|| rules("FAKE_DEVICE_KILL", parse_death));

/// Parses the rules of a variable. Returns none if the variable with `_RANK` appended names another rank.
fn rules<T>(variable: &str, parse: impl FnMut(&str) -> Option<T>) -> Vec<T> {
    let here = match std::env::var(format!("{variable}_RANK")) {
        Ok(wanted) => rank().is_some_and(|rank| rank == wanted),
        Err(_) => true,
    };
    let rules = std::env::var(variable).ok().filter(|_| here);
    let rules = rules.unwrap_or_default();
    rules.split(',').filter_map(parse).collect()
}

/// Returns this process's rank, if its environment names one.
pub(crate) fn rank() -> Option<String> {
    std::env::var("SYMMEM_RANK")
        .or_else(|_| std::env::var("RANK"))
        .ok()
}

fn parse_failure(rule: &str) -> Option<Failure> {
    let mut parts = rule.split(':');
    let what = parts.next().filter(|what| !what.is_empty())?;
    let (symbol, at) = match what.strip_prefix('#') {
        Some(number) => (None, number.parse().ok()?),
        None => (
            Some(base_name(what).to_owned()),
            parts.next().map_or(Some(1), |n| n.parse().ok())?,
        ),
    };
    let code = parts.next().map_or(Some(Code::UNKNOWN), Code::parse)?;
    let undone = match parts.next() {
        None => false,
        Some("undone") => true,
        Some(_) => return None,
    };
    Some(Failure {
        symbol,
        at,
        code,
        undone,
    })
}

fn parse_stall(rule: &str) -> Option<Stall> {
    let mut parts = rule.split(':');
    let symbol = base_name(parts.next().filter(|symbol| !symbol.is_empty())?).to_owned();
    let at = parts.next()?.parse().ok()?;
    let time = match parts.next()? {
        "forever" => None,
        milliseconds => Some(Duration::from_millis(milliseconds.parse().ok()?)),
    };
    let after = parse_after(parts.next())?;
    Some(Stall {
        symbol,
        at,
        time,
        after,
    })
}

fn parse_death(rule: &str) -> Option<Death> {
    let mut parts = rule.split(':');
    let symbol = base_name(parts.next().filter(|symbol| !symbol.is_empty())?).to_owned();
    let at = parts.next().map_or(Some(1), |n| n.parse().ok())?;
    let after = parse_after(parts.next())?;
    Some(Death { symbol, at, after })
}

fn parse_after(word: Option<&str>) -> Option<bool> {
    match word {
        None => Some(false),
        Some("after") => Some(true),
        Some(_) => None,
    }
}

/// Returns the error that the call just counted should fail with, and whether it then releases nothing. A rule for one
/// call fires once.
pub(crate) fn failure(symbol: &str, uncounted: bool) -> Option<(Code, bool)> {
    let mut rules = lock(&FAILURES);
    let position = rules.iter().position(|rule| match &rule.symbol {
        Some(name) => name == base_name(symbol) && [0, calls_of(symbol)].contains(&rule.at),
        None => !uncounted && calls() == rule.at,
    })?;
    let fails = (rules[position].code, rules[position].undone);
    if rules[position].at != 0 {
        rules.swap_remove(position);
    }
    Some(fails)
}

/// How long a call is delayed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delay {
    time: Duration,
    for_ever: bool,
}

impl Delay {
    /// Sleeps for the delay.
    pub fn pass(self) {
        std::thread::sleep(self.time);
        if self.for_ever {
            loop {
                std::thread::park();
            }
        }
    }
}

/// Returns the delay before or after the call that was just counted.
pub(crate) fn delay(symbol: &str, after: bool) -> Delay {
    let mut delay = Delay::default();
    for stall in STALLS
        .iter()
        .filter(|stall| stall.after == after && stall.symbol == base_name(symbol))
    {
        if stall.at == 0 || stall.at == calls_of(symbol) {
            delay.time += stall.time.unwrap_or_default();
            delay.for_ever |= stall.time.is_none();
        }
    }
    delay
}

/// Kills the process if a rule says so for the call that was just counted, before or after its work.
pub(crate) fn die(symbol: &str, after: bool) {
    let name = base_name(symbol);
    let due = |death: &Death| death.symbol == name && death.at == calls_of(symbol);
    if DEATHS
        .iter()
        .any(|death| death.after == after && due(death))
    {
        // There is nobody to report a failure to.
        let _ = kill_process(getpid(), Signal::KILL);
    }
}

/// Makes the `n`-th counted call from now (1 is the next) fail with `error`. `n` 0 drops all rules.
#[unsafe(no_mangle)]
pub extern "C" fn fake_device_fail_call(n: u64, error: i32) {
    let mut rules = lock(&FAILURES);
    if n == 0 {
        rules.clear();
    } else {
        rules.push(Failure {
            symbol: None,
            at: calls() + n,
            code: Code(error),
            undone: false,
        });
    }
}

/// Makes the `nth` call of `symbol` from now (1 is the next) fail with `error`.
///
/// # Safety
/// `symbol` is a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fake_device_fail_symbol(symbol: *const c_char, nth: u64, error: i32) {
    // SAFETY: the caller promises a zero-terminated string.
    let name = unsafe { CStr::from_ptr(symbol) }
        .to_string_lossy()
        .into_owned();
    let rule = Failure {
        at: calls_of(&name) + nth,
        symbol: Some(base_name(&name).to_owned()),
        code: Code(error),
        undone: false,
    };
    lock(&FAILURES).push(rule);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_names_a_symbol_or_a_number() {
        let rule = parse_failure("cuMemCreate:3:OUT_OF_MEMORY").expect("a rule");
        assert_eq!(
            (rule.symbol.as_deref(), rule.at, rule.code.0),
            (Some("cuMemCreate"), 3, 2)
        );
        let rule = parse_failure("cuMemAlloc_v2").expect("a rule");
        assert_eq!(
            (rule.symbol.as_deref(), rule.at, rule.code.0),
            (Some("cuMemAlloc"), 1, 999)
        );
        let rule = parse_failure("#17:700").expect("a rule");
        assert_eq!((rule.symbol, rule.at, rule.code.0), (None, 17, 700));
        assert!(!rule.undone);
        let rule = parse_failure("cuMemRelease:2:999:undone").expect("a rule");
        assert!(rule.undone);
    }

    #[test]
    fn a_malformed_rule_is_no_rule() {
        for text in [
            "",
            "#x",
            "cuInit:one",
            "cuInit:1:NO_SUCH_ERROR",
            "cuMemRelease:1:999:done",
        ] {
            assert!(parse_failure(text).is_none(), "{text}");
        }
        assert!(parse_stall("cuInit:1").is_none());
        assert!(parse_stall("cuInit:1:never").is_none());
        assert!(parse_stall("cuInit:1:5:before").is_none());
        assert!(parse_death("cuInit:1:before").is_none());
    }
}
