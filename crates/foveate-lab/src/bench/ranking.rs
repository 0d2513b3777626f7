//! Decoders and resizers by speed, in short measurements.

use foveate_preprocess::DecodeScale;

use super::cells::{Attempt, Effort};
use super::{decoders, resizers};
use crate::stats::Spread;
use crate::{Lab, LabError, PhotoSet, Setting};

/// Minimum ratio of rates for which a change is made.
const WORTHWHILE: f64 = 1.02;

/// The decoders and resizers of one set of photos.
pub(super) struct Rankings {
    pub(super) decoders: Ranking,
    pub(super) resizers: Ranking,
}

impl Rankings {
    pub(super) fn measure(lab: &Lab<'_>, photos: &PhotoSet) -> Result<Self, LabError> {
        let decoders = Ranking::decoders(lab, photos)?;
        let resizers = Ranking::resizers(lab, photos)?.after(decoders.fastest_rate());
        Ok(Self { decoders, resizers })
    }

    /// Returns `usual` with the slowest decoder and resizer, if the usual ones are worth a change from them, and exact
    /// decoding.
    pub(super) fn slow_pair(&self, usual: &Setting) -> Setting {
        Setting {
            decoder: self.decoders.slowest_or(&usual.decoder).to_owned(),
            scale: DecodeScale::Exact,
            resizer: self.resizers.slowest_or(&usual.resizer).to_owned(),
            ..usual.clone()
        }
    }
}

/// Returns true if `rate` is worth a change from `now`, and no sample of the two contradicts that.
pub(super) fn is_faster(rate: Spread, now: Option<Spread>) -> bool {
    now.is_none_or(|now| rate.min > now.max && rate.median > WORTHWHILE * now.median)
}

/// Backends by speed, fastest first.
pub(super) struct Ranking {
    names: Vec<(String, Spread)>,
    /// The reason if there are none.
    pub(super) why_none: String,
}

impl Ranking {
    /// A twentieth of a second per sample.
    const BRIEF: Effort = Effort { images: None, seconds: 0.2, samples: 5, quick: true, peers: None };

    fn new(measured: impl Iterator<Item = (String, Attempt<Option<Spread>>)>) -> Self {
        let mut names = Vec::new();
        let mut why_none = String::new();
        for (name, rate) in measured {
            match rate {
                Ok(rate) => names.extend(rate.map(|rate| (name, rate))),
                Err(reason) => why_none = format!("{name}: {reason}"),
            }
        }
        names.sort_by(|a, b| b.1.median.total_cmp(&a.1.median));
        Self { names, why_none }
    }

    fn decoders(lab: &Lab<'_>, photos: &PhotoSet) -> Result<Self, LabError> {
        Self::decoders_at(lab, photos, "exact")
    }

    pub(super) fn scaled_decoders(lab: &Lab<'_>, photos: &PhotoSet) -> Result<Self, LabError> {
        Self::decoders_at(lab, photos, "fast")
    }

    fn decoders_at(lab: &Lab<'_>, photos: &PhotoSet, scale: &str) -> Result<Self, LabError> {
        let cells = decoders::measure(lab, photos, &Self::BRIEF)?.into_iter().filter(|cell| cell.scale == scale);
        Ok(Self::new(cells.map(|cell| (cell.decoder, cell.figures.map(|figures| Spread::of(&figures.rates))))))
    }

    fn resizers(lab: &Lab<'_>, photos: &PhotoSet) -> Result<Self, LabError> {
        let images = resizers::decoded(lab, &photos.within(BRIEF_BYTES))?;
        let recipe = lab.rig.base().recipe;
        let cells = resizers::measure(lab, &photos.name, &images, &recipe, &Self::BRIEF)?;
        Ok(Self::new(
            cells.into_iter().map(|cell| (cell.resizer, cell.figures.map(|figures| Spread::of(&figures.rates)))),
        ))
    }

    pub(super) fn fastest(&self) -> Option<&str> {
        self.names.first().map(|(name, _)| name.as_str())
    }

    pub(super) fn fastest_rate(&self) -> Option<Spread> {
        self.names.first().map(|(_, rate)| *rate)
    }

    fn rate(&self, name: &str) -> Option<Spread> {
        self.names.iter().find(|(known, _)| known == name).map(|(_, rate)| *rate)
    }

    pub(super) fn is_faster(&self, name: &str, than: Option<Spread>) -> bool {
        self.rate(name).is_some_and(|rate| is_faster(rate, than))
    }

    /// Returns the slowest one, or `usual` if that is no faster.
    fn slowest_or<'a>(&'a self, usual: &'a str) -> &'a str {
        match self.names.last() {
            Some((slowest, rate)) if self.rate(usual).is_none_or(|usual| is_faster(usual, Some(*rate))) => slowest,
            _ => usual,
        }
    }

    /// Adds to each the time of a stage before it, at its median `rate`: photos that have the right size already are
    /// resized in no time, by any resizer.
    fn after(mut self, rate: Option<Spread>) -> Self {
        let before = rate.map_or(0.0, |rate| 1.0 / rate.median);
        for (_, Spread { median, min, max }) in &mut self.names {
            [median, min, max].into_iter().for_each(|rate| *rate = 1.0 / (1.0 / *rate + before));
        }
        self
    }

    pub(super) fn fastest_but(&self, now: &str) -> Attempt<String> {
        match self.fastest() {
            Some(fastest) if fastest == now && self.names.len() == 1 => {
                Err(format!("{now} is the only one that can be used"))
            }
            Some(fastest) if self.is_faster(fastest, self.rate(now)) => Ok(fastest.to_owned()),
            Some(_) => Err(format!("none is faster than {now} in every sample")),
            None => Err("none can be used".to_owned()),
        }
    }
}

/// Bytes of pixels that a short comparison of resizers decodes.
const BRIEF_BYTES: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a rate whose samples differ by `noise` on either side.
    fn rate(median: f64, noise: f64) -> Spread {
        Spread::of(&[median - noise, median, median + noise]).unwrap()
    }

    #[test]
    fn rankings_go_from_fast_to_slow_and_leave_out_what_cannot_run() {
        let ranking = |noise| {
            let a = rate(1.0, 0.0);
            let b = rate(3.0, noise);
            let measured = [("a", Ok(Some(a))), ("b", Ok(Some(b))), ("c", Err("broken".to_owned())), ("d", Ok(None))];
            Ranking::new(measured.into_iter().map(|(name, rate)| (name.to_owned(), rate)))
        };
        let clear = ranking(1.0);
        assert_eq!((clear.fastest(), clear.slowest_or("b"), clear.slowest_or("x")), (Some("b"), "a", "a"));
        assert_eq!(clear.fastest_but("a"), Ok("b".to_owned()));
        assert!(clear.fastest_but("b").is_err());
        assert_eq!(clear.why_none, "c: broken");
        assert_eq!(ranking(2.5).fastest_but("a"), Err("none is faster than a in every sample".to_owned()));
        let dwarfed = ranking(1.0).after(Some(rate(0.01, 0.0)));
        assert_eq!(dwarfed.slowest_or("b"), "b");
        assert!(dwarfed.fastest_but("a").is_err());
    }
}
