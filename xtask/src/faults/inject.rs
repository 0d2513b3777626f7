//! The injector library (`inject.c`) and what it is told to do.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::trace::{CallKind, FileCall};
use crate::cargo::succeed;

/// The event at one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallFault {
    /// The call fails with this error.
    Error(Errno),
    /// A write takes half of its bytes.
    Short,
    /// A write takes half of its bytes, and then the disk is full.
    Full,
    /// The process is killed before the call.
    Kill,
}

/// An error's name, and its number on Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Errno(&'static str, i32);

const IO: Errno = Errno("eio", 5);
const NO_MEMORY: Errno = Errno("enomem", 12);
const DENIED: Errno = Errno("eacces", 13);
const TOO_MANY: Errno = Errno("emfile", 24);
const NO_SPACE: Errno = Errno("enospc", 28);
const NOT_PERMITTED: Errno = Errno("eperm", 1);

impl CallFault {
    /// The faults that may hit a call.
    pub(super) fn of(call: &FileCall) -> Vec<Self> {
        let errors: &[Errno] = match call.kind {
            CallKind::Write { .. } => &[IO, NO_SPACE],
            CallKind::Open { creates: true, .. } | CallKind::Mkdir => &[DENIED, NO_SPACE],
            CallKind::Open { .. } => &[TOO_MANY],
            CallKind::Sync { .. } | CallKind::Truncate { .. } => &[IO],
            CallKind::Rename | CallKind::Unlink | CallKind::Rmdir => &[DENIED],
            // File systems without hard links.
            CallKind::Link => &[NOT_PERMITTED],
            CallKind::Map => &[NO_MEMORY],
        };
        let mut faults: Vec<Self> = errors.iter().map(|&errno| Self::Error(errno)).collect();
        if matches!(call.kind, CallKind::Write { .. }) {
            faults.extend([Self::Short, Self::Full]);
        }
        faults.push(Self::Kill);
        faults
    }

    /// Returns true if the disk has no room from this call on, or says so.
    pub(super) fn fills_disk(self) -> bool {
        matches!(self, Self::Full | Self::Error(NO_SPACE))
    }

    /// The injector's word for it.
    fn order(self) -> String {
        match self {
            Self::Error(Errno(_, number)) => format!("errno {number}"),
            Self::Short => "short".to_owned(),
            Self::Full => "full".to_owned(),
            Self::Kill => "kill".to_owned(),
        }
    }
}

impl fmt::Display for CallFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(Errno(name, _)) => f.write_str(name),
            other => f.write_str(&other.order()),
        }
    }
}

/// A file system's treatment of files that are unlinked while they are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenFiles {
    /// The file keeps a hidden name until it is closed, and its folder is not empty: NFS, FUSE.
    Hide,
    /// The call fails: SMB.
    Refuse,
}

impl fmt::Display for OpenFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Hide { "hide" } else { "refuse" })
    }
}

/// The compiled library.
pub(super) struct Injector(PathBuf);

impl Injector {
    /// Compiles the library into `folder` with the system's C compiler.
    pub(super) fn build(root: &Path, folder: &Path) -> Result<Self> {
        let library = folder.join("inject.so");
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"]).arg(&library);
        succeed(cc.arg(root.join("xtask/src/faults/inject.c")).arg("-lpthread"))?;
        Ok(Self(library))
    }

    /// Preloads the library for calls below `folder`, to do nothing yet.
    pub(super) fn watch(&self, command: &mut Command, folder: &Path) {
        command.env("LD_PRELOAD", &self.0).env("FAULTS_UNDER", folder);
    }
}

/// Records the calls of a watched command.
pub(super) fn record(command: &mut Command, trace: &Path) {
    command.env("FAULTS_TRACE", trace);
}

/// Lets a fault hit a call of a watched command; calls are counted from 1.
pub(super) fn hit(command: &mut Command, call: usize, fault: CallFault) {
    command.env("FAULTS_AT", call.to_string()).env("FAULTS_DO", fault.order());
}

/// Runs a shell's command before a call of a watched command.
pub(super) fn interpose(command: &mut Command, call: usize, shell: &str) {
    command.env("FAULTS_AT", call.to_string()).env("FAULTS_DO", format!("run {shell}"));
}

/// Gives a watched command a file system that treats open files differently.
pub(super) fn treat_open_files(command: &mut Command, how: OpenFiles) {
    command.env("FAULTS_OPEN_FILES", how.to_string());
}
