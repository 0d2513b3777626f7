//! The tables of all files.

use crate::schema::{Column, Schema};

/// Columns at the end of every file: model, machine, version, libraries, date and seed of the measurement, and what
/// else the machine did meanwhile.
pub const CONTEXT: &[Column; 16] = &[
    Column::text("model", "the model as asked for"),
    Column::text("device", "where the forward ran"),
    Column::text("host", "the processor's name"),
    Column::number("cores", "", "cores that the process may use"),
    Column::text("foveate", "version of foveate"),
    Column::text(
        "commit",
        "first 12 digits of the commit that was measured, with `+` if the sources differed from it; empty for a program \
         outside of its checkout",
    ),
    Column::text("features", "backends compiled in"),
    Column::text("libraries", "what the backends compute with, with versions"),
    Column::text("date", "UTC, when the run began, to the minute"),
    Column::text("effort", "`full`, or `quick` if samples were fewer or shorter than usual"),
    Column::number("seed", "", "what random choices depended on"),
    Column::number("load", "", "highest load average over a minute: threads that ran or waited"),
    Column::share(
        "others",
        "share of the processors' time that other processes used; empty if the system does not tell",
    ),
    Column::share("steal", "share of the processors' time that the hypervisor gave to other machines"),
    Column::share(
        "pressure",
        "share of the time in which some thread waited for a processor, those of foveate included",
    ),
    Column::text(
        "disturbed",
        "why the figures may be wrong: what else the machine did meanwhile; empty if nothing was noticed",
    ),
];

/// The columns about a row's samples, behind a file's own columns. Empty for computed values.
pub const SAMPLED: &[Column; 3] = &[
    Column::number("samples", "", "samples taken").unprinted(),
    Column::number("images", "", "images of one sample"),
    Column::number("sample_seconds", "s", "length of the median sample").unprinted(),
];

const STATUS: Column = Column::text("status", "`ok`, or `n/a (reason)`: then the figures are empty");
const PHOTOS: Column = Column::text("photos", "the set of photos: its name and median size");
const DECODER: Column = Column::text("decoder", "registry name");
const RESIZER: Column = Column::text("resizer", "registry name");
const ENCODER: Column = Column::text("encoder", "registry name");
const DTYPE: Column = Column::text("dtype", "precision of the forward");
const SCALE: Column = Column::text("decode_scale", "`exact`, `fast` or `low`");
const WORKERS: Column =
    Column::number("workers", "", "threads that decode and resize; 0 is every stage in turn on one thread");
const THREADS: Column = Column::number("threads", "", "threads of the forward");
const BATCH: Column = Column::number("batch", "", "images a batch");
const STEP: Column =
    Column::number("step", "", "0 for the job as given; each further one has the remedy that helped in the one before");
const READERS: Column = Column::number("readers", "", "threads that read");
const PREFETCH: Column = Column::number("prefetch", "", "batches that may wait for the encoder");
const RATE: Column = Column::rate("images_per_second", "images/s", "median of the samples");
const RATE_MIN: Column = Column::rate("images_per_second_min", "images/s", "least of the samples");
const RATE_MAX: Column = Column::rate("images_per_second_max", "images/s", "most of the samples");
const P50: Column = Column::number("p50_ms", "ms", "median");
const P90: Column = Column::number("p90_ms", "ms", "90th percentile");
const MEAN: Column = Column::number("mean_ms", "ms", "mean");
/// Of the sweeps of the whole job.
const ENCODER_BUSY: Column = Column::share("encoder_busy", "share of the time that the encoder computed, 0 to 1");
const CPU_BUSY: Column = Column::share("cpu_busy", "processor time ÷ (wall-clock time × cores), 0 to 1");
const LIMIT: Column = Column::text("limit", "the stage that was busy the most");
const ENCODER_BOUND: Column =
    Column::text("encoder_bound", "`yes` where the encoder was busy 95 % of the time: more workers cannot help")
        .choice();
const PEAK_MEMORY: Column = Column::number("peak_memory_mb", "MB", "most memory in use, 10^6 bytes");
const MEMORY_OF: Column = Column::text(
    "memory_of",
    "`device`, or `process of its own` where the host computes: the model and one batch, resident; else why it is not known",
);
const DEVICE_BUSY: Column = Column::share(
    "device_busy",
    "share of the time in which some kernel ran on the forward's NVIDIA cards, by their driver; empty without a card",
);
const DEVICE_MEMORY: Column = Column::number(
    "device_memory_mb",
    "MB",
    "most memory in use on those cards by any process, of readings every 0.1 s, 10^6 bytes",
);

/// All files that an experiment may write to a run's folder.
pub const ALL: [&Schema; 23] = [
    &PROFILE,
    &STORAGE,
    &DECODERS,
    &RESIZERS,
    &SINKS,
    &FORWARD,
    &BATCH_SWEEP,
    &JOB_BATCH_SWEEP,
    &WORKER_SWEEP,
    &HEADLINE,
    &EXTRAPOLATION,
    &WORKER,
    &COPIES,
    &READ,
    &TUNING,
    &DRIFT,
    &DIAGNOSIS,
    &REMEDIES,
    &PLAN,
    &BATCH_PLAN,
    &MACHINES,
    &TIMELINE,
    &CONTROL,
];

/// `profile.csv`.
pub static PROFILE: Schema = Schema {
    file: "profile.csv",
    made_by: "profile",
    about: "Where the time of a job goes, one row a stage. `serial` runs every stage in turn on one thread; \
            `threaded` is the same job with its workers.",
    columns: &[
        PHOTOS,
        Column::text("mode", "`serial` or `threaded`"),
        DECODER,
        RESIZER,
        ENCODER,
        DTYPE,
        SCALE,
        WORKERS,
        THREADS,
        BATCH,
        READERS,
        PREFETCH,
        Column::text(
            "stage",
            "list, read, decode, resize, normalize, batch, copy-in, forward, copy-out, serialize, or other",
        ),
        Column::number("count", "", "spans recorded"),
        Column::number("total_s", "s", "time in the stage, summed over threads"),
        MEAN,
        P50,
        P90,
        Column::number("p99_ms", "ms", "99th percentile"),
        Column::share(
            "share_of_wall",
            "total ÷ wall-clock time: 0 to 1 on one thread, up to the number of threads otherwise",
        ),
        Column::number("ms_per_image", "ms", "total ÷ images"),
        Column::number("wall_s", "s", "wall-clock time of the job").unprinted(),
        Column::number("bytes_per_image", "B", "mean encoded bytes of a photo").unprinted(),
        Column::number(
            "storage_mb_per_second",
            "MB/s",
            "what containers and stores deliver while nothing else works; empty for files, which are the stage `read`",
        )
        .unprinted(),
        Column::number("storage_latency_ms", "ms", "a store's time to the first byte of a request").unprinted(),
        Column::number("storage_request_mb_per_second", "MB/s", "a request's bandwidth after that time").unprinted(),
        Column::number(
            "storage_most_mb_per_second",
            "MB/s",
            "what all requests together are limited to; empty if no limit was seen",
        )
        .unprinted(),
        Column::number("storage_in_flight", "", "the job's requests to a store in flight").unprinted(),
        DEVICE_BUSY.unprinted(),
        DEVICE_MEMORY.unprinted(),
        RATE,
        Column::number("projected_images", "", "images of the projection").unprinted(),
        Column::number("projected_s", "s", "the stage's time for that many images, at this cost each"),
    ],
};

/// `storage.csv`.
pub static STORAGE: Schema = Schema {
    file: "storage.csv",
    made_by: "profile",
    about: "What the photos' places deliver while nothing else works.",
    columns: &[
        PHOTOS,
        Column::text("place", "`files`, `container` or `store`"),
        Column::text(
            "cache",
            "`cold`: the system was asked to drop the photos from its page cache before; `warm`: they were in it; empty if \
             the place is not on this machine",
        ),
        Column::number(
            "requests",
            "",
            "requests to a store in flight, threads that read files, or a container's stream",
        ),
        Column::number("mb_per_second", "MB/s", "encoded bytes read"),
        Column::rate("images_per_second", "images/s", "photos read"),
        Column::rate(
            "fitted_images_per_second",
            "images/s",
            "what the fit expects of that many requests: requests ÷ (latency + transfer), up to the limit",
        ),
        Column::number("latency_ms", "ms", "fit: time to the first byte of a request").unprinted(),
        Column::number("request_mb_per_second", "MB/s", "fit: a request's bandwidth after that time").unprinted(),
        Column::number(
            "most_mb_per_second",
            "MB/s",
            "fit: the limit of all requests together; empty if no limit was seen",
        )
        .unprinted(),
    ],
};

/// `decoders.csv`.
pub static DECODERS: Schema = Schema {
    file: "decoders.csv",
    made_by: "bench decoders",
    about: "Encoded bytes in memory to pixels in memory, one thread.",
    columns: &[
        PHOTOS,
        DECODER,
        SCALE,
        STATUS,
        P50,
        P90,
        MEAN,
        RATE,
        RATE_MIN,
        RATE_MAX,
        Column::number("megapixels_per_second", "MP/s", "native pixels of the photos, whatever was decoded"),
        Column::text(
            "pixels",
            "`exact` when every image has the pixels of the first exact decoder at this scale, else the largest difference \
             of a sample, or `another size`",
        ),
    ],
};

/// `resizers.csv`.
pub static RESIZERS: Schema = Schema {
    file: "resizers.csv",
    made_by: "bench resizers",
    about: "Decoded pixels in memory to the model's input, one thread.",
    columns: &[
        PHOTOS,
        RESIZER,
        Column::text("recipe", "`hf` or `squash`"),
        STATUS,
        P50,
        P90,
        MEAN,
        RATE,
        RATE_MIN,
        RATE_MAX,
        Column::text("pixels", "largest difference of a sample from the first resizer's"),
    ],
};

/// `sinks.csv`.
pub static SINKS: Schema = Schema {
    file: "sinks.csv",
    made_by: "bench sinks",
    about: "Vectors in memory to a finished, durable output.",
    columns: &[
        Column::text("sink", "registry name"),
        Column::text("variant", "compression or other options"),
        STATUS,
        Column::number("rows", "", "vectors written"),
        Column::number("dim", "", "components of a vector"),
        Column::rate("rows_per_second", "rows/s", "median, from the first row to the finished output"),
        Column::rate("rows_per_second_min", "rows/s", "least of the samples"),
        Column::rate("rows_per_second_max", "rows/s", "most of the samples"),
        Column::number("bytes", "B", "size of the output").unprinted(),
        Column::number("bytes_per_row", "B", "size of the output ÷ rows"),
    ],
};

/// `forward.csv`.
pub static FORWARD: Schema = Schema {
    file: "forward.csv",
    made_by: "bench forward",
    about: "The encoder alone, on one batch in the host's memory, complete on the host at the end of each call.",
    columns: &[
        ENCODER,
        DTYPE,
        THREADS,
        BATCH,
        STATUS,
        P50,
        P90,
        MEAN,
        RATE,
        RATE_MIN,
        RATE_MAX,
        Column::number("copy_in_ms", "ms", "median of a batch, to where the forward reads it"),
        Column::number("forward_ms", "ms", "median of a batch, the network alone"),
        Column::number("copy_out_ms", "ms", "median of a batch, vectors to the host"),
        Column::rate("forward_images_per_second", "images/s", "images of a batch ÷ the network's time").unprinted(),
        Column::number("cosine_to_reference", "", "least cosine of its vectors with the first f32 encoder's").signed(),
    ],
};

/// `batch_sweep.csv`.
pub static BATCH_SWEEP: Schema = Schema {
    file: "batch_sweep.csv",
    made_by: "bench batch-sweep",
    about: "The encoder alone at growing batches.",
    columns: &[
        ENCODER,
        DTYPE,
        THREADS,
        BATCH,
        STATUS,
        RATE,
        RATE_MIN,
        RATE_MAX,
        Column::number("batch_p50_ms", "ms", "median time of a batch"),
        Column::number(
            "forward_ms",
            "ms",
            "median of a batch, the network alone: what a batch takes while others are copied",
        )
        .unprinted(),
        PEAK_MEMORY,
        MEMORY_OF,
        Column::text("knee", "`yes` for the smallest batch within 5 % of the best throughput").choice(),
    ],
};

/// `job_batch_sweep.csv`.
pub static JOB_BATCH_SWEEP: Schema = Schema {
    file: "job_batch_sweep.csv",
    made_by: "bench job-batch-sweep",
    about: "The whole job at growing batch sizes: with its own decoder and resizer, then with the slowest.",
    columns: &[
        PHOTOS,
        DECODER,
        RESIZER,
        ENCODER,
        DTYPE,
        SCALE,
        WORKERS,
        THREADS,
        BATCH,
        STATUS,
        RATE,
        RATE_MIN,
        RATE_MAX,
        ENCODER_BUSY,
        CPU_BUSY,
        LIMIT,
        ENCODER_BOUND,
        PEAK_MEMORY,
        MEMORY_OF,
        Column::text("plateau", "`yes` for the smallest batch within 5 % of the best throughput").choice(),
    ],
};

/// `worker_sweep.csv`.
pub static WORKER_SWEEP: Schema = Schema {
    file: "worker_sweep.csv",
    made_by: "bench worker-sweep",
    about: "The whole job with a growing number of workers: with its own decoder and resizer, then with the slowest.",
    columns: &[
        PHOTOS,
        DECODER,
        RESIZER,
        ENCODER,
        DTYPE,
        SCALE,
        WORKERS,
        THREADS,
        BATCH,
        STATUS,
        RATE,
        RATE_MIN,
        RATE_MAX,
        ENCODER_BUSY,
        CPU_BUSY,
        LIMIT,
        ENCODER_BOUND,
        Column::text("plateau", "`yes` for the fewest workers within 5 % of the best throughput").choice(),
    ],
};

/// `matrix.csv`, which describes a machine's backends and is in no report.
pub static MATRIX: Schema = Schema {
    file: "matrix.csv",
    made_by: "bench matrix",
    about: "The whole job with every backend: one axis at a time around the job's own, or every combination.",
    columns: &[
        Column::text(
            "axis",
            "why it is measured: `pinned`, `decoder`, `decode-scale`, `resizer`, `pair`, `encoder+dtype`, `sink`, `cross`",
        ),
        PHOTOS,
        DECODER,
        RESIZER,
        ENCODER,
        DTYPE,
        SCALE,
        WORKERS,
        THREADS,
        BATCH,
        Column::text("sink", "registry name"),
        STATUS,
        RATE,
        RATE_MIN,
        RATE_MAX,
        Column::times("times_pinned", "this rate ÷ that of the job's own setting"),
        Column::number("drift", "", "1 − the least cosine of a photo's vector and that of the job's own setting"),
        ENCODER_BUSY,
        CPU_BUSY,
        LIMIT,
    ],
};

/// `headline.csv`.
pub static HEADLINE: Schema = Schema {
    file: "headline.csv",
    made_by: "bench headline",
    about: "From a slow configuration to the fastest, one improvement after the other, each measured end to end.",
    columns: &[
        PHOTOS,
        Column::number("step", "", "0 is the baseline"),
        Column::text("change", "what this step changed, `baseline`, `preprocessing alone` or `CPU only`"),
        DECODER,
        RESIZER,
        ENCODER,
        DTYPE,
        SCALE,
        WORKERS,
        THREADS,
        BATCH,
        STATUS,
        RATE,
        RATE_MIN,
        RATE_MAX,
        Column::times("times_baseline", "this rate ÷ the baseline's"),
        Column::number("beside", "", "the step that this one changes: the one before, without those that lost"),
        Column::times("times_previous", "this rate ÷ that step's"),
        Column::text(
            "effect",
            "`gain` or `loss` if every sample lies above or below those of that step, else `unclear`",
        ),
        Column::number("drift", "", "1 − the least cosine of a photo's vector and the baseline's; empty for stand-ins"),
        ENCODER_BUSY,
        DEVICE_BUSY,
        DEVICE_MEMORY,
        LIMIT,
    ],
};

/// `extrapolation.csv`.
pub static EXTRAPOLATION: Schema = Schema {
    file: "extrapolation.csv",
    made_by: "bench extrapolation",
    about: "What a sample says about many images, and whether a longer run agrees.",
    columns: &[
        PHOTOS,
        STATUS,
        Column::rate("images_per_second", "images/s", "1 ÷ mean time of an image"),
        Column::rate("low", "images/s", "lower end of the 95 % prediction interval for another run").signed(),
        Column::rate("high", "images/s", "upper end; empty where samples differ too much to say"),
        Column::number("target_images", "", "images of the projection"),
        Column::number("hours", "h", "for that many"),
        Column::number("hours_low", "h", "at the interval's upper rate"),
        Column::number("hours_high", "h", "at its lower rate"),
        Column::number("long_images", "", "images of the longer run"),
        Column::rate("long_images_per_second", "images/s", "its rate"),
        Column::text("within", "`yes` when that lies in the interval"),
        Column::text("assumptions", "what the projection takes for granted"),
    ],
};

/// `worker.csv`.
pub static WORKER: Schema = Schema {
    file: "worker.csv",
    made_by: "bench worker",
    about: "The queue worker with more and more of its stages on threads of their own, photos downloaded from a server on \
            this machine that answers about as slowly as the web, results called back to it.",
    columns: &[
        PHOTOS,
        DECODER,
        RESIZER,
        Column::text("encoder", "registry name; `stub` sleeps in the place of a forward on a device"),
        DTYPE,
        THREADS,
        Column::number("configuration", "", "1 to 4"),
        Column::text("change", "what this configuration has that the one before has not"),
        Column::number("downloaders", "", "threads that download; 0 leaves it to the next stage's threads"),
        Column::number("workers", "", "threads that decode and resize; 0 leaves it to the encoder's thread"),
        Column::number("callers", "", "threads that call back; 0 leaves it to the encoder's thread"),
        Column::number("queue_size", "", "messages that the worker holds at most"),
        BATCH,
        STATUS,
        Column::number(
            "requests",
            "",
            "completed in one window: downloaded, embedded, called back and acknowledged; median of the samples",
        ),
        Column::number("slowest_photo_ms", "ms", "latency of the slowest photo of a sample, median of the samples")
            .unprinted(),
        Column::rate("requests_per_second", "requests/s", "requests of a window ÷ its length, median of the samples"),
        Column::rate("requests_per_second_min", "requests/s", "least of the samples"),
        Column::rate("requests_per_second_max", "requests/s", "most of the samples"),
        Column::times("times_first", "this rate ÷ that of configuration 1 with this encoder"),
        Column::times("times_previous", "this rate ÷ the previous configuration's"),
        Column::number(
            "p50_ms",
            "ms",
            "median time of a request under full load, from its delivery to its acknowledgement: it grows with the messages held",
        ),
        Column::number("p99_ms", "ms", "99th percentile"),
        Column::number("images_per_batch", "", "mean number of images of a forward"),
        ENCODER_BUSY,
        Column::share("cpu_busy", "processor time ÷ (wall-clock time × cores), 0 to 1: the server's part included"),
        Column::number("peak_memory_mb", "MB", "most memory in use in a window, 10^6 bytes"),
        Column::number("mean_memory_mb", "MB", "mean memory in use in a window, 10^6 bytes").unprinted(),
        Column::text("memory_of", "`process` (resident); more words where the system tells less").unprinted(),
        DEVICE_BUSY,
        DEVICE_MEMORY,
        Column::text(
            "vectors",
            "`exact` when every vector is bit for bit that of configuration 1, else the least cosine of the two",
        ),
        Column::number("forward_sleep_ms", "ms", "what the stub sleeps for a batch").unprinted(),
        Column::number("forward_sleep_per_image_ms", "ms", "and for each image of it").unprinted(),
        Column::number("photo_p50_ms", "ms", "median time until the server begins to send a photo").unprinted(),
        Column::number("photo_p99_ms", "ms", "99th percentile").unprinted(),
        Column::number("callback_p50_ms", "ms", "median time until it has taken a callback").unprinted(),
        Column::number("callback_p99_ms", "ms", "99th percentile").unprinted(),
    ],
};

/// `tuning.csv`.
pub static TUNING: Schema = Schema {
    file: "tuning.csv",
    made_by: "tune",
    about: "Every configuration that tuning tried, in order.",
    columns: &[
        PHOTOS,
        WORKERS,
        THREADS,
        BATCH,
        PREFETCH,
        READERS,
        RATE,
        RATE_MIN,
        RATE_MAX,
        Column::number("beside", "", "the row, from 1, of the configuration that it took turns with"),
        Column::times("times", "its rate ÷ that of `beside`: the mean over their turns; 1 in the first row"),
        Column::times("times_low", "least of the turns").unprinted(),
        Column::times("times_high", "most of the turns").unprinted(),
        Column::text("chosen", "`yes` for the configuration that was written"),
        Column::text("why", "why it was tried, or what it showed"),
    ],
};

/// `drift.csv`.
pub static DRIFT: Schema = Schema {
    file: "drift.csv",
    made_by: "tune --min-cosine 0.999",
    about: "Every configuration that tuning within a drift budget tried, in order: its speed, and how far its vectors \
            are from the default's. Drift is 1 − the cosine of a photo's two vectors.",
    columns: &[
        PHOTOS,
        DECODER,
        SCALE,
        RESIZER,
        ENCODER,
        DTYPE,
        STATUS,
        Column::number("budget", "", "largest drift that the budget allows; empty for a budget of recall alone"),
        Column::number(
            "compared",
            "",
            "photos of the choice's half, which decide whether a configuration is a candidate",
        ),
        Column::number("failed", "", "those of them that fail under this configuration alone"),
        Column::number("drift_median", "", "median of the others"),
        Column::number("drift_max", "", "most of the others"),
        Column::number(
            "drift_bound",
            "",
            "upper tolerance bound that has to be within the budget; empty if there is none",
        ),
        Column::share("recall", "recall@1 on the labelled ones; the first row has the default's"),
        Column::number("held_out", "", "photos of the other half, on which the candidate was confirmed; else empty"),
        Column::number("held_out_max", "", "most drift of theirs"),
        RATE,
        RATE_MIN,
        RATE_MAX,
        Column::text("within", "`yes` if its drift on the choice's half is within the budget"),
        Column::text("chosen", "`yes` for the configuration that was written"),
        Column::text("why", "what the two halves showed"),
    ],
};

/// `diagnosis.csv`.
pub static DIAGNOSIS: Schema = Schema {
    file: "diagnosis.csv",
    made_by: "diagnose",
    about: "The real pipeline with its real threads, its data cached at one depth after the other.",
    columns: &[
        PHOTOS,
        STEP,
        Column::text("setting", "the job's backends and counts").unprinted(),
        Column::number("depth", "", "0 is the shallowest: next to the forward"),
        Column::text("cached", "what is cached there"),
        Column::text("adds", "the stage that works again from this depth on"),
        STATUS,
        RATE,
        Column::rate("low", "images/s", "lower end of the 95 % interval of the median").signed(),
        Column::rate("high", "images/s", "upper end"),
        Column::share("drop", "1 − this rate ÷ the rate of the depth before, 0 to 1").signed(),
        Column::share("drop_low", "lower end of its 95 % interval").signed(),
        Column::share("drop_high", "upper end").signed(),
        Column::text(
            "significant",
            "`yes` when the interval lies above the least drop that matters, and so do the drops from the depth before \
             to no cache at all, and from the shallowest depth to this one",
        ),
        CPU_BUSY,
        DEVICE_BUSY,
        DEVICE_MEMORY,
        Column::text("culprit", "`yes` for the stage that the verdict names"),
    ],
};

/// `remedies.csv`.
pub static REMEDIES: Schema = Schema {
    file: "remedies.csv",
    made_by: "diagnose",
    about: "Remedies from the checklist, with what the fitted model expects of each.",
    columns: &[
        PHOTOS,
        STEP,
        Column::text("setting", "the job's backends and counts").unprinted(),
        Column::text("remedy", "its name in the checklist"),
        Column::text("stage", "the stage that it relieves"),
        Column::text("change", "what to do: the values to change, where there are any"),
        STATUS,
        Column::rate("now", "images/s", "measured throughput without it").unprinted(),
        Column::rate("predicted", "images/s", "`now`, times what the model expects to change with it"),
        Column::times("times", "predicted ÷ now"),
        Column::rate("measured", "images/s", "what was measured with it, if it was"),
        Column::times("measured_times", "measured ÷ what the same measurement has without it"),
        Column::times("measured_times_low", "lower end of its 95 % interval").unprinted(),
        Column::times("measured_times_high", "upper end").unprinted(),
        Column::rate("measured_low", "images/s", "lower end of its 95 % interval").unprinted(),
        Column::rate("measured_high", "images/s", "upper end").unprinted(),
        Column::share(
            "error",
            "predicted ÷ measured − 1; with a measurement of another file, times ÷ measured_times − 1",
        )
        .signed(),
        Column::text("source", "what measured it: `trial`, or the file of another measurement").unprinted(),
        Column::text(
            "effect",
            "`gain` or `loss` when the 95 % interval of measured ÷ before lies above or below 1, else `unclear`",
        ),
        Column::text("vectors", "what becomes of them with it: `same`, `close` or `other`"),
        Column::text("why", "why it may help, and what else it costs").unprinted(),
    ],
};

/// `plan.csv`.
pub static PLAN: Schema = Schema {
    file: "plan.csv",
    made_by: "bench predictions",
    about: "Real runs, and what the model had predicted for them from the costs of the parts.",
    columns: &[
        PHOTOS,
        DECODER,
        RESIZER,
        ENCODER,
        DTYPE,
        SCALE,
        WORKERS,
        THREADS,
        BATCH,
        Column::number("requests", "", "requests to the photos' store in flight"),
        Column::rate("predicted", "images/s", "the analytic model"),
        Column::rate("measured", "images/s", "median of the samples"),
        Column::share("error", "predicted ÷ measured − 1").signed(),
        Column::text("regime", "`storage`, `transform` or `compute`: the expected wall"),
        Column::text("limit", "what the model takes for the limit"),
    ],
};

/// `copies.csv`.
pub static COPIES: Schema = Schema {
    file: "copies.csv",
    made_by: "bench copies",
    about: "What a batch costs on its way to the network, as bytes and as floats.",
    columns: &[
        Column::text(
            "from",
            "`convert`: bytes to normalized floats; `host`: within the host's memory; `pageable`, `pinned`: from such \
             memory to the device",
        ),
        Column::text("dtype", "`u8` or `f32`"),
        STATUS,
        Column::number("bytes", "B", "of the batch"),
        Column::number("host_ms", "ms", "median, of the thread that has the batch"),
        Column::number("device_ms", "ms", "median of the copy, by the device's clock; empty on the host"),
        Column::number("mb_per_second", "MB/s", "bytes ÷ both"),
    ],
};

/// `read.csv`.
pub static READ: Schema = Schema {
    file: "read.csv",
    made_by: "bench read",
    about: "What a file or an object delivers in pieces, several at a time.",
    columns: &[
        Column::number("chunk_bytes", "B", "bytes of a piece"),
        Column::number("requests", "", "pieces that are read at a time"),
        Column::number("mb_per_second", "MB/s", "median of the samples"),
        Column::number("mb_per_second_min", "MB/s", "least of the samples"),
        Column::number("mb_per_second_max", "MB/s", "most of the samples"),
    ],
};

/// `batch_plan.csv`.
pub static BATCH_PLAN: Schema = Schema {
    file: "batch_plan.csv",
    made_by: "plan",
    about: "The walls of the analytic model, by batch.",
    columns: &[
        BATCH,
        Column::number("storage_ms", "ms", "reading a batch"),
        Column::number("cpu_ms", "ms", "decoding and resizing a batch"),
        Column::number("bus_ms", "ms", "a batch's pixels on their way to the accelerators"),
        Column::number("compute_ms", "ms", "the forward of a batch"),
        Column::number("step_ms", "ms", "the slowest of them"),
        RATE,
        Column::share("utilization", "compute ÷ step, 0 to 1"),
        Column::times("slowdown", "step ÷ compute"),
        Column::number("needed_mb_per_second", "MB/s", "what the storage has to deliver to keep the accelerators busy"),
        Column::text("wall", "`storage`, `cpu`, `bus`, `compute` or `write`"),
        Column::text("crossover", "`yes` for the first batch at which another wall than compute is the slowest"),
    ],
};

/// `machines.csv`.
pub static MACHINES: Schema = Schema {
    file: "machines.csv",
    made_by: "plan --price-list",
    about: "A job on the machines of a price list, by the analytic model: the run's costs on their cores, the forward on \
            their devices. The cheapest comes first.",
    columns: &[
        Column::text("machine", "its name in the list"),
        Column::number("machine_cores", "", "its cores"),
        Column::text("accelerator", "where the forward runs: `cpu`, or a stand-in"),
        Column::number("workers", "", "threads that decode and resize, as many as help"),
        Column::rate("images_per_second", "images/s", "expected"),
        Column::text("limit", "what holds it back"),
        Column::number("job_images", "", "images of the job"),
        Column::number("hours", "h", "of all machines together, their start included"),
        Column::number("core_hours", "h", "hours × cores"),
        Column::number("money", "", "in the list's currency"),
        Column::number("kwh", "kWh", "hours × the list's watts"),
    ],
};

/// `timeline.csv`.
pub static TIMELINE: Schema = Schema {
    file: "timeline.csv",
    made_by: "bench all",
    about: "Who worked on what when, traced in the middle of a run before and of one after a change.",
    columns: &[
        Column::text("scenario", "`before` or `after`, with what changed"),
        Column::text("lane", "`reader 1`, …, `worker 1`, …, `encoder`, `writer`"),
        Column::text("stage", "what was done"),
        Column::number("start_ms", "ms", "from the start of the window"),
        Column::number("end_ms", "ms", "from the start of the window"),
        Column::number("batch", "", "number of the forward's batch"),
    ],
};

/// `control.csv`.
pub static CONTROL: Schema = Schema {
    file: "control.csv",
    made_by: "bench all",
    about: "The usual job, measured again after each experiment: how much it differs tells how steady the machine was.",
    columns: &[
        PHOTOS,
        Column::text("after", "the file of the experiment before it"),
        Column::rate("images_per_second", "images/s", "of one run"),
        Column::times("times_median", "this rate ÷ the median of all"),
    ],
};
