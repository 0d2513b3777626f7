//! Keys as stores list them. The library refuses a whole page for a key that is no path, one with an empty part say. So
//! keys are put into a form that it takes for one name before it sees the page, and back afterwards.

use std::borrow::Cow;

use async_trait::async_trait;
use object_store::client::{HttpError, HttpRequest, HttpResponse, HttpService};
use object_store::path::Path;
use reqwest::header::HeaderValue;

use crate::retry::asked_to_wait;

/// The start of a key in this form.
const MARK: &str = "key:";

/// Talks to stores that list.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) client: reqwest::Client,
    /// The Google project that pays for the requests.
    pub(crate) payer: Option<HeaderValue>,
}

#[async_trait]
impl HttpService for Listed {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if let Some(payer) = &self.payer {
            request.headers_mut().insert("x-goog-user-project", payer.clone());
        }
        let element = element(request.uri().query().unwrap_or_default());
        let response = self.client.call(request).await?;
        if let Some(Ok(seconds)) = response.headers().get("retry-after").map(|value| value.to_str()) {
            asked_to_wait(seconds);
        }
        let Some(element) = element.filter(|_| response.status().is_success()) else { return Ok(response) };
        let (mut head, body) = response.into_parts();
        let body = body.bytes().await?;
        let body = match std::str::from_utf8(&body) {
            Ok(page) => marked(page, element).into(),
            Err(_) => body.into(),
        };
        head.headers.remove("content-length");
        Ok(HttpResponse::from_parts(head, body))
    }
}

/// The element of a page with a key, if this query asks for a page.
fn element(query: &str) -> Option<&'static str> {
    if query.split('&').any(|field| field == "list-type=2") {
        Some("Key")
    } else if query.split('&').any(|field| field == "comp=list") {
        Some("Name")
    } else {
        None
    }
}

/// The page with its keys in the other form.
fn marked(page: &str, element: &str) -> String {
    let start = format!("<{element}>");
    let end = format!("</{element}>");
    let mut out = String::with_capacity(page.len() + page.len() / 4);
    let mut parts = page.split(start.as_str());
    out.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let (key, rest) = part.split_at(part.find(&end).unwrap_or(0));
        out.push_str(&start);
        out.push_str(MARK);
        mark(key, &mut out);
        out.push_str(rest);
    }
    out
}

/// Writes a key of XML with `%2F` for a slash, and so on for all of ASCII but letters, digits and what XML needs.
fn mark(key: &str, out: &mut String) {
    let mut rest = key;
    while let Some(first) = rest.chars().next() {
        let len = if first == '&' { rest.find(';').map_or(1, |end| end + 1) } else { first.len_utf8() };
        let (piece, after) = rest.split_at(len);
        match character(piece).filter(|c| c.is_ascii() && !c.is_ascii_alphanumeric()) {
            Some(c) => out.push_str(&format!("%{:02X}", u32::from(c))),
            None => out.push_str(piece),
        }
        rest = after;
    }
}

/// The character that a piece of XML stands for, unless it has a name (`&amp;`), which needs no other form.
fn character(piece: &str) -> Option<char> {
    let Some(number) = piece.strip_prefix("&#").and_then(|rest| rest.strip_suffix(';')) else {
        return piece.chars().next().filter(|&c| c != '&');
    };
    let code = match number.strip_prefix('x') {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => number.parse(),
    };
    char::from_u32(code.ok()?)
}

/// The key as the store has it.
pub(crate) fn key(listed: &Path) -> Cow<'_, str> {
    let Some(marked) = listed.as_ref().strip_prefix(MARK) else { return listed.as_ref().into() };
    let mut parts = marked.split('%');
    let mut key = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match code {
            Some(code) => {
                key.push(char::from(code));
                key.push_str(&part[2..]);
            }
            None => key.extend(["%", part]),
        }
    }
    key.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_comes_back() {
        for (xml, expected) in [
            ("a/b.jpg", "a/b.jpg"),
            ("a//b.jpg", "a//b.jpg"),
            ("/", "/"),
            ("../a/./b/", "../a/./b/"),
            (".", "."),
            ("100%25 a%2Fb", "100%25 a%2Fb"),
            ("a &amp;#x2F;&lt;b&gt;", "a &#x2F;<b>"),
            ("a&#x1;&#10;&#xD;b&#x20AC;", "a\u{1}\n\rb€"),
            (" ünï 日本.jpg ", " ünï 日本.jpg "),
            ("key:a", "key:a"),
        ] {
            let page = format!("<Name>b</Name><Key>{xml}</Key><Key>z</Key>");
            let out = marked(&page, "Key");
            let [first, last] =
                [0, 1].map(|at| out.split("<Key>").nth(at + 1).unwrap().split("</Key>").next().unwrap());
            assert_eq!((&out[..14], last), ("<Name>b</Name>", "key:z"));
            // As the library unescapes it.
            let text = first.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").replace("&#x20AC;", "€");
            assert_eq!(key(&Path::parse(&text).unwrap()), expected);
        }
        assert_eq!(key(&Path::parse("a%2Fb").unwrap()), "a%2Fb", "not of this form");
    }

    #[test]
    fn pages_are_told_from_objects() {
        assert_eq!(element("list-type=2&prefix=a"), Some("Key"));
        assert_eq!(element("restype=container&comp=list"), Some("Name"));
        for query in ["", "versionId=comp", "list-type=20", "prefix=list-type=2"] {
            assert_eq!(element(query), None);
        }
    }
}
