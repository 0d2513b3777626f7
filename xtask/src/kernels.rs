//! `cargo xtask kernels`: compiles the CUDA sources to PTX, which is committed beside them with gzip.
//!
//! Building the project does not need CUDA's compiler, and the shipped PTX is known to the byte. NVRTC and ptxas come
//! from PyPI's wheels, with pinned versions. NVRTC is the oldest of CUDA 12, because a driver accepts only PTX that is
//! no newer than itself. ptxas is the newest, because it knows more devices; it stands in for the driver's compiler.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::cargo::{output, outputs};
use crate::setup::{self, entries};

/// Compute capabilities, times ten, for which the PTX must assemble: each kernel from the one that it is written for.
const DEVICES: [u32; 7] = [75, 80, 86, 89, 90, 100, 120];

/// The most registers of a thread, which the attention of 7.5 needs. A kernel that needs more runs in fewer blocks at
/// once.
const MOST_REGISTERS: u32 = 184;

#[derive(clap::Args)]
pub(crate) struct KernelArgs {
    /// Compare with the committed files instead of writing them
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(root: &Path, &KernelArgs { check }: &KernelArgs) -> Result<()> {
    let compiler = CudaCompiler::get(root)?;
    let mut expected = Vec::new();
    let mut stale = Vec::new();
    for source in files(root, "cu") {
        for target in targets(&source)? {
            let path = target.path(&source);
            let ptx = compiler.compile(&source, &target)?;
            if gunzip(&path).ok().as_ref() != Some(&ptx) {
                if !check {
                    gzip(&path, &ptx)?;
                }
                stale.push(shown(root, &path));
            }
            for device in DEVICES.into_iter().filter(|device| *device >= target.architecture) {
                println!("{} on sm_{device}: {}", shown(root, &path), compiler.assemble(&ptx, device)?);
            }
            expected.push(path);
        }
    }
    ensure!(!expected.is_empty(), "there is no .cu file under crates/*/kernels");
    let orphans: Vec<String> =
        files(root, "gz").iter().filter(|path| !expected.contains(path)).map(|path| shown(root, path)).collect();
    ensure!(orphans.is_empty(), "no .cu file is compiled to {}; delete it", orphans.join(", "));
    let stale = stale.join(", ");
    if stale.is_empty() {
        println!("{} files are what their sources compile to", expected.len());
    } else if check {
        bail!("not what the source compiles to: {stale}; run `cargo xtask kernels` and commit");
    } else {
        println!("written: {stale}");
    }
    Ok(())
}

/// A committed file's PTX.
fn gunzip(path: &Path) -> Result<String> {
    output(Command::new("gzip").arg("-dc").arg(path))
}

/// Writes `ptx` to `path`, without a name or a time, so that the same PTX gives the same file.
fn gzip(path: &Path, ptx: &str) -> Result<()> {
    let plain = path.with_extension("");
    fs::write(&plain, ptx)?;
    output(Command::new("gzip").args(["-9nf"]).arg(&plain)).map(drop)
}

/// The files with this ending in the crates' `kernels` folders, sorted.
fn files(root: &Path, ending: &str) -> Vec<PathBuf> {
    let folders = entries(&root.join("crates")).into_iter().map(|folder| folder.join("kernels"));
    let mut files: Vec<PathBuf> = folders.flat_map(|folder| entries(&folder)).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == ending));
    files
}

fn shown(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}

/// A file that a source is compiled to.
#[derive(Debug, PartialEq)]
struct PtxFile {
    /// The part of the source, if the file does not have all of it: `FILE_part` is defined for it.
    part: Option<String>,
    /// The compute capability, times ten.
    architecture: u32,
}

impl PtxFile {
    /// Parses `sm_75` or `part.sm_75`.
    fn parse(name: &str) -> Option<Self> {
        let (part, architecture) = match name.split_once('.') {
            Some((part, architecture)) => (Some(part.to_owned()), architecture),
            None => (None, name),
        };
        Some(Self { part, architecture: architecture.strip_prefix("sm_")?.parse().ok()? })
    }

    fn path(&self, source: &Path) -> PathBuf {
        let part = self.part.as_ref().map(|part| format!("{part}.")).unwrap_or_default();
        source.with_extension(format!("{part}sm_{}.ptx.gz", self.architecture))
    }
}

/// The files that a source is compiled to, which its first line names: `// files: f32.sm_75 f32.sm_80`.
fn targets(source: &Path) -> Result<Vec<PtxFile>> {
    let text = fs::read_to_string(source)?;
    let named = text.lines().next().and_then(|line| line.strip_prefix("// files: "));
    let parsed = named.and_then(|named| named.split(' ').map(PtxFile::parse).collect());
    parsed.with_context(|| format!("{}: the first line has to be like `// files: sm_75 sm_80`", source.display()))
}

struct CudaCompiler {
    folder: PathBuf,
}

impl CudaCompiler {
    /// Opens the compiler, and downloads it first if it is missing.
    fn get(root: &Path) -> Result<Self> {
        let compiler = setup::component("kernels").context("setup.toml has no kernels")?;
        let folder = compiler.folder(root);
        if !compiler.is_in(&folder) {
            compiler.unpack(&folder).context("cannot get CUDA's compiler from PyPI")?;
        }
        Ok(Self { folder })
    }

    /// Compiles a source to the PTX of one file.
    fn compile(&self, source: &Path, target: &PtxFile) -> Result<String> {
        let mut python = Command::new("python3");
        python.args(["-c", include_str!("nvrtc.py")]);
        python.arg(self.folder.join("nvidia/cuda_nvrtc/lib/libnvrtc.so.12")).arg(source);
        python.arg(format!("--gpu-architecture=compute_{}", target.architecture)).arg("--std=c++17");
        python.args(target.part.as_ref().map(|part| format!("--define-macro=FILE_{part}")));
        let ptx = output(&mut python)?;
        ensure!(ptx.contains(".entry"), "{} has no kernel", source.display());
        Ok(ptx)
    }

    /// Assembles PTX to machine code, checks that code, and returns the register usage. Fails if a variable does not
    /// fit in the registers.
    fn assemble(&self, ptx: &str, device: u32) -> Result<String> {
        let input = self.folder.join("input.ptx");
        let code = self.folder.join("output.cubin");
        fs::write(&input, ptx)?;
        let mut ptxas = Command::new(self.folder.join("nvidia/cuda_nvcc/bin/ptxas"));
        ptxas.args(["--verbose", "--warn-on-spills", "--warn-on-local-memory-usage", "--warning-as-error"]);
        let said = outputs(ptxas.arg(format!("--gpu-name=sm_{device}")).arg("--output-file").arg(&code).arg(&input))?.1;
        let (kernel, registers) = largest(&said).with_context(|| format!("ptxas said nothing to go by: {said}"))?;
        ensure!(
            registers <= MOST_REGISTERS,
            "{kernel} takes {registers} registers on sm_{device}, not {MOST_REGISTERS}"
        );
        let mut disassembler = Command::new(self.folder.join("nvidia/cu13/bin/nvdisasm"));
        let instructions = output(disassembler.arg("--print-code").arg(&code))?;
        let unlike = unlike(&instructions).join(", ");
        ensure!(unlike.is_empty(), "not the expected machine code on sm_{device}: {unlike}");
        Ok(format!("{} kernels, at most {registers} registers ({kernel})", said.matches("Compiling entry").count()))
    }
}

/// The kernel that uses the most registers and their number, from the output of ptxas.
fn largest(said: &str) -> Option<(&str, u32)> {
    let mut kernel = None;
    let mut all = Vec::new();
    for line in said.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            kernel = rest.split('\'').next();
        }
        if let Some((_, rest)) = line.split_once("Used ") {
            all.push((kernel?, rest.split(' ').next()?.parse().ok()?));
        }
    }
    all.into_iter().max_by_key(|(_, registers)| *registers)
}

/// Finds faults of the kernels in a disassembly: tensor cores that a kernel named after them (`mma`) does not use,
/// and memory of a thread's own, which is as slow as the device's.
fn unlike(instructions: &str) -> Vec<String> {
    const SECTION: &str = ".section\t.text.";
    let mut found = Vec::new();
    for kernel in instructions.split(SECTION).skip(1) {
        let name = kernel.split(',').next().unwrap_or_default();
        if name.contains("mma") && !kernel.contains(" HMMA.") {
            found.push(format!("{name} has no HMMA"));
        }
        for operation in ["LDL", "STL"] {
            if kernel.contains(&format!(" {operation} ")) || kernel.contains(&format!(" {operation}.")) {
                found.push(format!("{name} has {operation}"));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_names_its_files_and_has_them() {
        let root = crate::cargo::root();
        let sources = files(&root, "cu");
        assert!(!sources.is_empty());
        for source in sources {
            for target in targets(&source).unwrap() {
                let ptx = gunzip(&target.path(&source)).unwrap();
                assert!(ptx.contains(&format!(".target sm_{}\n", target.architecture)), "{}", source.display());
            }
        }
    }

    #[test]
    fn files_are_named_by_part_and_architecture() {
        let target = PtxFile { part: Some("f16".to_owned()), architecture: 80 };
        assert_eq!(target.path(Path::new("a/forward.cu")), Path::new("a/forward.f16.sm_80.ptx.gz"));
        assert_eq!(PtxFile::parse("f16.sm_80"), Some(target));
        assert_eq!(PtxFile::parse("sm_75"), Some(PtxFile { part: None, architecture: 75 }));
        assert!(["75", "f16", "f16.80", "sm_x"].into_iter().all(|name| PtxFile::parse(name).is_none()));
    }

    #[test]
    fn machine_code_without_tensor_cores_or_with_local_memory_is_found() {
        let good = "\t.section\t.text.attention_mma_f16,\"ax\"\n /*0010*/ HMMA.16816.F32 R4, R8 ;\n\
                    \t.section\t.text.gelu_f16,\"ax\"\n /*0010*/ LDG.E.128 R4, [R2] ;\n";
        assert_eq!(unlike(good), Vec::<String>::new());
        assert_eq!(unlike(&good.replace("HMMA", "FFMA")), ["attention_mma_f16 has no HMMA"]);
        assert_eq!(unlike(&good.replace("LDG", "LDL")), ["gelu_f16 has LDL"]);
        assert_eq!(unlike(&good.replace("LDG.E.128 R4, [R2]", "STL [R1], R4")), ["gelu_f16 has STL"]);
    }

    #[test]
    fn the_kernel_with_the_most_registers_is_found() {
        let said = "ptxas info    : Compiling entry function 'small' for 'sm_80'
ptxas info    : Function properties for small
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 26 registers, used 0 barriers, 388 bytes cmem[0]
ptxas info    : Compiling entry function 'large' for 'sm_80'
ptxas info    : Used 142 registers, used 1 barriers, 32768 bytes smem";
        assert_eq!(largest(said), Some(("large", 142)));
        assert_eq!(largest(""), None);
    }
}
