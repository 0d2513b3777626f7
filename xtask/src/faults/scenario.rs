//! What is attacked: jobs that write to each sink, over what an earlier job may have left there.

/// One command line, and what its output's folder holds before.
pub(super) struct Scenario {
    pub(super) name: &'static str,
    /// `embed`, or `pack`; a merge is told by what was there before.
    pub(super) command: &'static str,
    /// The output, relative to its folder.
    pub(super) output: &'static str,
    /// Arguments beside the inputs and the output.
    pub(super) args: &'static [&'static str],
    /// The file that means "complete", relative to the folder.
    pub(super) main: &'static str,
    pub(super) before: Before,
}

/// What earlier jobs left, each given by its output and its arguments.
pub(super) enum Before {
    Nothing,
    /// A complete output, which the job replaces.
    Replaced(&'static str, &'static [&'static str]),
    /// The output of a job that was killed half-way, which the job replaces.
    Killed(&'static str, &'static [&'static str]),
    /// A complete output of other names, which stays.
    Kept(&'static str, &'static [&'static str]),
    /// A complete output of other inputs, which the job updates.
    Updated(&'static str, &'static [&'static str]),
    /// A complete output, which the job merges into another one.
    Merged(&'static str, &'static [&'static str]),
    /// A complete output, which the job updates. Between the attack and the same command again, more happens.
    Lived(Life),
}

/// A folder of photos that changes, and what becomes of its output. Each photo is a letter, the file's name, and the
/// number of a photo, or `-` if it cannot be read now. Those of large letters are in a folder of their own.
pub(super) struct Life {
    /// Where the output is first, if it is copied to the scenario's output.
    pub(super) copied_from: Option<&'static str>,
    /// The photos of the output, of the attacked update, and of the same command again.
    pub(super) photos: [&'static str; 3],
    /// Another job's arguments: it runs before the same command again, or while the attacked update waits.
    pub(super) between: Option<&'static [&'static str]>,
    /// The words with which the last command refuses, and the attacked one unless there is a job in between.
    pub(super) refusal: Option<&'static str>,
    /// The output has the rows of a fresh run of these photos with these arguments.
    pub(super) rows_of: (&'static str, &'static [&'static str]),
}

impl Scenario {
    /// Returns true if the command replaces what it finds.
    pub(super) fn replaces(&self) -> bool {
        matches!(self.before, Before::Replaced(..) | Before::Killed(..))
    }

    /// Returns true if the command needs what it finds. Its rows are others than those of the other scenarios.
    pub(super) fn continues(&self) -> bool {
        matches!(self.before, Before::Updated(..) | Before::Merged(..) | Before::Lived(..))
    }

    /// The words with which the attacked command refuses.
    pub(super) fn refusal(&self) -> Option<&'static str> {
        self.life().filter(|life| life.between.is_none())?.refusal
    }

    pub(super) fn life(&self) -> Option<&Life> {
        match &self.before {
            Before::Lived(life) => Some(life),
            _ => None,
        }
    }
}

const PARQUET: &[&str] = &["--sink", "parquet"];
const NPY: &[&str] = &["--sink", "npy"];
const ARROW: &[&str] = &["--sink", "arrow"];
const LMDB: &[&str] = &["--sink", "lmdb"];
/// Other settings, other vectors.
const SQUASHED: &[&str] = &["--preprocess", "squash"];

const fn fresh(
    name: &'static str,
    output: &'static str,
    main: &'static str,
    args: &'static [&'static str],
) -> Scenario {
    Scenario { name, command: "embed", output, args, main, before: Before::Nothing }
}

const fn lived(name: &'static str, output: &'static str, args: &'static [&'static str], life: Life) -> Scenario {
    Scenario { before: Before::Lived(life), ..fresh(name, output, output, args) }
}

/// An update of nine photos: one of them changed, one is gone, and two are new.
const LIFE: Life = Life {
    copied_from: None,
    photos: ["a0b1c2d3e4f5A6B7C8", "a0b1c9d3f5g1h2A6B7C8", "a0b1c9d3f5g1h2A6B7C8"],
    between: None,
    refusal: None,
    rows_of: ("a0b1c9d3f5g1h2A6B7C8", &[]),
};
const PRUNING: &[&str] = &["--update", "--prune", "--max-removed", "100%"];

/// Shards of a few photos each.
const PACK: Scenario =
    Scenario { command: "pack", ..fresh("pack", "out/", "out/_manifest.json", &["--shard-size", "20K"]) };

pub(super) const SCENARIOS: [Scenario; 27] = [
    fresh("parquet", "x.parquet", "x.parquet", &[]),
    fresh("npy", "x.npy", "x.npy", &[]),
    fresh("arrow", "x.arrow", "x.arrow", &[]),
    fresh("lmdb", "x.lmdb", "x.lmdb", &[]),
    fresh("parquet-folder", "out/", "out/_manifest.json", PARQUET),
    fresh("npy-folder", "out/", "out/_manifest.json", NPY),
    fresh("arrow-folder", "out/", "out/_manifest.json", ARROW),
    fresh("lmdb-folder", "out/", "out/_manifest.json", LMDB),
    Scenario {
        before: Before::Kept("out/", &["--sink", "parquet", "--shard", "0/2"]),
        ..fresh("shard", "out/", "out/manifest-00001-of-00002.json", &["--sink", "parquet", "--shard", "1/2"])
    },
    Scenario {
        before: Before::Replaced("x.parquet", SQUASHED),
        ..fresh("over-parquet", "x.parquet", "x.parquet", &[])
    },
    Scenario { before: Before::Replaced("x.npy", SQUASHED), ..fresh("over-npy", "x.npy", "x.npy", &[]) },
    Scenario { before: Before::Replaced("x.lmdb", SQUASHED), ..fresh("over-lmdb", "x.lmdb", "x.lmdb", &[]) },
    Scenario { before: Before::Replaced("out/", NPY), ..fresh("over-folder", "out/", "out/_manifest.json", PARQUET) },
    Scenario { before: Before::Killed("out/", NPY), ..fresh("over-half", "out/", "out/_manifest.json", PARQUET) },
    Scenario {
        before: Before::Updated("out/", PARQUET),
        ..fresh("update-folder", "out/", "out/_manifest.json", &["--sink", "parquet", "--update"])
    },
    Scenario {
        before: Before::Updated("out/", NPY),
        ..fresh(
            "prune-folder",
            "out/",
            "out/_manifest.json",
            &["--sink", "npy", "--update", "--prune", "--max-removed", "1"],
        )
    },
    Scenario {
        before: Before::Updated("x.parquet", &[]),
        ..fresh("prune-parquet", "x.parquet", "x.parquet", &["--update", "--prune", "--max-removed", "1"])
    },
    Scenario {
        before: Before::Updated("x.npy", &[]),
        ..fresh("retry-npy", "x.npy", "x.npy", &["--retry-failures", "--allow-truncated"])
    },
    Scenario {
        before: Before::Merged("in/", PARQUET),
        ..fresh("merge", "x.parquet", "x.parquet", &["--part-items", "4"])
    },
    PACK,
    Scenario { name: "over-pack", before: Before::Replaced("out/", &["--shard-size", "40K"]), ..PACK },
    Scenario { before: Before::Kept("x.npy", &["--limit", "2"]), ..fresh("beside", "x.parquet", "x.parquet", &[]) },
    lived(
        "edited",
        "x.npy",
        PRUNING,
        Life {
            photos: [LIFE.photos[0], LIFE.photos[1], "a1b1d3g1h3i4A6B9C8"],
            rows_of: ("a1b1d3g1h3i4A6B9C8", &[]),
            ..LIFE
        },
    ),
    lived(
        "away",
        "x.npy",
        &["--update"],
        Life {
            photos: [LIFE.photos[0], "a0b1c2d3e4f5g9A-B-C-", "a0b1c2d3e4f5g9A-B-C-"],
            rows_of: ("a0b1c2d3e4f5g9A6B7C8", &[]),
            ..LIFE
        },
    ),
    lived(
        "other-recipe",
        "x.npy",
        PRUNING,
        Life {
            between: Some(&["--pooling", "mean", "--overwrite"]),
            refusal: Some("pooling: mean → cls"),
            rows_of: (LIFE.photos[1], &["--pooling", "mean"]),
            ..LIFE
        },
    ),
    lived("copied", "y.npy", PRUNING, Life { copied_from: Some("x.npy"), ..LIFE }),
    lived(
        "gone",
        "x.npy",
        &["--update", "--prune"],
        Life {
            photos: [LIFE.photos[0], "a0b1c2d3e4f5g9", "a0b1c2d3e4f5g9"],
            refusal: Some("more than the limit of 10%"),
            rows_of: (LIFE.photos[0], &[]),
            ..LIFE
        },
    ),
];
