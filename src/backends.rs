//! Which backend runs: linked by a Cargo feature or loaded from a plugin file, chosen by the builder
//! or by `SYMMEM_BACKEND`.
//!
//! `auto` probes the linked and found backends in order and takes the first that has a device; the
//! host backend is last and always there. A backend that was named and cannot start is an error that
//! lists every probe: there is no silent fallback.

use crate::base::abandon::run_within;
use crate::base::env;
use crate::base::env::BadVariable;
use crate::base::variables;
use crate::{BackendSource, Error, Result};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use symmem_core::backend::abi::Status;
use symmem_core::backend::{Failure, Tables, load};

/// What was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Selection {
    /// The first backend that has a device.
    #[default]
    Auto,
    /// The backend of this name: `host`, `cuda`, `hip` or a plugin's.
    Named(String),
    /// The backend in this plugin file.
    Plugin(PathBuf),
}

impl Selection {
    /// The backend of this name: `host`, `cuda`, `hip` or a plugin's.
    pub fn named(name: impl Into<String>) -> Self {
        Self::Named(name.into())
    }

    /// The backend in this plugin file, which is called `libsymmem_NAME.so`.
    pub fn plugin(file: impl Into<PathBuf>) -> Self {
        Self::Plugin(file.into())
    }

    /// Reads `SYMMEM_BACKEND=auto|host|cuda|hip|path:/…`; [`Selection::Auto`] if it is not set or empty.
    ///
    /// # Errors
    /// [`Error::BadVariable`] for a value that is none of these.
    pub fn from_environment() -> Result<Self> {
        Ok(Self::from_variable()?)
    }

    pub(crate) fn from_variable() -> std::result::Result<Self, BadVariable> {
        let parse = |text: &str| Self::understand(text).ok_or_else(String::new);
        Ok(variables::BACKEND.read(parse)?.unwrap_or_default())
    }

    /// Reads a selection: `auto` or empty text, a name, or `path:FILE`.
    ///
    /// # Errors
    /// [`Error::BadSelection`] for any other text.
    pub fn parse(text: &str) -> Result<Self> {
        Self::understand(text).ok_or_else(|| Error::BadSelection(text.into()))
    }

    fn understand(text: &str) -> Option<Self> {
        match text {
            "" | "auto" => Some(Self::Auto),
            _ => match text.strip_prefix("path:") {
                Some(path) if !path.is_empty() => Some(Self::plugin(path)),
                None if text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') => {
                    Some(Self::named(text))
                }
                _ => None,
            },
        }
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => write!(formatter, "auto"),
            Self::Named(name) => write!(formatter, "{name}"),
            Self::Plugin(path) => write!(formatter, "path:{}", path.display()),
        }
    }
}

/// How a backend was come by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Part of core.
    BuiltIn,
    /// Linked by a Cargo feature.
    Linked,
    /// Loaded from this file.
    File(PathBuf),
}

/// A backend that was looked at.
pub struct Probe {
    /// Its name.
    pub name: String,
    /// Where it came from.
    pub origin: Origin,
    /// How many devices it has, or why it cannot start.
    pub devices: std::result::Result<u32, Failure>,
    /// What opens it.
    pub source: Option<BackendSource>,
}

impl fmt::Display for Probe {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = match &self.origin {
            Origin::BuiltIn => "built in".into(),
            Origin::Linked => "linked".into(),
            Origin::File(path) => format!("from {}", path.display()),
        };
        match &self.devices {
            Ok(devices) => write!(formatter, "{} ({origin}): {devices} device(s)", self.name),
            Err(failure) => write!(formatter, "{} ({origin}): {failure}", self.name),
        }
    }
}

/// The backend that will be used.
pub struct Chosen {
    /// Its name.
    pub name: String,
    /// How many devices it has.
    pub devices: u32,
    /// What opens it.
    pub source: BackendSource,
}

/// The tables that Cargo features linked.
fn linked() -> Vec<&'static symmem_core::backend::BackendTable> {
    vec![
        #[cfg(feature = "cuda")]
        &symmem_cuda::TABLE,
        #[cfg(feature = "hip")]
        &symmem_hip::TABLE,
    ]
}

/// Plugin files, `libsymmem_NAME.so`, that are looked for beside the executable without being asked for.
const KNOWN: [&str; 2] = ["cuda", "hip"];

/// The directories of `SYMMEM_PLUGIN_PATH`.
fn listed_directories() -> Vec<PathBuf> {
    variables::PLUGIN_PATH
        .value()
        .map(|value| env::directories(&value))
        .unwrap_or_default()
}

/// Where a plugin file is looked for: `SYMMEM_PLUGIN_PATH`, then beside the executable.
fn plugin_directories() -> Vec<PathBuf> {
    let mut directories = listed_directories();
    if let Ok(executable) = std::env::current_exe()
        && let Some(directory) = executable.parent()
    {
        directories.push(directory.into());
    }
    directories
}

fn plugin_file(name: &str) -> Option<PathBuf> {
    plugin_directories()
        .into_iter()
        .map(|directory| directory.join(format!("libsymmem_{name}.so")))
        .find(|path| path.is_file())
}

/// Every plugin file in `SYMMEM_PLUGIN_PATH`, by its backend's name; of one name the first in the path.
fn listed_plugins() -> Vec<(String, PathBuf)> {
    let mut plugins: Vec<(String, PathBuf)> = Vec::new();
    for directory in listed_directories() {
        // A directory that is not there has no plugins.
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        files.sort();
        for file in files {
            let name = name_of(&file).filter(|_| file.extension().is_some_and(|end| end == "so"));
            if let Some(name) = name.map(str::to_owned)
                && file.is_file()
                && plugins.iter().all(|(known, _)| *known != name)
            {
                plugins.push((name, file));
            }
        }
    }
    plugins
}

/// Looks at every backend there is, without opening a device: linked ones, plugin files in
/// `SYMMEM_PLUGIN_PATH`, those of known names beside the executable, the host backend. A plugin file that is
/// not used is in the list all the same, with the reason.
pub fn probe_all() -> Vec<Probe> {
    let mut probes = Vec::new();
    for table in linked() {
        // SAFETY: a linked backend's table is a static.
        probes.push(match unsafe { Tables::read(table) } {
            Ok(tables) => probe_tables(tables, Origin::Linked),
            Err(error) => failed(table.name(), Origin::Linked, error.to_failure()),
        });
    }
    for (name, path) in listed_plugins() {
        // What the program has built in comes first; the file is not loaded.
        let shadowed = name == "host" || probes.iter().any(|probe| probe.name == name);
        probes.push(match shadowed {
            true => failed(
                name,
                Origin::File(path.clone()),
                shadowed_by_built_in(&path),
            ),
            false => probe_file(&path, &name),
        });
    }
    for name in KNOWN {
        if probes.iter().all(|probe| probe.name != name)
            && let Some(path) = plugin_file(name)
        {
            probes.push(probe_file(&path, name));
        }
    }
    probes.push(host());
    probes
}

fn host() -> Probe {
    Probe {
        name: "host".into(),
        origin: Origin::BuiltIn,
        devices: Ok(1),
        source: Some(BackendSource::Host),
    }
}

fn probe_tables(tables: Tables, origin: Origin) -> Probe {
    Probe {
        name: tables.name(),
        origin,
        devices: count_devices(tables),
        source: Some(BackendSource::Tables(Box::new(tables))),
    }
}

/// How long a driver may take to start. Eight GPUs without persistence mode need ten seconds.
const START_DEADLINE: Duration = Duration::from_secs(60);

/// Counts a backend's devices; a driver that never returns is a failed probe.
fn count_devices(tables: Tables) -> std::result::Result<u32, Failure> {
    let count = move || tables.device_count();
    run_within("symmem-probe", START_DEADLINE, count).unwrap_or_else(|abandoned| {
        Err(Failure::new(
            Status::CALL_FAILED,
            "device_count",
            format!("{abandoned}; look at the driver's own tools and the kernel's log"),
        ))
    })
}

fn probe_file(path: &Path, name: &str) -> Probe {
    let origin = Origin::File(path.into());
    // SAFETY: the user named the file or put it where plugins are looked for.
    match unsafe { load(path, name) } {
        Ok(tables) => probe_tables(tables, origin),
        Err(error) => failed(name.into(), origin, error.to_failure()),
    }
}

/// Why a plugin file is not used whose backend the program has built in.
fn shadowed_by_built_in(path: &Path) -> Failure {
    Failure::new(
        Status::UNSUPPORTED,
        "load",
        format!(
            "not used: this program has a backend of this name built in; SYMMEM_BACKEND=path:{} takes the file",
            path.display()
        ),
    )
}

fn failed(name: String, origin: Origin, failure: Failure) -> Probe {
    Probe {
        name,
        origin,
        devices: Err(failure),
        source: None,
    }
}

/// The backend's name in a plugin file's: `libsymmem_cuda.so`, `libsymmem_cuda.so.0.1`.
fn name_of(path: &Path) -> Option<&str> {
    let file = path.file_name()?.to_str()?;
    let stem = file.split('.').next()?;
    stem.strip_prefix("libsymmem_")
        .filter(|name| !name.is_empty())
}

/// Looks at the backends that a selection names, without opening a device.
///
/// # Errors
/// [`Error::NoBackend`] if there is none of that name, with where it was looked for.
pub fn probe(selection: &Selection) -> Result<Vec<Probe>> {
    Ok(match selection {
        Selection::Auto => probe_all(),
        Selection::Named(name) if name == "host" => vec![host()],
        Selection::Named(name) => {
            let mut probes = probe_all();
            if probes.iter().all(|probe| &probe.name != name)
                && let Some(path) = plugin_file(name)
            {
                probes.push(probe_file(&path, name));
            }
            let named: Vec<Probe> = probes
                .into_iter()
                .filter(|probe| &probe.name == name)
                .collect();
            if named.is_empty() {
                let searched: Vec<String> = plugin_directories()
                    .iter()
                    .map(|directory| directory.display().to_string())
                    .collect();
                return Err(Error::NoBackend(format!(
                    "no backend `{name}`: none is linked (Cargo feature) and there is no \
                     libsymmem_{name}.so in {}",
                    searched.join(", ")
                )));
            }
            named
        }
        Selection::Plugin(path) => {
            let Some(name) = name_of(path) else {
                return Err(Error::NoBackend(format!(
                    "{} is not named like a plugin, libsymmem_NAME.so",
                    path.display()
                )));
            };
            vec![probe_file(path, name)]
        }
    })
}

/// Chooses a backend.
///
/// # Errors
/// [`Error::NoBackend`] lists every backend looked at and why it cannot start.
pub fn choose(selection: &Selection) -> Result<Chosen> {
    let probes = probe(selection)?;
    let report: Vec<String> = probes.iter().map(|probe| format!("  {probe}")).collect();
    for probe in probes {
        if let (Ok(devices @ 1..), Some(source)) = (&probe.devices, probe.source) {
            return Ok(Chosen {
                name: probe.name,
                devices: *devices,
                source,
            });
        }
    }
    Err(Error::NoBackend(format!(
        "no backend can start for `{selection}`:\n{}",
        report.join("\n")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_is_a_name_a_path_or_auto_and_nothing_else() {
        assert_eq!(Selection::parse("").unwrap(), Selection::Auto);
        assert_eq!(
            Selection::parse("cuda").unwrap(),
            Selection::Named("cuda".into())
        );
        let plugin = Selection::Plugin("/x/libsymmem_cuda.so".into());
        assert_eq!(
            Selection::parse("path:/x/libsymmem_cuda.so").unwrap(),
            plugin
        );
        for text in ["path:", "cuda, host", "/x/libsymmem_cuda.so"] {
            let refused = Selection::parse(text).unwrap_err();
            assert!(matches!(refused, Error::BadSelection(_)), "{refused:#?}");
            let error = refused.to_string();
            assert!(
                error.contains(text) && error.contains("path:FILE"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_plugin_file_says_its_backends_name() {
        assert_eq!(name_of(Path::new("/x/libsymmem_cuda.so")), Some("cuda"));
        assert_eq!(name_of(Path::new("libsymmem_hip.so.0.1")), Some("hip"));
        assert_eq!(name_of(Path::new("/x/libcuda.so")), None);
    }

    #[test]
    fn a_backend_that_is_not_there_is_an_error_that_says_where_it_was_looked_for() {
        let error = choose(&Selection::Named("tpu".into()))
            .map(|_| ())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("`tpu`") && error.contains("libsymmem_tpu.so"),
            "{error}"
        );
    }
}
