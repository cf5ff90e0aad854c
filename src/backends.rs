//! Selection of the backend: linked by a Cargo feature or loaded from a plugin file, chosen by the builder or
//! by `SYMMEM_BACKEND`.
//!
//! `auto` probes linked backends and plugin files in order and takes the first that has a device. The host
//! backend comes last and always has one. If a backend was named and cannot start, the error lists every probe:
//! there is no silent fallback.

use crate::base::abandon::run_within;
use crate::base::env;
use crate::base::env::BadVariable;
use crate::base::variables;
use crate::{BackendSource, Error, Result};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use symmem_core::backend::abi::Status;
use symmem_core::backend::{Failure, TableError, Tables, WorldWritable, load};

/// The backend to use.
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
    /// Selects the backend of this name: `host`, `cuda`, `hip` or a plugin's.
    pub fn named(name: impl Into<String>) -> Self {
        Self::Named(name.into())
    }

    /// Selects the backend in this plugin file, which is named `libsymmem_NAME.so`.
    pub fn plugin(file: impl Into<PathBuf>) -> Self {
        Self::Plugin(file.into())
    }

    /// Reads `SYMMEM_BACKEND=auto|NAME|path:FILE`. Returns [`Selection::Auto`] if the variable is unset or
    /// empty.
    ///
    /// # Errors
    /// [`Error::BadVariable`] for any other value.
    pub fn from_environment() -> Result<Self> {
        Ok(Self::from_variable()?)
    }

    pub(crate) fn from_variable() -> std::result::Result<Self, BadVariable> {
        let parse = |text: &str| Self::understand(text).ok_or_else(String::new);
        Ok(variables::BACKEND.read(parse)?.unwrap_or_default())
    }

    /// Parses a selection: `auto` or empty text, a name of ASCII letters, digits and `_`, or `path:FILE`.
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

/// Origin of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Built into `symmem-core`.
    BuiltIn,
    /// Linked by a Cargo feature.
    Linked,
    /// Loaded from this file.
    File(PathBuf),
}

/// A probed backend.
pub struct Probe {
    /// Its name.
    pub name: String,
    /// Its origin.
    pub origin: Origin,
    /// The number of its devices, or the reason why it cannot start.
    pub devices: std::result::Result<u32, Failure>,
    /// The source to open it from.
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

/// The selected backend.
pub struct Chosen {
    /// Its name.
    pub name: String,
    /// The number of its devices.
    pub devices: u32,
    /// The source to open it from.
    pub source: BackendSource,
}

/// Returns the tables of the backends that Cargo features link.
fn linked() -> Vec<&'static symmem_core::backend::BackendTable> {
    vec![
        #[cfg(feature = "cuda")]
        &symmem_cuda::TABLE,
        #[cfg(feature = "hip")]
        &symmem_hip::TABLE,
    ]
}

/// Names for which `libsymmem_NAME.so` beside the executable is probed without being named.
const KNOWN: [&str; 2] = ["cuda", "hip"];

/// Returns the directories in `SYMMEM_PLUGIN_PATH`.
fn listed_directories() -> Vec<PathBuf> {
    variables::PLUGIN_PATH
        .value()
        .map(|value| env::directories(&value))
        .unwrap_or_default()
}

/// Returns the search path of plugin files: `SYMMEM_PLUGIN_PATH`, then the executable's directory.
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
        .find(|path| is_there(path))
}

/// Returns whether anything has this name: what is no plugin file is reported, not passed over.
fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Returns every plugin file in `SYMMEM_PLUGIN_PATH` with its backend's name, whatever the file is. Of two files with
/// one name, the first in the path counts.
fn listed_plugins() -> Vec<(String, PathBuf)> {
    let mut plugins: Vec<(String, PathBuf)> = Vec::new();
    for directory in listed_directories() {
        // A missing directory has no plugins.
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        files.sort();
        for file in files {
            let name = name_of(&file).filter(|_| file.extension().is_some_and(|end| end == "so"));
            if let Some(name) = name.map(str::to_owned)
                && plugins.iter().all(|(known, _)| *known != name)
            {
                plugins.push((name, file));
            }
        }
    }
    plugins
}

/// Probes every backend without opening a device: linked ones, plugin files in `SYMMEM_PLUGIN_PATH`, plugin
/// files for CUDA and HIP beside the executable, the host backend. The list includes plugin files that are not
/// used, with the reason. Blocks for at most 60 seconds a backend, while its driver starts.
pub fn probe_all() -> Vec<Probe> {
    let mut probes = Vec::new();
    for table in linked() {
        // SAFETY: a linked backend's table is a static.
        probes.push(match unsafe { Tables::read(table) } {
            Ok(tables) => probe_tables(tables, Origin::Linked),
            Err(error) => failed(table.name(), Origin::Linked, bad_table(&error)),
        });
    }
    for (name, path) in listed_plugins() {
        // A backend that the program links takes precedence; the file is not loaded.
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

/// Limit for a driver's start. Eight GPUs without persistence mode need ten seconds.
const START_DEADLINE: Duration = Duration::from_secs(60);

/// Counts a backend's devices. A driver that does not return within [`START_DEADLINE`] is a failed probe.
fn count_devices(tables: Tables) -> std::result::Result<u32, Failure> {
    let count = move || tables.device_count();
    run_within("symmem-probe", START_DEADLINE, count).unwrap_or_else(|abandoned| {
        Err(Failure::new(
            Status::CALL_FAILED,
            "device_count",
            format!("{abandoned}; check the driver's own tools and the kernel log"),
        ))
    })
}

fn probe_file(path: &Path, name: &str) -> Probe {
    let origin = Origin::File(path.into());
    let world_writable = match world_writable() {
        Ok(world_writable) => world_writable,
        Err(bad) => {
            let failure = Failure::new(Status::INVALID_ARGUMENT, "load", bad.to_string());
            return failed(name.into(), origin, failure);
        }
    };
    // SAFETY: the user named the file or put it where plugins are looked for.
    match unsafe { load(path, name, world_writable) } {
        Ok(tables) => probe_tables(tables, origin),
        Err(error) => failed(name.into(), origin, error.to_failure()),
    }
}

/// Reads `SYMMEM_PLUGIN_WORLD_WRITABLE`.
fn world_writable() -> std::result::Result<WorldWritable, BadVariable> {
    let allowed = variables::PLUGIN_WORLD_WRITABLE.read(env::switch)?;
    Ok(match allowed {
        Some(true) => WorldWritable::Allow,
        Some(false) | None => WorldWritable::Refuse,
    })
}

/// Error for a linked backend whose table cannot be used.
fn bad_table(error: &TableError) -> Failure {
    Failure::new(Status::LIBRARY_MISSING, "load", error.to_string())
}

/// Error for a plugin file whose backend the program has built in.
fn shadowed_by_built_in(path: &Path) -> Failure {
    Failure::new(
        Status::UNSUPPORTED,
        "load",
        format!(
            "not used: this program has a backend of this name built in; set SYMMEM_BACKEND=path:{} to use the file",
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

/// Returns the backend's name in a plugin file's name: `cuda` for `libsymmem_cuda.so` and
/// `libsymmem_cuda.so.0.1`.
fn name_of(path: &Path) -> Option<&str> {
    let file = path.file_name()?.to_str()?;
    let stem = file.split('.').next()?;
    stem.strip_prefix("libsymmem_")
        .filter(|name| !name.is_empty())
}

/// Probes the backends that a selection names, without opening a device. Blocks as [`probe_all`] does.
///
/// # Errors
/// [`Error::NoBackend`] if no backend has that name, with the places searched.
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
                    "no backend `{name}`: no Cargo feature links it, and there is no libsymmem_{name}.so in {}",
                    searched.join(", ")
                )));
            }
            named
        }
        Selection::Plugin(path) => {
            let Some(name) = name_of(path) else {
                return Err(Error::NoBackend(format!(
                    "{}: a plugin's file name must be libsymmem_NAME.so",
                    path.display()
                )));
            };
            vec![probe_file(path, name)]
        }
    })
}

/// Selects the first probed backend that has a device and a source. Blocks as [`probe_all`] does.
///
/// # Errors
/// [`Error::NoBackend`], which lists every probed backend and the reason why it cannot start.
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
