//! The servers' content.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use foveate_testkit::python;

use foveate_testkit::brokers::{AzureServer, printed};

/// Puts objects into a container, each with its key's bytes, in requests with a shared key. Arguments: the endpoint,
/// the container, the keys.
const FILL: &str = r#"
import base64, email.utils, hashlib, hmac, os, sys, urllib.error, urllib.parse, urllib.request
account, key = os.environ["AZURE_STORAGE_ACCOUNT_NAME"], base64.b64decode(os.environ["AZURE_STORAGE_ACCOUNT_KEY"])
endpoint, container, *names = sys.argv[1:]
def put(path, body, query="", headers={}):
    headers = {"x-ms-date": email.utils.formatdate(usegmt=True), "x-ms-version": "2021-08-06", **headers}
    listed = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    resource = f"/{account}/{account}/{path}" + ("\n" + query.replace("=", ":") if query else "")
    length = str(len(body)) if body else ""
    kind = "application/octet-stream"
    text = "\n".join(["PUT", "", "", length, "", kind, "", "", "", "", "", "", listed + resource])
    signature = base64.b64encode(hmac.new(key, text.encode(), hashlib.sha256).digest()).decode()
    headers = {**headers, "Authorization": f"SharedKey {account}:{signature}", "Content-Type": kind}
    urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{path}?{query}", body, headers, method="PUT"))
try:
    put(container, b"", "restype=container")
except urllib.error.HTTPError as error:
    assert error.code == 409, "it exists only the second time"
for name in names:
    put(container + "/" + urllib.parse.quote(name), name.encode(), headers={"x-ms-blob-type": "BlockBlob"})
"#;

/// Makes a container if there is none, and puts objects there, each with its key's bytes.
pub(crate) fn fill(server: &AzureServer, container: &str, keys: &[&str]) {
    printed(python(&[]).args(["-c", FILL, &server.endpoint(), container]).args(keys));
}

/// A server that answers each request, in lower case, with a status and a body. Returns its address.
pub(crate) fn google(answer: impl Fn(&str) -> (&'static str, &'static str) + Send + 'static) -> String {
    const HEAD: &str = "ETag: \"a\"\r\nx-goog-generation: 7\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
                        Connection: close";
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut request) = (stream.unwrap(), [0; 8192]);
            let len = stream.read(&mut request).unwrap();
            let (status, body) = answer(&String::from_utf8_lossy(&request[..len]).to_lowercase());
            write!(stream, "HTTP/1.1 {status}\r\n{HEAD}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        }
    });
    format!("http://{address}")
}
