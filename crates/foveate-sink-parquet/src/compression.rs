//! Values of the setting `compression`.

use foveate_sink::SinkError;
use parquet::basic::{Compression, ZstdLevel};

/// The setting's name.
pub(crate) const COMPRESSION: &str = "compression";

/// Zstandard's default level.
const ZSTD_LEVEL: i32 = 3;

/// The codec of every column; `None` for the default without the setting.
pub(crate) fn codec(name: &str) -> Result<Option<Compression>, SinkError> {
    let unknown = || {
        let there_are = "none, snappy, lz4, zstd, and zstd:LEVEL from 1 to 22";
        SinkError::Unsupported(format!("compression '{name}'; there are {there_are}"))
    };
    match name.split_once(':').map_or((name, None), |(name, level)| (name, Some(level))) {
        ("none", None) => Ok(None),
        ("snappy", None) => Ok(Some(Compression::SNAPPY)),
        ("lz4", None) => Ok(Some(Compression::LZ4_RAW)),
        ("zstd", level) => {
            let level: i32 = level.map_or(Ok(ZSTD_LEVEL), str::parse).map_err(|_| unknown())?;
            // Zstandard has further levels that trade the ratio for speed.
            let level = Some(level).filter(|level| (1..=22).contains(level)).ok_or_else(unknown)?;
            let level = ZstdLevel::try_new(level).map_err(|_| unknown())?;
            Ok(Some(Compression::ZSTD(level)))
        }
        _ => Err(unknown()),
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
