//! Which crate may import which: the crate map as code.

use crate::rules::Finding;
use crate::tree::{Dependency, Kind, Package, Tree};

/// A package's role in the crate map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role<'a> {
    /// Imports no workspace crate.
    Leaf,
    /// Owns a trait.
    Trait,
    /// Implements the trait of `foveate-{of}`.
    Backend {
        of: &'a str,
    },
    /// Object stores, which inputs come from and outputs go to: a backend of both traits.
    Stores,
    /// The model without an engine.
    Model,
    /// Shared by several backends for one kind of device.
    Device,
    /// Shared by the engines: an encoder with its batches.
    Lane,
    Engine,
    /// Vectors that outlive the engines' runs.
    Cache,
    Lab,
    Worker,
    /// The worker's HTTP server.
    Service,
    Facade,
    /// The facade in another language.
    Skin,
    /// Tests and what only they use.
    Harness,
    /// xtask.
    Tool,
}

const TRAITS: [&str; 7] = ["source", "decode", "resize", "preprocess", "encode", "sink", "queue"];
/// Additional imports of single crates.
const EXCEPTIONS: [(&str, &[&str]); 8] = [
    // The one web client.
    ("foveate-source-web", &["foveate-net"]),
    // Its trait combines decoding and resizing.
    ("foveate-preprocess", &["foveate-decode", "foveate-resize"]),
    // It decodes whole batches, and resizes them on the device.
    ("foveate-decode-nvjpeg", &["foveate-preprocess", "foveate-resize", "foveate-cuda"]),
    // The columns of the files that it reads.
    ("foveate-report", &["foveate-schema"]),
    // Both store the same table.
    ("foveate-sink-parquet", &["foveate-sink-arrow"]),
    // Encoders that run our own model code.
    ("foveate-encode-candle", &["foveate-dinov2", "foveate-cuda"]),
    ("foveate-encode-fused", &["foveate-dinov2", "foveate-cuda"]),
    ("foveate-encode-tch", &["foveate-dinov2"]),
];
/// Third-party crates that trait crates and leaves may use: small, stable, and never in a public signature.
const THIRD_PARTY: [&str; 15] = [
    // The identity of an input's bytes, which has to resist forgers.
    "blake3",
    // Bytes that are shared without a copy, from a container to the decoder.
    "bytes",
    "csv",
    "globset",
    "half",
    "memchr",
    "rayon",
    // The system's clocks of processor time; without it, they would need `unsafe`.
    "rustix",
    "serde",
    "serde_json",
    "sha2",
    "tempfile",
    "thiserror",
    "tracing",
    "xxhash-rust",
];

/// Additional third-party crates of single leaves, and the reasons.
const ALSO: [(&str, &[&str]); 6] = [
    // The orientation of a PNG may be in compressed text.
    ("foveate-decode", &["flate2"]),
    // HTTP and its codings, URL parsing, name resolution and message signatures are its purpose and not worth
    // reimplementing.
    (
        "foveate-net",
        &[
            "base64",
            "brotli-decompressor",
            "dns-lookup",
            "flate2",
            "hmac",
            "httpdate",
            "percent-encoding",
            "psl",
            "ureq",
            "url",
        ],
    ),
    // The figures of NVIDIA cards come from the driver's library, which it loads at run time.
    ("foveate-profile", &["nvml-wrapper"]),
    // Directions to begin with are drawn; very many vectors are in a file that is mapped.
    ("foveate-search", &["fastrand", "memmap2"]),
    // It is a server.
    ("foveate-photo-server", &["axum", "futures-util", "image", "tokio"]),
    // It connects our crates to libraries for logs and collectors, and only the facade imports it.
    (
        "foveate-telemetry",
        &[
            "async-trait",
            "opentelemetry",
            "opentelemetry-http",
            "opentelemetry-otlp",
            "opentelemetry_sdk",
            "tracing-opentelemetry",
            "tracing-serde",
            "tracing-subscriber",
            "ureq",
        ],
    ),
];

pub(crate) fn role(name: &str) -> Option<Role<'_>> {
    Some(match name {
        "foveate" => Role::Facade,
        "foveate-python" => Role::Skin,
        "foveate-core"
        | "foveate-profile"
        | "foveate-plan"
        | "foveate-report"
        | "foveate-net"
        | "foveate-photo-server"
        | "foveate-schema"
        | "foveate-search"
        | "foveate-telemetry" => Role::Leaf,
        "foveate-object-store" => Role::Stores,
        "foveate-dinov2" => Role::Model,
        "foveate-cuda" => Role::Device,
        "foveate-lane" => Role::Lane,
        "foveate-pipeline" => Role::Engine,
        "foveate-cache" => Role::Cache,
        "foveate-lab" => Role::Lab,
        "foveate-worker" => Role::Worker,
        "foveate-serve" => Role::Service,
        "foveate-tests" | "foveate-cuda-emulator" | "foveate-testkit" => Role::Harness,
        "xtask" => Role::Tool,
        _ => {
            let rest = name.strip_prefix("foveate-")?;
            match rest.split_once('-') {
                None if TRAITS.contains(&rest) => Role::Trait,
                Some((of, _)) if TRAITS.contains(&of) => Role::Backend { of },
                _ => return None,
            }
        }
    })
}

fn may_import(from: &str, to: &str) -> bool {
    let (Some(role_from), Some(role_to)) = (role(from), role(to)) else { return false };
    let is_core = to == "foveate-core";
    if EXCEPTIONS.iter().any(|(name, also)| *name == from && also.contains(&to)) {
        return true;
    }
    let is_stage_trait = role_to == Role::Trait && to != "foveate-queue";
    match role_from {
        Role::Leaf | Role::Tool => false,
        Role::Trait | Role::Device => is_core,
        Role::Backend { of } => is_core || to.strip_prefix("foveate-") == Some(of),
        Role::Stores => is_core || ["foveate-source", "foveate-sink"].contains(&to),
        Role::Model => is_core || to == "foveate-encode",
        Role::Lane => is_core || ["foveate-encode", "foveate-preprocess"].contains(&to),
        Role::Engine => is_core || is_stage_trait || ["foveate-lane", "foveate-profile"].contains(&to),
        Role::Cache => is_core || to == "foveate-pipeline",
        Role::Lab => {
            let measured = [
                "foveate-lane",
                "foveate-pipeline",
                "foveate-plan",
                "foveate-profile",
                "foveate-worker",
                "foveate-net",
                "foveate-photo-server",
                "foveate-schema",
            ];
            is_core || role_to == Role::Trait || measured.contains(&to)
        }
        Role::Worker => {
            is_core || role_to == Role::Trait || ["foveate-lane", "foveate-pipeline", "foveate-net"].contains(&to)
        }
        Role::Service => is_core || ["foveate-net", "foveate-profile", "foveate-queue", "foveate-worker"].contains(&to),
        Role::Facade => !matches!(role_to, Role::Skin | Role::Harness | Role::Tool),
        Role::Skin => role_to == Role::Facade,
        Role::Harness => role_to != Role::Tool,
    }
}

/// Dependencies that users' programs include. Tests may import anything.
fn shipped(package: &Package) -> impl Iterator<Item = &Dependency> {
    package.dependencies.iter().filter(|dependency| dependency.kind != Kind::Dev)
}

fn backends(tree: &Tree) -> impl Iterator<Item = (&Package, &str)> {
    tree.packages.iter().filter_map(|package| match role(&package.name) {
        Some(Role::Backend { of }) => {
            package.name.strip_prefix("foveate-")?.strip_prefix(of)?.strip_prefix('-').map(|suffix| (package, suffix))
        }
        Some(Role::Stores) => package.name.strip_prefix("foveate-").map(|suffix| (package, suffix)),
        _ => None,
    })
}

/// Returns true if a backend of this name exists.
pub(crate) fn is_backend_feature(tree: &Tree, name: &str) -> bool {
    backends(tree).any(|(_, suffix)| suffix == name)
}

/// Trait crates import only core, backends only their trait, the engine no backend, leaves no workspace crate.
pub(crate) fn crate_map(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in &tree.packages {
        let manifest = format!("{}/Cargo.toml", package.dir);
        if role(&package.name).is_none() {
            let message = format!("{} is not in the crate map; give it a role in xtask's layers.rs", package.name);
            findings.push(Finding::new(&manifest, message));
            continue;
        }
        for dependency in shipped(package).filter(|dependency| dependency.ours) {
            if !may_import(&package.name, &dependency.name) {
                let message = format!(
                    "{} may not import {} (crate map in ARCHITECTURE.md); move the shared part down, or use it as a dev-dependency in tests",
                    package.name, dependency.name
                );
                findings.push(Finding::new(&manifest, message));
            }
        }
    }
    findings
}

/// Only the facade selects backends by cargo feature.
pub(crate) fn backend_features(tree: &Tree) -> Vec<Finding> {
    let suffixes: Vec<&str> = backends(tree).map(|(_, suffix)| suffix).collect();
    let mut findings = Vec::new();
    for package in &tree.packages {
        if matches!(role(&package.name), Some(Role::Facade | Role::Harness)) {
            continue;
        }
        for feature in package.features.keys().filter(|feature| suffixes.contains(&feature.as_str())) {
            let message =
                format!("feature '{feature}' is a backend's name; only `foveate` has backend features, remove it here");
            findings.push(Finding::new(format!("{}/Cargo.toml", package.dir), message));
        }
    }
    findings
}

/// Every backend crate is an optional dependency of the facade under a feature of its name, and is in its backend
/// table.
pub(crate) fn backend_table(tree: &Tree) -> Vec<Finding> {
    let Some(facade) = tree.package("foveate") else { return Vec::new() };
    let source: String = tree.rust_files(facade).map(|file| crate::lex::code(&file.text)).collect();
    let mut findings = Vec::new();
    for (backend, suffix) in backends(tree) {
        let always = |dependency: &&Dependency| dependency.name == backend.name && !dependency.optional;
        if shipped(facade).any(|dependency| always(&dependency)) {
            let message = format!("{} must be optional, so that a program can leave it out", backend.name);
            findings.push(Finding::new("crates/foveate/Cargo.toml", message));
        }
        let dep = format!("dep:{}", backend.name);
        if !facade.features.get(suffix).is_some_and(|on| on.contains(&dep)) {
            let message = format!("feature `{suffix}` must turn on \"{dep}\" (feature = registry name = crate suffix)");
            findings.push(Finding::new("crates/foveate/Cargo.toml", message));
        }
        let module = backend.name.replace('-', "_");
        if crate::lex::words(&source, &module).next().is_none() {
            let message = format!("{} is in no backend table; add {module} to the list", backend.name);
            findings.push(Finding::new("crates/foveate/src", message));
        }
    }
    findings
}

/// Trait crates and leaves use only a few, named third-party crates.
pub(crate) fn third_party(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in &tree.packages {
        if !matches!(role(&package.name), Some(Role::Leaf | Role::Trait)) {
            continue;
        }
        for dependency in shipped(package).filter(|dependency| !dependency.ours) {
            let also = ALSO.iter().find(|(leaf, _)| *leaf == package.name).map_or(&[][..], |(_, crates)| crates);
            let name = dependency.name.as_str();
            let allowed = package.name != "foveate-core" && (THIRD_PARTY.contains(&name) || also.contains(&name));
            if !allowed {
                let message = format!(
                    "{} may not depend on {}; a backend crate may, or add it to THIRD_PARTY in xtask's layers.rs with a reason",
                    package.name, dependency.name
                );
                findings.push(Finding::new(format!("{}/Cargo.toml", package.dir), message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::assert_finds;
    use crate::tree::fake::{self, ours, package, theirs};

    #[test]
    fn forbidden_imports_are_found() {
        for (from, to) in [
            ("foveate-decode", "foveate-encode"),
            ("foveate-decode", "foveate-decode-zune"),
            ("foveate-decode-zune", "foveate-encode-fused"),
            ("foveate-decode-zune", "foveate-dinov2"),
            ("foveate-pipeline", "foveate-decode-zune"),
            ("foveate-pipeline", "foveate-dinov2"),
            ("foveate-core", "foveate-profile"),
            ("foveate-profile", "foveate-core"),
            ("foveate-dinov2", "foveate-decode"),
        ] {
            let mut tree = fake::tree();
            package(&mut tree, from).dependencies.push(ours(to));
            assert_finds(crate_map, &tree, &format!("{from} may not import {to}"));
        }
    }

    #[test]
    fn tests_may_import_what_they_like() {
        let mut tree = fake::tree();
        let dependency = Dependency { kind: Kind::Dev, ..ours("foveate-decode-zune") };
        package(&mut tree, "foveate-pipeline").dependencies.push(dependency);
        assert!(crate_map(&tree).is_empty());
    }

    #[test]
    fn an_unknown_crate_needs_a_role() {
        let mut tree = fake::tree();
        package(&mut tree, "foveate-profile").name = "foveate-misc".to_owned();
        let findings = crate_map(&tree);
        assert!(findings.iter().any(|f| f.message.contains("foveate-misc is not in the crate map")), "{findings:?}");
    }

    #[test]
    fn a_backend_feature_outside_of_the_facade_is_found() {
        let mut tree = fake::tree();
        package(&mut tree, "foveate-pipeline").features.insert("zune".to_owned(), Vec::new());
        assert_finds(backend_features, &tree, "feature 'zune' is a backend's name");
    }

    #[test]
    fn a_backend_without_a_feature_or_an_entry_is_found() {
        let mut tree = fake::tree();
        package(&mut tree, "foveate").features.remove("zune");
        assert_finds(backend_table, &tree, "must turn on \"dep:foveate-decode-zune\"");

        let mut tree = fake::tree();
        package(&mut tree, "foveate").dependencies.push(ours("foveate-decode-zune"));
        assert_finds(backend_table, &tree, "foveate-decode-zune must be optional");

        let mut tree = fake::tree();
        fake::file(&mut tree, "crates/foveate/src/lib.rs").text =
            "//! x\nfoveate_encode_fused // foveate_decode_zune".to_owned();
        assert_finds(backend_table, &tree, "foveate-decode-zune is in no backend table");
    }

    #[test]
    fn third_party_crates_under_a_trait_are_named() {
        let mut tree = fake::tree();
        package(&mut tree, "foveate-decode").dependencies.extend([theirs("thiserror"), theirs("image")]);
        assert_finds(third_party, &tree, "foveate-decode may not depend on image");

        let mut tree = fake::tree();
        package(&mut tree, "foveate-profile").dependencies.push(theirs("axum"));
        assert_finds(third_party, &tree, "foveate-profile may not depend on axum");
        package(&mut tree, "foveate-profile").name = "foveate-photo-server".to_owned();
        assert!(third_party(&tree).is_empty(), "what one leaf may, others may not");

        let mut tree = fake::tree();
        package(&mut tree, "foveate-core").dependencies.push(theirs("thiserror"));
        assert_finds(third_party, &tree, "foveate-core may not depend on thiserror");
    }
}
