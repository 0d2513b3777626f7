//! The library's messages, which the crate passes on as text alone, and their meaning.

use foveate_core::{LimitError, Size};
use foveate_decode::{DecodeError, DecoderOptions, ImageFormat};
use turbojpeg::Error;

/// Prefixes of libjpeg's warnings (JWRN in jerror.h). All other messages are fatal.
const WARNINGS: [&str; 7] = [
    "Corrupt JPEG data: ",
    CUT_SHORT,
    "Inconsistent progression sequence for component ",
    "Invalid SOS parameters for sequential JPEG",
    "Unknown Adobe color transform code ",
    "Warning: unknown JFIF revision number ",
    "Application transferred too many scanlines",
];
const CUT_SHORT: &str = "Premature end of JPEG file";

/// The library's message, without the crate's own words.
pub(crate) fn text(error: &Error) -> String {
    match error {
        Error::TurboJpegError(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Returns true if the library could have continued.
pub(crate) fn is_warning(error: &Error) -> bool {
    matches!(error, Error::TurboJpegError(text) if WARNINGS.iter().any(|warning| text.starts_with(warning)))
}

/// Refuses a warning that the options do not permit. Damaged data is permitted as in Pillow, OpenCV and the other
/// backends: the file counts as decoded.
pub(crate) fn check(warning: &str, options: &DecoderOptions) -> Result<(), DecodeError> {
    if warning.starts_with(CUT_SHORT) && !options.allow_truncated {
        return Err(DecodeError::truncated(ImageFormat::Jpeg, warning));
    }
    Ok(())
}

/// The error for a picture of `size` without pixels. After a warning about the header, the crate gives none.
pub(crate) fn fault(error: &Error, size: Size) -> DecodeError {
    let text = text(error);
    let memory = ["Insufficient memory", "Memory allocation failure"];
    let unsupported = ["Fractional sampling", "Sorry, ", "Unsupported ", "Maximum supported image dimension"];
    if memory.iter().any(|start| text.starts_with(start)) || matches!(error, Error::Null) {
        LimitError::OutOfMemory { size }.into()
    } else if is_warning(error) || unsupported.iter().any(|start| text.starts_with(start)) {
        DecodeError::unsupported(ImageFormat::Jpeg, text)
    } else {
        DecodeError::corrupt(ImageFormat::Jpeg, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Error {
        Error::TurboJpegError(text.to_owned())
    }

    #[test]
    fn warnings_are_told_from_errors() {
        for text in [
            "Corrupt JPEG data: 14 extraneous bytes before marker 0xd9",
            "Corrupt JPEG data: found marker 0xd9 instead of RST3",
            "Premature end of JPEG file",
            "Unknown Adobe color transform code 7",
        ] {
            assert!(is_warning(&said(text)), "{text}");
        }
        for text in ["Premature end of input file", "Bogus Huffman table definition", "Insufficient memory (case 4)"] {
            assert!(!is_warning(&said(text)), "{text}");
        }
        assert!(!is_warning(&Error::OutOfBounds));
    }

    #[test]
    fn a_file_that_is_cut_short_follows_the_policy() {
        let strict = DecoderOptions::default();
        let lenient = DecoderOptions { allow_truncated: true, ..strict };
        assert!(matches!(check(CUT_SHORT, &strict), Err(DecodeError::Truncated { .. })));
        assert!(check(CUT_SHORT, &lenient).is_ok());
        assert!(check("Corrupt JPEG data: premature end of data segment", &strict).is_ok());
    }

    #[test]
    fn faults_have_the_type_of_what_is_wrong() {
        let size = Size::new(3, 2);
        let verdict = |text: &str| fault(&said(text), size);
        assert!(matches!(verdict("Insufficient memory (case 4)"), DecodeError::Limit(LimitError::OutOfMemory { .. })));
        for text in ["Fractional sampling not implemented yet", "Unsupported JPEG data precision 12"] {
            assert!(matches!(verdict(text), DecodeError::Unsupported { .. }), "{text}");
        }
        assert_eq!(foveate_core::error_chain(&verdict("Bogus marker length")), "corrupt JPEG: Bogus marker length");
    }
}
