//! `cargo xtask capi`: the C library, and the one in NCCL's place. Compares header and exported names with the committed
//! ones, or installs both.
//!
//! cbindgen makes the header of the functions in `capi/src`. A `symbols.txt` has the exported names of each library, so
//! that a change of what programs link to shows in the diff of its commit.

use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSymbol};

use crate::api::difference;
use crate::error::{Error, Result, at};
use crate::tools;

const HEADER: &str = "capi/include/symmem.h";

/// The libraries' files as cargo names them, and the lists of the names that they export.
const LIBRARIES: [(&str, &str); 2] = [
    ("libsymmem_c.so", "capi/symbols.txt"),
    (IN_NCCLS_PLACE, "nccl-abi/symbols.txt"),
];
const IN_NCCLS_PLACE: &str = "libsymmem_nccl.so";

/// What to do with the C libraries.
#[derive(clap::Args)]
pub struct Options {
    /// Rewrite the header and the lists of exported names instead of checking them
    #[arg(long)]
    write: bool,
    /// Install the libraries, the header and its pkg-config file into this folder
    #[arg(long, value_name = "FOLDER")]
    install: Option<PathBuf>,
    /// Install what `cargo build` makes, without optimization
    #[arg(long, requires = "install")]
    debug: bool,
}

/// Checks or rewrites the header and the lists of names, and installs.
pub fn run(options: &Options) -> Result<()> {
    let root = tools::root();
    let optimized = options.install.is_some() && !options.debug;
    let profile = optimized.then_some("--release");
    let built = build(&root, profile)?;
    let mut mismatches = Vec::new();
    let mut made = vec![(HEADER, header(&root)?)];
    for (library, list) in LIBRARIES {
        made.push((list, symbols(&built.join(library))?));
    }
    for (file, now) in made {
        let path = root.join(file);
        if options.write {
            at(&path, std::fs::write(&path, &now))?;
        } else {
            let committed = at(&path, std::fs::read_to_string(&path))?;
            mismatches.extend(difference(file, &committed, &now));
        }
        println!("{file}: {} lines", now.lines().count());
    }
    if !mismatches.is_empty() {
        return Err(Error::CLibrary(mismatches));
    }
    match &options.install {
        Some(folder) => install(&root, &built, folder),
        None => Ok(()),
    }
}

/// Builds the libraries and returns the folder that they are in.
fn build(root: &Path, profile: Option<&str>) -> Result<PathBuf> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root).args([
        "build",
        "--package",
        "symmem-capi",
        "--package",
        "symmem-nccl-abi",
    ]);
    cargo.args(profile);
    tools::output(&mut cargo)?;
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Ok(target.join(if profile.is_some() {
        "release"
    } else {
        "debug"
    }))
}

/// Returns the header of the functions in `capi/src`.
fn header(root: &Path) -> Result<String> {
    let folder = root.join("capi");
    let configuration = folder.join("cbindgen.toml");
    let made = cbindgen::Config::from_file(&configuration)
        .map_err(|what| Error::Source {
            path: configuration,
            what,
        })
        .and_then(|configuration| {
            let builder = cbindgen::Builder::new().with_config(configuration);
            let bindings = builder.with_crate(&folder).generate();
            bindings.map_err(|error| Error::Source {
                path: folder.join("src"),
                what: error.to_string(),
            })
        })?;
    let mut text = Vec::new();
    made.write(&mut text);
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Returns the names that a shared library exports, one a line.
fn symbols(library: &Path) -> Result<String> {
    let bytes = at(library, std::fs::read(library))?;
    let unread = |error: object::Error| Error::CodeObject {
        path: library.to_owned(),
        what: error.to_string(),
    };
    let file = object::File::parse(&*bytes).map_err(unread)?;
    let exported = file
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition() && symbol.is_global());
    let mut names = exported
        .map(|symbol| symbol.name().map(str::to_owned))
        .collect::<std::result::Result<Vec<_>, _>>()
        .map_err(unread)?;
    names.sort();
    Ok(names.iter().map(|name| format!("{name}\n")).collect())
}

/// Installs the built libraries into `include`, `lib` and `lib/pkgconfig` of a folder, and the one in NCCL's place into
/// `lib/in-place-of-nccl` under the names of NCCL and RCCL.
fn install(root: &Path, built: &Path, folder: &Path) -> Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let major = env!("CARGO_PKG_VERSION_MAJOR");
    let (include, lib) = (folder.join("include"), folder.join("lib"));
    let packages = lib.join("pkgconfig");
    let in_place = lib.join("in-place-of-nccl");
    for made in [&include, &packages, &in_place] {
        at(made, std::fs::create_dir_all(made))?;
    }
    // Programs may have the old file mapped, so it is replaced instead of changed.
    let copy = |from: PathBuf, to: PathBuf| {
        let fresh = to.with_extension(format!("new-{}", std::process::id()));
        at(&from, std::fs::copy(&from, &fresh))?;
        at(&to, std::fs::rename(&fresh, &to))
    };
    copy(root.join(HEADER), include.join("symmem.h"))?;
    copy(built.join("libsymmem_c.a"), lib.join("libsymmem.a"))?;
    let whole = format!("libsymmem.so.{version}");
    copy(built.join("libsymmem_c.so"), lib.join(&whole))?;
    copy(built.join(IN_NCCLS_PLACE), lib.join(IN_NCCLS_PLACE))?;
    let above = format!("../{IN_NCCLS_PLACE}");
    for (link, file) in [
        (lib.join(format!("libsymmem.so.{major}")), &whole),
        (lib.join("libsymmem.so"), &whole),
        (in_place.join("libnccl.so.2"), &above),
        (in_place.join("librccl.so.1"), &above),
    ] {
        match std::fs::remove_file(&link) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => at(&link, Err(error))?,
            _ => at(&link, std::os::unix::fs::symlink(file, &link))?,
        }
    }
    let folder = at(folder, std::fs::canonicalize(folder))?;
    let text = format!(
        "prefix={}\nincludedir=${{prefix}}/include\nlibdir=${{prefix}}/lib\n\nName: symmem\nDescription: Symmetric memory \
         across the GPUs of a node\nVersion: {version}\nCflags: -I${{includedir}}\nLibs: -L${{libdir}} -lsymmem\n\
         Libs.private: -lgcc_s -lutil -lrt -lpthread -lm -ldl -lc\n",
        folder.display()
    );
    let file = packages.join("symmem.pc");
    at(&file, std::fs::write(&file, text))?;
    println!("installed {version} into {}", folder.display());
    Ok(())
}
