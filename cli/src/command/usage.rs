//! Command-line handling around clap: `--color`, options in front of a command, and errors of one line.

use super::arguments::Arguments;
use super::error::{CommandError, Result};
use crate::output::{self, Color, Stream};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory, ValueEnum};
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

/// Returns the value of `--color`. It is read before clap runs, because it applies to clap's errors too.
pub fn color(words: &[OsString]) -> Color {
    let words = words.iter().map(|word| word.to_str().unwrap_or_default());
    let own: Vec<&str> = words.take_while(|word| *word != "--").collect();
    let mut values = own.iter().enumerate().filter_map(|(index, word)| {
        let value = word.strip_prefix("--color")?;
        match value.strip_prefix('=') {
            Some(value) => Some(value),
            None if value.is_empty() => own.get(index + 1).copied(),
            None => None,
        }
    });
    let last = values
        .next_back()
        .and_then(|value| Color::from_str(value, true).ok());
    last.unwrap_or_default()
}

/// Moves options in front of a command behind it (`symmem --quick selftest`), so that the command accepts or rejects
/// them.
pub fn behind_command(root: &Command, words: Vec<OsString>) -> Vec<OsString> {
    let mut command = root;
    let mut commands: Vec<&OsString> = words.iter().take(1).collect();
    let mut options: Vec<&OsString> = Vec::new();
    let mut rest = words.iter().skip(1);
    while command.has_subcommands() {
        let Some(word) = rest.next() else {
            return words;
        };
        let text = word.to_str().unwrap_or_default();
        if matches!(text, "--version" | "-V" | "--") {
            return words;
        }
        if text.starts_with('-') {
            options.push(word);
            if takes_next(root, text) {
                options.extend(rest.next());
            }
        } else if let Some(found) = command.find_subcommand(text) {
            commands.push(word);
            command = found;
        } else {
            return words;
        }
    }
    let all = commands.into_iter().chain(options).chain(rest);
    all.cloned().collect()
}

/// Returns whether an option's value is the next word.
fn takes_next(root: &Command, text: &str) -> bool {
    let option = root.get_arguments().find(|argument| {
        let long = argument.get_long().map(|long| format!("--{long}"));
        let short = argument.get_short().map(|short| format!("-{short}"));
        long.as_deref() == Some(text) || short.as_deref() == Some(text)
    });
    option.is_some_and(|option| option.get_action().takes_values())
}

/// Prints help or the version, or returns clap's error as one line.
pub fn answer(error: &clap::Error, words: &[OsString]) -> Result<ExitCode> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let text = error.render();
            match Stream::Output.has_color() {
                true => output::data(&text.ansi().to_string())?,
                false => output::data(&text.to_string())?,
            }
            Ok(ExitCode::SUCCESS)
        }
        _ => Err(CommandError::Said(wrong(error, words))),
    }
}

/// Returns one line: what is wrong, and what to do.
fn wrong(error: &clap::Error, words: &[OsString]) -> String {
    let root = Arguments::command();
    let (path, command) = named(&root, words);
    let help = format!("see `{} --help`", path.join(" "));
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let names = command.get_subcommands().filter(|one| !one.is_hide_set());
        let names: Vec<&str> = names.map(Command::get_name).collect();
        return format!(
            "{} needs one of {}; {help}",
            path.join(" "),
            names.join(", ")
        );
    }
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let one_line = |paragraph: &str| paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut paragraphs = text.split("\n\n").map(one_line);
    let what = paragraphs.next().unwrap_or_default();
    if command.get_name() == "run"
        && let Some(hint) = separator(error, words)
    {
        return format!("{what}; {hint}");
    }
    let tips: Vec<String> = match error.get(ContextKind::SuggestedSubcommand) {
        Some(suggested) => suggestion(suggested, command).into_iter().collect(),
        // Tips that name a similar option help; the tip to pass a wrong option as a value does not.
        None => paragraphs
            .filter_map(|one| one.strip_prefix("tip: ").map(str::to_owned))
            .filter(|tip| !tip.contains("as a value"))
            .collect(),
    };
    let all: Vec<String> = std::iter::once(what).chain(tips).chain([help]).collect();
    all.join("; ")
}

/// Returns the visible commands that clap suggests for a wrong word.
fn suggestion(suggested: &ContextValue, command: &Command) -> Option<String> {
    let named: Vec<&str> = match suggested {
        ContextValue::String(name) => vec![name],
        ContextValue::Strings(names) => names.iter().map(String::as_str).collect(),
        _ => Vec::new(),
    };
    let is_offered = |name: &&str| {
        let found = command.find_subcommand(name);
        found.is_some_and(|found| !found.is_hide_set())
    };
    let offered: Vec<&str> = named.into_iter().filter(is_offered).collect();
    (!offered.is_empty()).then(|| format!("did you mean {}?", offered.join(" or ")))
}

/// Returns where `--` belongs on a command line of `symmem run`, if it is missing.
fn separator(error: &clap::Error, words: &[OsString]) -> Option<String> {
    let line = |words: &[&OsStr]| {
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    };
    let all: Vec<&OsStr> = words.iter().skip(1).map(OsString::as_os_str).collect();
    match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(program)))
            if !program.starts_with('-') =>
        {
            let at = all.iter().position(|word| *word == OsStr::new(program))?;
            let (own, program) = all.split_at(at);
            Some(format!(
                "put `--` in front of the program: symmem {} -- {}",
                line(own),
                line(program)
            ))
        }
        (ErrorKind::MissingRequiredArgument, _) => Some(format!(
            "name a program after `--`: symmem {} -- PROGRAM ARGUMENTS",
            line(all.split(|word| *word == "--").next()?)
        )),
        _ => None,
    }
}

/// Returns the command that `words` name, and the path of names that leads to it.
fn named<'a>(root: &'a Command, words: &[OsString]) -> (Vec<&'a str>, &'a Command) {
    let (mut path, mut command) = (vec![root.get_name()], root);
    for word in words.iter().skip(1) {
        match command.find_subcommand(word) {
            Some(found) => {
                path.push(found.get_name());
                command = found;
            }
            None => break,
        }
    }
    (path, command)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn options_in_front_of_a_command_go_behind_it() {
        for (line, moved) in [
            ("symmem --quick", "symmem --quick"),
            (
                "symmem --backend hip -n 2 --quick selftest --only products",
                "symmem selftest --backend hip -n 2 --quick --only products",
            ),
            (
                "symmem -n2 bench --json=x p2p --quick",
                "symmem bench p2p -n2 --json=x --quick",
            ),
            ("symmem --help bench", "symmem --help bench"),
            (
                "symmem -n 2 run -- ls --json",
                "symmem run -n 2 -- ls --json",
            ),
            ("symmem --version info", "symmem --version info"),
            ("symmem --backend info", "symmem --backend info"),
            ("symmem nothing info", "symmem nothing info"),
        ] {
            let root = Arguments::command();
            assert_eq!(behind_command(&root, words(line)), words(moved), "{line}");
        }
    }

    #[test]
    fn the_last_color_in_front_of_a_program_counts() {
        for (line, expected) in [
            ("symmem info", Color::Auto),
            ("symmem --color=never info", Color::Never),
            ("symmem info --color always", Color::Always),
            ("symmem --color never info --color=always", Color::Always),
            ("symmem run -- ls --color=always", Color::Auto),
            ("symmem --color", Color::Auto),
        ] {
            assert_eq!(color(&words(line)), expected, "{line}");
        }
    }

    #[test]
    fn the_command_line_is_one_that_clap_can_read() {
        Arguments::command().debug_assert();
    }
}
