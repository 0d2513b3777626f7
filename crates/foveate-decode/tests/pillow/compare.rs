//! Compares decoded, upright pixels with Pillow's, for the files that `make.py` generates.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

use foveate_core::{PixelBuf, Size, error_chain};
use foveate_decode::{ByFormat, DecodeError, DecodeHint, Decoder, DecoderOptions, orientation};
use foveate_decode_exact::ExactDecoder;
use foveate_decode_extra::ExtraDecoder;
use foveate_decode_image::GenericDecoder;
use foveate_decode_webp::WebPDecoder;

/// A generated file, and Pillow's pixels of it.
pub(super) struct Case {
    pub(super) class: String,
    pub(super) file: String,
    bytes: Vec<u8>,
    /// The largest accepted difference of a sample.
    tolerance: u8,
    /// True if an error is accepted that says why the file is not read.
    refusable: bool,
    /// True if truncated files are accepted, by Pillow too.
    lenient: bool,
    /// `None` if Pillow refuses the file.
    expected: Option<(Size, Vec<u8>)>,
}

/// The outcome of a case.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    /// Pillow's pixels, but for differences up to this; 0 means equal.
    Read(u8),
    /// Refused as unsupported, truncated or corrupt, where that is accepted.
    Refused,
    /// Pillow refuses the file.
    NotInPillow,
    /// Anything else, in words.
    Wrong(String),
}

/// The cases in `folder`, which `make.py` wrote.
pub(super) fn cases(folder: &Path) -> io::Result<Vec<Case>> {
    let table = fs::read_to_string(folder.join("cases.csv"))?;
    let pixels = fs::read(folder.join("pixels.rgb"))?;
    let mut rest = pixels.as_slice();
    let cases: io::Result<Vec<_>> = table.lines().skip(1).map(|line| case(folder, &fields(line), &mut rest)).collect();
    assert!(cases.is_err() || rest.is_empty(), "pixels.rgb is longer than cases.csv says");
    cases
}

/// The class is in quotes where it has a comma.
fn fields(line: &str) -> Vec<&str> {
    let (class, others) = match line.strip_prefix('"') {
        Some(quoted) => quoted.split_once("\",").expect("a closing quote"),
        None => line.split_once(',').expect("a comma"),
    };
    std::iter::once(class).chain(others.split(',')).collect()
}

fn case(folder: &Path, fields: &[&str], pixels: &mut &[u8]) -> io::Result<Case> {
    let &[class, file, tolerance, refusable, lenient, width, height] = fields else { panic!("a line with {fields:?}") };
    let number = |text: &str| text.parse::<u32>().expect("a number");
    let size = Size::new(number(width), number(height));
    let (rgb, rest) = pixels.split_at(size.rgb_len().expect("a small picture"));
    *pixels = rest;
    Ok(Case {
        class: class.to_owned(),
        file: file.to_owned(),
        bytes: fs::read(folder.join(file))?,
        tolerance: tolerance.parse().expect("a difference of samples"),
        refusable: refusable == "1",
        lenient: lenient == "1",
        expected: (!size.is_empty()).then(|| (size, rgb.to_vec())),
    })
}

impl Case {
    /// Decodes the file with the default decoders and compares.
    pub(super) fn verdict(&self) -> Verdict {
        let Some((size, expected)) = &self.expected else {
            let _ = self.upright();
            return Verdict::NotInPillow;
        };
        match self.upright() {
            Ok(found) if found.size() != *size => Verdict::Wrong(format!("{} instead of {size}", found.size())),
            Ok(found) => self.judge(largest_difference(found.as_slice(), expected)),
            Err(error) if self.refusable && is_refusal(&error) => Verdict::Refused,
            Err(error) => Verdict::Wrong(error_chain(&error)),
        }
    }

    fn judge(&self, difference: u8) -> Verdict {
        if difference <= self.tolerance {
            Verdict::Read(difference)
        } else {
            Verdict::Wrong(format!("a sample is off by {difference}"))
        }
    }

    fn upright(&self) -> Result<PixelBuf, DecodeError> {
        let options = DecoderOptions { allow_truncated: self.lenient, ..DecoderOptions::default() };
        let mut decoder = ByFormat::new(vec![
            Box::new(ExactDecoder::new(options)),
            Box::new(WebPDecoder),
            Box::new(GenericDecoder::new(options)),
            Box::new(ExtraDecoder),
        ]);
        let (mut pixels, mut scratch) = (PixelBuf::default(), PixelBuf::default());
        let decoded = decoder.decode(&self.bytes, DecodeHint::default(), &mut pixels)?;
        orientation(&self.bytes, decoded.format).apply(&mut pixels, &mut scratch)?;
        Ok(pixels)
    }
}

/// Returns true if the error says what the file is, and so what to do about it; damaged files may be called so.
fn is_refusal(error: &DecodeError) -> bool {
    use DecodeError as E;
    matches!(error, E::Unsupported { .. } | E::UnsupportedFormat { .. } | E::Truncated { .. } | E::Corrupt { .. })
}

fn largest_difference(found: &[u8], expected: &[u8]) -> u8 {
    found.iter().zip(expected).map(|(a, b)| a.abs_diff(*b)).max().unwrap_or(0)
}

/// Verdicts by class: a Markdown table, and one line for each wrong case.
pub(super) fn report(verdicts: &[(&Case, Verdict)]) -> (String, Vec<String>) {
    let mut classes: BTreeMap<&str, Counts> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (case, verdict) in verdicts {
        classes.entry(&case.class).or_default().add(verdict);
        if let Verdict::Wrong(reason) = verdict {
            wrong.push(format!("{} ({}): {reason}", case.file, case.class));
        }
    }
    let mut table = "| class | files | equal | off by 1 or more | refused | not read by Pillow |\n".to_owned();
    table += "|---|---|---|---|---|---|\n";
    for (class, counts) in classes {
        let worst = if counts.off > 0 { format!("{} (by {})", counts.off, counts.worst) } else { "0".to_owned() };
        let Counts { files, equal, refused, not_in_pillow, .. } = counts;
        let _ = writeln!(table, "| {class} | {files} | {equal} | {worst} | {refused} | {not_in_pillow} |");
    }
    (table, wrong)
}

#[derive(Default)]
struct Counts {
    files: usize,
    equal: usize,
    off: usize,
    worst: u8,
    refused: usize,
    not_in_pillow: usize,
}

impl Counts {
    fn add(&mut self, verdict: &Verdict) {
        self.files += 1;
        match verdict {
            Verdict::Read(0) => self.equal += 1,
            Verdict::Read(difference) => {
                self.off += 1;
                self.worst = self.worst.max(*difference);
            }
            Verdict::Refused => self.refused += 1,
            Verdict::NotInPillow => self.not_in_pillow += 1,
            Verdict::Wrong(_) => {}
        }
    }
}
