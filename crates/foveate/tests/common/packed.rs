//! The same photos in every form that is read.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use foveate_testkit::python;
use tempfile::TempDir;

/// Writes a folder's files in every other form: all in one container, and two shards with sidecars. Arguments: the
/// folder, the folder to write to.
const PACK: &str = r#"
import io, json, os, sys, tarfile, zipfile
import pyarrow as pa, pyarrow.parquet as pq
photos, out = sys.argv[1:]
names = sorted(os.listdir(photos))
data = {name: open(os.path.join(photos, name), "rb").read() for name in names}
def add(tar, name, content):
    info = tarfile.TarInfo(name)
    info.size, info.mtime = len(content), 1700000000
    tar.addfile(info, io.BytesIO(content))
def caption(name):
    return {"caption": "photo " + name, "url": None, "original_width": 640}
for n, part in enumerate([names[0::2], names[1::2]]):
    with tarfile.open(f"{out}/{n}.tar", "w") as tar:
        for name in part:
            add(tar, name, data[name])
            add(tar, name.rsplit(".", 1)[0] + ".json", json.dumps(caption(name)).encode())
for ending, mode in [("tar", "w"), ("tar.gz", "w:gz")]:
    with tarfile.open(f"{out}/all.{ending}", mode) as tar:
        for name in names:
            add(tar, name, data[name])
with zipfile.ZipFile(f"{out}/all.zip", "w") as archive:
    for n, name in enumerate(names):
        archive.writestr(name, data[name], zipfile.ZIP_DEFLATED if n % 2 else zipfile.ZIP_STORED)
image = pa.array([{"bytes": data[name], "path": name} for name in names])
captions = pa.array([caption(name)["caption"] for name in names])
table = pa.table({"image": image, "caption": captions, "label": pa.array(range(len(names)))})
pq.write_table(table, f"{out}/all.parquet", row_group_size=4)
"#;

/// Puts them into a store. Arguments: its endpoint, the folder with everything.
const UPLOAD: &str = r#"
import boto3, os, sys
endpoint, folder = sys.argv[1:]
s3 = boto3.client("s3", endpoint_url=endpoint, region_name="eu-central-1", aws_access_key_id="a", aws_secret_access_key="b")
s3.create_bucket(Bucket="photos", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
for name in os.listdir(f"{folder}/photos"):
    s3.upload_file(f"{folder}/photos/{name}", "photos", f"p/{name}")
for name in ["all.tar", "all.zip", "all.parquet"]:
    s3.upload_file(f"{folder}/{name}", "photos", f"packed/{name}")
"#;

/// A folder `photos`, and the same in every other form beside it: `all.tar`, `all.tar.gz`, `all.zip`, `all.parquet`,
/// and the shards `0.tar` and `1.tar`.
pub(crate) struct Packed(pub(crate) TempDir);

impl Packed {
    /// Packs what `fill` puts into a folder.
    pub(crate) fn new(fill: impl FnOnce(&Path)) -> Self {
        let root = tempfile::tempdir().unwrap();
        let photos = root.path().join("photos");
        fs::create_dir(&photos).unwrap();
        fill(&photos);
        let packed = python(&["pyarrow"]).args(["-c", PACK]).arg(&photos).arg(root.path()).status().unwrap();
        assert!(packed.success());
        Self(root)
    }

    pub(crate) fn path(&self, name: &str) -> OsString {
        self.0.path().join(name).into()
    }

    /// Puts the photos into the bucket `photos` of a store, below `p/`, and the containers below `packed/`.
    pub(crate) fn upload(&self, endpoint: &str) {
        let uploaded = python(&["boto3"]).args(["-c", UPLOAD, endpoint]).arg(self.0.path()).status().unwrap();
        assert!(uploaded.success());
    }
}
