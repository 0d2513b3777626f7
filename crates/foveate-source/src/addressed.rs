//! Objects that rows and callers name by their addresses, read ahead of their delivery.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::store::{Object, ReadAhead, Version};
use crate::stream::{MOST_AHEAD, Reach, RecordKind};
use crate::{Content, Delivery, SourceError};

/// Reads the objects of unread deliveries whose locators are addresses, many at a time.
pub struct Addressed {
    reach: Arc<Reach>,
    /// The next deliveries: those whose objects were asked for, and at most one other behind them.
    ready: VecDeque<Result<Asked, SourceError>>,
    /// By scheme.
    objects: BTreeMap<String, Box<dyn ReadAhead>>,
}

/// A delivery, and the scheme of its object if that was asked for.
type Asked = (Delivery, Option<String>);

impl Addressed {
    pub(crate) fn new(reach: Arc<Reach>) -> Self {
        Self { reach, ready: VecDeque::new(), objects: BTreeMap::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// The first of the deliveries that `next` gives, with its object's content. Meanwhile, the objects of at most
    /// `most` of them are asked for.
    ///
    /// # Errors
    /// Those of `next`, in their places.
    pub fn deliver(
        &mut self,
        most: u64,
        next: &mut dyn FnMut() -> Result<Option<Delivery>, SourceError>,
    ) -> Result<Option<Delivery>, SourceError> {
        let most = usize::try_from(most).unwrap_or(MOST_AHEAD).min(MOST_AHEAD);
        while self.ready.len() < most
            && self.ready.back().is_none_or(|last| matches!(last, Ok((_, Some(_)))))
            && self.objects.values().all(|objects| objects.has_room())
        {
            match next().transpose() {
                Some(delivery) => {
                    let asked = delivery.map(|delivery| self.ask(delivery));
                    self.ready.push_back(asked);
                }
                None => break,
            }
        }
        let Some(asked) = self.ready.pop_front() else { return next() };
        let (mut delivery, scheme) = asked?;
        match scheme.and_then(|scheme| self.objects.get_mut(&scheme)).map(|objects| objects.take()) {
            Some(Ok((bytes, version))) => {
                delivery.item.version = std::mem::take(&mut delivery.item.version).or(version);
                delivery.content = Content::Read(bytes);
            }
            Some(Err(error)) => delivery.content = Content::Failed(error),
            None => {}
        }
        Ok(Some(delivery))
    }

    /// Begins to read the object of a delivery with an address. Without its store it stays unread, and reading it says
    /// why.
    fn ask(&mut self, delivery: Delivery) -> Asked {
        let item = &delivery.item;
        let scheme = match (&delivery.content, self.reach.kind(&item.locator)) {
            (Content::Unread, RecordKind::Object(scheme)) if item.fault.is_none() => scheme,
            _ => return (delivery, None),
        };
        let Ok(store) = self.reach.store(&scheme) else { return (delivery, None) };
        let address = String::from_utf8_lossy(&item.locator).into_owned();
        let objects = self.objects.entry(scheme.clone()).or_insert_with(|| store.read_ahead());
        objects.ask(Object { address, version: Version::default() });
        (delivery, Some(scheme))
    }
}
