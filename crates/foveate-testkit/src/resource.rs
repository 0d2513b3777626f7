//! The resources that trials may need, and the effect of a missing one.

use std::fmt::{self, Display, Formatter};
use std::sync::LazyLock;

use crate::ignored::ignore;

/// The environment variable that lists the resources whose absence is a failure.
const VARIABLE: &str = "FOVEATE_REQUIRE";

/// A resource beyond a clone and the Rust toolchain. The crate's front page describes each.
#[allow(missing_docs, reason = "the table of the front page")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    Data,
    Python,
    Node,
    Curl,
    Openssl,
    Git,
    Nats,
    LmdbUtils,
    Azurite,
    OnnxRuntime,
    Compiler,
    Libjpeg,
    Gpu,
    Unprivileged,
}

impl Resource {
    /// All resources, in the order of the table.
    pub const ALL: [Self; 14] = [
        Self::Data,
        Self::Python,
        Self::Node,
        Self::Curl,
        Self::Openssl,
        Self::Git,
        Self::Nats,
        Self::LmdbUtils,
        Self::Azurite,
        Self::OnnxRuntime,
        Self::Compiler,
        Self::Libjpeg,
        Self::Gpu,
        Self::Unprivileged,
    ];

    /// Returns its name in `FOVEATE_REQUIRE`.
    pub fn name(self) -> &'static str {
        self.name_and_remedy().0
    }

    fn name_and_remedy(self) -> (&'static str, &'static str) {
        match self {
            Self::Data => ("data", "put the shared data set beside the checkout"),
            Self::Python => ("python", "install python3 and the modules with pip"),
            Self::Node => ("node", "install node (Debian: nodejs)"),
            Self::Curl => ("curl", "install curl"),
            Self::Openssl => ("openssl", "install openssl"),
            Self::Git => ("git", "install git"),
            Self::Nats => ("nats", "install nats-server"),
            Self::LmdbUtils => ("lmdb-utils", "install LMDB's tools (Debian: lmdb-utils)"),
            Self::Azurite => ("azurite", "install Azurite (npm: azurite)"),
            Self::OnnxRuntime => ("onnxruntime", "run `cargo xtask setup --only ort`"),
            Self::Compiler => ("compiler", "install a C++20 compiler (Debian: g++)"),
            Self::Libjpeg => ("libjpeg", "install libjpeg's headers (Debian: libjpeg-dev)"),
            Self::Gpu => ("gpu", "run on a machine with an NVIDIA GPU"),
            Self::Unprivileged => ("unprivileged", "run as a user other than root"),
        }
    }

    /// Ends the trial without this resource: as failed if `FOVEATE_REQUIRE` names it, otherwise as ignored. `why` says
    /// what was searched.
    #[track_caller]
    pub fn missing(self, why: impl Display) -> ! {
        Missing::new(self, why).end()
    }
}

/// A resource that was not found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    resource: Resource,
    why: String,
}

impl Display for Missing {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl Missing {
    pub(crate) fn new(resource: Resource, why: impl Display) -> Self {
        Self { resource, why: why.to_string() }
    }

    /// Ends the trial, as [`Resource::missing`] does.
    #[track_caller]
    pub fn end(&self) -> ! {
        let (name, remedy) = self.resource.name_and_remedy();
        let why = &self.why;
        let is_required = required().as_ref().is_ok_and(|required| required.contains(&self.resource));
        assert!(!is_required, "{VARIABLE} names '{name}', but {why}; {remedy}");
        ignore(format!("needs {name}: {why}; {remedy}"))
    }
}

/// Returns the resources that this process's environment requires, or the name that is unknown.
pub(crate) fn required() -> &'static Result<Vec<Resource>, String> {
    static REQUIRED: LazyLock<Result<Vec<Resource>, String>> =
        LazyLock::new(|| parse(&std::env::var(VARIABLE).unwrap_or_default()));
    &REQUIRED
}

fn parse(text: &str) -> Result<Vec<Resource>, String> {
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    if names.clone().any(|name| name == "all") {
        return Ok(Resource::ALL.into());
    }
    names.map(named).collect()
}

fn named(name: &str) -> Result<Resource, String> {
    let found = Resource::ALL.into_iter().find(|resource| resource.name() == name);
    found.ok_or_else(|| {
        let names = Resource::ALL.map(Resource::name).join(", ");
        format!("{VARIABLE} names '{name}', which is no resource; there are: all, {names}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_names_are_read() {
        assert_eq!(parse(""), Ok(vec![]));
        assert_eq!(parse(" nats, data,"), Ok(vec![Resource::Nats, Resource::Data]));
        assert_eq!(parse("nats,all"), Ok(Resource::ALL.into()));
        let unknown = parse("data,natz").unwrap_err();
        assert!(unknown.starts_with("FOVEATE_REQUIRE names 'natz', which is no resource; there are: all, data, "));
    }

    #[test]
    fn the_front_page_has_every_name() {
        for name in Resource::ALL.map(Resource::name) {
            assert!(include_str!("../README.md").contains(&format!("`{name}`")), "{name}");
        }
    }
}
