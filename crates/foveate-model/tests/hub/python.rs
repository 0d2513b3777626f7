//! The cache is shared with Python: each side finds the other's downloads.

use std::path::{Path, PathBuf};

use foveate_model::{HubOptions, Model, NoProgress, OpenOptions};
use foveate_testkit::python;

use crate::{REPOSITORY, tiny};
use foveate_testkit::hub::HubServer;

/// Makes Python fetch the three files of the tiny model; returns their folder.
fn python_snapshot(server: &HubServer, cache: &Path, offline: bool) -> PathBuf {
    let program = format!(
        "import os, huggingface_hub as h\n\
         for file in ['config.json', 'preprocessor_config.json', 'model.safetensors']:\n\
         \x20   path = h.hf_hub_download('{REPOSITORY}', file)\n\
         print(os.path.dirname(path))"
    );
    let output = python(&["huggingface_hub"])
        .args(["-c", &program])
        .env("HF_HUB_CACHE", cache)
        .env("HF_ENDPOINT", &server.endpoint)
        .env("HF_HUB_OFFLINE", if offline { "1" } else { "0" })
        .env("NO_PROXY", "127.0.0.1")
        .env("HF_HUB_DISABLE_XET", "1")
        .env("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().into()
}

fn open(server: &HubServer, cache: &Path, offline: bool) -> Model {
    let hub = HubOptions {
        endpoint: server.endpoint.clone(),
        cache: cache.to_owned(),
        offline,
        ..HubOptions::from_vars(|_| None)
    };
    Model::open(REPOSITORY, &OpenOptions { hub, progress: &NoProgress }).unwrap()
}

pub(crate) fn python_finds_what_we_downloaded() {
    let server = HubServer::start();
    let cache = tempfile::tempdir().unwrap();
    server.add_folder(REPOSITORY, &tiny());
    let ours = open(&server, cache.path(), false);
    let theirs = Model::from_folder(&python_snapshot(&server, cache.path(), true)).unwrap();
    assert_eq!(ours.weights.hash(), theirs.weights.hash());
}

pub(crate) fn we_find_what_python_downloaded() {
    let server = HubServer::start();
    let cache = tempfile::tempdir().unwrap();
    server.add_folder(REPOSITORY, &tiny());
    let theirs = Model::from_folder(&python_snapshot(&server, cache.path(), false)).unwrap();
    server.requests();
    let ours = open(&server, cache.path(), true);
    assert_eq!(ours.weights.hash(), theirs.weights.hash());
    assert_eq!(server.requests(), [], "nothing is asked for offline");
    // Online, the files that Python downloaded are used too.
    open(&server, cache.path(), false);
    assert!(server.requests().iter().all(|request| request.method == "HEAD"));
}
