//! Token ids compared with those of the families' libraries, through every layout of a tokenizer's files.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::process::ExitCode;

use foveate_testkit::{data, run, trials};
use foveate_text::{TextError, TextRules, TextTokenizer};
use npyz::npz::NpzArchive;
use serde_json::Value;
use tempfile::TempDir;

/// A folder of the families' data, its rules, and files that are enough for its tokenizer.
type Family = (&'static str, fn(usize) -> TextRules, &'static [&'static [&'static str]]);
const FAMILIES: [Family; 8] = [
    ("clip-gelu", TextRules::clip, &[&["tokenizer.json"], &["vocab.json", "merges.txt"]]),
    ("clip-quickgelu", TextRules::clip, &[&["tokenizer.json"], &["vocab.json", "merges.txt"]]),
    ("openclip", TextRules::open_clip, &[&["tokenizer.json"], &["bpe_simple_vocab.txt.gz"]]),
    ("pe-core-openclip", TextRules::open_clip, &[&["tokenizer.json"], &["bpe_simple_vocab.txt.gz"]]),
    ("siglip", TextRules::siglip, &[&["tokenizer.json"], &["spiece.model"]]),
    ("siglip2-fixed", TextRules::siglip2, &[&["tokenizer.json"]]),
    ("siglip2-naflex", TextRules::siglip2, &[&["tokenizer.json"]]),
    ("tipsv2", TextRules::tips, &[&["tokenizer.json"], &["tokenizer.model"]]),
];

fn main() -> ExitCode {
    run(trials![
        ids_are_those_of_the_families_libraries,
        a_long_text_keeps_its_end_token,
        files_say_how_to_pad_and_whether_case_counts,
        errors_name_the_file_and_the_remedy,
    ])
}

/// A folder with these files of a family's.
fn folder(family: &str, files: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in files {
        fs::copy(data("families").join(family).join(name), folder.path().join(name)).unwrap();
    }
    folder
}

/// An array of golden.npz, and the length of its rows.
fn golden(family: &str, name: &str) -> (Vec<i32>, usize) {
    let mut archive = NpzArchive::open(data("families").join(family).join("golden.npz")).unwrap();
    let array = archive.by_name(name).unwrap().unwrap();
    let width = array.shape()[1] as usize;
    (array.into_vec().unwrap(), width)
}

fn ids_are_those_of_the_families_libraries() {
    for (family, rules, layouts) in FAMILIES {
        let described = fs::read(data("families").join(family).join("golden.json")).unwrap();
        let described: Value = serde_json::from_slice(&described).unwrap();
        let texts: Vec<&str> = described["texts"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let (ids, context) = golden(family, "input_ids");
        let (mask, _) = golden(family, "attention_mask");
        assert_eq!((texts.len(), ids.len()), (24, 24 * context));
        for files in layouts {
            let tokenizer = folder(family, files);
            let tokenizer = TextTokenizer::open(tokenizer.path(), rules(context)).unwrap();
            for ((text, ids), mask) in texts.iter().zip(ids.chunks(context)).zip(mask.chunks(context)) {
                let ours = tokenizer.encode(text).unwrap();
                let theirs: Vec<u32> = ids.iter().map(|&id| id as u32).collect();
                assert_eq!(ours.ids, theirs, "{family} {files:?}: {text}");
                assert_eq!(ours.real, mask.iter().sum::<i32>() as usize, "{family} {files:?}: {text}");
                assert!(!ours.truncated || ours.real == context, "{family} {files:?}: {text}");
            }
        }
    }
}

fn a_long_text_keeps_its_end_token() {
    for (family, rules, _) in FAMILIES {
        let tokenizer = TextTokenizer::open(&data("families").join(family), rules(8)).unwrap();
        let short = tokenizer.encode("a").unwrap();
        let long = tokenizer.encode(&"a long text ".repeat(9)).unwrap();
        assert_eq!((long.ids.len(), long.real, long.truncated), (8, 8, true), "{family}");
        assert_eq!((short.ids.len(), short.truncated), (8, false), "{family}");
        if family != "tipsv2" {
            assert_eq!(long.ids[7], short.ids[short.real - 1], "{family}");
        }
    }
}

fn files_say_how_to_pad_and_whether_case_counts() {
    let folder = folder("siglip", &["spiece.model"]);
    let encode = |config: &str| {
        fs::write(folder.path().join("tokenizer_config.json"), config).unwrap();
        TextTokenizer::open(folder.path(), TextRules::siglip(16)).unwrap().encode("a CAT").unwrap().ids
    };
    let usual = encode("{}");
    assert_eq!(usual[15], 1);
    assert_eq!(encode(r#"{"pad_token": "<unk>"}"#)[15], 2);
    assert_eq!(encode(r#"{"pad_token": {"content": "<unk>"}}"#)[15], 2);
    assert_ne!(encode(r#"{"do_lower_case": false}"#), usual);
}

fn errors_name_the_file_and_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let open = |rules| TextTokenizer::open(folder.path(), rules).map(drop).unwrap_err();
    let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    assert!(matches!(open(TextRules::tips(2)), TextError::Context(2)));
    assert!(open(TextRules::tips(64)).to_string().contains("copy one of them from where the model was published"));

    let spiece = fs::read(data("families/siglip/spiece.model")).unwrap();
    let cases: [(&str, &[u8], &str); 5] = [
        ("bpe_simple_vocab.txt.gz", b"plain", "bpe_simple_vocab.txt.gz: "),
        ("tokenizer.model", &spiece, "no token '<eos>'"),
        ("tokenizer.json", b"{}", "tokenizer.json: "),
        ("spiece.model", &spiece[..999], "cut short; fetch the file again"),
        ("spiece.model", b"", "no SentencePiece model"),
    ];
    for (name, bytes, message) in cases {
        write(name, bytes);
        let error = open(TextRules::siglip2(64)).to_string();
        assert!(error.contains(name) && error.contains(message), "{error}");
    }
}
