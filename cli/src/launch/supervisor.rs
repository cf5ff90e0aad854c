//! The supervisor: the process that starts the ranks, outlives the launcher, and ends every descendant.

use super::event::Event;
use super::job;
use super::link::Order;
use super::signals::SignalWatch;
use rustix::process::Signal;
use signal_hook::consts::SIGCHLD;
use signal_hook::iterator::Signals;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, Sender};

/// Runs the job that the launcher sends on standard input, as [`super::run`] describes; blocks until it has ended. Only
/// a process that [`super::run`] started can call this.
///
/// # Errors
/// Standard input is not a launcher's connection; or a thread could not be started.
pub fn supervise() -> io::Result<()> {
    let link = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut lines = BufReader::new(link.try_clone()?).lines();
    let Some(order) = lines.next().transpose()? else {
        // The launcher has ended before it sent the job.
        return Ok(());
    };
    let order: Order = serde_json::from_str(&order)?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let (events, inbox) = mpsc::channel();
    // Before the first rank starts, so that no signal can end this process and leave a rank behind.
    let signals = SignalWatch::start({
        let events = events.clone();
        // Nobody receives the event if the job has ended; as below.
        move |signal| drop(events.send(Event::Signal(signal)))
    })?;
    watch_children(events.clone())?;
    listen(lines, events.clone())?;
    let outcome = job::run(&order, events, &inbox);
    drop(signals);
    // A launcher that has died needs no answer.
    let _ = writeln!(&link, "{}", serde_json::to_string(&outcome)?);
    Ok(())
}

/// Starts a thread that receives the launcher's signals, and learns of its death.
fn listen(
    lines: impl Iterator<Item = io::Result<String>> + Send + 'static,
    events: Sender<Event>,
) -> io::Result<()> {
    let listen = move || {
        for line in lines.map_while(Result::ok) {
            let signal = line.parse().ok().and_then(Signal::from_named_raw);
            if let Some(signal) = signal {
                let _ = events.send(Event::Signal(signal));
            }
        }
        let _ = events.send(Event::LauncherGone);
    };
    let thread = std::thread::Builder::new().name("symmem-launcher".into());
    thread.spawn(listen).map(drop)
}

/// Starts a thread that reports ends of children, adopted ones too.
fn watch_children(events: Sender<Event>) -> io::Result<()> {
    let mut signals = Signals::new([SIGCHLD])?;
    let watch = move || {
        for _ in signals.forever() {
            let _ = events.send(Event::ChildEnded);
        }
    };
    let thread = std::thread::Builder::new().name("symmem-orphans".into());
    thread.spawn(watch).map(drop)
}
