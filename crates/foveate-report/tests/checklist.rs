//! The checklist's answers, from files of a few rows.

#![allow(clippy::unwrap_used)] // helpers of tests are tests too

use std::fs;
use std::path::Path;

use foveate_report::{Check, Report};

const PHOTOS: &str = "\"as given, 1000 x 1000 px, 300 kB\"";

/// Writes a file: its columns, then its rows.
fn write(folder: &Path, file: &str, columns: &str, rows: &[String]) {
    fs::write(folder.join(file), format!("{columns}\n{}\n", rows.join("\n"))).unwrap();
}

fn answer<'a>(checks: &'a [Check], question: &str) -> &'a Check {
    let found: Vec<&Check> = checks.iter().filter(|check| check.question.contains(question)).collect();
    assert_eq!(found.len(), 1, "{question}");
    found[0]
}

/// Writes the files of a job beside a device, and returns the report's checklist.
fn checklist(disturbed: &str) -> Vec<Check> {
    let folder = tempfile::tempdir().unwrap();
    let job = format!("{PHOTOS},exact,fir,fused,f32,exact,2,1,8,cuda:0,4,300000");
    let mut profile: Vec<String> = [
        ("read", 0.1, 0.01),
        ("decode", 6.0, 0.60),
        ("resize", 8.0, 0.05),
        ("copy-in", 0.5, 0.11),
        ("forward", 2.0, 0.20),
        ("copy-out", 0.1, 0.01),
        ("serialize", 0.1, 0.01),
        ("other", 0.1, 0.01),
    ]
    .into_iter()
    .map(|(stage, ms, share)| format!("{job},serial,{stage},{ms},{share}"))
    .collect();
    profile.push(format!("{job},threaded,decode,6,0.6"));
    let columns = "photos,decoder,resizer,encoder,dtype,decode_scale,workers,threads,batch,device,cores,bytes_per_image,\
                   mode,stage,ms_per_image,share_of_wall";
    write(folder.path(), "profile.csv", columns, &profile);
    let decoders = ["exact,exact,100", "exact,fast,180", "zune,fast,310", "zune,low,320", "zune,exact,240"];
    let decoders = decoders.map(|row| format!("{PHOTOS},{row},ok"));
    write(folder.path(), "decoders.csv", "photos,decoder,decode_scale,images_per_second,status", &decoders);
    // The last row is of another pair of decoder and resizer, which the job is not compared with.
    let sweep = [
        "exact,fir,2,150,0.4,0.5,no",
        "exact,fir,4,290,0.8,0.5,yes",
        "exact,fir,8,300,0.82,0.5,no",
        "image,image,2,900,0.9,0.1,yes",
    ];
    let sweep = sweep.map(|row| format!("{PHOTOS},{row},{disturbed}"));
    let columns = "photos,decoder,resizer,workers,images_per_second,encoder_busy,cpu_busy,plateau,disturbed";
    write(folder.path(), "worker_sweep.csv", columns, &sweep);
    // The forward is measured at another batch than the job's.
    let forward = ["fused,f32,64,100,1", "fused,bf16,64,190,0.9999", "ort,f32,64,900,0.95", "ort,f32,1,500,1"];
    let columns = "encoder,dtype,batch,images_per_second,cosine_to_reference";
    write(folder.path(), "forward.csv", columns, &forward.map(str::to_owned));
    // One regime's small errors do not hide another's.
    let plan = ["compute,0.01", "compute,-0.02", "compute,0.03", "storage,-0.2"];
    write(folder.path(), "plan.csv", "regime,error", &plan.map(str::to_owned));
    Report::read(folder.path()).unwrap().checklist()
}

#[test]
fn questions_are_answered_with_the_figures_of_the_files() {
    let checks = checklist("");
    for (question, figure, verdict, advice) in [
        ("does the encoder compute", "40.0\u{a0}%", "look", "decoding first"),
        ("is decoding", "60.0\u{a0}%", "look", "a faster decoder"),
        ("reduces the scale", "3.20×", "look", "decode scale low with decoder zune"),
        ("as fast is the fastest decoder?", "2.40×", "look", "decoder zune"),
        ("fastest forward", "1.90×", "look", "encoder fused, precision bf16"),
        ("does resizing cost", "133\u{a0}%", "look", "a faster resizer"),
        ("in the worker sweep", "50.0\u{a0}%", "look", "workers 4"),
        ("reading an image", "0.100\u{a0}ms", "good", "next to nothing"),
        ("does one reader get", "3,000\u{a0}MB/s", "good", "faster than one worker decodes"),
        ("large is a file", "300,000\u{a0}B", "good", ""),
        ("threads are there for a core", "0.750", "good", ""),
        ("copying to and from", "12.0\u{a0}%", "look", "larger batches"),
        ("cores' time is in use", "50.0\u{a0}%", "good", ""),
        ("its stages explain", "99.0\u{a0}%", "good", "nothing is hidden"),
        ("is the model from measured runs", "20.0\u{a0}%", "look", "storage-bound"),
    ] {
        let check = answer(&checks, question);
        assert_eq!((check.value().as_str(), check.verdict), (figure, verdict), "{question}");
        assert!(check.advice.contains(advice), "{question}: {}", check.advice);
    }
    for unmeasured in ["in the batch sweep", "that starves the encoder", "normalizing", "a long run reach"] {
        let check = answer(&checks, unmeasured);
        assert_eq!((check.value().as_str(), check.verdict), ("–", "unknown"), "{unmeasured}");
    }
}

#[test]
fn a_disturbed_file_answers_nothing() {
    let checks = checklist("others were busy");
    let check = answer(&checks, "in the worker sweep");
    assert!(check.verdict == "unknown" && check.advice.contains("was disturbed"), "{check:?}");
    assert_eq!(answer(&checks, "is decoding").verdict, "look", "the profile was not");
}

#[test]
fn sources_are_files_and_columns_of_the_schema() {
    for Check { source, .. } in checklist("") {
        let (file, columns) = source.split_once(": ").unwrap();
        let schema =
            foveate_report::schema::ALL.iter().find(|schema| schema.file == file).unwrap_or_else(|| panic!("{source}"));
        assert!(columns.split([' ', ',']).any(|word| schema.column(word).is_some()), "{source}");
    }
}
