//! Sites and receivers that are slow, whose requests wait for them and not for this machine.

use std::time::{Duration, Instant};

use foveate_net::{TurnUse, Turns};

/// A site whose requests take longer than this is slow.
const SLOW: Duration = Duration::from_secs(2);
/// Sites that have not answered their first request stall once it takes longer than this, if there are several:
/// otherwise many dead sites would fill the in-flight limit again and again until each is slow.
const UNANSWERED: Duration = Duration::from_millis(100);
const SEVERAL: usize = 4;

/// The number of requests, waiting or under way, of slow sites and of several that have not answered their first yet.
pub(crate) fn stalled(turns: &Turns) -> usize {
    let uses = turns.uses();
    let now = Instant::now();
    let slow = uses.values().filter(|of_site| is_late(of_site, now));
    let slow: usize = slow.map(|of_site| of_site.waiting + of_site.active.len()).sum();
    let unanswered: Vec<_> = uses.values().filter(|of_site| is_unanswered(of_site, now)).collect();
    match unanswered.len() {
        ..SEVERAL => slow,
        _ => slow + unanswered.into_iter().map(|of_site| of_site.waiting + of_site.active.len()).sum::<usize>(),
    }
}

/// Returns true if a site is slow, and at least `room` requests wait for it.
pub(crate) fn is_full(turns: &Turns, site: &str, room: usize) -> bool {
    turns.uses().get(site).is_some_and(|of_site| of_site.waiting >= room && is_late(of_site, Instant::now()))
}

/// Returns true if a site is slow.
pub(crate) fn is_slow(turns: &Turns, site: &str) -> bool {
    is_full(turns, site, 0)
}

/// Returns true if half of a site's requests under way take long.
fn is_late(of_site: &TurnUse, now: Instant) -> bool {
    let late = of_site.active.iter().filter(|since| now.saturating_duration_since(**since) > SLOW).count();
    late > 0 && 2 * late >= of_site.active.len()
}

fn is_unanswered(of_site: &TurnUse, now: Instant) -> bool {
    let mut ages = of_site.active.iter().map(|since| now.saturating_duration_since(*since));
    !of_site.has_ended && ages.any(|age| age > UNANSWERED) && !is_late(of_site, now)
}
