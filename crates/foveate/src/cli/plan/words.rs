//! Words that the answers share.

use std::fmt;
use std::io::Write;

use foveate::plan::WhatIf;

/// A number of things: `1 worker`, `2 workers`.
pub(super) struct Count<N>(pub(super) N, pub(super) &'static str);

impl<N: fmt::Display + Copy + Into<u64>> fmt::Display for Count<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(count, what) = self;
        let plural = if (*count).into() == 1 { "" } else { "s" };
        write!(f, "{count} {what}{plural}")
    }
}

/// Prints the changes, each with its rate and its bound afterwards. A change smaller than `resolution`, the share of
/// the rate that the measurement's interval leaves open, is no difference and has a mark.
pub(super) fn print_what_ifs<State>(
    out: &mut dyn Write,
    what_ifs: &[WhatIf<State>],
    resolution: f64,
    rate_and_bound: impl Fn(&State) -> (f64, String),
) -> std::io::Result<()> {
    let mut is_any_noise = false;
    for WhatIf { change, speedup, state } in what_ifs {
        let (rate, bound) = rate_and_bound(state);
        let is_noise = (speedup - 1.0).abs() <= resolution && *speedup != 1.0;
        is_any_noise |= is_noise;
        let mark = if is_noise { '*' } else { ' ' };
        writeln!(out, "  {change:<54} {rate:>10.1} images/s  {speedup:.2}x{mark} ({bound})")?;
    }
    if is_any_noise {
        writeln!(out, "  * within the measurement's interval")?;
    }
    Ok(())
}
