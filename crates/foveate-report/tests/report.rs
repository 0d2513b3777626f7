//! The report of a run with made-up numbers.

#![allow(clippy::unwrap_used)] // helpers of tests are tests too

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use foveate_report::{Report, ReportError};
use roxmltree::{Document, Node};
use tempfile::TempDir;

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/run")
}

fn report() -> Report {
    Report::read(&fixture()).unwrap()
}

fn files() -> Vec<&'static str> {
    foveate_report::schema::ALL.map(|schema| schema.file).to_vec()
}

/// Creates a folder with some of the fixture's files, changed.
fn changed(names: &[&str], change: impl Fn(String) -> String) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in names {
        let text = fs::read_to_string(fixture().join(name)).unwrap();
        fs::write(folder.path().join(name), change(text)).unwrap();
    }
    folder
}

/// Returns a report on one file of the fixture.
fn report_of(file: &str) -> Report {
    Report::read(changed(&[file], |text| text).path()).unwrap()
}

/// Returns a report on one file of the fixture with some of its text replaced.
fn replaced(file: &str, from: &str, to: &str) -> Report {
    let folder = changed(&[file], |text| {
        assert!(text.contains(from), "{from}");
        text.replace(from, to)
    });
    Report::read(folder.path()).unwrap()
}

/// Parses the page as a tree; it is valid XML.
fn tree(html: &str) -> Document<'_> {
    Document::parse(html.strip_prefix("<!DOCTYPE html>").unwrap()).unwrap()
}

fn words(node: Node<'_, '_>) -> String {
    node.descendants().filter(Node::is_text).filter_map(|node| node.text()).collect()
}

fn titles(report: &Report) -> Vec<String> {
    report.figures().unwrap().into_iter().map(|figure| figure.title).collect()
}

#[test]
fn the_page_fetches_nothing() {
    let html = report().html().unwrap();
    for node in tree(&html).descendants() {
        for attribute in ["src", "href", "srcset", "data", "action", "style"] {
            assert_eq!(node.attribute(attribute), None, "{node:?}");
        }
        assert!(!["link", "iframe", "img", "object", "base"].contains(&node.tag_name().name()), "{node:?}");
    }
    for outside in ["url(", "@import", "http:", "https:", "fetch("] {
        assert!(!html.contains(outside), "{outside}");
    }
}

#[test]
fn every_figure_is_drawn_twice_in_the_page_and_is_a_file() {
    let expected = [
        "pipeline",
        "stages",
        "decoders",
        "resizers",
        "forward",
        "sinks",
        "copies",
        "read",
        "storage",
        "batch_sweep",
        "job_batch_sweep",
        "worker_sweep",
        "headline",
        "extrapolation",
        "tuning",
        "drift",
        "diagnosis",
        "remedies",
        "timeline",
        "plan",
        "walls",
        "machines",
        "worker",
    ];
    let html = report().html().unwrap();
    let tree = tree(&html);
    let drawn = tree
        .descendants()
        .filter(|node| node.has_tag_name("section") && node.children().any(|child| child.has_tag_name("figure")));
    let drawn: Vec<_> = drawn.map(|node| (node.attribute("id").unwrap(), node.descendants())).collect();
    assert_eq!(drawn.iter().map(|(name, _)| *name).collect::<Vec<_>>(), expected);
    for (name, nodes) in drawn {
        let svgs: Vec<Node<'_, '_>> = nodes.filter(|node| node.has_tag_name("svg")).collect();
        assert_eq!(svgs.len(), 2, "{name}");
        assert!(svgs.iter().all(|svg| svg.descendants().any(|node| node.has_tag_name("title"))), "{name}");
    }
    let out = tempfile::tempdir().unwrap();
    let written = report().write(out.path()).unwrap();
    assert_eq!(written[0], out.path().join("report.html"));
    for (path, figure) in written[1..].iter().zip(report().figures().unwrap()) {
        assert_eq!(*path, out.path().join("figures").join(figure.name).with_extension("svg"));
        let text = fs::read_to_string(path).unwrap();
        let tree = Document::parse(&text).unwrap();
        let child = |name| {
            tree.root_element().children().find(|node| node.tag_name().name() == name).map(words).unwrap_or_default()
        };
        assert_eq!(child("title"), figure.title);
        assert!(child("desc").len() > 60, "{}", figure.name);
        assert!(child("style").contains("prefers-color-scheme: dark"), "{}", figure.name);
    }
}

#[test]
fn findings_are_in_the_titles() {
    let titles = titles(&report());
    for expected in [
        "Forward takes 49.4\u{a0}% of a serial job on photos as given",
        "turbojpeg decodes 2.23× as fast as exact on photos as given",
        "With 256 requests in flight, the store delivers 558\u{a0}images/s; each takes 100\u{a0}ms to its first byte",
        "A batch of 32 is enough for candle f32: 9.70\u{a0}images/s",
        "All together: 7.66× on photos as given, 1.86× on small photos",
        "The culprit is decode: throughput drops by 35.8\u{a0}%",
        "What to try first: a faster decoder, measured 1.55×",
        "The model is off by 3.23\u{a0}% in the median of 24 runs, and by 13.8\u{a0}% at worst",
        "At every batch, the wall is CPU",
        "1,000,000 images cost least on large machine",
        "A worker's stages side by side: 2.02× with candle, 11.0× with stub",
    ] {
        assert!(titles.iter().any(|title| title == expected), "'{expected}' is not among {titles:#?}");
    }
}

#[test]
fn what_cannot_run_says_why() {
    let html = report().html().unwrap();
    let text = words(tree(&html).root_element());
    for expected in [
        "n/a (not compiled into this build; rebuild with -F nvjpeg)",
        "do not apply or cannot be predicted: tar shards",
        "Not measured: as given, 32 workers: n/a (more than 16 threads a core)",
        "n/a (no photo is large enough)",
    ] {
        assert!(text.contains(expected), "{expected}");
    }
}

#[test]
fn where_no_stage_is_to_blame_none_is_named() {
    let report = replaced("diagnosis.csv", ",yes,facebook", ",no,facebook");
    let expected = "No single stage is to blame: with all of them at work, throughput is 57.5\u{a0}% of the encoder's";
    assert_eq!(titles(&report), [expected]);
    assert!(report.html().unwrap().contains("no single stage"));
}

#[test]
fn a_job_at_nearly_its_encoder_s_rate_is_bound_by_it() {
    let folder = changed(&["diagnosis.csv"], |text| {
        text.replace(",yes,facebook", ",no,facebook").replace(",7,95.5,", ",7,160.2,")
    });
    let report = Report::read(folder.path()).unwrap();
    let title = "The encoder is the limit: with all stages at work, throughput is 96.5\u{a0}% of its own";
    assert_eq!(titles(&report), [title]);
    assert!(report.html().unwrap().contains("the encoder</p>"));
}

#[test]
fn remedies_of_one_name_are_told_apart_by_their_options() {
    let svg = |report: Report| report.figures().unwrap()[0].svg.clone();
    let one = svg(report_of("remedies.csv"));
    assert!(one.contains("scaled decoding") && !one.contains("--decode-scale fast"));
    let two = svg(replaced("remedies.csv", "scaled decoding", "a faster decoder"));
    assert!(two.contains("--decode-scale fast") && two.contains("--decoder turbojpeg"));
}

#[test]
fn legends_name_what_is_drawn() {
    let svg = |report: Report| report.figures().unwrap()[0].svg.clone();
    let reduced = "reduced size: fast, low";
    assert!(svg(report_of("decoders.csv")).contains(reduced));
    let exact = changed(&["decoders.csv"], |text| {
        text.lines().filter(|line| !line.contains(",fast,")).map(|line| format!("{line}\n")).collect()
    });
    assert!(!svg(Report::read(exact.path()).unwrap()).contains(reduced));
    let low = svg(replaced("decoders.csv", ",turbojpeg,fast,", ",turbojpeg,low,"));
    assert!(low.contains("turbojpeg, low"));
    let names = |svg: &str| ["storage", "transform", "compute"].map(|regime| svg.contains(&format!(">{regime}<")));
    assert_eq!(names(&svg(report_of("plan.csv"))), [true; 3]);
    assert_eq!(names(&svg(replaced("plan.csv", ",storage,storage,", ",transform,workers,"))), [false, true, true]);
}

/// An interval may reach below zero.
#[test]
fn whiskers_stay_on_their_axis() {
    let lines = |report: Report| {
        let svg = report.figures().unwrap()[0].svg.clone();
        let tree = Document::parse(&svg).unwrap();
        let points = tree.descendants().filter_map(|node| node.attribute("points").map(str::to_owned));
        let numbers = points.flat_map(|points| points.split([' ', ',']).map(str::to_owned).collect::<Vec<_>>());
        numbers.map(|number| number.parse::<f64>().unwrap()).collect::<Vec<_>>()
    };
    let usual = lines(report_of("extrapolation.csv"));
    let below = lines(replaced("extrapolation.csv", ",150.052,", ",-150,"));
    let least = |numbers: &[f64]| numbers.iter().copied().fold(f64::INFINITY, f64::min);
    assert!(least(&below) >= 0.0 && below.len() < usual.len(), "no end is drawn where the axis ends");
}

#[test]
fn walls_that_differ_by_batch_are_named_from_the_crossover_on() {
    let report = replaced("batch_plan.csv", ",1638.2,cpu,", ",1638.2,storage,");
    assert_eq!(titles(&report), ["From batch 32 on, the wall is storage"]);
}

#[test]
fn a_measured_gain_beats_a_predicted_one() {
    let report = replaced("remedies.csv", ",1.55183,", ",1.05,");
    assert_eq!(titles(&report), ["What to try first: scaled decoding, expected 1.40×"]);
    let report = replaced("remedies.csv", ",1.40314,,,", ",1.40314,140.1,1.46702,");
    assert_eq!(titles(&report), ["What to try first: a faster decoder, measured 1.55×"]);
    let report = |vectors| replaced("remedies.csv", ",1.40314,,,,,,,,close,", &format!(",2.40314,,,,,,,,{vectors},"));
    assert_eq!(titles(&report("close")), ["What to try first: scaled decoding, expected 2.40×"]);
    assert_eq!(titles(&report("other")), ["What to try first: a faster decoder, measured 1.55×"], "not other photos");
    // A file of an older version lacks the measured gain.
    let report = replaced("remedies.csv", ",measured_times,", ",was_another,");
    assert_eq!(titles(&report), ["What to try first: a faster decoder, expected 1.58×"]);
}

#[test]
fn the_combined_row_counts_and_a_run_with_less_that_reached_more_is_told() {
    let report = replaced("headline.csv", ",7.65888,", ",7.01,");
    assert_eq!(titles(&report), ["All together: 7.01× on photos as given, 1.86× on small photos"]);
    let html = report.html().unwrap();
    let text = words(tree(&html).root_element());
    assert!(text.contains("A run with fewer of them, up to batch 64, reached more on photos as given: 7.38×."));
}

#[test]
fn a_bar_that_dwarfs_the_others_makes_the_axis_logarithmic() {
    let lengths = |report: Report| {
        let svg = report.figures().unwrap()[0].svg.clone();
        let tree = Document::parse(&svg).unwrap();
        let bars =
            tree.descendants().filter(|node| node.has_tag_name("rect") && node.attribute("height") == Some("18.0"));
        let lengths: Vec<f64> = bars.map(|bar| bar.attribute("width").unwrap().parse().unwrap()).collect();
        (words(tree.root_element()).contains("images per second, logarithmic"), lengths)
    };
    let (is_logarithmic, _) = lengths(replaced("headline.csv", "310", "310"));
    assert!(!is_logarithmic);
    let (is_logarithmic, widths) = lengths(replaced("headline.csv", ",310,297.6,316.2,", ",31000,29760,31620,"));
    assert!(is_logarithmic && widths.iter().all(|width| *width > 5.0), "{widths:?}");
}

#[test]
fn a_stand_in_is_named_below_every_figure() {
    let device = "stand-in 5+0.9·n ms";
    let stand_in = changed(&files(), |text| text.replace("/dinov2-small,cpu,", &format!("/dinov2-small,{device},")));
    let svgs = |report: Report| report.figures().unwrap().into_iter().map(|figure| figure.svg);
    assert!(svgs(Report::read(stand_in.path()).unwrap()).all(|svg| svg.contains("The forward is a ")));
    assert!(svgs(report()).all(|svg| !svg.contains("The forward is a ")));
}

#[test]
fn a_forward_whose_time_is_assumed_is_dashed() {
    let dashed = |device: &str| {
        let device = format!("/dinov2-small,\"{device}\",");
        let stand_in = changed(&files(), |text| text.replace("/dinov2-small,cpu,", &device));
        let figures = Report::read(stand_in.path()).unwrap().figures().unwrap();
        let figures = figures.into_iter().filter(|figure| figure.svg.contains("class=\"line dashed"));
        figures.map(|figure| figure.name).collect::<Vec<_>>()
    };
    let assumed = dashed("stand-in t4-f16: 10.47+0.8304·n ms, fixed part assumed");
    assert_eq!(assumed, ["batch_sweep", "job_batch_sweep", "worker_sweep", "walls"]);
    assert_eq!(dashed("stand-in h100-f16: 0.27+0.0360·n ms"), [""; 0]);
}

#[test]
fn a_disturbed_run_says_so_before_its_figures() {
    let html = replaced("sinks.csv", ",0.31,,", ",0.31,9 others,").html().unwrap();
    let [warning, figures] = ["This run was disturbed", "<svg"].map(|text| html.find(text).unwrap());
    assert!(warning < figures && html.contains("<span data-from=\"sinks.csv:2:disturbed\">9 others</span>"));
    assert!(!report().html().unwrap().contains("This run was disturbed"));
}

#[test]
fn each_file_alone_makes_a_page_and_says_what_is_missing() {
    for file in files() {
        let report = Report::read(changed(&[file], |text| text).path()).unwrap();
        assert_eq!(report.missing().len(), files().len() - 1);
        let html = report.html().unwrap();
        let text = words(tree(&html).root_element());
        for other in files().into_iter().filter(|other| *other != file) {
            assert!(text.contains(&format!("No figure from {other}")), "the page of {file} says nothing of {other}");
        }
        assert_eq!(report.figures().unwrap().is_empty(), file == "control.csv", "{file}");
    }
    assert_eq!(report().missing(), []);
    assert!(!report().html().unwrap().contains("Not in this report"));
}

/// Files of another version lack columns. A number that is not there is not shown, and the rest is.
#[test]
fn a_file_may_lack_any_column() {
    for schema in foveate_report::schema::ALL {
        // Without its status, a row with empty fields is a fault.
        for column in schema.columns.iter().filter(|column| column.name != "status") {
            let folder = changed(&[schema.file], |text| text.replacen(column.name, "unheard_of", 1));
            let html = Report::read(folder.path()).and_then(|report| report.html());
            tree(&html.unwrap_or_else(|error| panic!("{} without {}: {error}", schema.file, column.name)));
        }
    }
    let html = replaced("decoders.csv", "p50_ms", "p50").html().unwrap();
    assert!(html.contains("No figure decoders: decoders.csv has no column p50_ms"));
}

#[test]
fn the_same_files_give_the_same_bytes() {
    let write = || {
        let out = tempfile::tempdir().unwrap();
        let written = report().write(out.path()).unwrap();
        written.iter().map(|path| fs::read_to_string(path).unwrap()).collect::<Vec<_>>()
    };
    assert!(write() == write());
}

/// Text in figures lies inside them at either width.
#[test]
fn nothing_sticks_out_of_a_figure() {
    let html = report().html().unwrap();
    for svg in tree(&html).descendants().filter(|node| node.has_tag_name("svg")) {
        let numbers: Vec<f64> = svg.attribute("viewBox").unwrap().split(' ').map(|n| n.parse().unwrap()).collect();
        let width = numbers[2];
        let height = numbers[3];
        let texts = svg.descendants().filter(|node| node.has_tag_name("text"));
        for text in texts.filter(|text| !text.attribute("class").unwrap().starts_with("heading")) {
            let number = |name| text.attribute(name).unwrap().parse::<f64>().unwrap();
            let long = words(text).chars().count() as f64 * number("font-size") * 0.5;
            let left = match text.attribute("text-anchor").unwrap() {
                "start" => number("x"),
                "middle" => number("x") - long / 2.0,
                _ => number("x") - long,
            };
            let inside = left > -6.0 && left + long < width + 6.0 && (0.0..=height).contains(&number("y"));
            assert!(inside, "'{}' at {left}, {} in {width} x {height}", words(text), number("y"));
        }
    }
}

/// Returns the contrast of two colours, as defined by WCAG 2.
fn contrast(a: u32, b: u32) -> f64 {
    let linear = |value: u32| {
        let value = f64::from(value & 255) / 255.0;
        if value <= 0.040_45 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
    };
    let luminance = |rgb: u32| 0.2126 * linear(rgb >> 16) + 0.7152 * linear(rgb >> 8) + 0.0722 * linear(rgb);
    (luminance(a).max(luminance(b)) + 0.05) / (luminance(a).min(luminance(b)) + 0.05)
}

#[test]
fn letters_are_readable_in_light_and_dark() {
    let svg = &report().figures().unwrap()[0].svg;
    for style in svg.split("</style>").next().unwrap().split("@media") {
        let pairs = style.split("--").filter_map(|pair| pair.split_once(": #")).filter(|(name, _)| !name.contains(' '));
        let inks: BTreeMap<&str, u32> =
            pairs.map(|(name, rgb)| (name, u32::from_str_radix(&rgb[..6], 16).unwrap())).collect();
        assert_eq!(inks.len(), 16);
        for (name, ink) in &inks {
            let (least, ground) = match *name {
                "words" | "muted" => (4.5, inks["back"]),
                "forward" | "batch" => (3.8, 0xff_ff_ff),
                "back" | "grid" | "quiet" => continue,
                _ => (4.5, 0x11_11_11),
            };
            assert!(contrast(*ink, ground) >= least, "{name}: {:.2}", contrast(*ink, ground));
        }
    }
}

/// Text from a file stays text in the page, even if it contains markup.
#[test]
fn markup_in_a_file_is_no_markup_in_the_page() {
    let report = replaced("sinks.csv", "parquet", "</script><script>9&\u{1}{{data}}']]>");
    let html = report.html().unwrap();
    assert_eq!(html.matches("<script").count(), 2);
    assert!(html.contains("&lt;/script&gt;&lt;script&gt;9&amp;{{data}}']]&gt;"));
    let text = words(tree(&html).root_element());
    assert!(text.contains("\\u003c/script\\u003e\\u003cscript\\u003e9\\u0026{{data}}']]\\u003e"));
    report.figures().unwrap().iter().for_each(|figure| drop(Document::parse(&figure.svg).unwrap()));
}

#[test]
fn numbers_at_their_extremes_make_figures() {
    for numbers in ["0,0,0,0", "1e-300,1e300,1e300,1e300", "5,,,", "5,1,,"] {
        let rows =
            format!("encoder,dtype,batch,status,p50_ms,p90_ms,mean_ms,images_per_second\na,f32,1,ok,{numbers}\n");
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("forward.csv"), rows).unwrap();
        let html = Report::read(folder.path()).unwrap().html().unwrap();
        tree(&html);
        let drawn = html.split("<script").next().unwrap();
        assert!(drawn.contains("id=\"forward\"") && !drawn.contains("NaN") && !drawn.contains("\"inf"), "{numbers}");
    }
}

/// Returns the fixture's fields by `file:line:column`.
fn fields() -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    for file in files() {
        let mut reader = csv::Reader::from_path(fixture().join(file)).unwrap();
        let header = reader.headers().unwrap().clone();
        for record in reader.records() {
            let record = record.unwrap();
            let line = record.position().unwrap().line();
            let keyed = header.iter().zip(&record);
            fields.extend(keyed.map(|(column, text)| (format!("{file}:{line}:{column}"), text.to_owned())));
        }
    }
    fields
}

#[test]
fn the_page_has_every_field_of_every_file() {
    let html = report().html().unwrap();
    let tree = tree(&html);
    let data = tree.descendants().find(|node| node.attribute("id") == Some("run")).unwrap();
    let tables: serde_json::Value = serde_json::from_str(&words(data)).unwrap();
    let mut embedded = BTreeMap::new();
    for table in tables.as_array().unwrap() {
        for row in table["rows"].as_array().unwrap() {
            for (column, text) in table["columns"].as_array().unwrap().iter().zip(row[1].as_array().unwrap()) {
                let key = format!("{}:{}:{}", table["file"].as_str().unwrap(), row[0], column.as_str().unwrap());
                embedded.insert(key, text.as_str().unwrap().to_owned());
            }
        }
    }
    assert!(embedded == fields());
}

/// Parses the number in a shown text, without commas; percentages become shares, short times those of the file.
fn value(shown: &str) -> Option<f64> {
    let digits: String = shown.replace('−', "-").chars().filter(|c| *c != ',').collect();
    let end = digits.find(|c: char| !(c.is_ascii_digit() || "+-.e".contains(c))).unwrap_or(digits.len());
    let number: f64 = digits[..end].parse().ok()?;
    let finer = [("%", 100.0), ("min", 60.0), ("µs", 1e3), ("ns", 1e6)].into_iter();
    Some(number / finer.filter(|(unit, _)| shown.ends_with(unit)).map(|(_, times)| times).next().unwrap_or(1.0))
}

fn median(errors: &[f64]) -> f64 {
    let mut sizes: Vec<f64> = errors.iter().map(|error| error.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    (sizes[sizes.len() / 2] + sizes[(sizes.len() - 1) / 2]) / 2.0
}

#[test]
fn what_is_shown_is_what_the_files_say() {
    let html = report().html().unwrap();
    let fields = fields();
    let mut numbers = 0;
    let mut derived = BTreeSet::new();
    let mut shown_files = BTreeSet::new();
    for node in tree(&html).descendants() {
        let origins: Vec<&str> = node.attribute("data-from").unwrap_or_default().split(' ').collect();
        let found: Vec<&String> = origins.iter().filter_map(|origin| fields.get(*origin)).collect();
        assert!(found.len() == origins.len() || origins == [""], "{origins:?} are no fields");
        shown_files.extend(origins.iter().map(|origin| origin.split(':').next().unwrap().to_owned()));
        if origins == [""] || !["span", "tspan"].contains(&node.tag_name().name()) {
            continue;
        }
        let shown = words(node);
        let from: Vec<f64> = found.iter().map(|field| field.parse().unwrap_or(f64::NAN)).collect();
        let expected = match node.attribute("data-how") {
            None if from[0].is_nan() => {
                assert!(
                    found[0].contains(shown.trim_end_matches('…')),
                    "'{shown}' is not '{}' of {origins:?}",
                    found[0]
                );
                continue;
            }
            None => from[0],
            Some("first ÷ second") => from[0] / from[1],
            Some("the row's number") => origins[0].split(':').nth(1).unwrap().parse::<f64>().unwrap() - 1.0,
            Some("first ÷ second, in MB/s") => from[0] / 1e3 / from[1],
            Some("first + second") => from[0] + from[1],
            Some("1 − the field") => 1.0 - from[0],
            Some("workers and the forward's threads, ÷ cores") => (from[0] + from[1]) / from[2],
            Some("number of rows") => from.len() as f64,
            Some("median of the errors without their signs") => median(&from),
            Some("the error that is furthest from 0, without its sign") => from[0].abs(),
            Some(how) => {
                assert!(how.starts_with("ends − starts of the encoders' stretches, summed, ÷ the last end"), "{how}");
                let (last, stretches) = from.split_last().unwrap();
                stretches.chunks(2).map(|stretch| stretch[1] - stretch[0]).sum::<f64>() / last
            }
        };
        let number = value(&shown).unwrap_or_else(|| panic!("'{shown}' from {origins:?}"));
        assert!((number - expected).abs() <= expected.abs() * 0.0051, "{shown} is not {expected} of {origins:?}");
        numbers += 1;
        derived.extend(node.attribute("data-how").map(str::to_owned));
    }
    assert!(numbers > 300 && derived.len() == 10, "{numbers} {derived:?}");
    // The page's script shows these two.
    let expected = files().into_iter().filter(|file| *file != "control.csv");
    assert_eq!(shown_files.into_iter().filter(|file| !file.is_empty()).collect::<Vec<_>>(), {
        let mut expected: Vec<_> = expected.collect();
        expected.sort_unstable();
        expected
    });
}

/// Digits appear only in numbers with an origin and beside axes.
#[test]
fn no_number_is_without_an_origin() {
    let html = report().html().unwrap();
    let tree = tree(&html);
    let body = tree.descendants().find(|node| node.has_tag_name("body")).unwrap();
    let with_digits =
        |node: &Node<'_, '_>| node.is_text() && node.text().unwrap().contains(|c: char| c.is_ascii_digit());
    for node in body.descendants().filter(with_digits) {
        let excused = node.ancestors().any(|node| {
            node.attribute("data-from").is_some_and(|from| !from.is_empty())
                || node.attribute("class").is_some_and(|class| class.starts_with("tick "))
                || node.has_tag_name("script")
                // Thresholds and advice of the checklist.
                || node.attribute("data-name").is_some()
        });
        assert!(excused, "'{}' says not where it is from: {:?}", node.text().unwrap(), node.parent());
    }
}

#[test]
fn a_folder_without_results_says_what_was_looked_for() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("other.csv"), "a,b\n1,2\n").unwrap();
    for folder in [folder.path(), Path::new("does/not/exist")] {
        let error = Report::read(folder).unwrap_err();
        assert!(matches!(error, ReportError::Nothing { .. }), "{error:?}");
        let message = error.to_string();
        assert!(message.contains(&folder.display().to_string()), "{message}");
        assert!(message.contains("`foveate bench all` makes them"), "{message}");
        assert!(files().iter().all(|file| message.contains(file)), "{message}");
    }
}

#[test]
fn faults_are_shown_with_line_and_column() {
    let cases: [(&str, &[u8], &[u8], &str); 9] = [
        ("sinks.csv", b"402000", b"many", "line 3, column `rows_per_second`: 'many' is not a number"),
        ("sinks.csv", b"402000", b"NaN", "line 3, column `rows_per_second`: 'NaN' is no finite number"),
        ("sinks.csv", b"402000", b"-3", "line 3, column `rows_per_second`: -3 is below zero"),
        ("sinks.csv", b"402000", b"", "line 3, column `rows_per_second`: the number is missing"),
        ("sinks.csv", b",402000", b"", "line 3, the whole line: CSV error"),
        ("sinks.csv", b"dim", b"rows", "line 1, column `rows`: there are two such columns"),
        ("sinks.csv", b"402000", b"\xff", "line 3, the whole line: the text is not UTF-8"),
        ("walls.csv", b"", b"a,b\n1,2\n", "line 1, the whole line: it names none of the file's columns"),
        ("walls.csv", b"", b"batch,wall\n", "line 2, the whole line: there are names of columns, but no rows"),
    ];
    for (file, from, to, expected) in cases {
        let folder = tempfile::tempdir().unwrap();
        let (name, bytes) = match file {
            "walls.csv" => ("batch_plan.csv", to.to_vec()),
            _ => {
                let bytes = fs::read(fixture().join(file)).unwrap();
                let at = bytes.windows(from.len()).position(|window| window == from).unwrap();
                (file, [&bytes[..at], to, &bytes[at + from.len()..]].concat())
            }
        };
        fs::write(folder.path().join(name), bytes).unwrap();
        let message = Report::read(folder.path()).and_then(|report| report.html()).unwrap_err().to_string();
        assert!(message.contains(&format!("{name}, {expected}")) && message.contains("makes it anew"), "{message}");
    }
}

#[test]
fn files_that_cannot_be_read_or_written_are_named() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("plan.csv")).unwrap();
    let error = Report::read(folder.path()).unwrap_err();
    assert!(matches!(error, ReportError::File { .. }) && error.to_string().contains("plan.csv"), "{error}");
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let error = report().write(&file).unwrap_err();
    assert!(matches!(error, ReportError::File { .. }) && error.to_string().contains("file"), "{error}");
}

#[test]
fn the_fixture_has_the_columns_of_the_schema_and_says_that_it_is_made_up() {
    for schema in foveate_report::schema::ALL {
        let text = fs::read_to_string(fixture().join(schema.file)).unwrap();
        let columns: Vec<&str> = text.lines().next().unwrap().split(',').collect();
        let lacking = schema.all_columns().find(|column| !columns.contains(&column.name));
        assert_eq!(lacking, None, "{}", schema.file);
        assert!(text.lines().skip(1).all(|line| line.contains("fixture (made-up numbers)")), "{}", schema.file);
    }
}
