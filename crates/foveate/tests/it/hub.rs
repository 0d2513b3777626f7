//! Models by name, from a hub on this machine that the environment variables of Hugging Face's libraries name.

use std::fs;
use std::path::Path;

use crate::common::{PHOTOS, TINY, foveate, run};
use foveate_testkit::hub::{Behaviour, HubServer};

const REPOSITORY: &str = "ann/tiny-dinov2";

struct Hub {
    server: HubServer,
    folder: tempfile::TempDir,
}

impl Hub {
    fn new() -> Self {
        let server = HubServer::start();
        server.add_folder(REPOSITORY, Path::new(TINY));
        Self { server, folder: tempfile::tempdir().unwrap() }
    }

    /// Embeds one photo with the hub's model, to `name`, with extra environment variables.
    fn embed(&self, name: &str, variables: &[(&str, &str)]) -> crate::common::Ran {
        let mut command = foveate();
        command.args(["embed", "--model", REPOSITORY, "-o"]).arg(self.folder.path().join(name));
        command.arg(format!("{PHOTOS}/23_thumb_256.jpg"));
        command.env("HF_ENDPOINT", &self.server.endpoint).env("HF_HOME", self.folder.path().join("home"));
        command.envs(variables.iter().copied());
        run(&mut command)
    }
}

#[test]
fn a_model_is_fetched_once_and_equals_the_folder_it_came_from() {
    let hub = Hub::new();
    let first = hub.embed("first.npy", &[]).expect(0);
    assert!(first.stderr.contains("downloaded model.safetensors"), "{}", first.stderr);
    let second = hub.embed("second.npy", &[("HF_HUB_OFFLINE", "1")]).expect(0);
    assert!(!second.stderr.contains("downloaded"), "{}", second.stderr);

    let local = hub.folder.path().join("local.npy");
    run(foveate().args(["embed", "--model", TINY, "-o"]).arg(&local).arg(format!("{PHOTOS}/23_thumb_256.jpg")))
        .expect(0);
    let vectors = |name: &str| fs::read(hub.folder.path().join(name)).unwrap();
    assert_eq!(vectors("first.npy"), vectors("local.npy"));
    assert_eq!(vectors("second.npy"), vectors("local.npy"));
    let manifest = fs::read_to_string(hub.folder.path().join("_first.npy.manifest.json")).unwrap();
    assert!(manifest.contains(&hub.server.commit), "the manifest names the commit: {manifest}");
}

#[test]
fn what_cannot_be_had_is_one_clear_line() {
    let hub = Hub::new();
    let line = |ran: crate::common::Ran| {
        let ran = ran.expect(1);
        let mut lines = ran.stderr.lines().filter(|line| !line.starts_with("downloaded "));
        let error = lines.next().unwrap().to_owned();
        assert_eq!((error.starts_with("error: "), lines.next()), (true, None), "{}", ran.stderr);
        error
    };
    assert!(line(hub.embed("x.npy", &[("HF_HUB_OFFLINE", "1")])).contains("HF_HUB_OFFLINE"));
    // Nothing listens on port 1.
    let unreachable = line(hub.embed("x.npy", &[("HF_ENDPOINT", "http://127.0.0.1:1")]));
    let (_, cause) = unreachable.split_once("is out of reach: ").unwrap();
    assert!(cause.contains("Connection refused") && cause.contains("; set HF_ENDPOINT to a mirror"), "{unreachable}");
    hub.server.behave(Behaviour { flip: true, ..Behaviour::default() });
    assert!(line(hub.embed("x.npy", &[])).contains("sha256"));
    assert!(!hub.folder.path().join("x.npy").exists());
}

#[test]
fn a_token_opens_a_gated_model() {
    let hub = Hub::new();
    hub.server.behave(Behaviour { token: Some("hf_secret".to_owned()), ..Behaviour::default() });
    let refused = hub.embed("x.npy", &[]).expect(1);
    assert!(refused.stderr.contains("HF_TOKEN"), "{}", refused.stderr);
    hub.embed("x.npy", &[("HF_TOKEN", "hf_secret")]).expect(0);
}
