//! Values of the setting `compression`.

use foveate_sink::SinkError;
use parquet::basic::{Compression, ZstdLevel};

/// The setting's name.
pub(crate) const COMPRESSION: &str = "compression";

/// Zstandard's default level.
const ZSTD_LEVEL: i32 = 3;

/// The codec of every column; `None` for the default without the setting.
pub(crate) fn codec(name: &str) -> Result<Option<Compression>, SinkError> {
    match name {
        "none" => return Ok(None),
        "snappy" => return Ok(Some(Compression::SNAPPY)),
        "lz4" => return Ok(Some(Compression::LZ4_RAW)),
        _ => {}
    }
    let level = if name == "zstd" { Some(ZSTD_LEVEL) } else { name.strip_prefix("zstd:").and_then(|l| l.parse().ok()) };
    // Zstandard has further levels that trade the ratio for speed.
    match level.filter(|level| (1..=22).contains(level)).and_then(|level| ZstdLevel::try_new(level).ok()) {
        Some(level) => Ok(Some(Compression::ZSTD(level))),
        None => {
            let there_are = "none, snappy, lz4, zstd, and zstd:LEVEL from 1 to 22";
            Err(SinkError::Unsupported(format!("compression '{name}'; there are {there_are}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_or_refused_with_those_there_are() {
        assert_eq!(codec("none").unwrap(), None);
        assert_eq!(codec("snappy").unwrap(), Some(Compression::SNAPPY));
        assert_eq!(codec("lz4").unwrap(), Some(Compression::LZ4_RAW));
        for wrong in ["", "gzip", "snappy:1", "zstd:", "zstd:0", "zstd:23", "zstd:best", "ZSTD"] {
            let reason = codec(wrong).unwrap_err().to_string();
            assert!(reason.contains(&format!("'{wrong}'")) && reason.contains("zstd:LEVEL from 1 to 22"), "{reason}");
        }
    }

    #[test]
    fn zstd_takes_a_level() {
        for (name, level) in [("zstd", ZSTD_LEVEL), ("zstd:1", 1), ("zstd:22", 22)] {
            assert_eq!(codec(name).unwrap(), Some(Compression::ZSTD(ZstdLevel::try_new(level).unwrap())));
        }
    }
}
