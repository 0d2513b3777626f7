//! The command line as users see it: outputs, exit codes, messages.
#[cfg(unix)]
mod inputs;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use foveate::backends;
use foveate::core::{Backend, Registry};

use crate::common::{CONFORMANCE, PHOTOS, TINY, assert_same_tree, csv, embed, foveate, long_list, npy_rows, run, tree};

/// A file that fails, whatever the decoder.
fn empty_photo(folder: &Path) -> PathBuf {
    let empty = folder.join("empty.jpg");
    fs::write(&empty, "").unwrap();
    empty
}

#[test]
fn a_folder_of_photos_becomes_a_parquet_file() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("x.parquet");
    let ran = run(embed(&out).arg(PHOTOS)).expect(0);
    assert!(ran.stdout.contains("30 inputs = 30 vectors + 0 failures"), "{}", ran.stdout);
    assert!(ran.stdout.contains("bottleneck: "), "{}", ran.stdout);
    assert!(fs::read(&out).unwrap().starts_with(b"PAR1"));
    assert!(csv(&folder.path().join("_x.parquet.failures.csv")).is_empty());
    assert!(!folder.path().join("_x.parquet.partial").exists(), "nothing is left of the work in progress");
}

#[test]
fn json_counts_add_up() {
    let folder = tempfile::tempdir().unwrap();
    let ran = run(embed(&folder.path().join("x.npy")).args([CONFORMANCE, PHOTOS, "--json"])).expect(0);
    let summary = ran.json();
    let count = |name: &str| summary[name].as_u64().unwrap();
    assert_eq!(summary["status"], "complete");
    assert_eq!(count("inputs"), count("vectors") + count("failures"));
    assert!(count("failures") > 0 && count("vectors") > 30);
    assert_eq!(csv(&folder.path().join("_x.npy.failures.csv")).len() as u64, count("failures"));
    let stages: Vec<_> = summary["stages"].as_array().unwrap().iter().map(|s| s["stage"].clone()).collect();
    assert_eq!(stages, ["list", "read", "decode", "resize", "batch", "encode", "write"]);
    let parts: Vec<_> = summary["encode_parts"].as_array().unwrap().iter().map(|p| p["part"].clone()).collect();
    assert!(parts.iter().any(|part| part == "forward"), "{parts:?}");
}

#[test]
fn any_number_of_workers_devices_and_any_batch_give_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let reference = folder.path().join("reference");
    run(embed(&reference).args([PHOTOS, CONFORMANCE, "--part-items", "16"])).expect(0);
    for (workers, batch, threads, device) in [
        ("0", "32", "1", "cpu"),
        ("1", "5", "1", "cpu"),
        ("2", "1", "3", "cpu,cpu"),
        ("5", "7", "2", "cpu, cpu,cpu"),
        ("0", "8", "1", "cpu,cpu"),
    ] {
        let out = folder.path().join(format!("workers-{workers}-{batch}"));
        let args =
            ["--part-items", "16", "--workers", workers, "--batch", batch, "--threads", threads, "--device", device];
        run(embed(&out).args([PHOTOS, CONFORMANCE]).args(args)).expect(0);
        assert_same_tree(&reference, &out);
    }
}

#[test]
fn shards_laid_end_to_end_are_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole.npy");
    run(embed(&whole).arg(PHOTOS)).expect(0);
    let mut rows = Vec::new();
    for shard in 0..4 {
        let out = folder.path().join("part.npy");
        run(embed(&out).arg(PHOTOS).args(["--shard", &format!("{shard}/4")])).expect(0);
        rows.extend(npy_rows(&folder.path().join(format!("part-0000{shard}-of-00004.npy")), 64));
    }
    assert_eq!(rows, npy_rows(&whole, 64));
}

#[test]
fn array_jobs_find_their_shard() {
    let folder = tempfile::tempdir().unwrap();
    let mut slurm = embed(&folder.path().join("out.npy"));
    slurm.env("SLURM_ARRAY_TASK_ID", "2").env("SLURM_ARRAY_TASK_MIN", "1").env("SLURM_ARRAY_TASK_COUNT", "3");
    run(slurm.arg(PHOTOS).args(["--shard", "auto"])).expect(0);
    assert_eq!(npy_rows(&folder.path().join("out-00001-of-00003.npy"), 64).len(), 10);
    let mut pod = embed(&folder.path().join("pod.npy"));
    pod.env("JOB_COMPLETION_INDEX", "0");
    run(pod.arg(PHOTOS).args(["--shard", "auto/3"])).expect(0);
    assert_eq!(npy_rows(&folder.path().join("pod-00000-of-00003.npy"), 64).len(), 10);
}

#[test]
fn lists_globs_limits_and_standard_input() {
    let folder = tempfile::tempdir().unwrap();
    let list = long_list(folder.path(), 40);
    let out = |name: &str| folder.path().join(name);
    let ran = run(embed(&out("list.npy")).arg("--from-list").arg(&list).arg("--json")).expect(0);
    assert_eq!(ran.json()["inputs"], 40);

    let stdin = fs::File::open(&list).unwrap();
    let mut piped = embed(&out("stdin.npy"));
    piped.args(["--from-list", "-", "--json"]).stdin(Stdio::from(stdin));
    assert_eq!(run(&mut piped).expect(0).json()["inputs"], 40);
    assert_eq!(fs::read(out("list.npy")).unwrap(), fs::read(out("stdin.npy")).unwrap());

    let glob = format!("{PHOTOS}/2*.jpg");
    let ran = run(embed(&out("glob.npy")).args([&glob, "--limit", "7", "--json"])).expect(0);
    assert_eq!(ran.json()["vectors"], 7);
}

#[test]
fn l2_and_f16_and_pooling_change_what_they_say() {
    let folder = tempfile::tempdir().unwrap();
    let photo = format!("{PHOTOS}/01_astronaut_420.jpg");
    let out = |name: &str| folder.path().join(name);
    run(embed(&out("plain.npy")).arg(&photo)).expect(0);
    run(embed(&out("unit.npy")).args([&photo, "--normalize", "l2"])).expect(0);
    run(embed(&out("both.npy")).args([&photo, "--pooling", "cls+mean"])).expect(0);
    run(embed(&out("half.npy")).args([&photo, "--out-dtype", "f16"])).expect(0);
    let (plain, unit) = (npy_rows(&out("plain.npy"), 64), npy_rows(&out("unit.npy"), 64));
    let length = plain[0].iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    for (a, b) in plain[0].iter().zip(&unit[0]) {
        assert!((f64::from(*a) / length - f64::from(*b)).abs() < 1e-6);
    }
    let both = npy_rows(&out("both.npy"), 128);
    assert_eq!(both[0][..64], plain[0][..], "the class token comes first");
    assert_ne!(both[0][64..], plain[0][..]);
    let half = fs::read(out("half.npy")).unwrap();
    assert!(String::from_utf8_lossy(&half[..128]).contains("'<f2'"));
}

#[test]
fn orientation_and_recipe_matter_and_can_be_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let photo = format!("{PHOTOS}/16_astronaut_exif6.jpg");
    let out = |name: &str| folder.path().join(name);
    run(embed(&out("apply.npy")).arg(&photo)).expect(0);
    run(embed(&out("ignore.npy")).args([&photo, "--orientation", "ignore"])).expect(0);
    run(embed(&out("squash.npy")).args([&photo, "--preprocess", "squash"])).expect(0);
    let rows = |name: &str| npy_rows(&out(name), 64);
    assert_ne!(rows("apply.npy"), rows("ignore.npy"));
    assert_ne!(rows("apply.npy"), rows("squash.npy"));
    let size = |name: &str| {
        let row = csv(&out(name)).remove(0);
        (row["width"].clone(), row["height"].clone())
    };
    let (width, height) = size("ignore.npy.ids.csv");
    assert_eq!(size("apply.npy.ids.csv"), (height, width), "the size is that after orientation");
}

#[test]
fn weights_that_are_not_finite_are_refused_in_every_precision() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    fs::create_dir(&model).unwrap();
    for name in ["config.json", "preprocessor_config.json", "model.safetensors"] {
        fs::copy(Path::new(TINY).join(name), model.join(name)).unwrap();
    }
    let weights = model.join("model.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let tensors: serde_json::Value = serde_json::from_slice(&bytes[8..8 + header]).unwrap();
    let name = "encoder.layer.0.mlp.fc1.weight";
    let start = 8 + header + tensors[name]["data_offsets"][0].as_u64().unwrap() as usize;
    bytes[start..start + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    fs::write(&weights, bytes).unwrap();
    for precision in ["f32", "bf16", "i8"] {
        let mut job = foveate();
        let output = folder.path().join(precision);
        job.args(["embed", "--dtype", precision, PHOTOS, "--limit", "2", "--model"]).arg(&model).arg("-o").arg(output);
        run(&mut job).expect_error(1, &format!("value 0 of tensor '{name}' is NaN"));
    }
}

/// A folder with PyTorch's own format, whose recipe pads and has a longest edge: the vectors of `transformers`.
#[test]
fn a_model_in_pytorchs_format_with_a_padding_recipe_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("v.npy");
    let model = Path::new(TINY).with_file_name("pickled");
    let expected: serde_json::Value = serde_json::from_slice(&fs::read(model.join("vectors.json")).unwrap()).unwrap();
    let expected = expected["cls"].as_object().unwrap();
    let photos = expected.keys().map(|name| format!("{PHOTOS}/{name}.jpg"));
    let mut job = foveate();
    job.args(["embed", "--batch", "2", "--model"]).arg(&model).arg("-o").arg(&output).args(photos);
    if !cfg!(feature = "candle") {
        return run(&mut job).expect_error(2, "is in PyTorch's format, which a build with -F candle reads");
    }
    run(&mut job).expect(0);
    for (row, (name, expected)) in npy_rows(&output, 16).iter().zip(expected) {
        let expected = expected.as_array().unwrap().iter().map(|value| value.as_f64().unwrap());
        let furthest = row.iter().zip(expected).map(|(value, expected)| (f64::from(*value) - expected).abs());
        let furthest = furthest.fold(0.0, f64::max);
        // A level of one pixel, by which resizers may differ, makes up to 7e-4; padding that is one pixel off, more.
        assert!(furthest < 2e-3, "{name}: {furthest}");
    }
}

#[test]
fn an_output_that_exists_is_not_touched_unless_told() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("x.npy");
    fs::write(&out, "precious").unwrap();
    run(embed(&out).arg(PHOTOS)).expect_error(2, "_x.npy.manifest.json is missing: ");
    assert_eq!(fs::read(&out).unwrap(), b"precious");
    run(embed(&out).args([PHOTOS, "--overwrite"])).expect_error(2, "no manifest of foveate names it; remove it");
    assert_eq!(fs::read(&out).unwrap(), b"precious", "it may be the user's own");
    fs::remove_file(&out).unwrap();
    run(embed(&out).arg(PHOTOS)).expect(0);
    run(embed(&out).arg(PHOTOS)).expect(0);
    run(embed(&out).args([PHOTOS, "--limit", "3", "--overwrite"])).expect(0);
    assert_eq!(npy_rows(&out, 64).len(), 3);
}

#[test]
fn outputs_of_one_name_and_several_formats_share_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("list.txt");
    let formats = names(&backends::sinks());
    for format in &formats {
        fs::write(&list, format!("{PHOTOS}/01_astronaut_420.jpg\n{format}-is-absent.jpg\n")).unwrap();
        let ran = run(embed(&folder.path().join(format!("x.{format}"))).arg("--from-list").arg(&list)).expect(0);
        let note = "note: 1 failure (1 read: No such file or directory (os error 2)); the reasons are in ";
        assert!(ran.stderr.contains(note) && !ran.stderr.contains("accept"), "{}", ran.stderr);
    }
    for format in &formats {
        let failures = csv(&folder.path().join(format!("_x.{format}.failures.csv")));
        assert_eq!((failures.len(), &failures[0]["id"]), (1, &format!("{format}-is-absent.jpg")));
    }
}

#[test]
fn the_same_command_again_is_content_and_another_job_is_not() {
    for name in ["x.npy", "x.parquet", "folder"] {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join(name);
        run(embed(&out).arg(PHOTOS)).expect(0);
        let before = tree(folder.path());
        let again = run(embed(&out).args([PHOTOS, "--batch", "3"])).expect(0);
        assert!(again.stdout.contains("already complete"), "{}", again.stdout);
        run(embed(&out).args([PHOTOS, "--preprocess", "squash"])).expect_error(2, "recipe: hf → squash");
        run(embed(&out).args([PHOTOS, "--out-dtype", "f16"])).expect_error(2, "sink.element: f32 → f16");
        assert_eq!(before, tree(folder.path()));
    }
}

#[test]
fn a_finished_output_notices_every_change_of_its_inputs() {
    for name in ["x.npy", "new/folder/x.npy", "folder"] {
        let folder = tempfile::tempdir().unwrap();
        let photos = folder.path().join("photos");
        fs::create_dir(&photos).unwrap();
        let photo = |name: &str, from: &str| fs::copy(format!("{PHOTOS}/{from}"), photos.join(name)).unwrap();
        photo("a.jpg", "23_thumb_256.jpg");
        photo("c.jpg", "01_astronaut_420.jpg");
        // A name without a folder, as most users type it.
        let again_with = |more: &[&str]| run(embed(Path::new(name)).current_dir(folder.path()).arg(&photos).args(more));
        let again = || again_with(&[]);
        again().expect(0);
        assert!(again().expect(0).stdout.contains("already complete"));

        photo("b.jpg", "23_thumb_256.jpg");
        let b = photos.join("b.jpg");
        again().expect_error(2, &format!("1 photo added: {}", b.display()));
        again_with(&["--dry-run"]).expect_error(2, &format!("1 photo added: {}", b.display()));
        fs::remove_file(&b).unwrap();
        again().expect(0);

        // Another time and the same bytes, then other bytes.
        photo("a.jpg", "23_thumb_256.jpg");
        let changed = format!("1 photo changed: {}", photos.join("a.jpg").display());
        again().expect_error(2, &changed);
        again_with(&["--dry-run"]).expect_error(2, &changed);
        again_with(&["--by-content"]).expect(0);
        photo("a.jpg", "01_astronaut_420.jpg");
        again_with(&["--by-content"]).expect_error(2, &changed);
        again_with(&["--overwrite"]).expect(0);
        again().expect(0);
    }
}

#[test]
fn an_image_under_another_name_is_computed_once() {
    let folder = tempfile::tempdir().unwrap();
    let photos = folder.path().join("photos");
    fs::create_dir(&photos).unwrap();
    for (name, from) in
        [("a.jpg", "23_thumb_256.jpg"), ("b.jpg", "01_astronaut_420.jpg"), ("c.jpg", "23_thumb_256.jpg")]
    {
        fs::copy(format!("{PHOTOS}/{from}"), photos.join(name)).unwrap();
    }
    fs::write(photos.join("d.jpg"), "no image").unwrap();
    fs::write(photos.join("e.jpg"), "no image").unwrap();
    let out = |name: &str| folder.path().join(name);
    let embedded = |name: &str, memory: &str| {
        fs::create_dir(out(name)).unwrap();
        let command = &mut embed(&out(name).join("x.npy"));
        // In order, so that no copy overtakes its original.
        let command = command.arg(&photos).args(["--workers", "0", "--json", "--recent-memory", memory]);
        run(command).expect(0).json()["session"].clone()
    };
    let counts =
        |session: serde_json::Value| ["vectors", "failures", "computed", "from_run"].map(|key| session[key].as_u64());
    assert_eq!(counts(embedded("all", "off")), [3, 2, 3, 0].map(Some));
    assert_eq!(counts(embedded("once", "1M")), [3, 2, 2, 1].map(Some));
    assert_same_tree(&out("all"), &out("once"));
}

#[test]
fn equal_checksums_are_not_equal_contents() {
    let pair = crate::common::forged_pair();
    assert_eq!(xxhash_rust::xxh3::xxh3_128(&pair[0]), xxhash_rust::xxh3::xxh3_128(&pair[1]));
    let folder = tempfile::tempdir().unwrap();
    let photos = folder.path().join("photos");
    fs::create_dir(&photos).unwrap();
    let embedded = |output: &str, more: &[&str]| {
        let mut command = embed(&folder.path().join(output));
        command.arg(&photos).args(["--workers", "0", "--json", "--cache"]).arg(folder.path().join("cache"));
        let session = run(command.args(more)).expect(0).json()["session"].clone();
        ["computed", "from_run", "from_output", "from_cache"].map(|key| session[key].as_u64().unwrap())
    };
    fs::copy(format!("{PHOTOS}/23_thumb_256.jpg"), photos.join("z.jpg")).unwrap();
    fs::write(photos.join("a.bmp"), &pair[0]).unwrap();
    assert_eq!(embedded("first.npy", &[]), [2, 0, 0, 0]);
    fs::write(photos.join("a.bmp"), &pair[1]).unwrap();
    assert_eq!(embedded("first.npy", &["--update", "--by-content"]), [1, 0, 0, 0], "the cache has the other one");
    fs::remove_dir_all(folder.path().join("cache")).unwrap();
    fs::remove_file(photos.join("a.bmp")).unwrap();
    fs::write(photos.join("b.bmp"), &pair[0]).unwrap();
    let renamed = ["--update", "--prune", "--max-removed", "1"];
    assert_eq!(embedded("first.npy", &renamed), [1, 0, 0, 0], "no renamed one");
    fs::remove_dir_all(folder.path().join("cache")).unwrap();
    fs::write(photos.join("c.bmp"), &pair[1]).unwrap();
    assert_eq!(embedded("both.npy", &[]), [3, 0, 0, 0]);
}

#[test]
fn a_cache_gives_the_second_run_all_vectors_and_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let embedded = |name: &str, more: &[&str]| {
        let out = folder.path().join(name);
        fs::create_dir(&out).unwrap();
        let mut command = embed(&out.join("x.npy"));
        command.args([PHOTOS, "--limit", "5", "--json", "--cache"]).arg(&cache).args(more);
        let session = run(&mut command).expect(0).json()["session"].clone();
        ["computed", "from_cache"].map(|key| session[key].as_u64().unwrap())
    };
    assert_eq!(embedded("first", &[]), [5, 0]);
    assert_eq!(embedded("second", &["--workers", "3"]), [0, 5]);
    assert_same_tree(&folder.path().join("first"), &folder.path().join("second"));
    assert_eq!(embedded("other", &["--pooling", "mean"]), [5, 0], "other settings never hit");

    // Changes to the cache that a user could make.
    let again = |name: &str| embed(&folder.path().join(name));
    fs::write(cache.join("vectors.sqlite"), "no database").unwrap();
    let mut command = again("x.npy");
    run(command.arg(PHOTOS).arg("--cache").arg(&cache)).expect_error(2, "delete it, or use another folder");
    fs::remove_dir_all(&cache).unwrap();
    run(command.args(["--dry-run", "--limit", "1"])).expect(0);
    assert!(!cache.exists(), "a dry run writes nothing");
}

#[test]
fn a_damaged_output_is_not_complete() {
    for format in names(&backends::sinks()) {
        for layout in ["x", "folder"] {
            let folder = tempfile::tempdir().unwrap();
            let out = folder.path().join(if layout == "x" { format!("x.{format}") } else { layout.to_owned() });
            let part = if layout == "x" { out.clone() } else { out.join(format!("part-00000.{format}")) };
            let again = |check: &[&str]| run(embed(&out).args([PHOTOS, "--limit", "2", "--sink", &format]).args(check));
            again(&[]).expect(0);
            let whole = fs::read(&part).unwrap();

            let mut flipped = whole.clone();
            flipped[whole.len() / 2] ^= 1;
            fs::write(&part, flipped).unwrap();
            again(&[]).expect(0);
            again(&["--check"]).expect_error(1, "its contents are not those that were written");
            fs::write(&part, &whole[..whole.len() - 1]).unwrap();
            again(&[]).expect_error(1, "bytes long when it was completed");
            if layout == "folder" {
                fs::remove_file(&part).unwrap();
                again(&[]).expect_error(2, "is missing: it was");
            }
            again(&["--overwrite"]).expect(0);
            assert!(fs::read(&part).unwrap() == whole);
            again(&["--check"]).expect(0);
        }
    }
}

#[test]
fn runs_of_another_division_do_not_mix_in_one_folder() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, shards) = (folder.path().join("whole"), folder.path().join("shards"));
    run(embed(&whole).args([PHOTOS, "--limit", "4"])).expect(0);
    run(embed(&shards).args([PHOTOS, "--limit", "4", "--shard", "0/2"])).expect(0);
    let before = tree(folder.path());
    for (out, shard) in [(&whole, Some("0/2")), (&shards, None)] {
        for existing in ["--resume", "--overwrite"] {
            let mut command = embed(out);
            command.args([PHOTOS, "--limit", "4", existing]);
            shard.map(|shard| command.args(["--shard", shard]));
            run(&mut command).expect_error(2, "divides the inputs otherwise");
        }
    }
    assert_eq!(before, tree(folder.path()));
    run(embed(&shards).args([PHOTOS, "--limit", "4", "--shard", "1/2"])).expect(0);
}

/// Scalar code rounds otherwise than vector instructions, as processors with AMX do below f32.
#[test]
fn outputs_of_machines_with_other_bits_are_not_mixed() {
    let folder = tempfile::tempdir().unwrap();
    let photos = folder.path().join("photos");
    fs::create_dir(&photos).unwrap();
    empty_photo(&photos);
    for name in ["01_astronaut_420.jpg", "05_chelsea_420_odd.jpg"] {
        fs::copy(Path::new(PHOTOS).join(name), photos.join(name)).unwrap();
    }
    let job = |output: &str, instructions: Option<&str>| {
        let mut command = embed(&folder.path().join(output));
        command.arg(&photos).args(["--batch", "1"]).env_remove("FOVEATE_INSTRUCTIONS");
        command.envs(instructions.map(|name| ("FOVEATE_INSTRUCTIONS", name)));
        command
    };
    run(&mut job("plain.npy", None)).expect(0);
    run(&mut job("scalar.npy", Some("scalar"))).expect(0);
    let record = folder.path().join("_plain.npy.manifest.json");
    let manifest: serde_json::Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
    assert_eq!(manifest["fingerprint"]["kernels"], "fma", "the bits of AVX2, AVX-512 and NEON in f32");
    let refused = |command: &mut std::process::Command, difference: &str| {
        let ran = run(command).expect(2);
        let says = ran.stderr.contains(difference) && ran.stderr.contains("FOVEATE_INSTRUCTIONS=avx512-bf16 gives");
        assert!(says, "{}", ran.stderr);
    };
    // A complete output, its update and its retry.
    for more in [&[][..], &["--update"], &["--retry-failures"]] {
        refused(job("plain.npy", Some("scalar")).args(more), "kernels: fma → scalar");
        refused(job("scalar.npy", None).args(more), "kernels: scalar → fma");
    }
    let both = |words: &[&str]| {
        let mut command = foveate();
        command.args(words).current_dir(folder.path());
        command
    };
    refused(&mut both(&["merge", "plain.npy", "scalar.npy", "-o", "both.npy"]), "kernels: fma → scalar");
    // What is near in one is near in the other.
    run(&mut both(&["neighbors", "plain.npy", "--queries", "scalar.npy", "-k", "1", "-o", "near.csv"])).expect(0);
    // An interrupted run.
    run(job("half.npy", Some("scalar")).arg("--strict")).expect(3);
    refused(&mut job("half.npy", None), "kernels: scalar → fma");
    // Shards, each with the bits of its machine.
    for (shard, instructions) in [("0/2", None), ("1/2", Some("scalar"))] {
        run(job("shards", instructions).args(["--sink", "npy", "--shard", shard])).expect(0);
    }
    refused(&mut both(&["merge", "shards", "-o", "whole.npy"]), "kernels: fma → scalar");
    // An output of an earlier version may have the bits of any machine.
    let mut earlier = manifest;
    earlier["fingerprint"].as_object_mut().unwrap().remove("kernels").unwrap();
    fs::write(&record, serde_json::to_vec(&earlier).unwrap()).unwrap();
    run(&mut job("plain.npy", Some("scalar"))).expect(0);
    run(job("plain.npy", Some("scalar")).arg("--update")).expect(0);
}

/// Another format's parts would stay beside the new ones, and be read with them.
#[test]
fn overwriting_removes_what_another_format_left() {
    let folder = tempfile::tempdir().unwrap();
    let empty = empty_photo(folder.path());
    let out = folder.path().join("out");
    let job = |sink: &str| {
        let mut command = embed(&out);
        command.arg(PHOTOS).arg(&empty).args(["--part-items", "8", "--batch", "8", "--sink", sink]);
        command
    };
    run(job("npy").arg("--strict")).expect(3);
    assert!(out.join(".foveate/run/part-00000.npy").exists(), "it was interrupted after complete parts");
    run(&mut job("parquet")).expect_error(2, "sink.format: npy → parquet");
    run(job("parquet").arg("--overwrite")).expect(0);
    let names: Vec<_> = tree(&out).into_keys().map(|path| path.display().to_string()).collect();
    assert!(names.iter().all(|name| !name.contains("npy")), "{names:?}");
}

#[test]
fn strict_and_max_failures_stop_with_their_own_code() {
    let folder = tempfile::tempdir().unwrap();
    let empty = empty_photo(folder.path());
    let out = folder.path().join("x.npy");
    run(embed(&out).arg(PHOTOS).arg(&empty).arg("--strict"))
        .expect_error(3, "empty.jpg (decode: empty file (0 bytes))");
    assert!(!out.exists());
    run(embed(&out).arg(PHOTOS).arg(&empty).args(["--max-failures", "1%"])).expect_error(3, "1 of 31 inputs failed");
    run(embed(&out).arg(PHOTOS).arg(&empty).args(["--max-failures", "1"])).expect(0);
}

#[test]
fn a_finished_output_tells_its_counts_again_and_gives_the_same_code() {
    let folder = tempfile::tempdir().unwrap();
    let empty = empty_photo(folder.path());
    for name in ["x.npy", "x.parquet", "folder"] {
        let again =
            |more: &[&str]| run(embed(&folder.path().join(name)).arg(PHOTOS).arg(&empty).arg("--json").args(more));
        let first = again(&["--max-failures", "1"]).expect(0).json();
        let second = again(&["--max-failures", "1"]).expect(0).json();
        assert_eq!(second["status"], "already complete");
        for count in ["inputs", "settled", "vectors", "failures"] {
            assert_eq!(first[count], second[count], "{count} of {name}");
        }
        assert_eq!(again(&["--strict"]).expect(3).json()["failures"], 1);
        again(&["--max-failures", "1%"]).expect_error(3, "1 of 31 inputs failed, more than the limit of 1%");
        again(&["--max-failures", "10%"]).expect(0);
    }
}

#[test]
fn no_inputs_at_all_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    fs::write(empty.join("notes.txt"), "no photo").unwrap();
    run(embed(&folder.path().join("x.npy")).arg(&empty)).expect_error(2, "1 files without an image's extension");
    run(embed(&folder.path().join("x.npy")).args([PHOTOS, "--limit", "0"])).expect_error(2, "leaves none of 30");
    run(&mut embed(&folder.path().join("x.npy"))).expect_error(2, "required");
}

#[test]
fn another_job_is_not_continued() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("x.npy");
    let empty = empty_photo(folder.path());
    // --strict stops at the empty file, after thirty good ones that are committed.
    run(embed(&out).arg(PHOTOS).arg(&empty).args(["--strict", "--batch", "10"])).expect(3);
    let other = run(embed(&out).arg(PHOTOS).arg(&empty).args(["--pooling", "mean"])).expect(2);
    assert!(other.stderr.contains("pooling: cls → mean"), "{}", other.stderr);
    let resumed = run(embed(&out).arg(PHOTOS).arg(&empty).args(["--batch", "10", "--json"])).expect(0);
    assert_eq!(resumed.json()["session"]["resumed"], 30);
    assert_eq!(resumed.json()["vectors"], 30);
}

#[test]
fn unknown_names_are_told_what_there_is() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("x.npy");
    let wrong = |option: &str, name: &str| run(embed(&out).args([PHOTOS, option, name]));
    let there_is_no = |kind: &str, name: &str, compiled: Vec<String>| {
        let message = format!("there is no {kind} '{name}'; compiled in: {}", compiled.join(", "));
        wrong(&format!("--{kind}"), name).expect_error(2, &message);
    };
    there_is_no("decoder", "turbojpg", names(&backends::decoders()));
    there_is_no("resizer", "bicubic", names(&backends::resizers()));
    there_is_no("encoder", "onnx", names(&backends::encoders()));
    there_is_no("sink", "csv", names(&backends::sinks()));
    let known = "invalid value 'crop' for '--preprocess <PREPROCESS>'\n  [possible values: hf, squash]";
    wrong("--preprocess", "crop").expect_error(2, known);
}

fn names<B: Backend>(registry: &Registry<B>) -> Vec<String> {
    registry.iter().map(|backend| backend.name().to_owned()).collect()
}

#[test]
fn a_backend_of_another_build_is_told_from_a_misspelt_one() {
    let folder = tempfile::tempdir().unwrap();
    let (decoders, compiled) = (backends::decoders(), names(&backends::decoders()));
    // With everything compiled in, no decoder is missing.
    for decoder in decoders.known().iter().filter(|known| !compiled.iter().any(|name| name == *known)) {
        let message = format!("decoder '{decoder}' is not compiled into this build; rebuild with `-F {decoder}`");
        run(embed(&folder.path().join("x.npy")).args([PHOTOS, "--decoder", decoder])).expect_error(2, &message);
    }
}

#[test]
fn the_doctor_sees_every_backend() {
    let ran = run(foveate().args(["doctor", "--json"]));
    let report = ran.json();
    let rows = report["backends"].as_array().unwrap();
    let of = |name: &str| rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("{name}: {report}"));
    assert_eq!((of("exact")["state"].as_str(), of("exact")["compiled"].as_bool()), (Some("ok"), Some(true)));
    assert_eq!(of("fused")["devices"][0], "cpu");
    let compiled = names(&backends::decoders());
    for name in backends::decoders().known() {
        let row = of(name);
        assert_eq!(row["compiled"], compiled.iter().any(|compiled| compiled == name), "{row}");
        let remedy = row["remedy"].as_str().unwrap_or_default();
        assert_eq!(row["state"] == "not compiled", remedy.contains(&format!("-F {name}")), "{row}");
    }
    let broken = rows.iter().any(|row| row["state"] == "broken");
    ran.expect(i32::from(broken));
    let table = run(foveate().arg("doctor")).stdout;
    assert!(table.lines().any(|line| line.starts_with("sink") && line.contains("parquet")), "{table}");
}

#[test]
fn verify_measures_what_a_difference_does() {
    let verify =
        |arguments: &[&str]| run(foveate().args(["verify", PHOTOS, "--model", TINY, "--json"]).args(arguments));
    let same = verify(&["--decoder", "exact", "--decode-scale", "exact"]).expect(0).json();
    assert_eq!((&same["compared"], &same["cosine"]["min"]), (&30.into(), &1.0.into()));
    assert_eq!(same["differences"].as_array().unwrap().len(), 0);

    let recipes = verify(&["--preprocess", "squash", "--against", "exact,preprocess=hf"]).expect(0).json();
    assert!(recipes["cosine"]["min"].as_f64().unwrap() < 0.999, "{recipes}");
    let differing: Vec<&str> =
        recipes["differences"].as_array().unwrap().iter().filter_map(|entry| entry[0].as_str()).collect();
    assert!(differing.contains(&"recipe") && !differing.contains(&"resizer"), "{recipes}");

    let gate = ["--preprocess", "squash", "--against", "preprocess=hf", "--min-cosine", "0.9999"];
    verify(&gate).expect(3);
    assert_eq!(verify(&["--sample", "7", "--against", "pooling=mean"]).expect(0).json()["compared"], 7);
    verify(&["--against", "model=nowhere"]).expect_error(2, "nowhere");
    verify(&["--against", "colour=red"]).expect_error(2, "--colour");
    verify(&["--pooling", "cls+mean", "--against", "pooling=cls"])
        .expect_error(1, "vectors of 128 and of 64 components cannot be compared");
}

/// 256 px, as many as the model resizes to.
#[test]
fn verify_says_that_a_decode_scale_leaves_small_photos_alone() {
    let small = format!("{PHOTOS}/23_thumb_256.jpg");
    let against = |scale: &str| {
        let verify = ["verify", &small, "--model", TINY, "--decode-scale", scale, "--against", "exact"];
        run(foveate().args(verify)).expect(0).stdout
    };
    for scale in ["fast", "low"] {
        let text = against(scale);
        assert!(text.contains("equal vectors    all; no image is large enough for the decode scale"), "{text}");
    }
    assert!(against("low").contains("decode_scale_most 4/8"), "the fingerprint of another rule is another one");
}

#[test]
fn verify_tells_failures_of_one_side_apart() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("broken.jpg"), b"no image").unwrap();
    fs::copy(format!("{PHOTOS}/23_thumb_256.jpg"), folder.path().join("small.jpg")).unwrap();
    let cut = largest_photo();
    fs::write(folder.path().join("cut.jpg"), &cut[..cut.len() * 2 / 3]).unwrap();
    let csv = folder.path().join("figures.csv");
    let verify = |csv: &Path| {
        let mut command = foveate();
        command.arg("verify").arg(folder.path()).args(["--model", TINY, "--allow-truncated", "--csv"]);
        run(command.arg(csv))
    };
    let own = folder.path().join("own.txt");
    fs::write(&own, "id,label\n").unwrap();
    verify(&own).expect_error(2, "own.txt already exists, and no `verify --csv` wrote it; name another output");
    assert_eq!(fs::read_to_string(&own).unwrap(), "id,label\n");
    // An earlier one is replaced.
    verify(&csv).expect(0);
    let text = verify(&csv).expect(0).stdout;
    assert!(text.contains("2 images compared, 0 failed under one configuration, 1 under both"), "{text}");
    assert_eq!(fs::read_to_string(&csv).unwrap().lines().count(), 3);
}

fn largest_photo() -> Vec<u8> {
    let photos = fs::read_dir(PHOTOS).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap());
    photos.max_by_key(Vec::len).unwrap()
}

#[test]
fn seeded_models_say_that_their_vectors_mean_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("x.npy");
    let photo = format!("{PHOTOS}/23_thumb_256.jpg");
    let ran = run(foveate().args(["embed", &photo, "--model", "seeded:dinov2-small", "-o"]).arg(&out)).expect(0);
    assert!(ran.stderr.contains("vectors without meaning"), "{}", ran.stderr);
    assert_eq!(npy_rows(&out, 384).len(), 1);
    let manifest = fs::read_to_string(folder.path().join("_x.npy.manifest.json")).unwrap();
    assert!(manifest.contains("no meaning"), "{manifest}");
}

#[test]
fn a_dry_run_tells_what_a_run_would_do_and_leaves_everything_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("x.npy");
    let empty = empty_photo(folder.path());
    let embed = |more: &[&str]| {
        let before = tree(folder.path());
        let ran = run(embed(&out).arg(PHOTOS).arg(&empty).args(["--batch", "10"]).args(more));
        assert!(!more.contains(&"--dry-run") || tree(folder.path()) == before, "{more:?}");
        ran
    };
    let state = |more: &[&str]| {
        let json = embed(&[&["--dry-run", "--json"], more].concat()).expect(0).json();
        (json["state"].as_str().unwrap().to_owned(), json["left"].as_u64().unwrap(), json)
    };
    let (new, left, json) = state(&[]);
    assert_eq!((new.as_str(), left, &json["inputs"], &json["dim"]), ("new", 31, &31.into(), &64.into()));
    let kinds = json["kinds"].as_object().unwrap().values().map(|count| count.as_u64().unwrap());
    assert_eq!(kinds.sum::<u64>(), 31, "{json}");
    assert_eq!((&json["settings"]["resizer"], &json["vector_bytes"]), (&"fir".into(), &(31 * 256).into()));
    let estimate = &json["estimate"];
    assert!(estimate["measured"] == 20 && estimate["images_per_second"].as_f64().unwrap() > 0.0, "{json}");
    let text = embed(&["--dry-run"]).expect(0).stdout;
    for part in ["inputs    31: ", " jpg", "threads ", "x.npy: new", "estimate "] {
        assert!(text.contains(part), "no '{part}' in: {text}");
    }

    embed(&["--strict"]).expect_error(3, "1 of 31 inputs failed, more than the limit of 0; the first: ");
    assert_eq!(state(&["--strict"]).0, "unfinished");
    assert_eq!(state(&[]).1, 1, "thirty are done");
    assert_eq!(state(&["--overwrite"]).0, "replaced");
    embed(&["--dry-run", "--pooling", "mean"]).expect_error(2, "pooling: cls → mean");
    embed(&[]).expect(0);
    assert_eq!((state(&[]).0.as_str(), state(&[]).1), ("complete", 0));
}

#[test]
fn quiet_is_quiet() {
    let folder = tempfile::tempdir().unwrap();
    let ran = run(embed(&folder.path().join("x.npy")).args([PHOTOS, "--quiet"])).expect(0);
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("", ""));
}

#[test]
fn the_lists_and_help_are_complete() {
    let backends = run(foveate().arg("backends")).expect(0).stdout;
    for name in ["exact", "zune", "webp", "image", "fir", "fused", "parquet", "npy", "arrow"] {
        assert!(backends.lines().any(|line| line.split_whitespace().nth(1) == Some(name)), "{name}: {backends}");
    }
    let models = run(foveate().arg("models")).expect(0).stdout;
    for size in ["small", "base", "large", "giant"] {
        assert!(models.contains(&format!("facebook/dinov2-{size} ")), "{models}");
        assert!(models.contains(&format!("facebook/dinov2-with-registers-{size} ")), "{models}");
    }
    let help = run(foveate().args(["embed", "--help"])).expect(0).stdout;
    assert!(help.contains("Exit codes:") && help.contains("Examples:"), "{help}");
    assert!(run(foveate().args(["completions", "bash"])).expect(0).stdout.contains("_foveate"));
    assert!(Path::new(TINY).is_dir());
}

#[test]
fn lists_are_also_json() {
    let find = |command: &str, name: &str| {
        let list = run(foveate().args([command, "--json"])).expect(0).json();
        list.as_array().unwrap().iter().find(|entry| entry["name"] == name).unwrap_or_else(|| panic!("{list}")).clone()
    };
    let npy = find("backends", "npy");
    assert_eq!((&npy["kind"], &npy["compiled"]), (&"sink".into(), &true.into()));
    let small = find("models", "facebook/dinov2-small");
    assert_eq!((&small["dim"], &small["gated"]), (&384.into(), &false.into()));
    assert_eq!(small["preprocess"]["hf"], "shortest edge 256, Bicubic, centre crop 224x224");
}

#[test]
fn the_settings_in_help_work_in_the_default_build() {
    let help = run(foveate().args(["embed", "--help"])).expect(0).stdout;
    let setting = "compression=lz4";
    assert!(help.contains(setting), "{help}");
    let folder = tempfile::tempdir().unwrap();
    run(embed(&folder.path().join("x.parquet")).args([PHOTOS, "--limit", "1", "--sink-option", setting])).expect(0);
}
