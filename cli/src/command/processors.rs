//! How busy the machine's processors are.

use std::time::Duration;

/// Time between two looks at the processors' clocks, which count in steps of 10 ms.
const WATCHED: Duration = Duration::from_millis(200);

/// Returns how many of the processors that this process may use are busy; `None` if the kernel does not say. Blocks for
/// 0.2 s.
///
/// The load average is a mean over a minute, so it misses a program that has just started.
pub fn busy() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let allowed = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let before = std::fs::read_to_string("/proc/stat").ok()?;
    std::thread::sleep(WATCHED);
    let after = std::fs::read_to_string("/proc/stat").ok()?;
    let shares = list(allowed.trim())?.into_iter().filter_map(|number| {
        let (busy, all) = times(&before, number)?;
        let (busy_then, all_then) = times(&after, number)?;
        let all = all_then.checked_sub(all).filter(|all| *all != 0)?;
        Some(busy_then.saturating_sub(busy) as f64 / all as f64)
    });
    Some(shares.sum())
}

/// Parses a list of processors as the kernel writes it: `0-3,8`.
fn list(text: &str) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        all.extend(first.parse::<u32>().ok()?..=last.parse().ok()?);
    }
    Some(all)
}

/// Returns a processor's busy time and its whole time in `/proc/stat`.
fn times(stat: &str, number: u32) -> Option<(u64, u64)> {
    let name = format!("cpu{number}");
    let mut words = stat
        .lines()
        .map(str::split_whitespace)
        .find_map(|mut words| (words.next() == Some(&*name)).then_some(words))?;
    // user, nice, system, idle, iowait, irq, softirq, steal; guests are part of the first two.
    let times: Option<Vec<u64>> = words
        .by_ref()
        .take(8)
        .map(|word| word.parse().ok())
        .collect();
    let times = times.filter(|times| times.len() >= 5)?;
    let all: u64 = times.iter().sum();
    Some((all - times[3] - times[4], all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_times_are_read_as_the_kernel_writes_them() {
        assert_eq!(list("0-2,5").unwrap(), [0, 1, 2, 5]);
        assert_eq!(list("x"), None);
        let stat = "cpu  9 9 9 9 9 9 9 9\ncpu1 10 1 2 100 5 0 1 0 3 0\nintr 1\n";
        assert_eq!(times(stat, 1), Some((14, 119)));
        assert_eq!(times(stat, 0), None);
    }

    #[test]
    fn a_busy_thread_is_seen() {
        let busy_before = busy().unwrap();
        assert!(busy_before >= 0.0);
        let (done, told) = std::sync::mpsc::channel::<()>();
        let spinning = std::thread::spawn(move || {
            while told.try_recv() != Err(std::sync::mpsc::TryRecvError::Disconnected) {}
        });
        let seen = busy().unwrap();
        drop(done);
        spinning.join().unwrap();
        assert!(seen > 0.3, "{seen}");
    }
}
