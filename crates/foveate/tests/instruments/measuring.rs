//! The measuring commands on every kind of input: what they count, what they say of the storage, and what they advise.
#![cfg(unix)]
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::packed::Packed;
use crate::common::{PHOTOS, Ran, TINY, foveate, run};
use foveate::collect::MemorySink;
use foveate::embed::{Backends, ModelSettings, Settings};
use foveate::encode::DType;
use foveate::lab::tune::budget::{Drift, DriftBudget};
use foveate::model::OpenOptions;
use foveate::pipeline::{Cancel, Progress};
use foveate::verify::cosine;
use foveate::{DecodeScale, Embedder};
use foveate_testkit::{Trial, by_length, data, trials};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = trials![every_command_measures_every_kind_of_input, other_libraries_take_turns];
    if by_length(false, true) {
        // It embeds 513 photos seven times.
        trials.extend(trials![drift_budgets_hold_on_photos_that_were_not_seen]);
    }
    #[cfg(feature = "object-store")]
    let trials = [
        trials,
        trials![
            every_command_measures_a_store,
            a_stores_requests_are_fitted_planned_and_tried,
            a_number_of_requests_that_was_found_is_not_advised_again,
        ],
    ];
    #[cfg(feature = "object-store")]
    let trials = trials.into_iter().flatten().collect();
    trials
}

/// A script of the line protocol of `bench --peers`, whose contestants do no work.
const PEERS: &str = r#"
import pathlib, sys
folder = pathlib.Path(sys.argv[2])
if sys.argv[1] == "resizers":
    assert (folder / "0").read_bytes().startswith(b"P6 "), sys.argv
    print("fast black absent", flush=True)
else:
    assert (folder / "0").stat().st_size == 2 * 224 * 224 * 3, sys.argv
    print("black:bf16 absent:f32", flush=True)
for line in sys.stdin:
    command, name, case, number = line.split()
    if command == "check":
        (folder / "out").write_bytes(bytes(224 * 224 * 3 if name.startswith("black") else 1))
    if name.startswith("absent"):
        assert sys.argv[1] == "resizers" or (folder / "model.onnx").stat().st_size > 1000
        print("n/a no such module", flush=True)
    else:
        print(*[2.0] * int(number) if command == "time" else ["ok"], flush=True)
"#;

/// Disjoint sets of photos.
const SETS: usize = 20;

/// Photos that a change of pixels is judged by.
const MANY: usize = 299;

/// Changes of the default, by name; true for those that change pixels.
fn changes(default: &Settings) -> [(&'static str, bool, Settings); 8] {
    let with = |change: fn(&mut ModelSettings)| {
        let mut settings = default.clone();
        change(&mut settings.model);
        settings
    };
    [
        ("decoder zune", true, with(|model| model.decoder = Some("zune".to_owned()))),
        ("decoder image", true, with(|model| model.decoder = Some("image".to_owned()))),
        ("decode scale fast", true, with(|model| model.decode_scale = Some(DecodeScale::Fast))),
        ("decode scale low", true, with(|model| model.decode_scale = Some(DecodeScale::Low))),
        ("resizer image", true, with(|model| model.resizer = Some("image".to_owned()))),
        (
            "decoder zune, resizer image",
            true,
            with(|model| {
                model.decoder = Some("zune".to_owned());
                model.resizer = Some("image".to_owned());
            }),
        ),
        ("bf16", false, with(|model| model.dtype = Some(DType::Bf16))),
        ("i8", false, with(|model| model.dtype = Some(DType::I8))),
    ]
}

/// Chooses on one half of each disjoint set, confirms on the other, and counts violations on all photos of other sets:
/// there may be none. The sets are too small for changes of pixels. These are chosen on 299 photos, again and again at
/// random, and violations are counted on the others. A change that drifts more counts as the faster one: a search with
/// any rates would take one that drifts less, if another. `UPDATE=1` writes the recorded run anew.
fn drift_budgets_hold_on_photos_that_were_not_seen() {
    let (model, photos) = (data("weights/vit-tiny-patch16-224"), [data("labelled"), data("photos")]);
    let options = Settings::new(photos.map(foveate::source::Input::Path).into(), model.to_string_lossy(), "");
    let vectors = |options: &Settings| -> Vec<Vec<f32>> {
        let mut embedder = Embedder::open(options, &Arc::new(Backends::compiled()), &OpenOptions::from_env()).unwrap();
        let (source, sink) = (options.list(|_| ()).unwrap(), MemorySink::default());
        embedder.run(Box::new(source), Box::new(sink.clone()), &Cancel::default(), &Progress::default()).unwrap();
        sink.take().rows.into_iter().map(|row| row.vector).collect()
    };
    let default = vectors(&options);
    let distance = |(a, b): (&Vec<f32>, &Vec<f32>)| (1.0 - cosine(a, b)).max(0.0);
    let mut drifts = changes(&options).map(|(name, changes_pixels, options)| {
        let vectors = vectors(&options);
        assert_eq!(vectors.len(), default.len(), "{name}");
        let distances = default.iter().zip(&vectors).map(distance).collect::<Vec<f64>>();
        (name, Drift { distances, changes_pixels, ..Drift::default() })
    });
    drifts.sort_by(|a, b| b.1.worst().0.total_cmp(&a.1.worst().0));

    let mut order: Vec<usize> = (0..default.len()).collect();
    fastrand::Rng::with_seed(1).shuffle(&mut order);
    let mut csv = "sets,min_cosine,set,choice,held_out,unseen,within,chosen,violations,worst_cosine\n".to_owned();
    let (mut chosen, mut broken) = ([0, 0], Vec::new());
    for (kind, sets) in ["disjoint", "random"].into_iter().enumerate() {
        for (min_cosine, set) in
            [0.999, 0.998, 0.99, 0.98].iter().flat_map(|cosine| (0..SETS).map(move |set| (cosine, set)))
        {
            let budget = DriftBudget { min_cosine: Some(*min_cosine), min_recall: None, confidence: 0.95 };
            let [choice, held_out, unseen] = if kind == 0 {
                let (used, unseen): (Vec<_>, Vec<_>) = (0..order.len()).partition(|at| at % SETS == set);
                let (choice, held_out) = used.split_at(used.len().div_ceil(2));
                [choice.to_vec(), held_out.to_vec(), unseen].map(|all| all.into_iter().map(|at| order[at]).collect())
            } else {
                let mut random = order.clone();
                fastrand::Rng::with_seed(set as u64).shuffle(&mut random);
                let unseen: Vec<usize> = random.split_off(MANY);
                [random, Vec::new(), unseen]
            };
            let part = |drift: &Drift, places: &[usize]| Drift {
                distances: places.iter().map(|&at| drift.distances[at]).collect(),
                ..drift.clone()
            };
            let within: Vec<_> =
                drifts.iter().filter(|(_, drift)| budget.refusal(&part(drift, &choice)).is_none()).collect();
            let found = within.iter().find(|(_, drift)| budget.violation(&part(drift, &held_out)).is_none());
            let (name, others) =
                found.map_or(("default", Drift::default()), |(name, drift)| (name, part(drift, &unseen)));
            let violations = others.distances.iter().filter(|&&distance| distance > 1.0 - min_cosine).count();
            let counts = [choice.len(), held_out.len(), unseen.len(), within.len()].map(|n| n.to_string()).join(",");
            let (sets, worst) = (sets, 1.0 - others.worst().0);
            csv += &format!("{sets},{min_cosine},{set},{counts},\"{name}\",{violations},{worst:.6}\n");
            chosen[kind] += usize::from(found.is_some());
            broken.extend((violations > 0).then(|| format!("{sets} set {set}: {name} within {min_cosine}")));
        }
    }
    if std::env::var_os("UPDATE").is_some() {
        fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/runs/drift_budget.csv"), &csv).unwrap();
    }
    assert!(chosen.iter().all(|&chosen| chosen >= SETS), "{chosen:?} choices besides the default show little: {csv}");
    assert!(broken.is_empty(), "{broken:?}\n{csv}");
}

fn other_libraries_take_turns() {
    foveate_testkit::python(&[]);
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("peers.py");
    fs::write(&script, PEERS).unwrap();
    let mut bench = foveate();
    bench.args(["bench", "resizers", PHOTOS, "--model", TINY, "--n", "4", "--images", "4", "--seconds", "0.1"]);
    bench.args(["--quick", "--as-given", "--json", "-o"]).arg(folder.path()).arg("--peers").arg(&script);
    let report = run(&mut bench).json();
    let of = |name: &str| report["resizers"].as_array().unwrap().iter().find(|row| row["resizer"] == name).unwrap();
    let fast = of("fast");
    assert_eq!((fast["status"].as_str(), fast["pixels"].as_str()), (Some("ok"), Some("another size")));
    assert_eq!((fast["p50_ms"].as_f64(), fast["images_per_second"].as_f64()), (Some(2.0), Some(500.0)), "{fast}");
    assert!(of("black")["status"].as_str().unwrap().starts_with("n/a (its pixels differ from ours by "), "{report}");
    assert_eq!(of("absent")["status"], "n/a (no such module)");
    assert_eq!(of("fir")["status"], "ok");
    let mut bench = foveate();
    bench.args(["bench", "forward", PHOTOS, "--model", TINY, "--n", "4", "--images", "4", "--batches", "2"]);
    bench.args(["--quick", "--json", "-o"]).arg(folder.path()).arg("--peers").arg(&script);
    let report = run(&mut bench).json();
    let status = |name: &str, dtype: &str| {
        let rows = report["forward"].as_array().unwrap();
        let of = rows.iter().find(|row| row["encoder"] == name && row["dtype"] == dtype);
        of.map(|row| row["status"].as_str().unwrap().to_owned())
    };
    assert_eq!(status("fused", "f32").unwrap(), "ok");
    assert!(status("black", "bf16").unwrap().contains("cosine 0.000 with the vectors of fused in f32"), "{report}");
    assert_eq!(status("absent", "f32").unwrap(), "n/a (no such module)");
}

/// Photos of each kind of input.
const PHOTOS_OF_EACH: usize = 6;

/// The smallest photos.
fn packed() -> Packed {
    Packed::new(|folder| {
        let mut files: Vec<PathBuf> = fs::read_dir(PHOTOS).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort_by_key(|file| fs::metadata(file).unwrap().len());
        let is_jpeg = |file: &&PathBuf| file.extension().is_some_and(|extension| extension == "jpg");
        for photo in files.iter().filter(is_jpeg).take(PHOTOS_OF_EACH) {
            fs::copy(photo, folder.join(photo.file_name().unwrap())).unwrap();
        }
    })
}

impl Packed {
    fn input(&self, name: &str, place: &'static str) -> Input {
        Input { arguments: vec![self.path(name)], environment: Vec::new(), place }
    }
}

/// Inputs of the commands.
struct Input {
    arguments: Vec<OsString>,
    environment: Vec<(&'static str, String)>,
    /// The place that `storage.csv` names.
    place: &'static str,
}

impl Input {
    /// Runs a command on it, which writes its files to `out`.
    fn run(&self, words: &[&str], out: &Path) -> Ran {
        let mut command = foveate();
        command.args(words).args(&self.arguments).args(["--model", TINY, "--n", "6"]);
        command.args(["--as-given", "--quiet", "-o"]).arg(out);
        // A stage alone has no batches.
        if !words.contains(&"decoders") && !words.contains(&"resizers") {
            command.args(["--batch", "2"]);
        }
        run(command.envs(self.environment.iter().map(|(name, value)| (name, value)))).expect(0)
    }
}

type Row = BTreeMap<String, String>;

/// Reads a CSV file's rows, by column.
fn rows(folder: &Path, file: &str) -> Vec<Row> {
    let mut reader = csv::Reader::from_path(folder.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    reader.deserialize().collect::<Result<_, _>>().unwrap_or_else(|error| panic!("{file}: {error}"))
}

#[track_caller]
fn number(row: &Row, column: &str) -> f64 {
    row[column].parse().unwrap_or_else(|_| panic!("{column} is '{}' in {row:?}", row[column]))
}

/// A measuring command: its words, the file that it writes, and a column that is above 0 in each row that ran.
type Measuring = (&'static [&'static str], &'static str, &'static str);

/// `bench forward` and `bench batch-sweep` come before `plan`, which needs one of them.
const COMMANDS: [Measuring; 11] = [
    (&["profile", "--images", "16"], "profile.csv", "images_per_second"),
    (&["bench", "forward", "--quick", "--seconds", "0.05", "--batches", "2"], "forward.csv", "images_per_second"),
    (&["bench", "batch-sweep", "--quick", "--seconds", "0.05"], "batch_sweep.csv", "images_per_second"),
    (&["bench", "decoders", "--quick", "--seconds", "0.05"], "decoders.csv", "images_per_second"),
    (&["bench", "resizers", "--quick", "--seconds", "0.05"], "resizers.csv", "images_per_second"),
    (&["bench", "worker-sweep", "--quick", "--images", "8"], "worker_sweep.csv", "images_per_second"),
    (&["bench", "headline", "--quick", "--images", "8"], "headline.csv", "images_per_second"),
    (&["bench", "extrapolation", "--quick", "--images", "8"], "extrapolation.csv", "images_per_second"),
    (&["bench", "predictions", "--quick", "--images", "8"], "plan.csv", "predicted"),
    (&["diagnose", "--quick"], "diagnosis.csv", "images_per_second"),
    (&["tune", "--budget", "1"], "tuning.csv", "images_per_second"),
];

/// The commands of the short form, on every input. `bench forward` starts no process for each batch, as the sweep does.
const SHORT: [&str; 2] = ["profile.csv", "forward.csv"];

/// An extrapolation's text from few photos on a machine that runs other tests at the same time.
const TOO_BUSY: &str = "too few, or the machine is too busy";

/// Runs the commands on an input, then a plan and a report of what they wrote.
fn check(input: &Input, folder: &Path) {
    let out = folder.join("run");
    let all = by_length(false, true);
    for (words, file, column) in COMMANDS.into_iter().filter(|(_, file, _)| all || SHORT.contains(file)) {
        let config = folder.join("foveate.toml");
        let written = ["--disturbed", "--overwrite", "--write", config.to_str().unwrap()];
        let words = if words[0] == "tune" { [words, &written].concat() } else { words.to_vec() };
        let ran = input.run(&words, &out);
        let measured: Vec<Row> = rows(&out, file);
        let ok: Vec<&Row> =
            measured.iter().filter(|row| row.get("status").is_none_or(|status| status == "ok")).collect();
        let busy = measured.iter().any(|row| row.get("status").is_some_and(|status| status.contains(TOO_BUSY)));
        assert!((busy || !ok.is_empty()) && ok.iter().all(|row| number(row, column) > 0.0), "{words:?}: {measured:?}");
        assert!(ran.stdout.contains(file), "{words:?}: {}", ran.stdout);
    }
    check_profile(input, &out);
    let plan = run(foveate().args(["plan", "--json", "--from"]).arg(&out)).expect(0).json();
    assert!(plan["prediction"]["images_per_second"].as_f64().unwrap() > 0.0, "{plan}");
    assert_eq!(plan["store"].is_object(), input.place == "store", "{plan}");
    run(foveate().arg("report").arg(&out)).expect(0);
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert_eq!(page.contains("requests in flight, the store delivers"), input.place == "store");
    fs::remove_dir_all(out).unwrap();
}

/// Checks what a profile says of images and of the storage.
fn check_profile(input: &Input, out: &Path) {
    let profile = rows(out, "profile.csv");
    assert!(profile.iter().all(|row| number(row, "images") == 16.0), "{profile:?}");
    let decoded: Vec<&Row> = profile.iter().filter(|row| row["stage"] == "decode").collect();
    assert!(decoded.iter().all(|row| number(row, "count") == 16.0) && decoded.len() == 2, "{decoded:?}");
    let storage = rows(out, "storage.csv");
    for row in &storage {
        assert_eq!(row["place"], input.place);
        assert!(number(row, "images") > 0.0 && number(row, "mb_per_second") > 0.0, "{row:?}");
    }
    let caches: Vec<&str> = storage.iter().map(|row| row["cache"].as_str()).collect();
    match input.place {
        // Requests one by one and together; more of them are tried only while they gain, which a busy machine prevents.
        "store" => assert!(storage.len() >= 2 && caches.iter().all(|cache| cache.is_empty()), "{storage:?}"),
        _ if cfg!(target_os = "linux") => assert_eq!(caches, ["cold", "warm"]),
        _ => assert_eq!(caches, [""]),
    }
    let alone = profile[0]["storage_mb_per_second"].parse::<f64>();
    assert_eq!(alone.is_ok_and(|rate| rate > 0.0), input.place != "files", "{:?}", profile[0]);
}

fn every_command_measures_every_kind_of_input() {
    let packed = packed();
    for (name, place) in [
        ("photos", "files"),
        ("all.tar", "container"),
        ("all.tar.gz", "container"),
        ("all.zip", "container"),
        ("all.parquet", "container"),
    ] {
        check(&packed.input(name, place), packed.0.path());
    }
}

#[cfg(feature = "object-store")]
mod store {
    use std::sync::Arc;
    use std::time::Duration;

    use foveate_net::photo_server::{Latency, PhotoServer, PhotoServerOptions};
    use tempfile::TempDir;

    use super::*;

    pub(super) fn every_command_measures_a_store() {
        let packed = packed();
        let server = foveate_testkit::brokers::AwsServer::start();
        packed.upload(&server.endpoint());
        let arguments = vec!["s3://photos/p/".into()];
        check(&Input { arguments, environment: server.environment().into(), place: "store" }, packed.0.path());
    }

    /// A web server with the photos, which answers after this time, and the list of their addresses.
    struct Web {
        _server: PhotoServer,
        folder: TempDir,
    }

    const LATENCY: Duration = Duration::from_millis(40);

    impl Web {
        fn start() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let photo = fs::read(Path::new(PHOTOS).join("01_astronaut_420.jpg")).unwrap();
            let latency = Latency::new(LATENCY, LATENCY).unwrap();
            let options = PhotoServerOptions { latency, ..PhotoServerOptions::default() };
            let server = PhotoServer::start(vec![Arc::from(photo)], options).unwrap();
            let addresses: Vec<String> = (0..PHOTOS_OF_EACH).map(|n| server.url(&format!("/photo/{n}"))).collect();
            fs::write(folder.path().join("list"), addresses.join("\n")).unwrap();
            Self { _server: server, folder }
        }

        fn run(&self, words: &[&str]) -> (Ran, PathBuf) {
            let list = self.folder.path().join("list").into();
            let input = Input { arguments: vec!["--from-list".into(), list], environment: Vec::new(), place: "store" };
            let out = self.folder.path().join("run");
            (input.run(words, &out), out)
        }
    }

    pub(super) fn a_stores_requests_are_fitted_planned_and_tried() {
        let web = Web::start();
        let (profile, out) = web.run(&["profile", "--images", "16", "--requests", "1"]);
        assert!(profile.stdout.contains("with 1 request in flight"), "{}", profile.stdout);
        let storage = rows(&out, "storage.csv");
        // An answer may take longer than asked for, never less.
        assert!(number(&storage[0], "latency_ms") >= 1e3 * LATENCY.as_secs_f64(), "{storage:?}");
        assert!(storage.iter().any(|row| number(row, "requests") >= 16.0), "{storage:?}");
        web.run(&["bench", "batch-sweep", "--quick", "--seconds", "0.05"]);
        let plan = |more: &[&str]| run(foveate().args(["plan", "--from"]).arg(&out).args(more)).expect(0);
        let planned = plan(&["--json"]).json();
        assert_eq!(planned["prediction"]["bound"]["stage"]["stage"], "storage", "{planned}");
        assert!(planned["store"]["needed_requests"].as_u64().is_none_or(|requests| requests > 1), "{planned}");
        let told = plan(&["--requests", "1"]).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(told.contains("; with 1 request in flight it delivers"), "{told}");
        let (tried, out) = web.run(&["diagnose", "--quick", "--requests", "1", "--verify", "requests in flight"]);
        assert!(tried.stdout.contains("bound by  read"), "{}", tried.stdout);
        let remedies = rows(&out, "remedies.csv");
        let requests = remedies.iter().find(|row| row["remedy"] == "requests in flight").unwrap();
        assert_eq!((requests["status"].as_str(), requests["effect"].as_str()), ("ok", "gain"), "{requests:?}");
        assert!(requests["change"].starts_with("requests "), "{requests:?}");
    }

    pub(super) fn a_number_of_requests_that_was_found_is_not_advised_again() {
        let web = Web::start();
        let (diagnosis, out) = web.run(&["diagnose", "--quick", "--requests", "1024"]);
        let remedies = rows(&out, "remedies.csv");
        let requests = remedies.iter().find(|row| row["remedy"] == "requests in flight").unwrap();
        assert!(requests["status"].starts_with("n/a (already done: "), "{requests:?}");
        assert!(!diagnosis.stdout.contains("requests 1024:"), "{}", diagnosis.stdout);
        assert!(diagnosis.stdout.contains("reads from a store"), "{}", diagnosis.stdout);
    }
}

#[cfg(feature = "object-store")]
use store::{
    a_number_of_requests_that_was_found_is_not_advised_again, a_stores_requests_are_fitted_planned_and_tried,
    every_command_measures_a_store,
};
