//! Every compiled decoder × every conformance file.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use foveate_core::{Backend, FaultScope, PixelBuf, PixelLimits, Size};
use foveate_decode::{
    ByFormat, DecodeError, DecodeHint, Decoded, Decoder, DecoderOptions, ImageFormat, jpeg, orientation,
};
use foveate_testkit::pixels::{djpeg_hashes, sha256};
use foveate_testkit::{Missing, Trial, data, find_data};
use foveate_tests::backends::decoders;
use foveate_tests::conformance::{ConformanceFile, Expect, files};
use foveate_tests::data::fixture;
use foveate_tests::goldens::png;
use foveate_tests::numerics::pixel_error;
use foveate_tests::trial::{Outcome, ensure, trial};

/// A decoder without an answer for this long counts as hung.
const PATIENCE: Duration = Duration::from_secs(60);
/// The limit for "fast", on a busy machine.
const FAST: Duration = Duration::from_secs(2);
/// Largest difference of JPEG pixels to libjpeg-turbo's, as mean and maximum of the absolute difference, for a decoder
/// that is not bit-exact. Such decoders upsample chroma and round the transforms differently. Worst on these files:
/// zune-jpeg 0.37 and 4, jpeg-decoder 0.25 and 3.
const INEXACT_JPEG: (f64, u8) = (0.5, 5);
/// The same for WebP: its lossy form leaves the upsampling of chroma open. Measured: at most 0.1 and 3.
const WEBP: (f64, u8) = (0.1, 3);
/// The same for the golden photos. Worst of zune-jpeg: 0.33 and 11, because its inverse DCT and its colours sometimes
/// round differently.
const INEXACT_PHOTO: (f64, u8) = (0.5, 16);
/// All compiled decoders in turn, as in the program.
const CHAIN: &str = "all";

pub(super) fn trials() -> Vec<Trial> {
    let (mut names, mut trials) = super::backends("decode", &decoders());
    for name in &names {
        trials.push(conformance(name));
        trials.push(reads_most(name));
        let capability = open(name, &DecoderOptions::default()).map(|decoder| decoder.capability());
        if capability.as_ref().is_ok_and(|capability| capability.exact_jpeg) {
            trials.extend(["photos", "labelled"].map(|set| shared_photos(name, set)));
        }
        if capability.is_ok_and(|capability| capability.exact_jpeg && capability.scaled) {
            trials.push(reduced_photos(name));
        }
    }
    names.push(CHAIN.to_owned());
    for name in &names {
        trials.extend(on_folder(name, "committed", Ok(fixture("conformance"))));
        trials.extend(on_folder(name, "shared", find_data("conformance")));
        trials.push(golden_photos(name));
        trials.push(keeps_nothing(name, "committed", || fixture("conformance")));
        trials.push(keeps_nothing(name, "shared", || data("conformance")));
        trials.push(upright(name));
        trials.push(truncated(name));
    }
    let decodable = |folder: &Path| {
        let files = files(folder)?.into_iter().filter(|file| file.expect == Expect::Decode);
        Ok::<_, Outcome>(files.map(|file| file.path).collect())
    };
    trials.push(trial("decode::reduced::committed", move || reduced_agree(decodable(&fixture("conformance"))?, 50)));
    trials.push(trial("decode::reduced::shared", move || match find_data("conformance") {
        Ok(folder) => reduced_agree(decodable(&folder)?, 50),
        Err(missing) => missing.end(),
    }));
    trials.push(trial("decode::reduced::overflowing", || {
        let generated = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/foveate-decode/tests/pillow/files");
        let file = |number: u32| generated.join(format!("jpeg-coefficients-beyond-the-usual-range-{number}.bin"));
        reduced_agree([0, 1].map(file).into(), 5)
    }));
    trials
}

/// One trial for each file of a folder, or a single one that names what is missing.
fn on_folder(backend: &str, kind: &str, folder: Result<PathBuf, Missing>) -> Vec<Trial> {
    let prefix = format!("decode::{backend}::{kind}");
    let folder = match folder {
        Ok(folder) => folder,
        Err(missing) => return vec![trial(prefix, move || missing.end())],
    };
    match files(&folder) {
        Ok(files) => files
            .into_iter()
            .map(|file| {
                let backend = backend.to_owned();
                trial(format!("{prefix}::{}", file.name), move || check(&backend, &file).map(drop))
            })
            .collect(),
        Err(problem) => vec![trial(prefix, move || Err(problem))],
    }
}

struct Attempt {
    outcome: Result<Decoded, DecodeError>,
    pixels: PixelBuf,
    took: Duration,
}

fn open(backend: &str, options: &DecoderOptions) -> Result<Box<dyn Decoder>, Outcome> {
    let registry = decoders();
    if backend != CHAIN {
        return Ok(registry.get(backend)?.open(options)?);
    }
    let all = registry.iter().map(|backend| backend.open(options)).collect::<Result<_, _>>()?;
    Ok(Box::new(ByFormat::new(all)))
}

/// Decodes on a separate thread, so that a decoder that hangs fails only its own trial.
fn attempt(backend: &str, bytes: Vec<u8>, options: DecoderOptions) -> Result<Attempt, Outcome> {
    let mut decoder = open(backend, &options)?;
    let (sender, receiver) = mpsc::channel();
    let worker = std::thread::spawn(move || {
        let mut pixels = PixelBuf::new(PixelLimits::DEFAULT);
        let start = Instant::now();
        let outcome = decoder.decode(&bytes, DecodeHint::default(), &mut pixels);
        // The receiver is gone only when the trial has already failed.
        let _ = sender.send(Attempt { outcome, pixels, took: start.elapsed() });
    });
    match receiver.recv_timeout(PATIENCE) {
        Ok(attempt) => Ok(attempt),
        Err(mpsc::RecvTimeoutError::Timeout) => Err(Outcome::failed(format!("still decoding after {PATIENCE:?}"))),
        Err(mpsc::RecvTimeoutError::Disconnected) => Err(Outcome::failed(match worker.join() {
            Err(panic) => format!("the decoder panicked: {}", panic_message(panic.as_ref())),
            Ok(()) => "the decoder's thread ended without an answer".to_owned(),
        })),
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("(no message)")
}

/// Checks the verdict on a file and its pixels. Returns true if it was decoded.
fn check(backend: &str, file: &ConformanceFile) -> Result<bool, Outcome> {
    let attempt = attempt(backend, std::fs::read(&file.path)?, DecoderOptions::default())?;
    check_promises(&attempt)?;
    let said = || attempt.outcome.as_ref().map_or_else(ToString::to_string, |decoded| format!("{decoded:?}"));
    let expected = |what: &str| Outcome::failed(format!("expected {what}, got: {}", said()));
    match (&attempt.outcome, file.expect) {
        (_, Expect::PartialOrError) | (Err(_), Expect::Reject) => Ok(()),
        (Ok(decoded), Expect::Decode | Expect::DecodeOrUnsupported) => {
            check_pixels(backend, file, decoded, &attempt.pixels)
        }
        (Err(error), Expect::Decode | Expect::DecodeOrUnsupported) if may_refuse(backend, file, error) => Ok(()),
        (Err(_), Expect::Decode) => Err(expected("pixels")),
        (Err(_), Expect::DecodeOrUnsupported) => Err(expected("pixels or 'unsupported'")),
        (Err(_), Expect::RejectFast) => {
            ensure(attempt.took < FAST, || format!("refused only after {:?}", attempt.took))
        }
        (Ok(_), Expect::Reject | Expect::RejectFast) => Err(expected("an error")),
    }?;
    Ok(attempt.outcome.is_ok())
}

/// Returns true if a decoder may refuse a file that is not damaged.
fn may_refuse(backend: &str, file: &ConformanceFile, error: &DecodeError) -> bool {
    // Neither foveate nor Pillow knows this format, or Pillow cannot open the file either.
    if format_of(file).is_none() || file.size.is_none() {
        return true;
    }
    // One backend may leave a kind of file to others; the chain of all backends may not.
    let unsupported = matches!(error, DecodeError::Unsupported { .. });
    unsupported && (backend != CHAIN || file.expect == Expect::DecodeOrUnsupported)
}

/// Decoders with libjpeg-turbo's pixels have them at reduced scale too.
fn reduced_agree(paths: Vec<PathBuf>, least: u32) -> Result<(), Outcome> {
    let registry = decoders();
    let mut exact = Vec::new();
    for backend in registry.iter() {
        let decoder = backend.open(&DecoderOptions::default())?;
        let capability = decoder.capability();
        if capability.scaled && capability.exact_jpeg {
            exact.push((backend.name(), decoder));
        }
    }
    let Some(((reference, first), others)) = exact.split_first_mut().filter(|(_, others)| !others.is_empty()) else {
        return Err(Outcome::Ignored(
            "needs two decoders with libjpeg-turbo's reduced pixels; build with -F turbojpeg".into(),
        ));
    };
    let (mut expected, mut found) = (PixelBuf::default(), PixelBuf::default());
    let mut compared = 0;
    for path in paths {
        let bytes = std::fs::read(&path)?;
        let Ok(structure) = jpeg::inspect(&bytes, DecoderOptions::default().max_scans) else { continue };
        for divisor in [2, 4, 8] {
            let min_side = Some(structure.size.min_side().div_ceil(divisor));
            let hint = DecodeHint { min_side, ..DecodeHint::default() };
            if first.decode(&bytes, hint, &mut expected).is_err() {
                continue;
            }
            for (name, decoder) in others.iter_mut() {
                if decoder.decode(&bytes, hint, &mut found).is_ok() {
                    let is_same = found.size() == expected.size() && found.as_slice() == expected.as_slice();
                    ensure(is_same, || format!("{} at 1/{divisor}: {name} and {reference} differ", path.display()))?;
                    compared += 1;
                }
            }
        }
    }
    ensure(compared > least, || format!("only {compared} pictures were compared"))
}

/// The suite of the trait.
fn conformance(backend: &str) -> Trial {
    let backend = backend.to_owned();
    trial(format!("decode::{backend}::conformance"), move || {
        let registry = decoders();
        let backend = registry.get(&backend)?;
        foveate_decode::conformance::check(&|options| backend.open(options));
        Ok(())
    })
}

/// A backend must read nine in ten of the ordinary files of its formats.
fn reads_most(backend: &str) -> Trial {
    let backend = backend.to_owned();
    trial(format!("decode::{backend}::reads-most"), move || {
        let formats = open(&backend, &DecoderOptions::default())?.capability().formats;
        let mut files = files(&fixture("conformance"))?;
        files.retain(|file| {
            file.expect == Expect::Decode && format_of(file).is_some_and(|format| formats.contains(format))
        });
        let mut read = 0;
        for file in &files {
            read +=
                usize::from(attempt(&backend, std::fs::read(&file.path)?, DecoderOptions::default())?.outcome.is_ok());
        }
        ensure(read * 10 >= files.len() * 9, || format!("reads only {read} of {} ordinary files", files.len()))
    })
}

/// The photos of the goldens: Pillow's pixels, or nearly so. A backend may leave one in ten to others.
fn golden_photos(backend: &str) -> Trial {
    let backend = backend.to_owned();
    trial(format!("decode::{backend}::golden-photos"), move || {
        if !reads(&backend, ImageFormat::Jpeg) {
            return Err(Outcome::Ignored(format!("{backend} reads no JPEG")));
        }
        let goldens: Vec<serde_json::Value> = serde_json::from_slice(&std::fs::read(fixture("goldens/decoded.json"))?)?;
        let mut read = 0;
        for golden in &goldens {
            let name = golden["file"].as_str().ok_or_else(|| Outcome::failed("a photo without a name"))?;
            let file = ConformanceFile {
                name: name.to_owned(),
                path: fixture("goldens/photos").join(name),
                size: golden["shape"][1].as_u64().zip(golden["shape"][0].as_u64()).map(|(w, h)| (w as u32, h as u32)),
                format: Some("jpeg".to_owned()),
                category: "photo".to_owned(),
                expect: Expect::Decode,
                rgb_sha256: golden["sha256_rgb"].as_str().map(str::to_owned),
                djpeg_sha256: None,
                reference: Some(fixture("goldens/decoded").join(name).with_extension("png")).filter(|png| png.exists()),
            };
            read += usize::from(check(&backend, &file)?);
        }
        ensure(read * 10 >= goldens.len() * 9, || format!("reads only {read} of {} photos", goldens.len()))
    })
}

/// Large sets outside the repository.
fn shared_photos(backend: &str, set: &'static str) -> Trial {
    let backend = backend.to_owned();
    trial(format!("decode::{backend}::{set}"), move || {
        let files = files(&data(set))?;
        let read = files.iter().map(|file| Ok(usize::from(check(&backend, file)?))).sum::<Result<usize, Outcome>>()?;
        ensure(read * 10 >= files.len() * 9, || format!("reads only {read} of {} photos", files.len()))
    })
}

/// Pillow reduces by libjpeg too (`Image.draft`), so the same scale gives the same pixels.
fn reduced_photos(backend: &str) -> Trial {
    let backend = backend.to_owned();
    trial(format!("decode::{backend}::reduced-photos"), move || {
        let mut decoder = open(&backend, &DecoderOptions::default())?;
        let mut rows = csv::Reader::from_path(fixture("goldens/reduced.csv"))?;
        let mut compared = 0;
        for row in rows.deserialize() {
            let (file, denominator, width, height, hash): (String, u32, u32, u32, String) = row?;
            let size = Size::new(width, height);
            let hint = DecodeHint { min_side: Some(size.min_side()), ..DecodeHint::default() };
            let (bytes, mut pixels) = (std::fs::read(fixture("goldens/photos").join(&file))?, PixelBuf::default());
            decoder.decode(&bytes, hint, &mut pixels)?;
            ensure(pixels.size() == size && sha256(&[pixels.as_slice()]) == hash, || {
                format!("{file} / {denominator}: other pixels than Pillow's")
            })?;
            compared += 1;
        }
        ensure(compared > 70, || format!("only {compared} pictures were compared"))
    })
}

/// Checks that an earlier picture never shows, such as in parts of a damaged file that a library leaves unwritten.
fn keeps_nothing(backend: &str, place: &str, folder: fn() -> PathBuf) -> Trial {
    let backend = backend.to_owned();
    trial(format!("decode::{backend}::keeps-nothing::{place}"), move || {
        let lenient = DecoderOptions { allow_truncated: true, ..DecoderOptions::default() };
        let mut decoder = open(&backend, &lenient)?;
        for file in files(&folder())? {
            let bytes = std::fs::read(&file.path)?;
            let mut decode = |before| -> Result<_, Outcome> {
                let mut pixels = PixelBuf::default();
                pixels.reset(Size::square(1500))?.fill(before);
                let outcome = decoder.decode(&bytes, DecodeHint::default(), &mut pixels);
                Ok((outcome.map_err(|error| error.to_string()), sha256(&[pixels.as_slice()])))
            };
            let (zeros, ones) = (decode(0x00)?, decode(0xFF)?);
            ensure(zeros == ones, || format!("{}: an earlier picture shows", file.name))?;
        }
        Ok(())
    })
}

/// Checks the invariants of every file: an error leaves the buffer empty and loses one item, success fills the buffer.
fn check_promises(attempt: &Attempt) -> Result<(), Outcome> {
    match &attempt.outcome {
        Ok(_) => ensure(!attempt.pixels.size().is_empty(), || "decoded to nothing".to_owned()),
        Err(error) => {
            ensure(attempt.pixels.size().is_empty(), || format!("the buffer is not empty after: {error}"))?;
            ensure(error.scope() == FaultScope::Item, || format!("one file stops the run: {error}"))
        }
    }
}

fn reads(backend: &str, format: ImageFormat) -> bool {
    open(backend, &DecoderOptions::default()).is_ok_and(|decoder| decoder.capability().formats.contains(format))
}

fn format_of(file: &ConformanceFile) -> Option<ImageFormat> {
    let format = file.format.as_deref()?;
    ImageFormat::ALL.into_iter().find(|known| known.name().eq_ignore_ascii_case(format))
}

fn check_pixels(backend: &str, file: &ConformanceFile, decoded: &Decoded, pixels: &PixelBuf) -> Result<(), Outcome> {
    if let Some((width, height)) = file.size {
        let size = Size::new(width, height);
        ensure(pixels.size() == size && decoded.native == size, || {
            format!("{} pixels, said to be {}, expected {size}", pixels.size(), decoded.native)
        })?;
    }
    let capability = open(backend, &DecoderOptions::default())?.capability();
    let lossy = match decoded.format {
        ImageFormat::Jpeg if capability.exact_jpeg => None,
        ImageFormat::Jpeg if file.category == "photo" => Some(INEXACT_PHOTO),
        ImageFormat::Jpeg => Some(INEXACT_JPEG),
        ImageFormat::WebP => Some(WEBP),
        _ => None,
    };
    match (lossy, &file.reference, &file.rgb_sha256, &file.djpeg_sha256) {
        (Some((mean, max)), Some(reference), ..) => {
            let error = pixel_error(pixels.as_slice(), png(reference)?.as_slice());
            ensure(error.mean <= mean && error.max <= max, || format!("too far from Pillow's pixels: {error:?}"))
        }
        (None, _, Some(hash), _) => {
            ensure(sha256(&[pixels.as_slice()]) == *hash, || "other pixels than Pillow's".to_owned())
        }
        (None, _, None, Some(hash)) => {
            ensure(djpeg_hashes(pixels).contains(hash), || "other pixels than djpeg's".to_owned())
        }
        _ => Ok(()),
    }
}

/// Checks that all eight orientations of a picture give the same picture.
fn upright(backend: &str) -> Trial {
    let backend = backend.to_owned();
    trial(format!("decode::{backend}::upright"), move || {
        if !reads(&backend, ImageFormat::Jpeg) {
            return Err(Outcome::Ignored(format!("{backend} reads no JPEG")));
        }
        let mut first: Option<PixelBuf> = None;
        for tag in 1..=8 {
            let bytes = std::fs::read(fixture(&format!("conformance/exif/orientation_{tag}.jpg")))?;
            let Attempt { outcome, mut pixels, .. } = attempt(&backend, bytes.clone(), DecoderOptions::default())?;
            let found = orientation(&bytes, outcome?.format);
            ensure(found.exif() == tag, || format!("orientation {} instead of {tag}", found.exif()))?;
            found.apply(&mut pixels, &mut PixelBuf::new(PixelLimits::DEFAULT))?;
            let first = first.get_or_insert_with(|| copy(&pixels));
            ensure(pixels.size() == first.size(), || format!("orientation {tag}: {}", pixels.size()))?;
            // Transposed storage quantizes other blocks, so the copies differ a little.
            let error = pixel_error(pixels.as_slice(), first.as_slice());
            ensure(error.mean < 1.0, || format!("orientation {tag} shows another picture: {error:?}"))?;
        }
        Ok(())
    })
}

fn copy(pixels: &PixelBuf) -> PixelBuf {
    let mut copy = PixelBuf::new(PixelLimits::DEFAULT);
    copy.reset(pixels.size()).unwrap().copy_from_slice(pixels.as_slice());
    copy
}

/// Checks that a truncated JPEG fails with that reason, or gives pixels on request.
fn truncated(backend: &str) -> Trial {
    let backend = backend.to_owned();
    trial(format!("decode::{backend}::truncated"), move || {
        if !reads(&backend, ImageFormat::Jpeg) {
            return Err(Outcome::Ignored(format!("{backend} reads no JPEG")));
        }
        for file in files(&fixture("conformance"))?.iter().filter(|file| file.name.ends_with("pct.jpg")) {
            let bytes = std::fs::read(&file.path)?;
            let strict = attempt(&backend, bytes.clone(), DecoderOptions::default())?.outcome;
            let refused = matches!(strict, Err(DecodeError::Truncated { format: ImageFormat::Jpeg, .. }));
            ensure(refused, || format!("{}: not refused as truncated: {strict:?}", file.name))?;

            let options = DecoderOptions { allow_truncated: true, ..DecoderOptions::default() };
            let lenient = attempt(&backend, bytes, options)?;
            ensure(lenient.outcome.is_ok(), || format!("{}: refused: {:?}", file.name, lenient.outcome))?;
            ensure(lenient.pixels.size() == Size::new(96, 64), || format!("{}: {}", file.name, lenient.pixels.size()))?;
        }
        Ok(())
    })
}
