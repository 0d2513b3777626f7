//! Fetching models from a local hub.
#![allow(clippy::unwrap_used)]

mod python;
#[path = "../sharding/mod.rs"]
mod sharding;

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use foveate_core::error_chain;
use foveate_model::{Card, HubOptions, Model, ModelError, NoProgress, OpenOptions, Progress, TextModel, Token};
use foveate_testkit::hub::{Behaviour, HubServer, Request};
use foveate_testkit::{Resource, data, program, run, trials};
use tempfile::TempDir;

fn main() -> ExitCode {
    run(trials![
        a_model_is_fetched_into_the_layout_that_python_uses,
        a_cached_model_costs_one_question_or_none_for_a_commit,
        another_revision_is_fetched_when_it_is_asked_for,
        offline_uses_the_cache_and_never_the_network,
        altered_bytes_are_refused_and_leave_nothing_behind,
        small_files_are_verified_too,
        a_broken_connection_is_picked_up_where_it_broke,
        a_download_that_stops_is_an_error_and_the_next_run_resumes_it,
        whatever_an_earlier_run_left_the_result_is_right,
        a_server_that_never_resumes_and_always_breaks_off_is_given_up,
        a_file_without_a_checksum_is_not_trusted,
        the_token_goes_to_the_hub_and_nowhere_else,
        what_does_not_exist_is_named,
        a_signature_of_the_storage_is_not_told,
        another_architecture_is_refused_before_its_weights_are_fetched,
        an_endpoint_out_of_reach_is_one_line_with_the_remedies,
        a_server_in_trouble_is_out_of_reach_and_a_strange_one_is_not,
        a_file_altered_in_the_cache_is_noticed,
        a_small_file_altered_in_the_cache_is_noticed_even_where_it_still_makes_sense,
        other_weights_than_a_cards_are_refused_unless_a_revision_is_named,
        several_runs_at_once_fetch_a_file_once,
        a_cache_that_cannot_be_written_is_named,
        shards_are_fetched_as_the_index_lists_them,
        open_clip_s_files_are_fetched_where_there_are_no_others,
        python::python_finds_what_we_downloaded,
        python::we_find_what_python_downloaded,
    ])
}

const REPOSITORY: &str = "ann/tiny-dinov2";

/// A hub with the tiny model, and an empty cache.
struct Bench {
    server: HubServer,
    cache: TempDir,
    hub: HubOptions,
}

fn tiny() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/models/tiny")).to_owned()
}

impl Bench {
    fn new() -> Self {
        let server = HubServer::start();
        server.add_folder(REPOSITORY, &tiny());
        let cache = tempfile::tempdir().unwrap();
        let hub = HubOptions {
            endpoint: server.endpoint.clone(),
            cache: cache.path().to_owned(),
            connect_timeout: Duration::from_secs(5),
            read_timeout: Duration::from_secs(5),
            attempts: 2,
            backoff: Duration::ZERO,
            ..HubOptions::from_vars(|_| None)
        };
        Self { server, cache, hub }
    }

    fn open(&self, spec: &str) -> Result<Model, ModelError> {
        self.open_with(spec, &NoProgress)
    }

    fn open_with(&self, spec: &str, progress: &dyn Progress) -> Result<Model, ModelError> {
        Model::open(spec, &OpenOptions { hub: self.hub.clone(), progress })
    }

    fn failure(&self, spec: &str) -> String {
        let error = self.open(spec).expect_err("it should not open");
        let remedy = if let ModelError::Hub(error) = &error { error.remedy() } else { None };
        let message = [Some(error_chain(&error)), remedy.map(str::to_owned)].into_iter().flatten();
        let message = message.collect::<Vec<_>>().join("; ");
        assert!(!message.contains('\n'), "more than one line: {message}");
        message
    }

    fn repository(&self) -> PathBuf {
        self.cache.path().join("models--ann--tiny-dinov2")
    }

    fn blobs(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.repository().join("blobs")) else { return Vec::new() };
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The only blob of the weights, under its final name.
    fn weights_blob(&self) -> PathBuf {
        self.repository().join("blobs").join(sha256_of_tiny())
    }
}

fn sha256_of_tiny() -> String {
    Model::from_folder(&tiny()).unwrap().weights.hash().to_owned()
}

#[derive(Default)]
struct Recorder {
    bytes: RefCell<Vec<(String, u64, Option<u64>)>>,
    notices: RefCell<Vec<String>>,
    licences: RefCell<Vec<String>>,
}

impl Progress for Recorder {
    fn bytes(&self, file: &str, done: u64, total: Option<u64>) {
        self.bytes.borrow_mut().push((file.to_owned(), done, total));
    }
    fn notice(&self, message: &str) {
        self.notices.borrow_mut().push(message.to_owned());
    }
    fn published(&self, card: &Card) {
        self.licences.borrow_mut().push(card.licence.clone());
    }
}

fn a_model_is_fetched_into_the_layout_that_python_uses() {
    let bench = Bench::new();
    let progress = Recorder::default();
    let model = bench.open_with(REPOSITORY, &progress).unwrap();
    let local = Model::from_folder(&tiny()).unwrap();
    assert_eq!((&model.network, &model.preprocess), (&local.network, &local.preprocess));
    assert_eq!(model.weights.hash(), local.weights.hash());
    assert_eq!(model.name, REPOSITORY);
    assert_eq!(model.revision.as_deref(), Some(bench.server.commit.as_str()));

    let snapshot = bench.repository().join("snapshots").join(&bench.server.commit);
    assert_eq!(fs::read_to_string(bench.repository().join("refs/main")).unwrap(), bench.server.commit);
    for file in ["config.json", "preprocessor_config.json", "model.safetensors"] {
        let link = snapshot.join(file);
        assert_eq!(fs::read(&link).unwrap(), fs::read(tiny().join(file)).unwrap());
        #[cfg(unix)]
        assert!(fs::read_link(&link).unwrap().starts_with("../../blobs"));
    }
    assert_eq!(bench.blobs().len(), 3, "nothing but the three files: {:?}", bench.blobs());
    assert!(bench.weights_blob().is_file());

    let size = fs::metadata(tiny().join("model.safetensors")).unwrap().len();
    let steps: Vec<_> = progress.bytes.into_inner().into_iter().filter(|(f, ..)| f == "model.safetensors").collect();
    assert_eq!(steps.first().map(|step| (step.1, step.2)), Some((0, Some(size))));
    assert_eq!(steps.last().map(|step| (step.1, step.2)), Some((size, Some(size))));
}

fn a_cached_model_costs_one_question_or_none_for_a_commit() {
    let bench = Bench::new();
    bench.open(REPOSITORY).unwrap();
    bench.server.requests();
    bench.open(REPOSITORY).unwrap();
    let asked: Vec<String> = bench.server.requests().iter().map(|r| format!("{} {}", r.method, r.path)).collect();
    assert_eq!(asked, ["HEAD /ann/tiny-dinov2/resolve/main/config.json"]);

    bench.open(&format!("{REPOSITORY}@{}", bench.server.commit)).unwrap();
    assert_eq!(bench.server.requests(), []);
}

fn another_revision_is_fetched_when_it_is_asked_for() {
    let bench = Bench::new();
    bench.open(&format!("{REPOSITORY}@refs/pr/1")).unwrap();
    assert_eq!(bench.server.requests()[0].path, "/ann/tiny-dinov2/resolve/refs%2Fpr%2F1/config.json");
    assert!(bench.repository().join("refs/refs/pr/1").is_file());
    let message = bench.failure(&format!("{REPOSITORY}@v9"));
    assert!(message.contains("at revision v9: there is no such revision"), "{message}");
}

fn offline_uses_the_cache_and_never_the_network() {
    let mut bench = Bench::new();
    bench.hub.offline = true;
    let message = bench.failure(REPOSITORY);
    assert!(message.contains("HF_HUB_OFFLINE is set") && message.contains("seeded:dinov2-small"), "{message}");
    assert_eq!(bench.server.requests(), []);

    bench.hub.offline = false;
    bench.open(REPOSITORY).unwrap();
    bench.server.requests();
    bench.hub.offline = true;
    bench.open(REPOSITORY).unwrap();
    assert_eq!(bench.server.requests(), []);
}

fn altered_bytes_are_refused_and_leave_nothing_behind() {
    let bench = Bench::new();
    bench.server.behave(Behaviour { flip: true, ..Behaviour::default() });
    let message = bench.failure(REPOSITORY);
    assert!(message.contains("is damaged and was deleted: its sha256 is"), "{message}");
    assert!(message.contains(&sha256_of_tiny()), "{message}");
    assert_eq!(bench.blobs().len(), 2, "the two small files only: {:?}", bench.blobs());

    bench.server.behave(Behaviour::default());
    bench.open(REPOSITORY).unwrap();
}

fn small_files_are_verified_too() {
    let bench = Bench::new();
    bench.open(REPOSITORY).unwrap();
    let config = bench.repository().join("snapshots").join(&bench.server.commit).join("config.json");
    let blob = config.canonicalize().unwrap();
    let hash = program(Resource::Git, "git").arg("hash-object").arg(tiny().join("config.json")).output().unwrap();
    assert_eq!(String::from_utf8(hash.stdout).unwrap().trim(), blob.file_name().unwrap());
}

fn a_broken_connection_is_picked_up_where_it_broke() {
    let bench = Bench::new();
    bench.server.behave(Behaviour { break_off: 3, ..Behaviour::default() });
    bench.open(REPOSITORY).unwrap();
    let size = fs::metadata(tiny().join("model.safetensors")).unwrap().len();
    let mut left = size;
    let mut expected = vec![None];
    for _ in 0..3 {
        left -= left / 2;
        expected.push(Some(format!("bytes={}-", size - left)));
    }
    let ranges: Vec<_> = bench.server.requests().into_iter().filter(|r| r.to_storage).map(|r| r.range).collect();
    assert_eq!(ranges, expected);
}

fn a_download_that_stops_is_an_error_and_the_next_run_resumes_it() {
    let bench = Bench::new();
    bench.server.behave(Behaviour { break_always: Some(0), break_off: 0, ..Behaviour::default() });
    let message = bench.failure(REPOSITORY);
    assert!(message.contains("stopped at 0 bytes of") && message.ends_with("run again to resume"), "{message}");
    assert!(!bench.weights_blob().exists());

    // The remains of a killed run: the beginning of the file.
    let partial = bench.blobs().into_iter().find(|name| name.ends_with(".incomplete")).unwrap();
    let bytes = fs::read(tiny().join("model.safetensors")).unwrap();
    fs::write(bench.repository().join("blobs").join(partial), &bytes[..1000]).unwrap();
    bench.server.behave(Behaviour::default());
    bench.server.requests();
    bench.open(REPOSITORY).unwrap();
    let storage: Vec<Request> = bench.server.requests().into_iter().filter(|r| r.to_storage).collect();
    assert_eq!(storage.iter().map(|r| r.range.as_deref()).collect::<Vec<_>>(), [Some("bytes=1000-")]);
    assert_eq!(bench.blobs().len(), 3);
}

fn a_signature_of_the_storage_is_not_told() {
    let bench = Bench::new();
    for status in [403, 404, 418] {
        bench.server.behave(Behaviour { storage_status: Some(status), ..Behaviour::default() });
        let message = bench.failure(REPOSITORY);
        assert!(message.contains("/model.safetensors") && message.contains(&status.to_string()), "{message}");
        assert!(!message.contains("signature"), "{message}");
    }
}

/// A correct file replaces leftovers of every kind.
fn whatever_an_earlier_run_left_the_result_is_right() {
    let bytes = fs::read(tiny().join("model.safetensors")).unwrap();
    let garbage = vec![7; bytes.len()];
    let longer = [bytes.as_slice(), b"more"].concat();
    for (what, left, no_ranges) in [
        ("garbage", &garbage[..5000], false),
        ("garbage of the whole length", &garbage[..], false),
        ("the whole file", &bytes[..], false),
        ("too much", &longer[..], false),
        ("a beginning that the server cannot resume", &bytes[..5000], true),
    ] {
        let bench = Bench::new();
        bench.server.behave(Behaviour { no_ranges, ..Behaviour::default() });
        fs::create_dir_all(bench.repository().join("blobs")).unwrap();
        let partial = format!("{}.foveate.incomplete", sha256_of_tiny());
        fs::write(bench.repository().join("blobs").join(partial), left).unwrap();
        bench.open(REPOSITORY).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(fs::read(bench.weights_blob()).unwrap(), bytes, "{what}");
        assert_eq!(bench.blobs().len(), 3, "{what}");
    }
}

fn a_server_that_never_resumes_and_always_breaks_off_is_given_up() {
    let bench = Bench::new();
    bench.server.behave(Behaviour { no_ranges: true, break_always: Some(9000), ..Behaviour::default() });
    let message = bench.failure(REPOSITORY);
    assert!(message.contains("stopped at 9000 bytes of"), "{message}");
}

fn a_file_without_a_checksum_is_not_trusted() {
    let bench = Bench::new();
    bench.server.behave(Behaviour { no_checksum: true, ..Behaviour::default() });
    let message = bench.failure(REPOSITORY);
    assert!(message.contains("reports no checksum"), "{message}");
}

fn the_token_goes_to_the_hub_and_nowhere_else() {
    let mut bench = Bench::new();
    bench.server.behave(Behaviour { token: Some("hf_secret".to_owned()), ..Behaviour::default() });
    let message = bench.failure(REPOSITORY);
    assert!(message.contains("401") && message.contains("set HF_TOKEN"), "{message}");

    bench.hub.token = Token::new("hf_wrong");
    let message = bench.failure(REPOSITORY);
    assert!(message.contains("may not read it") && !message.contains("hf_wrong"), "{message}");

    bench.hub.token = Token::new("hf_secret");
    bench.server.requests();
    bench.open(REPOSITORY).unwrap();
    let (storage, hub): (Vec<Request>, Vec<Request>) = bench.server.requests().into_iter().partition(|r| r.to_storage);
    assert!(hub.iter().all(|r| r.authorization.as_deref() == Some("Bearer hf_secret")));
    assert!(!storage.is_empty() && storage.iter().all(|r| r.authorization.is_none()), "{storage:?}");
}

fn what_does_not_exist_is_named() {
    let bench = Bench::new();
    let message = bench.failure("ann/no-such-model");
    assert!(message.contains("ann/no-such-model") && message.contains("there is no such repository"), "{message}");

    bench.server.remove(REPOSITORY, "preprocessor_config.json");
    let message = bench.failure(REPOSITORY);
    assert!(message.contains("it has no preprocessor_config.json"), "{message}");

    bench.server.add_folder(REPOSITORY, &tiny()).remove(REPOSITORY, "model.safetensors");
    let message = bench.failure(REPOSITORY);
    assert!(message.contains("it has no weights (model.safetensors or model.safetensors.index.json)"), "{message}");
}

fn another_architecture_is_refused_before_its_weights_are_fetched() {
    let bench = Bench::new();
    bench.server.add(REPOSITORY, "config.json", r#"{"model_type": "convnext"}"#);
    let message = bench.failure(REPOSITORY);
    assert!(message.contains("'model_type' is 'convnext'"), "{message}");
    assert!(bench.server.requests().iter().all(|r| !r.path.contains("safetensors")));
}

fn an_endpoint_out_of_reach_is_one_line_with_the_remedies() {
    let mut bench = Bench::new();
    // Bound and closed again, so no server listens on it.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let reachable = bench.hub.endpoint.clone();
    let unreachable = format!("http://127.0.0.1:{port}");
    bench.hub.endpoint = unreachable.clone();
    let message = bench.failure("facebook/dinov2-small");
    for part in ["facebook/dinov2-small", &unreachable, "out of reach", "HF_ENDPOINT", "a local folder", "seeded:"] {
        assert!(message.contains(part), "no {part} in: {message}");
    }

    bench.hub.endpoint = reachable;
    bench.open(REPOSITORY).unwrap();
    bench.hub.endpoint = unreachable;
    let progress = Recorder::default();
    bench.open_with(REPOSITORY, &progress).unwrap();
    let notices = progress.notices.into_inner();
    assert!(notices.len() == 1 && notices[0].contains(&bench.server.commit), "{notices:?}");
}

fn a_server_in_trouble_is_out_of_reach_and_a_strange_one_is_not() {
    let bench = Bench::new();
    bench.server.behave(Behaviour { status: Some(503), ..Behaviour::default() });
    assert!(bench.failure(REPOSITORY).contains("out of reach: HTTP 503"));
    bench.server.behave(Behaviour { status: Some(418), ..Behaviour::default() });
    assert!(bench.failure(REPOSITORY).contains("unexpected answer"), "{}", bench.failure(REPOSITORY));
}

fn a_file_altered_in_the_cache_is_noticed() {
    for (what, alter) in [
        ("one weight", (|bytes| bytes[500_000] ^= 1) as fn(&mut Vec<u8>)),
        ("the header", |bytes| bytes[20] ^= 1),
        ("the end", |bytes| bytes.truncate(600_000)),
    ] {
        let bench = Bench::new();
        bench.open(REPOSITORY).unwrap();
        let mut bytes = fs::read(bench.weights_blob()).unwrap();
        alter(&mut bytes);
        fs::write(bench.weights_blob(), bytes).unwrap();
        let message = bench.failure(REPOSITORY);
        assert!(
            message.contains("was altered after its download") && message.contains("delete it"),
            "{what}: {message}"
        );
    }
}

fn a_small_file_altered_in_the_cache_is_noticed_even_where_it_still_makes_sense() {
    let bench = Bench::new();
    bench.open(REPOSITORY).unwrap();
    let config = bench.repository().join("snapshots").join(&bench.server.commit).join("config.json");
    let blob = config.canonicalize().unwrap();
    let text = fs::read_to_string(&blob).unwrap().replace("\"layer_norm_eps\": 1e-06", "\"layer_norm_eps\": 1e-12");
    fs::write(&blob, text).unwrap();
    let message = bench.failure(REPOSITORY);
    assert!(message.contains(blob.to_str().unwrap()) && message.contains("git blob hash"), "{message}");
}

fn other_weights_than_a_cards_are_refused_unless_a_revision_is_named() {
    let bench = Bench::new();
    let card = Card::get("dinov2-small").unwrap();
    bench.server.add_folder(&card.repository, &tiny());
    let message = bench.failure(&card.repository);
    assert!(message.contains(&format!("the model's card has {}", card.sha256.unwrap())), "{message}");
    let revision = card.revision.unwrap();
    assert!(bench.server.requests()[0].path.contains(&revision));

    let progress = Recorder::default();
    bench.open_with(&format!("{}@main", card.repository), &progress).unwrap();
    assert_eq!(progress.licences.into_inner(), ["Apache-2.0"]);
}

fn several_runs_at_once_fetch_a_file_once() {
    let bench = Bench::new();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| bench.open(REPOSITORY).unwrap());
        }
    });
    let downloads = bench.server.requests().iter().filter(|r| r.to_storage).count();
    assert_eq!((downloads, bench.blobs().len()), (1, 3));
}

#[cfg(unix)]
fn a_cache_that_cannot_be_written_is_named() {
    let mut bench = Bench::new();
    let file = bench.cache.path().join("file");
    fs::write(&file, "").unwrap();
    bench.hub.cache = file.join("hub");
    let message = bench.failure(REPOSITORY);
    assert!(message.contains("in the model cache") && message.contains("HF_HUB_CACHE"), "{message}");
}

fn shards_are_fetched_as_the_index_lists_them() {
    let bench = Bench::new();
    let shards = tempfile::tempdir().unwrap();
    sharding::split(&tiny(), shards.path(), 3);
    bench.server.remove(REPOSITORY, "model.safetensors").add_folder(REPOSITORY, shards.path());
    let model = bench.open(REPOSITORY).unwrap();
    let local = Model::from_folder(shards.path()).unwrap();
    assert_eq!(model.weights.hash(), local.weights.hash());
    let name = "encoder.layer.2.mlp.fc2.weight";
    assert_eq!(model.weights.tensor(name, &[64, 256]).unwrap(), local.weights.tensor(name, &[64, 256]).unwrap());

    bench.server.requests();
    bench.open(REPOSITORY).unwrap();
    assert_eq!(bench.server.requests().len(), 1);
}

fn open_clip_s_files_are_fetched_where_there_are_no_others() {
    const REPOSITORY: &str = "ann/tiny-clip";
    let bench = Bench::new();
    let folder = data("families/openclip");
    bench.server.add_folder(REPOSITORY, &folder);
    let model = bench.open(REPOSITORY).unwrap();
    let local = Model::from_folder(&folder).unwrap();
    assert_eq!((&model.network, &model.preprocess), (&local.network, &local.preprocess));
    assert_eq!(model.weights.hash(), local.weights.hash());
    let options = OpenOptions { hub: bench.hub.clone(), progress: &NoProgress };
    let text = TextModel::open(REPOSITORY, &options).unwrap();
    assert_eq!(text.weights.hash(), local.weights.hash());
    assert!(text.folder.unwrap().join("tokenizer.json").is_file());
    let offline = HubOptions { offline: true, ..bench.hub.clone() };
    let again = Model::open(REPOSITORY, &OpenOptions { hub: offline, progress: &NoProgress }).unwrap();
    assert_eq!(again.weights.hash(), local.weights.hash());
}
