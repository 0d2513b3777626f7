//! The file of failures.

use crate::push_csv_field;

/// First line of a failures file.
pub const FAILURES_HEADER: &str = "id,stage,reason,bytes\n";

/// Appends one failure to `lines`, in the failures file's format.
pub fn push_failure(lines: &mut String, id: &str, stage: &str, reason: &str, bytes: Option<u64>) {
    for field in [id, stage, reason] {
        push_csv_field(lines, field);
        lines.push(',');
    }
    if let Some(bytes) = bytes {
        lines.push_str(&bytes.to_string());
    }
    lines.push('\n');
}
