//! The page and its figures: complete, self-contained, reproducible.

use std::collections::BTreeSet;

use crate::common::{files, fixture, report, some, tree};
use foveate_report::Report;

#[test]
fn the_page_fetches_nothing() {
    let html = report().html().unwrap();
    let tree = tree(&html);
    for node in tree.descendants() {
        for attribute in ["src", "href", "srcset", "data", "action", "style"] {
            assert_eq!(node.attribute(attribute), None, "{node:?}");
        }
        assert!(!["script", "link", "iframe", "img", "object", "base"].contains(&node.tag_name().name()), "{node:?}");
    }
    for (at, _) in html.match_indices("url(") {
        assert!(html[at..].starts_with("url(data:font/ttf;base64,"), "{}", &html[at..at + 40]);
    }
    assert!(!html.contains("@import") && !html.contains("http:") && !html.contains("https:"));
}

#[test]
fn every_file_has_its_place() {
    let html = report().html().unwrap();
    for file in files() {
        let shown = html.matches(&format!("data-from=\"{file}:")).count();
        assert!(shown > 0, "nothing of {file} is shown");
    }
    let names: Vec<&str> = report().figures().unwrap().iter().map(|figure| figure.name).collect();
    let expected = [
        "pipeline",
        "stages",
        "decoders",
        "resizers",
        "forward",
        "sinks",
        "storage",
        "batch_sweep",
        "worker_sweep",
        "headline",
        "extrapolation",
        "tuning",
        "diagnosis",
        "remedies",
        "timeline",
        "plan",
        "walls",
        "worker",
    ];
    assert_eq!(names, expected);
}

#[test]
fn findings_are_in_the_titles() {
    let titles: Vec<String> = report().figures().unwrap().into_iter().map(|figure| figure.title).collect();
    for expected in [
        "Forward takes 49.4\u{a0}% of a serial job on photos as given",
        "With 58 requests in flight, the store delivers 528\u{a0}images/s; each takes 100\u{a0}ms to its first byte",
        "A batch of 32 is enough for candle f32: 9.70\u{a0}images/s",
        "All together: 7.66× on photos as given, 1.86× on small photos",
        "The culprit is decode: throughput drops by 35.8\u{a0}%",
        "What to try first: a faster decoder, expected 1.58×",
        "From batch 32 on, the wall is cpu",
        "A worker's stages side by side: 2.02× with candle, 11.0× with stub",
    ] {
        assert!(titles.iter().any(|title| title == expected), "'{expected}' is not among {titles:#?}");
    }
}

#[test]
fn what_cannot_run_says_why() {
    let html = report().html().unwrap();
    assert!(html.contains("n/a (not compiled into this build; rebuild with -F nvjpeg)"));
    assert!(html.contains("do not apply or cannot be predicted: tar shards"));
    let text: String = tree(&html).descendants().filter(|node| node.is_text()).filter_map(|node| node.text()).collect();
    assert!(text.contains("Not measured: as given, 32 workers: n/a (more than 16 threads a core)"));
    assert!(text.contains("n/a (no photo is large enough)"));
}

#[test]
fn where_no_stage_is_to_blame_none_is_named() {
    let folder = some(&["diagnosis.csv"]);
    let path = folder.path().join("diagnosis.csv");
    let rows = std::fs::read_to_string(&path).unwrap();
    assert_eq!(rows.matches(",yes,facebook").count(), 1);
    std::fs::write(&path, rows.replace(",yes,facebook", ",no,facebook")).unwrap();
    let report = Report::read(folder.path()).unwrap();
    let title = &report.figures().unwrap()[0].title;
    let expected =
        "No single stage is to blame: with all of them at work, throughput is 57.5\u{a0}% of the shallowest depth's";
    assert_eq!(title, expected);
    assert!(report.html().unwrap().contains("no single stage"));
}

#[test]
fn each_file_alone_makes_a_page_and_says_what_is_missing() {
    for file in files() {
        let folder = some(&[&file]);
        let report = Report::read(folder.path()).unwrap();
        assert_eq!(report.missing().len(), files().len() - 1);
        let html = report.html().unwrap();
        let text: String = tree(&html).descendants().filter_map(|node| node.text()).collect();
        for other in files().iter().filter(|other| **other != file) {
            assert!(text.contains(other.as_str()), "the page of {file} does not say that {other} is missing");
        }
        assert_eq!(
            report.figures().unwrap().is_empty(),
            ["checklist.csv", "control.csv"].contains(&file.as_str()),
            "{file}"
        );
    }
}

#[test]
fn a_complete_run_lacks_nothing() {
    assert_eq!(report().missing(), []);
    assert!(!report().html().unwrap().contains("Not in this report"));
}

#[test]
fn the_same_files_give_the_same_bytes() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let written = report().write(first.path()).unwrap();
    report().write(second.path()).unwrap();
    for path in written {
        let other = second.path().join(path.strip_prefix(first.path()).unwrap());
        assert!(std::fs::read(&path).unwrap() == std::fs::read(other).unwrap(), "{}", path.display());
    }
}

#[test]
fn figures_are_files_with_something_on_them() {
    let out = tempfile::tempdir().unwrap();
    let written = report().write(out.path()).unwrap();
    let pngs = written.iter().filter(|path| path.extension().is_some_and(|end| end == "png"));
    assert_eq!(pngs.clone().count(), report().figures().unwrap().len());
    for path in pngs {
        let picture = resvg::tiny_skia::Pixmap::load_png(path).unwrap();
        let colors: BTreeSet<[u8; 4]> =
            picture.pixels().iter().map(|pixel| [pixel.red(), pixel.green(), pixel.blue(), pixel.alpha()]).collect();
        assert!(colors.len() > 20, "{}: {} colours", path.display(), colors.len());
        let drawn = picture.pixels().iter().filter(|pixel| pixel.red() < 250).count();
        assert!(drawn * 200 > picture.pixels().len(), "{} is nearly blank", path.display());
        assert!(picture.pixels().iter().all(|pixel| pixel.alpha() == 255), "{} can be seen through", path.display());
    }
}

#[test]
fn figures_are_named_and_described() {
    for figure in report().figures().unwrap() {
        let tree = roxmltree::Document::parse(&figure.svg).unwrap();
        let child =
            |name| tree.root_element().children().find(|node| node.has_tag_name(("http://www.w3.org/2000/svg", name)));
        assert_eq!(child("title").and_then(|node| node.text()), Some(figure.title.as_str()));
        assert!(child("desc").and_then(|node| node.text()).is_some_and(|text| text.len() > 30), "{}", figure.name);
    }
}

/// Text in figures lies inside them: nothing is cut off at either width.
#[test]
fn nothing_sticks_out_of_a_figure() {
    let html = report().html().unwrap();
    let tree = tree(&html);
    for svg in tree.descendants().filter(|node| node.has_tag_name("svg")) {
        let numbers: Vec<f32> = svg.attribute("viewBox").unwrap().split(' ').map(|n| n.parse().unwrap()).collect();
        let (width, height) = (numbers[2], numbers[3]);
        for text in svg.descendants().filter(|node| node.has_tag_name("text")) {
            let number = |name| text.attribute(name).unwrap().parse::<f32>().unwrap();
            let words: String =
                text.descendants().filter(|node| node.is_text()).filter_map(|node| node.text()).collect();
            // Half the size is about the width of a letter.
            let long = words.chars().count() as f32 * number("font-size") * 0.5;
            let left = match text.attribute("text-anchor").unwrap() {
                "start" => number("x"),
                "middle" => number("x") - long / 2.0,
                _ => number("x") - long,
            };
            let slack = 6.0 + 0.12 * long;
            let inside = left > -slack && left + long < width + slack && (0.0..=height).contains(&number("y"));
            assert!(inside, "'{words}' at {left}, {} in {width} x {height}", number("y"));
        }
    }
}

/// Text from a file stays text in the page, even if it contains markup.
#[test]
fn markup_in_a_file_is_no_markup_in_the_page() {
    let folder = some(&["sinks.csv"]);
    let path = folder.path().join("sinks.csv");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("parquet", "<script>9&\u{1}\"\"]]>")).unwrap_or_default();
    let text = std::fs::read_to_string(&path).unwrap().replace("\"\"", "'");
    std::fs::write(&path, text).unwrap();
    let report = Report::read(folder.path()).unwrap();
    let html = report.html().unwrap();
    assert!(!html.contains("<script") && html.contains("&lt;script&gt;9&amp;'"));
    tree(&html);
    report.write(folder.path()).unwrap();
}

#[test]
fn numbers_at_their_extremes_make_figures() {
    let columns: Vec<&str> = foveate_schema::FORWARD.all_columns().map(|column| column.name).collect();
    let folder = tempfile::tempdir().unwrap();
    for numbers in [["0", "0", "0"], ["1e-300", "1e300", "1e300"], ["5", "", ""], ["5", "1", ""]] {
        let value = |column: &&str| match *column {
            "encoder" => "a",
            "dtype" => "f32",
            "status" => "ok",
            "threads" | "batch" | "cores" | "seed" => "1",
            "p50_ms" => numbers[0],
            "p90_ms" => numbers[1],
            "images_per_second" => numbers[2],
            _ => "",
        };
        let values: Vec<&str> = columns.iter().map(value).collect();
        let rows = format!("{}\n{}\n", columns.join(","), values.join(","));
        std::fs::write(folder.path().join("forward.csv"), rows).unwrap();
        let report = Report::read(folder.path()).unwrap();
        report.write(folder.path()).unwrap_or_else(|error| panic!("{numbers:?}: {error}"));
        tree(&report.html().unwrap());
    }
}

#[test]
fn the_fixture_says_that_it_is_made_up() {
    for file in files() {
        let text = std::fs::read_to_string(fixture().join(&file)).unwrap();
        assert!(text.lines().skip(1).all(|line| line.contains("fixture (made-up numbers)")), "{file}");
    }
}

/// Returns a report on one file of the fixture, with some of its text replaced.
fn changed(file: &str, changes: &[(&str, &str)]) -> Report {
    let folder = some(&[file]);
    let path = folder.path().join(file);
    let mut rows = std::fs::read_to_string(&path).unwrap();
    for (from, to) in changes {
        assert!(rows.contains(from), "{from}");
        rows = rows.replace(from, to);
    }
    std::fs::write(path, rows).unwrap();
    Report::read(folder.path()).unwrap()
}

#[test]
fn the_combined_row_counts_and_a_run_with_less_that_reached_more_is_told() {
    let report = changed("headline.csv", &[("dtype bf16", "all combined"), (",7.65888,", ",7.01,")]);
    assert_eq!(report.figures().unwrap()[0].title, "All together: 7.01× on photos as given, 1.86× on small photos");
    let html = report.html().unwrap();
    let text: String = tree(&html).descendants().filter(|node| node.is_text()).filter_map(|node| node.text()).collect();
    assert!(
        text.contains("A run with fewer of them, up to batch 64, reached more on photos as given: 7.38×."),
        "{text}"
    );
}

#[test]
fn a_bar_that_would_squash_the_others_is_broken() {
    let gaps = |report: Report| report.figures().unwrap()[0].svg.matches("class=\"f-back\"").count();
    let whole = gaps(changed("headline.csv", &[]));
    let broken = changed("headline.csv", &[(",310,297.6,316.2,", ",31000,29760,31620,")]);
    assert_eq!(gaps(broken), whole + 1);
}

#[test]
fn a_stand_in_is_named_below_every_figure() {
    let device = "stand-in 5+0.9·n ms";
    let folder = some(&files().iter().map(String::as_str).collect::<Vec<_>>());
    for file in files() {
        let path = folder.path().join(file);
        let rows = std::fs::read_to_string(&path).unwrap();
        std::fs::write(path, rows.replace("/dinov2-small,cpu,", &format!("/dinov2-small,{device},"))).unwrap();
    }
    for figure in Report::read(folder.path()).unwrap().figures().unwrap() {
        assert!(figure.svg.contains("The forward is a ") && figure.svg.contains(device), "{}", figure.name);
    }
    assert!(report().figures().unwrap().iter().all(|figure| !figure.svg.contains("The forward is a ")));
}

#[test]
fn the_font_has_every_letter() {
    use skrifa::{FontRef, MetadataProvider};
    let font = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/fonts/Roboto-Regular.ttf")).unwrap();
    let letters = FontRef::new(&font).unwrap().charmap();
    for figure in report().figures().unwrap() {
        let lacking: BTreeSet<char> = figure.svg.chars().filter(|c| *c != '\n' && letters.map(*c).is_none()).collect();
        assert!(lacking.is_empty(), "{}: {lacking:?}", figure.name);
    }
}
