//! The possible remedies, as data: a new remedy is an entry here.

use foveate_encode::DType;
use foveate_preprocess::DecodeScale;
use foveate_resize::Geometry;
use serde::{Deserialize, Serialize};

use crate::photos::SMALL_SIDE;
use crate::storage::Supply;
use crate::{Candidate, Rig, Setting};

/// A possible remedy.
#[derive(Debug)]
pub struct Remedy {
    /// Its name.
    pub name: &'static str,
    /// The stage that it relieves.
    pub stage: &'static str,
    /// The reason why it may help, and its other costs.
    pub why: &'static str,
    /// Its effect on the vectors.
    pub vectors: VectorEffect,
    /// Returns the ways to apply it.
    apply: fn(&Facts<'_>) -> Vec<RemedyAttempt>,
}

/// The effect of a remedy on the vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum VectorEffect {
    /// They stay the same.
    Same,
    /// They change a little.
    Close,
    /// They change. Such a remedy is left to the user.
    Other,
}

impl VectorEffect {
    /// Returns the name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Close => "close",
            Self::Other => "other",
        }
    }
}

/// The facts that remedies depend on.
pub(super) struct Facts<'a> {
    pub(super) rig: &'a dyn Rig,
    pub(super) setting: &'a Setting,
    /// The limiting stage. Its remedies are measured first.
    pub(super) limit: &'static str,
    pub(super) cores: usize,
    /// True if the forward runs on the cores that also decode.
    pub(super) on_host: bool,
    /// True if the encoder overlaps with the host, on memory that it allocates.
    pub(super) overlaps: bool,
    /// Mean encoded bytes of a photo.
    pub(super) mean_bytes: f64,
    /// True if the photos are read ahead, without reader threads: members of containers, and objects.
    pub(super) is_delivered: bool,
    /// Throughput of the photos' store, if they are in one.
    pub(super) store: Option<&'a Supply>,
}

/// One way to apply a remedy.
pub(super) enum RemedyAttempt {
    /// The setting among these with the highest expected rate.
    Try(Vec<Setting>),
    /// This setting, which the reason rules out.
    Cannot(Setting, String),
    /// This setting, with the photos in a tar.
    Tar(&'static str),
    /// This setting, with photos of [`SMALL_SIDE`] in a tar.
    SmallTar(&'static str),
    /// Advice outside the settings.
    Advice(&'static str, String),
}

impl Remedy {
    pub(super) fn attempts(&self, facts: &Facts<'_>) -> Vec<RemedyAttempt> {
        (self.apply)(facts)
    }
}

/// The remedy for a store that is the limit.
pub(super) const REQUESTS: &str = "requests in flight";

/// The remedy that makes the photos themselves smaller.
pub(super) const SMALL_PHOTOS: &str = "small photos";

/// Size in bytes below which a file costs more to open than to read.
const SMALL_FILE: f64 = 64e3;

/// The known remedies, in the order in which people ask for them.
pub static REMEDIES: &[Remedy] = &[
    Remedy {
        name: "decoder",
        stage: "decode",
        why: "decoders differ severalfold in speed",
        vectors: VectorEffect::Close,
        apply: decoders,
    },
    Remedy {
        name: "DCT scale",
        stage: "decode",
        why: "a JPEG much larger than the input is decoded at a half, a quarter or an eighth; vectors change a little \
              (`foveate verify` measures how much)",
        vectors: VectorEffect::Close,
        apply: dct_scale,
    },
    Remedy {
        name: "decode on the device",
        stage: "decode",
        why: "frees the processor's cores",
        vectors: VectorEffect::Close,
        apply: device_decoders,
    },
    Remedy {
        name: "resizer",
        stage: "resize",
        why: "resizers differ severalfold in speed",
        vectors: VectorEffect::Close,
        apply: resizers,
    },
    Remedy {
        name: "order of crop and resize",
        stage: "resize",
        why: "`hf` crops after resizing (in one step here), `squash` resizes all of the photo: another embedding",
        vectors: VectorEffect::Other,
        apply: recipes,
    },
    Remedy {
        name: "more workers",
        stage: "decode",
        why: "more photos are decoded and resized at a time, while there are cores for them",
        vectors: VectorEffect::Same,
        apply: more_workers,
    },
    Remedy {
        name: "fewer workers",
        stage: "forward",
        why: "leaves cores and memory bandwidth to the forward",
        vectors: VectorEffect::Same,
        apply: fewer_workers,
    },
    Remedy {
        name: "oversubscription",
        stage: "forward",
        why: "threads that take turns on a core lose time to switching",
        vectors: VectorEffect::Same,
        apply: oversubscription,
    },
    Remedy {
        name: "prefetch",
        stage: "batch",
        why: "batches in store bridge photos that take long; the model is of the mean and sees no gain",
        vectors: VectorEffect::Same,
        apply: |facts| vary(facts, |setting, n| setting.prefetch = n, &[facts.setting.prefetch.max(1) * 4]),
    },
    Remedy {
        name: "batch",
        stage: "forward",
        why: "a larger batch spreads the cost of a call, a smaller one stays in the caches",
        vectors: VectorEffect::Same,
        apply: |facts| {
            let batch = facts.setting.batch;
            let sizes: Vec<usize> = [batch / 2, batch * 2, batch * 4].into_iter().filter(|&n| n > 0).collect();
            vary(facts, |setting, n| setting.batch = n, &sizes)
        },
    },
    Remedy {
        name: "dtype",
        stage: "forward",
        why: "half precision computes and copies faster where the hardware has it; vectors change a little \
              (`foveate verify` measures how much)",
        vectors: VectorEffect::Close,
        apply: dtypes,
    },
    Remedy {
        name: "encoder",
        stage: "forward",
        why: "engines differ in speed for the same vectors",
        vectors: VectorEffect::Same,
        apply: encoders,
    },
    Remedy {
        name: REQUESTS,
        stage: "read",
        why: "a store that takes long to answer answers many requests at a time, up to its limit (Little's law)",
        vectors: VectorEffect::Same,
        apply: requests,
    },
    Remedy {
        name: "read concurrency",
        stage: "read",
        why: "a disk that takes long to answer answers several readers at a time",
        vectors: VectorEffect::Same,
        apply: |facts| {
            let readers = facts.setting.readers.max(1);
            match facts.setting.workers {
                _ if facts.is_delivered => {
                    advice("more readers", "reader threads are for files; these photos are read ahead without them")
                }
                0 => cannot(
                    Setting { readers: readers * 2, ..facts.setting.clone() },
                    "without workers nothing reads ahead",
                ),
                _ => vary(facts, |setting, n| setting.readers = n, &[readers * 2, readers * 4, readers * 8]),
            }
        },
    },
    Remedy {
        name: "tar shards",
        stage: "read",
        why: "small files cost more to open than to read; a tar of them is read in one go",
        vectors: VectorEffect::Same,
        apply: tar_shards,
    },
    Remedy {
        name: SMALL_PHOTOS,
        stage: "decode",
        why: "photos of the recipe's size decode in a fraction of the time; vectors change a little (`foveate pack \
              --resize` measures how much)",
        vectors: VectorEffect::Other,
        apply: small_photos,
    },
    Remedy {
        name: "copy bytes, not floats",
        stage: "copy-in",
        why: "u8 samples are a quarter of the bytes of f32 ones",
        vectors: VectorEffect::Same,
        apply: |_| advice("u8 batches, normalized on the device", "already done: normalization is part of the weights"),
    },
    Remedy {
        name: "pinned memory",
        stage: "copy-in",
        why: "a device fetches from pinned memory by itself, beside the forward",
        vectors: VectorEffect::Same,
        apply: |facts| {
            let host = "the forward reads the host's memory: there is nothing to copy";
            let done = "already done: workers fill memory that the device reads by itself";
            let device = "advice only: this encoder takes batches from ordinary memory";
            advice(
                "batches in pinned memory",
                match (facts.on_host, facts.overlaps) {
                    (true, _) => host,
                    (_, true) => done,
                    _ => device,
                },
            )
        },
    },
    Remedy {
        name: "output",
        stage: "write",
        why: "formats, compression and disks differ in speed",
        vectors: VectorEffect::Same,
        apply: |_| {
            advice("another format or disk for the output", "advice only: `foveate bench sinks` compares formats")
        },
    },
];

fn advice(what: &'static str, reason: &str) -> Vec<RemedyAttempt> {
    vec![RemedyAttempt::Advice(what, reason.to_owned())]
}

fn cannot(setting: Setting, reason: &str) -> Vec<RemedyAttempt> {
    vec![RemedyAttempt::Cannot(setting, reason.to_owned())]
}

/// Returns the settings with one of `values` each.
fn vary(facts: &Facts<'_>, set: fn(&mut Setting, usize), values: &[usize]) -> Vec<RemedyAttempt> {
    let mut settings = vec![facts.setting.clone(); values.len()];
    settings.iter_mut().zip(values).for_each(|(setting, &value)| set(setting, value));
    vec![RemedyAttempt::Try(settings)]
}

/// Returns one attempt for each candidate except the current one.
fn others(
    candidates: Vec<Candidate>,
    used: &str,
    none: &'static str,
    with: impl Fn(String) -> Setting,
) -> Vec<RemedyAttempt> {
    let mut attempts = Vec::new();
    for candidate in candidates.into_iter().filter(|other| other.name != used) {
        attempts.push(match candidate.problem {
            None => RemedyAttempt::Try(vec![with(candidate.name)]),
            Some(problem) => RemedyAttempt::Cannot(with(candidate.name), problem),
        });
    }
    if attempts.is_empty() { advice(none, "this build has only the one in use") } else { attempts }
}

fn decoders(facts: &Facts<'_>) -> Vec<RemedyAttempt> {
    others(facts.rig.decoders(), &facts.setting.decoder, "another decoder", |decoder| Setting {
        decoder,
        ..facts.setting.clone()
    })
}

fn device_decoders(facts: &Facts<'_>) -> Vec<RemedyAttempt> {
    let candidates = facts.rig.batched_decoders();
    if candidates.is_empty() {
        return advice("a JPEG decoder on the accelerator", "this build has none; feature nvjpeg is one");
    }
    others(candidates, &facts.setting.decoder, "a JPEG decoder on the accelerator", |decoder| Setting {
        decoder,
        ..facts.setting.clone()
    })
}

fn resizers(facts: &Facts<'_>) -> Vec<RemedyAttempt> {
    others(facts.rig.resizers(), &facts.setting.resizer, "another resizer", |resizer| Setting {
        resizer,
        ..facts.setting.clone()
    })
}

fn encoders(facts: &Facts<'_>) -> Vec<RemedyAttempt> {
    others(facts.rig.encoders(), &facts.setting.encoder, "another encoder", |encoder| Setting {
        encoder,
        ..facts.setting.clone()
    })
}

fn dct_scale(facts: &Facts<'_>) -> Vec<RemedyAttempt> {
    let mut attempts = Vec::new();
    for scale in [DecodeScale::Fast, DecodeScale::Low] {
        let scaled = Setting { scale, ..facts.setting.clone() };
        let mut able = Vec::new();
        for Candidate { name, .. } in facts.rig.decoders() {
            if facts.rig.open_decoder(&name).is_ok_and(|decoder| scale.is_within(&decoder.capability())) {
                able.push(Setting { decoder: name, ..scaled.clone() });
            }
        }
        attempts.push(if facts.setting.scale == scale {
            RemedyAttempt::Cannot(scaled, "already done".to_owned())
        } else if able.is_empty() {
            RemedyAttempt::Cannot(scaled, "no decoder of this build decodes at this scale".to_owned())
        } else {
            RemedyAttempt::Try(able)
        });
    }
    attempts
}

fn recipes(facts: &Facts<'_>) -> Vec<RemedyAttempt> {
    let recipe = if facts.setting.recipe == "squash" { "hf" } else { "squash" };
    vec![RemedyAttempt::Try(vec![Setting { recipe: recipe.to_owned(), ..facts.setting.clone() }])]
}

fn more_workers(facts: &Facts<'_>) -> Vec<RemedyAttempt> {
    let workers = facts.setting.workers;
    let most = facts.cores.max(workers + 1);
    let mut counts: Vec<usize> =
        [workers + 1, workers * 2, most].into_iter().filter(|&n| n > workers && n <= most).collect();
    counts.dedup();
    vary(facts, |setting, n| setting.workers = n, &counts)
}

fn fewer_workers(facts: &Facts<'_>) -> Vec<RemedyAttempt> {
    let workers = facts.setting.workers;
    if workers < 2 {
        return cannot(Setting { workers: 1, ..facts.setting.clone() }, "there is one at most already");
    }
    vary(facts, |setting, n| setting.workers = n, &[workers - 1, workers / 2])
}

fn oversubscription(facts: &Facts<'_>) -> Vec<RemedyAttempt> {
    let Setting { workers, threads, .. } = *facts.setting;
    let fits =
        Setting { workers: workers.min(1), threads: facts.cores.saturating_sub(1).max(1), ..facts.setting.clone() };
    if !facts.on_host {
        return cannot(fits, "the forward does not run on these cores");
    }
    if workers + threads <= facts.cores || facts.cores < 2 {
        return cannot(fits, &format!("{workers} workers and {threads} threads for {} cores", facts.cores));
    }
    let mut splits = Vec::new();
    let mut workers = 1;
    while workers < facts.cores {
        splits.push(Setting { workers, threads: facts.cores - workers, ..facts.setting.clone() });
        workers *= 2;
    }
    vec![RemedyAttempt::Try(splits)]
}

fn dtypes(facts: &Facts<'_>) -> Vec<RemedyAttempt> {
    let mut attempts = Vec::new();
    for dtype in [DType::Bf16, DType::F16, DType::I8].into_iter().filter(|&dtype| dtype != facts.setting.dtype) {
        let usable = facts.rig.encoders().into_iter().filter(|encoder| encoder.problem.is_none());
        let settings = usable.map(|encoder| Setting { dtype, encoder: encoder.name, ..facts.setting.clone() });
        attempts.push(RemedyAttempt::Try(settings.collect()));
    }
    attempts
}

fn requests(facts: &Facts<'_>) -> Vec<RemedyAttempt> {
    const WHAT: &str = "more requests in flight";
    let Some(store) = facts.store else {
        let reason = if facts.is_delivered { "a container is one stream" } else { "files are read by reader threads" };
        return advice(WHAT, reason);
    };
    let requests = facts.setting.requests;
    match store.enough() {
        Some(enough) if !store.is_enough(requests) => {
            let measured = store.readings.iter().map(|reading| reading.requests);
            let mut more: Vec<usize> = measured.filter(|&n| n > requests && n <= enough.requests).collect();
            // The fewest that the job needs come first.
            more.sort_unstable();
            vary(facts, |setting, n| setting.requests = n, &more)
        }
        _ => advice(WHAT, &format!("already done: {requests} requests in flight read as much as any number of them")),
    }
}

fn tar_shards(facts: &Facts<'_>) -> Vec<RemedyAttempt> {
    let what = "photos in tar files (`foveate pack`)";
    let kilobytes = facts.mean_bytes / 1e3;
    match facts.mean_bytes < SMALL_FILE {
        _ if facts.store.is_some() => advice(
            what,
            "advice only: nothing is written to a store here; put a sample of shards beside the photos and measure it",
        ),
        _ if facts.is_delivered => advice(what, "the photos are in a container already"),
        true => vec![RemedyAttempt::Tar(what)],
        false => advice(what, &format!("{kilobytes:.0} kB a file: they are not small")),
    }
}

fn small_photos(facts: &Facts<'_>) -> Vec<RemedyAttempt> {
    let what = "photos of 256 px in tar files (`foveate pack --resize 256`)";
    let geometry = facts.rig.preprocess(facts.setting).geometry;
    let needed = match geometry {
        Geometry::ShortestEdgeCrop { edge, .. } => edge,
        _ => geometry.output().width.max(geometry.output().height),
    };
    match needed > SMALL_SIDE {
        _ if facts.store.is_some() => advice(what, "advice only: nothing is written to a store here"),
        true => advice(what, &format!("this recipe needs {needed} px; `foveate pack --resize {needed}` keeps them")),
        false => vec![RemedyAttempt::SmallTar(what)],
    }
}
