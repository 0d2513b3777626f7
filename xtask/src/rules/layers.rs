//! Which crate may import which: the crate map of `xtask/layers.toml`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use crate::rules::TidyFinding;
use crate::tree::{Package, Tree};

/// The crate map.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CrateMap {
    pub(crate) native: Vec<String>,
    pub(crate) heavy: Vec<String>,
    third_party: Vec<String>,
    layer: BTreeMap<String, Layer>,
    #[serde(rename = "crate")]
    exceptions: BTreeMap<String, Exception>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Layer {
    #[serde(default)]
    crates: Vec<String>,
    imports: Vec<String>,
}

/// Permissions of one crate beyond its layer.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Exception {
    #[serde(default)]
    imports: Vec<String>,
    #[serde(default)]
    third_party: Vec<String>,
    /// The reason for `unsafe`.
    r#unsafe: Option<String>,
}

pub(crate) static MAP: LazyLock<CrateMap> =
    LazyLock::new(|| toml::from_str(include_str!("../../layers.toml")).expect("layers.toml is a crate map"));

/// The layer of crates that are named after their trait's crate.
const BACKEND: &str = "backend";

impl CrateMap {
    /// The layer of a crate; `None` if the map does not have it.
    pub(crate) fn layer(&self, name: &str) -> Option<&str> {
        let listed = self.layer.iter().find(|(_, layer)| layer.crates.iter().any(|listed| listed == name));
        listed.map(|(layer, _)| layer.as_str()).or(trait_and_suffix(name).map(|_| BACKEND))
    }

    pub(crate) fn may_be_unsafe(&self, name: &str) -> bool {
        self.exceptions.get(name).is_some_and(|exception| exception.r#unsafe.is_some())
    }

    fn may_import(&self, from: &str, to: &str) -> bool {
        let Some(layer) = self.layer(from) else { return false };
        let Some(imported) = self.layer(to) else { return false };
        self.layer[layer].imports.iter().any(|name| name == to || name.strip_prefix('@') == Some(imported))
            || self.exceptions.get(from).is_some_and(|exception| exception.imports.iter().any(|name| name == to))
            || layer == BACKEND && trait_and_suffix(from).is_some_and(|(of, _)| of == to)
    }
}

/// The trait's crate and the backend's own name in the name of a backend's crate.
fn trait_and_suffix(name: &str) -> Option<(&'static str, &str)> {
    for of in &MAP.layer["trait"].crates {
        if let Some(suffix) = name.strip_prefix(of.as_str()).and_then(|rest| rest.strip_prefix('-')) {
            return Some((of, suffix));
        }
    }
    None
}

/// Backends with their own names.
fn backends(tree: &Tree) -> Vec<(&Package, &str)> {
    let mut backends = Vec::new();
    for package in &tree.packages {
        match MAP.layer(&package.name) {
            Some(BACKEND) => backends.extend(trait_and_suffix(&package.name).map(|(_, suffix)| (package, suffix))),
            Some("stores") => backends.push((package, package.name.trim_start_matches("foveate-"))),
            _ => {}
        }
    }
    backends
}

/// Returns true if a backend of this name exists.
pub(crate) fn is_backend_feature(tree: &Tree, name: &str) -> bool {
    backends(tree).iter().any(|(_, suffix)| *suffix == name)
}

/// Trait crates import only core, backends only their trait, the engine no backend, leaves no workspace crate. Tests
/// may import anything.
pub(crate) fn crate_map(tree: &Tree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for package in &tree.packages {
        let name = &package.name;
        if MAP.layer(name).is_none() {
            let message = format!("{name} is not in the crate map; give it a layer in xtask/layers.toml");
            findings.push(TidyFinding::new(package.manifest_path(), message));
            continue;
        }
        for import in package.shipped().filter(|import| import.ours() && !MAP.may_import(name, &import.name)) {
            let message = format!(
                "{name} may not import {} (crate map in ARCHITECTURE.md); move the shared part down, or use it as a \
                 dev-dependency in tests",
                import.name
            );
            findings.push(TidyFinding::new(package.manifest_path(), message));
        }
    }
    findings
}

/// Only the facade selects backends by cargo feature.
pub(crate) fn backend_features(tree: &Tree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for package in &tree.packages {
        if matches!(MAP.layer(&package.name), Some("facade" | "harness")) {
            continue;
        }
        for feature in package.features.keys().filter(|feature| is_backend_feature(tree, feature)) {
            let message =
                format!("feature '{feature}' is a backend's name; only `foveate` has backend features, remove it here");
            findings.push(TidyFinding::new(package.manifest_path(), message));
        }
    }
    findings
}

/// Every backend crate is an optional dependency of the facade under a feature of its name, and is in its backend
/// table.
pub(crate) fn backend_table(tree: &Tree) -> Vec<TidyFinding> {
    let Some(facade) = tree.package("foveate") else { return Vec::new() };
    let mut words = Vec::new();
    for file in tree.rust_files(facade) {
        for line in file.text.lines() {
            let code = line.split("//").next().unwrap_or_default();
            words.extend(code.split(|c: char| !(c.is_alphanumeric() || c == '_')));
        }
    }
    let mut findings = Vec::new();
    for (backend, suffix) in backends(tree) {
        let name = &backend.name;
        if facade.shipped().any(|dependency| dependency.name == *name && !dependency.optional) {
            let message = format!("{name} must be optional, so that a program can leave it out");
            findings.push(TidyFinding::new(facade.manifest_path(), message));
        }
        let dep = format!("dep:{name}");
        if !facade.features.get(suffix).is_some_and(|on| on.contains(&dep)) {
            let message = format!("feature `{suffix}` must turn on \"{dep}\" (feature = registry name = crate suffix)");
            findings.push(TidyFinding::new(facade.manifest_path(), message));
        }
        let module = name.replace('-', "_");
        if !words.contains(&module.as_str()) {
            let message = format!("{name} is in no backend table; add {module} to the list");
            findings.push(TidyFinding::new("crates/foveate/src", message));
        }
    }
    findings
}

/// Trait crates and leaves use only a few, named third-party crates, and core uses none.
pub(crate) fn third_party(tree: &Tree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for package in &tree.packages {
        let name = package.name.as_str();
        let mut allowed = match MAP.layer(name) {
            Some("core") => Vec::new(),
            Some("leaf" | "trait") => MAP.third_party.iter().collect(),
            _ => continue,
        };
        allowed.extend(MAP.exceptions.get(name).into_iter().flat_map(|exception| &exception.third_party));
        for dependency in package.shipped().filter(|dependency| !dependency.ours()) {
            if !allowed.contains(&&dependency.name) {
                let message = format!(
                    "{name} may not depend on {}; a backend crate may, or add it to third_party in xtask/layers.toml \
                     with a reason",
                    dependency.name
                );
                findings.push(TidyFinding::new(package.manifest_path(), message));
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
            ("foveate-decode-zune", "foveate-model"),
            ("foveate-pipeline", "foveate-decode-zune"),
            ("foveate-pipeline", "foveate-model"),
            ("foveate-core", "foveate-profile"),
            ("foveate-profile", "foveate-core"),
            ("foveate-model", "foveate-decode"),
        ] {
            let mut tree = fake::tree();
            package(&mut tree, from).dependencies.push(ours(to));
            assert_finds(crate_map, &tree, &format!("{from} may not import {to}"));
        }
    }

    #[test]
    fn tests_may_import_what_they_like() {
        let mut tree = fake::tree();
        let mut dependency = ours("foveate-decode-zune");
        dependency.kind = Some("dev".to_owned());
        package(&mut tree, "foveate-pipeline").dependencies.push(dependency);
        assert!(crate_map(&tree).is_empty());
    }

    #[test]
    fn an_unknown_crate_needs_a_layer() {
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
        for (name, dependency) in
            [("foveate-decode", "image"), ("foveate-profile", "axum"), ("foveate-core", "thiserror")]
        {
            let mut tree = fake::tree();
            package(&mut tree, name).dependencies.push(theirs(dependency));
            assert_finds(third_party, &tree, &format!("{name} may not depend on {dependency}"));
        }
        let mut tree = fake::tree();
        package(&mut tree, "foveate-decode").dependencies.push(theirs("thiserror"));
        package(&mut tree, "foveate-profile").name = "foveate-net".to_owned();
        package(&mut tree, "foveate-net").dependencies.push(theirs("axum"));
        assert!(third_party(&tree).is_empty(), "what one leaf may, others may not");
    }
}
