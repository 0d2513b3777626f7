//! The measuring commands, run as a user would: files that other programs can read, and clear messages if nothing can
//! be measured.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::common::{CONFORMANCE, PHOTOS, TINY, foveate, run};
use foveate_testkit::by_length;

/// Returns a command on the fixture photos with the tiny model.
fn lab(words: &[&str], out: &Path) -> Command {
    let mut command = foveate();
    command.args(words).arg(PHOTOS).args(["--model", TINY, "--n", "6", "--quiet", "-o"]).arg(out);
    // A stage alone has no batches.
    if !words.contains(&"resizers") {
        command.args(["--batch", "4"]);
    }
    command
}

/// Reads a CSV file's rows, by column.
fn rows(folder: &Path, file: &str) -> Vec<BTreeMap<String, String>> {
    let mut reader = csv::Reader::from_path(folder.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    reader.deserialize().collect::<Result<_, _>>().unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn number(row: &BTreeMap<String, String>, column: &str) -> f64 {
    row[column].parse().unwrap_or_else(|_| panic!("{column} is '{}'", row[column]))
}

#[test]
fn a_profile_covers_the_wall_clock_and_writes_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.json");
    let mut command = lab(&["profile", "--images", "48", "--normalize-on-cpu", "--as-given"], folder.path());
    command.arg("--trace").arg(&trace);
    fs::write(&trace, "{\"traceEvents\":[]}").unwrap();
    run(&mut command).expect_error(2, "trace.json already exists, and no `--trace` wrote it; name another output");
    fs::remove_file(&trace).unwrap();
    let ran = run(&mut command).expect(0);
    for stage in ["read", "decode", "resize", "normalize", "batch", "forward", "serialize"] {
        assert!(ran.stdout.contains(stage), "{}", ran.stdout);
    }
    let serial = |row: &&BTreeMap<String, String>| row["mode"] == "serial";
    let all = rows(folder.path(), "profile.csv");
    let stages: f64 = all.iter().filter(serial).map(|row| number(row, "total_s")).sum();
    let wall = number(&all[0], "wall_s");
    assert!((stages / wall - 1.0).abs() < 0.02, "{stages} of {wall}");
    assert!(all.iter().any(|row| row["mode"] == "threaded" && row["stage"] == "decode"));

    let trace: serde_json::Value = serde_json::from_slice(&fs::read(trace).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let named = |name: &str, phase: &str| events.iter().filter(|e| e["name"] == name && e["ph"] == phase).count();
    assert_eq!((named("decode", "X"), named("read → decode", "C") > 48), (48, true));
    let names: Vec<_> = events.iter().filter(|e| e["name"] == "thread_name").map(|e| &e["args"]["name"]).collect();
    for thread in ["read-0", "decode-0", "encode", "cpu forward"] {
        assert!(names.iter().any(|name| *name == thread), "{thread} is not in {names:?}");
    }
}

#[test]
fn a_stand_in_is_named_in_every_row_and_no_job_can_use_it() {
    let folder = tempfile::tempdir().unwrap();
    let device = "stand-in t4-f16: 10.47+0.8304·n ms, fixed part assumed";
    let profile = ["profile", "--images", "16", "--as-given", "--stand-in", "t4-f16", "--decode-scale", "low"];
    run(&mut lab(&profile, folder.path())).expect(0);
    let measured = rows(folder.path(), "profile.csv");
    assert!(measured.iter().all(|row| row["device"] == device && row["encoder"] == "stand-in t4-f16"), "{measured:?}");
    assert!(measured.iter().all(|row| row["dtype"] == "f16" && row["decode_scale"] == "low"), "{measured:?}");
    let forward = measured.iter().find(|row| row["stage"] == "forward").unwrap();
    assert!((number(forward, "ms_per_image") - (10.47 / 4.0 + 0.830442)).abs() < 1e-3, "{forward:?}");

    run(&mut lab(&["bench", "batch-sweep", "--quick", "--images", "8", "--stand-in", "5+1*n"], folder.path()))
        .expect(0);
    let sweep = rows(folder.path(), "batch_sweep.csv");
    assert!(sweep.iter().all(|row| row["device"] == "stand-in 5+1·n ms"), "{sweep:?}");
    run(foveate().arg("report").arg(folder.path())).expect(0);
    let figure = fs::read_to_string(folder.path().join("figures/batch_sweep.svg")).unwrap();
    assert!(figure.contains("The forward is a "), "{figure}");

    let mut refused = lab(&["profile", "--stand-in", "t5"], folder.path());
    run(&mut refused).expect_error(2, "no stand-in 't5'; give t4-f16, a100-f16, h100-f16, h200-f16, or");
    let help = run(foveate().args(["plan", "--help"])).expect(0).stdout;
    assert!(help.contains("h100-f16") && help.contains("h200-f16"), "{help}");
    let mut embed = crate::common::embed(&folder.path().join("x.npy"));
    run(embed.args([PHOTOS, "--encoder", "stand-in t4-f16"])).expect_error(2, "there is no encoder 'stand-in t4-f16'");
}

#[test]
fn a_plan_takes_the_device_of_a_stand_in_and_the_rest_of_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let profile = ["profile", "--images", "16", "--as-given", "--readers", "3", "--prefetch", "2"];
    run(&mut lab(&profile, folder.path())).expect(0);
    let measured = rows(folder.path(), "profile.csv");
    assert!(measured.iter().all(|row| row["readers"] == "3" && row["prefetch"] == "2"), "{measured:?}");
    let plan = |more: &[&str]| run(foveate().args(["plan", "--json", "--from"]).arg(folder.path()).args(more));
    // No forward was measured; the stand-in has one.
    plan(&[]).expect_error(1, "no forward of");
    let slow = plan(&["--stand-in", "1000+0*n"]).expect(0).json();
    let rate = slow["state"]["images_per_second"].as_f64().unwrap();
    assert!((rate - 4.0).abs() < 1e-6, "a batch of four in a second: {slow}");

    // Machines with the run's cores and other devices: the first waits for its bus, the second for its device.
    let list = folder.path().join("list.csv");
    let machines = "machine,cores,device,price_per_hour,watts\nslow,64,1000+0*n,1,500\nfast,64,t4-f16,2,100\n";
    fs::write(&list, machines).unwrap();
    let priced = |more: &[&str]| {
        let list = list.to_str().unwrap();
        plan(&[&["--stand-in", "t4-f16", "--images", "36K", "--price-list", list], more].concat())
    };
    let said = priced(&[]).expect(0).json();
    let rows: Vec<(String, f64, f64)> = said["machines"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            let number = |name: &str| row[name].as_f64().unwrap();
            (row["machine"].as_str().unwrap().to_owned(), number("hours"), number("money") / number("hours"))
        })
        .collect();
    assert_eq!((rows[0].0.as_str(), rows[1].0.as_str()), ("fast", "slow"), "{said}");
    assert!((rows[1].1 - 2.5).abs() < 1e-6 && rows.iter().map(|row| row.2.round()).eq([2.0, 1.0]), "{said}");
    let bus = priced(&["--bus", "1K"]).expect(0).json();
    assert_eq!((&bus["state"]["bound"], &bus["machines"][0]["limit"]), (&"bus".into(), &"the bus".into()), "{bus}");
    fs::write(&list, machines.replace("t4-f16", "t5")).unwrap();
    priced(&[]).expect_error(1, "fast: no stand-in 't5'");
    // Work on each image makes it slower, and more workers than cores are no advice without a word.
    let rate = |more: &[&str]| {
        plan(&[&["--stand-in", "t4-f16"], more].concat()).expect(0).json()["state"]["images_per_second"]
            .as_f64()
            .unwrap()
    };
    assert!(rate(&["--augment-ms", "100"]) < 0.9 * rate(&[]));
    let told =
        run(foveate().args(["plan", "--stand-in", "t4-f16", "--augment-ms", "1000", "--from"]).arg(folder.path()))
            .expect(0);
    assert!(told.stdout.contains("each worker takes a core") && !told.stdout.contains("0.000 MB/s"), "{}", told.stdout);

    // Files that are not in the page cache are the storage of a job larger than the memory.
    set(folder.path(), "storage.csv", "cache", "cold");
    set(folder.path(), "storage.csv", "mb_per_second", "0.001");
    let cold = plan(&["--stand-in", "t4-f16"]).expect(0).json();
    assert_eq!(cold["state"]["bound"], "storage", "{cold}");
}

/// Sets a column of all rows of a CSV file.
fn set(folder: &Path, file: &str, column: &str, value: &str) {
    let path = folder.join(file);
    let mut reader = csv::Reader::from_path(&path).unwrap();
    let header = reader.headers().unwrap().clone();
    let at = header.iter().position(|name| name == column).unwrap();
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(&header).unwrap();
    for row in reader.records().map(Result::unwrap) {
        writer.write_record(row.iter().enumerate().map(|(n, cell)| if n == at { value } else { cell })).unwrap();
    }
    fs::write(path, writer.into_inner().unwrap()).unwrap();
}

/// Writes the fixture photos to a zip archive.
fn zip(path: &Path) {
    let mut archive = rawzip::ZipArchiveWriter::new(fs::File::create(path).unwrap());
    let mut photos: Vec<_> = fs::read_dir(PHOTOS).unwrap().map(|entry| entry.unwrap().path()).collect();
    photos.sort();
    for photo in photos.iter().filter(|photo| photo.extension().is_some_and(|extension| extension == "jpg")) {
        let (mut entry, config) = archive.new_file(photo.file_name().unwrap().to_str().unwrap()).start().unwrap();
        let mut writer = config.wrap(&mut entry);
        std::io::copy(&mut fs::File::open(photo).unwrap(), &mut writer).unwrap();
        let (_, descriptor) = writer.finish().unwrap();
        entry.finish(descriptor).unwrap();
    }
    archive.finish().unwrap();
}

#[test]
fn photos_in_a_container_are_measured_in_the_container() {
    let folder = tempfile::tempdir().unwrap();
    let photos = folder.path().join("photos.zip");
    zip(&photos);
    let command = |words: &[&str]| {
        let mut command = foveate();
        command.args(words).arg(&photos).args(["--model", TINY, "--batch", "2"]);
        command
    };
    let out = folder.path().join("run");
    let small = ["--n", "6", "--quiet", "--as-given", "-o", out.to_str().unwrap()];
    let profile = run(command(&["profile", "--images", "16"]).args(small)).expect(0);
    assert!(profile.stdout.contains("alone, the storage delivers"), "{}", profile.stdout);
    assert!(rows(&out, "profile.csv").iter().all(|row| number(row, "storage_mb_per_second") > 0.0));
    run(command(&["bench", "batch-sweep", "--seconds", "0.05"]).args(small)).expect(0);
    set(&out, "profile.csv", "storage_mb_per_second", "0.01");
    let plan = run(foveate().args(["plan", "--json", "--from"]).arg(&out)).expect(0).json();
    assert_eq!(plan["prediction"]["bound"]["stage"]["stage"], "storage", "{plan}");
    let cold = run(command(&["diagnose", "--quick", "--cold"]).args(small)).expect(0);
    assert!(cold.stdout.contains("cold reads"), "{}", cold.stdout);
    let verify = run(&mut command(&["verify", "--sample", "6", "--json", "--decode-scale", "exact"])).expect(0).json();
    assert_eq!((&verify["compared"], &verify["failed_under_both"]), (&6.into(), &0.into()), "{verify}");
    let mut pipe = foveate();
    pipe.args(["profile", "-", "--model", TINY]);
    run(&mut pipe).expect_error(2, "reads its photos several times");
}

#[test]
fn small_files_are_tried_in_a_tar_by_a_build_that_reads_it() {
    let folder = tempfile::tempdir().unwrap();
    let (photos, out) = (folder.path().join("photos"), folder.path().join("run"));
    fs::create_dir(&photos).unwrap();
    for photo in fs::read_dir(PHOTOS).unwrap().map(|entry| entry.unwrap().path()) {
        if fs::metadata(&photo).unwrap().len() < 40_000 {
            fs::copy(&photo, photos.join(photo.file_name().unwrap())).unwrap();
        }
    }
    let mut command = foveate();
    command.args(["diagnose", "--quick", "--quiet", "--as-given", "--n", "8", "--batch", "2", "--model", TINY]);
    let ran = run(command.arg(&photos).args(["--verify", "tar shards", "-o"]).arg(&out));
    let backends = run(foveate().args(["backends", "--json"])).expect(0).json();
    let is_tar = |entry: &&serde_json::Value| entry["kind"] == "container" && entry["name"] == "tar";
    if !backends.as_array().unwrap().iter().find(is_tar).is_some_and(|tar| tar["compiled"] == true) {
        return ran.expect_error(1, "remedy 'tar shards' does not apply: this build reads no tar files");
    }
    ran.expect(0);
    let remedies = rows(&out, "remedies.csv");
    let tar = remedies.iter().find(|row| row["remedy"] == "tar shards").unwrap();
    assert_eq!(tar["status"], "ok");
    assert!(number(tar, "predicted") > 0.0 && number(tar, "measured") > 0.0, "{tar:?}");
}

#[test]
fn large_photos_are_tried_at_the_size_that_the_recipe_needs() {
    let out = tempfile::tempdir().unwrap();
    let photos = ["01_astronaut_420", "03_coffee_420", "11_camera_gray"].map(|name| format!("{PHOTOS}/{name}.jpg"));
    let mut command = foveate();
    command.args(["diagnose", "--quick", "--quiet", "--as-given", "--batch", "2", "--model", TINY]).args(photos);
    run(command.args(["--verify", "small photos", "-o"]).arg(out.path())).expect(0);
    let remedies = rows(out.path(), "remedies.csv");
    let small = remedies.iter().find(|row| row["remedy"] == "small photos").unwrap();
    assert_eq!(small["status"], "ok");
    assert!(number(small, "predicted") > 0.0 && number(small, "measured") > 0.0, "{small:?}");
}

/// The same command of another program.
fn with_program(program: &Path, command: &Command) -> Command {
    let mut other = Command::new(program);
    other.args(command.get_args()).stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => other.env(name, value),
            None => other.env_remove(name),
        };
    }
    other
}

#[test]
fn everything_can_be_measured_planned_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    let run_dir = folder.path().join("run");
    let mut command = lab(&["bench", "all", "--quick", "--images", "8", "--json"], &run_dir);
    command.args(by_length(&["--seconds", "0.05"][..], &[]));
    // Memory is measured in processes of the program, whatever its name is.
    let program = folder.path().join("embedder");
    fs::copy(command.get_program(), &program).unwrap();
    let mut command = with_program(&program, command.args(["--workers", "1"]));
    let json = run(&mut command).expect(0).json();
    assert!(json["median_error"].is_number() && json["disturbed"].is_object(), "{json}");
    assert_eq!(json["control"].as_array().unwrap().len(), 14, "after each experiment");
    for (file, column) in [
        ("profile.csv", "ms_per_image"),
        ("decoders.csv", "p90_ms"),
        ("resizers.csv", "p50_ms"),
        ("sinks.csv", "rows_per_second"),
        ("forward.csv", "images_per_second"),
        ("batch_sweep.csv", "peak_memory_mb"),
        ("job_batch_sweep.csv", "encoder_busy"),
        ("worker_sweep.csv", "encoder_busy"),
        ("headline.csv", "times_baseline"),
        ("worker.csv", "times_first"),
        ("extrapolation.csv", "hours"),
        ("diagnosis.csv", "images_per_second"),
        ("remedies.csv", "now"),
        ("tuning.csv", "prefetch"),
        ("plan.csv", "error"),
        ("control.csv", "times_median"),
    ] {
        let measured = rows(&run_dir, file);
        assert_eq!(json[file.trim_end_matches(".csv")].as_array().unwrap().len(), measured.len(), "{file}");
        assert!(measured.iter().any(|row| number_or_nan(row, column).is_finite()), "{file}: no {column}");
        assert!(measured.iter().all(|row| !row["host"].is_empty() && row["model"] == "tiny"), "{file}");
        assert!(measured.iter().all(|row| row.get("status").is_none_or(|s| s == "ok" || s.starts_with("n/a ("))));
    }
    assert!(rows(&run_dir, "batch_sweep.csv").iter().all(|row| row["memory_of"] == "process of its own"));
    let regimes: Vec<String> = rows(&run_dir, "plan.csv").iter().map(|row| row["regime"].clone()).collect();
    let of = |regime: &str| regimes.iter().filter(|of| *of == regime).count();
    assert!(regimes.len() >= 12 && of("storage") >= 4 && of("compute") <= regimes.len() / 2, "{regimes:?}");
    assert!(rows(&run_dir, "headline.csv").iter().any(|row| row["change"] == "preprocessing alone"));
    let last = rows(&run_dir, "worker.csv").pop().unwrap();
    let published = ["downloaders", "callers", "queue_size", "batch"].map(|column| last[column].clone());
    assert_eq!(published, ["10", "3", "32", "8"], "{last:?}");
    assert!(json["no_device_figures"].as_str().unwrap().contains("runs on cpu"), "{json}");

    let planned = run(foveate().args(["plan", "--images", "10M", "--price", "2", "--from"]).arg(&run_dir)).expect(0);
    assert!(planned.stdout.contains("10000000 images on 1 machine:"), "{}", planned.stdout);
    assert!(planned.stdout.contains("1 worker, "), "{}", planned.stdout);
    assert!(!planned.stdout.contains("accelerator"), "the forward ran on the CPU: {}", planned.stdout);

    run(foveate().arg("report").arg(&run_dir)).expect(0);
    let page = fs::read_to_string(run_dir.join("report.html")).unwrap();
    assert!(page.contains("<svg") && !page.contains("<script src") && !page.contains("<link"), "{}", page.len());
}

/// Children that keep every core busy, until they are dropped.
struct BusyMachine(Vec<Child>);

impl BusyMachine {
    fn new() -> Self {
        let count = std::thread::available_parallelism().unwrap().get();
        let spin = || Command::new("sh").args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn().unwrap();
        Self((0..count).map(|_| spin()).collect())
    }
}

impl Drop for BusyMachine {
    fn drop(&mut self) {
        for child in &mut self.0 {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_disturbed_run_says_so_first_and_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    let busy = BusyMachine::new();
    let measured = run(&mut lab(&["bench", "batch-sweep", "--quick", "--images", "64"], folder.path())).expect(0);
    let profile = ["profile", "--images", "24", "--as-given", "--json"];
    let profile = run(&mut lab(&profile, folder.path())).expect(0).json();
    let config = folder.path().join("foveate.toml");
    let tune = ["tune", "--budget", "1", "--as-given", "--write", config.to_str().unwrap()];
    run(&mut lab(&tune, folder.path())).expect_error(1, "foveate.toml is not written: other processes used ");
    assert!(!config.exists());
    drop(busy);
    let first = measured.stdout.lines().find(|line| !line.is_empty()).unwrap();
    assert!(first.starts_with("DISTURBED: other processes used "), "{}", measured.stdout);
    let sweep = rows(folder.path(), "batch_sweep.csv");
    assert!(sweep.iter().all(|row| row["disturbed"].starts_with("other processes used ")), "{sweep:?}");
    assert!(sweep.iter().all(|row| number(row, "others") > 0.1 && number(row, "load") > 0.0), "{sweep:?}");
    assert!(sweep.iter().all(|row| row["knee"].is_empty()), "a choice by medians alone: {sweep:?}");

    assert!(profile["disturbed"]["profile"].is_string(), "{profile}");

    run(foveate().arg("report").arg(folder.path())).expect(0);
    let page = fs::read_to_string(folder.path().join("report.html")).unwrap();
    let [warning, figures] = ["This run was disturbed", "<svg"].map(|text| page.find(text).unwrap());
    assert!(warning < figures);
}

fn number_or_nan(row: &BTreeMap<String, String>, column: &str) -> f64 {
    row[column].parse().unwrap_or(f64::NAN)
}

#[test]
fn tuning_writes_what_embedding_reads() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("foveate.toml");
    let mut command = lab(&["tune", "--budget", "2", "--as-given", "--disturbed"], folder.path());
    run(command.arg("--write").arg(&config)).expect(0);
    let mut again = lab(&["tune"], folder.path());
    run(again.arg("--write").arg(&config)).expect_error(2, "foveate.toml exists; pass --overwrite to replace it");
    assert!(rows(folder.path(), "tuning.csv").iter().any(|row| row["chosen"] == "yes"));
    let output = folder.path().join("x.npy");
    let mut embed = crate::common::embed(&output);
    run(embed.args([PHOTOS, "--limit", "4", "--config"]).arg(&config)).expect(0);
    assert!(output.exists());

    fs::write(&config, "[drift-budget]\nmin-cosine = 0.99\n").unwrap();
    let mut embed = crate::common::embed(&output);
    run(embed.arg(PHOTOS).arg("--config").arg(&config)).expect_error(2, "[drift-budget] has no fingerprint");

    fs::write(&config, "wrokers = 3\n").unwrap();
    let mut embed = crate::common::embed(&output);
    run(embed.arg(PHOTOS).arg("--config").arg(&config)).expect_error(2, "no option 'wrokers'");
    for command in ["tune", "profile", "diagnose"] {
        let mut command = lab(&[command], folder.path());
        run(command.arg("--config").arg(&config)).expect_error(2, "no option 'wrokers'");
    }
}

/// Different photos for the two halves of a drift budget's sample.
const MORE_PHOTOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/photos");

#[test]
fn a_drift_budget_and_its_evidence_go_into_the_configuration_and_the_manifest() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("foveate.toml");
    let mut tune = lab(&["tune", "--min-cosine", "0.99", "--budget", "0.1", "--disturbed", MORE_PHOTOS], folder.path());
    run(tune.arg("--write").arg(&config)).expect(0);
    let tried = rows(folder.path(), "drift.csv");
    let chosen: Vec<_> = tried.iter().filter(|row| row["chosen"] == "yes").collect();
    assert_eq!((chosen.len(), chosen[0]["within"].as_str()), (1, "yes"));
    let ran: Vec<_> = tried.iter().filter(|row| row["status"] == "ok").collect();
    assert!(ran.iter().any(|row| row["within"] == "yes" && row["why"].is_empty()), "{tried:?}");
    for row in &ran {
        // The default needs no margin.
        let is_within = **row == tried[0] || number_or_nan(row, "drift_bound") <= 0.01;
        assert_eq!(row["within"] == "yes", is_within, "{row:?}");
        assert!(number_or_nan(row, "images_per_second") > 0.0 && row["compared"] == chosen[0]["compared"]);
    }
    let first_change = tried.iter().find(|row| row["decoder"] == "image").unwrap();
    assert!(number_or_nan(first_change, "drift_max") > 0.0, "{first_change:?}");

    let written = fs::read_to_string(&config).unwrap();
    let words = [("decoder", "decoder"), ("decode-scale", "decode_scale"), ("dtype", "dtype"), ("encoder", "encoder")];
    for (option, column) in words {
        assert!(written.contains(&format!("{option} = \"{}\"", chosen[0][column])), "{option}: {written}");
    }
    for fact in ["min-cosine = 0.99", "held-out-violations = 0", "confidence = 0.95", "confirmation-confidence"] {
        assert!(written.contains(fact), "{fact}: {written}");
    }

    let output = folder.path().join("x.npy");
    let embed = |more: &[&str]| {
        let mut embed = crate::common::embed(&output);
        run(embed.args([PHOTOS, "--limit", "4", "--config"]).arg(&config).args(more))
    };
    let info = || -> serde_json::Value {
        let manifest = fs::read(folder.path().join("_x.npy.manifest.json")).unwrap();
        serde_json::from_slice::<serde_json::Value>(&manifest).unwrap()["info"].clone()
    };
    embed(&[]).expect(0);
    let of_run = info();
    assert_eq!(of_run["drift-budget.min-cosine"], "0.99");
    assert!(of_run["drift-budget.claim"].is_string() && of_run.get("drift-budget.fingerprint").is_none(), "{of_run}");

    // Other evidence is no other job.
    fs::write(&config, written.replace("min-cosine = 0.99", "min-cosine = 0.9998")).unwrap();
    let again = embed(&[]).expect(0);
    assert!(again.stdout.contains("already complete"), "{}", again.stdout);

    let other = if chosen[0]["resizer"] == "fir" { "image" } else { "fir" };
    let warned = embed(&["--resizer", other, "--overwrite"]).expect(0);
    let why = format!("leaves out the drift budget of {}: resizer is {other}, not", config.display());
    assert!(warned.stderr.contains(&why), "{}", warned.stderr);
    assert!(info().as_object().unwrap().keys().all(|name| !name.starts_with("drift-budget")));
}

#[test]
fn a_recall_budget_needs_labels_and_reports_what_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let (config, labels) = (folder.path().join("foveate.toml"), folder.path().join("labels.csv"));
    let photos = [PHOTOS, MORE_PHOTOS].map(|photos| fs::read_dir(photos).unwrap());
    let names = photos.into_iter().flatten().map(|photo| photo.unwrap().file_name().into_string().unwrap());
    let lines: String = names.map(|name| format!("{name},{}\n", name.len() % 2)).collect();
    fs::write(&labels, format!("file,label\n{lines}")).unwrap();
    let mut tune =
        lab(&["tune", "--min-recall", "0.5", "--budget", "0.1", "--disturbed", "--json", MORE_PHOTOS], folder.path());
    let json = run(tune.arg("--labels").arg(&labels).arg("--write").arg(&config)).expect(0).json();
    let facts = &json["drift_budget"];
    let [hits, before] = ["held-out-hits", "held-out-default-hits"].map(|name| facts[name].as_u64().unwrap());
    assert!(hits * 2 >= before && facts["held-out-labelled"] == facts["held-out-photos"], "{facts}");
    assert!(facts["lost-at-most"].as_f64().unwrap() > 0.0 && facts.get("share-at-least").is_none(), "{facts}");
    assert!(rows(folder.path(), "drift.csv").iter().all(|row| row["budget"].is_empty()));

    for (words, says) in [
        (&["--min-recall", "0.99"][..], "--labels"),
        (&["--labels", "labels.csv"], "--min-recall"),
        (&["--min-cosine", "1"], "between 0 and 1"),
        (&["--min-cosine", "0.999", "--decoder", "zune"], "cannot be used with"),
        (&["--min-cosine", "0.999", "--stand-in", "t4-f16"], "cannot be used with"),
    ] {
        let refused = run(lab(&["tune"], folder.path()).args(words)).expect(2);
        assert!(refused.stderr.contains(says), "{words:?}: {}", refused.stderr);
    }
    let few = ["tune", "--min-cosine", "0.9", "--limit", "15", "--overwrite"];
    run(lab(&few, folder.path()).arg("--write").arg(&config)).expect_error(1, "at least 16 do");
}

#[cfg(unix)]
#[test]
fn an_interrupted_diagnosis_says_what_it_has_and_the_same_command_continues() {
    let folder = tempfile::tempdir().unwrap();
    let command = || {
        let mut command = foveate();
        command.args(["diagnose", "--quick", "--n", "6", "--batch", "2", "--workers", "1", "--model", TINY]);
        command.args(["--verify", "more workers", PHOTOS, "-o"]).arg(folder.path());
        command
    };
    let mut child = command().stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let estimate = lines.find(|line| line.starts_with("finding the limit takes ")).unwrap();
    assert!(estimate.contains(", then trying a remedy ") && estimate.ends_with("(at most 1 of them)"), "{estimate}");
    assert!(lines.any(|line| line.starts_with("trying workers ")));
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let (last, stopped) = (lines.last().unwrap(), child.wait_with_output().unwrap());
    assert!(sent.success() && stopped.status.code() == Some(130), "{stopped:?}");
    assert!(last.starts_with("interrupted while trying workers "), "{last}");
    assert!(last.ends_with("; the same command continues with that"), "{last}");
    let stopped = String::from_utf8(stopped.stdout).unwrap();
    assert!(stopped.contains("\nbound by  ") && !stopped.contains("\ntried "), "{stopped}");
    let ladder = rows(folder.path(), "diagnosis.csv");
    let journal = folder.path().join("diagnosis.journal.json");
    assert!(journal.exists() && rows(folder.path(), "remedies.csv").iter().all(|row| row["measured"].is_empty()));

    let continued = run(&mut command()).expect(0);
    assert!(continued.stdout.contains("\ntried     workers "), "{}", continued.stdout);
    assert!(continued.stdout.lines().all(|line| line.chars().count() <= 120), "{}", continued.stdout);
    assert!(!journal.exists() && rows(folder.path(), "remedies.csv").iter().any(|row| row["source"] == "trial"));
    let rates = |rows: &[BTreeMap<String, String>]| rows.iter().map(|row| row["images_per_second"].clone()).collect();
    let (before, after): (Vec<String>, Vec<String>) = (rates(&ladder), rates(&rows(folder.path(), "diagnosis.csv")));
    assert_eq!(before, after, "the limit is not looked for again");
}

#[test]
fn the_example_report_can_be_planned_from_with_empty_columns_too() {
    let folder = tempfile::tempdir().unwrap();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/report");
    for file in ["profile.csv", "batch_sweep.csv", "extrapolation.csv", "sinks.csv", "storage.csv", "worker_sweep.csv"]
    {
        fs::copy(Path::new(example).join(file), folder.path().join(file)).unwrap();
    }
    let plan = |folder: &Path| run(foveate().args(["plan", "--from"]).arg(folder)).expect(0).stdout;
    let planned = plan(example.as_ref());
    for column in ["readers", "prefetch", "storage_mb_per_second", "disturbed"] {
        set(folder.path(), "profile.csv", column, "");
    }
    assert_eq!(plan(folder.path()), planned, "as many readers as a plain run has");
    // What the interval leaves open is marked in its row, and the mark explained once.
    assert!(planned.contains("x* (") && planned.matches("within the measurement's interval").count() == 1, "{planned}");
    assert!(planned.starts_with("batch ") && planned.lines().all(|line| line.chars().count() <= 120), "{planned}");
}

/// The recorded reports' own jobs: on the cores, beside a stand-in, and beside a card.
#[test]
fn a_report_s_own_job_is_predicted() {
    for name in ["report", "report/starved", "report/h100"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
        let rows = |file: &str| -> Vec<BTreeMap<String, String>> {
            csv::Reader::from_path(folder.join(file)).unwrap().deserialize().map(Result::unwrap).collect()
        };
        let profile = rows("profile.csv");
        let job = profile.iter().find(|row| row["mode"] == "threaded").unwrap();
        // The sweep's job is the profile's. If it does not reach its workers, the diagnosis has the whole job.
        let sweep = rows("worker_sweep.csv");
        let swept = sweep.iter().find(|row| row["photos"] == job["photos"] && row["workers"] == job["workers"]);
        let diagnosis = rows("diagnosis.csv");
        let whole = diagnosis.iter().find(|row| row["cached"] == "nothing").unwrap();
        let measured: f64 = swept.unwrap_or(whole)["images_per_second"].parse().unwrap();
        let mut plan = foveate();
        plan.args(["plan", "--json", "--workers", &job["workers"], "--from"]).arg(&folder);
        let predicted = run(&mut plan).expect(0).json()["job"]["rate"]["mean"].as_f64().unwrap();
        assert!((predicted / measured - 1.0).abs() < 0.15, "{name}: {predicted} predicted, {measured} measured");
    }
}

#[test]
fn published_figures_are_reproduced() {
    let plan = |more: &[&str]| run(foveate().args(["plan", "--published", "resnet50-a100"]).args(more)).expect(0);
    let json = plan(&["--json"]).json();
    let round = |value: &serde_json::Value, digits: f64| (value.as_f64().unwrap() * digits).round() / digits;
    let sweep = json["sweep"].as_array().unwrap();
    let batches: Vec<u64> = sweep.iter().map(|state| state["batch"].as_u64().unwrap()).collect();
    assert_eq!(batches, [32, 64, 128, 256, 512, 1024]);
    let milliseconds = |part: &str| -> Vec<f64> {
        sweep.iter().map(|state| (state[part].as_f64().unwrap() * 1e5).round() / 1e2).collect()
    };
    assert_eq!(milliseconds("compute_seconds"), [5.86, 6.70, 8.38, 11.74, 18.47, 31.93]);
    assert_eq!(milliseconds("cpu_seconds"), [8.0, 16.0, 32.0, 64.0, 128.0, 256.0]);
    let utilization: Vec<f64> = sweep.iter().map(|state| round(&state["utilization"], 1e3)).collect();
    assert_eq!(utilization, [0.733, 0.419, 0.262, 0.183, 0.144, 0.125]);
    assert_eq!(round(&json["state"]["slowdown"], 100.0), 5.45);
    assert_eq!(round(&json["state"]["storage_demand"], 1e-8), 10.9e9);
    // The exercises: one figure is another, the rest of the machine stays.
    let state = |more: &[&str]| plan(&[more, &["--json"]].concat()).json()["state"].clone();
    let large = state(&["--sample-bytes", "5M"]);
    assert_eq!((round(&large["cpu_seconds"], 1e4), round(&large["utilization"], 1e3)), (0.64, 0.018));
    assert_eq!(state(&["--cpu-throughput", "50G"])["bound"], "compute");
    let beside = state(&["--item-ms", "20", "--cpu-ms", "35", "--batch", "1", "--workers", "1"]);
    assert_eq!(round(&beside["utilization"], 100.0), 0.57);
    run(foveate().args(["plan", "--published", "resnet50-a100", "--from", "."])).expect_error(2, "--from");
}

#[test]
fn the_memory_of_a_forward_grows_with_its_batch() {
    let peak = |batch: &str| -> u64 {
        let mut command = foveate();
        command.args(["bench", "memory", PHOTOS, "--model", TINY, "--n", "1", "--threads", "1", "--batch", batch]);
        // The arguments of `bench all`, which starts it, go with it.
        command.args(["--peers", "/dev/null"]);
        let printed = run(&mut command).expect(0).stdout;
        let (bytes, of) = printed.trim().split_once(' ').unwrap();
        assert_eq!(of, "process of its own");
        bytes.parse().unwrap()
    };
    // 255 more images of 224 px, as bytes.
    assert!(peak("256") > peak("1") + 30_000_000);
}

#[test]
fn workers_that_reach_a_throughput_together_can_be_more_or_fewer() {
    let machine = ["plan", "--sample-bytes", "500K", "--cpu-throughput", "2G", "--item-ms", "0.05", "--batch", "256"];
    let plan = |more: &[&str]| run(foveate().args(machine).args(more)).expect(0);
    let rate = |more: &[&str]| plan(more).json()["state"]["images_per_second"].as_f64().unwrap();
    assert_eq!(rate(&["--json"]), 4000.0);
    assert!((rate(&["--json", "--workers", "16"]) - 4000.0).abs() < 1e-6);
    let sixteen = plan(&["--workers", "16", "--price", "2", "--images", "36M"]).stdout;
    for (workers, rate) in [(8, 2000.0), (16, 4000.0), (32, 8000.0)] {
        assert!(sixteen.contains(&format!("{workers} workers  {rate:>10.1} images/s")), "{sixteen}");
    }
    // 4000 images in a second are 36 million in two and a half hours, at 2 each.
    assert!(sixteen.contains("\n0.14 in money for a million images\n"), "{sixteen}");
}

#[test]
fn the_wall_that_wins_decides_what_workers_are_good_for() {
    let costs = ["plan", "--sample-bytes", "300K", "--cpu-ms", "4.4", "--workers", "16", "--batch", "256"];
    let plan = |more: &[&str]| run(foveate().args(costs).args(["--overhead-ms", "5", "--item-ms", "0.1"]).args(more));
    let planned = plan(&[]).expect(0).stdout;
    assert!(planned.contains("\n37 workers keep the accelerator busy at batch 256:"), "{planned}");
    assert!(planned.contains("37 workers      8366.0 images/s  accelerator 100.0 % busy  (compute)"), "{planned}");

    let slow_disk = plan(&["--storage", "3M"]).expect(0).stdout;
    let enough =
        "\n1 worker is enough at batch 256: beyond that storage holds the job back, and the accelerator is busy 0.1 %";
    assert!(slow_disk.contains(enough), "{slow_disk}");
    let faster_disk = plan(&["--storage", "1G"]).expect(0).stdout;
    assert!(faster_disk.contains("\n15 workers are enough at batch 256: beyond that storage"), "{faster_disk}");
    for storage_wins in [slow_disk, faster_disk] {
        assert!(!storage_wins.contains("keep the accelerator busy at"), "{storage_wins}");
        assert!(!storage_wins.contains("keeps the accelerator busy"), "{storage_wins}");
    }
}

#[test]
fn results_are_one_json_object_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let json = |words: &[&str]| {
        let mut command = lab(words, folder.path());
        run(command.args(["--as-given", "--json"])).expect(0).json()
    };
    let profile = json(&["profile", "--images", "8"]);
    assert_eq!(profile["profile"][0]["mode"], "serial", "{profile}");
    assert!(profile["profile"][0]["images_per_second"].is_number() && profile["disturbed"].is_object(), "{profile}");
    let resizers = json(&["bench", "resizers", "--quick", "--images", "8"]);
    assert_eq!(resizers["resizers"].as_array().unwrap().len(), rows(folder.path(), "resizers.csv").len());
    let copies = json(&["bench", "copies", "--quick", "--seconds", "0.05"]);
    assert_eq!(copies["copies"][0]["from"], "convert", "{copies}");
    assert!(copies["copies"][6]["status"].as_str().unwrap().starts_with("n/a ("), "{copies}");
    let mut read = foveate();
    read.args([
        "bench",
        "read",
        &format!("{PHOTOS}/01_astronaut_420.jpg"),
        "--chunk",
        "1K,1M",
        "--requests",
        "2",
        "--quick",
        "--json",
    ]);
    let read = run(read.args(["--quiet", "-o"]).arg(folder.path())).expect(0).json();
    assert_eq!(read["read"][1]["chunk_bytes"], 1_000_000, "{read}");
}

#[test]
fn nothing_to_measure_is_said_at_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let corrupt = folder.path().join("corrupt");
    fs::create_dir(&corrupt).unwrap();
    fs::write(corrupt.join("a.jpg"), "no JPEG").unwrap();
    fs::write(corrupt.join("b.jpg"), [0xff, 0xd8, 0xff]).unwrap();
    let commands: [&[&str]; 12] = [
        &["profile"],
        &["diagnose"],
        &["tune"],
        &["bench", "all"],
        &["bench", "decoders"],
        &["bench", "resizers"],
        &["bench", "forward"],
        &["bench", "batch-sweep"],
        &["bench", "worker-sweep"],
        &["bench", "headline"],
        &["bench", "extrapolation"],
        &["bench", "predictions"],
    ];
    for words in commands {
        let on = |input: &Path| {
            let mut command = foveate();
            command.args(words).arg(input).args(["--model", TINY, "-o"]).arg(&out);
            run(&mut command)
        };
        on(&empty).expect_error(2, "no inputs");
        on(&corrupt).expect_error(1, "none of the 2 photos can be used");
    }
    assert!(!out.exists(), "nothing was measured, so nothing is written");

    run(foveate().arg("report").arg(&empty)).expect_error(1, "profile.csv");
    run(foveate().args(["plan", "--from"]).arg(&empty)).expect_error(1, "no profile.csv");
    run(foveate().args(["plan", "--sample-bytes", "1K"])).expect_error(2, "--steps");
    fs::write(empty.join("profile.csv"), "photos,mode\nx,serial\n").unwrap();
    run(foveate().arg("report").arg(&empty)).expect(0);
    run(foveate().args(["plan", "--from"]).arg(&empty)).expect_error(1, "missing field `decoder`");
}

#[test]
fn one_photo_is_measured_with_a_word_about_it() {
    let folder = tempfile::tempdir().unwrap();
    let photo = fs::read_dir(PHOTOS).unwrap().next().unwrap().unwrap().path();
    let mut command = foveate();
    command.args(["profile", "--images", "8", "--as-given", "--model", TINY]).arg(photo).arg("-o").arg(folder.path());
    let ran = run(&mut command).expect(0);
    assert!(ran.stderr.contains("one photo"), "{}", ran.stderr);
}

#[test]
fn photos_that_do_not_decode_are_left_out_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = foveate();
    command.args(["profile", "--images", "8", "--as-given", "--model", TINY, PHOTOS, CONFORMANCE, "--n", "200"]);
    let ran = run(command.arg("-o").arg(folder.path())).expect(0);
    assert!(ran.stderr.contains("cannot be used, the first"), "{}", ran.stderr);
}
