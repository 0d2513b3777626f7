//! Arguments that several commands share: the images, their embedding, the storage of vectors.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use foveate::embed::CacheOptions;
use foveate::encode::{DType, Pooling};
use foveate::lane::Normalize;
use foveate::preprocess::OrientationPolicy;
use foveate::sink::Element;
use foveate::source::NameFilter;
use foveate::source::store::{StoreOptions, WebHeaders};
use foveate::{DecodeScale, Recipe};

use super::values::{parse_count, parse_positive, parse_setting, place};

/// The images and their embedding, as typed; [`super::job`] turns them into options.
#[derive(Args, Debug)]
pub(crate) struct JobArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,

    /// The lists' paths end in NUL, not at the line's end (`find -print0`).
    #[arg(
        short = '0',
        long,
        requires = "from_list",
        conflicts_with = "path_column",
        help_heading = "Inputs",
        hide = true
    )]
    pub(crate) null: bool,

    /// The lists are CSV files with a header, and this column has the paths.
    #[arg(long, value_name = "NAME", requires = "from_list", help_heading = "Inputs")]
    pub(crate) path_column: Option<String>,

    #[command(flatten)]
    pub(crate) embedding: EmbeddingArgs,

    /// Refuse inputs whose paths take more than this; they are kept in a temporary file.
    #[arg(long, value_name = "BYTES", default_value = "4G", value_parser = parse_count, help_heading = "Inputs", hide = true)]
    pub(crate) max_listing: u64,

    /// Keep the listing in FILE, or take it from there.
    #[arg(long, value_name = "FILE", help_heading = "Inputs", hide = true)]
    pub(crate) listing: Option<PathBuf>,

    /// Fields of containers' members that become columns of the output (`caption,url`).
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', help_heading = "Inputs")]
    pub(crate) columns: Vec<String>,

    /// The column of a Parquet or Arrow file, or the field of a tar's JSON, that holds the ids. Default: the
    /// container's name, and the row's number or the member's name.
    #[arg(long, value_name = "NAME", help_heading = "Inputs")]
    pub(crate) id_column: Option<String>,

    #[command(flatten)]
    pub(crate) ahead: AheadArgs,
}

/// The images.
#[derive(Args, Debug)]
pub(crate) struct InputArgs {
    /// Files, folders (searched recursively, sorted), globs and ranges (`'{00..99}.tar'`; quote them), containers of
    /// images (tar, zip, Parquet) and addresses (`s3://bucket/prefix/`), in any mixture; `-` is a tar on standard
    /// input.
    #[arg(value_name = "INPUT", required_unless_present = "from_list", value_parser = place())]
    pub(crate) inputs: Vec<PathBuf>,

    /// A file with one path per line, read after the INPUTs; `-` is standard input. A listed path that does not exist
    /// is one recorded failure.
    #[arg(long, value_name = "FILE")]
    pub(crate) from_list: Vec<PathBuf>,

    /// Process only the first N images. With `--shard`, each shard takes its share of N.
    #[arg(long, value_name = "N", help_heading = "Inputs")]
    pub(crate) limit: Option<u64>,

    /// Refuse files larger than this (`256M`).
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = parse_count, help_heading = "Inputs", hide = true)]
    pub(crate) max_bytes: u64,

    /// The column of a Parquet or Arrow file that holds the images. Default: the only one that looks so.
    #[arg(long, value_name = "NAME", help_heading = "Inputs")]
    pub(crate) image_column: Option<String>,

    /// Leave out files, folders and containers' members that match: a name at any depth (`'*_small.jpg'`), or a path
    /// with a slash (`2023/raw`). Case does not matter. Repeatable.
    #[arg(long, value_name = "GLOB", value_parser = parse_glob, help_heading = "Inputs")]
    pub(crate) exclude: Vec<String>,

    /// Take only what matches, in the same form. A name of what is left out by default (`@eaDir`, `.thumbnails`) takes
    /// that back instead. Repeatable.
    #[arg(long, value_name = "GLOB", value_parser = parse_glob, help_heading = "Inputs")]
    pub(crate) include: Vec<String>,

    /// A setting that only this store has, such as `endpoint=URL` of `s3`. Repeatable.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_setting, help_heading = "Inputs")]
    pub(crate) store_option: Vec<(String, String)>,

    #[command(flatten)]
    pub(crate) web: WebArgs,

    /// As others call it.
    #[arg(long = "endpoint-url", value_name = "URL", value_parser = endpoint_url, hide = true)]
    _endpoint_url: Option<String>,

    /// Objects of a store that are requested at a time.
    #[arg(long, value_name = "N", default_value = "64", value_parser = parse_positive, help_heading = "Engine", hide = true)]
    pub(crate) requests: usize,
}

impl InputArgs {
    /// Which names count.
    pub(crate) fn names(&self) -> NameFilter {
        NameFilter::new(&self.include, &self.exclude).unwrap_or_else(|why| unreachable!("they were parsed: {why}"))
    }
}

fn parse_glob(glob: &str) -> Result<String, String> {
    NameFilter::new(&[glob.to_owned()], &[]).map(|_| glob.to_owned())
}

/// Requests to web servers.
#[derive(Args, Clone, Debug)]
pub(crate) struct WebArgs {
    /// A header of each request to a web server, such as `User-Agent=…`, `Referer=…` or `Authorization=Bearer …`. No
    /// output, log or message shows its value. Repeatable.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_setting, help_heading = "Inputs")]
    pub(crate) http_header: Vec<(String, String)>,

    /// Most redirects that an address of the web is followed over.
    #[arg(long, value_name = "N", default_value_t = StoreOptions::DEFAULT_REDIRECTS, help_heading = "Inputs", hide = true)]
    pub(crate) max_redirects: u32,
}

impl Default for WebArgs {
    fn default() -> Self {
        Self { http_header: Vec::new(), max_redirects: StoreOptions::DEFAULT_REDIRECTS }
    }
}

impl WebArgs {
    pub(crate) fn headers(&self) -> WebHeaders {
        WebHeaders::new(self.http_header.clone())
    }
}

fn endpoint_url(url: &str) -> Result<String, String> {
    Err(format!("write `--store-option endpoint={url}`"))
}

/// Reading ahead of the encoder.
#[derive(Args, Debug)]
pub(crate) struct AheadArgs {
    /// Threads that read files.
    #[arg(long, value_name = "N", default_value = "2", value_parser = parse_positive, help_heading = "Engine", hide = true)]
    pub(crate) readers: usize,

    /// Full batches queued for the encoder.
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_positive, help_heading = "Engine", hide = true)]
    pub(crate) prefetch: usize,
}

/// The embedding of an image.
#[derive(Args, Debug)]
pub(crate) struct EmbeddingArgs {
    #[command(flatten)]
    pub(crate) run: RunArgs,

    /// Whether EXIF orientation is applied before anything else.
    #[arg(long, value_enum, default_value = "apply", help_heading = "Model", hide = true)]
    pub(crate) orientation: OrientationArg,

    /// Accept truncated files, with the part that can be decoded: JPEG, PNG, GIF, and uncompressed BMP and TIFF.
    #[arg(long, help_heading = "Inputs")]
    pub(crate) allow_truncated: bool,
}

/// The model and its input.
#[derive(Args, Debug)]
pub(crate) struct ModelArgs {
    /// A card's name (see `foveate models`), a Hugging Face repository `org/name[@revision]`, a folder in Hugging
    /// Face layout, or `seeded:<card>` for generated weights (no network; vectors without meaning).
    #[arg(short, long, default_value = "facebook/dinov2-small", help_heading = "Model")]
    pub(crate) model: String,

    /// Preprocessing: the model's own recipe (`hf`), or stretching to the input size (`squash`). The two give different
    /// embeddings.
    #[arg(long, value_name = "hf|squash", default_value = "hf", help_heading = "Model")]
    pub(crate) preprocess: Recipe,

    /// Refuse images with more pixels than this (`100M`, `2G`), before memory is allocated for them.
    #[arg(long, value_name = "PIXELS", default_value = "100M", value_parser = parse_count, help_heading = "Inputs", hide = true)]
    pub(crate) max_pixels: u64,
}

/// The embedding of an image, as far as its speed depends on it.
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,

    /// How tokens become one vector.
    #[arg(long, value_enum, default_value = "cls", help_heading = "Model")]
    pub(crate) pooling: PoolingArg,

    /// Scale each vector to unit length.
    #[arg(long, value_enum, default_value = "off", help_heading = "Model")]
    pub(crate) normalize: NormalizeArg,

    /// Precision of the forward. Default: f32, which takes a GPU about ten times as long as f16 or bf16.
    #[arg(long, value_enum, help_heading = "Model")]
    pub(crate) dtype: Option<DTypeArg>,

    /// Device of the forward: `cpu`, `cuda:0`, or several that share the batches (`cuda:0,cuda:1`). A device that is
    /// named twice works on two batches at once. There is no silent fallback.
    #[arg(long, value_name = "DEVICE,…", default_value = "cpu", help_heading = "Model")]
    pub(crate) device: String,

    /// Preferred decoder (see `foveate backends`); the others decode the formats that it cannot read.
    #[arg(long, value_name = "NAME", help_heading = "Engine")]
    pub(crate) decoder: Option<String>,

    /// Decode JPEGs at their full size (`exact`), at a fraction of it (`fast`), or only the frequencies that the
    /// fraction shows (`low`, with the decoder `exact`). The last two are faster and change the vectors of JPEGs that
    /// are at least twice as large as the model resizes them to; smaller ones are decoded at full size.
    /// `foveate verify` measures how much. Default: exact; for `verify`, fast.
    #[arg(long, value_name = "exact|fast|low", help_heading = "Engine")]
    pub(crate) decode_scale: Option<DecodeScale>,

    /// Resizer.
    #[arg(long, value_name = "NAME", help_heading = "Engine")]
    pub(crate) resizer: Option<String>,

    /// Encoder.
    #[arg(long, value_name = "NAME", help_heading = "Engine")]
    pub(crate) encoder: Option<String>,

    /// A setting that only this encoder has, such as `optimization=basic` of `ort` (see its README). Repeatable.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_setting, help_heading = "Engine", hide = true)]
    pub(crate) encoder_option: Vec<(String, String)>,

    /// A setting that only this decoder has, such as `backend=hardware` of `nvjpeg`. Repeatable.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_setting, help_heading = "Engine", hide = true)]
    pub(crate) decoder_option: Vec<(String, String)>,

    /// Images per batch.
    #[arg(short, long, value_name = "N", default_value = "32", value_parser = parse_positive, help_heading = "Engine")]
    pub(crate) batch: usize,

    /// Threads that decode and resize; 0 runs every stage in turn on one thread. Default: a quarter of the cores if the
    /// forward runs on the CPU, otherwise all cores.
    #[arg(short, long, value_name = "N", help_heading = "Engine")]
    pub(crate) workers: Option<usize>,

    /// Threads of the forward on a CPU. Default: all cores.
    #[arg(long, value_name = "N", value_parser = parse_positive, help_heading = "Engine")]
    pub(crate) threads: Option<usize>,

    /// Read options from a TOML file (`batch = 16`), such as `foveate tune` writes; the command line overrides them.
    #[arg(long, value_name = "FILE", help_heading = "Engine")]
    pub(crate) config: Option<PathBuf>,
}

/// The cache of vectors.
#[derive(Args, Debug)]
pub(crate) struct CacheArgs {
    /// Keep vectors in this folder, by the image's bytes and the settings. An image that is there is not computed.
    /// Processes on one machine share the folder.
    #[arg(long, value_name = "DIR", help_heading = "Engine")]
    pub(crate) cache: Option<PathBuf>,

    /// Most bytes of the cache; the least recently used vectors go first.
    #[arg(long, value_name = "BYTES", default_value = "10G", value_parser = parse_count, requires = "cache",
          help_heading = "Engine", hide = true)]
    pub(crate) cache_size: u64,
}

impl CacheArgs {
    pub(crate) fn options(&self) -> Option<CacheOptions> {
        self.cache.clone().map(|folder| CacheOptions { folder, bytes: self.cache_size })
    }
}

/// Arguments for the storage of vectors.
#[derive(Args, Debug)]
pub(crate) struct StorageArgs {
    /// How vectors are stored.
    #[arg(long, value_enum, default_value = "f32", help_heading = "Output")]
    pub(crate) out_dtype: ElementArg,

    /// Output format, for a folder or an unusual extension. Default: by the extension; for a folder, the first sink of
    /// `foveate backends`.
    #[arg(long, value_name = "NAME", requires = "output", help_heading = "Output")]
    pub(crate) sink: Option<String>,

    /// A setting that only this format has, such as `compression=lz4` of `parquet` (see its README). Repeatable.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_setting, requires = "output", help_heading = "Output")]
    pub(crate) sink_option: Vec<(String, String)>,
}

/// Maps a closed set of words on the command line to a type of the library.
macro_rules! words {
    ($name:ident => $target:ty { $($variant:ident $word:literal => $value:expr),+ $(,)? }) => {
        #[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
        pub(crate) enum $name {
            $(#[value(name = $word)] $variant,)+
        }
        impl From<$name> for $target {
            fn from(word: $name) -> Self {
                match word {
                    $($name::$variant => $value,)+
                }
            }
        }
    };
}

words!(PoolingArg => Pooling { Cls "cls" => Self::Cls, Mean "mean" => Self::Mean, ClsMean "cls+mean" => Self::ClsMean });
words!(OrientationArg => OrientationPolicy { Apply "apply" => Self::Apply, Ignore "ignore" => Self::Ignore });
words!(NormalizeArg => Normalize { Off "off" => Self::Off, L2 "l2" => Self::L2 });
words!(DTypeArg => DType {
    F32 "f32" => Self::F32,
    F16 "f16" => Self::F16,
    Bf16 "bf16" => Self::Bf16,
    I8 "i8" => Self::I8,
});
words!(ElementArg => Element { F32 "f32" => Self::F32, F16 "f16" => Self::F16 });
