//! The binary on CUDA devices of the project's emulator. Its streams run late and in any legal order, so a copy or a
//! forward that omits a wait gives wrong vectors. Needs `-F cuda,nvjpeg`.
#![cfg(unix)]
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::server::{Server, serve};
use crate::common::{CONFORMANCE, PHOTOS, TINY, assert_same_tree, csv, embed, foveate, npy_rows, run};
use foveate_cuda_emulator::for_trial;
use foveate_testkit::{Trial, data, ignore, trials};

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        vectors_are_the_cpus_whatever_order_the_streams_run_in,
        texts_have_the_vectors_of_the_cpu,
        any_number_of_devices_gives_the_same_bytes,
        batches_that_are_decoded_on_the_device_have_the_outcomes_of_the_cpu,
        a_device_that_is_not_there_is_said_in_one_line,
        a_run_refuses_a_cache_where_vectors_depend_on_the_batch,
        f32_that_nobody_asked_for_is_warned_of,
        doctor_says_how_long_a_start_takes,
        the_script_for_gpus_ends_in_a_table,
        a_batch_is_copied_from_memory_of_either_kind,
        a_service_gives_the_vectors_of_the_cpu_and_the_outcomes_of_each_image,
        a_service_that_decodes_on_the_device_does_too,
    ]
}

/// Width of the tiny model's vectors.
const DIM: usize = 64;

/// Returns the folder of the emulated libraries. Ends the trial if the backend `name` of this build does not work with
/// them.
fn emulator(name: &str) -> PathBuf {
    let libraries = for_trial(foveate_cuda_emulator::folder);
    let report = run(foveate().args(["doctor", "--json"]).env("LD_LIBRARY_PATH", &libraries)).json();
    let rows = report["backends"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == name).unwrap();
    let devices = row["devices"].as_array().unwrap();
    if !devices.iter().any(|device| device == "cuda:0") {
        ignore(format!("no CUDA in {name}: {}", row["remedy"].as_str().unwrap_or_default()));
    }
    libraries
}

/// Returns a `foveate embed` command on emulated devices.
fn emulated(output: &Path, libraries: &Path, order: &str) -> Command {
    let mut command = embed(output);
    command.env("LD_LIBRARY_PATH", libraries).env("CUDA_EMULATOR_ORDER", order).env("CUDA_EMULATOR_DEVICES", "2");
    command.env_remove("FOVEATE_CUDA_LIB").args(["--batch", "3", "--workers", "2"]);
    command
}

fn worst_cosine(left: &[Vec<f32>], right: &[Vec<f32>]) -> f64 {
    assert_eq!(left.len(), right.len());
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let cosine = |(a, b): (&Vec<f32>, &Vec<f32>)| dot(a, b) / (dot(a, a) * dot(b, b)).sqrt();
    left.iter().zip(right).map(cosine).fold(1.0, f64::min)
}

fn vectors_are_the_cpus_whatever_order_the_streams_run_in() {
    let libraries = emulator("fused");
    let folder = tempfile::tempdir().unwrap();
    let reference = folder.path().join("cpu.npy");
    // Good and bad images: enough for every batch size up to three, and for more batches than are in flight at once.
    let inputs = [CONFORMANCE, PHOTOS, "--limit", "20"];
    run(embed(&reference).args(inputs)).expect(0);
    let expected = npy_rows(&reference, DIM);
    for (dtype, order, least) in [
        ("f32", "late", 1.0 - 1e-6),
        ("f32", "random:1", 1.0 - 1e-6),
        ("f16", "eager", 0.999),
        ("bf16", "random:3", 0.999),
    ] {
        let out = folder.path().join(format!("{dtype}-{order}.npy"));
        let args = ["--device", "cuda:0", "--dtype", dtype];
        run(emulated(&out, &libraries, order).args(inputs).args(args)).expect(0);
        let worst = worst_cosine(&npy_rows(&out, DIM), &expected);
        assert!(worst >= least, "{dtype}, {order}: {worst}");
        let failures = |npy: &Path| csv(&foveate::sink::record_of(npy, "failures.csv"));
        assert_eq!(failures(&out), failures(&reference), "{dtype}, {order}");
    }
}

fn texts_have_the_vectors_of_the_cpu() {
    let libraries = emulator("fused");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("lines.txt"), "a cat\na red bicycle in snow\na dog that sleeps\n").unwrap();
    let model = data("families/clip-gelu");
    let texts = |output: &str, device: &str| {
        let mut command = foveate();
        command.current_dir(folder.path()).env("LD_LIBRARY_PATH", &libraries).env_remove("FOVEATE_CUDA_LIB");
        command.args(["embed-text", "lines.txt", "-o", output, "--device", device, "--model"]).arg(&model);
        run(&mut command)
    };
    texts("cpu.npy", "cpu").expect(0);
    texts("cuda.npy", "cuda:0").expect(0);
    let rows = ["cpu.npy", "cuda.npy"].map(|name| npy_rows(&folder.path().join(name), 40));
    assert!(worst_cosine(&rows[1], &rows[0]) >= 1.0 - 1e-9);
    texts("cpu.npy", "cuda:0").expect_error(2, "device");
}

fn any_number_of_devices_gives_the_same_bytes() {
    let libraries = emulator("fused");
    let folder = tempfile::tempdir().unwrap();
    let outputs = ["cuda:0", "cuda:0,cuda:1", "cuda:1,cuda:0,cuda:0"].map(|devices| {
        let out = folder.path().join(devices.replace([':', ','], "-"));
        let args = ["--part-items", "8", "--device", devices];
        run(emulated(&out, &libraries, "random:7").args([CONFORMANCE, PHOTOS, "--limit", "24"]).args(args)).expect(0);
        out
    });
    assert_same_tree(&outputs[0], &outputs[1]);
    assert_same_tree(&outputs[0], &outputs[2]);
}

fn batches_that_are_decoded_on_the_device_have_the_outcomes_of_the_cpu() {
    emulator("fused");
    let libraries = emulator("nvjpeg");
    let folder = tempfile::tempdir().unwrap();
    let reference = folder.path().join("cpu.npy");
    run(embed(&reference).args([PHOTOS, CONFORMANCE])).expect(0);
    for (devices, order) in [("cuda:0", "late"), ("cuda:0,cuda:1", "random:5")] {
        let out = folder.path().join(format!("{}-{order}.npy", devices.len()));
        let args = ["--device", devices, "--decoder", "nvjpeg"];
        run(emulated(&out, &libraries, order).args([PHOTOS, CONFORMANCE]).args(args)).expect(0);
        let record = |npy: &Path, name: &str| foveate::sink::record_of(npy, name);
        assert_eq!(csv(&record(&out, "failures.csv")), csv(&record(&reference, "failures.csv")), "{devices}, {order}");
        let manifest: serde_json::Value =
            serde_json::from_slice(&std::fs::read(record(&out, "manifest.json")).unwrap()).unwrap();
        let has = |setting: &str, says: &str| manifest["fingerprint"][setting].as_str().unwrap().contains(says);
        assert!(has("kernels", "cuBLASLt 1") && has("kernels", ", CUDA 1") && has("pixels", "nvJPEG 1"), "{manifest}");
        let worst = worst_cosine(&npy_rows(&out, DIM), &npy_rows(&reference, DIM));
        assert!(worst >= 0.99, "{devices}, {order}: {worst}");
    }
}

fn a_device_that_is_not_there_is_said_in_one_line() {
    let libraries = emulator("fused");
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("x.npy");
    let ran = run(emulated(&out, &libraries, "late").args([PHOTOS, "--device", "cuda:2"])).expect(2);
    assert!(ran.stderr.contains("device cuda:2 unavailable"), "{}", ran.stderr);
    let small = run(emulated(&out, &libraries, "late")
        .env("CUDA_EMULATOR_MEMORY", "1000000")
        .args([PHOTOS, "--device", "cuda:0"]))
    .expect(1);
    let said = |text: &str| text.lines().filter(|line| line.starts_with("error")).count();
    assert_eq!((said(&ran.stderr), said(&small.stderr)), (1, 1), "{}{}", ran.stderr, small.stderr);
    assert!(!out.exists());
}

fn a_run_refuses_a_cache_where_vectors_depend_on_the_batch() {
    let libraries = emulator("fused");
    let folder = tempfile::tempdir().unwrap();
    let (out, cache) = (folder.path().join("x.npy"), folder.path().join("cache"));
    let mut command = emulated(&out, &libraries, "late");
    command.args([PHOTOS, PHOTOS, "--device", "cuda:0", "--limit", "40", "--json"]);
    assert_eq!(run(&mut command).expect(0).json()["session"]["from_run"], 0, "not even within the run");
    let ran = run(command.args(["--overwrite", "--cache"]).arg(&cache)).expect(2);
    assert!(ran.stderr.contains("fused on cuda:0 does not"), "{}", ran.stderr);
    assert!(!cache.exists());
}

fn f32_that_nobody_asked_for_is_warned_of() {
    let libraries = emulator("fused");
    let folder = tempfile::tempdir().unwrap();
    let said = |device: &str, dtype: &[&str]| {
        let out = folder.path().join(format!("{device}{}.npy", dtype.len()));
        let args = [PHOTOS, "--limit", "1", "--device", device];
        run(emulated(&out, &libraries, "eager").args(args).args(dtype)).expect(0).stderr
    };
    let warned = said("cuda:0", &[]);
    let warning: Vec<&str> = warned.lines().filter(|line| line.starts_with("warning")).collect();
    assert!(matches!(warning[..], [line] if line.contains("`--dtype f16`") && line.contains("cuda:0")), "{warned}");
    for (device, dtype) in [("cuda:0", &["--dtype", "f32"][..]), ("cpu", &[][..])] {
        assert!(!said(device, dtype).contains("warning"), "{device}");
    }
}

/// The driver compiles the kernels at the first start, and keeps them where its variable says.
fn doctor_says_how_long_a_start_takes() {
    let libraries = emulator("fused");
    let mut doctor = foveate();
    doctor.args(["doctor", "--json"]).env("LD_LIBRARY_PATH", &libraries).env("CUDA_CACHE_PATH", "/kept");
    let report = run(&mut doctor).json();
    let rows = report["backends"].as_array().unwrap();
    let library = rows.iter().find(|row| row["name"] == "fused").unwrap()["library"].as_str().unwrap();
    assert!(library.contains(" s (the driver keeps them in /kept)"), "{library}");
}

/// The script that `cargo xtask gpu-bundle` packs, on an emulated device: what it compares is equal, and what this
/// machine lacks is n/a. In the long form, every step runs.
fn a_batch_is_copied_from_memory_of_either_kind() {
    let libraries = emulator("fused");
    let folder = tempfile::tempdir().unwrap();
    let mut command = foveate();
    command.env("LD_LIBRARY_PATH", &libraries).env_remove("FOVEATE_CUDA_LIB").args(["bench", "copies", PHOTOS]);
    command.args(["--model", TINY, "--n", "2", "--as-given", "--batch", "4", "--device", "cuda:0", "--dtype", "f32"]);
    run(command.args(["--quick", "--seconds", "0.05", "--quiet", "-o"]).arg(folder.path())).expect(0);
    let rows = csv(&folder.path().join("copies.csv"));
    let copied: Vec<String> =
        rows.iter().map(|row| format!("{} {} {}", row["from"], row["dtype"], row["status"])).collect();
    assert_eq!(copied[3..], ["pageable u8 ok", "pageable f32 ok", "pinned u8 ok", "pinned f32 ok"], "{copied:?}");
}

fn the_script_for_gpus_ends_in_a_table() {
    emulator("fused");
    let libraries = emulator("nvjpeg");
    drop(foveate_testkit::python(&[]));
    let (folder, root) = (tempfile::tempdir().unwrap(), foveate_testkit::workspace());
    let bundle = |name: &str| folder.path().join(name);
    copy_files(&root.join("xtask/gpu"), &bundle(""), usize::MAX);
    copy_files(&root.join("tests/fixtures/models/tiny"), &bundle("models/tiny"), usize::MAX);
    copy_files(&root.join("tests/fixtures/goldens/crop_hf_pil"), &bundle("goldens/crop_hf_pil"), 4);
    copy_files(&root.join("tests/fixtures/goldens"), &bundle("goldens"), usize::MAX);
    copy_files(&root.join("tests/fixtures/conformance/jpeg"), &bundle("conformance"), 12);
    copy_files(&root.join("examples/photos"), &bundle("photos"), 3);
    let mut script = Command::new("bash");
    script.arg(bundle("check.sh")).args(["--smoke", "--device", "cuda:0"]);
    script.args(foveate_testkit::by_length(&["--only", "verify,decoders"][..], &[][..]));
    script.env("FOVEATE", env!("CARGO_BIN_EXE_foveate")).env("OUT", bundle("out")).env("LD_LIBRARY_PATH", &libraries);
    let output = script.env_remove("FOVEATE_CUDA_LIB").output().unwrap();
    let table = std::fs::read_to_string(bundle("out/table.txt")).unwrap_or_default();
    let log = || std::fs::read_to_string(bundle("out/log.txt")).unwrap_or_default();
    assert!(output.status.success(), "{table}\n{}\n{}", log(), String::from_utf8_lossy(&output.stderr));
    for (row, verdict) in [
        ("verify: fused f32 beside device=cpu", "strict: met"),
        ("verify: fused f16 beside device=cpu", "half: met"),
        ("verify: fused bf16 beside device=cpu", "half: met"),
        ("decoders: nvjpeg beside exact: photos", "met"),
        ("decoders: nvjpeg beside exact: conformance", "met"),
    ] {
        let line = table.lines().find(|line| line.starts_with(row));
        assert!(line.is_some_and(|line| line.ends_with(verdict)), "{row}\n{table}\n{}", log());
    }
}

/// Copies the first files of a folder by name, without its folders.
fn copy_files(from: &Path, to: &Path, most: usize) {
    std::fs::create_dir_all(to).unwrap();
    let mut files: Vec<PathBuf> = std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.is_file());
    files.sort();
    for file in files.iter().take(most) {
        std::fs::copy(file, to.join(file.file_name().unwrap())).unwrap();
    }
}

/// Returns the answer of `foveate serve` on emulated devices to one request with these files: for each file a vector,
/// or the stage that failed.
fn served(libraries: &Path, order: &str, files: &[PathBuf], args: &[&str]) -> Vec<Result<Vec<f32>, String>> {
    let mut command = serve();
    // An emulated device is slow.
    command.args(["--batch", "5", "--workers", "2", "--timeout", "900", "--stall", "900"]).args(args);
    command.env("LD_LIBRARY_PATH", libraries).env("CUDA_EMULATOR_ORDER", order).env("CUDA_EMULATOR_DEVICES", "2");
    let graphs = tempfile::NamedTempFile::new().unwrap();
    command.env("CUDA_EMULATOR_GRAPHS", graphs.path());
    let server = Server::start(command.env_remove("FOVEATE_CUDA_LIB"));
    assert!(server.beginning.contains("computes in f32"), "{}", server.beginning);
    let answer = post(&server, files);
    check_graphs(&std::fs::read_to_string(graphs.path()).unwrap(), &server.ask("GET /metrics", "", b""));
    let vector = |item: &serde_json::Value| match item["embedding"].as_array() {
        Some(components) => Ok(components.iter().map(|component| component.as_f64().unwrap() as f32).collect()),
        None => Err(item["error"].to_string()),
    };
    answer["data"].as_array().unwrap_or_else(|| panic!("{answer}")).iter().map(vector).collect()
}

/// Checks that each device captured one graph for each size of its batches, of which there are at most five. A graph's
/// line is its device and a number that grows with the batch.
fn check_graphs(graphs: &str, metrics: &str) {
    let count = "foveate_batch_images_count{task=\"embed\"} ";
    let batches = metrics.lines().find_map(|line| line.strip_prefix(count)).unwrap_or_else(|| panic!("{metrics}"));
    let distinct: BTreeSet<&str> = graphs.lines().collect();
    assert_eq!(graphs.lines().count(), distinct.len(), "captured again: {graphs}");
    for device in ["0", "1"] {
        let sizes = distinct.iter().filter(|line| line.starts_with(device)).count();
        assert!(sizes <= 5, "{graphs}");
    }
    assert!(!distinct.is_empty() && batches.parse::<usize>().unwrap() > distinct.len(), "{batches}: {graphs}");
}

/// Posts a form with these files and returns the answer.
fn post(server: &Server, files: &[PathBuf]) -> serde_json::Value {
    let mut body = Vec::new();
    for file in files {
        body.extend(b"--edge\r\nContent-Disposition: form-data; name=\"image\"; filename=\"x\"\r\n\r\n");
        body.extend(std::fs::read(file).unwrap());
        body.extend(b"\r\n");
    }
    body.extend(b"--edge\r\nContent-Disposition: form-data; name=\"partial_results\"\r\n\r\ntrue\r\n--edge--\r\n");
    let answer = server.ask("POST /v1/embeddings", "Content-Type: multipart/form-data; boundary=edge\r\n", &body);
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

/// A service's arguments, the order of the streams, and the minimum cosine.
type Service<'a> = (&'a [&'a str], &'a str, f64);

fn a_service_gives_the_vectors_of_the_cpu_and_the_outcomes_of_each_image() {
    let jobs: [Service<'_>; 2] =
        [(&["--device", "cuda:0"], "late", 1.0 - 1e-6), (&["--device", "cuda:0,cuda:1"], "random:2", 1.0 - 1e-6)];
    serves(&emulator("fused"), &jobs);
}

fn a_service_that_decodes_on_the_device_does_too() {
    emulator("fused");
    let jobs: [Service<'_>; 2] = [
        (&["--device", "cuda:0", "--decoder", "nvjpeg"], "late", 0.99),
        (&["--device", "cuda:0,cuda:1", "--decoder", "nvjpeg"], "random:5", 0.99),
    ];
    serves(&emulator("nvjpeg"), &jobs);
}

fn serves(libraries: &Path, jobs: &[Service<'_>]) {
    let folder = tempfile::tempdir().unwrap();
    let reference = folder.path().join("cpu.npy");
    let files = |folder: &str| std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let damaged = format!("{CONFORMANCE}/damaged");
    let is_small = |path: &PathBuf| std::fs::metadata(path).unwrap().len() < 60_000;
    let mut files: Vec<PathBuf> = files(PHOTOS).chain(files(&damaged)).filter(is_small).collect();
    files.sort();
    run(embed(&reference).args(&files)).expect(0);
    let failed: Vec<String> =
        csv(&foveate::sink::record_of(&reference, "failures.csv")).iter().map(|row| row["id"].clone()).collect();
    let expected = npy_rows(&reference, DIM);
    assert!(!failed.is_empty() && files.len() <= 64, "some of a request's files have no vector");
    for &(args, order, least) in jobs {
        let answers = served(libraries, order, &files, args);
        assert_eq!(answers.len(), files.len());
        for (file, answer) in files.iter().zip(&answers) {
            let fails = failed.iter().any(|id| file.ends_with(id) || *id == file.display().to_string());
            assert_eq!(answer.is_err(), fails, "{}, {args:?}: {answer:?}", file.display());
        }
        let worst = worst_cosine(&answers.into_iter().flatten().collect::<Vec<_>>(), &expected);
        assert!(worst >= least, "{args:?}, {order}: {worst}");
    }
}
