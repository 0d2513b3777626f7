//! `foveate queue`: a queue's counts and dead letters.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::Arc;

use anyhow::{anyhow, bail};
use chrono::{DateTime, Utc};
use foveate::queue::{Buried, DeadLetter, Fate, JobQueue, one_line};
use foveate::worker::IoRuntime;
use serde_json::{Value, json};

use super::console;
use super::exit::{Exit, Usage};
use super::service;
use super::service_args::{FilterArgs, QueueArgs, QueueCommand, QueueNameArgs};

/// Most kinds of dead letters that `stats` prints.
const KINDS: usize = 20;
/// Most bytes of a reason in a line.
const REASON: usize = 160;

pub(crate) fn run(command: &QueueCommand) -> anyhow::Result<Exit> {
    IoRuntime::start()?.handle().block_on(work_on(command))
}

async fn work_on(command: &QueueCommand) -> anyhow::Result<Exit> {
    match command {
        QueueCommand::Stats { queue } => stats(queue).await?,
        QueueCommand::Peek { queue, filter, limit } => peek(queue, filter, *limit).await?,
        QueueCommand::Redrive { queue, filter, dry_run } => {
            change(queue, filter, Fate::PutBack, *dry_run, ["put back", "would put back"]).await?
        }
        QueueCommand::PurgeDead { queue, filter, all, dry_run } => {
            if filter.is_empty() && !all {
                return Err(Usage::from(anyhow!(NOTHING_NAMED)).into());
            }
            change(queue, filter, Fate::Remove, *dry_run, ["removed", "would remove"]).await?
        }
    }
    Ok(Exit::Complete)
}

const NOTHING_NAMED: &str = "name the dead letters to remove (--stage, --reason, --id), or --all";

async fn open(args: &QueueNameArgs) -> anyhow::Result<Arc<dyn JobQueue>> {
    let options = QueueArgs { queue_option: args.queue_option.clone(), lease: None, create: false };
    // Nothing is received here, so any broker's delivery limit will do.
    service::queue(&args.queue, &options, 1).await
}

async fn stats(args: &QueueNameArgs) -> anyhow::Result<()> {
    let queue = open(args).await?;
    let depth = queue.depth().await?;
    let mut kinds: BTreeMap<(String, String), u64> = BTreeMap::new();
    queue
        .review(&mut |Buried { why: DeadLetter { stage, reason }, .. }| {
            *kinds.entry((stage.clone(), reason.clone())).or_default() += 1;
            Fate::Keep
        })
        .await?;
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    let name = queue.name();
    let mut out = console::stdout();
    if args.json {
        let mut reasons = Vec::new();
        for ((stage, reason), count) in kinds {
            reasons.push(json!({ "stage": stage, "reason": reason, "count": count }));
        }
        let all = json!({
            "queue": name, "waiting": depth.waiting, "leased": depth.leased, "dead": depth.dead, "reasons": reasons,
        });
        return Ok(writeln!(out, "{all}")?);
    }
    writeln!(out, "queue {name}: {} waiting, {} leased, {} dead", depth.waiting, depth.leased, depth.dead)?;
    for ((stage, reason), count) in kinds.iter().take(KINDS) {
        writeln!(out, "{count:>8}  {:<10}  {}", or_dash(stage), one_line(reason, REASON))?;
    }
    match kinds.len().saturating_sub(KINDS) {
        0 => Ok(()),
        others => Ok(writeln!(out, "          … and {others} other reasons")?),
    }
}

async fn peek(args: &QueueNameArgs, filter: &FilterArgs, limit: usize) -> anyhow::Result<()> {
    let queue = open(args).await?;
    let mut shown = 0;
    let mut printed = Ok(());
    let mut stages = BTreeSet::new();
    queue
        .review(&mut |letter| {
            stages.insert(letter.why.stage.clone());
            if shown == limit || printed.is_err() {
                return Fate::End;
            }
            if filter.covers(letter) {
                shown += 1;
                printed = print(letter, args.json);
            }
            Fate::Keep
        })
        .await?;
    filter.warn_of_no_stage(&stages);
    Ok(printed?)
}

/// Prints a dead letter on one line. Only JSON has the job itself, which may hold secrets.
fn print(letter: &Buried, is_json: bool) -> std::io::Result<()> {
    let Buried { id, why: DeadLetter { stage, reason }, since, is_whole, body } = letter;
    let since = since.map(|since| DateTime::<Utc>::from(since).format("%Y-%m-%dT%H:%M:%SZ").to_string());
    let mut out = console::stdout();
    if is_json {
        let job = serde_json::from_slice(body).unwrap_or_else(|_| Value::from(String::from_utf8_lossy(body)));
        let line = json!({
            "id": id, "stage": stage, "reason": reason, "since": since, "whole": is_whole, "job": job,
        });
        return writeln!(out, "{line}");
    }
    let since = since.as_deref().unwrap_or("-");
    writeln!(out, "{since}  {:<10}  {id}  {}", or_dash(stage), one_line(reason, REASON))
}

/// Puts back or removes the dead letters that the filter covers.
async fn change(
    args: &QueueNameArgs,
    filter: &FilterArgs,
    fate: Fate,
    dry_run: bool,
    [done, would]: [&str; 2],
) -> anyhow::Result<()> {
    let queue = open(args).await?;
    let mut all = 0_u64;
    let mut matched = 0_u64;
    let mut cut = 0_u64;
    let mut stages = BTreeSet::new();
    let reviewed = queue
        .review(&mut |letter| {
            all += 1;
            stages.insert(letter.why.stage.clone());
            if !filter.covers(letter) {
                return Fate::Keep;
            }
            if fate == Fate::PutBack && !letter.is_whole {
                cut += 1;
                return Fate::Keep;
            }
            matched += 1;
            if dry_run { Fate::Keep } else { fate }
        })
        .await;
    if let Err(error) = reviewed {
        bail!("{error}; {done} about {matched} of the first {all} dead letters, and the same command goes on");
    }
    filter.warn_of_no_stage(&stages);
    let name = queue.name();
    let verb = if dry_run { would } else { done };
    let mut out = console::stdout();
    if args.json {
        let counts = json!({ "queue": name, "dead": all, "matched": matched, "cut": cut, "dry_run": dry_run });
        return Ok(writeln!(out, "{counts}")?);
    }
    writeln!(out, "queue {name}: {verb} {matched} of {all} dead letters")?;
    match cut {
        0 => Ok(()),
        cut => Ok(writeln!(out, "{cut} stay: their jobs were too large, and are cut")?),
    }
}

fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

impl FilterArgs {
    fn is_empty(&self) -> bool {
        self.stage.is_none() && self.reason.is_none() && self.id.is_empty()
    }

    /// Lists the stages of the dead letters if none of them is the given one.
    fn warn_of_no_stage(&self, found: &BTreeSet<String>) {
        if let Some(stage) = self.stage.as_ref().filter(|stage| !found.is_empty() && !found.contains(*stage)) {
            let found: Vec<&str> = found.iter().map(|stage| or_dash(stage)).collect();
            console::say!("no dead letter has --stage {stage}; there is {}", found.join(", "));
        }
    }

    fn covers(&self, Buried { id, why, .. }: &Buried) -> bool {
        self.stage.as_ref().is_none_or(|stage| *stage == why.stage)
            && self.reason.as_ref().is_none_or(|text| why.reason.contains(text.as_str()))
            && (self.id.is_empty() || self.id.contains(id))
    }
}
